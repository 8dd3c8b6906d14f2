"""Server-sent events: how a frame looks, where the latest ones are kept, and how they reach one reader.

A frame is made once and kept once, however many read it: every reader is a position in a shared `FrameBuffer`. That is
its bounded queue, and all the backpressure there is: whoever falls out of it is too slow and is let go; it comes back
with its cursor and misses nothing.

Text comes many times a second. Where the server can write it to a connection at once, no task is woken for it.

How much readers may ask for, and for how long what they share is kept.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, Protocol

import msgspec
from anyio import CancelScope
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from checkrein.core.events import RunCreated
from checkrein.errors import JournalError
from checkrein.journal.base import Recorded, attempt_of

_log = logging.getLogger(__name__)

KEEP_ALIVE: Final = b": keep-alive\n\n"
TOO_SLOW: Final = b": you read too slowly; reconnect, and nothing is missed\n\n"
BEGIN: Final = b"retry: 1000\n\n"
"""Sent at once, so that a reader knows that it is connected."""
WRITE_BYTES: Final = 256 * 1024
"""About how much is handed to the connection at a time."""

_HEADERS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store, no-transform"),
    (b"x-accel-buffering", b"no"),  # a proxy must not collect it
]

Write = Callable[[bytes], Awaitable[None]]
WriteNow = Callable[[bytes], bool]
"""Writes a piece of a body that has begun, without waiting; whether it could."""
WRITE_NOW: Final = "checkrein.write_now"
"""Where the scope of a request has a `WriteNow`, if its server offers one."""


# -- frames


def event_frame(record: Recorded) -> bytes:
    """One event: the bytes as they are stored, with the seq, and the run where they do not name it themselves."""
    tag = str(type(record.event).__struct_config__.tag).encode()
    seq = b"%d" % record.seq
    run = b"" if isinstance(record.event, RunCreated) else b'"run":%b,' % msgspec.json.encode(record.run)
    return b'id: %b\nevent: %b\ndata: {"seq":%b,%b%b\n\n' % (seq, tag, seq, run, record.body[1:])


def chunk_frame(stream: str, offset: int, text: str) -> bytes:
    """A piece of text. It has no id: it is not an event, and a reader that reconnects gets the text from its start."""
    return b"event: call.chunk\ndata: %b\n\n" % _encode_chunk(_ChunkData(*attempt_of(stream), offset, text))


class _ChunkData(msgspec.Struct, frozen=True, gc=False):
    call: str
    attempt: int
    offset: int
    text: str


_encode_chunk: Final = msgspec.json.Encoder().encode


def view_frame(body: bytes) -> bytes:
    return b"event: view\ndata: %b\n\n" % body


def batches(frames: list[bytes]) -> Iterator[bytes]:
    """The same bytes, about as many at a time as fit one write."""
    first, size = 0, 0
    for index, frame in enumerate(frames, 1):
        size += len(frame)
        if size >= WRITE_BYTES or index == len(frames):
            yield b"".join(frames[first:index])
            first, size = index, 0


# -- what is kept of them


class FrameBuffer:
    """The latest frames of one stream. Positions only grow; those before `start` are gone."""

    def __init__(self, *, most_frames: int, most_bytes: int) -> None:
        self._frames: list[bytes] = []
        self._bytes = 0
        self._most_frames = most_frames
        self._most_bytes = most_bytes
        self._waiting: list[Reader] = []
        """Each of them has had all that is here."""
        self.start = 0
        self.published_at = time.monotonic()

    @property
    def end(self) -> int:
        return self.start + len(self._frames)

    def publish(self, frame: bytes) -> None:
        self._keep(frame)
        self.wake()

    def publish_text(self, frame: bytes) -> None:
        """Publish a frame with which nothing ends: a reader whose connection takes it at once is not woken for it."""
        self._keep(frame)
        if self._waiting:
            self._waiting = [reader for reader in self._waiting if reader.takes(frame)]

    def _keep(self, frame: bytes) -> None:
        self._frames.append(frame)
        self._bytes += len(frame)
        self.published_at = time.monotonic()
        if len(self._frames) > self._most_frames or self._bytes > self._most_bytes:
            self._shorten()

    def _shorten(self) -> None:
        """Down to half, so that it is not done for every frame; the newest one always stays."""
        drop = 0
        while len(self._frames) - drop > max(1, self._most_frames // 2) or (
            self._bytes > self._most_bytes // 2 and len(self._frames) - drop > 1
        ):
            self._bytes -= len(self._frames[drop])
            drop += 1
        del self._frames[:drop]
        self.start += drop

    def since(self, position: int) -> list[bytes] | None:
        """The frames from `position` on, about as many as fit one write; None if some of them are gone."""
        if position < self.start:
            return None
        frames, size, first = self._frames, 0, position - self.start
        for index in range(first, len(frames)):
            size += len(frames[index])
            if size >= WRITE_BYTES:
                return frames[first : index + 1]
        return frames[first:]

    def wake(self) -> None:
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for reader in waiting:
                reader.wake()

    def wait(self, reader: Reader) -> None:
        """Have a reader that has had everything woken when something is published, or there is another reason to look.

        One that is gone stays here until then: a keep-alive comes soon enough.
        """
        self._waiting.append(reader)


# -- one reader


class Reader:
    """One connection: what it reads from, how far it is, and how to let it go."""

    def __init__(self, ring: FrameBuffer, by: str = "") -> None:
        """`by` is who reads."""
        self.ring = ring
        self.by = by
        self.position: int | None = None
        """None: it still reads what came before the ring."""
        self.scope = CancelScope()
        self.sending_since: float | None = None
        self.write_now: WriteNow | None = None
        """How its connection is written to without waiting, where that can be done."""
        self._news: asyncio.Future[None] | None = None
        """What it waits for. Cancelled at once when it is let go."""

    def wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def takes(self, frame: bytes) -> bool:
        """Write `frame`, the first that it has not had, or wake it to do that itself; whether it still waits."""
        if self._news is None or self._news.done() or self.position is None:
            return False
        if self.write_now is not None and self.write_now(frame):
            self.position += 1
            return True
        self._news.set_result(None)
        return False

    def is_stuck(self, now: float, stall_seconds: float) -> bool:
        """Whether it does not read, and either the ring has left it behind or that has gone on for too long."""
        if self.sending_since is None:
            return False
        is_behind = self.position is not None and self.position < self.ring.start
        return is_behind or now - self.sending_since > stall_seconds

    def let_go(self) -> None:
        self.scope.cancel()

    async def follow(self, position: int, write: Write, is_over: Callable[[], bool]) -> None:
        """Write what is in the ring from `position` on and whatever comes, until it is over or too much is missed."""
        self.position = position
        while True:
            frames = self.ring.since(self.position)
            if frames is None:
                return await write(TOO_SLOW)
            if frames:
                # Counted before it is sent: what is handed over need not stay in the ring.
                self.position += len(frames)
                await write(b"".join(frames))
            elif is_over():
                return
            else:
                self._news = asyncio.get_running_loop().create_future()
                self.ring.wait(self)
                await self._news


class Readers(Protocol):
    def add(self, reader: Reader) -> None: ...

    def discard(self, reader: Reader) -> None: ...


class StreamResponse(Response):
    """A response that `pump` writes, until it returns or the reader goes away. Neither changes anything for a run.

    `readers` is where the reader is listed meanwhile.
    """

    def __init__(self, reader: Reader, pump: Callable[[Write], Awaitable[None]], readers: Readers) -> None:
        super().__init__()
        self._reader = reader
        self._pump = pump
        self._readers = readers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reader = self._reader

        async def write(body: bytes) -> None:
            reader.sending_since = time.monotonic()
            await send({"type": "http.response.body", "body": body, "more_body": True})
            reader.sending_since = None

        reader.write_now = scope.get(WRITE_NOW)
        self._readers.add(reader)
        listening = asyncio.get_running_loop().create_task(_until_gone(receive, reader))
        try:
            with reader.scope:
                await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
                await write(BEGIN)
                try:
                    await self._pump(write)
                except JournalError as error:  # the reader comes back, and is told then what is wrong with the store
                    _log.warning("a stream ends early: %s", error)
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._readers.discard(reader)
            listening.cancel()


async def _until_gone(receive: Receive, reader: Reader) -> None:
    """Let the reader go once it is gone; or once it sends more than it may, for then nobody listens any more."""
    try:
        while (await receive())["type"] != "http.disconnect":
            pass
    except Exception as error:
        _log.info("a reader is let go: %s", error)
    reader.let_go()


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much readers may ask for."""

    queue_frames: int = 4096
    """How far a reader may fall behind, in frames."""
    queue_bytes: int = 4_000_000
    """The same, in bytes."""
    keep_alive_seconds: float = 15.0
    stall_seconds: float = 30.0
    """A reader that takes nothing at all for so long is let go."""
    linger_seconds: float = 10.0
    """How long a run nobody reads any more is kept at hand."""
    idle_feeds: int = 32
    """How many runs nobody reads are kept at hand at most."""
    streams: int = 5_000
    """How many may read at the same time; nobody has more of them than are left for others."""
