"""A reader of a server's stream that costs next to nothing itself: HTTP by hand, and tokens counted by their blanks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

AGAIN_SECONDS: Final = 0.2
"""A server lets in so many streams a second; whoever is turned away comes back."""


async def start_run(port: int, token: str, agent: str, goal: str) -> str:
    """Begin a run; its id."""
    body = msgspec.json.encode({"agent": agent, "goal": goal})
    head = f"POST /api/runs HTTP/1.1\r\n{_headers(port, token)}Content-Type: application/json\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
    told, _, answer = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    if not told.startswith(b"HTTP/1.1 201"):
        raise RuntimeError(f"no run was begun: {told.decode()} {answer.decode()}")
    return str(msgspec.json.decode(answer)["id"])


async def read_events(port: int, token: str, run: str, told: Callable[[int], None]) -> None:
    """Read a run's events to their end, and tell how many tokens each piece has brought."""
    request = f"GET /api/runs/{run}/events HTTP/1.1\r\n{_headers(port, token)}\r\n".encode()
    while True:
        events = _Events(request, told)
        transport, _ = await asyncio.get_running_loop().create_connection(lambda: events, "127.0.0.1", port)  # noqa: B023
        try:
            if await events.over:
                return
        finally:
            transport.abort()
        await asyncio.sleep(AGAIN_SECONDS)


def _headers(port: int, token: str) -> str:
    return f"Host: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n"


class _Events(asyncio.Protocol):
    def __init__(self, request: bytes, told: Callable[[int], None]) -> None:
        self._request = request
        self._told = told
        self.over: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        """Whether it was let in, once the connection has ended."""
        self._is_in = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._is_in = self._is_in or data.startswith(b"HTTP/1.1 200")
        if tokens := _tokens(data):
            self._told(tokens)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.over.done():
            self.over.set_result(self._is_in)


def _tokens(data: bytes) -> int:
    """Of the blanks in a frame two are not the text's: that of `event: call.chunk`, and that of `data: {`."""
    at = data.find(b"event: call.chunk")
    return data.count(b" ", at) - 2 * data.count(b"event: call.chunk", at) if at >= 0 else 0
