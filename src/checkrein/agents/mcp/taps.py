"""Listening in on the messages between us and a server: which request a call became, and whether it was answered.

The session of the package `mcp` forgets a call the moment it is cancelled. Whether its answer had come just before, or
comes after all, is seen here.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import anyio
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCError, JSONRPCRequest, JSONRPCResponse, RequestId

from checkrein.agents.mcp.tickets import Ticket

if TYPE_CHECKING:
    from mcp.client._transport import ReadStream, WriteStream

Answer = JSONRPCResponse | JSONRPCError
Heard = SessionMessage | Exception

current: ContextVar[Ticket | None] = ContextVar("checkrein_mcp_ticket", default=None)
"""The call in whose name something is sent."""


class Desk:
    """The calls of one session that have no answer yet."""

    def __init__(self) -> None:
        self.open: dict[RequestId, Ticket] = {}

    def sent(self, message: SessionMessage) -> None:
        request, ticket = message.message, current.get()
        if ticket is not None and isinstance(request, JSONRPCRequest) and request.method == "tools/call":
            ticket.request = request.id
            self.open[request.id] = ticket

    def unsent(self) -> None:
        """It could not be sent after all."""
        ticket = current.get()
        if ticket is not None and ticket.request is not None:
            self.open.pop(ticket.request, None)
            ticket.request = None

    def heard(self, item: Heard) -> None:
        answer = item.message if isinstance(item, SessionMessage) else None
        if isinstance(answer, Answer) and answer.id is not None:
            ticket = self.open.pop(answer.id, None)
            if ticket is not None:
                ticket.answered(answer)


class Reads:
    """A stream of what the server says, heard by somebody else first."""

    def __init__(self, stream: ReadStream[Heard], desk: Desk, ended: Callable[[], None]) -> None:
        self._stream = stream
        self._desk = desk
        self._ended = ended

    @property
    def last_context(self) -> Any:
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Heard:
        try:
            item = await self._stream.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            self._ended()
            raise
        self._desk.heard(item)
        return item

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Heard:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._stream.__aexit__(kind, error, trace)


class Writes:
    """A stream of what is said to the server, seen by somebody else first."""

    def __init__(self, stream: WriteStream[SessionMessage], desk: Desk) -> None:
        self._stream = stream
        self._desk = desk

    async def send(self, item: SessionMessage, /) -> None:
        self._desk.sent(item)
        try:
            await self._stream.send(item)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            self._desk.unsent()
            raise

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._stream.__aexit__(kind, error, trace)
