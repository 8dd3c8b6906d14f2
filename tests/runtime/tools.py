"""Tools as authors write them: some behave, some resist. Each writes its own log."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

from checkrein.runtime.call import current_call
from tests.runtime.witness import note

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


def swallow(log: str) -> None:
    """Catches everything, again and again."""
    note(log, "begun")
    while True:
        try:
            time.sleep(0.02)
            note(log, "tick")
        except BaseException:
            note(log, "caught")


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
    if os.fork() == 0:
        note(log, "fork")
        return 2
    time.sleep(0.2)
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


async def swallow_for(log: str, seconds: float) -> str:
    end = time.monotonic() + seconds
    note(log, "begun")
    while time.monotonic() < end:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0.05)
    note(log, "over")
    return "late"


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
    await asyncio.sleep(60 if waits else 0.1)
    return "returned"


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
    await asyncio.sleep(60 if waits else 0.6)
    return "returned"


ASYNC_CHILDREN = ("plain", "own env", "exec", "shell", "thread", "executor")


async def tick_in_thread(log: str) -> None:
    await asyncio.to_thread(tick, log)


async def sleep_in_thread(log: str, seconds: float) -> None:
    note(log, "begun")
    await asyncio.to_thread(time.sleep, seconds)


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


def shielded(log: str, *, seconds: float, lasts: float, then_sleeps: bool) -> str:
    with current_call().shield(seconds=seconds):
        note(log, "entered")
        end = time.monotonic() + lasts
        while time.monotonic() < end:
            time.sleep(0.01)
        note(log, "left")
    while then_sleeps:
        time.sleep(0.01)
    return "finished"


async def shielded_async(log: str, *, seconds: float, lasts: float, then_sleeps: bool) -> str:
    async with current_call().shield(seconds=seconds):
        note(log, "entered")
        await asyncio.sleep(lasts)
        note(log, "left")
    if then_sleeps:
        await asyncio.sleep(60)
    return "finished"


async def shield_again_and_again(log: str) -> None:
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0.01)
            async with current_call().shield(seconds=0.2):
                note(log, "entered")
                await asyncio.sleep(0.05)
