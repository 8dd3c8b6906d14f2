"""One run, followed once for all who read it: one follower of its journal, one view, and each frame made once."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

from checkrein.control.feed import RunFeed, Ticker
from checkrein.core.enums import AT_WORK, EffectState, Status
from checkrein.core.state import State
from checkrein.driver.ownership import left_at
from checkrein.errors import StoreUnavailable
from checkrein.journal.base import Chunk, Lease, Recorded, stream_of
from checkrein.server.backend import Backend
from checkrein.server.streaming import sse
from checkrein.server.streaming.live_view import TEXT_SECONDS, LiveView

_log = logging.getLogger(__name__)

REPLAY_PAGE: Final = 100
"""How many records are read at once for one reader: what a slow one has not taken yet stays in memory."""
HEARD_SECONDS: Final = 0.5
"""Whoever has streamed text so lately drives its run."""
TAIL: Final = 2048
"""How many events are kept at hand for those who reconnect."""


class ReaderSet(set[sse.Reader]):
    """Those who read a run, and since when nobody does."""

    def __init__(self) -> None:
        super().__init__()
        self.changed_at = time.monotonic()

    def discard(self, reader: object) -> None:
        super().discard(reader)
        self.changed_at = time.monotonic()


class RunFrames:
    """One run, followed for all who read it: what its feed tells, as frames."""

    def __init__(self, backend: Backend, run: str, limits: sse.Limits, ticker: Ticker) -> None:
        self.run = run
        self.readers = ReaderSet()
        self.pins = 0
        """How many are about to read it."""
        self.feed = RunFeed(
            backend.journal, run, on_record=self._record, on_text=self._text, listen=backend.listen, ticker=ticker
        )
        self.viewer = self.feed.viewer
        self.events = self._ring(limits)
        self.live = LiveView(self.viewer, backend.now, self._ring(limits))
        self._backend = backend
        self._tail = sse.FrameBuffer(most_frames=TAIL, most_bytes=limits.queue_bytes)
        """Only events: the frame at position n is that of event n + 1."""
        self._ready = asyncio.Event()
        self.failure: BaseException | None = None
        self.feed.listen()
        self._following = asyncio.get_running_loop().create_task(self._follow())

    @staticmethod
    def _ring(limits: sse.Limits) -> sse.FrameBuffer:
        return sse.FrameBuffer(most_frames=limits.queue_frames, most_bytes=limits.queue_bytes)

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come by itself: finished, nothing being undone, no question open."""
        state = self.viewer.state
        if state is None or not state.is_finished or state.live or state.verbs:
            return False
        return not any(e.wanted and e.state is EffectState.OPEN for e in self.viewer.effects.values())

    @property
    def is_idle(self) -> bool:
        return not self.readers and not self.pins

    @property
    def is_ready(self) -> bool:
        """Whether the run is known, and followed."""
        return self.failure is None and self._ready.is_set()

    async def ready(self, *, is_fresh: bool) -> None:
        """Return when the run is known: if `is_fresh`, as the journal has it by now. Raises what stands in the way."""
        if not self._ready.is_set():
            await self._ready.wait()
        elif is_fresh:
            await self.feed.catch_up()
        if self.failure is not None:
            raise self.failure

    def is_told_of(self, now: float) -> bool:
        """Whether its driver has just given a sign of life: then its lease need not be read."""
        return self.viewer.left_at is None and now - self.feed.heard_at < HEARD_SECONDS

    async def look_at_lease(self) -> None:
        """See whether anybody drives the run: no record says when a process has died."""
        await self.take_lease(await self._backend.journal.lease(self.run) if self.is_lease_wanted else None)

    @property
    def is_lease_wanted(self) -> bool:
        """Whether its lease says something about the run."""
        state = self.viewer.state
        return state is not None and (state.status in AT_WORK or self.viewer.left_at is not None)

    async def take_lease(self, lease: Lease | None) -> None:
        """Take in who drives the run; None: nobody."""
        state, viewer = self.viewer.state, self.viewer
        if state is None:
            return
        if self.is_lease_wanted:
            before, viewer.left_at = viewer.left_at, left_at(lease, state, self._backend.now())
            if (before is None) is not (viewer.left_at is None):
                self.live.change()
        elif state.status is not Status.QUEUED and not viewer.waits_for_worker:
            return
        await self._look_for_worker(state)

    async def _look_for_worker(self, state: State) -> None:
        is_driven = state.status in AT_WORK and self.viewer.left_at is None
        wanted = {} if is_driven else await self._backend.workers_wanted([state])
        before, self.viewer.waits_for_worker = self.viewer.waits_for_worker, wanted.get(self.run, "")
        if before != self.viewer.waits_for_worker:
            self.live.change()

    def close(self) -> None:
        """Let everybody go."""
        self.failure = self.failure or StoreUnavailable("The server is closing; ask again soon.")
        self.feed.close()
        self.live.close()
        self._following.cancel()
        for ring in (self.events, self.live.ring):
            ring.wake()

    async def _follow(self) -> None:
        try:
            await self.feed.load()
            self._ready.set()
            await self.feed.follow()
        except Exception as error:
            _log.warning("The run cannot be followed: %s", error, extra={"run": self.run})
            self.failure = error
            self._ready.set()
            for ring in (self.events, self.live.ring):
                ring.wake()

    # -- what the feed tells

    def _record(self, record: Recorded) -> None:
        frame = sse.event_frame(record)
        self._tail.publish(frame)
        self.events.publish(frame)
        self.live.change()

    def _text(self, chunk: Chunk) -> None:
        if self._ready.is_set():  # of what is over by then there is a record, and of what is live the whole text
            frame = sse.chunk_frame(chunk.call, chunk.offset, chunk.text)
            self.events.publish_text(frame)
            if self.live.has_readers:  # whoever joins later is given the whole text
                self.live.ring.publish_text(frame)
                self.live.change(within=TEXT_SECONDS)

    def live_texts(self) -> list[bytes]:
        """From its start, the text of every call in flight."""
        state = self.viewer.state
        if state is None or not state.live:
            return []
        calls = [call for name in state.live if (call := self.viewer.call(name)) is not None and call.text]
        return [sse.chunk_frame(stream_of(call.id, call.attempt), 0, call.text) for call in calls]

    # -- readers

    def read_events(self, after: int, by: str = "") -> sse.StreamResponse:
        """Every event above `after`, then each new one, with text in between; until it is over."""
        reader = sse.Reader(self.events, by)

        async def pump(write: sse.Write) -> None:
            await self._replay(after, write)
            self.feed.flush()  # what is in the whole text is not to come again
            position, texts = self.events.end, b"".join(self.live_texts())
            if texts:
                await write(texts)
            await reader.follow(position, write, self._has_ended)

        return sse.StreamResponse(reader, pump, self.readers)

    async def _replay(self, after: int, write: sse.Write) -> None:
        """Returns when everything that is known by then was written, without having waited since."""
        cursor = after
        while cursor < self.viewer.seq and self.failure is None:
            frames = self._tail.since(cursor)
            if frames is None:
                page = await self._backend.journal.read(self.run, after=cursor, limit=REPLAY_PAGE)
                frames = [sse.event_frame(record) for record in page if record.seq <= self.viewer.seq]
            cursor += len(frames)
            for batch in sse.batches(frames):
                await write(batch)

    def _has_ended(self) -> bool:
        return self.is_over or self.failure is not None

    def read_live(self, by: str = "") -> sse.StreamResponse:
        """The whole view, then what changes. It stays open after the end: reasons and undos may follow."""
        reader = sse.Reader(self.live.ring, by)

        async def pump(write: sse.Write) -> None:
            whole, position = self._join_live()
            try:
                await write(whole)
                await reader.follow(position, write, lambda: self.failure is not None)
            finally:
                self.live.leave()

        return sse.StreamResponse(reader, pump, self.readers)

    def _join_live(self) -> tuple[bytes, int]:
        self.feed.flush()
        return self.live.join()
