"""Answers that go round in circles, runs that are stuck, and conversations that are neither."""

from __future__ import annotations

from typing import Final

CIRCLES: Final = {
    "one sentence, three times": "I will now check the inventory table for missing rows. " * 3,
    "one sentence without end": "The result is the same as before and so we continue with the next step. " * 40,
    "a paragraph": (
        "First I load the customer list from the warehouse. Then I join it with the revenue table by account number. "
        "After that I compute the churn score for every account. Finally I write the memo to the shared folder.\n\n"
    )
    * 4,
    "two sentences in turn": (
        "We should store the sessions in Redis because it is fast. "
        "We should store the sessions in PostgreSQL because it is durable. "
    )
    * 4,
    "a list item": "Here are the reasons:\n" + "- The report was not delivered to the finance department in time\n" * 6,
    "a few words without punctuation": "and then we go back to the start of the list " * 9,
    "one word": "really " * 60,
    "one word in capitals": "ERROR " * 80,
    "with small changes": (
        "Let me check the database connection settings. Okay, now let me check the database connection settings again. "
        "So I check the database connection settings. Right, let me just check the database connection settings first."
    ),
    "with a counter of words": (
        "I need to look at the failing deployment logs. Hmm. I really need to look at the failing deployment logs. Hm. "
        "Well, I need to look at the failing deployment logs now. And I need to look at the failing deployment logs."
    ),
    "back and forth, two databases": (
        "Redis would be a good choice for the queue. Actually, PostgreSQL is safer, since it is on disk. "
        "Wait, Redis has blocking pops, which we want. Hmm, PostgreSQL has SKIP LOCKED, that is enough. "
        "Actually, Redis would be faster under load. No, PostgreSQL is what the team knows. "
        "Wait, Redis is simpler to operate after all."
    ),
    "back and forth, two flights": (
        "Let us take the morning flight. Wait, the evening flight is 40 euros cheaper. Actually, with the morning "
        "flight you would be at the meeting on time. On second thought, the evening flight leaves you the day. "
        "Hmm, the morning flight has the better seats. Actually the evening flight is direct."
    ),
    "back and forth, two refactorings": (
        "I'll move the parser into its own module. Actually, no, keeping it inline avoids the import cycle. "
        "Hmm, but a module would make the parser testable. Wait, the inline version is what the tests patch. "
        "Actually a separate module is cleaner. But wait, inline means fewer files. "
        "Let me reconsider: the module it is. Hold on, inline is what the reviewer asked for."
    ),
    "German": "Ich prüfe jetzt noch einmal die Verbindung zur Datenbank und die Rechte des Benutzers. " * 3,
    "Chinese": "我现在再检查一次数据库的连接和用户的权限。" * 4,
    "Japanese": "もう一度データベースの接続を確認してから、ログを読み直します。" * 4,
    "a table row": "| pending | retry the upload of the quarterly report | operations |\n" * 35,
    "a line of code": "```python\n" + "    result = process(result, options, fallback=None)\n" * 40 + "```\n",
    "late in a long answer": (
        "The migration has three phases. In the first we copy the old rows, in the second we compare, in the third we "
        "switch over. Each can be undone. The comparison takes about an hour for the largest tenant.\n\n"
        + "If the comparison fails, we start the comparison again from the beginning. "
        * 3
    ),
    "a question to oneself": "Should I ask the user which folder contains the invoices for this quarter? " * 3,
}

_TRY: Final = (
    "The build failed again with a missing header. I will install the development package and run the build once more. "
    "If that does not help, I will look at the include path."
)
_OTHER: Final = (
    "The package is installed and the header is there, so the include path must be wrong. I will add the directory to "
    "the compiler flags and start the build from scratch."
)

STUCK: Final = {
    "three times the same": [_TRY, _TRY, _TRY],
    "every other time": [_TRY, _OTHER, _TRY, _OTHER, _TRY],
    "almost the same": [_TRY, "Okay, " + _TRY, _TRY.replace("I will", "Now I will")],
    "with a longer middle": [_TRY, "That worked for the library, the tests are next.", _OTHER, _TRY, _OTHER, _TRY],
}

CONVERSATIONS: Final = {
    "the same closing words": [
        "Your parcel is in Hanover and should arrive tomorrow. Is there anything else I can help you with today?",
        "Yes, you can have it sent to a shop near you. Is there anything else I can help you with today?",
        "The shop keeps it for seven days. Is there anything else I can help you with today?",
        "No, you need no identity card for that, the code is enough. Is there anything else I can help you with today?",
    ],
    "a word before each tool": ["Let me look at the next file."] * 6,
    "short answers": ["Done.", "Done.", "Done.", "Yes.", "Done."],
    "progress": [
        f"I have read chapter {n} and noted {3 * n} open questions for the editor to look at." for n in range(1, 8)
    ],
    "the same thing twice, on request": [_TRY, "You are welcome.", _TRY],
}
