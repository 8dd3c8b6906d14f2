"""The agents of a fleet: one that says what time it is, one that waits to be stopped, one that makes steps.

What they saw themselves they write to the file BENCH_LOG, a line each, by the clock that all processes of a machine
share. The runtime is not asked. The goal of a run that waits is the argument of its tool, as JSON: its name there.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final

from bench.actors import CAPS, USED, StepModel, nothing, stepper
from checkrein import Agent, tool
from checkrein.models.base import Delta, TextDelta
from checkrein.models.messages import Request

TOKENS_PER_SECOND: Final = 50.0
STEPS: Final = 20
LOOK_SECONDS: Final = 0.05


def note(what: str, about: str) -> None:
    line = f"{what} {about} {time.perf_counter():.6f} {os.uname().nodename}\n"
    log = os.open(os.environ["BENCH_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(log, line.encode())
    finally:
        os.close(log)


class TimeModel:
    """Says what time it is, for ever: every token is the moment at which it was said."""

    name = "bench:time"

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        yield USED
        due = time.perf_counter()
        while True:
            due += 1 / TOKENS_PER_SECOND
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            yield TextDelta(f" {time.perf_counter():.3f}")


@tool(effect="none", idempotent=True)
async def wait(name: str) -> None:
    """Do nothing until it is stopped."""
    note("began", name)
    try:
        await asyncio.sleep(3600)
    finally:
        note("ended", name)


class GatedModel(StepModel):
    """Begins when the file BENCH_GATE is there."""

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        if len(request.messages) == 1:
            while not Path(os.environ["BENCH_GATE"]).exists():  # noqa: ASYNC110, ASYNC240 - nobody tells
                await asyncio.sleep(LOOK_SECONDS)
        async for delta in super().stream(request):
            yield delta


talker = Agent("talker", model=TimeModel(), stop_when=CAPS, loops=False)
waiter = stepper(StepModel(1, wait), wait, "waiter")
walker = stepper(GatedModel(STEPS, nothing), nothing, "walker")
