"""Streams of one run, read across connections: whatever breaks off is opened again where it stood.

Each event comes once and in order, because the server goes on after the seq that it is told. Each character of a text
comes once and in its place, because its pieces have offsets: whoever reconnects is sent the text of calls in flight
from its start, and what was passed on already is left out. A stream has ended when the server says so (204), and not
because a connection has.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Final

import msgspec

from checkrein.agents.history import told_of
from checkrein.client.transport import Request, Transport, backoff, may_come_back, path_of
from checkrein.control.view import CallView, RunView
from checkrein.core.enums import TERMINAL, Outcome
from checkrein.core.events import ApprovalRequested, CallFinished, CallStarted, Event, RunCreated, VerbAccepted
from checkrein.errors import CheckreinError, ServerUnavailable, StoreDamaged
from checkrein.journal.base import Chunk, Recorded, stream_of
from checkrein.journal.chunks import TextAssembler
from checkrein.journal.encoding import LARGEST_EVENT, decode, genesis, link
from checkrein.models.http.client import Response
from checkrein.models.http.sse import EventParser, EventTooLarge

_log = logging.getLogger(__name__)

AWAY_SECONDS: Final = 60.0
"""How long a server may stay away before a stream gives up."""
_EVENT_BYTES: Final = LARGEST_EVENT + 4096
_SSE: Final = {"accept": "text/event-stream"}

Item = Recorded | Chunk
"""An event as the journal has it, or a piece of the text of a call in flight."""


class _Piece(msgspec.Struct, frozen=True):
    call: str
    attempt: int
    offset: int
    text: str

    def chunk(self) -> Chunk:
        return Chunk(stream_of(self.call, self.attempt), self.offset, self.text)


class _Numbered(msgspec.Struct, frozen=True):
    seq: int


class EventStream:
    """The events of one run, from after `after` on, and the text of its calls."""

    def __init__(self, run: str, after: int) -> None:
        self.run = run
        self.seq = after
        self._hash = genesis(run) if after == 0 else b""
        self._texts = TextAssembler()
        self._attempts: dict[str, int] = {}
        """The last attempt of each call in flight."""

    def take(self, data: bytes) -> tuple[Item, ...]:
        """What a frame says, as far as it is new. Raises `ValueError` or `StoreDamaged` for what is not of this run."""
        if not data.startswith(b'{"seq":'):
            return self._hear(msgspec.json.decode(data, type=_Piece))
        seq = msgspec.json.decode(data, type=_Numbered).seq
        if seq <= self.seq:
            return ()
        if seq != self.seq + 1:
            raise ValueError(f"event {self.seq + 1} is missing")
        record = self._record(seq, data)
        self.seq = seq
        if isinstance(record.event, CallStarted):
            self._attempts[record.event.call] = record.event.attempt
        elif isinstance(record.event, CallFinished):
            return (*self._end(record.event), record)
        return (record,)

    def _hear(self, piece: _Piece) -> tuple[Chunk, ...]:
        self._attempts[piece.call] = max(piece.attempt, self._attempts.get(piece.call, 1))
        chunk = piece.chunk()
        return self._new(chunk.call) if self._texts.add(chunk) else ()

    def _end(self, event: CallFinished) -> tuple[Chunk, ...]:
        """What of a text has come while nobody read: its record has the whole of it, if a model said it."""
        attempt = self._attempts.pop(event.call, 1)
        stream = stream_of(event.call, attempt)
        told = told_of(event.result) if self._texts.length(stream) else None
        self._texts.end(stream, "" if told is None else told.message.text)
        return self._new(stream)

    def _new(self, stream: str) -> tuple[Chunk, ...]:
        taken = self._texts.take(stream)
        return () if taken is None else (taken,)

    def _record(self, seq: int, data: bytes) -> Recorded:
        """The record of which the server has made this frame: its bytes are those that are stored and hashed."""
        event = decode(data)
        head = b'{"seq":%d,' % seq
        if not isinstance(event, RunCreated):
            head += b'"run":%b,' % msgspec.json.encode(self.run)
        if not data.startswith(head):
            raise ValueError("an event of another run")
        body = b"{" + data[len(head) :]
        if self._hash:
            self._hash = link(self._hash, seq, body)
        return Recorded(self.run, seq, event, body, self._hash)


async def events(transport: Transport, run: str, *, after: int, away_seconds: float) -> AsyncGenerator[Item, None]:
    """Everything of a run after `after`, until nothing more will come by itself."""
    stream = EventStream(run, after)
    request = Request(method="GET", path=path_of("api", "runs", run, "events"))
    connections = _Connections(transport, request, away_seconds)
    while (response := await connections.next({"last-event-id": str(stream.seq)} if stream.seq else {})) is not None:
        async with aclosing(connections.frames(response)) as frames:
            async for data in frames:
                try:
                    items = stream.take(data)
                except (StoreDamaged, ValueError) as error:
                    _log.warning("the stream of events cannot be read: %s", error, extra={"run": run})
                    raise transport.malformed() from None
                for item in items:
                    yield item


async def live(transport: Transport, run: str, *, away_seconds: float) -> AsyncGenerator[RunView, None]:
    """The run as it looks, again whenever that has changed; ends once it has finished and nothing settles any more."""
    request = Request(method="GET", path=path_of("api", "runs", run, "live"))
    connections = _Connections(transport, request, away_seconds)
    while (response := await connections.next({})) is not None:
        patched = PatchedView()
        async with aclosing(connections.frames(response)) as frames:
            async for data in frames:
                try:
                    view = patched.take(data)
                except (ValueError, KeyError, TypeError) as error:
                    _log.warning("the live view cannot be read: %s", error, extra={"run": run})
                    raise transport.malformed() from None
                if view is not None:
                    yield view
                    if view.status in TERMINAL and not view.settling:
                        return


class PatchedView:
    """A view as its patches leave it. One for each connection: the first frame of a connection is whole."""

    def __init__(self) -> None:
        self._fields: dict[str, Any] = {}
        self._calls: dict[str, CallView] = {}
        self._texts = TextAssembler()
        self._said: dict[str, str] = {}

    def take(self, data: bytes) -> RunView | None:
        """The view after this frame; None while there is none yet."""
        if data.startswith(b'{"call":'):
            self._hear(msgspec.json.decode(data, type=_Piece))
        else:
            self._patch(msgspec.json.decode(data, type=dict[str, msgspec.Raw]))
        if not self._fields:
            return None
        return RunView(**self._fields, calls=tuple(self._calls.values()))

    def _patch(self, frame: Mapping[str, msgspec.Raw]) -> None:
        stays: Mapping[str, int] = msgspec.json.decode(frame["from"], type=dict[str, int]) if "from" in frame else {}
        for name, kind in _FIELDS.items():
            if name in frame:
                value = msgspec.json.decode(frame[name], type=kind)
                self._fields[name] = self._fields[name][: stays[name]] + value if name in stays else value
        if "calls" in frame:
            for call in msgspec.json.decode(frame["calls"], type=list[CallView]):
                said = self._said.get(stream_of(call.id, call.attempt), "")
                self._calls[call.id] = msgspec.structs.replace(call, text=said) if said else call

    def _hear(self, piece: _Piece) -> None:
        stream = stream_of(piece.call, piece.attempt)
        if not self._texts.add(piece.chunk()):
            return
        taken = self._texts.take(stream)
        self._said[stream] = self._said.get(stream, "") + (taken.text if taken is not None else "")
        call = self._calls.get(piece.call)
        if call is not None and call.attempt == piece.attempt:
            self._calls[piece.call] = msgspec.structs.replace(call, text=self._said[stream])


_FIELDS: Final = {field.name: field.type for field in msgspec.structs.fields(RunView) if field.name != "calls"}


class _Connections:
    """One stream over as many connections as it takes."""

    def __init__(self, transport: Transport, request: Request, away_seconds: float) -> None:
        self._transport = transport
        self._request = request
        self._away_seconds = away_seconds
        self._tried = 0
        self._away_since: float | None = None
        """Since when nothing has come."""

    async def next(self, headers: Mapping[str, str]) -> Response | None:
        """A connection that tells; None when there is nothing more to tell.

        Raises the error that an answer is, and `ServerUnavailable` when the server stays away too long.
        """
        while True:
            try:
                response = await self._transport.open(self._request, {**_SSE, **headers})
                if response.status == 204:
                    response.close()
                    return None
                if response.status == 200:
                    return response
                raise self._transport.error_of(response, await response.beginning())
            except CheckreinError as error:
                await self._away(error)

    async def frames(self, response: Response) -> AsyncGenerator[bytes, None]:
        """The data of each frame until the connection ends, however it does. It is closed then."""
        parser = EventParser(_EVENT_BYTES)
        try:
            while piece := await self._transport.piece(response):
                self._tried, self._away_since = 0, None
                for data in parser.feed(piece):
                    yield data
        except ServerUnavailable as error:
            _log.info("a stream broke off, and is opened again: %s", error)
        except EventTooLarge:
            raise self._transport.malformed() from None
        finally:
            response.close()

    async def _away(self, error: CheckreinError) -> None:
        """Wait before the next try, if there is one; otherwise raise `error`."""
        now = asyncio.get_running_loop().time()
        if self._away_since is None:
            self._away_since = now
        if not may_come_back(error) or now - self._away_since >= self._away_seconds:
            raise error
        pause = backoff(self._tried)
        self._tried += 1
        _log.info("the server is away, and asked again after %.2f s: %s", pause, error)
        await asyncio.sleep(pause)


def may_begin_to_wait(event: Event) -> bool:
    """Whether the run may wait for a person after this."""
    return (
        isinstance(event, ApprovalRequested)
        or (isinstance(event, VerbAccepted) and event.needs is not None)
        or (isinstance(event, CallFinished) and event.outcome is Outcome.IN_DOUBT)
    )
