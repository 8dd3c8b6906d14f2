"""A hundred runs at work in one process: what group commit brings.

Each task waits for each of its appends, permits and outcomes in turn, on a run of its own. The peer inserts the same
bytes in batches of a hundred, with nothing checked and nobody waiting for a single row; the journal should reach a
fifth of that. A second peer does the same but keeps the rows so that they can be found by run: a hundred runs are a
hundred places in every index, and that is what most of the difference is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import Final, TypeVar

import anyio

from bench.harness import Benchmark, Measure, Room, Rounds, Target
from bench.plain import IndexedTable, PlainTable
from bench.workload import DrivenRun, begin, call_events, new_id
from checkrein.core.events import Event
from checkrein.journal import encoding, open_journal

R = TypeVar("R")

TARGET: Final = Target("at least", 0.2)
WRITERS: Final = 100
CALLS_PER_TURN: Final = 12
COMMITS_PER_TURN: Final = 40
"""Of the peers, each with one row for each writer."""
HASH: Final = bytes(32)


async def measure(room: Room) -> list[Measure]:
    plain, indexed = PlainTable(room.folder / "plain.db"), IndexedTable(room.folder / "indexed.db")
    bodies = [encoding.encode(event) for event in call_events(WRITERS // 2, epoch=1)]
    seqs = count(1)

    def rows() -> list[tuple[int, int, str, bytes, bytes]]:
        seq = next(seqs)
        return [(run, seq, new_id(), HASH, body) for run, body in enumerate(bodies)]

    async with await open_journal(room.address("journal")) as journal:
        runs = [await begin(journal, f"run-{n}") for n in range(WRITERS)]

        async def append() -> Sequence[float]:
            return [await _appends_per_second(runs)]

        async def insert() -> Sequence[float]:
            return [_rows_per_second(plain.insert_many, [bodies] * COMMITS_PER_TURN)]

        async def insert_with_indexes() -> Sequence[float]:
            return [_rows_per_second(indexed.insert_many, [rows() for _ in range(COMMITS_PER_TURN)])]

        rounds = Rounds(append=append, insert=insert, indexed=insert_with_indexes)
        await rounds.warm_up(1)
        await rounds.run(room.count(24, 5))
    plain.close()
    indexed.close()
    return [
        rounds.ratio("appends, against plain rows in batches", "append", "insert", TARGET),
        rounds.ratio("appends, against the same with two indexes", "append", "indexed"),
        Measure(what=f"appends of {WRITERS} writers", value=rounds.median("append"), unit="/s"),
        Measure(what=f"plain rows, {WRITERS} to a commit", value=rounds.median("insert"), unit="/s"),
        Measure(what="the same with two indexes", value=rounds.median("indexed"), unit="/s"),
    ]


async def _appends_per_second(runs: Sequence[DrivenRun]) -> float:
    work = [(run, call_events(CALLS_PER_TURN, run.epoch)) for run in runs]
    began = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for run, events in work:
            tasks.start_soon(_append_one_by_one, run, events)
    return sum(len(events) for _, events in work) / (time.perf_counter() - began)


async def _append_one_by_one(run: DrivenRun, events: Sequence[Event]) -> None:
    for event in events:
        await run.append(event)


def _rows_per_second(insert: Callable[[Sequence[R]], None], batches: Sequence[Sequence[R]]) -> float:
    began = time.perf_counter()
    for batch in batches:
        insert(batch)
    return sum(map(len, batches)) / (time.perf_counter() - began)


BENCHMARK: Final = Benchmark("many_writers", "100 writers at once, against batched inserts without a check", measure)
