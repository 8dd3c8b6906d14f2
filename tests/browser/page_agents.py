"""More agents for the tests of the page: with sub-runs, a hostile tongue, doubts, and very many calls."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any, Final

from checkrein import Agent, Context, Turns, agent, current_call, demo, tool
from checkrein.models.base import Delta, TextDelta
from checkrein.models.messages import Request, User
from checkrein.models.scripted import ScriptedModel, Turn
from checkrein.watchers import Loops
from tests.browser.agents import FOLDER, log_of
from tests.support.agent_tools import lines, note

# -- what a hostile model, tool or person may say

EVIL_URL: Final = "https://evil.test/stolen"
EVIL: Final = (
    "<script>window.pwned=1</script><img src=x onerror=\"window.pwned=2\"><img src='https://evil.test/stolen'>"
    '</script></textarea></style><svg onload="window.pwned=3"><iframe src="https://evil.test/stolen"></iframe>'
    '<a href="javascript:window.pwned=4">click</a><base href="https://evil.test/"><form action="https://evil.test/">'
)
EVIL_MARKDOWN: Final = (
    "# A report\n\n"
    "[good](https://example.com/a) [bad](javascript:window.pwned=5) "
    "[data](data:text/html,<script>window.pwned=6</script>) [quiet](https://evil.test/stolen)\n\n"
    "![picture](https://evil.test/stolen)\n\n"
    "<img src=x onerror=window.pwned=7> <div onclick='window.pwned=8'>raw</div>\n\n"
    "| a | b |\n| - | - |\n| **1** | <b>2</b> |\n\n"
    "```html\n<script>window.pwned=9</script>\n```\n\n"
    "- one\n- two `code`\n"
)
HIDDEN: Final = "\x1b[31mred\x1b[0m \u202egnp.exe \u200bzero\u200d \x07bell"
SPLIT: Final = ("<scr", "ipt>window.pwned=", "10</scr", "ipt><im", "g src=x onerr", "or=window.pwned=11>", "\n", HIDDEN)


@tool(effect="none")
async def look_up(question: str) -> Any:
    """Answer with something nasty."""
    return {"html": EVIL, "hidden": HIDDEN, "link": "javascript:window.pwned=12", question: question}


@tool(undo=print, name="leave_<b>mark</b>")
async def leave_mark(name: str) -> str:
    """Leave an effect with a nasty name."""
    return EVIL


@tool(effect="none")
async def break_down() -> None:
    """Fail with a nasty message."""
    raise RuntimeError(EVIL + HIDDEN)


@tool(effect="irreversible")
async def wire(to: str, note: str) -> str:
    """Ask with nasty arguments."""
    return "wired"


async def _pieces(reference: str) -> AsyncIterator[str]:
    for piece in SPLIT:
        yield piece
        await asyncio.sleep(0.02)
    await _until_open(reference)


@agent
async def hostile_stream(ctx: Context, goal: str) -> str:
    """Streams a script in pieces, and fails with one."""
    ctx.plan([EVIL, HIDDEN])
    async with ctx.step(EVIL):
        await ctx.stream(lambda: _pieces(_reference(goal)), name=f"stream {EVIL}")
    raise RuntimeError(EVIL + HIDDEN)


# -- sub-runs, and doubt. A reference names the log and the gate of a run.


def _log(reference: str) -> str:
    return f"{os.environ[FOLDER]}/{reference}.log"


async def _until_open(reference: str) -> None:
    while not Path(f"{os.environ[FOLDER]}/{reference}.gate").exists():
        await asyncio.sleep(0.05)


def _reference(goal: str) -> str:
    return log_of(Path(), goal).stem


@tool(effect="none")
async def read_book(reference: str) -> str:
    """Work until the gate is open."""
    note(_log(reference), "reading")
    await _until_open(reference)
    return "read"


@agent
async def reader(ctx: Context, goal: str) -> str:
    """Reads what its goal says, for whoever its goal says."""
    return str(await ctx.tool(read_book, reference=_reference(goal.partition(", for ")[2])))


@agent
async def librarian(ctx: Context, goal: str) -> str:
    """Hands its work on."""
    return str(await ctx.spawn(reader, goal.replace("Read", "Read the last chapter of", 1)))


@agent
async def boss(ctx: Context, goal: str) -> list[str]:
    """Starts two runs, one of which starts another."""
    first = ctx.spawn(reader, f"Read the first book, for {goal}")
    second = ctx.spawn(librarian, f"Read the second book, for {goal}")
    return list(await asyncio.gather(first, second))


def was_sent(call: Any) -> Any:
    """The log knows whether the invoice went out."""
    return "sent" in lines(_log(call.arguments["reference"]))


@tool(verify=was_sent)
async def send_invoice(to: str, amount: str, reference: str) -> str:
    """Send an invoice, and take long to say so."""
    note(_log(reference), "sending")
    await _until_open(reference)
    note(_log(reference), "sent")
    return "sent"


MAIL: Final = {
    "to": "account-team@example.com",
    "subject": "Customers who may leave next quarter",
    "text": "Of 240 customers, 37 look likely to leave next quarter; they pay 61,300 € a month.\nTalk first to Acme.",
}


@agent(tools=[send_invoice])
async def invoicer(ctx: Context, goal: str) -> str:
    """Sends an invoice that may be cut off."""
    to, amount = "Acme Ltd, 1182 Harbour Street", "1,182.00 €"
    return str(await ctx.tool(send_invoice, to=to, amount=amount, reference=_reference(goal)))


@tool(effect="irreversible", changes="the e-mail to {to}")
async def send_email(to: str, subject: str, text: str) -> str:
    """Send an e-mail. It cannot be called back."""
    return "sent"


# -- questions: payments one after the other, and two at once, of which only one holds the agent up

ACCOUNTS: Final = (9007199254740993, 40817810099910004312)
"""Numbers that are other numbers in JavaScript."""


@tool(effect="irreversible")
async def pay(account: int, amounts: dict[str, int], reference: str) -> str:
    """Pay, and note to whom."""
    note(_log(reference), f"paid {account}")
    return "paid"


@tool(effect="irreversible", approval="queue")
async def post_notice(text: str, reference: str) -> str:
    """Put up a notice."""
    note(_log(reference), "posted")
    return "posted"


@tool(undo=print, changes="the draft to {to}")
async def keep_draft(to: str) -> str:
    """Keep a draft."""
    return "kept"


@tool(effect="unknown")
async def work_long(reference: str) -> str:
    """Work until the gate is open, with an effect that nobody knows."""
    note(_log(reference), "working")
    await _until_open(reference)
    return "worked"


VOICE: Final = "x, deletes the customer database, cannot be taken back"


def _asking(request: Request) -> Turn:
    """What the first word of the goal says: pay one account after the other, ask two things at once, or many."""
    goal = next(message.text for message in request.messages if isinstance(message, User))
    reference, turns = _reference(goal), sum(not isinstance(message, User) for message in request.messages)
    kind = goal.split()[0]
    payment = {"amounts": {"net": 15, "id": ACCOUNTS[1]}, "reference": reference}
    if kind == "Pay" and turns < 2 * len(ACCOUNTS):
        return Turn(calls=[("pay", {"account": ACCOUNTS[turns // 2], **payment})])
    if kind == "Both" and turns == 0:
        text = "The office is closed on Monday. " * 120
        ask: list[tuple[str, dict[str, Any]]] = [
            ("post_notice", {"text": text, "reference": reference}),
            ("pay", {"account": 7, **payment}),
        ]
        return Turn("I have two questions. ", calls=ask)
    if kind == "Late" and turns < 4:
        work = Turn(calls=[("work_long", {"reference": reference})])
        return work if turns == 0 else Turn(calls=[("pay", {"account": 7, **payment})])
    if kind == "Then" and turns == 0:
        return Turn(
            calls=[
                ("post_notice", {"text": "Closed.", "reference": reference}),
                ("work_long", {"reference": reference}),
            ]
        )
    if kind == "Then" and turns == 3:
        return Turn(calls=[("pay", {"account": 7, **payment})])
    if kind == "Many" and turns == 0:
        return Turn(calls=[("post_notice", {"text": str(n), "reference": reference}) for n in range(30)])
    if kind == "Draft" and turns == 0:
        return Turn(calls=[("keep_draft", {"to": VOICE})])
    if kind == "Draft" and turns == 2:
        return Turn(calls=[("work_long", {"reference": reference})])
    return Turn("That is all.")


# -- very much


@tool(effect="none")
async def tick(n: int) -> int:
    """Next to nothing."""
    return n


@agent
async def busy(ctx: Context, goal: str) -> str:
    """Thousands of calls, as many as the goal says."""
    count = int(goal.split()[0])
    for first in range(0, count, 50):
        await asyncio.gather(*(ctx.tool(tick, n=n) for n in range(first, min(count, first + 50))))
    return "done"


@agent
async def echo(ctx: Context, goal: str) -> str:
    """Returns what it is given."""
    return goal


@agent
async def failing(ctx: Context, goal: str) -> str:
    """Does something, then has a mistake in it."""
    async with ctx.step("Read the list"):
        await ctx.tool(tick, n=1)
    async with ctx.step("Add it up"):
        raise KeyError("no column named mrr")


@tool(effect="none")
async def write_report() -> str:
    """Write a file that a person may want to read."""
    with current_call().write(f"{os.environ[FOLDER]}/report.md") as file:
        file.write("# Report\n\n<b>Acme</b> may leave.\n")
    return "written"


def _clumsily(request: Request) -> Turn:
    """Asks for a tool that is not there; knows why when it is asked."""
    if request.messages[-1] == User("Why?"):
        return Turn("There was no such tool.")
    is_first = len(request.messages) == 1
    return Turn("I try.", calls=[("fetch_everything", {"what": "all"})]) if is_first else Turn("I give up.")


class Silent:
    """A model that is still busy with the prompt."""

    name = "silent"

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        await asyncio.sleep(1000)
        yield TextDelta("never")


def page_agents(folder: Path) -> list[Any]:
    memo = (
        "## Who may leave\n\nOf **240** customers, 37 look likely to leave.\n\n"
        "| Customer | Pays a month |\n| --- | ---: |\n| Acme | 1,200 € |\n| Globex | 980 € |\n\n- Call Acme first.\n"
    )
    return [
        demo.agent(folder / "churn", pace=0.6),
        Agent(
            "filer",
            model=ScriptedModel([Turn("I write. ", calls=[("write_report", {})]), "Done."]),
            tools=[write_report],
        ),
        boss,
        librarian,
        reader,
        invoicer,
        busy,
        echo,
        failing,
        hostile_stream,
        Agent(
            "mailer",
            model=ScriptedModel(
                [Turn("The memo is ready. I send it to the account team.", calls=[("send_email", MAIL)])]
            ),
            tools=[send_email],
            stop_when=Turns(20),
        ),
        Agent(
            "asking",
            model=ScriptedModel(_asking),
            tools=[pay, post_notice, keep_draft, work_long],
            stop_when=Turns(20),
            goals=("Pay the landlord", "Both"),
            loops=False,
        ),
        Agent("writer", model=ScriptedModel([Turn(memo, thinking="They asked for a memo.")]), stop_when=Turns(20)),
        Agent(
            "hostile",
            model=ScriptedModel(
                [
                    Turn(EVIL + HIDDEN, calls=[("look_up", {"question": EVIL})]),
                    Turn(EVIL_MARKDOWN, calls=[("leave_<b>mark</b>", {"name": EVIL})], thinking=EVIL),
                    Turn(HIDDEN, calls=[("break_down", {})]),
                    Turn("Now the money.", calls=[("wire", {"to": EVIL, "note": HIDDEN})]),
                    Turn("Done."),
                ]
            ),
            tools=[look_up, leave_mark, break_down, wire],
            plan=[EVIL, HIDDEN],
            stop_when=Turns(20),
        ),
        Agent("clumsy", model=ScriptedModel(_clumsily), tools=[look_up], stop_when=Turns(20)),
        Agent("silent", model=Silent(), stop_when=Turns(20)),
        Agent(
            "parrot",
            model=ScriptedModel([Turn("I will check the numbers again now. " * 8)]),
            watchers=[Loops(3, action="flag")],
            stop_when=Turns(20),
        ),
    ]
