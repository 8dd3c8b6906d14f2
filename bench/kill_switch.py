"""The kill switch: what `checkrein halt` takes until the fence is in, and how soon a fence stops what many runs do.

The first is the processor time of a process of its own, from its start, without the ends of runs that follow. For the
second nobody asks the runtime: each tool notes itself when it was stopped, and the last of them counts, from the moment
just before the fence is written by another connection. Only the fence is written: no run is ended, nobody is signalled.
"""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
import time
from statistics import median
from typing import Final

from bench.harness import MILLI, Benchmark, Measure, Room, Target
from checkrein import Agent, Runtime, tool
from checkrein.journal import open_journal
from checkrein.journal.base import Fence, Scope
from checkrein.models import Request, ScriptedModel, Turn
from tests.support.postgres import running

CPU: Final = Target("at most", 0.3)
RATIO: Final = Target("at most", 3.0)
FEW: Final = 100
MANY: Final = 1000
PATIENCE_SECONDS: Final = 300.0
UNTIL_FENCE: Final = (
    "import checkrein.cli.halt as h; h._end_runs = lambda *_: 0; from checkrein.cli import main; main()"
)
"""The command as it is installed, which ends where it would begin to end runs."""


async def measure(room: Room) -> list[Measure]:
    measures = [await _fence("a file", room, room.address("halted"))]
    with running(within=room.folder) as cluster:
        measures.append(await _fence("PostgreSQL", room, cluster.address(cluster.new_schema())))
    few = [await _aborts(room, FEW, number) for number in range(room.count(5, 2))]
    many = [await _aborts(room, room.count(MANY, 300), number) for number in range(room.count(3, 1))]
    ratio = Measure(
        what=f"of {room.count(MANY, 300)} runs, against that of {FEW}",
        value=median(many) / median(few),
        unit="x",
        target=RATIO,
        note=f"{median(many) * MILLI:.0f} ms, worst {max(many) * MILLI:.0f} ms",
    )
    return [*measures, Measure(what="fence to the last abort of 100 runs", value=median(few) * MILLI, unit="ms"), ratio]


async def _fence(what: str, room: Room, store: str) -> Measure:
    async with await open_journal(store):
        pass
    took = [_cpu_of_halt(room, store) for _ in range(room.count(15, 3))]
    return Measure(
        what=f"halt in {what}, process start to fence, CPU",
        value=median(took),
        unit="s",
        target=CPU,
        note=f"least {min(took):.2f}, most {max(took):.2f}",
    )


def _cpu_of_halt(room: Room, store: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-P", "-c", UNTIL_FENCE, "halt", "all", "--store", store],
        env={**os.environ, "CHECKREIN_HALT_DIR": str(room.folder / "halts")},
        check=True,
        capture_output=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


class _Noted(list[float]):
    """Times, and somebody who waits until there are so many."""

    def __init__(self) -> None:
        super().__init__()
        self._wanted = 0
        self._are_there = asyncio.Event()

    def note(self) -> None:
        self.append(time.perf_counter())
        if len(self) == self._wanted:
            self._are_there.set()

    async def until(self, count: int) -> None:
        self._wanted = count
        if len(self) < count:
            await self._are_there.wait()
        self._are_there.clear()


_begun = _Noted()
_stopped = _Noted()


@tool(effect="none")
async def linger() -> str:
    """Waits until it is stopped, and notes when that was."""
    _begun.note()
    try:
        await asyncio.sleep(PATIENCE_SECONDS)
    finally:
        _stopped.note()
    return "nobody stopped it"


def _turn(_: Request) -> Turn:
    return Turn("Go.", calls=[("linger", {})])


async def _aborts(room: Room, count: int, number: int) -> float:
    """Seconds from the fence to the last of so many."""
    _begun.clear()
    _stopped.clear()
    store = room.address(f"aborts{count}-{number}")
    agent = Agent("linger", model=ScriptedModel(_turn), tools=[linger])
    async with Runtime(store) as runtime, await open_journal(store) as operator:
        for _ in range(count):
            await runtime.start(agent, "wait")
        async with asyncio.timeout(PATIENCE_SECONDS):
            await _begun.until(count)
            began = time.perf_counter()
            await operator.fence(Fence(scope=Scope.ALL, by="bench", at=time.time()))
            await _stopped.until(count)
        took = max(_stopped) - began
        await runtime.halt("all", by="bench", wait=0)
    return took


BENCHMARK: Final = Benchmark("kill_switch", "the fence of a halt, and how soon it stops many runs", measure)
