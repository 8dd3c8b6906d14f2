"""One writer, one event at a time: what a single append costs beyond reaching the disk.

The peer inserts the same bytes into a plain table and commits. What the journal adds is a thread, the checks of epoch,
head and fences, the hash and two unique indexes. How much of that is the thread alone, which nobody with an event loop
can do without, is shown by a second peer that puts the plain table behind one.

The sum of what is added hardly depends on the disk; the ratio does, because a faster disk makes the peer cheaper.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bench.harness import MICRO, Benchmark, Measure, Room, Rounds, Target, latencies
from bench.plain import PlainTable, PlainThread
from bench.workload import begin, finished, new_id
from checkrein.journal import encoding, open_journal

TARGET: Final = Target("at most", 1.5)
PER_TURN: Final = 20
WARM_UP: Final = 1200
"""Enough for each log to be written round once: one that still grows costs more."""


async def measure(room: Room) -> list[Measure]:
    plain, thread = PlainTable(room.folder / "plain.db"), PlainThread(room.folder / "thread.db")
    try:
        async with await open_journal(room.address("journal")) as journal:
            run = await begin(journal, "lone")

            async def append() -> Sequence[float]:
                return [await run.append_timed(finished(new_id())) for _ in range(PER_TURN)]

            async def insert() -> Sequence[float]:
                return [plain.insert_timed(encoding.encode(finished(new_id()))) for _ in range(PER_TURN)]

            async def insert_in_thread() -> Sequence[float]:
                return [await thread.insert_timed(encoding.encode(finished(new_id()))) for _ in range(PER_TURN)]

            rounds = Rounds(append=append, insert=insert, insert_in_thread=insert_in_thread)
            await rounds.warm_up(room.count(WARM_UP // PER_TURN, 10))
            await rounds.run(room.count(120, 20))
    finally:
        thread.close()
        plain.close()
    added = rounds.median("append") - rounds.median("insert")
    return [
        rounds.ratio("an append, against a raw insert", "append", "insert", TARGET),
        rounds.ratio("an append, against a raw insert in a thread", "append", "insert_in_thread"),
        Measure(what="added to the raw insert", value=added * MICRO, unit="µs"),
        *latencies("append", rounds.samples["append"]),
        *latencies("raw insert", rounds.samples["insert"]),
        *latencies("raw insert in a thread", rounds.samples["insert_in_thread"]),
    ]


BENCHMARK: Final = Benchmark("lone_append", "one event at a time, against a raw insert", measure)
