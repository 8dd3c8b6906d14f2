"""How many modules and functions of ours one cancel crosses inside one process: from `cancel()` to its receipt.

The run is in a tool that works in a process of its own, and has an effect that is undone. The event loop is watched,
and threads that begin meanwhile; not the journal's writer and reader, which are there already. What goes on anyway
(renewals, heartbeats) is in it where it happens meanwhile, so the smallest of a few walks counts.

A function is what is written as one, with `def` or `lambda`. Comprehensions, which have frames of their own in some
versions of Python only, are lines of their function; with them the count is told beside it.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any, Final

import checkrein
from bench.harness import Benchmark, Measure, Room, Target
from checkrein import Agent, Runtime, tool
from checkrein.core.enums import Status
from checkrein.models import ScriptedModel, Turn

OURS: Final = str(Path(checkrein.__file__).parent)
MODULES: Final = Target("at most", 30.0)
FUNCTIONS: Final = Target("at most", 250.0)
Walk = set[tuple[str, str, int]]
"""Files, names and lines of functions."""


def put_back(call: Any) -> None:
    """Undo of `lock`."""


@tool(undo=put_back)
def lock() -> str:
    """Take something."""
    return "locked"


@tool
def work(begun: str) -> str:
    """Take long."""
    Path(begun).touch()
    time.sleep(60)
    return "done"


async def measure(room: Room) -> list[Measure]:
    walks = [await _walk(room.folder, f"walk-{n}") for n in range(room.count(5, 2))]
    modules = min(len({file for file, _, _ in walk}) for walk in walks)
    frames = min(map(len, walks))
    functions = min(sum(not _is_comprehension(name) for _, name, _ in walk) for walk in walks)
    return [
        Measure(what="modules that one cancel crosses", value=modules, unit="", target=MODULES),
        Measure(
            what="functions", value=functions, unit="", target=FUNCTIONS, note=f"the smallest of {len(walks)} walks"
        ),
        Measure(what="functions and comprehensions", value=frames, unit=""),
    ]


def _is_comprehension(name: str) -> bool:
    return name.endswith(("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"))


async def _walk(folder: Path, name: str) -> Walk:
    begun = folder / f"{name}.begun"
    turns = [Turn("I lock.", calls=[("lock", {})]), Turn("I work.", calls=[("work", {"begun": str(begun)})])]
    agent = Agent("walker", model=ScriptedModel([*turns, "Done."]), tools=[lock, work])
    async with Runtime(f"sqlite:///{folder / name / 'runs.db'}") as runtime:
        run = await runtime.start(agent, "Go.")
        while not begun.exists():  # noqa: ASYNC110  another process makes it
            await asyncio.sleep(0.01)
        crossed: Walk = set()

        def note(frame: FrameType, event: str, _: object) -> None:
            if event == "call" and (code := frame.f_code).co_filename.startswith(OURS):
                crossed.add((code.co_filename, code.co_qualname, code.co_firstlineno))

        threading.setprofile(note)
        sys.setprofile(note)
        try:
            receipt = await run.cancel(wait=60)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
        assert receipt.status is Status.CANCELLED
    return crossed


BENCHMARK: Final = Benchmark("cancel_walk", "modules and functions that one cancel crosses", measure)
