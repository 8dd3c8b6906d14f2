"""Several processes on one PostgreSQL server: what it costs that they tell each other, and how soon they hear.

Three processes append as fast as they can, once as they are and once with the notification left out of what they say.
And a verb is asked for in one process while another one drives the run, idle or with fifty busy writers: counted is the
time from asking until it is with the driver; both processes read the same monotonic clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import anyio

from bench.appender import appender
from bench.harness import MILLI, Benchmark, Measure, Room, Rounds, Target, latencies, quantile
from bench.postgres_journal import pair, prepared
from bench.verb_from_outside import ask_from_outside, drive_run
from bench.workload import DrivenRun, begin
from checkrein.journal import Journal, open_journal
from tests.support.postgres import Cluster, running

PROCESSES: Final = 3
BUSY: Final = 50
HEARD: Final = Target("at most", 100.0)


async def measure(room: Room) -> list[Measure]:
    with running(within=room.folder) as cluster:
        return [*await _told(room, cluster), *await _heard(room, cluster)]


async def _told(room: Room, cluster: Cluster) -> list[Measure]:
    address = cluster.address()
    async with await open_journal(address):
        pass  # makes the schema, before all of them would
    async with AsyncExitStack() as stack:
        sides = {
            way: [await stack.enter_async_context(appender(address, way, number)) for number in range(PROCESSES)]
            for way in ("told", "untold")
        }

        async def append(way: str) -> Sequence[float]:
            return [sum(await asyncio.gather(*(process.appends_per_second() for process in sides[way])))]

        rounds = Rounds(told=lambda: append("told"), untold=lambda: append("untold"))
        await rounds.warm_up(1)
        await rounds.run(room.count(16, 5))
    return [
        rounds.ratio(
            f"appends of {PROCESSES} processes, with NOTIFY against without", "told", "untold", Target("at least", 0.7)
        ),
        Measure(what=f"appends of {PROCESSES} processes", value=rounds.median("told"), unit="/s"),
    ]


async def _heard(room: Room, cluster: Cluster) -> list[Measure]:
    async with await open_journal(cluster.address()) as journal:
        await prepared(journal)
        idle, late = await _verbs(journal, cluster.address(), "idle", room.count(12, 3))
        async with _busy(journal):
            busy, late_beside = await _verbs(journal, cluster.address(), "busy", room.count(12, 3))
    return [
        *_within("a verb until another process hears it", idle),
        *_within(f"the same with {BUSY} busy writers there", busy),
        latencies("meanwhile: a sleep is late by", late + late_beside, unit="ms")[1],
    ]


async def _verbs(journal: Journal, address: str, name: str, seconds: int) -> tuple[list[float], list[float]]:
    """How long each verb took, and by how much the process that asks woke too late before it."""
    driven = await begin(journal, f"heard-{name}")
    reached: dict[str, float] = {}
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(drive_run, journal, driven, reached)
        asked = await ask_from_outside(address, driven.id, seconds=seconds)
        tasks.cancel_scope.cancel()
    return [reached[one.id] - one.asked for one in asked], [one.overslept for one in asked]


@asynccontextmanager
async def _busy(journal: Journal) -> AsyncIterator[None]:
    async def write(run: DrivenRun) -> None:
        while True:
            await run.append(*pair())

    tasks = [asyncio.create_task(write(await begin(journal, f"busy-{number}"))) for number in range(BUSY)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _within(what: str, seconds: Sequence[float]) -> list[Measure]:
    value, worst = quantile(seconds, 0.99) * MILLI, max(seconds) * MILLI
    note = f"{len(seconds)} verbs, worst {worst:.1f} ms"
    return [
        latencies(what, seconds, unit="ms")[0],
        Measure(what=f"{what}, p99", value=value, unit="ms", target=HEARD, note=note),
    ]


BENCHMARK: Final = Benchmark("postgres_processes", "several processes on one PostgreSQL server", measure)
