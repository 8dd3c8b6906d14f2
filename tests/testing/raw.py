"""A client that does nothing but what it is told: bytes out, bytes in."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

ASK: dict[str, Any] = {"model": "gpt-5", "stream": True, "messages": [{"role": "user", "content": "Hello?"}]}


def request(body: Any = ASK, path: str = "/v1/chat/completions", method: str = "POST", key: str = "test-key") -> bytes:
    encoded = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [
        f"{method} {path} HTTP/1.1",
        "host: here",
        f"authorization: Bearer {key}",
        f"content-length: {len(encoded)}",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + encoded


class Line:
    """A connection to the provider."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.seen = bytearray()

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def see(self, what: bytes) -> bytes:
        """Read until `what` has come; what has been read by then."""
        at = 0
        while self.seen.find(what, at) < 0:
            at = max(0, len(self.seen) - len(what))
            data = await self.reader.read(65536)
            assert data, f"The connection ended after {bytes(self.seen[-1000:])!r}"
            self.seen += data
        return bytes(self.seen)

    async def rest(self) -> bytes:
        """Everything until the connection ends."""
        while data := await self.reader.read(65536):
            self.seen += data
        return bytes(self.seen)


@asynccontextmanager
async def line(port: int) -> AsyncIterator[Line]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Line(reader, writer)
    finally:
        writer.transport.abort()
