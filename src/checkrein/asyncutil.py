"""Starting what belongs to no call, and finishing what was begun, also when whoever waits for it is cancelled.

A shield of anyio holds against anyio's own cancellations only. `Task.cancel`, which asyncio's timeouts and task groups
and `asyncio.run` use, goes right through it; and a thread whose task was cancelled goes on, and its result is lost.

Something that comes once, and that many may wait for.

Whether an event loop is being torn down: `asyncio.run` then cancels every task on it, also those of runs that nobody
has stopped.

Killing a process that asyncio waits for.

Having no garbage collected while something urgent is done.

A fork of a process with an event loop does nothing of what that process does. A tool that calls `os.fork` in the
driver's process makes a copy of the driver: of its event loop with all that is ready to run, and of its signal
handlers, which write into a pipe that both share. So in every fork signals are as in a new program, and a copy that
returns to the event loop instead of leaving ends there, before it does anything.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar
from weakref import WeakSet

from anyio import CancelScope

T = TypeVar("T")

_outside: Callable[[], contextvars.Context] = contextvars.copy_context


def start_in(context: Callable[[], contextvars.Context]) -> None:
    """Where `start` starts things: said once, by whoever ties tasks to calls."""
    global _outside
    _outside = context


def outside() -> contextvars.Context:
    """A context that belongs to no call."""
    return _outside()


def start(work: Coroutine[Any, Any, T], *, name: str | None = None) -> asyncio.Task[T]:
    """Begin `work` in a task of its own that belongs to no call, although a tool's code may have led here.

    What the runtime starts is started with this: a task that belongs to a call is ended with the call.
    """
    return asyncio.get_running_loop().create_task(work, name=name, context=_outside())


def postpone_collection(seconds: float) -> None:
    """Have no garbage collected for so long, where it is at all: with a thousand runs in memory it takes a second, and
    nothing is stopped meanwhile. Afterwards it is as before."""
    if gc.isenabled():
        again = threading.Timer(seconds, gc.enable)  # by no event loop: it may end first
        again.daemon = True
        with suppress(RuntimeError):  # no thread is to be had, as when processes fill the machine: collected as ever
            again.start()
            gc.disable()


class TaskSet(set[asyncio.Task[Any]]):
    """The tasks that an owner has begun and that have not ended yet. They belong to no call."""

    def start(self, work: Coroutine[Any, Any, Any]) -> None:
        task = start(work)
        self.add(task)
        task.add_done_callback(self.discard)

    async def cancel(self) -> None:
        """Returns when all of them have ended."""
        tasks = list(self)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def run_to_completion(
    work: Coroutine[Any, Any, T], *, take_back: Callable[[T], Coroutine[Any, Any, object]] | None = None
) -> T:
    """Do `work` to its end, in a task of its own. A cancellation that comes meanwhile is raised afterwards.

    `take_back` is then given what `work` returned, since nobody else will be. For what ends by itself, and soon.
    """
    task = start(work)
    cancelled = await _over(task)
    if cancelled is None:
        return task.result()
    if not task.cancelled() and task.exception() is None and take_back is not None:
        await _over(start(take_back(task.result())))
    raise cancelled


async def _over(task: asyncio.Task[Any]) -> asyncio.CancelledError | None:
    """Wait until `task` is over; return the latest cancellation that came meanwhile."""
    cancelled: asyncio.CancelledError | None = None
    with CancelScope(shield=True):
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError as error:
                cancelled = error
    return cancelled


class Once(Generic[T]):
    """A value that is given once and never changes. Cancelling somebody who waits for it disturbs nobody else.

    A future would be cancelled with the first who waits, and a shield around it costs a turn of the event loop.
    """

    def __init__(self) -> None:
        self._given: list[T] = []
        self._waiting: list[asyncio.Future[None]] = []

    def done(self) -> bool:
        return bool(self._given)

    def set(self, value: T) -> None:
        """Give it, unless it was given already."""
        if not self._given:
            self._given.append(value)
            waiting, self._waiting = self._waiting, []
            for waiter in waiting:
                if not waiter.done():
                    waiter.set_result(None)

    async def get(self) -> T:
        """Return it as soon as it is there."""
        if not self._given:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            await waiter
        return self._given[0]


_torn_down: Final[WeakSet[asyncio.AbstractEventLoop]] = WeakSet()


def is_torn_down(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether everything on this loop is being cancelled because it ends: nobody has asked for that, and nothing of it
    is to be recorded. Known only from `watch_teardown` on."""
    return loop in _torn_down


def watch_teardown() -> None:
    """Have `is_torn_down` know. Doing it twice changes nothing."""
    runners: Any = asyncio.runners
    original = runners._cancel_all_tasks
    if getattr(original, "_checkrein", False):
        return

    def cancel_all_tasks(loop: asyncio.AbstractEventLoop) -> None:
        _torn_down.add(loop)
        original(loop)

    cancel_all_tasks._checkrein = True  # type: ignore[attr-defined]
    runners._cancel_all_tasks = cancel_all_tasks


def abandon(task: asyncio.Task[Any]) -> None:
    """Have nobody wait for a task that may never end: `asyncio.run` waits for every one it knows."""
    asyncio._unregister_task(task)
    task._log_destroy_pending = False  # type: ignore[attr-defined]


async def kill(process: asyncio.subprocess.Process) -> None:
    """Kill it, unless it has ended by itself, and return when it is gone and its `returncode` is known.

    Not by `process.kill()`: that looks first whether the process has ended, and if it has, takes its exit away from
    asyncio, which then complains on stderr and reports 255.
    """
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
    await process.wait()


_guarded_loops: Final[WeakSet[asyncio.AbstractEventLoop]] = WeakSet()
_is_fork_guard_installed = False


def guard_forks(loop: asyncio.AbstractEventLoop) -> None:
    """From now on no fork of this process runs anything of this loop. Doing it twice changes nothing."""
    global _is_fork_guard_installed
    _guarded_loops.add(loop)
    if not _is_fork_guard_installed and hasattr(os, "register_at_fork"):
        _is_fork_guard_installed = True
        os.register_at_fork(before=_block_signals, after_in_parent=_unblock_signals, after_in_child=_begin_fork)


_blocked = threading.local()


def _block_signals() -> None:
    """One that comes to a fork at once must find it ready: until then it would be taken for one to this process."""
    _blocked.before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


def _unblock_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _blocked.before)


def _begin_fork() -> None:
    _forget_signals()
    _unblock_signals()
    _end_at_loop()


def _forget_signals() -> None:
    with suppress(ValueError):  # not of a thread that may
        signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if getattr(signal.getsignal(number), "__module__", None) == "asyncio.unix_events":  # what a loop listens to
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def _end_at_loop() -> None:
    for loop in _guarded_loops:
        # What is ready goes from the left; one that is put there is the next, also in the middle of a turn.
        ready: deque[Any] | None = getattr(loop, "_ready", None)
        if ready is not None and not loop.is_closed():
            ready.appendleft(asyncio.Handle(os._exit, (0,), loop))
