"""How quickly a stop that is asked for on one machine has stopped a call on another.

Runs wait in a tool on a worker, and are cancelled over HTTP at a front, one after the other, each on a connection of
its own. Counted is the time from before the connection is made until the tool itself was stopped, by its own note. What
a verb costs each part stands beside.
"""

from __future__ import annotations

import json
from typing import Final

import anyio
import anyio.to_thread

from bench.fleet import fleet
from bench.harness import MILLI, Benchmark, Measure, Room, Target, latencies, quantile
from bench.verbs_under_load import BETWEEN_SECONDS, cancel_timed

TARGET: Final = Target("at most", 100.0)


async def measure(room: Room) -> list[Measure]:
    names = [f"run-{number}" for number in range(room.count(200, 30))]
    async with fleet(room) as machines:
        front, worker = await machines.front(), await machines.worker("--slots", "500")
        runs = await machines.begin(front, "waiter", [json.dumps({"name": name}) for name in names])
        await machines.until_noted("began", names)
        used = [machine.used() for machine in (front, worker)]
        server = machines.server()
        asked, overslept = [], []
        for run in runs:
            asked.append(await anyio.to_thread.run_sync(cancel_timed, front.port, run))
            overslept.append(await _rest())
        ended = await machines.until_noted("ended", names)
        costs = [one.seconds() / len(runs) for one in (*used, server)]
    took = [ended[name].at - began for name, began in zip(names, asked, strict=True)]
    note = f"{len(took)} cancels, worst {max(took) * MILLI:.1f} ms"
    return [
        Measure(
            what="a cancel at a front until a worker's call is stopped, p99",
            value=quantile(took, 0.99) * MILLI,
            unit="ms",
            target=TARGET,
            note=note,
        ),
        latencies("the same", took, unit="ms")[0],
        latencies("meanwhile: a sleep is late by", overslept, unit="ms")[1],
        *(
            Measure(what=f"{part}: a cancel, with its call and its receipt", value=cost * MILLI, unit="ms")
            for part, cost in zip(("front", "worker", "server"), costs, strict=True)
        ),
    ]


async def _rest() -> float:
    """By how much this process woke too late."""
    began = anyio.current_time()
    await anyio.sleep(BETWEEN_SECONDS)
    return anyio.current_time() - began - BETWEEN_SECONDS


BENCHMARK: Final = Benchmark("fleet_verbs", "a cancel at a front, until a call of a worker is stopped", measure)
