"""Whether control finds the state of a long run as quickly as that of a short one.

Each load is the first of a journal that was just opened, as in a command that begins, acts and ends. The long run was
loaded once before, and has since grown by as many events as a load folds without keeping a new snapshot. What the very
first load costs, or one after many events that nobody looked at, is shown beside.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from statistics import median
from typing import Final

from bench.harness import MICRO, MILLI, Benchmark, Measure, Room, Rounds, Target
from bench.workload import call_events, filled
from checkrein.journal import open_journal
from checkrein.journal.stored import SNAPSHOT_AFTER

TARGET: Final = Target("at most", 5.0)
SHORT: Final = 100
LONG: Final = 100_000


async def measure(room: Room) -> list[Measure]:
    async with await open_journal(room.address("journal")) as journal:
        await filled(journal, "short", SHORT)
        long_run = await filled(journal, "long", LONG)

    first = [await _load_without_snapshot(room) for _ in range(room.count(3, 1))]
    fresh = [await _load(room, "long") for _ in range(room.count(15, 5))]

    async with await open_journal(room.address("journal")) as journal:
        await long_run.on(journal).fill(call_events(SNAPSHOT_AFTER // 2, long_run.epoch))

    async def load_long() -> Sequence[float]:
        return [await _load(room, "long")]

    async def load_short() -> Sequence[float]:
        return [await _load(room, "short")]

    rounds = Rounds(long=load_long, short=load_short)
    await rounds.run(room.count(60, 15))
    tail = f"load of 10⁵, {SNAPSHOT_AFTER} since its snapshot"
    return [
        rounds.ratio("loading 10⁵ events, against 10²", "long", "short", TARGET),
        Measure(what="load of 10²", value=rounds.median("short") * MICRO, unit="µs"),
        Measure(what=tail, value=rounds.median("long") * MICRO, unit="µs"),
        Measure(what="load of 10⁵, none since its snapshot", value=median(fresh) * MICRO, unit="µs"),
        Measure(what="load of 10⁵ for the first time", value=median(first) * MILLI, unit="ms"),
    ]


async def _load(room: Room, run: str) -> float:
    async with await open_journal(room.address("journal")) as journal:
        began = time.perf_counter()
        await journal.load(run)
        return time.perf_counter() - began


async def _load_without_snapshot(room: Room) -> float:
    with closing(sqlite3.connect(room.folder / "journal.db")) as db, db:
        db.execute("DELETE FROM snapshots")
    return await _load(room, "long")


BENCHMARK: Final = Benchmark("long_run_load", "loading a run of 10⁵ events, against one of 10²", measure)
