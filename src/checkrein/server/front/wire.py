"""How a front and a driver talk: messages over a socket pair that nobody else can reach.

Each message is four bytes of length and as many of MessagePack. The driver says what agents it has, passes text on as
it streams, and answers pings from its event loop. The front pings, and says when it is time to end. What must not be
lost is in the journal: anything here may be dropped.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Final

import msgspec

from checkrein.journal.contract import Chunk
from checkrein.server.backend import AgentCard

_LENGTH: Final = struct.Struct("!I")
_LONGEST: Final = 64 << 20
FULL_BYTES: Final = 1 << 20
"""How much may wait for a reader before more of it is dropped."""

END_SECONDS: Final = 15.0
"""How long a driver may take to end: longer than a run is given to be paused."""


class Message(msgspec.Struct, array_like=True):
    """What goes over the line."""


class Hello(Message, tag="hello"):
    """A driver is open, and drives the runs of these agents."""

    cards: tuple[AgentCard, ...]


class Broken(Message, tag="broken"):
    """A driver cannot begin: the sentence says why."""

    code: str
    message: str


class Live(Message, tag="live"):
    """Text as it streams: of which run, and what."""

    pieces: list[tuple[str, Chunk]]


class Ping(Message, tag="ping"):
    number: int


class Pong(Message, tag="pong"):
    number: int


class End(Message, tag="end"):
    """Pause everything durably and end."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Hello | Broken | Live | Ping | Pong | End).decode


def packed(message: Message) -> bytes:
    """A message as it goes over the line."""
    body = _encode(message)
    return _LENGTH.pack(len(body)) + body


class Line(asyncio.Protocol):
    """One end of the line, in an event loop. `hear` is told each message, `gone` once when the other end is closed."""

    def __init__(self, hear: Callable[[Message], None], gone: Callable[[], None]) -> None:
        self._hear = hear
        self._gone = gone
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self.is_full = False
        """The other end does not read as fast as this one speaks."""

    def say(self, message: Message) -> None:
        """Send it, if there is anybody to send it to. Never waits."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(packed(message))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    # -- what the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=FULL_BYTES)

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        at = 0
        while len(buffer) >= at + _LENGTH.size:
            (length,) = _LENGTH.unpack_from(buffer, at)
            end = at + _LENGTH.size + length
            if length > _LONGEST:
                return self.close()
            if len(buffer) < end:
                break
            message = _decode(memoryview(buffer)[at + _LENGTH.size : end].tobytes())
            at = end
            self._hear(message)
        del buffer[:at]

    def pause_writing(self) -> None:
        self.is_full = True

    def resume_writing(self) -> None:
        self.is_full = False

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._gone()
