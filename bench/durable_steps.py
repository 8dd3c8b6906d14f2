"""What it costs that every step of an agent is durable and can be stopped: beyond the commits, which cannot be saved.

A step is a turn of a model that answers at once, and the call of an async tool that does nothing. Each of the two needs
a permit on disk before it begins, so a step needs two commits. The peer makes as many commits of as many bytes, one
after the other in one thread, and does nothing else. How much of the difference is the journal, and how much the
runtime above it, is shown by appending the same kinds of events to a journal without any agent; how much of that is
owed to SQLite, by commits into a table that has a journal's indexes.

The sides take turns every few steps, because a disk that others use changes its pace within a second. What is compared
are whole runs, with their beginning and their end. A slow disk flatters the ratio, so the processor time of a step
stands beside it: it hardly depends on the disk, or on how busy the machine is with other things.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import count
from typing import Final

from msgspec.structs import replace

from bench.actors import NO_ARGUMENTS, StepModel, nothing, stepper
from bench.harness import MICRO, Benchmark, Measure, Room, Rounds, Target
from bench.plain import IndexedTable, PlainTable
from bench.workload import DrivenRun, begin, finished, started
from checkrein import Run, Runtime
from checkrein.journal import open_journal

TARGET: Final = Target("at most", 2.5)
STEPS: Final = 200
PER_TURN: Final = 20
TURNS: Final = STEPS // PER_TURN
COMMITS_PER_STEP: Final = 2
SLOW_SECONDS: Final = 0.0005
"""A commit that takes longer hides much of what is done besides."""
WARM_UP: Final = 3
"""Runs, enough for each log to be written round once: one that still grows costs more."""


async def measure(room: Room) -> list[Measure]:
    plain, indexed = PlainTable(room.folder / "plain.db"), IndexedTable(room.folder / "indexed.db")
    try:
        async with Runtime(room.address("runs")) as runtime, await open_journal(room.address("journal")) as journal:
            whole = WholeRuns(runtime)
            bare = await begin(journal, "bare")
            body = bytes(await whole.size_of_a_commit())
            numbers = count(1)

            async def append() -> Sequence[float]:
                return [sum([await _append(bare, next(numbers)) for _ in range(PER_TURN * COMMITS_PER_STEP)])]

            async def commit() -> Sequence[float]:
                return [sum(plain.insert_timed(body) for _ in range(PER_TURN * COMMITS_PER_STEP))]

            async def commit_with_indexes() -> Sequence[float]:
                return [sum(_insert(indexed, next(numbers), body) for _ in range(PER_TURN * COMMITS_PER_STEP))]

            rounds = Rounds(run=whole.turn, append=append, indexed=commit_with_indexes, commit=commit)
            await rounds.warm_up(WARM_UP * TURNS)
            whole.processor_seconds, runs = 0.0, room.count(20, 4)
            await rounds.run(runs * TURNS)
    finally:
        plain.close()
        indexed.close()
    steps = runs * STEPS
    whole_runs = rounds.ratio(
        f"a run of {STEPS} steps, against its raw commits", "run", "commit", TARGET, together=TURNS
    )
    if rounds.median("commit") / (PER_TURN * COMMITS_PER_STEP) > SLOW_SECONDS:
        whole_runs = replace(whole_runs, note=f"{whole_runs.note}; the disk is slow or busy, which flatters")
    return [
        whole_runs,
        rounds.ratio("of that the journal: its appends", "append", "commit", together=TURNS),
        rounds.ratio("of that SQLite: commits with a journal's indexes", "indexed", "commit", together=TURNS),
        Measure(what="a step", value=rounds.median("run") / PER_TURN * MICRO, unit="µs"),
        Measure(what="its appends", value=rounds.median("append") / PER_TURN * MICRO, unit="µs"),
        Measure(
            what="its raw commits",
            value=rounds.median("commit") / PER_TURN * MICRO,
            unit="µs",
            note=f"two, of {len(body)} bytes each",
        ),
        Measure(
            what="processor time of a step",
            value=whole.processor_seconds / steps * MICRO,
            unit="µs",
            note="all threads of the process",
        ),
    ]


class WholeRuns:
    """Runs from start to result, one after the other, a few steps at a turn."""

    def __init__(self, runtime: Runtime) -> None:
        self.processor_seconds = 0.0
        self._runtime = runtime
        self._model = StepModel(STEPS, nothing)
        self._agent = stepper(self._model, nothing)
        self._run: Run
        self._done = 0

    async def turn(self) -> Sequence[float]:
        began, used = time.perf_counter(), time.process_time()
        await self._go_on()
        self.processor_seconds += time.process_time() - used
        return [time.perf_counter() - began]

    async def _go_on(self) -> None:
        until = self._done + PER_TURN
        if self._done == 0:
            self._model.wait_at = until
            self._run = await self._runtime.start(self._agent, NO_ARGUMENTS)
            await self._model.waits()
        elif until < STEPS:
            await self._model.go_on_to(until)
        else:
            await self._model.go_on_to(None)
            await self._run.result()
        self._done = until % STEPS

    async def size_of_a_commit(self) -> int:
        """How many bytes of events a run needs, divided by the commits it needs."""
        for _ in range(TURNS):
            await self._go_on()
        records = await self._runtime.journal.read(self._run.id)
        return sum(len(record.body) for record in records) // (COMMITS_PER_STEP * STEPS)


async def _append(run: DrivenRun, number: int) -> float:
    """What a call of a run needs: the outcome of the one before, and a permit, with ids as a driver makes them."""
    outcome = replace(finished(f"c{number - 1}"), id=f"c{number - 1}#1.finished")
    events = outcome, replace(started(f"c{number}", run.epoch), id=f"p.{run.epoch}.{number}")
    began = time.perf_counter()
    await run.append(*events)
    return time.perf_counter() - began


def _insert(table: IndexedTable, number: int, body: bytes) -> float:
    half = body[: len(body) // 2]
    rows = [
        (1, 2 * number, f"c{number - 1}#1.finished", bytes(32), half),
        (1, 2 * number + 1, f"p.1.{number}", bytes(32), half),
    ]
    began = time.perf_counter()
    table.insert_many(rows)
    return time.perf_counter() - began


BENCHMARK: Final = Benchmark("durable_steps", f"a run of {STEPS} trivial steps, against its raw commits", measure)
