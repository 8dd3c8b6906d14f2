"""The two halves of the tour: the same agent, stopped at the same moment, in a naive loop and on Checkrein.

What is reported of each half is what its witnesses say: the log that the tools keep, and the process table.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from checkrein.asyncutil import kill
from checkrein.core.receipts import Receipt
from checkrein.demo import GOAL, agent, data
from checkrein.demo.data import Entry
from checkrein.demo.tools import OUTBOX, locks
from checkrein.runtime import Runtime
from examples.tour.columns import Line
from examples.tour.live import UNDO, Live, Out, children

MAIL_GOAL: Final = f"{GOAL} Send the result to the account team."
STOP_AFTER: Final = "scored 60 of 240"
"""Stop is pressed when this is in the log: in the middle of the long tool, with the e-mail still to come."""
MAIL_SENT: Final = "E-MAIL SENT"
ROOT: Final = Path(__file__).parents[2]
"""The checkout, where `examples.tour` can be imported."""


@dataclass(frozen=True)
class Half:
    """What the witnesses say about one half."""

    clicked_at: float
    stopped_at: float
    """When it was said that everything had stopped."""
    log: tuple[Entry, ...]
    children_alive: int
    """How many child processes of the tool were there a while after Stop."""
    drafts: int = 0
    locks: int = 0
    receipt: Receipt | None = None

    def after(self) -> list[Entry]:
        """What was done after that, other than cleaning up."""
        return [entry for entry in self.log if entry.at > self.stopped_at and not entry.what.startswith(UNDO)]

    @property
    def ticks(self) -> int:
        return sum(entry.what.startswith(("scored", "child:")) for entry in self.after())

    @property
    def mails(self) -> int:
        return sum(entry.what == MAIL_SENT for entry in self.after())

    def lines(self) -> list[Line]:
        late = set(self.after())
        return [Line(entry.at - self.clicked_at, entry.what, entry in late) for entry in self.log]


@asynccontextmanager
async def program(module: str, folder: Path, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A Python program of the tour, in a process of its own; killed on leaving, if it is still there.

    Its temporary files are in `folder` too: one that is killed does not get to remove them.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        f"examples.tour.{module}",
        *arguments,
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(folder)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        await kill(process)


async def in_a_naive_loop(folder: Path, pace: float, out: Out) -> Half:
    """The agent in a thread; Stop cancels the task. Returns when the e-mail is out; nothing else of it is left then."""
    data.make(folder)
    live = Live(folder, out)
    async with program("naive", folder, str(folder), str(pace), MAIL_GOAL) as app:
        assert app.stdin is not None
        assert app.stdout is not None
        try:
            await live.until(STOP_AFTER)
            clicked_at = time.time()
            app.stdin.write(b"stop\n")
            said = (await app.stdout.readline()).decode().strip()
            stopped_at = time.time()
            live.stop(clicked_at, stopped_at, f"Stop. {1000 * (stopped_at - clicked_at):.0f} ms later it says: {said}.")
            await live.watch(2 * pace)
            alive = children(folder)
            for child in alive:
                live.mark(f"child pid {child.pid} is still in the process table", is_late=True)
            await live.until(MAIL_SENT)
        finally:
            await kill(app)  # before its children, so that it starts no more of them
            for child in children(folder):
                with suppress(psutil.NoSuchProcess):
                    child.kill()
    return Half(clicked_at, stopped_at, tuple(live.show()), len(alive))


async def on_checkrein(folder: Path, pace: float, out: Out, *, watch_seconds: float) -> Half:
    """The same agent, driven by a runtime; Stop is cancel. Then it is watched for as long as the naive loop went on."""
    live = Live(folder, out)
    async with Runtime(f"sqlite:///{folder}/runs.db") as runtime:
        run = await runtime.start(agent(folder, pace=pace), MAIL_GOAL)
        await live.until(STOP_AFTER)
        clicked_at = time.time()
        receipt = await run.cancel(by="you", reason="wrong path")
        if not isinstance(receipt, Receipt):
            raise RuntimeError(f"The cancel has not settled: it waits for {receipt.waiting_for}.")
        took = receipt.timing_ms.settled or 0.0
        stopped_at = clicked_at + (receipt.timing_ms.calls_stopped or 0.0) / 1000
        live.stop(clicked_at, stopped_at, "Stop.")
        live.say(f"The receipt, {took:.0f} ms after Stop:")
        for line in in_words(receipt):
            out(f"       {line}")
        await live.watch(2 * pace, nothing=NOTHING)
        alive = children(folder)
        if not alive:
            live.mark("its child is gone from the process table")
        await live.watch(clicked_at + watch_seconds - time.time(), nothing=NOTHING)
    drafts = len(list((folder / OUTBOX).glob("*")))
    return Half(clicked_at, stopped_at, tuple(live.show()), len(alive), drafts, locks(folder), receipt)


NOTHING: Final = "(nothing)"


def in_words(receipt: Receipt) -> Iterator[str]:
    """A receipt, for people."""
    yield f"{receipt.status.value} by {receipt.by}, because: {receipt.reason}"
    for call in receipt.calls:
        yield f"{call.name}: {call.now}, {call.ms:.0f} ms after Stop"
    for effect in receipt.effects:
        yield f"{effect.what}: {effect.now.value}{f' ({effect.why})' if effect.why else ''}"
    yield f"tokens after Stop: {receipt.tokens_after_stop}"
