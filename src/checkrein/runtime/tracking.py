"""What a call starts on the event loop, so that all of it can be ended with the call.

An event loop is taught two things: a task created in the context of a call belongs to that call (`asyncio.create_task`,
`ensure_future`, `gather`, task groups of asyncio and anyio), and so does work handed to a thread with `run_in_executor`
or `asyncio.to_thread`. Outside a call nothing changes.

Not seen: timers (`loop.call_later`), threads a tool starts by itself, and tasks made by calling `asyncio.Task`.
"""

from __future__ import annotations

import asyncio
import contextvars
import socket
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from typing import Any, Final, TypeVar

from checkrein.runtime import call as calls
from checkrein.runtime import marking
from checkrein.runtime.interrupt import Interruptible

T = TypeVar("T")

_HARMLESS: Final = (socket.getaddrinfo, socket.getnameinfo)
"""What the event loop itself does in threads. It changes nothing, and a stop need not wait for it."""


class Brood:
    """The tasks and the threaded work of one call that are not over yet."""

    def __init__(self, told: Callable[[], None], emptied: Callable[[], None]) -> None:
        self._told = told
        self._emptied = emptied
        self._loop = asyncio.get_running_loop()
        self.tasks: set[asyncio.Task[Any]] = set()
        self.works: dict[Interruptible, str] = {}
        self.is_closed = False
        """The call is over: whatever is begun in its name from now on is stopped at once."""

    def __bool__(self) -> bool:
        return bool(self.tasks or self.works)

    def adopt(self, task: asyncio.Task[Any]) -> None:
        self.tasks.add(task)
        task.add_done_callback(self._task_over)
        if self.is_closed:
            task.cancel()

    def _task_over(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        self._look()

    def work(self, function: Callable[[], T]) -> tuple[Callable[[], T], Interruptible]:
        """The same function, to be run in a thread, and now counted among the call's work."""
        work = Interruptible(self._told)
        if self.is_closed:
            work.stop()
        self.works[work] = _name(function)

        def run() -> T:
            try:
                return work.run(function)
            finally:
                if not self._loop.is_closed():
                    self._loop.call_soon_threadsafe(self.work_over, work)

        return run, work

    def work_over(self, work: Interruptible) -> None:
        self.works.pop(work, None)
        self._look()

    def _look(self) -> None:
        if not self:
            self._emptied()

    def names(self) -> tuple[str, ...]:
        """What is not over, in words."""
        tasks = (f"task {task.get_name()}" for task in self.tasks)
        works = (f"{name} in a thread" for name in self.works.values())
        return (*tasks, *works)


def _name(function: Any) -> str:
    """What a person would call it: `asyncio.to_thread` wraps a function in a partial of the run of a context."""
    while isinstance(function, partial):
        is_wrapped = isinstance(getattr(function.func, "__self__", None), contextvars.Context) and function.args
        function = function.args[0] if is_wrapped else function.func
    return getattr(function, "__qualname__", None) or "a function"


current: ContextVar[Brood | None] = ContextVar("checkrein_brood", default=None)


def outside() -> contextvars.Context:
    """A copy of the current context that belongs to no call: for what the runtime itself starts."""
    context = contextvars.copy_context()
    context.run(current.set, None)
    context.run(marking.current.set, None)
    context.run(calls.enter_call, None)
    return context


class _Factory:
    """A task factory that adopts, in front of the one that was there before."""

    def __init__(self, before: Any) -> None:
        self.before = before

    def __call__(
        self,
        loop: asyncio.AbstractEventLoop,
        coroutine: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
        **options: Any,
    ) -> Any:
        if self.before is None:
            task: Any = asyncio.Task(coroutine, loop=loop, **options)
        else:
            task = self.before(loop, coroutine, **options)
        context = options.get("context")
        brood = current.get() if context is None else context.get(current)
        if brood is not None:
            brood.adopt(task)
        return task


def install(loop: asyncio.AbstractEventLoop) -> None:
    """Teach the loop. Doing it twice changes nothing; if somebody has set another task factory since, ours goes in
    front of it again."""
    before = loop.get_task_factory()
    if not isinstance(before, _Factory):
        loop.set_task_factory(_Factory(before))
    if not hasattr(loop.run_in_executor, "_checkrein"):
        with suppress(AttributeError):  # a loop that cannot be taught: its threads are not seen
            loop.run_in_executor = _adopting(loop.run_in_executor)  # type: ignore[method-assign]


def remove(loop: asyncio.AbstractEventLoop) -> None:
    """Take `install` back, unless somebody has built on it since."""
    factory = loop.get_task_factory()
    if isinstance(factory, _Factory):
        loop.set_task_factory(factory.before)
    if hasattr(loop.run_in_executor, "_checkrein"):
        del loop.run_in_executor


def _adopting(original: Any) -> Any:
    def run_in_executor(executor: Executor | None, function: Callable[..., Any], *args: Any) -> Any:
        brood = current.get()
        # A pool of processes gets its function by pickle, and a function of ours would not survive that.
        in_thread = executor is None or isinstance(executor, ThreadPoolExecutor)
        if brood is None or not in_thread or function in _HARMLESS:
            return original(executor, function, *args)
        run, work = brood.work(partial(function, *args))
        future = original(executor, contextvars.copy_context().run, run)
        future.add_done_callback(partial(_never_begun, brood, work))
        return future

    run_in_executor._checkrein = True  # type: ignore[attr-defined]
    return run_in_executor


def _never_begun(brood: Brood, work: Interruptible, future: asyncio.Future[Any]) -> None:
    """A future that was cancelled while its work still waited for a thread: nobody will run it."""
    if future.cancelled() and not work.has_begun:
        work.stop()
        brood.work_over(work)
