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

from checkrein.calls.mcp import PendingRequest

if TYPE_CHECKING:
    from mcp.client._transport import ReadStream, WriteStream

Answer = JSONRPCResponse | JSONRPCError
Heard = SessionMessage | Exception

current: ContextVar[PendingRequest | None] = ContextVar("checkrein_mcp_ticket", default=None)
"""The call in whose name something is sent."""


class RequestTracker:
    """The calls of one session that have no answer yet."""

    def __init__(self) -> None:
        self.open: dict[RequestId, PendingRequest] = {}

    def sent(self, message: SessionMessage) -> None:
        request, pending = message.message, current.get()
        if pending is not None and isinstance(request, JSONRPCRequest) and request.method == "tools/call":
            pending.request = request.id
            self.open[request.id] = pending

    def unsent(self) -> None:
        """It could not be sent after all."""
        pending = current.get()
        if pending is not None and pending.request is not None:
            self.open.pop(pending.request, None)
            pending.request = None

    def heard(self, item: Heard) -> None:
        answer = item.message if isinstance(item, SessionMessage) else None
        if isinstance(answer, Answer) and answer.id is not None:
            pending = self.open.pop(answer.id, None)
            if pending is not None:
                pending.answered(answer)


class _Stream:
    """Is opened and closed with the stream that it stands in front of."""

    _stream: ReadStream[Heard] | WriteStream[SessionMessage]

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._stream.__aexit__(kind, error, trace)


class Reads(_Stream):
    """A stream of what the server says, heard by somebody else first."""

    def __init__(self, stream: ReadStream[Heard], tracker: RequestTracker, ended: Callable[[], None]) -> None:
        self._stream: ReadStream[Heard] = stream
        self._tracker = tracker
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
        self._tracker.heard(item)
        return item

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Heard:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None


class Writes(_Stream):
    """A stream of what is said to the server, seen by somebody else first."""

    def __init__(self, stream: WriteStream[SessionMessage], tracker: RequestTracker) -> None:
        self._stream: WriteStream[SessionMessage] = stream
        self._tracker = tracker

    async def send(self, item: SessionMessage, /) -> None:
        self._tracker.sent(item)
        try:
            await self._stream.send(item)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            self._tracker.unsent()
            raise
