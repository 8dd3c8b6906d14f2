"""What it costs that a plain `def` tool runs in a process of its own, which can be killed: one call of a warm worker.

First of the stage alone, which hands the call to a worker and back. Then as a program has it: with a permit on disk
before it begins. A call on the event loop, which cannot be killed, is shown beside it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median
from typing import Final

import psutil

from bench.actors import CAPS, nothing, nothing_in_a_worker
from bench.harness import MILLI, Benchmark, Measure, Room, Rounds, Target, latencies, quantile
from bench.workload import new_id
from checkrein import Context, ProgramAgent, Runtime, Tool
from checkrein.calls.executor import ToolExecutor
from checkrein.core.enums import Outcome

TARGET: Final = Target("at most", 2.0)
PER_TURN: Final = 20
WARM_UP: Final = 3


async def measure(room: Room) -> list[Measure]:
    (room.folder / "calls").mkdir()
    async with ToolExecutor(room.folder / "calls") as executor, Runtime(room.address("runs")) as runtime:

        async def alone() -> Sequence[float]:
            return [await _perform(executor) for _ in range(PER_TURN)]

        in_a_worker, on_the_loop = _Caller(runtime, nothing_in_a_worker), _Caller(runtime, nothing)
        rounds = Rounds(alone=alone, program=in_a_worker.turn, loop=on_the_loop.turn)
        await rounds.warm_up(WARM_UP)
        await rounds.run(room.count(40, 5))
        memory = [child.memory_full_info().uss for child in psutil.Process().children(recursive=True)]
    return [
        _p50("a call of the stage alone, p50", rounds.samples["alone"]),
        _p50("a call in a run, p50", rounds.samples["program"]),
        latencies("a call of the stage alone", rounds.samples["alone"], unit="ms")[1],
        latencies("a call in a run", rounds.samples["program"], unit="ms")[1],
        *latencies("a call in a run, async tool on the loop", rounds.samples["loop"], unit="ms"),
        Measure(what="memory of such a process", value=median(memory) / 2**20, unit="MiB", note="shared with no other"),
    ]


def _p50(what: str, seconds: Sequence[float]) -> Measure:
    note = f"{len(seconds)} calls"
    return Measure(what=what, value=quantile(seconds, 0.5) * MILLI, unit="ms", target=TARGET, note=note)


async def _perform(executor: ToolExecutor) -> float:
    id = new_id()
    began = time.perf_counter()
    ended = await executor.start(nothing_in_a_worker.function, b"{}", id=id, key=id).ended()
    seconds = time.perf_counter() - began
    assert ended.outcome is Outcome.COMPLETED, ended
    return seconds


class _Caller:
    """A program that calls a tool some times, one after the other, and notes how long each call takes it."""

    def __init__(self, runtime: Runtime, tool: Tool) -> None:
        self._runtime = runtime
        self._tool = tool
        self._seconds: list[float] = []
        self._agent = ProgramAgent(self._play, name=f"calls {tool.name}", stop_when=CAPS)

    async def turn(self) -> Sequence[float]:
        self._seconds = []
        await (await self._runtime.start(self._agent, "Call it.")).result()
        return self._seconds

    async def _play(self, ctx: Context, goal: str) -> None:
        for _ in range(PER_TURN):
            began = time.perf_counter()
            assert await ctx.tool(self._tool) == 1
            self._seconds.append(time.perf_counter() - began)


BENCHMARK: Final = Benchmark("warm_worker", "a trivial `def` tool in a warm worker process", measure)
