"""Texts that repeat themselves and are no loops: lists, tables, code, data, poems and songs. And loops of small models.

The loops are such as a model of 135 million parameters really falls into, among them its own words.
"""

# ruff: noqa: E501, SIM905

from __future__ import annotations

import json
from typing import Final


def _days() -> str:
    names = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
    return "\n".join(
        f"{day}: {hour}:00 team meeting, {hour + 1}:00 work on the report" for hour, day in enumerate(names, 8)
    )


def _table(rows: int) -> str:
    head = "| server | status | region | disk |\n|--------|--------|--------|------|\n"
    return head + "".join(f"| web-{n:02} | up | eu-west | {40 + n * 7 % 50} % |\n" for n in range(rows))


_ROW: Final = "0 0 0 0 0 0 0 0 0 0"


ORDINARY: Final = {
    # -- lists
    "a shopping list": "Here is your list:\n"
    + "".join(
        f"- {n} x {what}\n"
        for n, what in enumerate(
            "eggs milk bread butter apples pears onions rice pasta beans salt sugar tea coffee soap".split(), 1
        )
    ),
    "a checklist": "".join(
        f"- [ ] Review the chapter about {what}\n"
        for what in (
            "pumps",
            "valves",
            "pipes",
            "filters",
            "sensors",
            "wiring",
            "heating",
            "cooling",
            "drains",
            "meters",
        )
    ),
    "steps that begin alike": "".join(
        f"{n}. Click on the tab {what}, then click on Save.\n"
        for n, what in enumerate(
            ("General", "Network", "Users", "Groups", "Mail", "Printers", "Backup", "Updates", "Security", "Logs"), 1
        )
    ),
    "a week": _days(),
    "questions and answers": "".join(
        f"Q: What is the capital of {a}?\nA: The capital of {a} is {b}.\n\n"
        for a, b in (
            ("France", "Paris"),
            ("Spain", "Madrid"),
            ("Italy", "Rome"),
            ("Austria", "Vienna"),
            ("Poland", "Warsaw"),
            ("Greece", "Athens"),
            ("Norway", "Oslo"),
            ("Finland", "Helsinki"),
            ("Portugal", "Lisbon"),
        )
    ),
    "a multiplication table": "".join(f"7 x {n} = {7 * n}\n" for n in range(1, 21)),
    "numbers counted": ", ".join(map(str, range(1, 200))),
    "years": "The winners were: "
    + ", ".join(
        f"{year} ({who})"
        for year, who in zip(
            range(1990, 2010),
            "Ada Ben Cleo Dan Eve Finn Gus Hana Ivo Jan Kim Leo Mia Ned Ola Pia Quin Rob Sue Tim".split(),
            strict=True,
        )
    ),
    "directions": "Turn left. Go straight for 200 m. Turn right. Go straight for 400 m. Turn right. Go straight for "
    "1 km. Turn left. Go straight for 50 m. Turn left. You are there.",
    "moves of chess": "1. e4 e5 2. Nf3 Nc6 3. Bb5 a6 4. Ba4 Nf6 5. O-O Be7 6. Re1 b5 7. Bb3 d6 8. c3 O-O 9. h3 Nb8 "
    "10. d4 Nbd7 11. Nbd2 Bb7 12. Bc2 Re8 13. Nf1 Bf8 14. Ng3 g6 15. a4 c5 16. d5 c4 17. Bg5 h6 18. Be3 Nc5",
    # -- tables and data
    "a table of servers": _table(30),
    "a table with one word everywhere": "| test | result |\n|---|---|\n"
    + "".join(f"| case {n} | passed |\n" for n in range(40)),
    "a table with long rules": "+----------------------+----------------------+\n| name | value |\n"
    + "+----------------------+----------------------+\n" * 4
    + "-" * 400
    + "\n",
    "a log": "".join(f"2026-11-16 09:{n:02}:07 INFO request done in {n * 13 % 97} ms status 200\n" for n in range(40)),
    "a CSV file": "id,name,active,admin\n" + "".join(f"{n},user{n},yes,no\n" for n in range(40)),
    "JSON": json.dumps(
        [{"id": n, "name": f"item {n}", "price": n * 3 % 11, "in_stock": True} for n in range(25)], indent=2
    ),
    "JSON in prose": "Here it is: " + json.dumps({f"key{n}": None for n in range(60)}),
    "a matrix": "The identity matrix:\n" + "\n".join(_ROW[: 2 * n] + "1" + _ROW[2 * n + 1 :] for n in range(10)),
    "a matrix of zeros in a code block": "```\n" + "[0, 0, 0, 0, 0, 0, 0, 0, 0, 0],\n" * 10 + "```\n",
    "dates": "".join(f"2026-03-{n:02} closed\n" for n in range(1, 31)),
    "HTML": "".join(f"<tr><td>{n}</td><td>open</td><td></td></tr>\n" for n in range(30)),
    "an SQL dump": "".join(f"INSERT INTO orders (id, state) VALUES ({n}, 'open');\n" for n in range(40)),
    # -- code
    "tests": "```python\n"
    + "".join(
        f"def test_{what}(client):\n    assert client.get('/{what}').status == 200\n\n\n"
        for what in ("users", "groups", "orders", "items", "carts", "mails", "files", "notes", "tags", "jobs")
    )
    + "```\n",
    "a class": "```python\nclass Point:\n"
    + "".join(f"    @property\n    def {axis}(self) -> float:\n        return self._{axis}\n\n" for axis in "xyzuvwrst")
    + "```",
    "C": "```c\n"
    + "".join(f"    case {n}:\n        return read_register(device, {n});\n" for n in range(30))
    + "```\n",
    "code without a fence": "".join(f"x{n} = load('part{n}.csv')\n" for n in range(30)),
    "nested lists of code": "".join(f"    items.append(Item(name='{n}', price={n}))\n" for n in range(30)),
    # -- poems and songs
    "a round": "Row, row, row your boat,\nGently down the stream.\nMerrily, merrily, merrily, merrily,\n"
    "Life is but a dream.\n" * 2,
    "the bus": "".join(
        f"The {what} on the bus {does}, {sound}, {sound}.\nThe {what} on the bus {does},\nAll through the town.\n\n"
        for what, does, sound in (
            ("wheels", "go round and round", "round and round"),
            ("wipers", "go swish, swish, swish", "swish, swish, swish"),
            ("horn", "goes beep, beep, beep", "beep, beep, beep"),
            ("doors", "go open and shut", "open and shut"),
        )
    ),
    "bottles": "".join(
        f"{n} green bottles hanging on the wall,\nAnd if one green bottle should accidentally fall,\n"
        f"There'll be {n - 1} green bottles hanging on the wall.\n\n"
        for n in range(6, 2, -1)
    ),
    "a rhyme that grows": "This is the house that Jack built.\n\nThis is the malt that lay in the house that Jack built.\n\n"
    "This is the rat that ate the malt that lay in the house that Jack built.\n\nThis is the cat that killed the rat "
    "that ate the malt that lay in the house that Jack built.\n\nThis is the dog that worried the cat that killed the "
    "rat that ate the malt that lay in the house that Jack built.",
    "a poem": "The rain comes down, the rain comes down,\nOn field and garden, house and town.\nThe wind goes by, the wind "
    "goes by,\nAnd turns the pages of the sky.\nThe night is long, the night is long,\nAnd in the dark there is a song.",
    "a litany": "".join(
        f"For the {what}, we give thanks.\n"
        for what in (
            "bread",
            "water",
            "morning",
            "evening",
            "rain",
            "sun",
            "friends",
            "strangers",
            "work",
            "rest",
            "sea",
            "hills",
        )
    ),
    "a farm": "".join(
        f"Old MacDonald had a farm, E-I-E-I-O. And on that farm he had a {who}, E-I-E-I-O. With a {cry} {cry} here, and a "
        f"{cry} {cry} there, here a {cry}, there a {cry}, everywhere a {cry} {cry}.\n"
        for who, cry in (("cow", "moo"), ("pig", "oink"))
    ),
    # -- prose
    "a speech": "We will build schools. We will build roads. We will build bridges between towns that have not spoken for "
    "years. We will not wait. We will not ask who came first. We will begin tomorrow, and we will begin together.",
    "laughter": "Ha ha ha ha ha! That is a good one. Ha ha ha! Tell me another, and then we go on with the report.",
    "a dialogue": "“Is it here?” — “No.” — “Is it there?” — “No.” — “Is it under the table?” — “No.” — “Is it in the car?” — "
    "“Yes.” — “Is it broken?” — “No.” — “Is it yours?” — “Yes.”",
    "Chinese": "第一章讲水，第二章讲火，第三章讲土，第四章讲风，第五章讲山，第六章讲海，第七章讲人，第八章讲城，第九章讲书。",
}

LOOPS: Final = {
    "a question twice and an offer": "What's the topic? What's the topic? I'm here to help. " * 30,
    "a year": "2019, " * 200,
    "a year in a sentence": "The company was founded in " + "2019, " * 200,
    "two words": "the the cat " * 40,
    "apologies in another order": "I'm sorry. I'm here to help. I'm sorry. I'm sorry. I'm here to help. I'm here to help. "
    * 6,
    "a list that has stuck": "".join(f"{n}. The importance of being on time\n" for n in range(1, 60)),
    "hashtags": "#love #life #love #love #life " * 140,
    "no full stops": "and she went to the house and the house was dark and she went to the house " * 12,
    "thanks": "Thank you for your time. Thank you. Thank you for your time and help. Thank you. " * 8,
    "yes and no": "Yes, I can. No, I can't. Yes, I can. Yes, I can. No, I can't. " * 12,
    "one table cell": "| yes | yes | no | yes " * 200,
    "Chinese": "你好，我可以帮你。你好，你好，我可以帮你。" * 15,
    "a list of three": "red, green, blue, red, red, green, blue, green, blue, " * 15,
    "code that has stuck": "```python\n" + "    x = x + 1\n    x = x + 1\n    y = y + x\n" * 100,
}
