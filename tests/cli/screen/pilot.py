"""A run on a screen without a terminal: keys are pressed and lines are read by the test itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from textual.pilot import Pilot

from checkrein import Agent, Run, Runtime
from checkrein.cli.screen.app import Left, RunScreen
from checkrein.cli.screen.watch import RunWatch
from checkrein.control.control import Control
from checkrein.core.enums import Status
from checkrein.journal.base import Journal
from checkrein.models import ScriptedModel
from tests.support.agent_tools import crunch, make_draft, wire_money
from tests.support.patience import PATIENCE_SECONDS

SLOWLY = "one two three four five six seven eight nine ten\n" * 1000


def agent(turns: Any, *, pace: float | None = 60, **options: Any) -> Agent:
    tools = [make_draft, crunch, wire_money]
    return Agent("churn", model=ScriptedModel(turns, tokens_per_second=pace), tools=tools, loops=False, **options)


class Seen:
    """What is on the screen, and what a person does to it."""

    def __init__(self, screen: RunScreen, pilot: Pilot[Left]) -> None:
        self.screen = screen
        self.pilot = pilot

    def lines(self) -> list[str]:
        strips = self.screen.screen._compositor.render_strips()
        return ["".join(segment.text for segment in strip).rstrip() for strip in strips]

    def text(self) -> str:
        return "\n".join(self.lines())

    def sees(self, wanted: str) -> bool:
        """Whether this is on the screen, be it broken into lines."""
        text = self.text()
        return wanted in text or wanted in " ".join(text.split())

    async def keys(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def write(self, text: str) -> None:
        names = {" ": "space", ",": "comma", "?": "question_mark"}
        await self.pilot.press(*(names.get(letter, letter) for letter in text))

    async def until(self, *wanted: str) -> str:
        await self.until_true(lambda: all(map(self.sees, wanted)), f"{wanted}")
        return self.text()

    async def until_gone(self, *unwanted: str) -> None:
        await self.until_true(lambda: not any(one in self.text() for one in unwanted), f"no {unwanted}")

    async def until_true(self, condition: Callable[[], bool], what: str = "it") -> None:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not condition():
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"{what} did not come true:\n{self.text()}") from None


@asynccontextmanager
async def on_screen(
    runtime: Runtime,
    run: Run,
    *,
    journal: Journal | None = None,
    control: Control | None = None,
    owns: bool = True,
    size: tuple[int, int] = (100, 30),
) -> AsyncIterator[Seen]:
    watch = RunWatch(journal or runtime.journal, run.id, runtime if owns else None)
    screen = RunScreen(watch, control or runtime.control, run.id, owns=owns, by="ann")
    try:
        async with screen.run_test(size=size) as pilot:
            yield Seen(screen, pilot)
    finally:
        await screen.settle(at_once=True)


async def until_status(run: Run, *wanted: Status) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (await run.state()).status not in wanted:
            await asyncio.sleep(0.01)
