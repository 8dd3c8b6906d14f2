"""Async tools that begin something in every way there is, and what they begin. Each writes its own log."""

from __future__ import annotations

import _thread
import asyncio
import multiprocessing
import os
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextvars import Context

import anyio

from tests.support.tools import tick, ticker, whatever_is_raised
from tests.support.witness import Witness, note

for_ever = 600.0


def swallow(log: str, end: str) -> None:
    """Goes on whatever is raised in it, until there is a file named `end`."""

    def work() -> None:
        if not Witness(log).lines("begun"):
            note(log, "begun")
        while not os.path.exists(end):
            time.sleep(0.02)
            note(log, "tick")

    whatever_is_raised(work)


# -- threads: each tool lets `function` run in one


async def by_anyio(function, *args):
    await anyio.to_thread.run_sync(function, *args)


async def by_anyio_that_abandons(function, *args):
    await anyio.to_thread.run_sync(function, *args, abandon_on_cancel=True)


async def by_pool(function, *args):
    with_pool = ThreadPoolExecutor(1)
    try:
        await asyncio.wrap_future(with_pool.submit(function, *args))
    finally:
        with_pool.shutdown(wait=False)


async def by_pool_that_waits(function, *args):
    """As most people write it: it waits for its threads when it is left."""
    with ThreadPoolExecutor(1) as pool:
        await asyncio.wrap_future(pool.submit(function, *args))


async def by_default_executor(function, *args):
    await asyncio.get_running_loop().run_in_executor(None, function, *args)


async def by_thread(function, *args):
    threading.Thread(target=function, args=args, name="mine", daemon=True).start()
    await asyncio.sleep(for_ever)


async def by_raw_thread(function, *args):
    _thread.start_new_thread(function, args)
    await asyncio.sleep(for_ever)


async def by_loop_in_a_thread(function, *args):
    """With an event loop of its own."""

    async def work() -> None:
        function(*args)

    threading.Thread(target=asyncio.run, args=(work(),), name="mine", daemon=True).start()
    await asyncio.sleep(for_ever)


THREADS = [
    by_anyio,
    by_anyio_that_abandons,
    by_pool,
    by_pool_that_waits,
    by_default_executor,
    by_thread,
    by_raw_thread,
    by_loop_in_a_thread,
]


# -- processes: each tool has `tick` written to the log by one


async def by_pool_of_forks(log):
    pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork"))
    await asyncio.get_running_loop().run_in_executor(pool, tick, log)


async def by_pool_of_spawned(log):
    pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
    await asyncio.get_running_loop().run_in_executor(pool, tick, log)


async def by_multiprocessing(log):
    multiprocessing.get_context("fork").Process(target=tick, args=(log,)).start()
    await asyncio.sleep(for_ever)


async def by_posix_spawn(log):
    os.posix_spawn(sys.executable, ticker(log, "tick"), {})
    await asyncio.sleep(for_ever)


async def by_system(log):
    await asyncio.to_thread(os.system, f"env -i setsid {_shell(log)} & true")
    await asyncio.sleep(for_ever)


async def by_nohup_setsid(log):
    shell = await asyncio.create_subprocess_shell(f"(env -i nohup setsid {_shell(log)} >/dev/null 2>&1 &)")
    await shell.wait()
    await asyncio.sleep(for_ever)


async def without_any_mark(log, word="tick"):
    """Leaves environment, limits, session and parent: nothing that was given to it leads back here."""
    flee = """ulimit -R unlimited; env -i setsid bash -c '("$@" &)' bash "$@" """
    shell = await asyncio.create_subprocess_exec("bash", "-c", flee, "bash", *ticker(log, word))
    await shell.wait()
    await asyncio.sleep(for_ever)


async def by_double_fork(log):
    """As a daemon begins, and with a clean environment."""
    if (pid := os.fork()) == 0:
        os.setsid()
        if os.fork() == 0:
            os.execve(sys.executable, ticker(log, "tick"), {})
        os._exit(0)
    os.waitpid(pid, 0)  # noqa: ASYNC222
    await asyncio.sleep(for_ever)


async def by_fork(log):
    if os.fork() == 0:
        tick(log)
    await asyncio.sleep(for_ever)


CHAIN = """
import os, sys, time
log = sys.argv[1]
while True:
    with open(log, "a") as file:
        file.write(f"{time.time()} {os.getpid()} tick\\n")
    time.sleep(0.004)
    if os.fork():
        os._exit(0)
"""


async def by_chain(log):
    """Lives for 4 ms, and is then another process."""
    await asyncio.create_subprocess_exec(sys.executable, "-I", "-S", "-c", CHAIN, log)
    await asyncio.sleep(for_ever)


PROCESSES = [
    by_pool_of_forks,
    by_pool_of_spawned,
    by_multiprocessing,
    by_posix_spawn,
    by_system,
    by_nohup_setsid,
    by_double_fork,
    by_fork,
    by_chain,
]


def _shell(log: str) -> str:
    import shlex

    return shlex.join(ticker(log, "tick"))


# -- the event loop


async def ticking(log: str) -> None:
    while True:
        note(log, "tick")
        await asyncio.sleep(0.02)


kept: list[object] = []


async def by_timer(log):
    loop = asyncio.get_running_loop()

    def fire() -> None:
        note(log, "tick")
        loop.call_later(0.02, fire)

    loop.call_later(0.02, fire)
    await asyncio.sleep(for_ever)


async def by_timer_in_an_empty_context(log):
    loop = asyncio.get_running_loop()

    def fire() -> None:
        note(log, "tick")
        loop.call_later(0.02, fire, context=Context())

    loop.call_later(0.02, fire, context=Context())
    await asyncio.sleep(for_ever)


async def by_bare_task(log):
    kept.append(asyncio.Task(ticking(log)))
    await asyncio.sleep(for_ever)


async def by_empty_context(log):
    kept.append(asyncio.get_running_loop().create_task(ticking(log), context=Context()))
    await asyncio.sleep(for_ever)


async def by_process_of_a_task_in_an_empty_context(log):
    async def begin() -> None:
        await asyncio.create_subprocess_exec(*ticker(log, "tick"))

    await asyncio.get_running_loop().create_task(begin(), context=Context())
    await asyncio.sleep(for_ever)


ON_LOOP = [
    by_timer,
    by_timer_in_an_empty_context,
    by_bare_task,
    by_empty_context,
    by_process_of_a_task_in_an_empty_context,
]
