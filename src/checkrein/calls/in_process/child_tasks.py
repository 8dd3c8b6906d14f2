"""What a call has started on the event loop and in threads, so that all of it can be ended with the call.

How it is noticed that a task, a thread or a timer is made in the name of a call is in `instrumentation`.

Raising `Aborted` in a thread that runs a tool's function, from outside: the interpreter raises it when that thread next
executes a Python instruction. A thread inside a blocking system call or a long C function hears of it only afterwards.
"""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import itertools
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import ContextVar
from functools import partial
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from checkrein.asyncutil import start_in
from checkrein.calls import current as calls
from checkrein.calls.current import Aborted
from checkrein.processes import env_marks

T = TypeVar("T")

_set_exception: Final = ctypes.pythonapi.PyThreadState_SetAsyncExc


class Interruptible:
    """One run of a function that can be interrupted, in whatever thread it happens to run.

    Nothing is ever raised in that thread before the function begins or once `run` has returned: a thread of a pool goes
    on to somebody else's work. `told` is called, in the thread, when the function hears of it.
    """

    def __init__(self, told: Callable[[], None]) -> None:
        self._told = told
        self._lock = threading.Lock()
        self._thread: int | None = None
        self._is_closing = False
        self._is_stopped = False
        self.has_begun = False
        self.is_over = False
        # The interpreter makes the exception out of the class at the moment somebody can see it.
        self._error = type(
            "Aborted", (Aborted,), {"__init__": lambda error, *_: told(), "__module__": Aborted.__module__}
        )

    def run(self, function: Callable[[], T]) -> T:
        """Run the function in this thread. Raises `Aborted`, without having begun, if it was stopped before."""
        try:
            self._open()
            return function()
        finally:
            # From here on at most one more interruption can be on its way, so the second try is not interrupted.
            self.is_over = self._is_closing = True
            try:
                self._close()
            except Aborted:
                self._close()

    def stop(self) -> None:
        """Interrupt it now if it runs, and let it not begin otherwise. May be repeated: the function may have caught
        the exception and gone on."""
        with self._lock:
            self._is_stopped = True
            if self._thread is not None and not self._is_closing:
                _set_exception(ctypes.c_ulong(self._thread), ctypes.py_object(self._error))

    @property
    def is_stopped(self) -> bool:
        return self._is_stopped

    def _open(self) -> None:
        with self._lock:
            if self._is_stopped:
                self._told()
                raise Aborted("The call was stopped before this began.")
            self.has_begun = True
            self._thread = threading.get_ident()

    def _close(self) -> None:
        with self._lock:
            self._thread = None
            nothing: Any = None
            _set_exception(ctypes.c_ulong(threading.get_ident()), nothing)


class PoolWork:
    """Work in a pool of processes that is shared with others: it can be taken back only while it waits."""

    def __init__(self, future: Future[Any]) -> None:
        self._future = future

    @property
    def is_over(self) -> bool:
        return self._future.done()

    def stop(self) -> None:
        self._future.cancel()


class ChildTasks:
    """The tasks, timers and threaded work of one call that are not over yet."""

    def __init__(self, told: Callable[[], None], emptied: Callable[[], None]) -> None:
        self._told = told
        self._emptied = emptied
        self._loop = asyncio.get_running_loop()
        self._pid = os.getpid()
        # Whoever is told that all is over may begin something of its own, which is not of the call.
        self._outside = outside()
        self.tasks: set[asyncio.Task[Any]] = set()
        self.works: dict[Interruptible | PoolWork, str] = {}
        """What was handed to a pool of threads or processes, by name."""
        self.threads: dict[Interruptible, str] = {}
        """Threads that the tool has started itself. They may be meant to outlive the call: many a library has one."""
        self._timers: WeakValueDictionary[int, asyncio.TimerHandle] = WeakValueDictionary()
        self._numbers = itertools.count()
        self.is_closed = False
        """The call is over: whatever is begun in its name from now on is stopped at once."""

    def __bool__(self) -> bool:
        return bool(self.has_work or self.threads)

    @property
    def has_work(self) -> bool:
        """Whether anything goes on that a call is certainly not over without."""
        return bool(self.tasks or self.works)

    def close(self) -> None:
        """The call is over, or given up: it can begin nothing any more."""
        self.is_closed = True
        self._stop_timers()

    def is_on(self, loop: asyncio.AbstractEventLoop) -> bool:
        return loop is self._loop

    def adopt(self, task: asyncio.Task[Any]) -> None:
        if task in self.tasks:
            return
        self.tasks.add(task)
        task.add_done_callback(self._task_over, context=self._outside)
        if self.is_closed:
            task.cancel()

    def _task_over(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        self._look()

    def adopt_timer(self, timer: asyncio.TimerHandle) -> None:
        """A timer fires as long as a task of the call lives, which may be waiting for it, and not after that."""
        self._timers[next(self._numbers)] = timer
        if self.is_closed:
            self._stop_timers()

    def _stop_timers(self) -> None:
        if not self.tasks:
            for timer in list(self._timers.values()):
                timer.cancel()
            self._timers.clear()

    def work(
        self, function: Callable[[], T], *, own_thread: str | None = None
    ) -> tuple[Callable[[], T], Interruptible]:
        """The same function, to be run in a thread, and now counted among the call's work.

        With `own_thread`, its name, the thread is one that the tool has started itself.
        """
        work = Interruptible(self._told)
        if self.is_closed:
            work.stop()
        if own_thread is None:
            self.works[work] = name_of(function)
        else:
            self.threads[work] = own_thread

        def run() -> T:
            try:
                return work.run(function)
            finally:
                if os.getpid() != self._pid:
                    os._exit(0)  # a fork that comes back as if it were this process: its thread has no more to do here
                self.over_in_thread(work)

        return run, work

    def wait_for(self, future: Future[Any], function: Callable[..., Any]) -> None:
        """Count work in a pool of processes among the call's."""
        work = PoolWork(future)
        self.works[work] = name_of(function)
        future.add_done_callback(lambda _: self.over_in_thread(work))

    def over_in_thread(self, work: Interruptible | PoolWork) -> None:
        """As `work_over`, from any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.work_over, work, context=self._outside)

    def work_over(self, work: Interruptible | PoolWork) -> None:
        self.works.pop(work, None)
        if isinstance(work, Interruptible):
            self.threads.pop(work, None)
        self._look()

    def _look(self) -> None:
        if self.is_closed:
            self._stop_timers()
        if not self:
            self._emptied()

    def names(self) -> tuple[str, ...]:
        """What is not over, in words."""
        tasks = (f"task {task.get_name()}" for task in self.tasks)
        works = (
            f"{name} in a {'process pool' if isinstance(work, PoolWork) else 'thread'}"
            for work, name in self.works.items()
            if not work.is_over
        )
        threads = (f"thread {name}" for work, name in self.threads.items() if not work.is_over)
        return (*tasks, *works, *threads)


def name_of(function: Any) -> str:
    """What a person would call it: `asyncio.to_thread` wraps a function in a partial of the run of a context."""
    while isinstance(function, partial):
        is_wrapped = isinstance(getattr(function.func, "__self__", None), contextvars.Context) and function.args
        function = function.args[0] if is_wrapped else function.func
    return getattr(function, "__qualname__", None) or "a function"


current: ContextVar[ChildTasks | None] = ContextVar("checkrein_child_tasks", default=None)


def outside() -> contextvars.Context:
    """A copy of the current context that belongs to no call: for what the runtime itself starts."""
    context = contextvars.copy_context()
    context.run(current.set, None)
    context.run(env_marks.current.set, None)
    context.run(calls.enter_call, None)
    return context


start_in(outside)
