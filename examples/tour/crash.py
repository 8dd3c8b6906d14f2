"""The last part of the tour: a run is paused, its process is killed with -9, and another process goes on with it."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from checkrein.asyncutil import kill
from checkrein.control.control import Control
from checkrein.core.receipts import Receipt
from checkrein.core.state import State
from checkrein.demo import GOAL, data
from checkrein.journal import open_journal
from checkrein.processes.identity import this_process
from examples.tour.acts import STOP_AFTER, program
from examples.tour.live import PATIENCE_SECONDS, Live, Out, children


@dataclass(frozen=True)
class Crash:
    """What the witnesses say about it."""

    ticks_while_paused: int
    children_left: int
    """Of the killed process."""
    times: Counter[str]
    """How often each line is in the log."""
    state: State


async def pause_kill_resume(folder: Path, pace: float, out: Out) -> Crash:
    store = f"sqlite:///{folder}/runs.db"
    data.make(folder)
    live = Live(folder, out)
    live.is_brief = True
    async with program("drive", folder, store, str(folder), str(pace), GOAL) as first:
        assert first.stdout is not None
        run = (await first.stdout.readline()).decode().strip()
        await live.until(STOP_AFTER)
        async with await open_journal(store) as journal:
            receipt = await Control(journal, this_process()).pause(run, by="you")
        if not isinstance(receipt, Receipt):
            raise RuntimeError(f"The pause has not settled: it waits for {receipt.waiting_for}.")
        before = len(live.show())
        held = ", ".join(call.name for call in receipt.calls if call.now == "held")
        live.say(f"Pause. Held where it is: {held or 'nothing'}.")
        await live.watch(2 * pace + 0.1, nothing="(nothing)")
        ticks = len(live.show()) - before
        await kill(first)
    left = await _left(folder)
    live.say(f"kill -9 of process {first.pid}, which drove it. Of its tools {left or 'none'} lives on.")
    async with program("drive", folder, store, str(folder), str(pace), "--resume", run) as second:
        live.say(f"Resume, in the new process {second.pid}.")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while second.returncode is None:
                live.show()
                await asyncio.sleep(0.02)
    live.show()
    async with await open_journal(store) as journal:
        state = await journal.load(run)
    return Crash(ticks, left, Counter(entry.what for entry in data.entries(folder)), state)


async def _left(folder: Path) -> int:
    """How many tool processes of a dead runtime are left. Its supervisor has a few seconds to end them."""
    patience = time.monotonic() + 10
    while children(folder) and time.monotonic() < patience:  # noqa: ASYNC110 - the process table tells nobody
        await asyncio.sleep(0.02)
    return len(children(folder))
