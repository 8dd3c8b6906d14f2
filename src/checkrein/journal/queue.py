"""What a writer thread is asked to do, and in which order it is done: verbs first. What a thread that reads is asked.

Handing answers from a thread to the tasks that wait for them.
"""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from enum import IntEnum
from queue import SimpleQueue
from typing import Any, Concatenate, Final, Generic, NamedTuple, ParamSpec, TypeVar

from checkrein.journal import refusals

LARGEST_BATCH: Final = 256
LARGEST_BATCH_WITH_A_VERB: Final = 32
"""A verb is waited for by a person: little may ride along."""


class Lane(IntEnum):
    VERB = 0
    ORDINARY = 1
    IDLE = 2
    """Only when there is nothing else to do."""


class Queued:
    """Something to be done by a thread, for a task that may wait for it."""

    lane: Lane = Lane.ORDINARY
    future: asyncio.Future[Any] | None = None


Q = TypeVar("Q", bound=Queued)


class _Call:
    """Nothing to be done: somebody wants the taker's attention."""


class WriteQueue(Generic[Q]):
    """The jobs that wait. Anybody puts, one thread takes."""

    def __init__(self) -> None:
        self._inbox: SimpleQueue[Q | _Call | None] = SimpleQueue()
        self._is_called = False
        self._lanes: tuple[deque[Q], ...] = tuple(deque() for _ in Lane)
        self._is_closing = False

    def put(self, job: Q) -> None:
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

    def take(self) -> list[Q]:
        """The next batch: verbs first, and what is idle only when there is nothing else."""
        largest = LARGEST_BATCH_WITH_A_VERB if self.has_verb() else LARGEST_BATCH
        verbs, ordinary, idle = self._lanes
        batch: list[Q] = []
        for lane in (verbs, ordinary):
            while lane and len(batch) < largest:
                batch.append(lane.popleft())
        return batch or [idle.popleft()]

    def _sort(self, job: Q | _Call | None) -> None:
        if job is None:
            self._is_closing = True
        elif isinstance(job, _Call):
            self._is_called = True
        else:
            self._lanes[job.lane].append(job)


P = ParamSpec("P")
T = TypeVar("T")
C = TypeVar("C")
"""What a question is put to: a connection."""


class Question(NamedTuple):
    ask: Callable[[Any], Any]
    """Given the connection."""
    future: asyncio.Future[Any] | None
    """Who waits for the answer, if anybody does."""
    asked_at: float
    """By the monotonic clock."""


class ReadThread(ABC, Generic[C]):
    """A thread that reads. Questions are answered in the order they were asked."""

    def __init__(self, store: str) -> None:
        self._questions: SimpleQueue[Question | None] = SimpleQueue()
        self._gate = threading.Lock()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name=f"checkrein-reader {store}", daemon=True)

    # -- called by tasks

    def ask(self, question: Callable[Concatenate[C, P], T], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        """The answer of `question`, which gets a connection that sees everything committed so far."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        with self._gate:
            self.check_open()
            self._put(lambda connection: question(connection, *args, **kwargs), future)
        return future

    def check_open(self) -> None:
        if self._is_closed:
            raise refusals.closed()

    def close(self) -> None:
        """Answer what was asked, and end. Blocks until then."""
        with self._gate:
            if not self._is_closed:
                self._is_closed = True
                self._questions.put(None)
        self._thread.join()

    def _put(self, ask: Callable[[C], Any], future: asyncio.Future[Any] | None) -> None:
        self._questions.put(Question(ask, future, time.monotonic()))

    @abstractmethod
    def _run(self) -> None:
        """In the thread: answer questions until there is a None."""


Waiter = asyncio.Future[Any]
Answer = tuple[Waiter | None, Any]
"""Whoever waits, if anybody does, and what it is told; an exception is raised there."""


def tell_all(answers: Iterable[Answer]) -> None:
    """Give everybody their answer, waking each event loop once."""
    loops: dict[asyncio.AbstractEventLoop, list[tuple[Waiter, Any]]] = {}
    for future, answer in answers:
        if future is not None:
            loops.setdefault(future.get_loop(), []).append((future, answer))
    for loop, told in loops.items():
        with suppress(RuntimeError):  # the loop has ended, and with it everybody who waited
            loop.call_soon_threadsafe(settle, told)


def settle(told: Iterable[tuple[Waiter, Any]]) -> None:
    """Give answers to tasks of the event loop that this is called from."""
    for future, answer in told:
        if future.done():
            continue  # its task was cancelled; what was done stands
        if isinstance(answer, BaseException):
            future.set_exception(answer)
        else:
            future.set_result(answer)
