"""What a server costs that nobody uses, and how quickly it hears a verb that another process writes into its store.

`checkrein serve` with its driver and no runs, for a while, with nobody asking: the processor time of all its processes.
Then a process follows a run in which nothing happens, and another one asks it to pause and to resume, with rests
between that are long enough for the first to be idle again. Every time is counted from the moment of asking.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import anyio
import psutil

from bench.harness import MILLI, Benchmark, Measure, Room, Target, latencies, quantile
from bench.outsider import Asked
from bench.verb_from_outside import ask_from_outside, drive_run
from bench.verbs_under_load import serving
from bench.workload import begin
from checkrein.journal import open_journal

CPU: Final = Target("at most", 0.5)
HEARD: Final = Target("at most", 30.0)
SETTLE_SECONDS: Final = 5.0
"""After its start a server still looks around."""
REST_SECONDS: Final = 0.8


async def measure(room: Room) -> list[Measure]:
    processes, share, busiest = await _idle(room, seconds=room.count(30, 5))
    asked, reached = await _verbs(room, seconds=room.count(60, 5))
    heard = [reached[one.id] - one.asked for one in asked]
    worst = f"{len(asked)} verbs, worst {max(heard) * MILLI:.1f} ms"
    return [
        Measure(
            what="an idle server, of one processor",
            value=share,
            unit="%",
            target=CPU,
            note=f"{processes} processes, the busiest {busiest:.2f} %",
        ),
        Measure(
            what="a verb at an idle follower in another process, p99",
            value=quantile(heard, 0.99) * MILLI,
            unit="ms",
            target=HEARD,
            note=worst,
        ),
        latencies("the same", heard, unit="ms")[0],
        *latencies("of that after its commit", [reached[one.id] - one.accepted for one in asked], unit="ms"),
        *latencies("meanwhile: a sleep is late by", [one.overslept for one in asked], unit="ms"),
    ]


async def _idle(room: Room, *, seconds: float) -> tuple[int, float, float]:
    """How many processes a server has, and what share of a processor they use in percent: all, and the busiest."""
    async with serving(room) as server:
        await anyio.sleep(SETTLE_SECONDS)
        family = [psutil.Process(server.pid), *psutil.Process(server.pid).children(recursive=True)]
        before = [_used(process) for process in family]
        await anyio.sleep(seconds)
        shares = [(_used(process) - used) / seconds * 100 for process, used in zip(family, before, strict=True)]
    return len(family), sum(shares), max(shares)


def _used(process: psutil.Process) -> float:
    """The processor time of a process so far. What Linux knows of each thread is exact, what others tell is rounded."""
    threads = list(Path(f"/proc/{process.pid}/task").glob("*/schedstat"))
    if threads:
        return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9
    times = process.cpu_times()
    return float(times.user + times.system)


async def _verbs(room: Room, *, seconds: int) -> tuple[list[Asked], dict[str, float]]:
    """Verbs of another process, and when each was heard of by who follows the run."""
    address = room.address("followed")
    reached: dict[str, float] = {}
    async with await open_journal(address) as journal:
        run = await begin(journal, "followed")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(drive_run, journal, run, reached)
            asked = await ask_from_outside(address, run.id, seconds=seconds, rest=REST_SECONDS)
            tasks.cancel_scope.cancel()
    return asked, reached


BENCHMARK: Final = Benchmark("idle_serve", "an idle server, and a verb from outside that it is to hear", measure)
