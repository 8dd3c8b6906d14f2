"""Nothing that a driver does keeps a person from stopping it.

A driver whose event loop hangs while a stop waits for it usually ends itself (`runtime.pulse`). Where it cannot, as
code in C keeps the interpreter, or the process is frozen, the front does it: only when the driver does not answer *and*
a stop of one of its runs has waited for longer than the grace, or an operator has halted one. The same goes for a verb
that cannot even be accepted: a driver that stands still in the middle of a commit keeps the store locked.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from checkrein.control.verbs import Control
from checkrein.core.events import RunStarted
from checkrein.core.words import Status, Verb
from checkrein.errors import JournalError
from checkrein.journal.contract import Journal
from checkrein.runtime.pulse import GRACE_SECONDS
from checkrein.server.front.slots import Slot, Slots

WHY: Final = "did not answer while a stop waited for it, and was killed; what it was doing is in doubt"
_BEAT_SECONDS: Final = 0.5
_PAGE: Final = 500
_STOPS: Final = (Verb.PAUSE, Verb.REDIRECT, Verb.CANCEL, Verb.ABORT)
_LIVE: Final = frozenset({Status.RUNNING, Status.PAUSING, Status.REDIRECTING, Status.CANCELLING})


class FrontControl(Control):
    """Control that knows for how long a verb has waited to be accepted."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._waiting: dict[object, float] = {}

    @property
    def waiting_seconds(self) -> float:
        """For how long the oldest one has waited; 0 when none waits."""
        return time.monotonic() - min(self._waiting.values()) if self._waiting else 0.0

    async def _take(self, *arguments: Any, **options: Any) -> Any:
        with self._noted():
            return await super()._take(*arguments, **options)

    @contextmanager
    def _noted(self) -> Iterator[None]:
        verb = object()
        self._waiting[verb] = time.monotonic()
        try:
            yield
        finally:
            del self._waiting[verb]


class Sentry:
    """Watches the drivers of a server, in its event loop."""

    def __init__(
        self, slots: Slots, journal: Journal, control: FrontControl, *, grace_seconds: float = GRACE_SECONDS
    ) -> None:
        self._slots = slots
        self._journal = journal
        self._control = control
        self._grace_seconds = grace_seconds

    async def watch(self) -> None:
        """Ping every driver, and end the one that stands in the way of a stop. Never returns."""
        while True:
            began = time.monotonic()
            await asyncio.sleep(_BEAT_SECONDS)
            stood_still = time.monotonic() - began > 4 * _BEAT_SECONDS
            for slot in self._slots.each:
                if stood_still:
                    slot.forgive()
                slot.ping()
                if slot.silent_seconds >= self._grace_seconds and await self._is_in_the_way(slot):
                    slot.kill(WHY)

    async def _is_in_the_way(self, slot: Slot) -> bool:
        if self._control.waiting_seconds >= self._grace_seconds:
            return True
        try:
            return await self._has_waiting_stop(slot) or await self._was_halted(slot)
        except JournalError:
            return False

    async def _has_waiting_stop(self, slot: Slot) -> bool:
        before: str | None = None
        while rows := await self._journal.runs(status=_LIVE, limit=_PAGE, before=before):
            for row in rows:
                lease = await self._journal.lease(row.id)
                if lease is not None and slot.is_it(lease.owner) and await self._is_waited_for(row.id):
                    return True
            before = rows[-1].id
        return False

    async def _is_waited_for(self, run: str) -> bool:
        verb = (await self._journal.load(run)).pending(*_STOPS)
        return verb is not None and verb.accepted_at <= self._since()

    async def _was_halted(self, slot: Slot) -> bool:
        """Whether an operator has halted a run, and this driver has not said yet that it has stopped its calls."""
        for row in await self._journal.runs(status={Status.KILLED}, limit=_PAGE):
            state = await self._journal.load(row.id)
            epochs = {epoch for doubt in state.doubts.values() for epoch in doubt.unanswered}
            if epochs and row.changed_at <= self._since():
                for record in await self._journal.read(row.id):
                    event = record.event
                    if isinstance(event, RunStarted) and event.epoch in epochs and slot.has_pid(event.pid):
                        return True
        return False

    def _since(self) -> float:
        return time.time() - self._grace_seconds
