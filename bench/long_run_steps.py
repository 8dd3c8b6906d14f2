"""Whether a step stays as cheap in a run that has become long.

One run is held near its step 2,000 and goes on a little in every turn; the other side begins a new run for every turn
and measures the same number of its steps near 20. Both write to the same journal.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median
from typing import Final

from bench.actors import NO_ARGUMENTS, StepModel, nothing, stepper
from bench.harness import MICRO, Benchmark, Measure, Room, Rounds, Target
from checkrein import Run, Runtime

TARGET: Final = Target("at most", 1.2)
SHORT: Final = 20
LONG: Final = 2_000
PER_TURN: Final = 20


async def measure(room: Room) -> list[Measure]:
    turns = room.count(21, 5)
    async with Runtime(room.address("runs")) as runtime:
        long, short = _Run(runtime, "long", LONG * 2), _Run(runtime, "short", SHORT * 2)
        await long.start(LONG - turns // 2 * PER_TURN)

        async def near_the_beginning() -> Sequence[float]:
            await short.start(SHORT - PER_TURN // 2)
            seconds = await short.some_steps()
            await short.finish()
            return seconds

        rounds = Rounds(long=long.some_steps, short=near_the_beginning)
        await near_the_beginning()
        await rounds.run(turns)
        await long.run.cancel()
    return [
        rounds.ratio(f"a step near {LONG:,}, against one near {SHORT}", "long", "short", TARGET),
        Measure(what="the same in processor time", value=median(long.processor) / median(short.processor), unit="×"),
        Measure(what=f"a step near {LONG:,}, p50", value=rounds.median("long") * MICRO, unit="µs"),
        Measure(what=f"a step near {SHORT}, p50", value=rounds.median("short") * MICRO, unit="µs"),
    ]


class _Run:
    """A run that makes some steps when it is told to."""

    def __init__(self, runtime: Runtime, name: str, steps: int) -> None:
        self.run: Run
        self.processor: list[float] = []
        """Processor time of a step, of each of those."""
        self._runtime = runtime
        self._model = StepModel(steps, nothing)
        self._agent = stepper(self._model, nothing, name)
        self._at = 0

    async def start(self, step: int) -> None:
        """Begin a run, and return when it is at this step."""
        self._at = self._model.wait_at = step
        self.run = await self._runtime.start(self._agent, NO_ARGUMENTS)
        await self._model.waits()

    async def some_steps(self) -> Sequence[float]:
        """What one of the next steps takes."""
        self._at += PER_TURN
        used = time.process_time()
        seconds = await self._model.go_on_to(self._at)
        self.processor.append((time.process_time() - used) / PER_TURN)
        return [seconds / PER_TURN]

    async def finish(self) -> None:
        await self._model.go_on_to(None)
        await self.run.result()


BENCHMARK: Final = Benchmark("long_run_steps", f"a step near {LONG:,} of a run, against one near {SHORT}", measure)
