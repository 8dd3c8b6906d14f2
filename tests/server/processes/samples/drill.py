"""Agents for drills on several hosts. A tool says itself what it does, on which host, and where it found its permit."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from pathlib import Path

import psycopg

from checkrein import Context, Tool, agent, tool
from checkrein.calls.current import current_call
from checkrein.journal.postgres.connection import target_of

TICK_SECONDS = 0.02
PERMIT = """
SELECT e.seq FROM {schema}.events e JOIN {schema}.runs r ON r.key = e.run
WHERE r.id = %s AND e.type = 'call.started'
AND convert_from(e.body, 'UTF8')::json ->> 'call' = %s
AND coalesce((convert_from(e.body, 'UTF8')::json ->> 'attempt')::int, 1) = %s
"""


def note(word: str) -> None:
    descriptor = os.open(os.environ["WITNESS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{time.time()} {os.getpid()} {word}\n".encode())
    os.fsync(descriptor)
    os.close(descriptor)


def permit() -> int:
    """Where the journal has the permit of this attempt, as anybody can see who does not trust the runtime; or 0."""
    call, target = current_call(), target_of(os.environ["DRILL_STORE"])
    with psycopg.connect(target.conninfo) as db:
        asked = (call.key.partition("/")[0], call.id, call.attempt)
        row = db.execute(PERMIT.format(schema=target.schema).encode(), asked).fetchone()
    return 0 if row is None else int(row[0])


def begin(name: str) -> None:
    note(f"begin {name} {socket.gethostname()} {permit()}")


def end(name: str) -> str:
    note(f"end {name} {socket.gethostname()}")
    return "enough" if Path(f"{os.environ['WITNESS']}.enough").exists() else "more"


@tool
async def task(name: str, seconds: float) -> str:
    """Works on the event loop of its driver. Cannot be repeated."""
    begin(name)
    await asyncio.sleep(seconds)
    return end(name)


@tool
def process(name: str, seconds: float) -> str:
    """Works in a process of its own. Cannot be repeated."""
    begin(name)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(TICK_SECONDS)
    return end(name)


TOOLS: dict[str, Tool] = {"task": task, "process": process}


@agent(name="stepper", tools=[task, process])
async def stepper(ctx: Context, goal: str) -> str:
    """The goal is a list of `KIND:NAME=SECONDS`."""
    for word in goal.split():
        kind, _, rest = word.partition(":")
        name, _, seconds = rest.partition("=")
        await ctx.tool(TOOLS[kind], name=name, seconds=float(seconds))
    return "done"


@agent(name="looper", tools=[task, process])
async def looper(ctx: Context, goal: str) -> int:
    """The goal is `KIND:NAME=SECONDS`, which is done until it is enough."""
    kind, _, rest = goal.partition(":")
    name, _, seconds = rest.partition("=")
    number = 0
    while await ctx.tool(TOOLS[kind], name=f"{name}.{number}", seconds=float(seconds)) != "enough":
        number += 1
    return number


@agent(name="parent")
async def parent(ctx: Context, goal: str) -> str:
    """Has two others work at the same time."""
    await asyncio.gather(*(ctx.spawn(stepper, f"task:{goal}.{n}=0.2 task:{goal}.{n}.last=0") for n in range(2)))
    return goal


@agent(name="changed", tools=[task])
async def changed(ctx: Context, goal: str) -> str:
    """A program that was changed without a thought for its runs: each version calls its steps otherwise."""
    version, number = os.environ["DRILL_VERSION"], 0
    while await ctx.tool(task, name=f"{goal}.{version}.{number}", seconds=0.2) != "enough":
        number += 1
    return version
