"""The agents of the storms: one program that plays any script of good and bad tools, models and deeds of its own.

The goal is the script, as JSON: `{"key": …, "acts": [[kind, name], …]}`. Every tool writes what it does into a log of
its own (WITNESS), a line `<key>.<n> <word>`: the order of these lines is what the storms judge by, and no clock.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, NoReturn

import anyio

from checkrein import agent, tool
from checkrein.errors import CallFailed
from checkrein.models.base import Finish, Finished, TextDelta
from checkrein.models.messages import Request

LOG = os.environ["WITNESS"]
TICK_SECONDS = 0.05
LONG_SECONDS = 90.0
"""No tool that is meant to be stopped ends by itself while a storm lasts."""


def note(key: str, n: int, word: str) -> None:
    descriptor = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, f"{key}.{n} {word}\n".encode())
    finally:
        os.close(descriptor)


def ticks(key: str, n: int, seconds: float = LONG_SECONDS, word: str = "tick") -> None:
    """Work that leaves a line for every tick, wherever it runs."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        note(key, n, word)
        time.sleep(TICK_SECONDS)


async def async_ticks(key: str, n: int, seconds: float = LONG_SECONDS) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        note(key, n, "tick")
        await asyncio.sleep(TICK_SECONDS)


class BadStr(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this can be said")

    __repr__ = __str__


# -- undos


def undo(call: Any) -> None:
    note(call.arguments["key"], call.arguments["n"], "undo")


def undo_hangs(call: Any) -> None:
    note(call.arguments["key"], call.arguments["n"], "undo")
    time.sleep(LONG_SECONDS)


def undo_fails(call: Any) -> None:
    note(call.arguments["key"], call.arguments["n"], "undo")
    raise BadStr


def undo_returns_anything(call: Any) -> Any:
    note(call.arguments["key"], call.arguments["n"], "undo")
    return object()


# -- plain functions, in worker processes


@tool(undo=undo)
def quick(key: str, n: int) -> str:
    """Done at once."""
    note(key, n, f"begin {os.getpid()}")
    note(key, n, "end")
    return "done"


@tool(undo=undo)
def brief(key: str, n: int) -> str:
    """Done after a moment."""
    note(key, n, f"begin {os.getpid()}")
    ticks(key, n, 0.3)
    note(key, n, "end")
    return "done"


@tool(undo=undo)
def d_work(key: str, n: int) -> None:
    note(key, n, f"begin {os.getpid()}")
    ticks(key, n)


@tool(undo=undo_hangs)
def d_undo_hangs(key: str, n: int) -> str:
    note(key, n, f"begin {os.getpid()}")
    return "done"


@tool(undo=undo_fails)
def d_undo_fails(key: str, n: int) -> str:
    note(key, n, f"begin {os.getpid()}")
    return "done"


@tool(undo=undo_returns_anything)
def d_undo_returns_anything(key: str, n: int) -> str:
    note(key, n, f"begin {os.getpid()}")
    return "done"


@tool(undo=undo)
def d_sys_exit(key: str, n: int) -> NoReturn:
    note(key, n, f"begin {os.getpid()}")
    sys.exit(3)


@tool(undo=undo)
def d_keyboard(key: str, n: int) -> NoReturn:
    note(key, n, f"begin {os.getpid()}")
    raise KeyboardInterrupt


@tool(undo=undo)
def d_os_exit(key: str, n: int) -> None:
    note(key, n, f"begin {os.getpid()}")
    os._exit(5)


@tool(undo=undo)
def d_segv(key: str, n: int) -> None:
    note(key, n, f"begin {os.getpid()}")
    os.kill(os.getpid(), signal.SIGSEGV)


@tool(undo=undo)
def d_bad_str(key: str, n: int) -> NoReturn:
    note(key, n, f"begin {os.getpid()}")
    raise BadStr


@tool(undo=undo)
def d_huge(key: str, n: int) -> str:
    note(key, n, f"begin {os.getpid()}")
    return "x" * 12_000_000


@tool(undo=undo)
def d_deaf(key: str, n: int) -> None:
    note(key, n, f"begin {os.getpid()}")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while True:
        try:
            ticks(key, n)
        except BaseException:
            continue


@tool(undo=undo)
def d_thread(key: str, n: int) -> None:
    note(key, n, f"begin {os.getpid()}")
    threading.Thread(target=ticks, args=(key, n)).start()
    time.sleep(LONG_SECONDS)


@tool(undo=undo)
def d_fork_chain(key: str, n: int) -> None:
    note(key, n, f"begin {os.getpid()}")
    if os.fork() == 0:
        fork_on(key, n)
    time.sleep(LONG_SECONDS)


def fork_on(key: str, n: int) -> NoReturn:
    """A process that is always a new one, and never the parent of anybody for long."""
    end = time.monotonic() + LONG_SECONDS
    while time.monotonic() < end:
        note(key, n, "chain")
        time.sleep(0.02)
        if os.fork():
            os._exit(0)
    os._exit(0)


@tool(undo=undo)
def d_double_fork(key: str, n: int) -> None:
    note(key, n, f"begin {os.getpid()}")
    subprocess.Popen(["/bin/sh", "-c", daemon(key, n)])
    time.sleep(LONG_SECONDS)


def daemon(key: str, n: int) -> str:
    """A shell command that leaves its session and its environment behind."""
    loop = f"i=0; while [ $i -lt 900 ]; do echo {key}.{n} daemon >> {LOG}; sleep 0.1; i=$((i+1)); done"
    return f"(env -i nohup setsid /bin/sh -c '{loop}' > /dev/null 2>&1 &)"


@tool(isolation="thread", undo=undo)
def t_work(key: str, n: int) -> None:
    """A thread of the driver that nothing can end; it leaves before the storm does."""
    note(key, n, f"begin {os.getpid()}")
    ticks(key, n, 8.0)


@tool(effect="irreversible")
def d_asks(key: str, n: int) -> str:
    """Waits for consent first."""
    note(key, n, f"begin {os.getpid()}")
    return "sent"


# -- coroutines, in the driver itself


@tool(undo=undo)
async def a_work(key: str, n: int) -> None:
    note(key, n, f"begin {os.getpid()}")
    await async_ticks(key, n)


@tool(undo=undo)
async def a_swallow(key: str, n: int) -> None:
    note(key, n, f"begin {os.getpid()}")
    end = time.monotonic() + 12.0
    while time.monotonic() < end:
        try:
            await async_ticks(key, n, 12.0)
        except asyncio.CancelledError:
            continue


@tool(undo=undo)
async def a_finally(key: str, n: int) -> None:
    note(key, n, f"begin {os.getpid()}")
    try:
        await async_ticks(key, n)
    finally:
        await asyncio.shield(asyncio.sleep(12.0))


@tool(undo=undo)
async def a_to_thread(key: str, n: int) -> None:
    note(key, n, f"begin {os.getpid()}")
    await asyncio.to_thread(ticks, key, n, 6.0)


@tool(undo=undo)
async def a_anyio(key: str, n: int) -> None:
    note(key, n, f"begin {os.getpid()}")
    await anyio.to_thread.run_sync(ticks, key, n, 6.0)


@tool(undo=undo)
async def a_anyio_abandons(key: str, n: int) -> None:
    note(key, n, f"begin {os.getpid()}")
    await anyio.to_thread.run_sync(ticks, key, n, 6.0, abandon_on_cancel=True)


@tool(undo=undo)
async def a_thread(key: str, n: int) -> None:
    note(key, n, f"begin {os.getpid()}")
    threading.Thread(target=ticks, args=(key, n, 6.0), daemon=True).start()
    await asyncio.sleep(LONG_SECONDS)


@tool(undo=undo)
async def a_pool(key: str, n: int) -> None:
    note(key, n, f"begin {os.getpid()}")
    await asyncio.wrap_future(concurrent.futures.ThreadPoolExecutor(1).submit(ticks, key, n, 6.0))


@tool(undo=undo)
async def a_process(key: str, n: int) -> None:
    note(key, n, f"begin {os.getpid()}")
    multiprocessing.get_context("fork").Process(target=ticks, args=(key, n), daemon=True).start()
    await asyncio.sleep(LONG_SECONDS)


@tool(undo=undo)
async def a_terminates(key: str, n: int) -> None:
    """A fork that is ended by a signal which it shares with nobody."""
    note(key, n, f"begin {os.getpid()}")
    process = multiprocessing.get_context("fork").Process(target=ticks, args=(key, n), daemon=True)
    process.start()
    await asyncio.sleep(0.2)
    process.terminate()
    await asyncio.sleep(LONG_SECONDS)


@tool(undo=undo)
async def a_shell(key: str, n: int) -> None:
    note(key, n, f"begin {os.getpid()}")
    await asyncio.create_subprocess_shell(daemon(key, n))
    await asyncio.sleep(LONG_SECONDS)


@tool(undo=undo)
async def a_spawn(key: str, n: int) -> None:
    note(key, n, f"begin {os.getpid()}")
    os.posix_spawn("/bin/sh", ["/bin/sh", "-c", daemon(key, n)], {})
    await asyncio.sleep(LONG_SECONDS)


@tool(undo=undo)
async def a_fork(key: str, n: int) -> None:
    note(key, n, f"begin {os.getpid()}")
    if os.fork() == 0:
        ticks(key, n)
        os._exit(0)
    await asyncio.sleep(LONG_SECONDS)


@tool(undo=undo)
async def a_later(key: str, n: int) -> None:
    note(key, n, f"begin {os.getpid()}")
    asyncio.get_running_loop().call_later(3.0, note, key, n, "timer")
    await asyncio.sleep(LONG_SECONDS)


@tool(undo=undo)
async def a_task(key: str, n: int) -> None:
    note(key, n, f"begin {os.getpid()}")
    kept.append(asyncio.Task(async_ticks(key, n, 20.0), loop=asyncio.get_running_loop()))
    await asyncio.sleep(LONG_SECONDS)


kept: list[Any] = []


@tool(undo=undo)
async def a_exit_in_child(key: str, n: int) -> None:
    note(key, n, f"begin {os.getpid()}")

    async def leave() -> None:
        sys.exit(6)

    await asyncio.create_task(leave())


@tool(undo=undo)
async def a_exit_in_callback(key: str, n: int) -> None:
    note(key, n, f"begin {os.getpid()}")
    asyncio.get_running_loop().call_soon(sys.exit, 7)
    await asyncio.sleep(LONG_SECONDS)


@tool(undo=undo)
async def a_bad_str(key: str, n: int) -> None:
    note(key, n, f"begin {os.getpid()}")
    raise BadStr


@tool(undo=undo)
async def a_cancelled(key: str, n: int) -> None:
    note(key, n, f"begin {os.getpid()}")
    raise asyncio.CancelledError


@tool(undo=undo)
async def a_keyboard(key: str, n: int) -> None:
    note(key, n, f"begin {os.getpid()}")
    raise KeyboardInterrupt


@tool(undo=undo)
async def a_block(key: str, n: int) -> None:
    note(key, n, f"begin {os.getpid()}")
    time.sleep(7.0)  # noqa: ASYNC251
    note(key, n, "woke")


HARMLESS = (quick, brief)
TOOLS = {
    one.name: one
    for one in (
        *HARMLESS,
        *(d_work, d_undo_hangs, d_undo_fails, d_undo_returns_anything, d_sys_exit, d_keyboard, d_os_exit, d_segv),
        *(d_bad_str, d_huge, d_deaf, d_thread, d_fork_chain, d_double_fork, t_work, d_asks),
        *(a_work, a_swallow, a_finally, a_to_thread, a_anyio, a_anyio_abandons, a_thread, a_pool, a_process),
        *(a_terminates, a_shell, a_spawn, a_fork, a_later, a_task, a_exit_in_child, a_exit_in_callback, a_bad_str),
        *(a_cancelled, a_keyboard, a_block),
    )
}


# -- models


class StormModel:
    """Says a word, then does what its name says."""

    def __init__(self, name: str, deed: Callable[[], Any]) -> None:
        self.name = f"storm:{name}"
        self._deed = deed

    async def stream(self, request: Request) -> AsyncIterator[Any]:
        yield TextDelta("Well, ")
        await asyncio.sleep(TICK_SECONDS)
        done = self._deed()
        if done is not None:
            await done
        yield TextDelta("that was it.")
        yield Finished(Finish.STOP)


def _raise(what: Callable[[], BaseException]) -> NoReturn:
    raise what()


async def _swallow() -> None:
    end = time.monotonic() + 12.0
    while time.monotonic() < end:
        try:
            await asyncio.sleep(1.0)
        except asyncio.CancelledError:
            continue


RAISED: dict[str, Callable[[], BaseException]] = {
    "cancelled": asyncio.CancelledError,
    "keyboard": KeyboardInterrupt,
    "sys_exit": SystemExit,
    "bad_str": BadStr,
    "generator_exit": GeneratorExit,
}
MODELS = {
    "good": StormModel("good", lambda: None),
    "slow": StormModel("slow", lambda: asyncio.sleep(LONG_SECONDS)),
    "swallow": StormModel("swallow", _swallow),
    **{name: StormModel(name, functools.partial(_raise, what)) for name, what in RAISED.items()},
}


# -- streams, and what a program itself may do


async def _stream(name: str) -> AsyncIterator[str]:
    yield "one "
    if name in RAISED:
        _raise(RAISED[name])
    try:
        if name == "swallow":
            await _swallow()
        else:
            await asyncio.sleep(LONG_SECONDS)
    finally:
        if name == "finally":
            await asyncio.shield(asyncio.sleep(12.0))
    yield "two"


async def _do(name: str) -> None:
    """What a program does without asking anybody."""
    if name in RAISED:
        raise RAISED[name]()
    if name == "os_exit":
        os._exit(4)
    elif name == "block":
        time.sleep(6.0)  # noqa: ASYNC251
    elif name == "swallow":
        await _swallow()
    elif name == "cancels_a_task":
        task = asyncio.ensure_future(asyncio.sleep(LONG_SECONDS))
        task.cancel()
        await task


STREAMS = ("slow", "finally", "swallow", *RAISED)
DEEDS = ("os_exit", "block", "swallow", "cancels_a_task", *RAISED)


@agent
async def player(ctx: Any, goal: str) -> str:
    """Play the script. What a call fails by is nobody's business here: the next act follows."""
    script = json.loads(goal)
    for n, (kind, name) in enumerate(script["acts"]):
        try:
            if kind == "tool":
                await ctx.tool(TOOLS[name], key=script["key"], n=n)
            elif kind == "model":
                await ctx.model("Go on.", model=MODELS[name])
            elif kind == "stream":
                await ctx.stream(functools.partial(_stream, name), name=name)
            else:
                await _do(name)
        except CallFailed:
            continue
    return "played"
