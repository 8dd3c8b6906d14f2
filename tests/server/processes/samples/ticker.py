"""Agents for drills of the kill switch. A tool says itself, twenty times a second, that it is at work."""

from __future__ import annotations

import asyncio
import ctypes
import os
import time

from checkrein import Context, Tool, agent, tool

TICKS = 12_000


def note(word: str) -> None:
    descriptor = os.open(os.environ["WITNESS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{time.time()} {os.getpid()} {word}\n".encode())
    os.close(descriptor)


@tool(effect="none")
async def task(name: str) -> str:
    """Works on the event loop of its driver."""
    for _ in range(TICKS):
        note(f"tick {name}")
        await asyncio.sleep(0.05)
    return name


@tool(effect="none")
def process(name: str) -> str:
    """Works in a process of its own."""
    for _ in range(TICKS):
        note(f"tick {name}")
        time.sleep(0.05)
    return name


@tool(effect="none")
async def python(name: str) -> str:
    """Blocks the event loop of its driver."""
    for _ in range(TICKS):
        note(f"tick {name}")
        time.sleep(0.05)  # noqa: ASYNC251
    return name


@tool(effect="none")
async def c(name: str) -> str:
    """Keeps the interpreter of its driver."""
    note(f"tick {name}")
    ctypes.PyDLL(None).sleep(600)
    note(f"woke {name}")
    return name


TOOLS: dict[str, Tool] = {"task": task, "process": process, "python": python, "c": c}


@agent(name="ticker", tools=[task, process, python, c])
async def ticker(ctx: Context, goal: str) -> str:
    """The goal is `KIND:NAME`."""
    kind, _, name = goal.partition(":")
    return str(await ctx.tool(TOOLS[kind], name=name))
