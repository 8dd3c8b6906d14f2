"""The runs that somebody reads, and those that somebody has just read.

A `Feed` lives while there are readers, and a little longer, so that whoever reconnects finds it warm: nothing is folded
again for it. A reader that goes away takes nothing with it; a run never notices who reads.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

import msgspec

from checkrein.core.events import RunCreated
from checkrein.errors import CheckreinError, StoreUnavailable
from checkrein.server.backend import Backend
from checkrein.server.feed import Feed
from checkrein.server.limits import Limits
from checkrein.server.stream import KEEP_ALIVE, Reader

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
        self._feeds: dict[str, Feed] = {}
        self._facts: dict[str, Facts] = {}
        self._ticking: asyncio.Task[None] | None = None
        self.is_closed = False

    @property
    def readers(self) -> int:
        return sum(len(feed.readers) for feed in self._feeds.values())

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

    async def feed(self, run: str, *, is_fresh: bool = True) -> Feed:
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
            feed = self._feeds[run] = Feed(self._backend, run, self.limits)
            self._tick_along()
            self._drop_idle()
        feed.readers.changed_at = time.monotonic()
        feed.pins += 1
        try:
            await feed.ready(is_fresh=is_fresh)
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
        if self._ticking is not None:
            self._ticking.cancel()

    def _drop(self, feed: Feed) -> None:
        self._feeds.pop(feed.run, None)
        feed.close()

    # -- once a second

    def _tick_along(self) -> None:
        if self._ticking is None or self._ticking.done():
            self._ticking = asyncio.get_running_loop().create_task(self._tick())

    async def _tick(self) -> None:
        while self._feeds:
            await asyncio.sleep(min(TICK_SECONDS, self.limits.keep_alive_seconds, self.limits.stall_seconds))
            now = time.monotonic()
            for feed in list(self._feeds.values()):
                self._look_after(feed, now)

    def _look_after(self, feed: Feed, now: float) -> None:
        for reader in list(feed.readers):
            if reader.is_stuck(now, self.limits.stall_seconds) or not _is_allowed(reader):
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


def _is_allowed(reader: Reader) -> bool:
    try:
        return reader.is_allowed()
    except CheckreinError:
        return True  # until it is known
