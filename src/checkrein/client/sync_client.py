"""`Client`: the same as `AsyncClient`, for a program that is not async.

Its requests are made in an event loop in a thread of its own.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import suppress
from functools import wraps
from typing import Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar, Unpack

from checkrein.client.async_client import AsyncClient, ClientOptions
from checkrein.client.async_run import AsyncRunHandle
from checkrein.errors import MisuseError

_log = logging.getLogger(__name__)

CLOSE_SECONDS: Final = 5.0

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for callers in other threads. It begins with the first, and ends with `close` or the program."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` returns or raises. Whoever interrupts the wait, with Ctrl-C for instance, ends the work too."""
        try:
            loop = self._begun()
        except BaseException:
            work.close()
            raise
        future = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def iterate(self, items: AsyncGenerator[T, None]) -> Generator[T, None, None]:
        """The items of an asynchronous iterator, which is closed when nobody reads any more."""

        # A read that was interrupted may need a moment to end; until then the iterator cannot be closed.
        reading = asyncio.Lock()

        async def following() -> tuple[T, ...]:
            async with reading:
                with suppress(StopAsyncIteration):
                    return (await anext(items),)
                return ()

        async def close() -> None:
            async with reading:
                await items.aclose()

        try:
            while item := self.run(following()):
                yield item[0]
        finally:
            if not self._is_closed:
                self.run(close())

    def close(self, last: Coroutine[Any, Any, None] | None = None) -> None:
        """End the thread, after `last`. Closing it twice does no harm."""
        with self._lock:
            loop, thread, self._is_closed = self._loop, self._thread, True
            self._loop = self._thread = None
        if loop is None or thread is None:
            if last is not None:
                last.close()
            return
        if last is not None:
            try:
                asyncio.run_coroutine_threadsafe(last, loop).result(CLOSE_SECONDS)
            except Exception as error:  # it lets connections go, which the end of the loop does as well
                _log.debug("a client was not closed in order: %s", type(error).__name__)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()

    def _begun(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._is_closed:
                raise MisuseError("This client is closed; make another one.")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_run, args=(self._loop,), name="checkrein-client", daemon=True)
                self._thread.start()
            return self._loop


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        asyncio.set_event_loop(None)
        loop.close()


A = TypeVar("A")
P = ParamSpec("P")
R = TypeVar("R")


class _Twin(Generic[A]):
    """Does in `_loop` what `_async` does."""

    _async: A
    _loop: LoopThread


def _waits(method: Callable[Concatenate[A, P], Coroutine[Any, Any, R]]) -> Callable[Concatenate[_Twin[A], P], R]:
    """The same method for a program that is not async: it returns, or raises, when `method` does."""

    @wraps(method)
    def wait(self: _Twin[A], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._loop.run(method(self._async, *args, **kwargs))

    return wait


def _iterates(
    method: Callable[Concatenate[A, P], AsyncGenerator[R, None]],
) -> Callable[Concatenate[_Twin[A], P], Generator[R, None, None]]:
    """The same method for a program that is not async: what it gives is closed when nobody reads any more."""

    @wraps(method)
    def iterate(self: _Twin[A], /, *args: P.args, **kwargs: P.kwargs) -> Generator[R, None, None]:
        return self._loop.iterate(method(self._async, *args, **kwargs))

    return iterate


class RunHandle(_Twin[AsyncRunHandle]):
    """A handle on one run of a server. Letting it go changes nothing: the run goes on."""

    def __init__(self, run: AsyncRunHandle, loop: LoopThread) -> None:
        self._async = run
        self._loop = loop
        self.id = run.id

    def __repr__(self) -> str:
        return f"<RunHandle {self.id}>"

    def fork(self, *, at: int, instruction: str | None = None) -> RunHandle:
        """A new run that goes on after the finished step `at` of this one, as `Run.fork` has it."""
        return RunHandle(self._loop.run(self._async.fork(at=at, instruction=instruction)), self._loop)

    view = _waits(AsyncRunHandle.view)
    call = _waits(AsyncRunHandle.call)
    file = _waits(AsyncRunHandle.file)
    evidence = _waits(AsyncRunHandle.evidence)
    story = _waits(AsyncRunHandle.story)
    events = _iterates(AsyncRunHandle.events)
    live = _iterates(AsyncRunHandle.live)
    result = _waits(AsyncRunHandle.result)

    pause = _waits(AsyncRunHandle.pause)
    resume = _waits(AsyncRunHandle.resume)
    redirect = _waits(AsyncRunHandle.redirect)
    cancel = _waits(AsyncRunHandle.cancel)
    ask = _waits(AsyncRunHandle.ask)
    add_reason = _waits(AsyncRunHandle.add_reason)
    approve = _waits(AsyncRunHandle.approve)
    deny = _waits(AsyncRunHandle.deny)
    resolve = _waits(AsyncRunHandle.resolve)
    abort = _waits(AsyncRunHandle.abort)
    retry_undo = _waits(AsyncRunHandle.retry_undo)
    check = _waits(AsyncRunHandle.check)


def _starts(
    method: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, AsyncRunHandle]],
) -> Callable[Concatenate[_Twin[AsyncClient], P], RunHandle]:
    """The same method for a program that is not async: so is the handle that it gives."""

    @wraps(method)
    def start(self: _Twin[AsyncClient], /, *args: P.args, **kwargs: P.kwargs) -> RunHandle:
        return RunHandle(self._loop.run(method(self._async, *args, **kwargs)), self._loop)

    return start


class Client(_Twin[AsyncClient]):
    """A Checkrein server. Use it as a context manager, or close it with `close`. Threads may share it."""

    def __init__(self, url: str, token: str | None = None, **options: Unpack[ClientOptions]) -> None:
        """As an `AsyncClient` is made: with `headers`, `timeout`, `retries` and `away_seconds`."""
        self._async = AsyncClient(url, token, **options)
        self._loop = LoopThread()
        self.url = self._async.url

    def __repr__(self) -> str:
        return f"<Client {self.url}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection. Runs are not touched."""
        self._loop.close(self._async.aclose())

    def run(self, run: str) -> RunHandle:
        """A handle on a run. Nothing is asked yet."""
        return RunHandle(self._async.run(run), self._loop)

    def page(self, run: str) -> str:
        """Where a person looks at a run."""
        return self._async.page(run)

    start = _starts(AsyncClient.start)
    health = _waits(AsyncClient.health)
    readiness = _waits(AsyncClient.readiness)
    whoami = _waits(AsyncClient.whoami)
    agents = _waits(AsyncClient.agents)
    metrics = _waits(AsyncClient.metrics)
    runs = _waits(AsyncClient.runs)
    iter_runs = _iterates(AsyncClient.iter_runs)
    halt = _waits(AsyncClient.halt)
    reset = _waits(AsyncClient.reset)
    halts = _waits(AsyncClient.halts)
    stops = _waits(AsyncClient.stops)
    create_token = _waits(AsyncClient.create_token)
    tokens = _waits(AsyncClient.tokens)
    revoke_token = _waits(AsyncClient.revoke_token)
    verb = _waits(AsyncClient.verb)
