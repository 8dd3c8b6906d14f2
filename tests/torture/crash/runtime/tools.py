"""Tools of every kind, each of which keeps the diary, and the agent that uses them.

What the agent asks for depends only on its goal and on how many answers its history has, so every process that takes
the run up asks for the same.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Any, Final

from checkrein import Agent, Tool, Turns, tool
from checkrein.calls.current import current_call
from checkrein.models import Assistant, Request, ScriptedModel, Turn, User
from tests.torture.crash.runtime import diary

TICK_SECONDS: Final = 0.015
UNDO_SECONDS: Final = 0.02

_CHILD: Final = """
import os, sys, time
line, diary = sys.argv[1:]
for _ in range(3000):
    time.sleep(0.02)
    fd = os.open(diary, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(fd, (line % (time.time(), os.getpid())).encode())
    os.fsync(fd)
    os.close(fd)
"""


# -- doing


def _begin(name: str, item: str) -> str:
    call = current_call()
    diary.write("begin", call.key, call.attempt, name, item, diary.permit(call.key, call.id, call.attempt))
    return call.key


def _end(key: str, name: str, item: str) -> str:
    diary.write("done", key, current_call().attempt, name, item)
    return f"{item} is done"


def _work(name: str, item: str, ms: int) -> str:
    key = _begin(name, item)
    until = time.monotonic() + ms / 1000
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, TICK_SECONDS))
        diary.write("tick", key, current_call().attempt, name, item)
    return _end(key, name, item)


async def _work_async(name: str, item: str, ms: int) -> str:
    key = _begin(name, item)
    until = time.monotonic() + ms / 1000
    while (left := until - time.monotonic()) > 0:
        await asyncio.sleep(min(left, TICK_SECONDS))
        diary.write("tick", key, current_call().attempt, name, item)
    return _end(key, name, item)


def _start_child(key: str) -> None:
    """A process in a session of its own, with an environment that says nothing of where it came from."""
    line = f'[%f,%d,"tick","{key}"]\n'
    path = str(diary.diary(diary.folder()))
    child = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _CHILD, line, path], start_new_session=True, env={"PATH": os.defpath}
    )
    diary.write("child", key, pid=child.pid)


# -- undoing


def take_back(call: Any) -> None:
    diary.write("undo", call.key, permit=diary.permit(call.key, f"undo:{call.id}"))
    time.sleep(UNDO_SECONDS)
    diary.write("undone", call.key)


async def take_back_async(call: Any) -> None:
    diary.write("undo", call.key, permit=diary.permit(call.key, f"undo:{call.id}"))
    await asyncio.sleep(UNDO_SECONDS)
    diary.write("undone", call.key)


# -- the tools


@tool
async def tell(item: str, ms: int) -> str:
    return await _work_async("tell", item, ms)


@tool(undo=take_back_async)
async def draft(item: str, ms: int) -> str:
    return await _work_async("draft", item, ms)


@tool(idempotent=True, on_pause="abort")
async def look_up(item: str, ms: int) -> str:
    return await _work_async("look_up", item, ms)


@tool(undo=take_back)
async def nurse(item: str, ms: int) -> str:
    _start_child(current_call().key)
    return await _work_async("nurse", item, ms)


@tool
def send(item: str, ms: int) -> str:
    return _work("send", item, ms)


@tool(undo=take_back)
def book(item: str, ms: int) -> str:
    return _work("book", item, ms)


@tool(undo=take_back_async, on_pause="hold")
def reserve(item: str, ms: int) -> str:
    return _work("reserve", item, ms)


@tool(idempotent=True)
def fetch(item: str, ms: int) -> str:
    return _work("fetch", item, ms)


@tool(idempotent=True, undo=take_back)
def upsert(item: str, ms: int) -> str:
    return _work("upsert", item, ms)


@tool(undo=take_back)
def parent(item: str, ms: int) -> str:
    _start_child(current_call().key)
    return _work("parent", item, ms)


TOOLS: Final[dict[str, Tool]] = {
    one.name: one for one in (tell, draft, look_up, nurse, send, book, reserve, fetch, upsert, parent)
}


# -- the agent


def goal(name: str, seed: int, turns: int) -> str:
    return f"{name} {seed} {turns}"


def think(request: Request) -> Turn:
    """The next turn: a few calls, chosen by the goal and the number of answers so far."""
    wanted = next(message.text for message in request.messages if isinstance(message, User))
    _, seed, turns = wanted.split()
    place = sum(isinstance(message, Assistant) and not message.interrupted for message in request.messages)
    if place >= int(turns) or not request.tools:
        return Turn("That is all.")
    dice = Random(f"{seed}/{place}")
    names = dice.choices(sorted(TOOLS), k=dice.choice((1, 1, 2, 3)))
    calls = [(name, {"item": f"{place}.{n}", "ms": dice.randrange(120)}) for n, name in enumerate(names)]
    return Turn("Then I shall do this.", calls=calls)


def agent() -> Agent:
    model = ScriptedModel(think, tokens_per_second=200)
    return Agent("torture", model=model, tools=list(TOOLS.values()), stop_when=Turns(200))


LONG: Final = "long"
LONG_CALLS: Final = ("tell", "send", "parent", "look_up", "fetch")


def long_agent(*, lies: bool = False) -> Agent:
    """One whose calls, of every kind, last until somebody stops them.

    One that lies says of every tool that it may be tried again: a planted bug, for the check to find.
    """
    tools = [Tool(one.function, undo=one.undo, idempotent=True) for one in TOOLS.values()] if lies else TOOLS.values()
    calls = [(name, {"item": f"0.{n}", "ms": 120_000}) for n, name in enumerate(LONG_CALLS)]
    model = ScriptedModel([Turn("This will take long.", calls=calls), "That is all."])
    return Agent(LONG, model=model, tools=list(tools))


def url(where: Path) -> str:
    return f"sqlite:///{diary.store(where)}"
