"""When a verb comes: after so many rounds of the event loop, or just before or after something the driver does.

`Aim` finds the moment where both sides win equally often, so that most races are close.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from random import Random
from typing import Any, TypeVar

import msgspec

from checkrein.core.effects import Effect
from checkrein.core.events import Event, RunCreated, VerbAccepted
from checkrein.core.state import State
from checkrein.journal import MemoryJournal, SqliteJournal
from checkrein.journal.base import Appended, IfBusy, Lease, Recorded, RecordStream

T = TypeVar("T")

from_outside: ContextVar[bool] = ContextVar("from_outside", default=False)
"""Set in those who steer a run, so that only what its driver asks of the journal is counted."""


class Rounds(msgspec.Struct, frozen=True):
    """After so many rounds of the event loop since the run was asked for."""

    count: int

    async def wait(self) -> None:
        for _ in range(self.count):
            await asyncio.sleep(0)


class Turn(msgspec.Struct, frozen=True):
    """Just before, or just after, the `number`-th thing the driver asks of the journal. The driver is kept waiting
    until the verb is in the journal, or was refused."""

    number: int
    after: bool


Moment = Rounds | Turn


class Aim:
    """Where both sides win equally often, found on the way: quickly at first, then finely."""

    def __init__(self, dice: Random, start: float = 40.0) -> None:
        self._dice = dice
        self._centre = start
        self._learnt = 0

    def rounds(self) -> Rounds:
        return Rounds(max(0, round(self.moment() + self._dice.uniform(-2, 2))))

    def moment(self) -> float:
        """Most are close, some anywhere."""
        if self._dice.random() < 0.15:
            return self._dice.uniform(0, 2 * self._centre)
        return self._centre * self._dice.lognormvariate(0, 0.15)

    def learn(self, *, was_late: bool) -> None:
        """Completion won: the verb should have come earlier; or the other way round."""
        self._learnt += 1
        factor = 1 + max(0.06, 1.2 / (1 + self._learnt / 4))
        self._centre = self._centre / factor if was_late else self._centre * factor


class Meeting:
    """The driver waits at one of its turns until whoever meets it there has had their say."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.said = asyncio.Event()


class Gate:
    """Of one run: how often its driver has asked for something, and who meets it at which of these times."""

    def __init__(self) -> None:
        self.run = ""
        self.count = 0
        self.over = asyncio.Event()
        """The run is finished: whoever waits for a turn waits in vain."""
        self._meetings: dict[Turn, Meeting] = {}

    def meet(self, turn: Turn) -> Meeting:
        return self._meetings.setdefault(turn, Meeting())

    async def reach(self, number: int, *, after: bool) -> None:
        meeting = self._meetings.get(Turn(number, after))
        if meeting is not None:
            meeting.reached.set()
            await meeting.said.wait()

    def verb_is_in(self) -> None:
        """A verb was accepted, or has joined one that was: its driver may go on."""
        for meeting in self._meetings.values():
            if meeting.reached.is_set():
                meeting.said.set()

    def finished(self) -> None:
        self.over.set()
        for meeting in self._meetings.values():
            meeting.reached.set()


class _Gated:
    """A journal whose drivers can be met at any of their turns. Gates are found by the goal of their run."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.gates: dict[str, Gate] = {}
        self._of_run: dict[str, Gate] = {}

    async def _pass(self, run: str, work: Callable[[], Awaitable[T]]) -> T:
        gate = self._of_run.get(run)
        if gate is None or from_outside.get():
            return await work()
        gate.count += 1
        number = gate.count
        await gate.reach(number, after=False)
        try:
            return await work()
        finally:
            await gate.reach(number, after=True)

    async def create(self, event: RunCreated, *, if_busy: IfBusy = "queue") -> Recorded:
        gate = self.gates.pop(event.goal, None)
        if gate is not None:
            gate.run = event.run
            self._of_run[event.run] = gate
        return await super().create(event, if_busy=if_busy)  # type: ignore[misc,no-any-return]

    async def append(self, run: str, events: Sequence[Event], *, after: int, epoch: int | None = None) -> Appended:
        append = super().append  # type: ignore[misc]
        appended: Appended = await self._pass(run, lambda: append(run, events, after=after, epoch=epoch))
        if run in self._of_run and any(isinstance(event, VerbAccepted) for event in events):
            self._of_run[run].verb_is_in()
        return appended

    def follow(self, run: str, **kwargs: Any) -> RecordStream:
        if run in self._of_run and from_outside.get():  # somebody waits for a receipt
            self._of_run[run].verb_is_in()
        return super().follow(run, **kwargs)  # type: ignore[misc,no-any-return]

    async def read(self, run: str, *, after: int = 0, limit: int | None = None) -> tuple[Recorded, ...]:
        read = super().read  # type: ignore[misc]
        return await self._pass(run, lambda: read(run, after=after, limit=limit))

    async def load(self, run: str) -> State:
        load = super().load  # type: ignore[misc]
        return await self._pass(run, lambda: load(run))

    async def effects(self, run: str, *args: Any) -> tuple[Effect, ...]:
        effects = super().effects  # type: ignore[misc]
        return await self._pass(run, lambda: effects(run, *args))

    async def claim(self, run: str, *args: Any, **kwargs: Any) -> Lease:
        claim = super().claim  # type: ignore[misc]
        return await self._pass(run, lambda: claim(run, *args, **kwargs))

    async def release(self, lease: Lease, **kwargs: Any) -> None:
        release = super().release  # type: ignore[misc]
        await self._pass(lease.run, lambda: release(lease, **kwargs))


class GatedMemory(_Gated, MemoryJournal):
    """In memory."""


class GatedSqlite(_Gated, SqliteJournal):
    """In a file."""
