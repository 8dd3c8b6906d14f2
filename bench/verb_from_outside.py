"""How quickly a stop gets through to a process that is busy with something else.

One process drives a hundred runs and commits back to back. Another one asks a run of the first to pause and to resume,
over and over, as control does it: load, decide, append. The driver follows its run and settles each verb as it comes.
Every time is counted from the moment of asking; both processes read the same monotonic clock. How late the asking
process wakes from a sleep is shown beside: on a machine that is busy with other things nothing can be faster.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
import msgspec
from anyio.abc import Process

from bench.harness import MILLI, Benchmark, Measure, Room, Target, latencies, quantile
from bench.outsider import PATIENCE_SECONDS, Asked
from bench.workload import DrivenRun, begin, call_events, new_id
from checkrein.core.commands import SettleVerb
from checkrein.core.decide import decide
from checkrein.core.events import VerbAccepted
from checkrein.core.evolve import evolve
from checkrein.journal import Journal, open_journal

TARGET: Final = Target("at most", 50.0)
WRITERS: Final = 100
CALLS_AT_A_TIME: Final = 20
ROOT: Final = Path(__file__).parents[1]


async def measure(room: Room) -> list[Measure]:
    address = room.address("journal")
    async with await open_journal(address) as journal:
        driven = await begin(journal, "driven")
        busy = [await begin(journal, f"busy-{n}") for n in range(WRITERS)]
        reached: dict[str, float] = {}
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(drive_run, journal, driven, reached)
            for run in busy:
                tasks.start_soon(_write_on, run)
            began, before = time.perf_counter(), sum(run.seen for run in busy)
            asked = await ask_from_outside(address, driven.id, seconds=room.count(15, 3))
            rate = (sum(run.seen for run in busy) - before) / (time.perf_counter() - began)
            tasks.cancel_scope.cancel()
    return _measures(asked, reached, rate)


def _measures(asked: list[Asked], reached: dict[str, float], rate: float) -> list[Measure]:
    accepted = [one.accepted - one.asked for one in asked]
    noticed = [reached[one.id] - one.asked for one in asked]
    return [
        _p99("a verb accepted, p99", accepted),
        _p99("the verb at a follower in the busy process, p99", noticed),
        latencies("a verb accepted", accepted, unit="ms")[0],
        *latencies("of that the append", [one.accepted - one.loaded for one in asked], unit="ms"),
        latencies("the verb at the follower", noticed, unit="ms")[0],
        *latencies("of that after its commit", [reached[one.id] - one.accepted for one in asked], unit="ms"),
        *latencies("the receipt back where it was asked for", [one.settled - one.asked for one in asked], unit="ms"),
        *latencies("meanwhile: a sleep is late by", [one.overslept for one in asked], unit="ms"),
        Measure(what="meanwhile: appends of the busy process", value=rate, unit="/s"),
    ]


def _p99(what: str, seconds: list[float]) -> Measure:
    value, worst = quantile(seconds, 0.99) * MILLI, max(seconds) * MILLI
    return Measure(what=what, value=value, unit="ms", target=TARGET, note=f"{len(seconds)} verbs, worst {worst:.1f} ms")


# -- the busy process


async def _write_on(run: DrivenRun) -> None:
    while True:
        for event in call_events(CALLS_AT_A_TIME, run.epoch):
            await run.append(event)


async def drive_run(journal: Journal, run: DrivenRun, reached: dict[str, float]) -> None:
    """Settle every verb as soon as it is seen, and note when that was."""
    state = await journal.load(run.id)
    async for record in journal.follow(run.id, after=state.seq):
        now = time.monotonic()
        state = evolve(state, record.event, record.seq)
        run.seen = record.seq
        if isinstance(record.event, VerbAccepted):
            reached[record.event.id] = now
            verdict = decide(state, SettleVerb(id=new_id(), at=time.time(), accepted=record.event.id))
            assert isinstance(verdict, tuple), verdict
            await run.append(*verdict)


# -- the other one


async def ask_from_outside(address: str, run: str, *, seconds: int, rest: float = 0.0) -> list[Asked]:
    """What another process asked of the run meanwhile, one verb after the other, with a `rest` before each."""
    command = (sys.executable, "-m", "bench.outsider", address, run, str(seconds), str(rest))
    with anyio.fail_after(seconds + 2 * PATIENCE_SECONDS):
        async with _child(*command) as child:
            assert child.stdout is not None
            answer = b"".join([part async for part in child.stdout])
            if await child.wait():
                raise RuntimeError("the process that asks for verbs failed; what it said is above")
    return msgspec.json.decode(answer, type=list[Asked])


@asynccontextmanager
async def _child(*command: str) -> AsyncIterator[Process]:
    """A process that does not outlive its use."""
    child = await anyio.open_process(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=None, cwd=ROOT)
    try:
        yield child
    finally:
        if child.returncode is None:
            child.kill()
        with anyio.CancelScope(shield=True):
            await child.aclose()


BENCHMARK: Final = Benchmark(
    "verb_from_outside", "a verb from another process, while one commits back to back", measure
)
