"""Tools as authors write them: some behave, some resist. Each writes its own log."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from checkrein.calls.current import current_call
from checkrein.processes.ipc import Unpacker, pack
from tests.support.witness import Witness, note

TICKER = """
import os, sys, time
log, word = sys.argv[1:3]
if len(sys.argv) > 3:
    import signal
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
while True:
    with open(log, "a") as file:
        file.write(f"{time.time()} {os.getpid()} {word}\\n")
        file.flush()
        os.fsync(file.fileno())
    time.sleep(0.03)
"""


def ticker(log: str, word: str, *more: str) -> list[str]:
    """A command that writes `word` for ever."""
    return [sys.executable, "-I", "-S", "-c", TICKER, log, word, *more]


# -- plain ones


def add(a: int, b: int) -> int:
    return a + b


def look_into_environment(names: list[str]) -> list[str | None]:
    return [os.environ.get(name) for name in names]


def identify() -> int:
    return os.getpid()


def fail(message: str) -> None:
    raise ValueError(message)


def tick(log: str, word: str = "tick") -> None:
    while True:
        note(log, word)
        time.sleep(0.03)


def sleep(log: str, seconds: float) -> str:
    note(log, "begun")
    time.sleep(seconds)
    note(log, "done")
    return "slept"


def wait_for(log: str, file: str) -> str:
    """Return once there is a file of this name."""
    note(log, "begun")
    while not os.path.exists(file):
        time.sleep(0.01)
    note(log, "done")
    return "waited"


def loop_for_ever(log: str) -> None:
    note(log, "begun")
    while True:
        pass


def crunch(log: str) -> int:
    """A long time in C, where no signal handler runs and no other thread gets its turn."""
    note(log, "begun")
    return sum(range(10**11))


def ignore_sigterm(log: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    tick(log)


def whatever_is_raised(work: Callable[[], None]) -> None:
    """Do it, from its beginning again whenever something is raised in it.

    An exception may be raised between any two instructions, also while the one before it is handled: hence two guards.
    """
    while True:
        try:
            try:
                return work()
            except BaseException:
                pass
        except BaseException:
            pass


def swallow(log: str) -> None:
    """Catches everything, again and again."""

    def work() -> None:
        while True:
            note(log, "tick")
            time.sleep(0.02)

    whatever_is_raised(work)


def clean_up(log: str) -> None:
    try:
        note(log, "begun")
        time.sleep(60)
    finally:
        note(log, "cleaned up")


def print_a_lot() -> str:
    for number in range(2000):
        print("x" * 40, number)
    os.write(1, b"\x00\x00\x00\x02{}" * 50)
    sys.stderr.write("and to stderr\n")
    return "printed"


def return_a_lock() -> Any:
    return threading.Lock()


def return_nan() -> float:
    return float("nan")


def return_a_coroutine() -> Any:
    return asyncio.sleep(0)


def leave_by_exit() -> None:
    os._exit(7)


def leave_by_segfault() -> None:
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)
    ctypes.string_at(0)


def leave_by_sys_exit() -> None:
    sys.exit("enough")


def become_another_program(log: str) -> None:
    command = ticker(log, "tick")
    os.execv(command[0], command)


def fork_and_return(log: str) -> int:
    """A fork that comes back as if it were the tool itself."""
    if (pid := os.fork()) == 0:
        note(log, "fork")
        return 2
    os.waitpid(pid, 0)
    return 1


def change_surroundings(folder: str) -> None:
    os.chdir(folder)
    os.environ["LEFT_BEHIND"] = "yes"
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def look_at_surroundings() -> list[Any]:
    return [os.getcwd(), os.environ.get("LEFT_BEHIND"), os.environ.get("CHECKREIN_CALL")]


def leave_a_thread(log: str) -> int:
    threading.Thread(target=tick, args=(log,), daemon=True).start()
    return os.getpid()


# -- processes of tools


def start_everything(log: str, *, waits: bool = True, stubborn: bool = False) -> int:
    """A child, a grandchild, one in a session of its own, a daemon by double fork, one without any mark, a fork."""
    more = ("stubborn",) if stubborn else ()
    subprocess.Popen(ticker(log, "child", *more))
    nested = f"import subprocess; subprocess.Popen({ticker(log, 'grandchild', *more)!r}).wait()"
    subprocess.Popen([sys.executable, "-I", "-S", "-c", nested])
    subprocess.Popen(ticker(log, "setsid", *more), start_new_session=True)
    _daemonise(ticker(log, "daemon", *more), dict(os.environ))
    _daemonise(ticker(log, "scrubbed", *more), {})
    if os.fork() == 0:
        os.setsid()
        tick(log, "fork")
    if waits:
        time.sleep(60)
    return os.getpid()


EVERYTHING = ("child", "grandchild", "setsid", "daemon", "scrubbed", "fork")


def _daemonise(command: list[str], environment: dict[str, str]) -> None:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execve(command[0], command, environment)
        os._exit(0)
    os.wait()


def breed(log: str) -> None:
    """Children that die at once and leave a new one behind, for ever: always one step ahead of whoever looks."""
    while True:
        if os.fork() != 0:
            os._exit(0)
        os.setsid()
        note(log, "bred")
        time.sleep(0.002)


def start_breeding(log: str) -> None:
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        breed(log)
    time.sleep(60)


# -- async ones


async def add_async(a: int, b: int) -> int:
    await asyncio.sleep(0)
    return a + b


async def tick_async(log: str) -> None:
    while True:
        note(log, "tick")
        await asyncio.sleep(0.03)


async def swallow_async(log: str) -> None:
    """Catches every cancellation, and goes on at once."""
    note(log, "begun")
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            note(log, "caught")


async def clean_up_async(log: str, seconds: float) -> None:
    note(log, "begun")
    try:
        await asyncio.sleep(60)
    finally:
        await asyncio.sleep(seconds)
        note(log, "cleaned up")


async def leave_tasks(log: str, *, waits: bool) -> str:
    """Fire and forget, three ways."""

    async def forever(word: str) -> None:
        while True:
            note(log, word)
            await asyncio.sleep(0.03)

    keep = [asyncio.create_task(forever("task")), asyncio.ensure_future(forever("future"))]

    async def deeper() -> None:
        keep.append(asyncio.create_task(forever("deeper")))

    await asyncio.create_task(deeper())
    await _written(log, "task", "future", "deeper")
    await asyncio.sleep(3600 if waits else 0)
    return "returned"


async def _written(log: str, *words: str) -> None:
    """Return when each of these is in the log."""
    while not set(words) <= set(Witness(log).words()):
        await asyncio.sleep(0.01)


async def use_task_group(log: str) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(clean_up_async(log, 0.1))
        group.create_task(clean_up_async(log, 0.1))


async def start_children_async(log: str, *, waits: bool = True) -> str:
    """By plain subprocess and by asyncio, with and without an environment of their own."""
    subprocess.Popen(ticker(log, "plain"))
    subprocess.Popen(ticker(log, "own env"), env={"PATH": os.defpath}, start_new_session=True)
    await asyncio.create_subprocess_exec(*ticker(log, "exec"), env={"PATH": os.defpath})
    await asyncio.create_subprocess_shell(
        f"{sys.executable} -I -S -c '{TICKER}' {log} shell & wait", start_new_session=True
    )
    await asyncio.to_thread(subprocess.Popen, ticker(log, "thread"))
    await asyncio.get_running_loop().run_in_executor(None, subprocess.Popen, ticker(log, "executor"))
    await _written(log, *ASYNC_CHILDREN)
    await asyncio.sleep(3600 if waits else 0)
    return "returned"


ASYNC_CHILDREN = ("plain", "own env", "exec", "shell", "thread", "executor")


async def tick_in_thread(log: str) -> None:
    await asyncio.to_thread(tick, log)


# -- what a call offers


def tick_at_checkpoints(log: str) -> None:
    """Deaf to everything but checkpoints."""
    while True:
        current_call().checkpoint()
        note(log, "tick")
        time.sleep(0.03)


async def tick_at_checkpoints_async(log: str) -> None:
    while True:
        await current_call().checkpoint()
        note(log, "tick")
        await asyncio.sleep(0.03)


def describe_call(x: int) -> list[Any]:
    call = current_call()
    return [call.id, call.key, call.attempt, call.arguments, x]


async def describe_call_async(x: int) -> list[Any]:
    return describe_call(x)


def write_files(log: str, folder: str, ending: str) -> str:
    """Write one file whole, one half; then return, raise, or wait to be stopped."""
    call = current_call()
    scratch = call.scratch()
    (scratch / "notes").write_text("rough")
    with call.write(os.path.join(folder, "report.txt")) as file:
        file.write("the whole report")
    note(log, f"scratch {scratch}")
    if ending == "raise":
        raise ValueError("no")
    if ending == "wait":
        with call.write(os.path.join(folder, "half.txt")) as file:
            file.write("half")
            note(log, "half")
            for _ in range(6000):
                time.sleep(0.01)
    return "written"


async def write_files_async(log: str, folder: str, ending: str) -> str:
    if ending != "wait":
        return write_files(log, folder, ending)
    await asyncio.to_thread(write_files, log, folder, ending)
    return "written"


def settle_and(log: str, *, waits: bool) -> None:
    current_call().settle()
    note(log, "settled")
    if waits:
        time.sleep(60)


def shielded(log: str, *, seconds: float, file: str, then_sleeps: bool) -> str:
    """The section lasts until there is a file of this name."""
    with current_call().shield(seconds=seconds):
        note(log, "entered")
        while not os.path.exists(file):
            time.sleep(0.01)
        note(log, "left")
    while then_sleeps:
        time.sleep(0.01)
    return "finished"


async def shielded_async(log: str, *, seconds: float, file: str, then_sleeps: bool) -> str:
    async with current_call().shield(seconds=seconds):
        note(log, "entered")
        while not os.path.exists(file):
            await asyncio.sleep(0.01)
        note(log, "left")
    if then_sleeps:
        await asyncio.sleep(3600)
    return "finished"


async def shield_again_and_again(log: str) -> None:
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0.01)
            async with current_call().shield(seconds=0.2):
                note(log, "entered")
                await asyncio.sleep(0.05)


async def fail_async(message: str) -> None:
    raise ValueError(message)


class Unspeakable(Exception):
    """What it says cannot be read."""

    def __str__(self) -> str:
        raise RuntimeError("no")


def raise_unspeakable() -> None:
    raise Unspeakable


async def raise_unspeakable_async() -> None:
    raise Unspeakable


def return_much(length: int) -> str:
    return "x" * length


async def return_much_async(length: int) -> str:
    return "x" * length


async def return_many_async(count: int) -> list[int]:
    return [1] * count


def flee(log: str) -> None:
    """Start a daemon without environment, mark or parent, and go on."""
    if (pid := os.fork()) == 0:
        os.setsid()
        if os.fork() == 0:
            os.execve(sys.executable, ticker(log, "fled"), {})
        os._exit(0)
    os.waitpid(pid, 0)
    note(log, f"worker {os.getpid()}")
    time.sleep(600)


# -- ones that speak in the name of their worker


def _channel() -> socket.socket:
    """The worker's own line to its runtime, as code that a model has written may find it."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                found = socket.socket(fileno=os.dup(int(name)))
                if found.family == socket.AF_UNIX:
                    return found
    raise AssertionError("a worker has a line to its runtime")


def claim_and_tick(log: str, claim: dict[str, Any]) -> None:
    """Say something as if the worker had, and work on."""
    _channel().sendall(pack(claim, b"null" if "end" in claim else b""))
    tick(log)


def say_and_tick(log: str, said: str) -> None:
    """Write these bytes, in hexadecimal, to the line, and work on."""
    _channel().sendall(bytes.fromhex(said))
    tick(log)


def forge_everything_and_tick(log: str, result: bytes = b'"done"') -> None:
    """Say that the call is over, answer like the main loop, and work on."""
    line, unpacker = _channel(), Unpacker()
    line.sendall(pack({"end": "completed", "left": False, "told": False}, result))
    asked = [head for head, _ in unpacker.feed(line.recv(65536))]
    line.sendall(pack(asked[0]))
    tick(log)
