"""One server, one runtime: a session that is opened when it is needed, opened again when it was lost, and closed.

A session belongs to a task of its own from its opening to its end, since what it is made of must be entered and left in
one task. Whoever uses it may be cancelled at any time without harm to it.
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
from typing import TYPE_CHECKING, Any, Final

import anyio

from checkrein.agents.mcp.source import MCP
from checkrein.agents.mcp.statement import Offer
from checkrein.agents.mcp.tail import Tail
from checkrein.agents.mcp.tickets import BrokenOff, Ticket
from checkrein.agents.mcp.trouble import explain
from checkrein.errors import CallFailed, MCPUnavailable
from checkrein.journal.surely import surely
from checkrein.runtime import marking, processes, table
from checkrein.runtime.lineage import Family
from checkrein.runtime.tracking import outside

if TYPE_CHECKING:
    from checkrein.agents.mcp.wire import Session

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
            answered = await session.call(tool, arguments, Ticket(), lambda *_: None)
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
            await surely(life.leave_nothing())

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
            marking.RUNTIME: marking.chain(os.environ.get(marking.RUNTIME), runtime),
            marking.SERVER: marking.chain(os.environ.get(marking.SERVER), self._mark),
            **{name: os.environ[name] for name in (marking.WORKER, marking.CALL) if name in os.environ},
        }
        self._tail = Tail()
        self._http: Any = None
        self._session: Session | None = None

    async def open(self, stack: AsyncExitStack, *, lost: Any, changed: Any) -> Session:
        # A second's worth of imports, which the event loop must not wait for.
        wire = await asyncio.to_thread(import_module, "checkrein.agents.mcp.wire")
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
            await processes.end(Family(marks=((marking.SERVER, self._mark),), since=table.birth_of_self()))
        for ticket in () if self._session is None else self._session.abandoned:
            ticket.over()
