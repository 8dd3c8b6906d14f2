"""A driver's store is locked by somebody for longer than its lease, while its tools work."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from checkrein.control.control import Control
from checkrein.core.events import RunStarted
from checkrein.journal import open_journal
from checkrein.processes.identity import this_process
from tests.support.patience import PATIENCE_SECONDS
from tests.torture.crash.crew import end, in_child, start
from tests.torture.crash.runtime import diary
from tests.torture.crash.runtime.check import check_at_the_end
from tests.torture.crash.runtime.life import be_long_runtime
from tests.torture.crash.runtime.saga import stories
from tests.torture.crash.runtime.tools import LONG_CALLS, url

LEASE_SECONDS: Final = 2.4


class Lockout(msgspec.Struct):
    """`margins`: for each call, how long before the end of the lease its tool, or a child of it, wrote last."""

    margins: dict[str, float]
    before_takeover: float = 0.0
    """How long before somebody took the run up again the last of them had stopped."""
    drivers: int = 0
    wrong: list[str] = []


def lock_out(where: Path, *, has_rival: bool) -> Lockout:
    """For a process of its own."""
    where.mkdir(parents=True)
    errors = where / "errors"
    first = start(partial(be_long_runtime, where, "locked-first", lease_seconds=LEASE_SECONDS), errors)
    _until(lambda: len({line.key for line in diary.read(where) if line.what == "tick"}) == len(LONG_CALLS))
    rival = start(partial(be_long_runtime, where, "locked-rival", lease_seconds=LEASE_SECONDS), errors)
    if not has_rival:
        end(rival)
    with closing(sqlite3.connect(diary.store(where), timeout=PATIENCE_SECONDS, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        deadline = db.execute("SELECT max(deadline) FROM leases").fetchone()[0]
        time.sleep(max(0.0, deadline - time.time()) + 1.0)
        lines = diary.read(where)
        db.execute("ROLLBACK")
    lockout = Lockout({call: deadline - _last(lines, call) for call in _calls(lines)})
    report = where / "report"
    in_child(partial(_cancel_and_check, where, report), errors)
    for pid in (first, *[rival] * has_rival):
        if code := end(pid, PATIENCE_SECONDS):
            lockout.wrong.append(f"a runtime ended with {code}")
    took, drivers, wrong = msgspec.json.decode(report.read_bytes(), type=tuple[float, int, list[str]])
    lockout.before_takeover = took - max(_last(lines, call) for call in _calls(lines))
    lockout.drivers = drivers
    lockout.wrong += wrong
    if text := errors.read_text():
        lockout.wrong.append(f"somebody complained: {text[-3000:]}")
    return lockout


def _calls(lines: list[diary.Line]) -> list[str]:
    return sorted({line.call for line in lines})


def _last(lines: list[diary.Line], call: str) -> float:
    return max(line.at for line in lines if line.call == call and line.what == "tick")


def _until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        if time.monotonic() > until:
            raise TimeoutError("it did not happen in time")
        time.sleep(0.01)


def _cancel_and_check(where: Path, report: Path) -> int:
    report.write_bytes(msgspec.json.encode(asyncio.run(_cancelled(where))))
    return 0


async def _cancelled(where: Path) -> tuple[float, int, list[str]]:
    async with await open_journal(url(where)) as journal:
        (row,) = await journal.runs()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(starts := await _starts(journal, row.id)) < 2:
                await asyncio.sleep(0.02)
        await Control(journal, this_process()).cancel(row.id, by="person", wait=PATIENCE_SECONDS)
    (story,) = await stories(where, {}, verify=True)
    return starts[1].at, len({started.pid for started in starts}), check_at_the_end(story)


async def _starts(journal, run: str) -> list[RunStarted]:
    return [r.event for r in await journal.read(run) if isinstance(r.event, RunStarted)]
