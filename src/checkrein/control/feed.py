"""A run as it happens: its records and its streamed text, in the order in which they make sense, each once.

The plain terminal, the full screen and the server all read a run through this. Text comes from whoever drives the run
in this process or on its line, the moment it streams; what nobody tells is read from the journal, where it is written
a few times a second. Reads only.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Final

from checkrein.control.live_text import Listener
from checkrein.control.viewer import Viewer
from checkrein.core.enums import CallKind
from checkrein.core.events import CallFinished, CallStarted, RunFinished
from checkrein.core.state import LiveCall
from checkrein.errors import CheckreinError, StoreUnavailable
from checkrein.journal.base import Chunk, Journal, Recorded, stream_of

_log = logging.getLogger(__name__)

PAGE: Final = 1000
"""How many records are read at once."""
READ_AGAIN_SECONDS: Final = 0.03
"""However often text is told of, it is not read more often than this: what comes meanwhile is read together."""
AGAIN_SECONDS: Final = 0.2
"""How long to wait before a store that does not answer is asked again."""
TOGETHER_SECONDS: Final = 0.015
"""Pieces of text that come within so long are handed on as one."""

_SPEAKING: Final = (CallKind.MODEL, CallKind.ASK)

Item = Recorded | Chunk
Listen = Callable[[str, Listener], Callable[[], None]]
"""Has a listener told what a run says, as it streams; returns an undo."""


class Ticker:
    """Calls back whoever asks, all of them together: at once after a quiet time, else at the next tick.

    One timer serves every feed of a process, however many of them have something to hand on.
    """

    def __init__(self, seconds: float = TOGETHER_SECONDS) -> None:
        self.seconds = seconds
        """Between two ticks."""
        self._last = -math.inf
        self._waiting: list[Callable[[], None]] = []

    def soon(self, callback: Callable[[], None]) -> None:
        if not self._waiting:
            loop = asyncio.get_running_loop()
            loop.call_at(max(loop.time(), self._last + self.seconds), self._tick)
        self._waiting.append(callback)

    def _tick(self) -> None:
        self._last = asyncio.get_running_loop().time()
        waiting, self._waiting = self._waiting, []
        for callback in waiting:
            try:
                callback()
            except Exception:  # one feed's mistake is not to silence the others
                _log.exception("Text could not be handed on")


class RunFeed:
    """One run, for one who wants to know. `on_record` and `on_text` must not raise, and must not block.

    Records come in the journal's order, none twice. Each character of a text comes once and in its place: after the
    record that its call has begun, and before the record of its end. What had streamed when a record came is told
    before it. `viewer` has taken in whatever they are called with.
    """

    def __init__(
        self,
        journal: Journal,
        run: str,
        *,
        on_record: Callable[[Recorded], None],
        on_text: Callable[[Chunk], None],
        listen: Listen | None = None,
        ticker: Ticker | None = None,
    ) -> None:
        self.run_id = run
        self.viewer = Viewer()
        self._journal = journal
        self._on_record = on_record
        self._on_text = on_text
        self._listen = listen
        self._unlisten: Callable[[], None] | None = None
        self._ticker = ticker or Ticker()
        self._begun: set[str] = set()
        """Texts of calls that have begun and not ended, by their records: what comes of others waits, or is late."""
        self._fresh: dict[str, None] = {}
        """Those of them that have something to hand on. The ticker knows of us while there is any."""
        self._told: set[str] = set()
        """Texts that whoever drives the run tells us of."""
        self._read: dict[str, int] = {}
        """Up to which offset the journal's pieces of a text were read."""
        self._is_text_ahead = False
        """Text was written and could not be read yet: the record that its call has begun is still to come."""
        self.heard_at = -math.inf
        """When a new piece of text has come last, by the monotonic clock."""

    async def run(self) -> None:
        """Follow the run until cancelled. Raises what keeps the journal from being read; may then be called again."""
        self.listen()
        reading = asyncio.get_running_loop().create_task(self._read_texts_for_ever())
        try:
            await self.load()
            await self.follow()
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            self.close()

    # -- its parts, for whoever follows many runs

    def listen(self) -> None:
        """From now on hear what streams."""
        if self._unlisten is None and self._listen is not None:
            self._unlisten = self._listen(self.run_id, self.hear)

    def close(self) -> None:
        """Hear nothing more."""
        if self._unlisten is not None:
            self._unlisten()
            self._unlisten = None

    async def load(self) -> None:
        """Take in what the journal has by now, and the texts that only their chunks know."""
        await self.catch_up()
        for stream in self.viewer.untold():
            await self._read_text(stream)
        self.flush()

    async def follow(self) -> None:
        """Take in each record as it is committed. Never returns; a store that is away is asked again until it answers.

        Raises what asking again will not mend, and `StoreUnavailable` when the journal was closed.
        """
        is_away = False
        while True:
            follower = self._journal.follow(self.run_id, after=self.viewer.seq)
            try:
                async for record in follower:
                    is_away = False
                    await self._take(record)
            except StoreUnavailable as error:
                if error.is_closed:
                    raise
                level = logging.DEBUG if is_away else logging.WARNING
                _log.log(level, "The store does not answer, and is asked again: %s", error, extra={"run": self.run_id})
                is_away = True
            finally:
                await follower.aclose()
            await asyncio.sleep(AGAIN_SECONDS)

    async def catch_up(self) -> None:
        """Take in what the journal has and was not heard of yet."""
        page: tuple[Recorded, ...] | None = None
        while page is None or len(page) == PAGE:
            page = await self._journal.read(self.run_id, after=self.viewer.seq, limit=PAGE)
            for record in page:
                await self._take(record)

    def hear(self, chunk: Chunk) -> None:
        """A piece of text has streamed."""
        self._told.add(chunk.call)
        self.heard_at = time.monotonic()
        self._add(chunk)

    def flush(self) -> None:
        """Hand on what has streamed."""
        if self._fresh:
            fresh, self._fresh = self._fresh, {}
            for stream in fresh:
                if (chunk := self.viewer.texts.take(stream)) is not None:
                    self._on_text(chunk)

    async def read_texts(self) -> None:
        """Read from the journal what nobody tells us."""
        await read_texts(self._journal, [self])

    @property
    def lacking(self) -> dict[tuple[str, str], int]:
        """The texts that are in the journal only, all of them or what had streamed before we listened, and up to where
        they were read."""
        return {(self.run_id, stream): self._read.get(stream, -1) for stream in self._lacking()}

    def expect_text(self) -> None:
        """Some was written: if its call is not known yet, it is read when it is."""
        self._is_text_ahead = not any(call.kind in _SPEAKING for call in self._live().values())

    def take_text(self, stream: str, chunks: Sequence[Chunk]) -> None:
        """Take in what the journal has of a text."""
        if chunks:
            self.heard_at = time.monotonic()
        for chunk in chunks:
            self._read[stream] = chunk.offset
            self._add(chunk)

    # -- records

    async def _take(self, record: Recorded) -> None:
        event = record.event
        if isinstance(event, CallFinished) and event.result is None and self._is_next(record):
            live = self._live().get(event.call)
            if live is not None and live.kind in _SPEAKING:
                # The record of its end does not tell what was said: only the journal's chunks do.
                await self._read_text(stream_of(event.call, live.attempt))
        if not self._is_next(record):
            return  # taken in already, here or by whoever caught up meanwhile
        if isinstance(event, CallFinished):
            self._end(record, event)
        else:
            self.flush()
            self.viewer.absorb(record)
        self._on_record(record)
        if isinstance(event, CallStarted):
            stream = stream_of(event.call, event.attempt)
            self._begun.add(stream)
            self._hand_on_soon(stream)
            if self._is_text_ahead and event.kind in _SPEAKING:
                self._is_text_ahead = False
                await self._read_text(stream)

    def _is_next(self, record: Recorded) -> bool:
        return record.seq == self.viewer.seq + 1

    def _end(self, record: Recorded, event: CallFinished) -> None:
        """Its record has all that a model said, also what nobody has told us of: that comes before it."""
        live = self._live().get(event.call)
        self.viewer.absorb(record)
        if live is None:
            return self.flush()
        stream = stream_of(event.call, live.attempt)
        self._fresh[stream] = None
        self.flush()
        for known in (self._begun, self._told):
            known.discard(stream)
        self._read.pop(stream, None)

    def _live(self) -> Mapping[str, LiveCall]:
        return {} if self.viewer.state is None else self.viewer.state.live

    # -- text

    def _add(self, chunk: Chunk) -> None:
        if self.viewer.hear(chunk) and chunk.call in self._begun:
            self._hand_on_soon(chunk.call)

    def _hand_on_soon(self, stream: str) -> None:
        if not self._fresh:
            self._ticker.soon(self.flush)
        self._fresh[stream] = None

    def _lacking(self) -> list[str]:
        live = self._live()
        speaking = [stream_of(name, call.attempt) for name, call in live.items() if call.kind in _SPEAKING]
        return [one for one in speaking if one not in self._told or self.viewer.texts.has_gap(one)]

    async def _read_text(self, stream: str) -> None:
        self.take_text(stream, await self._journal.chunks(self.run_id, stream, after=self._read.get(stream, -1)))

    async def _read_texts_for_ever(self) -> None:
        async for runs in self._journal.texts():
            if runs is not None:
                if self.run_id not in runs:
                    continue
                self.expect_text()
            try:
                await self.read_texts()
            except (CheckreinError, OSError) as error:  # whoever follows the records learns it too, and says so
                _log.debug("Text could not be read: %s", error, extra={"run": self.run_id})
            await asyncio.sleep(READ_AGAIN_SECONDS)


async def read_texts(journal: Journal, feeds: Iterable[RunFeed]) -> None:
    """Read from the journal what nobody tells these feeds: one question, however many they are."""
    of_run = {feed.run_id: feed for feed in feeds}
    lacking = {call: after for feed in of_run.values() for call, after in feed.lacking.items()}
    if lacking:
        for (run, stream), chunks in (await journal.chunks_of(lacking)).items():
            of_run[run].take_text(stream, chunks)


async def items(journal: Journal, run: str, listen: Listen | None = None) -> AsyncIterator[Item]:
    """Everything about one run from its first record on; ends after `run.finished`. Raises what a journal raises."""
    queue: asyncio.Queue[Item | None] = asyncio.Queue()
    feed = RunFeed(journal, run, on_record=queue.put_nowait, on_text=queue.put_nowait, listen=listen)
    running = asyncio.get_running_loop().create_task(feed.run())
    running.add_done_callback(lambda _: queue.put_nowait(None))
    try:
        while (item := await queue.get()) is not None:
            yield item
            if isinstance(item, Recorded) and isinstance(item.event, RunFinished):
                return
        running.result()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
