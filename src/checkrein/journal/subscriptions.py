"""Subscribe to a run, or to all: waking (notify) those who follow along when something was committed.

A bell belongs to one iterator, and is rung from any thread with what is new. It keeps that until the iterator looks, so
ringing before anybody waits is not lost. The iterator takes nothing on trust: what does not continue where it stands
makes it read the journal.

An iterator that is closed, or simply dropped, takes its bell down; nobody rings or polls for it any more.

A bell that was not rung although it should have been is noticed soon: all runs that are followed are asked about, in
one question for each event loop.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Container, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, Self

from checkrein.asyncutil import outside, start
from checkrein.journal.admission import URGENT
from checkrein.journal.base import Recorded, Wants

PAGE: Final = 500
"""How many events a follower reads at a time, and about how many it lets pile up."""

LOOK_SECONDS = 2.0
"""How often it is asked whether there is news that a follower was not told of: the second line of defence against a
bell not rung."""
LOOKED_AT: Final = 500
"""Of how many runs that is asked at once."""

Heads = Callable[[Sequence[str]], Awaitable[Mapping[str, int]]]
"""How many events each of these runs has; of one that there is not, nothing."""
News = Mapping[str, Sequence[Recorded]]
"""What was committed, by run. Nothing for a run that has news means: too much to tell, look for yourself."""


class Subscription(ABC):
    """Something in one event loop that can be woken from any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._rung = asyncio.Event()

    @abstractmethod
    def announce(self, news: News) -> None:
        """Ring if there is something in `news` for this bell. Called from any thread."""

    @abstractmethod
    def keep(self, news: Any) -> bool:
        """Keep what it was rung with, and say whether whoever waits should look. Called in its loop."""

    def ring(self, news: Any) -> None:
        if threading.get_ident() == self._thread:
            self._hear(news)
            return
        # A loop that has ended has nobody left to wake.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._hear, news)

    def _hear(self, news: Any) -> None:
        if self.keep(news):
            self._rung.set()

    async def wait(self) -> None:
        """Return once it was rung since the last time."""
        await self._rung.wait()
        self._rung.clear()

    def is_of(self, loop: asyncio.AbstractEventLoop) -> bool:
        return self._loop is loop

    async def wait_a_while(self, seconds: float) -> bool:
        """`wait`, but no longer than so; whether it was rung."""
        if not self._rung.is_set():
            # A timer of the loop: a cancel scope for each wait would cost several times as much.
            late: list[bool] = []
            timer = self._loop.call_later(seconds, self._give_up, late)
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


class RunSubscription(Subscription):
    """Rung with the new events of one run. Keeps those that are wanted, as far as they continue where it stands."""

    def __init__(self, run: str, after: int, wants: Wants | None) -> None:
        super().__init__()
        self.run = run
        self.last = after
        self.ready: deque[Recorded] = deque()
        self.is_behind = True
        """There may be events in the journal that it was not told of."""
        self._wants = wants
        self._later: deque[Sequence[Recorded]] = deque()
        self._told = 0
        """How often it was rung; the latest of that is in `_later`."""

    def announce(self, news: News) -> None:
        records = news.get(self.run)
        if records is not None:
            self.ring(records)

    def _hear(self, news: Sequence[Recorded]) -> None:
        if self._wants is None:
            return super()._hear(news)
        self._later.append(news)
        self._told += 1
        if any(type(record.event) in URGENT for record in news):
            self._hear_until(self._told)
        else:  # whoever has made them may be about to take them in: each has a turn of its own for that
            self._loop.call_soon(self._hear_until, self._told)

    def _hear_until(self, told: int) -> None:
        while self._later and self._told - len(self._later) < told:
            super()._hear(self._later.popleft())

    def keep(self, news: Sequence[Recorded]) -> bool:
        if news and len(self.ready) < PAGE:
            self.take_in(news)
        else:
            self.is_behind = True
        return self.is_behind or bool(self.ready)

    def look(self) -> None:
        """Have whoever waits read the journal."""
        self.is_behind = True
        self._rung.set()

    def take_in(self, records: Sequence[Recorded]) -> None:
        for record in records:
            if record.seq == self.last + 1:
                self.last = record.seq
                if self._wants is None or self._wants(record):
                    self.ready.append(record)
            elif record.seq > self.last:
                self.is_behind = True


class AllRunsSubscription(Subscription):
    """Rung with the ids of runs that have new events."""

    def __init__(self, except_for: Container[str]) -> None:
        super().__init__()
        self.runs: set[str] = set()
        self._except_for = except_for

    def announce(self, news: News) -> None:
        runs = [run for run in news if run not in self._except_for]
        if runs:
            self.ring(runs)

    def keep(self, news: Sequence[str]) -> bool:
        self.runs.update(news)
        return True


class TextSubscription(Subscription):
    """Rung with the ids of runs of which text was written; with None where it is not known which."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: set[str] | None = set()

    def announce(self, news: News) -> None:
        """Events are not what it is for."""

    def keep(self, news: Collection[str] | None) -> bool:
        self.runs = None if self.runs is None or news is None else self.runs.union(news)
        return True


class OperationSubscription(Subscription):
    """Rung when an operation was recorded."""

    def announce(self, news: News) -> None:
        """Events are not what it is for."""

    def keep(self, news: Any) -> bool:
        return True


class Subscriptions:
    """Every bell of a journal. Its methods may be called from any thread."""

    def __init__(self) -> None:
        # Only ever changed by single operations that the interpreter does not interrupt, and copied to be walked: a
        # bell may be taken down by the garbage collector in the middle of anything, where no lock could be waited for.
        self._bells: dict[Subscription, None] = {}
        self._looks: dict[asyncio.AbstractEventLoop, _Look] = {}
        """For each event loop in which somebody follows a run. It alone changes its own entry."""

    @property
    def is_listened_to(self) -> bool:
        return bool(self._bells)

    def followed(self) -> set[str]:
        """The runs that somebody follows."""
        return {bell.run for bell in self._bells.copy() if isinstance(bell, RunSubscription)}

    def hang(self, bell: Subscription) -> None:
        self._bells[bell] = None

    def take_down(self, bell: Subscription) -> None:
        self._bells.pop(bell, None)

    def look_after(self, heads: Heads) -> None:
        """Have the followers of the running event loop looked after, as long as there are any."""
        loop = asyncio.get_running_loop()
        if loop not in self._looks:
            self._looks[loop] = _Look(self, loop, heads)

    def looked_after(self, loop: asyncio.AbstractEventLoop) -> list[RunSubscription]:
        """Who follows a run in this event loop, and waits to be told; nobody looks after them if there are none."""
        there = [bell for bell in self._bells.copy() if isinstance(bell, RunSubscription) and bell.is_of(loop)]
        if not there:
            del self._looks[loop]
        return there

    def announce(self, news: News) -> None:
        """Tell whoever listens what was committed."""
        for bell in self._bells.copy():
            bell.announce(news)

    def announce_texts(self, runs: Collection[str] | None) -> None:
        """Tell whoever listens of which runs text was written; None: not known."""
        for bell in self._bells.copy():
            if isinstance(bell, TextSubscription):
                bell.ring(runs)

    def announce_operations(self) -> None:
        """Tell whoever listens that an operator did something."""
        for bell in self._bells.copy():
            if isinstance(bell, OperationSubscription):
                bell.ring(())

    def ring_all(self) -> None:
        """The journal closes: everybody should look, and find out."""
        for bell in self._bells.copy():
            bell.ring(())


class _Look:
    """Asks, now and then, whether a follower of one event loop was not told of something."""

    def __init__(self, tower: Subscriptions, loop: asyncio.AbstractEventLoop, heads: Heads) -> None:
        self._tower = tower
        self._loop = loop
        self._heads = heads
        self._asking: asyncio.Task[Mapping[str, int]] | None = None
        self._later()

    def _later(self) -> None:
        # Of no call: whoever followed first may have been a tool, and what belongs to a call ends with it.
        self._loop.call_later(LOOK_SECONDS, self._look, context=outside())

    def _look(self) -> None:
        bells = self._tower.looked_after(self._loop)
        if bells:
            waiting = [bell for bell in bells if not bell.is_behind]
            self._asking = start(self._ask({bell.run for bell in waiting}))
            self._asking.add_done_callback(partial(self._compare, waiting))

    async def _ask(self, runs: Collection[str]) -> Mapping[str, int]:
        names, found = list(runs), dict[str, int]()
        for first in range(0, len(names), LOOKED_AT):
            found.update(await self._heads(names[first : first + LOOKED_AT]))
        return found

    def _compare(self, waiting: Sequence[RunSubscription], asked: asyncio.Task[Mapping[str, int]]) -> None:
        self._asking = None
        if asked.cancelled():
            return  # the event loop ends
        # What stands in the way, and that there is no such run, each of them finds out by itself.
        found = {} if asked.exception() is not None else asked.result()
        for bell in waiting:
            if found.get(bell.run, bell.last + 1) > bell.last:
                bell.look()
        self._later()


class _Listener:
    """An iterator whose bell hangs as long as the iterator lives and is not closed."""

    def __init__(self, tower: Subscriptions, bell: Subscription) -> None:
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
    """Every event of a run above `after` that is wanted, without gaps or repeats, and then each new one."""

    def __init__(
        self,
        tower: Subscriptions,
        run: str,
        after: int,
        read: Callable[[str, int, int], Awaitable[tuple[Recorded, ...]]],
        heads: Heads,
        wants: Wants | None = None,
    ) -> None:
        self._bell = RunSubscription(run, after, wants)
        super().__init__(tower, self._bell)
        tower.look_after(heads)
        self._read = read

    async def __anext__(self) -> Recorded:
        bell = self._bell
        while not bell.ready:
            if bell.is_behind:
                await self._catch_up()
            else:
                await bell.wait()
        return bell.ready.popleft()

    async def _catch_up(self) -> None:
        bell = self._bell
        bell.is_behind = False
        try:
            page = await self._read(bell.run, bell.last, PAGE)
        except BaseException:
            bell.is_behind = True
            raise
        bell.take_in(page)
        bell.is_behind |= len(page) == PAGE


class Changes(_Listener, AsyncIterator[frozenset[str]]):
    """Which runs got new events, by whomever, since the last time round; not those in `except_for` at that time."""

    def __init__(self, tower: Subscriptions, check_open: Callable[[], None], except_for: Container[str] = ()) -> None:
        self._bell = AllRunsSubscription(except_for)
        super().__init__(tower, self._bell)
        self._check_open = check_open

    async def __anext__(self) -> frozenset[str]:
        while not self._bell.runs:
            self._check_open()
            await self._bell.wait()
        changed = frozenset(self._bell.runs)
        self._bell.runs.clear()
        return changed


class Texts(_Listener, AsyncIterator[frozenset[str] | None]):
    """Of which runs text was written since the last time round; None after `seconds()` without a word."""

    def __init__(self, tower: Subscriptions, seconds: Callable[[], float]) -> None:
        self._bell = TextSubscription()
        super().__init__(tower, self._bell)
        self._seconds = seconds

    async def __anext__(self) -> frozenset[str] | None:
        is_told = await self._bell.wait_a_while(self._seconds())
        runs, self._bell.runs = self._bell.runs, set()
        return frozenset(runs) if is_told and runs is not None else None


class Operated(_Listener, AsyncIterator[None]):
    """Comes round when an operation was recorded, and every so many seconds."""

    def __init__(self, tower: Subscriptions, seconds: float) -> None:
        self._bell = OperationSubscription()
        super().__init__(tower, self._bell)
        self._seconds = seconds

    async def __anext__(self) -> None:
        await self._bell.wait_a_while(self._seconds)
