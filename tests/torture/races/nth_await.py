"""Throwing a cancellation into a coroutine at its n-th await, for every n.

Whoever holds something must let go of it wherever it is cancelled. So a scene is played again and again: the coroutine
in it is cancelled at its first await, at its second, and so on, until it comes to its end undisturbed.

Each await is met in three ways. *At once*: as soon as it waits. *Midway*: a moment later, if it still waits; what it
waits for is then under way. *Answered*: the answer has come, and whoever waited is cancelled before they learn it; in
this way a lease that was claimed, or a process that was started, is lost.
"""

from __future__ import annotations

import asyncio
import itertools
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Generator
from enum import StrEnum
from types import coroutine
from typing import Any, Final, TypeVar

from tests.support.patience import PATIENCE_SECONDS

T = TypeVar("T")


MOMENT_SECONDS: Final = 0.001


class How(StrEnum):
    AT_ONCE = "as soon as it waits"
    MIDWAY = "a moment later"
    ANSWERED = "when the answer has just come"


class Cut:
    """Runs one coroutine, in a task of its own, and cancels it at its `number`-th await."""

    def __init__(self, number: int, how: How) -> None:
        self.number = number
        self.how = how
        self.awaits = 0
        """How many there were."""
        self.place = ""
        """Where it was cancelled, in words; empty when it was not."""
        self._task: asyncio.Task[Any]

    @property
    def was_reached(self) -> bool:
        return self.awaits >= self.number

    @property
    def was_made(self) -> bool:
        return bool(self.place)

    async def run(self, work: Coroutine[Any, Any, T], *, may_return: bool = False) -> T | None:
        """The result; None when it was cancelled. A cancellation may not be swallowed, unless `may_return`."""
        self._task = asyncio.get_running_loop().create_task(self._stepped(work))
        await asyncio.wait([self._task], timeout=PATIENCE_SECONDS)
        if not self._task.done():
            stack = "".join(traceback.format_list(traceback.extract_stack(self._task.get_stack()[-1])))
            self._task.cancel()
            raise AssertionError(f"Cancelled at {self}, it did not end:\n{stack}{_chain(work)}")
        if self._task.cancelled():
            return None
        assert may_return or not self.was_made, f"It was cancelled at {self}, and has swallowed that."
        result: T = self._task.result()
        return result

    async def _stepped(self, work: Coroutine[Any, Any, T]) -> T:
        return await _step(work, lambda waits_for: self._suspended(work, waits_for))

    def _suspended(self, work: Coroutine[Any, Any, Any], waits_for: Any) -> None:
        self.awaits += 1
        if self.awaits != self.number:
            return
        place = _chain(work)
        if self.how is How.AT_ONCE or waits_for is None:
            self._cancel(place)
        elif self.how is How.MIDWAY:
            asyncio.get_running_loop().call_later(MOMENT_SECONDS, self._cancel, place)
        else:
            waits_for.add_done_callback(lambda _: self._cancel(place))  # ahead of the task's own

    def _cancel(self, place: str) -> None:
        if self.awaits == self.number and not self._task.done():
            self.place = place
            self._task.cancel()

    def __str__(self) -> str:
        return f"await {self.number}, {self.how}, in {self.place or 'none'}"


@coroutine
def _step(work: Coroutine[Any, Any, T], suspended: Callable[[Any], None]) -> Generator[Any, None, T]:
    """Await `work`, and tell each time that it is suspended, and for what."""
    error: BaseException | None = None
    while True:
        try:
            waits_for = work.send(None) if error is None else work.throw(error)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        error = None
        suspended(waits_for)
        try:
            yield waits_for
        except BaseException as thrown:
            error = thrown


def _chain(work: Any) -> str:
    """Where a suspended coroutine stands, from the outside to the inside."""
    places = []
    while work is not None:
        frame = getattr(work, "cr_frame", None) or getattr(work, "ag_frame", None) or getattr(work, "gi_frame", None)
        if frame is not None:
            places.append(f"{frame.f_code.co_qualname}:{frame.f_lineno}")
        work = getattr(work, "cr_await", None) or getattr(work, "ag_await", None) or getattr(work, "gi_yieldfrom", None)
    return " > ".join(places) or "?"


Scene = Callable[[Cut], Awaitable[None]]
CutEverywhere = Callable[[str, Scene], Awaitable[None]]
"""What tests are given: the name of a coroutine, and a scene in which it is cut."""


async def at_every_await(scene: Scene, *, stride: int = 1, offset: int = 0) -> int:
    """Play `scene` with a cut at every await of its coroutine; return how many there are.

    With a `stride`, at every so many-th, not the same ones in every way of cutting, and at one of them in any case.
    """
    most = cuts = 0
    for place, how in enumerate(How):
        for number in itertools.count(1 + (offset + place) % stride, stride):
            cut = await _played(scene, Cut(number, how))
            if not cut.was_reached:
                most = max(most, cut.awaits)
                break
            cuts += 1
    if not cuts and most:
        await _played(scene, Cut(1 + offset % most, list(How)[offset % len(How)]))
    return most


async def _played(scene: Scene, cut: Cut) -> Cut:
    try:
        await scene(cut)
    except BaseException as error:
        error.add_note(f"cut at {cut}")
        raise
    return cut
