"""The response that a client of the gateway waits for: begun once, and kept open over every attempt to answer it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiohttp import web

_log = logging.getLogger(__name__)


class ClientStream:
    """Nothing here raises because the client is gone: that is for whoever asks to look at."""

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self._chunked: asyncio.Transport | None = None
        """Where the answer goes in chunks, once its head is on its way."""
        self.response: web.StreamResponse | None = None
        self.is_gone = False
        self.is_cut = False

    @property
    def is_begun(self) -> bool:
        return self.response is not None

    async def begin(self, status: int, headers: Mapping[str, str]) -> None:
        from aiohttp import web

        self.response = web.StreamResponse(status=status, headers=dict(headers))
        try:
            await self.response.prepare(self._request)
        except ConnectionError:
            self.leave()

    async def write(self, data: bytes) -> None:
        if self.response is None or self.is_gone or not data or self._request.method == "HEAD":
            return
        chunked = self._chunked
        if chunked is not None and not chunked.is_closing() and not chunked.get_write_buffer_size():
            # What the library would write, without the layers that it goes through: this runs once for every token.
            chunked.write(b"%x\r\n%b\r\n" % (len(data), data))
            return
        try:
            await self.response.write(data)
        except ConnectionError:
            self.leave()
            return
        if self.response.headers.get("transfer-encoding") == "chunked":
            self._chunked = self._request.transport

    async def whole(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Answer with `body` as it is."""
        await self.begin(status, {**headers, "content-length": str(len(body))})
        await self.write(body)

    def cut(self) -> None:
        """Break it off, so that the client does not take it for whole."""
        self.is_cut = True
        if self._request.transport is not None:
            self._request.transport.abort()

    def leave(self) -> None:
        if not self.is_gone:
            _log.info("a client has left before its answer was whole")
        self.is_gone = True

    async def end(self) -> None:
        if self.response is None or self.is_gone or self.is_cut:
            return
        try:
            await self.response.write_eof()
        except (ConnectionError, asyncio.IncompleteReadError):
            self.leave()
