"""Waking those who follow a run when something was committed to it.

A bell belongs to one iterator and is rung from any thread. It remembers the highest seq of each run that it was rung
for, so ringing twice for one event does no harm, and ringing before anybody waits is not lost.

An iterator that is closed, or simply dropped, takes its bell down; nobody rings or polls for it any more.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final, Self

from checkrein.journal.contract import Recorded

PAGE: Final = 500
"""How many events a follower reads at a time."""


class Bell:
    """Something in one event loop that can be woken from any thread. `run` is None for news of every run."""

    def __init__(self, run: str | None) -> None:
        self.run = run
        self.news: dict[str, int] = {}
        """What it was rung for and its iterator has not looked at: the highest seq of each run."""
        self._loop = asyncio.get_running_loop()
        self._rung = asyncio.Event()

    def ring(self, news: Mapping[str, int]) -> None:
        # A loop that has ended has nobody left to wake.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._hear, news)

    def _hear(self, news: Mapping[str, int]) -> None:
        for run, seq in news.items():
            self.news[run] = max(seq, self.news.get(run, 0))
        self._rung.set()

    async def wait(self) -> None:
        """Return once it was rung since the last time."""
        await self._rung.wait()
        self._rung.clear()


class Tower:
    """Every bell of a journal. Its methods may be called from any thread."""

    def __init__(self) -> None:
        # Only ever changed by single operations that the interpreter does not interrupt, and copied to be walked: a
        # bell may be taken down by the garbage collector in the middle of anything, where no lock could be waited for.
        self._bells: dict[Bell, None] = {}

    @property
    def is_listened_to(self) -> bool:
        return bool(self._bells)

    def hang(self, bell: Bell) -> None:
        self._bells[bell] = None

    def take_down(self, bell: Bell) -> None:
        self._bells.pop(bell, None)

    def announce(self, news: Mapping[str, int]) -> None:
        """Tell whoever listens what was committed: the highest new seq of each run."""
        for bell in self._bells.copy():
            if bell.run is None:
                bell.ring(news)
            elif bell.run in news:
                bell.ring({bell.run: news[bell.run]})

    def ring_all(self) -> None:
        """The journal closes: everybody should look, and find out."""
        for bell in self._bells.copy():
            bell.ring({} if bell.run is None else {bell.run: sys.maxsize})


class _Listener:
    """An iterator with a bell that hangs as long as the iterator lives and is not closed."""

    def __init__(self, tower: Tower, run: str | None) -> None:
        self._tower = tower
        self._bell = Bell(run)
        tower.hang(self._bell)

    def __aiter__(self) -> Self:
        return self

    async def aclose(self) -> None:
        self._tower.take_down(self._bell)

    def __del__(self) -> None:
        self._tower.take_down(self._bell)


class Follower(_Listener, AsyncIterator[Recorded]):
    """Every event of a run above `after`, without gaps or repeats, and then each new one."""

    def __init__(
        self, tower: Tower, run: str, after: int, read: Callable[[str, int, int], Awaitable[tuple[Recorded, ...]]]
    ) -> None:
        super().__init__(tower, run)
        self._run = run
        self._after = after
        self._read = read
        self._ready: deque[Recorded] = deque()
        self._is_behind = True
        """There may be events in the journal that were not read yet."""

    async def __anext__(self) -> Recorded:
        while not self._ready:
            if self._is_behind:
                page = await self._read(self._run, self._after, PAGE)
                self._ready.extend(page)
                self._is_behind = len(page) == PAGE
            else:
                await self._bell.wait()
                self._is_behind = self._bell.news.get(self._run, 0) > self._after
        record = self._ready.popleft()
        self._after = record.seq
        return record


class Changes(_Listener, AsyncIterator[frozenset[str]]):
    """Which runs got new events, by whomever, since the last time round."""

    def __init__(self, tower: Tower, check_open: Callable[[], None]) -> None:
        super().__init__(tower, None)
        self._check_open = check_open

    async def __anext__(self) -> frozenset[str]:
        while not self._bell.news:
            self._check_open()
            await self._bell.wait()
        changed = frozenset(self._bell.news)
        self._bell.news.clear()
        return changed
