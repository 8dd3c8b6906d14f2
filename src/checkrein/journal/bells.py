"""Waking those who follow along when something was committed.

A bell belongs to one iterator, and is rung from any thread with what is new. It keeps that until the iterator looks, so
ringing before anybody waits is not lost. The iterator takes nothing on trust: what does not continue where it stands
makes it read the journal.

An iterator that is closed, or simply dropped, takes its bell down; nobody rings or polls for it any more.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Self

from checkrein.journal.contract import Recorded

PAGE: Final = 500
"""How many events a follower reads at a time, and about how many it lets pile up."""

LOOK_SECONDS = 2.0
"""After this long without news a follower looks for itself: the second line of defence against a bell not rung."""

News = Mapping[str, Sequence[Recorded]]
"""What was committed, by run. Nothing for a run that has news means: too much to tell, look for yourself."""


class Bell(ABC):
    """Something in one event loop that can be woken from any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._rung = asyncio.Event()

    @abstractmethod
    def announce(self, news: News) -> None:
        """Ring if there is something in `news` for this bell. Called from any thread."""

    @abstractmethod
    def keep(self, news: Any) -> None:
        """Keep what it was rung with. Called in its loop."""

    def ring(self, news: Any) -> None:
        if threading.get_ident() == self._thread:
            self._hear(news)
            return
        # A loop that has ended has nobody left to wake.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._hear, news)

    def _hear(self, news: Any) -> None:
        self.keep(news)
        self._rung.set()

    async def wait(self) -> None:
        """Return once it was rung since the last time."""
        await self._rung.wait()
        self._rung.clear()

    async def wait_a_while(self) -> bool:
        """`wait`, but not for ever; whether it was rung."""
        if not self._rung.is_set():
            # A timer of the loop: a cancel scope for each wait would cost several times as much.
            late: list[bool] = []
            timer = self._loop.call_later(LOOK_SECONDS, self._give_up, late)
            try:
                await self._rung.wait()
            finally:
                timer.cancel()
            if late:
                self._rung.clear()
                return False
        self._rung.clear()
        return True

    def _give_up(self, late: list[bool]) -> None:
        if not self._rung.is_set():
            late.append(True)
            self._rung.set()


class RunBell(Bell):
    """Rung with the new events of one run."""

    def __init__(self, run: str) -> None:
        super().__init__()
        self.run = run
        self.records: list[Recorded] = []
        self.has_more = False
        """There is more than `records`."""

    def announce(self, news: News) -> None:
        records = news.get(self.run)
        if records is not None:
            self.ring(records)

    def keep(self, news: Sequence[Recorded]) -> None:
        if news and len(self.records) < PAGE:
            self.records.extend(news)
        else:
            self.has_more = True

    def take(self) -> tuple[list[Recorded], bool]:
        """What it was rung with since the last time, and whether there is more."""
        taken = self.records, self.has_more
        self.records, self.has_more = [], False
        return taken


class EveryBell(Bell):
    """Rung with the ids of runs that have new events."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: set[str] = set()

    def announce(self, news: News) -> None:
        self.ring(news.keys())

    def keep(self, news: Sequence[str]) -> None:
        self.runs.update(news)


class Tower:
    """Every bell of a journal. Its methods may be called from any thread."""

    def __init__(self) -> None:
        # Only ever changed by single operations that the interpreter does not interrupt, and copied to be walked: a
        # bell may be taken down by the garbage collector in the middle of anything, where no lock could be waited for.
        self._bells: dict[Bell, None] = {}

    @property
    def is_listened_to(self) -> bool:
        return bool(self._bells)

    def followed(self) -> set[str]:
        """The runs that somebody follows."""
        return {bell.run for bell in self._bells.copy() if isinstance(bell, RunBell)}

    def hang(self, bell: Bell) -> None:
        self._bells[bell] = None

    def take_down(self, bell: Bell) -> None:
        self._bells.pop(bell, None)

    def announce(self, news: News) -> None:
        """Tell whoever listens what was committed."""
        for bell in self._bells.copy():
            bell.announce(news)

    def ring_all(self) -> None:
        """The journal closes: everybody should look, and find out."""
        for bell in self._bells.copy():
            bell.ring(())


class _Listener:
    """An iterator whose bell hangs as long as the iterator lives and is not closed."""

    def __init__(self, tower: Tower, bell: Bell) -> None:
        self._tower = tower
        self._hanging = bell
        tower.hang(bell)

    def __aiter__(self) -> Self:
        return self

    async def aclose(self) -> None:
        self._tower.take_down(self._hanging)

    def __del__(self) -> None:
        self._tower.take_down(self._hanging)


class Follower(_Listener, AsyncIterator[Recorded]):
    """Every event of a run above `after`, without gaps or repeats, and then each new one."""

    def __init__(
        self, tower: Tower, run: str, after: int, read: Callable[[str, int, int], Awaitable[tuple[Recorded, ...]]]
    ) -> None:
        self._bell = RunBell(run)
        super().__init__(tower, self._bell)
        self._read = read
        self._last = after
        self._ready: deque[Recorded] = deque()
        self._is_behind = True
        """There may be events in the journal that it was not told of."""

    async def __anext__(self) -> Recorded:
        while not self._ready:
            if self._is_behind:
                page = await self._read(self._bell.run, self._last, PAGE)
                self._is_behind = False
                self._take_in(page, has_more=len(page) == PAGE)
            else:
                self._is_behind = not await self._bell.wait_a_while()
                self._take_in(*self._bell.take())
        return self._ready.popleft()

    def _take_in(self, records: Sequence[Recorded], has_more: bool) -> None:
        self._is_behind |= has_more
        for record in records:
            if record.seq == self._last + 1:
                self._ready.append(record)
                self._last = record.seq
            elif record.seq > self._last:
                self._is_behind = True


class Changes(_Listener, AsyncIterator[frozenset[str]]):
    """Which runs got new events, by whomever, since the last time round."""

    def __init__(self, tower: Tower, check_open: Callable[[], None]) -> None:
        self._bell = EveryBell()
        super().__init__(tower, self._bell)
        self._check_open = check_open

    async def __anext__(self) -> frozenset[str]:
        while not self._bell.runs:
            self._check_open()
            await self._bell.wait()
        changed = frozenset(self._bell.runs)
        self._bell.runs.clear()
        return changed
