"""How a front and a driver talk: messages over a socket pair that nobody else can reach.

Each message is framed as in `processes.ipc`: an empty head, and a body in MessagePack. The driver says what agents it
has, when it drives their runs, and passes text on as it streams. The front says what is secret, when it is time to end,
and asks now and then whether the driver still answers. What must not be lost is in the journal: anything here may be
dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

import msgspec

from checkrein.control.worker_roster import AgentCard
from checkrein.engines.temporal import TemporalOptions
from checkrein.journal.base import Chunk
from checkrein.processes.ipc import MessageTooLong, Unpacker, pack
from checkrein.timings import LEASE_SECONDS, SHUT_DOWN_SECONDS

_log = logging.getLogger(__name__)

_LONGEST_BYTES: Final = 64 << 20
FULL_BYTES: Final = 1 << 20
"""How much may wait for a reader before more of it is dropped."""


class Message(msgspec.Struct, array_like=True):
    """What goes over the line."""


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a driver is told that is on the roster of its store."""

    name: str
    version: str = ""
    slots: int | None = None
    """How many runs it drives at once; None: any number."""
    lease_seconds: float = LEASE_SECONDS
    shutdown_seconds: float = SHUT_DOWN_SECONDS
    temporal: TemporalOptions | None = None
    """Where Temporal is that places runs; None: they are found by their leases."""


class Know(Message, tag="know"):
    """The first thing that the front says: where the store is, and secrets, by name, that a driver takes out of
    everything.

    They are not in its environment, where a tool would find them, nor in its command line, which everybody may read.
    """

    store: str
    secrets: dict[str, str]
    listen_store: str | None = None
    """The same database, past a pooler."""
    worker: WorkerOptions | None = None
    """None: it is not on the roster."""


class Hello(Message, tag="hello"):
    """A driver has loaded these agents, and opens the store."""

    cards: tuple[AgentCard, ...]


class Opened(Message, tag="opened"):
    """A driver has taken up the runs of its agents, and takes new ones."""


class Ping(Message, tag="ping"):
    """Does the driver still answer?"""


class Pong(Message, tag="pong"):
    """It does: said by the task that all of its work hangs on, not merely by its event loop."""

    is_store_well: bool = True
    """Whether the store took its last sign of life."""


class Broken(Message, tag="broken"):
    """A driver cannot begin: the sentence says why."""

    code: str
    message: str


class Live(Message, tag="live"):
    """Text as it streams: of which run, and what."""

    pieces: list[tuple[str, Chunk]]


class End(Message, tag="end"):
    """Pause everything durably and end."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Know | Hello | Opened | Broken | Live | End | Ping | Pong).decode


def packed(message: Message) -> bytes:
    """A message as it goes over the line."""
    return pack({}, _encode(message))


class MessageConnection(asyncio.Protocol):
    """One end of the line, in an event loop. `hear` is told each message, `gone` once when the other end is closed."""

    def __init__(self, hear: Callable[[Message], None], gone: Callable[[], None]) -> None:
        self._hear = hear
        self._gone = gone
        self._unpacker = Unpacker(_LONGEST_BYTES)
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
        try:
            for _, body in self._unpacker.feed(data):
                self._hear(_decode(body))
        except MessageTooLong as error:
            _log.warning("The other end of the line is not one of ours: %s", error)
            self.close()

    def pause_writing(self) -> None:
        self.is_full = True

    def resume_writing(self) -> None:
        self.is_full = False

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._gone()
