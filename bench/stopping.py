"""How quickly a cancel stops what is running, while two hundred other runs stream in the same process.

Nobody asks the runtime. An async tool notes its own ticks, and its last one counts; a plain `def` tool says the pid of
its process, and the process table is asked every millisecond until it is gone, reaped and all. Every time is counted
from the moment just before `cancel()`. The text of the two hundred is kept in the journal as always.

How late this process wakes from a sleep is shown beside, and how late another one does that only sleeps: as long as
that one waits for a processor, nothing can be faster, whoever made it.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Final

import psutil

from bench.actors import CAPS, StepModel, Talker, stepper, tick, ticks, work, work_on
from bench.harness import MILLI, Benchmark, Measure, Room, Target, latencies, quantile
from bench.sleeper import sleeper
from checkrein import Agent, Run, Runtime, Tool
from checkrein.timings import TOOL_GRACE_SECONDS

LAST_TICK: Final = Target("at most", 10.0)
GONE: Final = Target("at most", 100.0)
GONE_AFTER_GRACE: Final = Target("at most", TOOL_GRACE_SECONDS * MILLI + 100.0)
STREAMING: Final = 200
TOKENS_PER_SECOND: Final = 20.0
AT_ONCE: Final = 4
"""Stops that only wait for the grace are measured side by side."""
PATIENCE_SECONDS: Final = 60.0


async def measure(room: Room) -> list[Measure]:
    async with (
        Runtime(room.address("runs")) as runtime,
        _talking(runtime) as talker,
        _sleeping() as late,
        sleeper() as late_elsewhere,
    ):
        bench = _Stops(runtime, room.folder)
        began, said = time.perf_counter(), talker.tokens
        last_ticks = [await bench.last_tick() for _ in range(room.count(200, 20))]
        heeding = [await bench.gone(work) for _ in range(room.count(100, 10))]
        ignoring: list[float] = []
        for _ in range(room.count(12, 1)):
            ignoring += await asyncio.gather(*(bench.gone(work_on) for _ in range(AT_ONCE)))
        rate = (talker.tokens - said) / (time.perf_counter() - began)
    return [
        _p99("cancel to the async tool's last tick, p99", last_ticks, LAST_TICK),
        _p99("cancel to the process gone that heeds SIGTERM, p99", heeding, GONE),
        _p99("cancel to the process gone that does not, p99", ignoring, GONE_AFTER_GRACE),
        latencies("the async tool's last tick", last_ticks, unit="ms")[0],
        latencies("the process gone that heeds SIGTERM", heeding, unit="ms")[0],
        latencies("the process gone that does not", ignoring, unit="ms")[0],
        *latencies("cancel to its receipt, async tool", bench.receipts, unit="ms"),
        *latencies("meanwhile: a sleep is late by", late, unit="ms"),
        *latencies("meanwhile: one of an idle process", late_elsewhere, unit="ms"),
        Measure(
            what="meanwhile: tokens of the others",
            value=rate,
            unit="/s",
            note=f"{STREAMING} runs, {TOKENS_PER_SECOND * STREAMING:,.0f} at their full pace",
        ),
    ]


def _p99(what: str, seconds: list[float], target: Target) -> Measure:
    value, worst = quantile(seconds, 0.99) * MILLI, max(seconds) * MILLI
    return Measure(what=what, value=value, unit="ms", target=target, note=f"{len(seconds)} stops, worst {worst:.1f} ms")


class _Stops:
    """Runs that are cancelled in the middle of a tool."""

    def __init__(self, runtime: Runtime, folder: Path) -> None:
        self.receipts: list[float] = []
        self._runtime = runtime
        self._folder = folder
        self._numbers = count()
        self._agents = {one: stepper(StepModel(1, one), one, f"to stop: {one.name}") for one in (tick, work, work_on)}

    async def last_tick(self) -> float:
        """Seconds from the cancel to the last tick of an async tool."""
        name = f"tick-{next(self._numbers)}"
        run = await self._start(tick, name=name)
        await _until(lambda: name in ticks)
        asked = await self._cancel(run)
        self.receipts.append(time.perf_counter() - asked)
        await asyncio.sleep(0.02)
        return max(0.0, ticks.pop(name) - asked)

    async def gone(self, tool: Tool) -> float:
        """Seconds from the cancel to the moment when the process of a `def` tool is not in the table any more."""
        pid_file = self._folder / f"pid-{next(self._numbers)}"
        run = await self._start(tool, path=str(pid_file))
        await _until(pid_file.exists)
        watching = asyncio.create_task(asyncio.to_thread(_gone_at, int(pid_file.read_text())))
        asked = await self._cancel(run)
        return await watching - asked

    async def _start(self, tool: Tool, **arguments: str) -> Run:
        return await self._runtime.start(self._agents[tool], json.dumps(arguments))

    async def _cancel(self, run: Run) -> float:
        """Cancel at any moment of the others' work, not always at the same one. Returns when it was asked for."""
        await asyncio.sleep(random.uniform(0.01, 0.06))
        asked = time.perf_counter()
        await run.cancel(wait=PATIENCE_SECONDS)
        return asked


def _gone_at(pid: int) -> float:
    while psutil.pid_exists(pid):
        time.sleep(0.001)
    return time.perf_counter()


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():  # noqa: ASYNC110 - tools tell nobody
            await asyncio.sleep(0.002)


@asynccontextmanager
async def _talking(runtime: Runtime) -> AsyncIterator[Talker]:
    """Two hundred runs that stream, all at their own moments."""
    talker = Talker(TOKENS_PER_SECOND)
    agent = Agent("talker", model=talker, stop_when=CAPS, loops=False)
    runs = [await runtime.start(agent, "Talk for ever.") for _ in range(STREAMING)]
    await _until(lambda: talker.live == STREAMING)
    yield talker
    await asyncio.gather(*(run.cancel(wait=PATIENCE_SECONDS) for run in runs))


@asynccontextmanager
async def _sleeping() -> AsyncIterator[list[float]]:
    """By how much sleeps were longer than they should have been."""
    late: list[float] = []

    async def sleep() -> None:
        while True:
            awake = time.perf_counter() + 0.02
            await asyncio.sleep(0.02)
            late.append(time.perf_counter() - awake)

    task = asyncio.create_task(sleep())
    try:
        yield late
    finally:
        task.cancel()


BENCHMARK: Final = Benchmark("stopping", f"cancel until it is over, while {STREAMING} runs stream", measure)
