"""One server, one runtime: a session that is opened when it is needed, opened again when it was lost, and closed.

A session belongs to a task of its own from its opening to its end, since what it is made of must be entered and left in
one task. Whoever uses it may be cancelled at any time without harm to it.

The last of what a server writes to its standard error: kept for when it has to be explained why it failed.

Why a server cannot be used, in words, and what a person can do about it.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
import uuid
from collections import deque
from contextlib import AsyncExitStack, suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TextIO

import anyio

from checkrein.asyncutil import run_to_completion
from checkrein.calls.in_process.child_tasks import outside
from checkrein.calls.mcp import BrokenOff, PendingRequest
from checkrein.errors import CallFailed, MCPUnavailable
from checkrein.mcp.server import MCP
from checkrein.mcp.tools import Offer
from checkrein.processes import env_marks, table, termination
from checkrein.processes.families import Family

if TYPE_CHECKING:
    from checkrein.mcp.session import Session

_KEPT: Final = 4096
_SHOWN: Final = 300


class Tail:
    """A pipe. Give `file` to the process; everything but the end of it is forgotten. Close it when done."""

    def __init__(self) -> None:
        self._reader, writer = os.pipe()
        os.set_blocking(self._reader, False)
        self.file: TextIO = os.fdopen(writer, "w")
        self._kept = b""
        self._is_closed = False
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._reader, self._read)

    def _read(self) -> None:
        with suppress(BlockingIOError):
            while piece := os.read(self._reader, 65536):
                self._kept = (self._kept + piece)[-_KEPT:]
            self._loop.remove_reader(self._reader)  # nobody can write any more

    def last_line(self) -> str:
        if not self._is_closed:
            self._read()
        lines = [" ".join(line.split()) for line in self._kept.decode("utf-8", "replace").splitlines()]
        return next((line[-_SHOWN:] for line in reversed(lines) if line), "")

    def close(self) -> None:
        self._is_closed = True
        self._loop.remove_reader(self._reader)
        self.file.close()
        os.close(self._reader)


CLOSED: Final = -32000
"""The code under which the package `mcp` reports that a connection was closed."""


def explain(
    source: MCP, error: BaseException, *, said: str = "", trouble: object = None, refusal: int | None = None
) -> MCPUnavailable:
    """`said` is what the server wrote last to its standard error, `refusal` the HTTP status it answered with."""
    what, remedy = (_of_url if source.url is not None else _of_command)(source, _first(error), said, trouble, refusal)
    return MCPUnavailable(f"The MCP server {source.name} {what}.", remedy=remedy, server=source.name)


def _of_command(source: MCP, error: BaseException, said: str, *_: object) -> tuple[str, str]:
    place = source.place
    if isinstance(error, FileNotFoundError | NotADirectoryError) and source.cwd and error.filename == source.cwd:
        return f"cannot be started: there is no folder {source.cwd}", "Mend MCP(cwd=…), then resume."
    if isinstance(error, FileNotFoundError):
        return f"cannot be started: there is no command {place}", "Install it, or mend MCP(command=…), then resume."
    words = f"; it said: {said}" if said else ""
    if isinstance(error, TimeoutError):
        what = f"did not answer within {source.start_seconds:g} s{words}"
        return what, "See that it speaks MCP on its standard output, or give it more start_timeout, then resume."
    if isinstance(error, OSError):
        return f"cannot be started: {error.strerror or error}", "Mend MCP(command=…), then resume."
    if getattr(error, "code", None) == CLOSED:
        return f"ended before it could be used{words}", f"Run {place} by hand to see why, mend it, then resume."
    return f"cannot be used: {error}", "Mend the server, then resume."


def _of_url(source: MCP, error: BaseException, _: str, trouble: object, refusal: int | None) -> tuple[str, str]:
    place = source.place
    if trouble is not None:
        return f"cannot be reached at {place}: {trouble}", "Start it, or mend MCP(url=…), then resume."
    if refusal in (401, 403):
        return f"at {place} does not let us in (HTTP {refusal})", "Give MCP(headers=…) a valid token, then resume."
    if refusal == 404:
        return f"is not at {place} (HTTP 404)", "Mend MCP(url=…), then resume."
    if refusal is not None:
        return f"at {place} answers with HTTP {refusal}", "Look at the server, then resume."
    if isinstance(error, TimeoutError):
        return f"did not answer within {source.start_seconds:g} s at {place}", "See that it lives, then resume."
    return f"at {place} cannot be used: {error}", "Mend the server, then resume."


def _first(error: BaseException) -> BaseException:
    """Task groups wrap what went wrong in groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


MOST_LOSSES: Final = 5
LOSS_SECONDS: Final = 60.0
"""A server that is lost more often than so within this time is not opened again before a person has looked at it."""


class Connection:
    """What a runtime keeps of one server. Belongs to one event loop; close it."""

    def __init__(self, source: MCP, runtime: str) -> None:
        self.source = source
        self._runtime = runtime
        self._serving: asyncio.Task[None] | None = None
        self._opened: asyncio.Future[Session] | None = None
        self._end = asyncio.Event()
        self._scope: anyio.CancelScope | None = None
        self._losses: deque[float] = deque(maxlen=MOST_LOSSES)
        self._offers: tuple[Offer, ...] = ()
        self._is_stale = True
        self._asking = asyncio.Lock()
        self._is_closed = False

    # -- using it

    async def session(self) -> Session:
        """The session, opened if there is none. Raises `MCPUnavailable`."""
        if self._opened is None or self._end.is_set():
            self._refuse_if_hopeless()
            self._end = asyncio.Event()
            self._is_stale = True
            self._opened = asyncio.get_running_loop().create_future()
            serving = self._serve(self._opened, self._end, self._serving)
            self._serving = asyncio.get_running_loop().create_task(serving, context=outside())
        return await asyncio.shield(self._opened)

    async def offers(self) -> tuple[Offer, ...]:
        """The tools of the server; asked for again when it has said that they changed, or was lost, or in doubt.

        Raises `MCPUnavailable`.
        """
        async with self._asking:
            session = await self.session()
            if not self._is_stale:
                return self._offers
            try:
                return await self._ask_for_offers(session)
            except MCPUnavailable:
                if session.is_busy:
                    raise
            self._end.set()  # a server that was started again knows nothing of this session
            return await self._ask_for_offers(await self.session())

    async def _ask_for_offers(self, session: Session) -> tuple[Offer, ...]:
        self._is_stale = False
        try:
            async with asyncio.timeout(self.source.start_seconds):
                self._offers = await session.offers()
        except Exception as error:
            self._is_stale = True
            raise session.explain(error) from error
        return self._offers

    async def call(self, tool: str, arguments: dict[str, Any]) -> Any:
        """Call a tool as a part of something else that is recorded. Raises `CallFailed`."""
        try:
            session = await self.session()
            answered = await session.call(tool, arguments, PendingRequest(), lambda *_: None)
        except (MCPUnavailable, BrokenOff) as error:
            raise CallFailed(str(error), error=str(error)) from error
        if answered.is_error:
            raise CallFailed(f"{tool} failed: {answered.value}", error=str(answered.value))
        return answered.value

    def doubt(self) -> None:
        """Something went wrong on the way, or has changed: ask for the tools again before they are relied on."""
        self._is_stale = True

    def forgive(self) -> None:
        """A person has looked at it: try again as if it had never been lost."""
        self._losses.clear()

    def _refuse_if_hopeless(self) -> None:
        now = time.monotonic()
        if self._is_closed:
            raise self._closed()
        if len(self._losses) == MOST_LOSSES and now - self._losses[0] < LOSS_SECONDS:
            raise MCPUnavailable(
                f"The MCP server {self.source.name} was lost {MOST_LOSSES} times within a minute.",
                remedy="See why it ends, mend it, then resume.",
                server=self.source.name,
            )

    def _closed(self) -> MCPUnavailable:
        return MCPUnavailable(f"The MCP server {self.source.name} was closed with its runtime.")

    # -- its life, in one task

    async def _serve(
        self, opened: asyncio.Future[Session], end: asyncio.Event, before: asyncio.Task[None] | None
    ) -> None:
        """Open a session, keep it until it is lost or to be closed, and leave nothing of it behind."""
        opened.add_done_callback(lambda future: future.cancelled() or future.exception())
        if before is not None:
            await asyncio.wait([before])
        life = _Life(self.source, self._runtime)
        deadline = anyio.current_time() + self.source.start_seconds
        try:
            with anyio.CancelScope(deadline=deadline) as self._scope:
                if self._is_closed:
                    self._scope.cancel()
                async with AsyncExitStack() as stack:
                    session = await life.open(stack, lost=partial(self._lost, opened, end), changed=self.doubt)
                    self._scope.deadline = math.inf
                    opened.set_result(session)
                    await end.wait()
            if not opened.done():
                opened.set_exception(self._closed() if self._is_closed else life.explain(TimeoutError()))
        except Exception as error:
            if not opened.done():
                opened.set_exception(life.explain(error))
        finally:
            end.set()
            await run_to_completion(life.leave_nothing())

    def _lost(self, opened: asyncio.Future[Session], end: asyncio.Event) -> None:
        """The server says nothing any more."""
        if opened.done() and not end.is_set():
            self._losses.append(time.monotonic())
        end.set()

    async def close(self) -> None:
        """End the session; a server that was started is gone on return, and so is everything that came from it."""
        self._is_closed = True
        self._end.set()
        if self._serving is None:
            return
        if self._opened is not None and not self._opened.done() and self._scope is not None:
            self._scope.cancel()
        await asyncio.wait([self._serving])


class _Life:
    """What one session is made of."""

    def __init__(self, source: MCP, runtime: str) -> None:
        self._source = source
        self._mark = uuid.uuid4().hex
        self._marks = {
            env_marks.RUNTIME: env_marks.chain(os.environ.get(env_marks.RUNTIME), runtime),
            env_marks.SERVER: env_marks.chain(os.environ.get(env_marks.SERVER), self._mark),
            **{name: os.environ[name] for name in (env_marks.WORKER, env_marks.CALL) if name in os.environ},
        }
        self._tail = Tail()
        self._http: Any = None
        self._session: Session | None = None

    async def open(self, stack: AsyncExitStack, *, lost: Any, changed: Any) -> Session:
        # A second's worth of imports, which the event loop must not wait for.
        wire = await asyncio.to_thread(import_module, "checkrein.mcp.session")
        if self._source.url is not None:
            self._http = await stack.enter_async_context(wire.Http(self._source.headers))
        opening = wire.opened(self._source, self._marks, self._tail.file, self._http, lost=lost, changed=changed)
        self._session = session = await stack.enter_async_context(opening)
        session.explain = self.explain
        return session  # type: ignore[no-any-return]

    def explain(self, error: BaseException) -> MCPUnavailable:
        trouble, refusal = (None, None) if self._http is None else (self._http.trouble, self._http.refusal)
        return explain(self._source, error, said=self._tail.last_line(), trouble=trouble, refusal=refusal)

    async def leave_nothing(self) -> None:
        """End whatever the server has left behind; then nobody is at the calls any more that were let go."""
        self._tail.close()
        if self._source.command is None:
            return
        with suppress(OSError):
            await termination.end(Family(marks=((env_marks.SERVER, self._mark),), since=table.birth_of_self()))
        for pending in () if self._session is None else self._session.abandoned:
            pending.over()
