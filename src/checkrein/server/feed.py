"""One run, followed once for all who read it: one follower of its journal, one view, and each frame made once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from checkrein.agents.threads import told_of
from checkrein.control.texts import joined
from checkrein.control.viewing import Viewer
from checkrein.core.events import CallFinished
from checkrein.core.words import CallKind, EffectState
from checkrein.errors import StoreUnavailable
from checkrein.journal.contract import Chunk, Recorded, stream_of
from checkrein.server.backend import Backend
from checkrein.server.limits import Limits
from checkrein.server.live import TEXT_SECONDS, LiveView
from checkrein.server.stream import Reader, Ring, StreamResponse, Write, batches, chunk_frame, event_frame
from checkrein.server.texts import Texts

PAGE: Final = 500
"""How many events are read at a time."""
REPLAY_PAGE: Final = 100
"""The same, for one reader: what a slow one has not taken yet stays in memory."""
READ_TEXT_SECONDS: Final = 0.2
"""How often text is looked for in the journal that nobody tells us of."""
TOGETHER_SECONDS: Final = 0.015
"""Pieces of text that come within so long are one frame."""
TAIL: Final = 2048
"""How many events are kept at hand for those who reconnect."""

Allowed = Callable[[], bool]


class ReaderSet(set[Reader]):
    """Those who read a run, and since when nobody does."""

    def __init__(self) -> None:
        super().__init__()
        self.changed_at = time.monotonic()

    def discard(self, reader: object) -> None:
        super().discard(reader)
        self.changed_at = time.monotonic()


class Feed:
    """One run, followed for all who read it."""

    def __init__(self, backend: Backend, run: str, limits: Limits) -> None:
        self.run = run
        self.viewer = Viewer()
        self.readers = ReaderSet()
        self.pins = 0
        """How many are about to read it."""
        self.events = self._ring(limits)
        self.live = LiveView(self.viewer, backend.now, self._ring(limits))
        self._backend = backend
        self._texts = Texts()
        self._heard: list[Chunk] = []
        self._telling: asyncio.TimerHandle | None = None
        self._told: set[str] = set()
        """Texts that whoever drives the run tells us of."""
        self._read: dict[str, int] = {}
        """How far each text was read in the journal."""
        self._tail = Ring(most_frames=TAIL, most_bytes=limits.queue_bytes)
        """Only events: the frame at position n is that of event n + 1."""
        self._ready = asyncio.Event()
        self.failure: BaseException | None = None
        loop = asyncio.get_running_loop()
        self._unlisten = backend.listen(run, self._hear)
        self._tasks = [loop.create_task(self._follow()), loop.create_task(self._read_text())]

    @staticmethod
    def _ring(limits: Limits) -> Ring:
        return Ring(most_frames=limits.queue_frames, most_bytes=limits.queue_bytes)

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come by itself: finished, and nothing left that is still being undone."""
        state = self.viewer.state
        if state is None or not state.is_finished or state.live:
            return False
        return not any(e.wanted and e.state is EffectState.OPEN for e in self.viewer.effects.values())

    @property
    def is_idle(self) -> bool:
        return not self.readers and not self.pins

    async def ready(self, *, is_fresh: bool) -> None:
        """Return when the run is known: if `is_fresh`, as the journal has it by now. Raises what stands in the way."""
        if not self._ready.is_set():
            await self._ready.wait()
        elif is_fresh:
            await self._catch_up()
        if self.failure is not None:
            raise self.failure

    def close(self) -> None:
        """Let everybody go."""
        self.failure = self.failure or StoreUnavailable("The server is closing; ask again soon.")
        self._unlisten()
        self.live.close()
        if self._telling is not None:
            self._telling.cancel()
        for task in self._tasks:
            task.cancel()
        for ring in (self.events, self.live.ring):
            ring.wake()

    # -- what happens

    async def _follow(self) -> None:
        try:
            await self._catch_up()
            for stream in self.viewer.untold():
                await self._read_stream(stream)
            self._tell()
            self._ready.set()
            follower = self._backend.journal.follow(self.run, after=self.viewer.seq)
            try:
                async for record in follower:
                    self._take(record)
            finally:
                await follower.aclose()  # type: ignore[attr-defined]
        except Exception as error:
            self.failure = error
            self._ready.set()
            for ring in (self.events, self.live.ring):
                ring.wake()

    async def _catch_up(self) -> None:
        """Take in what the journal has and we have not heard of yet."""
        page: tuple[Recorded, ...] | None = None
        while page is None or len(page) == PAGE:
            page = await self._backend.journal.read(self.run, after=self.viewer.seq, limit=PAGE)
            for record in page:
                self._take(record)

    def _take(self, record: Recorded) -> None:
        if record.seq != self.viewer.seq + 1:
            return  # heard twice
        event = record.event
        if isinstance(event, CallFinished):
            self._end_text(event)
        self._tell()  # what had streamed before this event also reaches readers before it
        self.viewer.absorb(record)
        frame = event_frame(record)
        self._tail.publish(frame)
        self.events.publish(frame)
        self.live.change()

    # -- text

    def _hear(self, chunk: Chunk) -> None:
        self._told.add(chunk.call)
        self._add_text(chunk)

    def _add_text(self, chunk: Chunk) -> None:
        fresh = self._texts.fresh(chunk)
        if fresh:
            self._heard += fresh
            if self._telling is None:
                self._telling = asyncio.get_running_loop().call_later(TOGETHER_SECONDS, self._tell)

    def _tell(self) -> None:
        """Hand on what has streamed."""
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None
        if self._heard:
            heard, self._heard = joined(self._heard), []
            for chunk in heard:
                self.viewer.hear(chunk)
                frame = chunk_frame(chunk.call, chunk.offset, chunk.text)
                self.events.publish(frame)
                self.live.ring.publish(frame)
            self.live.change(within=TEXT_SECONDS)

    def _end_text(self, event: CallFinished) -> None:
        """Its record has all that a model said: also what nobody has told us of."""
        live = None if self.viewer.state is None else self.viewer.state.live.get(event.call)
        if live is None:
            return
        stream = stream_of(event.call, live.attempt)
        told = told_of(event.result) if live.kind is CallKind.MODEL else None
        if told is not None and self._ready.is_set():
            self._heard += self._texts.rest(stream, told.message.text)
        self._told.discard(stream)
        self._read.pop(stream, None)

    def live_texts(self) -> list[bytes]:
        """From its start, the text of every call in flight."""
        state = self.viewer.state
        if state is None or not state.live:
            return []
        calls = [call for name in state.live if (call := self.viewer.call(name)) is not None and call.text]
        return [chunk_frame(stream_of(call.id, call.attempt), 0, call.text) for call in calls]

    async def _read_text(self) -> None:
        """Read in the journal what nobody tells us: everything, or what had streamed before we listened."""
        await self._ready.wait()
        while self.failure is None:
            await asyncio.sleep(READ_TEXT_SECONDS)
            state = self.viewer.state
            live = {} if state is None else state.live
            speaking = (CallKind.MODEL, CallKind.ASK)
            streams = [stream_of(name, call.attempt) for name, call in live.items() if call.kind in speaking]
            for stream in streams:
                if stream not in self._told or self._texts.has_gap(stream):
                    with suppress(StoreUnavailable):
                        await self._read_stream(stream)

    async def _read_stream(self, stream: str) -> None:
        for chunk in await self._backend.journal.chunks(self.run, stream, after=self._read.get(stream, -1)):
            self._read[stream] = chunk.offset
            self._add_text(chunk)

    # -- readers

    def read_events(self, after: int, is_allowed: Allowed = lambda: True) -> StreamResponse:
        """Every event above `after`, then each new one, with text in between; until it is over."""
        reader = Reader(self.events, is_allowed)

        async def pump(write: Write) -> None:
            await self._replay(after, write)
            position, texts = self.events.end, b"".join(self.live_texts())
            if texts:
                await write(texts)
            await reader.follow(position, write, self._has_ended)

        return StreamResponse(reader, pump, self.readers)

    async def _replay(self, after: int, write: Write) -> None:
        """Returns when everything that is known by then was written, without having waited since."""
        cursor = after
        while cursor < self.viewer.seq and self.failure is None:
            frames = self._tail.since(cursor)
            if frames is None:
                page = await self._backend.journal.read(self.run, after=cursor, limit=REPLAY_PAGE)
                frames = [event_frame(record) for record in page if record.seq <= self.viewer.seq]
            cursor += len(frames)
            for batch in batches(frames):
                await write(batch)

    def _has_ended(self) -> bool:
        return self.is_over or self.failure is not None

    def read_live(self, is_allowed: Allowed = lambda: True) -> StreamResponse:
        """The whole view, then what changes. It stays open after the end: reasons and undos may follow."""
        reader = Reader(self.live.ring, is_allowed)

        async def pump(write: Write) -> None:
            whole, position = self._join_live()
            try:
                await write(whole)
                await reader.follow(position, write, lambda: self.failure is not None)
            finally:
                self.live.leave()

        return StreamResponse(reader, pump, self.readers)

    def _join_live(self) -> tuple[bytes, int]:
        self._tell()
        return self.live.join()
