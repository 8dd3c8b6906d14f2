"""What the parts of a driver share: the run's state, its one writer, what is in flight, and the news."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

import msgspec

from checkrein.core import commands as c
from checkrein.core.effects import Effect
from checkrein.core.events import (
    DECIDING,
    ApprovalDecided,
    CallFinished,
    CheckAsked,
    EffectLeft,
    EffectReopened,
    EffectUndone,
    RunStarted,
)
from checkrein.core.orders import may_permit
from checkrein.core.state import State
from checkrein.core.words import Outcome, Status, Verb
from checkrein.errors import RunOver
from checkrein.journal.contract import Journal, Lease, Recorded
from checkrein.runtime.scribe import CommandRefused, OwnershipLost, Scribe
from checkrein.runtime.spec import Ended, Performance


class Flight(msgspec.Struct):
    """A call that this driver is making right now."""

    call: str
    performance: Performance
    aborting: asyncio.Task[object] | None = None


class Desk:
    """`stir` is set whenever there may be something to do."""

    def __init__(
        self,
        journal: Journal,
        lease: Lease,
        state: State,
        clock: Callable[[], float],
        holds: Callable[[], bool] = lambda: True,
    ) -> None:
        """`holds` says whether the lease still holds, by this process's own clock."""
        self.journal = journal
        self.lease = lease
        self.stir = asyncio.Event()
        self.flights: dict[str, Flight] = {}
        self.held: frozenset[str] = frozenset()
        """Calls that are frozen."""
        self.endings: dict[str, Ended] = {}
        """How calls of this driver ended, as far as the journal does not know it yet."""
        self.scribe = Scribe(journal, state, lease.epoch, self._heard, self.stir.set)
        self.tasks: set[asyncio.Task[Any]] = set()
        self.decisions: dict[str, ApprovalDecided] = {}
        """What people have said about approvals since this driver began."""
        self.checked: set[str] = set()
        """Calls in doubt whose tool has been asked whether they happened."""
        self.noted: set[str] = set()
        """The ids under which this driver has noted the ends of calls. Another one may end another attempt."""
        self.told: set[str] = set()
        """Calls whose end this driver has recorded. One that could not be stopped is answered for when it has ended."""
        self.wanted: set[str] = set()
        """Effects whose undo a person has asked for on its own."""
        self._clock = clock
        self._holds = holds
        self._ids = 0
        self._changed: set[asyncio.Future[None]] = set()
        self._is_closed = False

    @property
    def state(self) -> State:
        return self.scribe.state

    @property
    def run(self) -> str:
        return self.lease.run

    def now(self) -> float:
        return self._clock()

    def new_id(self, what: str) -> str:
        """An id that no other driver of this run makes."""
        self._ids += 1
        return f"{what}.{self.lease.epoch}.{self._ids}"

    # -- owning

    def is_ours(self) -> bool:
        """Whether this driver may begin something. When its lease is over it is lost, whoever has noticed by then."""
        if not self.scribe.is_lost and not self._holds():
            self.lose()
        return not self.scribe.is_lost

    def lose(self) -> None:
        """Somebody else drives the run by now, or soon may: begin nothing more, and record nothing more."""
        self.scribe.lose()

    # -- doing

    async def try_to(self, command: c.Command) -> bool:
        """Whether a command was taken."""
        try:
            await self.scribe.do(command)
        except (CommandRefused, RunOver):
            return False
        return True

    async def ended_within(self, seconds: float, call: str, performance: Performance) -> Ended:
        """How an undo or a check ended. One that takes longer is stopped, and has failed."""
        self.flights[call] = Flight(call, performance)
        try:
            async with asyncio.timeout(seconds):
                return await performance.ended()
        except TimeoutError:
            await performance.abort()
            return Ended(outcome=Outcome.FAILED, error=f"it did not end within {seconds:g} s")
        finally:
            self.flights.pop(call, None)

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Do something beside; it ends with the driver at the latest."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        self.stir.set()
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, OwnershipLost):
            told = {"message": f"Something of run {self.run} failed", "exception": error, "task": task}
            asyncio.get_running_loop().call_exception_handler(told)

    def look(self) -> None:
        """Have the driver look whether there is something to do, unless nothing can have changed for it."""
        state = self.scribe.state
        if state.verbs or state.doubts or self.held or self.wanted or state.is_finished:
            self.stir.set()

    # -- waiting

    def _heard(self, record: Recorded) -> None:
        """Something was committed: look whether there is anything to do, and let those who wait look again."""
        match record.event:
            case ApprovalDecided(call=call):
                self.decisions[call] = record.event
            case RunStarted(epoch=epoch) if epoch > self.lease.epoch:
                self.lose()
            case CheckAsked(call=call):
                self.checked.discard(call)
            case EffectReopened(effect=effect, undo=True):
                self.wanted.add(effect)
            case EffectUndone(effect=effect) | EffectLeft(effect=effect):
                self.wanted.discard(effect)
            case CallFinished(call=call, abandoned=abandoned, id=id):
                if id in self.noted:
                    self.told.add(call)
                if not abandoned and not self.scribe.is_lost:  # afterwards it is somebody else's attempt that has ended
                    self.endings.pop(call, None)
                elif call in self.flights:
                    self.lose()
        if type(record.event) in DECIDING:
            self.stir.set()
        else:
            self.look()
        changed, self._changed = self._changed, set()
        for waiter in changed:
            if not waiter.done():
                waiter.set_result(None)

    async def change(self, since: int | None = None) -> None:
        """Return at the next change of the run; at once if there was one since it stood at `since`."""
        if since is not None and self.scribe.committed.seq != since:
            return
        if self._is_closed:
            raise OwnershipLost
        waiter = asyncio.get_running_loop().create_future()
        self._changed.add(waiter)
        await waiter

    async def the_end(self) -> NoReturn:
        """Wait until the driver is over, and be cancelled then."""
        while True:
            await self.change()

    def close(self) -> None:
        """The driver is over: whoever still waits, such as a task that the program has left behind, is cancelled."""
        self._is_closed = True
        for waiter in self._changed:
            waiter.cancel()

    async def gate(self) -> None:
        """Wait until the run may begin calls."""
        seen = self.scribe.committed.seq
        while not may_permit(self.state, await self.effects()):
            await self.change(seen)  # it may have changed while the ledger was being read
            seen = self.scribe.committed.seq

    async def effects(self) -> tuple[Effect, ...]:
        """The ledger, where it can matter."""
        state = self.state
        is_stopping = state.is_finished or state.status is Status.CANCELLING
        if not is_stopping and not self.wanted and state.pending(Verb.REDIRECT) is None:
            return ()
        await self.scribe.flush()  # the ledger knows only what is committed
        return await self.journal.effects(self.run)
