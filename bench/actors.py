"""Agents for measuring: models that answer at once and tools that do next to nothing, so that what is left is ours.

The tools are here, at the top level of a module, because a worker process imports them from it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final

from checkrein import Agent, Elapsed, Tool, Turns, tool
from checkrein.core.conditions import Usage
from checkrein.models.base import Delta, Finish, Finished, TextDelta, ToolCallDelta, UsageDelta
from checkrein.models.messages import Request, User

CAPS: Final = Turns(1_000_000) | Elapsed(minutes=10_000)
"""Like every agent's caps, only larger: they are looked at before each call."""
USED: Final = UsageDelta(Usage(input_tokens=1400, output_tokens=20))
PER_STEP: Final = 2
"""Messages that a step adds to the history: the model's reply and the tool's result."""


# -- models


class StepModel:
    """Asks for the same tool in every turn, `steps` times, and then ends. What it costs does not grow with the history.

    The goal of a run is what the tool is called with, as JSON. The model can be made to wait before a step, so that
    some steps can be measured by themselves; for one run at a time.
    """

    name = "bench:steps"

    def __init__(self, steps: int, tool: Tool, *, wait_at: int | None = None) -> None:
        self.wait_at = wait_at
        self.asked_at = 0.0
        """When it was asked last."""
        self._steps = steps
        self._tool = tool.name
        self._waits = asyncio.Event()
        self._may_go_on = asyncio.Event()

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        self.asked_at = time.perf_counter()
        step = len(request.messages) // PER_STEP
        while self.wait_at is not None and step >= self.wait_at:
            self._may_go_on.clear()
            self._waits.set()
            await self._may_go_on.wait()
        yield USED
        if step < self._steps:
            goal = request.messages[0]
            assert isinstance(goal, User)
            yield ToolCallDelta(0, id=f"call_{step}", name=self._tool, arguments=goal.text)
            yield Finished(Finish.TOOL_CALLS)
        else:
            yield TextDelta("Done.")
            yield Finished(Finish.STOP)

    async def waits(self) -> None:
        """Return when it waits before a step."""
        await self._waits.wait()
        self._waits.clear()

    async def go_on_to(self, step: int | None) -> float:
        """Let it go on until it waits before `step`, and return what that took; with None, to its end."""
        self.wait_at = step
        self._may_go_on.set()
        began = time.perf_counter()
        if step is not None:
            await self.waits()
        return time.perf_counter() - began


class Talker:
    """Talks for ever, at the pace of a provider."""

    name = "bench:talker"

    def __init__(self, tokens_per_second: float) -> None:
        self.live = 0
        """How many replies are being read now."""
        self.tokens = 0
        """How many tokens all of them were given so far."""
        self._seconds_per_token = 1 / tokens_per_second

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        self.live += 1
        try:
            yield USED
            while True:
                await asyncio.sleep(self._seconds_per_token)
                self.tokens += 1
                yield TextDelta("word ")
        finally:
            self.live -= 1


# -- tools


@tool(effect="none")
async def nothing() -> int:
    """Does nothing, on the event loop."""
    return 1


@tool(effect="none")
def nothing_in_a_worker() -> int:
    """Does nothing, in a worker process."""
    return 1


TICK_SECONDS: Final = 0.001
ticks: Final[dict[str, float]] = {}
"""When each call of `tick` was last at work, by its own clock."""


@tool(effect="none")
async def tick(name: str) -> None:
    """Works for ever, a little every millisecond."""
    while True:
        ticks[name] = time.perf_counter()
        await asyncio.sleep(TICK_SECONDS)


@tool(effect="none")
def work(path: str) -> None:
    """Works for ever in its process, whose pid it leaves at `path`, and ends when told to."""
    _say_pid(path)
    while True:
        time.sleep(0.01)


@tool(effect="none")
def work_on(path: str) -> None:
    """The same, but does not heed SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _say_pid(path)
    while True:
        time.sleep(0.01)


def _say_pid(path: str) -> None:
    part = Path(f"{path}.part")
    part.write_text(str(os.getpid()))
    part.rename(path)


# -- agents

NO_ARGUMENTS: Final = "{}"


def stepper(model: StepModel, tool: Tool, name: str = "stepper") -> Agent:
    return Agent(name, model=model, tools=[tool], stop_when=CAPS, loops=False)
