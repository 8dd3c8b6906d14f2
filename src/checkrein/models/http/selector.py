"""Reads of many streams coalesced: sockets that bring a token now and then are looked at together, at intervals.

An event loop that wakes for every token of two hundred streams spends more on waking than on the tokens. Here the
sockets of such streams have a selector of their own, which the event loop looks into at most every so often: half a
millisecond for every stream, and never longer than text of so many runs is held back on its way to a front anyway
(`server/processes/driver_link.py`). After a quiet time the first of them is read at once. Every other socket, and so
every verb, is heard at once.

Where few streams flow nothing is held back.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections import ChainMap
from collections.abc import Mapping
from typing import Any, Final

SECONDS_PER_STREAM: Final = 0.0005
SECONDS_AT_MOST: Final = 0.1
FEWEST_STREAMS: Final = 10
"""With fewer there is nothing to gain."""

Ready = list[tuple[selectors.SelectorKey, int]]


class CoalescingSelector(selectors.BaseSelector):
    """`eager` with a second selector inside it, for descriptors that may wait. Use it in the thread of its event loop.

    Whoever registers a descriptor need not know of this: one that is to be written to, or is registered anew, is eager.
    """

    def __init__(self, eager: selectors.BaseSelector) -> None:
        self._eager = eager
        self._patient = selectors.DefaultSelector()
        self._both: Mapping[Any, selectors.SelectorKey] = ChainMap(
            self._eager.get_map(),  # type: ignore[arg-type]
            self._patient.get_map(),  # type: ignore[arg-type]
        )
        self._nested = self._eager.register(self._patient, selectors.EVENT_READ)
        self._look_at: float | None = None
        """When the patient ones are looked at next. None: as soon as one of them is ready, which `eager` says."""

    # -- which may wait

    def coalesce(self, descriptor: int) -> None:
        """Let this one wait, as long as it is only read from."""
        try:
            key = self._eager.get_key(descriptor)
        except (KeyError, ValueError):  # it waits already, or is not read at the moment
            return
        if key.events == selectors.EVENT_READ:
            self._eager.unregister(descriptor)
            self._patient.register(key.fileobj, key.events, key.data)

    def release(self, descriptor: int) -> None:
        """Let it wait no longer."""
        if self._is_patient(descriptor):
            key = self._patient.unregister(descriptor)
            self._eager.register(key.fileobj, key.events, key.data)

    def _is_patient(self, descriptor: Any) -> bool:
        try:
            return descriptor in self._patient.get_map()
        except ValueError:  # closed
            return False

    def _seconds(self) -> float:
        """How long they wait, as many as they are."""
        count = len(self._patient.get_map())
        return min(SECONDS_AT_MOST, SECONDS_PER_STREAM * count) if count >= FEWEST_STREAMS else 0.0

    # -- what an event loop asks of a selector

    def select(self, timeout: float | None = None) -> Ready:
        if self._look_at is None:
            ready = self._eager.select(timeout)
            return self._with_patient(ready) if any(key.fd == self._nested.fd for key, _ in ready) else ready
        wait = max(0.0, self._look_at - time.monotonic())
        ready = self._eager.select(wait if timeout is None or wait < timeout else timeout)
        return self._with_patient(ready) if time.monotonic() >= self._look_at else ready

    def _with_patient(self, ready: Ready) -> Ready:
        """`ready`, and those of the patient ones that are; then the next interval begins, or a quiet time."""
        patient = self._patient.select(0)
        seconds = self._seconds() if patient else 0.0
        if seconds and self._look_at is None:
            self._eager.unregister(self._patient)
        elif not seconds and self._look_at is not None:
            self._eager.register(self._patient, selectors.EVENT_READ)
        self._look_at = time.monotonic() + seconds if seconds else None
        return [*(one for one in ready if one[0].fd != self._nested.fd), *patient]

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        if self._is_patient(fileobj):
            raise KeyError(f"{fileobj!r} is registered already")
        return self._eager.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return (self._patient if self._is_patient(fileobj) else self._eager).unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        if not self._is_patient(fileobj):
            return self._eager.modify(fileobj, events, data)
        if events == selectors.EVENT_READ:
            return self._patient.modify(fileobj, events, data)
        self._patient.unregister(fileobj)
        return self._eager.register(fileobj, events, data)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._both

    def close(self) -> None:
        self._patient.close()
        self._eager.close()


def coalesce_reads(loop: asyncio.AbstractEventLoop) -> None:
    """Have the streams of models on `loop` read together from now on, if it is one with a selector that can be nested.

    For a process whose event loop is ours: what else goes on there must not mind that its selector is another one.
    """
    eager = getattr(loop, "_selector", None)
    if isinstance(eager, selectors.BaseSelector) and hasattr(selectors.DefaultSelector, "fileno"):
        loop._selector = CoalescingSelector(eager)  # type: ignore[attr-defined]


def coalescing(loop: asyncio.AbstractEventLoop) -> CoalescingSelector | None:
    """The selector of `loop`, where its reads are coalesced."""
    found = getattr(loop, "_selector", None)
    return found if isinstance(found, CoalescingSelector) else None
