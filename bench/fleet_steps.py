"""Whether two workers do twice the work of one: a thousand runs over two, against five hundred over one.

Every run makes twenty trivial steps, and all of them begin when a file is there. Counted is the time until the last has
completed, as the store says. The work is twice as much: on a machine with few processors it may take twice as long, and
more would be the price of a fleet. What a step costs each part stands beside.
"""

from __future__ import annotations

import time
from typing import Final

import msgspec

from bench.fleet import fleet
from bench.fleet_agents import STEPS
from bench.harness import MICRO, Benchmark, Measure, Room, Target

TARGET: Final = Target("at most", 2.0)
FAIR: Final = Target("at least", 0.3)
OF_ONE: Final = 500
LEASES: Final = "SELECT count(*) FROM checkrein.leases"
SMALLEST: Final = "SELECT min(number) FROM (SELECT count(*) AS number FROM checkrein.leases GROUP BY process) AS shares"
BYTES: Final = "SELECT pg_database_size(current_database())"
COMPLETED: Final = "SELECT count(*) FROM checkrein.heads WHERE status = 'completed'"


class Walked(msgspec.Struct, frozen=True):
    seconds: float
    smallest: float
    """The share of the worker that had the fewest runs."""
    worker: float
    """Processor seconds of all workers, for each step."""
    server: float
    memory: float
    """Bytes of a worker for each of its runs, while they wait for their first reply."""
    disk: float
    """Bytes of the database, for each step."""


async def measure(room: Room) -> list[Measure]:
    runs = room.count(OF_ONE, 100)
    one, two = await _walk(room, workers=1, runs=runs), await _walk(room, workers=2, runs=2 * runs)
    return [
        Measure(
            what=f"{2 * runs:,} runs over two workers, against {runs} over one",
            value=two.seconds / one.seconds,
            unit="×",
            target=TARGET,
            note=f"{STEPS} steps each, {two.seconds:.1f} s and {one.seconds:.1f} s",
        ),
        Measure(what="of those the smaller share", value=two.smallest, unit="", target=FAIR),
        Measure(what="worker: a step", value=one.worker * MICRO, unit="µs"),
        Measure(what="server: a step", value=one.server * MICRO, unit="µs"),
        Measure(what="worker: a step of two workers", value=two.worker * MICRO, unit="µs"),
        Measure(what="server: the same", value=two.server * MICRO, unit="µs"),
        Measure(what="worker: memory of a run at work", value=one.memory / 1024, unit="KiB"),
        Measure(what="server: disk for a step", value=one.disk, unit="B"),
    ]


async def _walk(room: Room, *, workers: int, runs: int) -> Walked:
    async with fleet(room) as machines:
        machines.gate.unlink(missing_ok=True)
        front = await machines.front()
        at_work = [await machines.worker("--slots", str(round(runs / workers * 1.4))) for _ in range(workers)]
        weight = at_work[0].memory()
        await machines.begin(front, "walker", ["{}"] * runs)
        await machines.until_counted(LEASES, runs)
        smallest = machines.counted(SMALLEST) / runs
        memory = (at_work[0].memory() - weight) / (runs / workers)
        before = machines.counted(BYTES)
        used, server = [worker.used() for worker in at_work], machines.server()
        began = time.perf_counter()
        machines.gate.touch()
        await machines.until_counted(COMPLETED, runs)
        seconds, steps = time.perf_counter() - began, runs * STEPS
        by_workers = sum(one.seconds() for one in used)
        disk = (machines.counted(BYTES) - before) / steps
        return Walked(seconds, smallest, by_workers / steps, server.seconds() / steps, memory, disk)


BENCHMARK: Final = Benchmark("fleet_steps", "a thousand runs over two workers, against five hundred over one", measure)
