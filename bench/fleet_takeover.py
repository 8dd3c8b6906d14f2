"""How long after the end of a lease a run goes on elsewhere, when the machine that drove it is gone.

Runs wait in a tool on one worker, which is killed with everything it has started, on a host of its own, so that nobody
can know it dead before its lease ends. Counted is the time from the kill until the tool begins on the other worker, by
its own note; less the lease, since a worker renews it some seconds before.
"""

from __future__ import annotations

import json
import time
from typing import Final

from bench.fleet import fleet, has_hosts
from bench.harness import Benchmark, Measure, Room, Target, left_out

TARGET: Final = Target("at most", 2.0)
LEASE_SECONDS: Final = 6.0
RUNS: Final = 20
LINE: Final = "from the end of a lease to the call elsewhere, worst"


async def measure(room: Room) -> list[Measure]:
    if not has_hosts():
        return [left_out(LINE, "s", "a process may not be given a host name of its own here")]
    options = ("--slots", str(RUNS), "--lease-seconds", str(LEASE_SECONDS))
    took: list[float] = []
    async with fleet(room) as machines:
        front, worker = await machines.front(), await machines.worker(*options)
        names = [f"run-{number}" for number in range(RUNS)]
        await machines.begin(front, "waiter", [json.dumps({"name": name}) for name in names])
        await machines.until_noted("began", names)
        for _ in range(room.count(4, 1)):
            other = await machines.worker(*options)
            killed = time.perf_counter()
            worker.kill()
            again = await machines.until_noted("began", names, since=killed)
            took += [one.at - killed for one in again.values()]
            worker = other
    note = f"{len(took)} runs, a lease of {LEASE_SECONDS:.0f} s, after the kill {min(took):.1f} to {max(took):.1f} s"
    return [Measure(what=LINE, value=max(took) - LEASE_SECONDS, unit="s", target=TARGET, note=note)]


BENCHMARK: Final = Benchmark("fleet_takeover", "a run goes on elsewhere when its machine is gone", measure)
