"""What the writer is asked to do, and in which order it is done.

A job is performed inside a transaction that it shares with others. It raises a `CheckreinError` only before it has
written anything, so that a refused job leaves its neighbours alone.
"""

from __future__ import annotations

import asyncio
import sqlite3
from abc import ABC, abstractmethod
from collections import deque
from enum import IntEnum
from queue import SimpleQueue
from typing import Any, Final, Generic, TypeVar

from checkrein.journal.contract import Recorded
from checkrein.journal.sqlite.heads import Heads

T_co = TypeVar("T_co", covariant=True)

LARGEST_BATCH: Final = 256
LARGEST_BATCH_WITH_A_VERB: Final = 32
"""A verb is waited for by a person: little may ride along."""


class Lane(IntEnum):
    VERB = 0
    ORDINARY = 1
    IDLE = 2
    """Only when there is nothing else to do."""


class Transaction:
    """What a job works with. `news` is told to followers after the commit: the new events of each run."""

    def __init__(
        self, cursor: sqlite3.Cursor, heads: Heads, *, is_full: bool = False, is_careful: bool = False
    ) -> None:
        self.cursor = cursor
        self.heads = heads
        self.is_full = is_full
        """There is no room: whatever can be refused should be."""
        self.is_careful = is_careful
        """Something went wrong before: look first, and only then write."""
        self.news: dict[str, list[Recorded]] = {}
        self.first = 0
        self.last = 0
        """The positions of the events in this transaction; 0 when there are none."""


class Job(ABC, Generic[T_co]):
    """One thing to write."""

    lane: Lane = Lane.ORDINARY
    is_dispensable: bool = False
    """It, or part of it, is refused when the disk is full."""
    future: asyncio.Future[Any] | None

    @abstractmethod
    def perform(self, tx: Transaction) -> T_co: ...

    def recall(self, tx: Transaction) -> T_co | None:
        """The answer, if this job was done before; None when it was not, or when doing it again does no harm."""
        return None


class _Call:
    """Not a job: somebody wants the taker's attention."""


class Lanes:
    """The jobs that wait. Anybody puts, one thread takes."""

    def __init__(self) -> None:
        self._inbox: SimpleQueue[Job[Any] | _Call | None] = SimpleQueue()
        self._is_called = False
        self._lanes: tuple[deque[Job[Any]], ...] = tuple(deque() for _ in Lane)
        self._is_closing = False

    def put(self, job: Job[Any]) -> None:
        self._inbox.put(job)

    def call(self) -> None:
        """Have the next `wait` return, whether or not there is something to take."""
        self._inbox.put(_Call())

    def close(self) -> None:
        """Nothing more is put; what is there will still be taken."""
        self._inbox.put(None)

    def is_empty(self) -> bool:
        """Whether nothing waits. May be asked from any thread, and may be wrong a moment later."""
        return self._inbox.empty() and not any(self._lanes)

    def wait(self) -> bool:
        """Wait until there is something to take; False when there never will be again."""
        while not any(self._lanes) and not self._is_called:
            if self._is_closing:
                return False
            self._sort(self._inbox.get())
        self._is_called = False
        return True

    def has_verb(self) -> bool:
        while not self._inbox.empty():
            self._sort(self._inbox.get())
        return bool(self._lanes[Lane.VERB])

    def take(self) -> list[Job[Any]]:
        """The next batch: verbs first, and what is idle only when there is nothing else."""
        largest = LARGEST_BATCH_WITH_A_VERB if self.has_verb() else LARGEST_BATCH
        verbs, ordinary, idle = self._lanes
        batch: list[Job[Any]] = []
        for lane in (verbs, ordinary):
            while lane and len(batch) < largest:
                batch.append(lane.popleft())
        return batch or [idle.popleft()]

    def _sort(self, job: Job[Any] | _Call | None) -> None:
        if job is None:
            self._is_closing = True
        elif isinstance(job, _Call):
            self._is_called = True
        else:
            self._lanes[job.lane].append(job)
