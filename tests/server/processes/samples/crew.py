"""Agents for the tests of a server's processes. Tools keep a log of their own (WITNESS); so does the import itself."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

from checkrein import Agent, agent, tool
from checkrein.models import ScriptedModel, Turn


def note(word: str) -> None:
    descriptor = os.open(os.environ["WITNESS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{time.time()} {os.getpid()} {word}\n".encode())
    os.fsync(descriptor)
    os.close(descriptor)


note("imported")

LONG_TALK = " ".join(f"word{n}" for n in range(1, 400))
ENDLESS_TALK = " ".join(f"word{n}" for n in range(1, 20_000))


@tool
def first() -> str:
    """The first piece of work, quickly done."""
    note("first")
    return "first"


@tool
def second() -> str:
    """The second piece of work."""
    note("second")
    return "second"


@tool
async def nap() -> str:
    """Block the event loop."""
    note("wedged")
    time.sleep(120)  # noqa: ASYNC251
    note("woke")
    return "slept"


@tool
async def hog() -> str:
    """Block the whole interpreter, in C."""
    note("wedged")
    sum(range(10**12))
    note("woke")
    return "counted"


@tool
async def freeze() -> str:
    """Say who I am, and work on without blocking anything."""
    note("wedged")
    await asyncio.sleep(120)
    note("woke")
    return "waited"


@tool
def crunch() -> str:
    """Work for long in a process of its own, and have a child that works too."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], start_new_session=True)
    note(f"child {child.pid}")
    time.sleep(300)
    return "crunched"


def turns(*said: Any, pace: float | None = None) -> ScriptedModel:
    return ScriptedModel(list(said), tokens_per_second=pace)


def talk_then_second(request: Any) -> Turn:
    """Talks for as long as anybody needs to interrupt it; whoever asks once the test lets it go on hears one word."""
    is_let_go = os.path.exists(os.environ["WITNESS"] + ".go")
    return Turn("Second." if is_let_go else ENDLESS_TALK, calls=[("second", {})])


worker = Agent(
    "worker",
    model=turns(Turn("First.", calls=[("first", {})]), talk_then_second, "Done.", pace=80),
    tools=[first, second],
)
speaker = Agent(
    "speaker",
    model=turns(Turn("First.", calls=[("first", {})]), Turn(LONG_TALK, calls=[("second", {})]), "Done.", pace=80),
    tools=[first, second],
)
talker = Agent("talker", model=ScriptedModel(lambda request: ENDLESS_TALK, tokens_per_second=50))
napper = Agent("napper", model=turns(Turn("I nap.", calls=[("nap", {})]), "Done."), tools=[nap])
hogger = Agent("hogger", model=turns(Turn("I hog.", calls=[("hog", {})]), "Done."), tools=[hog])
freezer = Agent("freezer", model=turns(Turn("I freeze.", calls=[("freeze", {})]), "Done."), tools=[freeze])
cruncher = Agent("cruncher", model=turns(Turn("I crunch.", calls=[("crunch", {})]), "Done."), tools=[crunch])
quick = Agent("quick", model=turns("Hello."))


@agent
async def clock(ctx: Any, goal: str) -> Any:
    """Say what time it is, again and again, the moment it is that time."""

    async def times() -> AsyncIterator[str]:
        for _ in range(600):
            yield f"{time.time()} "
            await asyncio.sleep(0.05)

    return await ctx.stream(times)
