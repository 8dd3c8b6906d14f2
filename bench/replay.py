"""How long a run takes to come back by replay: from `resume()` in a new runtime to its first live call.

The run has made a thousand calls, half of a model and half of a tool, and was paused in the middle of the next one. It
is resumed from a copy of its journal, every time from another one. The process is the same: what Python takes to start
and to import is not in this, and what the file system keeps in memory stays there.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.actors import NO_ARGUMENTS, StepModel, nothing, stepper
from bench.harness import MILLI, Benchmark, Measure, Room, Target, quantile
from checkrein import Runtime
from checkrein.core.enums import Status

TARGET: Final = Target("at most", 0.5)
CALLS: Final = 1_000
SHORT: Final = 10
CALLS_PER_STEP: Final = 2


async def measure(room: Room) -> list[Measure]:
    times = room.count(15, 3)
    long = await _resumed(room.folder / "long", CALLS, times)
    short = await _resumed(room.folder / "short", SHORT, times)
    return [
        Measure(
            what=f"resume to the first live call, after {CALLS:,} calls",
            value=quantile(long, 0.5),
            unit="s",
            target=TARGET,
            note=f"{times} times, the longest took {max(long):.2g} s",
        ),
        Measure(what=f"the same after {SHORT} calls", value=quantile(short, 0.5) * MILLI, unit="ms"),
    ]


async def _resumed(folder: Path, calls: int, times: int) -> Sequence[float]:
    run = await _paused_run(folder / "journal", calls)
    return [await _resume(folder / "journal", folder / f"copy-{n}", run, calls) for n in range(times)]


async def _paused_run(folder: Path, calls: int) -> str:
    """A run that was paused before its next call, in a journal that nobody has open any more."""
    steps = calls // CALLS_PER_STEP
    model = StepModel(steps, nothing, wait_at=steps)
    async with Runtime(_address(folder)) as runtime:  # which makes the folder
        run = await runtime.start(stepper(model, nothing), NO_ARGUMENTS)
        await model.waits()
        await run.pause(wait=60)
        assert (await run.state()).status is Status.PAUSED
    return run.id


async def _resume(journal: Path, copy: Path, run: str, calls: int) -> float:
    shutil.copytree(journal, copy)
    model = StepModel(calls // CALLS_PER_STEP, nothing)
    async with Runtime(_address(copy), agents=[stepper(model, nothing)]) as runtime:
        handle = await runtime.get(run)
        began = time.perf_counter()
        await handle.resume(wait=60)
        await asyncio.wait_for(handle.result(), 60)
    assert model.asked_at > began
    return model.asked_at - began


def _address(folder: Path) -> str:
    return f"sqlite:///{folder / 'runs.db'}"


BENCHMARK: Final = Benchmark("replay", f"resume by replay after {CALLS:,} calls", measure)
