"""Letting streams in as fast as the event loop keeps up, so that no crowd stands between a person and a verb.

After a cut of the network a thousand readers come back at once, and each costs more to let in than a verb to take. So
streams are admitted at a rate that follows the event loop: when its turns come late, the rate is lowered at once; when
they come in time, it rises again slowly. Whoever is not let in is told to come again in a moment, before anything of
the request is parsed. Nothing but streams is ever turned away.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import Final

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_PER_SECOND: Final = 300.0
LEAST_PER_SECOND: Final = 20.0
BURST: Final = 20.0
"""So many may come at the same moment, however busy it is: a page with its sub-runs."""
LATE_SECONDS: Final = 0.02
"""A turn of the event loop that comes later than this is late."""
_LOOK_SECONDS: Final = 0.025
_LOWER: Final = 0.7
_RAISE: Final = 4.0

_SENTENCE: Final = "Too many streams begin at once; come back in a moment. Verbs are not affected."
_BODY: Final = msgspec.json.encode({"code": "busy", "message": _SENTENCE})
_NOT_HTTP: Final = msgspec.json.encode({"code": "not_http", "message": "This cannot be read as an HTTP request."})
_TOO_LONG: Final = msgspec.json.encode({"code": "too_large", "message": "The headers of this request are too long."})

HEAD_BYTES: Final = 512 * 1024
"""How long the head of a request may be. What is read at once, perhaps with a part of the body, is half of that."""
HEAD_SECONDS: Final = 10.0
"""How long a connection may take to say what it wants. One that never does would keep its place for ever."""


class Admission:
    """How many streams may begin now. Use it in one event loop."""

    def __init__(self) -> None:
        self.per_second = MOST_PER_SECOND
        self.refused = 0
        self._allowance = BURST
        self._counted_at = time.monotonic()

    def take(self) -> bool:
        """Whether one more may begin."""
        now = time.monotonic()
        self._allowance = min(BURST, self._allowance + (now - self._counted_at) * self.per_second)
        self._counted_at = now
        if self._allowance < 1.0:
            self.refused += 1
            return False
        self._allowance -= 1.0
        return True

    async def watch(self) -> None:
        """Have the rate follow the event loop. Never returns."""
        while True:
            began = time.monotonic()
            await asyncio.sleep(_LOOK_SECONDS)
            self.adapt(time.monotonic() - began - _LOOK_SECONDS)

    def adapt(self, late_seconds: float) -> None:
        if late_seconds > LATE_SECONDS:
            self.per_second = max(LEAST_PER_SECOND, self.per_second * _LOWER)
        else:
            self.per_second = min(MOST_PER_SECOND, self.per_second + _RAISE)


def protocol_with(admission: Admission) -> type[HttpToolsProtocol]:
    """The HTTP protocol of a server that asks `admission` before it takes a request for a stream."""

    class Protocol(HttpToolsProtocol):
        _head_is_due: asyncio.TimerHandle | None = None
        _head_bytes = 0

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._expect_head()

        def connection_lost(self, exc: Exception | None) -> None:
            self._has_head()
            super().connection_lost(exc)

        def on_message_begin(self) -> None:
            self._expect_head()
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            self._has_head()
            super().on_headers_complete()

        def _expect_head(self) -> None:
            if self._head_is_due is None:
                self._head_is_due = self.loop.call_later(HEAD_SECONDS, self.transport.close)

        def _has_head(self) -> None:
            if self._head_is_due is not None:
                self._head_is_due.cancel()
                self._head_is_due = None
                self._head_bytes = 0

        def send_400_response(self, msg: str) -> None:
            self._refuse(b"400 Bad Request", _NOT_HTTP)

        def _refuse(self, status: bytes, body: bytes) -> None:
            self.transport.write(_answer(status, body))
            self.transport.close()

        def _is_too_long(self, data: bytes) -> bool:
            """Whether what has come is longer than any head; the parser would keep all of it."""
            if self._head_is_due is not None:
                self._head_bytes += len(data)
            return self._head_bytes > HEAD_BYTES

        def data_received(self, data: bytes) -> None:
            cycle: object = self.cycle  # None at first, whatever its type says
            is_between = cycle is None or self.cycle.response_complete
            if self._is_too_long(data):
                self._refuse(b"431 Request Header Fields Too Large", _TOO_LONG)
            elif is_between and asks_for_stream(data) and not admission.take():
                self.transport.write(_turned_away())
                self.transport.close()
            else:
                super().data_received(data)

    return Protocol


def asks_for_stream(head: bytes) -> bool:
    """Whether a request begins like one for a stream. One that comes in very small pieces is not recognised."""
    if not head.startswith(b"GET /api/runs/"):
        return False
    path = head[4 : head.find(b" ", 5)].partition(b"?")[0]
    return path.endswith((b"/live", b"/events"))


def _turned_away() -> bytes:
    # Not all at the same moment again.
    return _answer(b"503 Service Unavailable", _BODY, b"retry-after: %d\r\n" % random.randint(1, 3))


def _answer(status: bytes, body: bytes, headers: bytes = b"") -> bytes:
    return b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n%bconnection: close\r\n\r\n%b" % (
        status,
        len(body),
        headers,
        body,
    )
