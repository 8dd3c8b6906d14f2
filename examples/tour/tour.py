"""A minute that plays by itself: what Stop means in a naive loop, and what it means on Checkrein.

It shows nothing that did not happen. Every claim is checked against the log of the tools and the process table, and the
tour fails if one of them is not true.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from checkrein.core.enums import EffectState, Status
from examples.tour.acts import Half, in_a_naive_loop, on_checkrein
from examples.tour.columns import WIDTH, Column, side_by_side
from examples.tour.crash import Crash, pause_kill_resume
from examples.tour.live import Out

PACE: Final = 0.6
FAST: Final = 0.2
_READING_SECONDS: Final = 2.0


async def play(out: Out, *, fast: bool = False) -> int:
    """Play the tour, telling `out` one line at a time. 0 if everything it has shown was true."""
    pace, reading = (FAST, 0.0) if fast else (PACE, _READING_SECONDS)
    with tempfile.TemporaryDirectory(prefix="checkrein-tour-") as temporary:
        folder = Path(temporary)
        _say(out, OPENING)
        await asyncio.sleep(reading)

        _title(out, "1. A naive loop: the agent runs in a thread, Stop cancels the task")
        naive = await in_a_naive_loop(folder / "naive", pace, out)
        _say(out, after_naive(naive))
        await asyncio.sleep(reading)

        _title(out, "2. The same agent on Checkrein, stopped at the same moment")
        lasted = naive.log[-1].at - naive.clicked_at
        checkrein = await on_checkrein(folder / "checkrein", pace, out, watch_seconds=lasted)
        _say(out, f"   Watched for {lasted:.0f} s after Stop, as long as the naive loop went on.")
        await asyncio.sleep(reading)

        _title(out, "3. The tools' own logs, side by side (! marks work after Stop)")
        for line in side_by_side(
            Column("NAIVE LOOP", naive.lines(), ends="(here the tour ended it)"),
            Column("CHECKREIN", checkrein.lines(), ends="(nothing more)"),
        ):
            out(line)
        await asyncio.sleep(reading)

        _title(out, "4. The agent is paused, its process killed with -9, and another resumes it")
        crash = await pause_kill_resume(folder / "crash", pace, out)
        _say(out, how_often(crash))
    untrue = [claim for claim, is_true in claims(naive, checkrein, crash) if not is_true]
    out("")
    for claim in untrue:
        out(f"NOT TRUE THIS TIME: {claim}.")
    out(summary(naive, checkrein))
    return 1 if untrue else 0


OPENING: Final = """\
One agent, twice: the same scripted model, the same tools, the same data. It
looks for customers who may leave, locks a table, begins a draft, scores 240
customers with a child process at its side, and e-mails the result.
Stop is pressed in the middle of the scoring. What then really happens is not
for the program to say: the tools keep a log of their own."""


def summary(naive: Half, checkrein: Half) -> str:
    """All of it in one line of counts."""
    return (
        f"after Stop: naive {naive.ticks} ticks, {naive.children_alive} child alive, {naive.mails} e-mail; "
        f"Checkrein {checkrein.ticks}, {checkrein.children_alive}, {checkrein.mails}"
    )


def after_naive(naive: Half) -> str:
    return f"""\
   It said it had stopped. Then came {naive.ticks} more ticks of work, and an e-mail.
   (In an async loop that e-mail stays behind; tool and child go on regardless.)"""


def how_often(crash: Crash) -> str:
    """What the killed run did, and how often."""
    times = ", ".join(f"{what} {crash.times[what]}x" for what in ONCE)
    begun = sum(times for what, times in crash.times.items() if what.startswith("scoring begins"))
    return f"""\
   In the tools' log: {times}.
   Scoring was begun {begun}x: it only reads, and its author says it may be repeated."""


ONCE: Final = ("lock taken", "draft made", "memo written")
"""What must be in the log of the killed run once, and no more."""


def claims(naive: Half, checkrein: Half, crash: Crash) -> Iterator[tuple[str, bool]]:
    """Everything the tour says, and whether its witnesses agree."""
    receipt = checkrein.receipt
    assert receipt is not None
    undone = {effect.what for effect in receipt.effects if effect.now is EffectState.UNDONE}
    yield "the naive loop works on after Stop", naive.ticks > 0
    yield "its child process lives on", naive.children_alive > 0
    yield "its e-mail goes out after Stop", naive.mails == 1
    yield "on Checkrein no work is done after Stop", not checkrein.after()
    yield "no child process lives on", checkrein.children_alive == 0
    yield "the receipt says cancelled", receipt.status is Status.CANCELLED
    yield "the draft is discarded and the lock released", len(undone) == 2
    yield "neither draft nor lock is left", checkrein.drafts == checkrein.locks == 0
    yield "nothing is done while paused", crash.ticks_while_paused == 0
    yield "no tool outlives kill -9", crash.children_left == 0
    yield "the run completes in the new process", crash.state.status is Status.COMPLETED
    yield "nothing is done twice", all(crash.times[what] == 1 for what in ONCE)


def _title(out: Out, text: str) -> None:
    out("")
    out(text)
    out("-" * min(len(text), WIDTH))


def _say(out: Out, text: str) -> None:
    for line in text.splitlines():
        out(line)
