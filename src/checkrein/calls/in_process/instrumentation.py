"""How it is noticed that something is begun in the name of a call: asked of whoever begins it, at that moment.

A call in this process shares it with others. To compare what there is before a call with what there is after it would
tell *that* something was begun and not by whom; the context in which it is begun tells both, and costs next to nothing.
So these are taught to look at the context, and change nothing outside a call:

  the event loop       tasks, however they are made (also by `asyncio.Task` itself, and with a context of their own),
                       and timers (`call_later`, `call_at`)
  pools                `concurrent.futures` and anyio's threads: the work counts, not the thread, which is the pool's
  threads              `threading.Thread`, `_thread.start_new_thread`
  processes            in `processes.env_marks`

Not seen: threads and processes that a C library starts by itself, and `loop.add_reader`.
"""

from __future__ import annotations

import _thread
import asyncio
import contextvars
import socket
import threading
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial, wraps
from typing import Any, Final
from weakref import WeakKeyDictionary

from anyio._backends._asyncio import AsyncIOBackend

from checkrein.calls import current as calls
from checkrein.calls.current import Aborted
from checkrein.calls.in_process.child_tasks import ChildTasks, Interruptible, current, name_of, outside
from checkrein.processes import env_marks

_HARMLESS: Final = (socket.getaddrinfo, socket.getnameinfo)
"""What the event loop itself does in threads. It changes nothing, and a stop need not wait for it."""


def install(loop: asyncio.AbstractEventLoop) -> None:
    """Teach the loop, and this process. Doing it twice changes nothing; if somebody has set another task factory since,
    ours goes in front of it again."""
    before = loop.get_task_factory()
    if not isinstance(before, _Factory):
        loop.set_task_factory(_Factory(before))
    if not hasattr(loop.call_at, "_checkrein"):
        with suppress(AttributeError):  # a loop that cannot be taught: its timers are not seen
            loop.call_at = _timed(loop, loop.call_at)  # type: ignore[method-assign]
            if type(loop).call_later is not asyncio.BaseEventLoop.call_later:  # that one calls `call_at`
                loop.call_later = _timed(loop, loop.call_later)  # type: ignore[method-assign]
    _teach_process()


def remove(loop: asyncio.AbstractEventLoop) -> None:
    """Take back what `install` did to the loop, unless somebody has built on it since."""
    factory = loop.get_task_factory()
    if isinstance(factory, _Factory):
        loop.set_task_factory(factory.before)
    for name in ("call_at", "call_later"):
        if hasattr(getattr(loop, name), "_checkrein"):
            delattr(loop, name)


_is_taught = False


def _teach_process() -> None:
    """For good: outside a call nothing changes by it."""
    global _is_taught
    env_marks.install_everywhere()  # each time: `env_marks.remove` may have taken it back
    if _is_taught:
        return
    _is_taught = True
    _watch_bare_tasks()
    ThreadPoolExecutor.submit = _submitted_to_threads(ThreadPoolExecutor.submit)  # type: ignore[method-assign]
    ThreadPoolExecutor.shutdown = _shut_down(ThreadPoolExecutor.shutdown)  # type: ignore[method-assign]
    _teach_process_pools()
    _teach_anyio()
    threading.Thread.start = _started(threading.Thread.start)  # type: ignore[method-assign,assignment]
    _thread.start_new_thread = _started_raw(_thread.start_new_thread)


# -- tasks and timers

_making = threading.local()
"""`by_factory`: the task that is just being made goes through a factory, which knows its context."""


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
        children = _adopting(options.get("context"))
        outer, _making.by_factory = getattr(_making, "by_factory", False), True
        try:
            if self.before is None:
                task: Any = asyncio.Task(coroutine, loop=loop, **options)
            else:
                task = self.before(loop, coroutine, **options)
        finally:
            _making.by_factory = outer
        if children is not None and children.is_on(loop):  # a loop in a thread of the call ends with that thread
            children.adopt(task)
        return task


def _adopting(context: contextvars.Context | None) -> ChildTasks | None:
    """To whom something belongs that is begun here in this context; None: in the current one."""
    if context is None:
        return current.get()
    if current in context:
        return context[current]
    children = current.get()
    if children is not None and not len(context):
        # An empty one was made just now: what is begun in it must be seen to belong to the call as well.
        context.run(_enter, children, env_marks.current.get(), calls.found())
    return children


def _enter(children: ChildTasks, mark: env_marks.Mark | None, call: calls.Call | None) -> None:
    current.set(children)
    env_marks.current.set(mark)
    calls.enter_call(call)


def _watch_bare_tasks() -> None:
    """A task that is made without its loop is seen when asyncio enters it among all tasks, which the interpreter does
    by the set's own `add`."""
    every: Any = getattr(asyncio.tasks, "_all_tasks", None) or getattr(asyncio.tasks, "_scheduled_tasks", None)
    if every is None:
        return
    original = every.add

    def add(task: asyncio.Task[Any]) -> None:
        original(task)
        children = None if getattr(_making, "by_factory", False) else current.get()
        if children is not None and children.is_on(task.get_loop()):
            children.adopt(task)

    every.add = add


def _timed(loop: asyncio.AbstractEventLoop, original: Any) -> Any:
    @wraps(original)
    def call(*args: Any, context: contextvars.Context | None = None) -> asyncio.TimerHandle:
        children = _adopting(context)
        timer: asyncio.TimerHandle = original(*args, context=context)
        if children is not None and children.is_on(loop):
            children.adopt_timer(timer)
        return timer

    call._checkrein = True  # type: ignore[attr-defined]
    return call


# -- pools


def _submitted_to_threads(original: Any) -> Any:
    @wraps(original)
    def submit(self: ThreadPoolExecutor, function: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        children = current.get()
        if children is None or function in _HARMLESS:
            return original(self, function, *args, **options)  # type: ignore[no-any-return]
        run, work = children.work(partial(function, *args, **options))
        future: Future[Any] = original(self, contextvars.copy_context().run, run)
        future.add_done_callback(partial(_never_begun, children, work))
        return future

    return submit


def _shut_down(original: Any) -> Any:
    @wraps(original)
    def shutdown(self: ThreadPoolExecutor, wait: bool = True, *, cancel_futures: bool = False) -> None:
        children = current.get()
        if wait and children is not None and _is_being_cancelled():
            # `with ThreadPoolExecutor()` in a tool that is stopped: to wait here would keep the event loop, and with it
            # all that could stop the threads. The call itself is not over before they are.
            for work in children.works:
                work.stop()
            wait, cancel_futures = False, True
        original(self, wait=wait, cancel_futures=cancel_futures)

    return shutdown


def _is_being_cancelled() -> bool:
    """Whether this is called by a task that somebody has cancelled."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # in a thread
        return False
    return task is not None and task.cancelling() > 0


def _never_begun(children: ChildTasks, work: Interruptible, future: Future[Any]) -> None:
    """A future that was cancelled while its work still waited for a thread: nobody will run it."""
    if future.cancelled() and not work.has_begun:
        work.stop()
        children.over_in_thread(work)


_pools: Final[WeakKeyDictionary[Any, ChildTasks | None]] = WeakKeyDictionary()
"""In whose name a pool of processes was made."""


def _teach_process_pools() -> None:
    from concurrent.futures.process import ProcessPoolExecutor as Pool

    begin: Any = Pool.__init__
    submit: Any = Pool.submit

    @wraps(begin)
    def init(self: Any, *args: Any, **options: Any) -> None:
        begin(self, *args, **options)
        _pools[self] = current.get()

    @wraps(submit)
    def submitted(self: Any, function: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        children = current.get()
        if children is None:
            return submit(self, function, *args, **options)  # type: ignore[no-any-return]
        # The processes of a call's own pool are the call's and end with it; those of a shared one are nobody's.
        is_own = _pools.get(self) is children
        made = partial(submit, self, function, *args, **options)
        future: Future[Any] = made() if is_own else outside().run(made)
        children.wait_for(future, function)
        return future

    Pool.__init__, Pool.submit = init, submitted  # type: ignore[method-assign]


def _teach_anyio() -> None:
    original: Any = AsyncIOBackend.run_sync_in_worker_thread.__func__  # type: ignore[attr-defined]

    async def run_sync(cls: Any, function: Any, args: Any, *more: Any, **options: Any) -> Any:
        children = current.get()
        if children is None:
            return await original(cls, function, args, *more, **options)
        run, work = children.work(partial(function, *args))
        try:
            return await original(cls, run, (), *more, **options)
        finally:
            if not work.has_begun:
                work.stop()
                children.work_over(work)

    AsyncIOBackend.run_sync_in_worker_thread = classmethod(run_sync)  # type: ignore[assignment,method-assign]


# -- threads


def _started(original: Callable[[threading.Thread], None]) -> Callable[[threading.Thread], None]:
    @wraps(original)
    def start(self: threading.Thread) -> None:
        children = current.get()
        if children is None or _is_of_a_pool(self):
            return original(self)
        _check_open(children)
        run, work = children.work(self.run, own_thread=self.name)
        self.run = partial(_run_thread, contextvars.copy_context(), run, work)  # type: ignore[method-assign]
        try:
            original(self)
        except BaseException:
            children.work_over(work)
            raise

    return start


def _started_raw(original: Any) -> Any:
    @wraps(original)
    def start_new_thread(function: Callable[..., Any], args: Any, *more: Any) -> int:
        children = current.get()
        if children is None:
            return original(function, args, *more)  # type: ignore[no-any-return]
        _check_open(children)
        run, work = children.work(partial(function, *args, **(more[0] if more else {})), own_thread=name_of(function))
        return original(_run_thread, (contextvars.copy_context(), run, work))  # type: ignore[no-any-return]

    return start_new_thread


def _check_open(children: ChildTasks) -> None:
    if children.is_closed:
        raise PermissionError("The call is over and may start no more threads.")


def _run_thread(context: contextvars.Context, run: Callable[[], Any], work: Interruptible) -> None:
    try:
        context.run(run)
    except Aborted:
        if not work.is_stopped:
            raise


def _is_of_a_pool(thread: threading.Thread) -> bool:
    """Whether it serves a pool, or asyncio itself: what it does for a call is counted as that call's work."""
    if type(thread).__module__ == "multiprocessing.dummy":  # a pool of threads whose work nobody counts
        return False
    if _is_theirs(type(thread).__module__):
        return True
    target = getattr(thread, "_target", None)
    # Only what is private to them: `asyncio.run` or a loop's `run_forever` in a thread is the tool's own work.
    is_private = getattr(target, "__name__", "").startswith("_")
    return is_private and _is_theirs(getattr(target, "__module__", None) or "")


def _is_theirs(module: str) -> bool:
    return module.split(".")[0] in _POOLS or module.startswith("concurrent.futures")


_POOLS: Final = frozenset({"asyncio", "multiprocessing", "anyio"})
