"""Programs for tests, and functions that keep a log of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from checkrein import Context, agent, tool
from tests.support.agent_tools import crunch, make_draft, note


def undo_booking(call: Any) -> None:
    note(call.arguments["log"], f"unbook {call.arguments['what']}")


async def book(log: str, what: str, seconds: float = 0.0) -> str:
    note(log, f"booking {what}")
    await asyncio.sleep(seconds)
    note(log, f"booked {what}")
    return f"{what}-1"


def compute(log: str, n: int) -> int:
    note(log, f"compute {n}")
    return n * n


async def words(text: str, seconds: float = 0.0) -> AsyncIterator[str]:
    for word in text.split():
        await asyncio.sleep(seconds)
        yield word + " "


@tool(effect="none")
async def look(log: str, what: str) -> str:
    """Look something up."""
    note(log, f"look {what}")
    return what.upper()


@agent
async def everything(ctx: Context, log: str) -> dict[str, Any]:
    """Uses all that a context offers. Its goal is the path of the log."""
    ctx.plan(["Look", "Book"])
    async with ctx.step("Look"):
        found = await asyncio.gather(*(ctx.tool(look, log=log, what=what) for what in ("a", "b", "c")))
        square = await ctx.call(compute, log, 7)
    async with ctx.step("Book"):
        booked = await ctx.call(book, log, "table", undo=undo_booking)
        said = await ctx.stream(lambda: words("one two three"))
        await ctx.call(book, log, "last", 0.3)
    return {
        "found": found,
        "square": square,
        "booked": booked,
        "said": said,
        "now": ctx.now(),
        "uuid": str(ctx.uuid()),
        "version": ctx.version("v2"),
    }


@agent
async def worker(ctx: Context, log: str) -> str:
    """A sub-run with a draft and long work."""
    await ctx.call(book, log, "child", undo=undo_booking)
    await ctx.tool(crunch, log=log)
    return "done"


@agent
async def boss(ctx: Context, log: str) -> str:
    """Books, then hands the work on."""
    await ctx.call(book, log, "parent", undo=undo_booking)
    return str(await ctx.spawn(worker, log))


@agent
async def quick(ctx: Context, goal: str) -> str:
    return goal[::-1]


@agent
async def many(ctx: Context, goal: str) -> list[str]:
    """Several sub-runs at once."""
    return list(await asyncio.gather(*(ctx.spawn(quick, f"{goal}{n}") for n in range(3))))


__all__ = ["boss", "everything", "make_draft", "many", "quick", "worker"]
