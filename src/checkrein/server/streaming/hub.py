"""The runs that somebody reads, and those that somebody has just read.

A `RunFrames` lives while there are readers, and a little longer, so that whoever reconnects finds it warm: nothing is
folded again for it. A reader that goes away takes nothing with it; a run never notices who reads.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

import msgspec

from checkrein.control.feed import READ_AGAIN_SECONDS, Ticker, read_texts
from checkrein.core.events import RunCreated
from checkrein.errors import CheckreinError, StoreUnavailable
from checkrein.server.backend import Backend
from checkrein.server.streaming.frames import RunFrames
from checkrein.server.streaming.sse import KEEP_ALIVE, Limits
from checkrein.timings import RECLAIM_SECONDS

_log = logging.getLogger(__name__)

TICK_SECONDS: Final = 1.0
KNOWN: Final = 10_000
"""Of how many runs it is remembered who may see them."""


class Facts(msgspec.Struct, frozen=True, gc=False):
    """What never changes about a run: who may see it depends on nothing else."""

    run: str
    owner: str
    root: str | None
    agent: str
    thread: str


class Hub:
    """The feeds of one process."""

    def __init__(self, backend: Backend, limits: Limits | None = None) -> None:
        self._backend = backend
        self.limits = limits or Limits()
        self._feeds: dict[str, RunFrames] = {}
        self._facts: dict[str, Facts] = {}
        self._ticker = Ticker()
        self._ticking: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self.is_closed = False

    @property
    def readers(self) -> int:
        return sum(len(feed.readers) for feed in self._feeds.values())

    def has_room(self, by: str) -> bool:
        """Whether they may read one more stream: nobody has more than are left, so there is room for the next one."""
        left = self.limits.streams - self.readers
        if left <= 0 or left > self.limits.streams // 2:
            return left > 0
        return sum(reader.by == by for feed in self._feeds.values() for reader in feed.readers) < left

    @property
    def runs(self) -> tuple[str, ...]:
        """The runs that are at hand."""
        return tuple(self._feeds)

    async def facts(self, run: str) -> Facts:
        """What never changes about a run. Raises `RunNotFound`."""
        known = self._facts.get(run)
        if known is None:
            (first, *_) = await self._backend.journal.read(run, limit=1)
            event = first.event
            assert isinstance(event, RunCreated)
            known = Facts(run, event.owner, event.root, event.agent, event.thread)
            if len(self._facts) >= KNOWN:
                self._facts.clear()
            self._facts[run] = known
        return known

    async def feed(self, run: str, *, is_fresh: bool = True) -> RunFrames:
        """The feed of a run. Raises `RunNotFound` and other errors.

        It knows all that the journal has by now; for those who go on reading, what it knows already will do, and then
        nothing is read for them.
        """
        feed = self._feeds.get(run)
        if feed is None or feed.failure is not None:
            if self.is_closed:
                raise StoreUnavailable("The server is closing; ask again soon.")
            if feed is not None:
                self._drop(feed)
            feed = self._feeds[run] = RunFrames(self._backend, run, self.limits, self._ticker)
            self._tick_along()
            self._drop_idle()
        feed.readers.changed_at = time.monotonic()
        feed.pins += 1
        try:
            await feed.ready(is_fresh=is_fresh)
            if is_fresh:
                await feed.look_at_lease()
        except Exception:
            if feed.failure is not None and self._feeds.get(run) is feed:
                self._drop(feed)
            raise
        finally:
            feed.pins -= 1
        return feed

    async def close(self) -> None:
        """End every stream, and keep nothing."""
        self.is_closed = True
        for feed in list(self._feeds.values()):
            self._drop(feed)
        for task in (self._ticking, self._reading, self._watching):
            if task is not None:
                task.cancel()

    def _drop(self, feed: RunFrames) -> None:
        self._feeds.pop(feed.run, None)
        feed.close()

    # -- now and then

    def _tick_along(self) -> None:
        loop = asyncio.get_running_loop()
        if self._ticking is None or self._ticking.done():
            self._ticking = loop.create_task(self._tick())
        if self._reading is None or self._reading.done():
            self._reading = loop.create_task(self._read_texts())
        if self._watching is None or self._watching.done():
            self._watching = loop.create_task(self._watch_leases())

    async def _read_texts(self) -> None:
        """Have the feeds read what nobody tells them: those of runs that no driver of this server streams."""
        async for runs in self._backend.journal.texts():
            if not self._feeds:
                return
            told = [feed for feed in self._feeds.values() if feed.is_ready and (runs is None or feed.run in runs)]
            for feed in told if runs is not None else ():
                feed.feed.expect_text()
            try:
                await read_texts(self._backend.journal, [feed.feed for feed in told])
            except CheckreinError as error:  # the next time, or the record of the call's end, brings it
                _log.info("Text could not be read: %s", error, extra={"runs": [feed.run for feed in told]})
            await asyncio.sleep(READ_AGAIN_SECONDS)

    async def _watch_leases(self) -> None:
        """Have the feeds notice that nobody drives their run any more."""
        while self._feeds:
            await asyncio.sleep(RECLAIM_SECONDS)
            try:
                await self._look_at_leases()
            except CheckreinError as error:
                _log.info("Whether anybody drives the runs that are read could not be read: %s", error)

    async def _look_at_leases(self) -> None:
        """One question, however many feeds there are."""
        now = time.monotonic()
        read = [feed for feed in self._feeds.values() if feed.readers and feed.is_ready and not feed.is_told_of(now)]
        wanted = [feed.run for feed in read if feed.is_lease_wanted]
        leases = await self._backend.journal.leases(wanted) if wanted else {}
        for feed in read:
            await feed.take_lease(leases.get(feed.run))

    async def _tick(self) -> None:
        while self._feeds:
            await asyncio.sleep(min(TICK_SECONDS, self.limits.keep_alive_seconds, self.limits.stall_seconds))
            now = time.monotonic()
            for feed in list(self._feeds.values()):
                self._look_after(feed, now)

    def _look_after(self, feed: RunFrames, now: float) -> None:
        for reader in list(feed.readers):
            if reader.is_stuck(now, self.limits.stall_seconds):
                reader.let_go()
        for ring in (feed.events, feed.live.ring):
            if feed.readers and now - ring.published_at >= self.limits.keep_alive_seconds:
                ring.publish(KEEP_ALIVE)
        if feed.is_idle and now - feed.readers.changed_at > self.limits.linger_seconds:
            self._drop(feed)

    def _drop_idle(self) -> None:
        idle = sorted((f for f in self._feeds.values() if f.is_idle), key=lambda feed: feed.readers.changed_at)
        for feed in idle[: max(0, len(idle) - self.limits.idle_feeds)]:
            self._drop(feed)
