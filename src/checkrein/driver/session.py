"""What the parts of a driver share: the run's state, its one writer, the calls in flight, and the news."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from typing import Any, Final, NoReturn

from checkrein import asyncutil
from checkrein.core import commands as c
from checkrein.core.effects import Effect
from checkrein.core.enums import Decision, Status, Verb
from checkrein.core.events import (
    DECIDING,
    WITHDRAWS_APPROVALS,
    ApprovalDecided,
    ApprovalRequested,
    CallFinished,
    CallStarted,
    CheckAsked,
    EffectLeft,
    EffectReopened,
    EffectUndone,
    RunStarted,
    VerbAccepted,
    withdrawal,
)
from checkrein.core.orders import may_permit
from checkrein.core.state import State
from checkrein.driver.commits import CommandRefused, RunWriter
from checkrein.driver.ownership import Ownership, OwnershipLost
from checkrein.driver.patient_journal import PatientJournal
from checkrein.driver.running_calls import RunningCalls
from checkrein.errors import Fenced, RunOver, describe
from checkrein.journal.base import Journal, Recorded
from checkrein.processes.halt_flags import Flags

_log = logging.getLogger(__name__)

FENCED_SECONDS: Final = 0.25
"""How long to wait before what a fence has refused is tried again."""
HALTED_SECONDS: Final = 0.5
"""How often it is looked whether a halt is lifted."""
END_SECONDS: Final = 5.0
"""How long what goes on beside a driver, such as its program, may take to end once it is told to."""


class RunSession:
    """One run under one lease. `state` is where it stood when that was claimed, or before: the writer catches up."""

    def __init__(self, journal: Journal, ownership: Ownership, state: State, flags: Flags | None = None) -> None:
        self.journal: Journal = PatientJournal(journal, ownership)
        self.ownership = ownership

        # Set whenever there may be something to do for the driver, also after the run was lost.
        self.wake = asyncio.Event()

        # Invariant: nothing of the run is appended past it, but the last words of an owner that has lost.
        self.writer = RunWriter(self.journal, state, ownership, self._heard)

        self.calls = RunningCalls(
            self.writer,
            ownership,
            start=self.start,
            look=self.look,
            is_torn_down=lambda: self.is_torn_down,
            is_halted=lambda: self.is_halted,
        )

        # The flags of this host, and whether a halt that this process has read of covers the run.
        self._flags = flags
        self._is_halted = False

        # The task that drives the run, once it does.
        self.driving: asyncio.Task[Any] | None = None
        self._is_closing = False

        # What goes on beside the driver. Invariant: empty when the driver is over.
        self._tasks: set[asyncio.Task[Any]] = set()

        # Calls that a person is asked about, or has approved, and that have not begun.
        self._asked = set(state.approvals)

        # What people have said about approvals since this driver began, by the call. What they said before is in the
        # past that the program is played over.
        self._decisions: dict[str, ApprovalDecided] = {}

        # Calls in doubt whose tool has been asked whether they happened. Invariant: each is asked once, and once more
        # whenever a person wants it.
        self._checked: set[str] = set()

        # Effects whose undo a person has asked for on its own. Invariant: of a run that is neither finished nor being
        # cancelled, the ledger can matter only while this is not empty or a redirect is pending.
        self._wanted: set[str] = set()

        # Who waits for the next change. Invariant: empty, and nobody is added, once closed.
        self._waiters: set[asyncio.Future[None]] = set()
        self._is_closed = False

        ownership.when_lost(self._lost)

    @property
    def state(self) -> State:
        """The run with everything that this driver has noted, also what is not committed yet."""
        return self.writer.state

    @property
    def run(self) -> str:
        return self.ownership.run

    def now(self) -> float:
        return self.ownership.now()

    def new_id(self, what: str) -> str:
        """An id that no other driver of this run makes."""
        return self.ownership.new_id(what)

    @property
    def is_torn_down(self) -> bool:
        """Whether the driver itself is being cancelled: at a shutdown, or with everything else on the event loop.

        What ends from now on may have been cancelled by the same hand, and says nothing about itself by that.
        """
        return self.driving is not None and self.driving.cancelling() > 0

    @property
    def is_ending(self) -> bool:
        """Whether what goes on beside the driver is being told to end."""
        return self._is_closing or self.is_torn_down

    # -- halts

    @property
    def is_halted(self) -> bool:
        """Whether an operator's halt covers the run, as far as this process can tell: by the journal, or by a flag."""
        state = self.writer.state
        above = {state.run, state.parent or state.run, state.root or state.run}
        return self._is_halted or (
            self._flags is not None and self._flags.covers(runs=above, agent=state.agent, owner=state.owner)
        )

    @property
    def was_told_of_halt(self) -> bool:
        return self._is_halted

    def heed_halt(self, is_halted: bool) -> bool:
        """A halt covers the run: every call is stopped at once, and none begins. What ends the run is on its way. Or it
        does not any more: the run may go on where nothing has ended it. Whether a halt is news."""
        is_news = is_halted and not self._is_halted
        self._is_halted = is_halted
        if is_news and not self._is_closed:
            _log.info("an operator's halt covers the run: its calls are stopped", extra=self._about)
        if is_halted and not self._is_closed:
            self.calls.begin_to_let_go()
        return is_news

    async def until_not_halted(self) -> None:
        """Wait while a halt covers the run."""
        while self.is_halted:
            with suppress(TimeoutError):
                async with asyncio.timeout(HALTED_SECONDS):
                    await self.change()

    # -- losing

    def _lost(self) -> None:
        """Stop every call at once: the driver itself may be waiting for a store that does not answer."""
        self.wake.set()
        if not self._is_closed:
            self.start(self.calls.let_go())

    async def hand_over(self) -> None:
        """Stop every call and say what became of it. Returns when the journal has it."""
        endings = await self.calls.let_go()
        await self.writer.rest()  # what it has begun to write may still be taken
        await self.ownership.hand_over(endings, self.calls.has_recorded)

    # -- doing

    async def try_to(self, command: c.Command) -> bool:
        """Whether a command was taken."""
        try:
            await self.writer.commit(command)
        except (CommandRefused, RunOver) as refused:
            _log.debug("%s came to nothing: %s", type(command).__name__, refused, extra=self._about)
            return False
        except Fenced as fenced:
            _log.info("%s came to nothing: %s", type(command).__name__, fenced, extra=self._about)
            # A run above was cancelled, or an operator has halted: what ends this run is on its way. Until it is here
            # whoever tried this finds it due again at once.
            await asyncio.sleep(FENCED_SECONDS)
            return False
        return True

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Do something beside; it ends with the driver at the latest."""
        task = asyncutil.start(_contained(coroutine))
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        task.add_done_callback(lambda _: coroutine.close())  # one that was cancelled before it began was never awaited
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        self.wake.set()
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, OwnershipLost):
            told = {"message": f"Something of run {self.run} failed", "exception": error, "task": task}
            asyncio.get_running_loop().call_exception_handler(told)

    def look(self) -> None:
        """Have the driver look whether there is something to do, unless nothing can have changed for it."""
        state = self.writer.state
        if state.verbs or state.doubts or state.approvals or self.calls.held or self._wanted or state.is_finished:
            self.wake.set()

    async def close(self) -> None:
        """The driver is over: nothing of it goes on, and whoever still waits, such as a task that the program has left
        behind, is cancelled."""
        await self.calls.let_go()
        self._is_closing = True
        await self._end_tasks()
        try:
            await self.writer.flush()  # how they ended
        except OwnershipLost:
            _log.debug("what was noted last is not recorded: the run is lost", extra=self._about)
        self._is_closed = True
        for waiter in self._waiters:
            waiter.cancel()

    async def _end_tasks(self) -> None:
        """End what goes on beside. A program that swallows its cancellation is told twice, then nobody waits for it."""
        tasks = set(self._tasks)
        for _ in range(2):
            for task in tasks:
                task.cancel()
            if tasks:
                _, tasks = await asyncio.wait(tasks, timeout=END_SECONDS / 2)
        if not tasks:
            return
        _log.warning("%d tasks of the run do not end and are left alone", len(tasks), extra=self._about)
        try:
            await self.writer.flush()
        except OwnershipLost:
            _log.debug("what was noted last is not recorded: the run is lost", extra=self._about)
        self.ownership.lose("its program does not end")  # whatever it still asks for is refused
        for task in tasks:
            asyncutil.abandon(task)

    # -- remembering

    def has_decision(self, call: str) -> bool:
        """Whether a person has said something about an approval since this driver began."""
        return call in self._decisions

    def decision(self, call: str) -> ApprovalDecided:
        """What a person has said about an approval that is no longer pending."""
        return self._decisions[call]

    def must_check(self, call: str) -> bool:
        """Whether the tool of a call in doubt has yet to be asked whether it happened; it counts as asked from now."""
        if call in self._checked:
            return False
        self._checked.add(call)
        return True

    @property
    def wants_undo(self) -> bool:
        """Whether a person has asked for an undo on its own."""
        return bool(self._wanted)

    def want(self, effects: Iterable[Effect]) -> None:
        """Of these effects, some may be wanted undone since before this driver."""
        self._wanted.update(effect.id for effect in effects if effect.wanted)

    # -- waiting

    def _heard(self, record: Recorded) -> None:
        """Something was committed: look whether there is anything to do, and let those who wait look again."""
        match record.event:
            case ApprovalRequested(call=call):
                self._asked.add(call)
            case ApprovalDecided(call=call, decision=decision):
                self._decisions[call] = record.event
                if decision is not Decision.APPROVED:
                    self._asked.discard(call)
            case VerbAccepted(verb=verb) if verb in WITHDRAWS_APPROVALS:
                self._decisions |= {call: withdrawal(record.event, call) for call in self._asked}
                self._asked.clear()
            case CallStarted(call=call) as started:
                self._asked.discard(call)
                self.calls.permitted(started)
            case RunStarted(epoch=epoch) if epoch > self.ownership.epoch:
                self.ownership.lose(f"taken over with epoch {epoch}")
            case CheckAsked(call=call):
                self._checked.discard(call)
            case EffectReopened(effect=effect, undo=True):
                self._wanted.add(effect)
            case EffectUndone(effect=effect) | EffectLeft(effect=effect):
                self._wanted.discard(effect)
            case CallFinished():
                self.calls.heard(record.event)
        if type(record.event) in DECIDING:
            self.wake.set()
        else:
            self.look()
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def change(self, since: int | None = None) -> None:
        """Return at the next change of the run; at once if there was one since it stood at `since`."""
        if since is not None and self.writer.committed.seq != since:
            return
        if self._is_closed:
            raise OwnershipLost
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        await waiter

    async def wait_to_be_cancelled(self) -> NoReturn:
        """Wait until the driver is over, and be cancelled then."""
        while True:
            await self.change()

    async def until_permitted(self) -> None:
        """Wait until the run may begin calls."""
        seen = self.writer.committed.seq
        while not may_permit(self.state, await self.effects()):
            await self.change(seen)  # it may have changed while the ledger was being read
            seen = self.writer.committed.seq

    async def effects(self) -> tuple[Effect, ...]:
        """The ledger, where it can matter."""
        state = self.state
        is_stopping = state.is_finished or state.status is Status.CANCELLING
        if not is_stopping and not self._wanted and state.pending(Verb.REDIRECT) is None:
            return ()
        await self.writer.flush()  # the ledger knows only what is committed
        return await self.journal.effects(self.run)

    @property
    def _about(self) -> dict[str, object]:
        return {"run": self.run, "epoch": self.ownership.epoch}


async def _contained(work: Coroutine[Any, Any, Any]) -> Any:
    """What would end the event loop, and with it every other run, ends only this."""
    try:
        return await work
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(f"a run's own code ended with {describe(error)}") from error
