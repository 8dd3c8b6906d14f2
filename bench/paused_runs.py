"""What ten thousand paused runs weigh, once nothing has happened to them for a while and they are evicted.

A process starts them, pauses each in the middle of a model call, and asks the system how much memory it has, before and
after. It is a new process, so that nothing else is in it. Some of them are resumed at the end, by replay.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Final

import anyio
import msgspec

from bench.harness import MILLI, Benchmark, Measure, Room, Target, quantile
from bench.pauser import Weighed
from bench.report import ROOT

TARGET: Final = Target("at most", 2048)
RUNS: Final = 10_000


async def measure(room: Room) -> list[Measure]:
    command = [sys.executable, "-m", "bench.pauser", room.address("runs"), str(room.count(RUNS, 500))]
    child = await anyio.run_process(command, cwd=ROOT, stderr=None, stdout=subprocess.PIPE)
    weighed = msgspec.json.decode(child.stdout, type=Weighed)
    come_back = weighed.come_back_seconds
    return [
        Measure(
            what="memory of a paused run, once evicted",
            value=weighed.bytes / weighed.runs,
            unit="B",
            target=TARGET,
            note=f"{weighed.runs:,} runs, {weighed.bytes / 2**20:.1f} MiB in all",
        ),
        Measure(what="to start, pause and evict one", value=weighed.seconds / weighed.runs * MILLI, unit="ms"),
        Measure(what="at rest: share of a processor", value=weighed.busy * 100, unit="%"),
        Measure(what="resume to the next live call, p50", value=quantile(come_back, 0.5) * MILLI, unit="ms"),
    ]


BENCHMARK: Final = Benchmark("paused_runs", f"the memory of {RUNS:,} paused runs", measure)
