"""The one writer of a run: every command of its owner becomes events here, in the order it was given.

Load, decide, append: an owner does that in this loop and nowhere else. Whoever owns nothing uses `journal.commands`.

Commands that wait at the same time go into one append. A fact may be noted without waiting for it (`note`): it is
committed with the next command, or shortly after on its own. So a `call.finished` and the `call.started` that follows
it share a commit, and nothing has left the process in between, because only a permit lets anything out.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

from msgspec.structs import replace

from checkrein import errors
from checkrein.asyncutil import start
from checkrein.core.commands import Command, FinishRun, VerbCommand
from checkrein.core.decide import decide
from checkrein.core.decide.verdict import Joined, Refusal
from checkrein.core.enums import Status
from checkrein.core.events import CallStarted, ClockSet, Event, is_taken_after_the_end
from checkrein.core.evolve import evolve, fold
from checkrein.core.state import State
from checkrein.driver.ownership import Ownership, OwnershipLost, fitting
from checkrein.journal import encoding
from checkrein.journal.base import Appended, Journal, Recorded

_log = logging.getLogger(__name__)

LINGER_SECONDS: Final = 0.002
"""How long a noted fact waits for a command to go with."""

FULL_SECONDS: Final = 0.5
"""How long to wait before a full disk is tried again."""

STALE_SECONDS: Final = 1.0
"""A command whose time is further off than this, because it had to wait or the clock was set, is one of now."""

Listener = Callable[[Recorded], None]


class CommandRefused(Exception):
    """A command of the driver came to nothing, for the reason given."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class _Asked:
    """A command that waits to be carried out, and whoever waits for that."""

    __slots__ = ("answer", "command", "unwanted")

    def __init__(self, command: Command, unwanted: Callable[[], None] | None) -> None:
        self.command = command
        self.answer: asyncio.Future[tuple[Recorded, ...]] = asyncio.get_running_loop().create_future()
        self.unwanted = unwanted
        """Told when the command was taken, and nobody waits any more."""

    def taken(self, records: tuple[Recorded, ...]) -> None:
        if not self.answer.done():
            self.answer.set_result(records)
        elif self.answer.cancelled() and self.unwanted is not None:
            self.unwanted()

    def refused(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class _Draft(NamedTuple):
    """What is to be appended, and what it makes of the state that it was decided on."""

    before: State
    after: State
    facts: int
    events: tuple[Event, ...]
    taken: list[tuple[_Asked, tuple[Event, ...]]]


class RunWriter:
    """Holds the run's state as this process knows it. `listen` is told every event once, in order."""

    def __init__(self, journal: Journal, state: State, ownership: Ownership, listen: Listener) -> None:
        self._journal = journal
        self._ownership = ownership
        self._listen = listen
        self._state = state
        self._notes: list[Event] = []
        self.state = state
        """The state with everything that is noted, also what is not committed yet."""
        self._commands: deque[_Asked] = deque()
        self._writing: asyncio.Task[None] | None = None
        self._linger: asyncio.TimerHandle | None = None
        self._noted_at = 0.0
        """When the first of the notes was noted."""
        ownership.when_lost(self._lost)

    @property
    def committed(self) -> State:
        return self._state

    @property
    def is_busy(self) -> bool:
        """Whether something is yet to be committed."""
        return bool(self._notes or self._commands or self._writing is not None)

    # -- writing

    async def commit(self, command: Command, *, unwanted: Callable[[], None] | None = None) -> tuple[Recorded, ...]:
        """Carry out `command`. Raises `CommandRefused`, or `OwnershipLost`; then nothing of it was taken.

        A task that is cancelled while it waits does not take the command back: `unwanted` is told when it was taken.
        """
        if not self._ownership.is_held:
            raise OwnershipLost
        asked = _Asked(command, unwanted)
        self._commands.append(asked)
        self._wake()
        answer = asked.answer
        try:
            return await answer
        except asyncio.CancelledError:
            was_taken = not answer.cancelled() and answer.exception() is None  # just before
            if was_taken and unwanted is not None:
                unwanted()
            raise

    def record(self, *events: Event) -> None:
        """Record facts soon. They count in `state` at once."""
        loop = asyncio.get_running_loop()
        if not self._notes:
            self._noted_at = loop.time()
        facts = [fitting(event) for event in events]
        self._notes.extend(facts)
        self.state = fold(self.state, facts)
        if self._writing is None and self._linger is None:
            self._linger = loop.call_later(LINGER_SECONDS, self._lingered)

    def mind_the_clock(self) -> None:
        """Record it if the wall clock was set: what is counted in `state`, elapsed time and lateness, is not."""
        if self.state.epoch != self._ownership.epoch and not self.state.is_finished:
            return  # what the state counts by is the clock of the driver before, until this one has taken over
        by, within = self._ownership.clock_set_by()
        if by and not self.state.is_finished:
            self.say_the_time(by, within)

    def say_the_time(self, set_by: float = 0.0, within: float = 0.0) -> None:
        """Record how late it is: time at work counts by what the driver says, and by nobody else's clock."""
        ownership = self._ownership
        said = ClockSet(id=ownership.new_id("clock"), at=ownership.now(), seconds=round(set_by, 3), within=within)
        self.record(said)

    def _lingered(self) -> None:
        """Write what has been noted for long enough. The timer is left alone when a command is faster."""
        self._linger = None
        if not self._notes or self._writing is not None:
            return
        loop = asyncio.get_running_loop()
        left = self._noted_at + LINGER_SECONDS - loop.time()
        if left > 0:
            self._linger = loop.call_later(left, self._lingered)
        else:
            self._wake()

    async def flush(self) -> None:
        """Return when everything noted so far is committed. Raises `OwnershipLost` when it never will be."""
        while self._notes or self._commands:
            if not self._ownership.is_held:
                raise OwnershipLost
            self._wake()
            if self._writing is not None:
                await asyncio.shield(self._writing)

    async def rest(self) -> None:
        """Return when no append is under way."""
        while self._writing is not None:
            await asyncio.wait([self._writing])

    def _lost(self) -> None:
        """The run is no longer ours. Whoever waits for a command is told so, whatever became of it."""
        self._fail(OwnershipLost())

    def _wake(self) -> None:
        if self._writing is None and (self._notes or self._commands):
            self._writing = start(self._write(), name=f"writer of {self._state.run}")

    async def _write(self) -> None:
        try:
            while (self._notes or self._commands) and self._ownership.is_held:
                await self._write_once()
        except BaseException as error:
            self._fail(error)
            raise
        finally:
            self._writing = None
        if not self._ownership.is_held:
            self._fail(OwnershipLost())

    async def _write_once(self) -> None:
        draft = self._decide()
        if not draft.events:
            return
        try:
            appended = await self._ownership.append(draft.events, after=draft.before.seq)
        except errors.Conflict as conflict:
            self._absorb_all(conflict.missed)
            return
        except (errors.Fenced, errors.RunOver) as refused:
            self._absorb_all(refused.missed)
            if isinstance(refused, errors.RunOver):
                # It was ended before this was recorded, and nothing takes it any more: asking again would never end.
                self._notes = [note for note in self._notes if is_taken_after_the_end(note)]
                self.state = fold(self._state, self._notes)
            for asked, events in draft.taken:
                # A fence stops permits. What only shared an append with one is decided again without it.
                if isinstance(refused, errors.RunOver) or any(isinstance(event, CallStarted) for event in events):
                    self._drop(asked)
                    asked.refused(refused)
            return
        except errors.StaleEpoch:
            self._ownership.lose("somebody else has claimed it")
            return
        except errors.MisuseError:
            # A driver that has the run by now has given the same permit, under the same id.
            if (await self._journal.load(self._state.run)).epoch <= self._ownership.epoch:
                raise
            self._ownership.lose("somebody else has given the same permit")
            return
        except errors.StoreFull:
            # No permit is given, nothing is lost, and there may be room again soon. What is noted needs none.
            _log.warning("the store is full; trying again in %g s", FULL_SECONDS, extra={"run": self._state.run})
            await asyncio.sleep(FULL_SECONDS)
            return
        except errors.EventTooLarge as refused:
            _log.warning("refused: %s", refused, extra={"run": self._state.run})
            self._refuse_too_large(draft, refused)
            return
        except errors.StoreUnavailable as error:
            # It was away for as long as the lease held. Whether that was taken is not known: whoever claims the run
            # next will see, and so will we.
            self._ownership.lose(f"the store does not answer: {error}")
            return
        self._take_in(draft, appended)
        by_id = {record.event.id: record for record in appended.events}
        for asked, events in draft.taken:
            self._drop(asked)
            asked.taken(tuple(by_id[event.id] for event in events))

    def _decide(self) -> _Draft:
        """What to append now; commands that are refused, or need nothing, are answered here."""
        self.mind_the_clock()
        notes, state = self._notes, self.state
        decisions: list[Event] = []
        taken = []
        for asked in tuple(self._commands):
            if abs(self._ownership.now() - asked.command.at) > STALE_SECONDS:
                asked.command = replace(asked.command, at=self._ownership.now())
            if isinstance(asked.command, VerbCommand):
                asked.command = replace(asked.command, store_at=self._journal.now())
            verdict = decide(state, asked.command)
            if isinstance(verdict, Refusal):
                self._commands.remove(asked)
                asked.refused(CommandRefused(verdict))
            elif isinstance(verdict, Joined) or not verdict:
                self._commands.remove(asked)
                if not asked.answer.done():
                    asked.answer.set_result(())
            else:
                state = fold(state, verdict)
                decisions.extend(verdict)
                taken.append((asked, verdict))
        return _Draft(self._state, state, len(notes), (*notes, *decisions), taken)

    def _refuse_too_large(self, draft: _Draft, refused: errors.EventTooLarge) -> None:
        """Let go of the commands that no journal ever takes; the others are tried again without them."""
        for asked, events in draft.taken:
            if not any(encoding.is_too_large(event) for event in events):
                continue
            if isinstance(asked.command, FinishRun) and asked.command.result is not None:
                asked.command = replace(asked.command, status=Status.FAILED, result=None, error=str(refused))
            else:
                self._drop(asked)
                asked.refused(refused)

    def _drop(self, asked: _Asked) -> None:
        with suppress(ValueError):  # it was answered meanwhile, because the run was lost
            self._commands.remove(asked)

    def _fail(self, error: BaseException) -> None:
        while self._commands:
            self._commands.popleft().refused(error if isinstance(error, Exception) else OwnershipLost())

    # -- reading

    def absorb(self, record: Recorded) -> None:
        """Take in an event that was committed, by this process or another. One that is known already is passed over."""
        if record.seq != self._state.seq + 1:
            return
        self._state = evolve(self._state, record.event, record.seq)
        if self._notes:
            self._notes = [note for note in self._notes if note.id != record.event.id]
        self.state = fold(self._state, self._notes)
        self._listen(record)

    def _absorb_all(self, records: tuple[Recorded, ...]) -> None:
        for record in records:
            self.absorb(record)

    def _take_in(self, draft: _Draft, appended: Appended) -> None:
        """Take in what was appended. Where nothing else came in, what it makes of the state is known already."""
        is_next = self._state is draft.before and appended.events[-1].seq == draft.after.seq
        if appended.missed or not is_next or len(appended.events) < len(draft.events):
            return self._absorb_all((*appended.missed, *appended.events))
        self._state = draft.after
        self._notes = self._notes[draft.facts :]
        self.state = fold(self._state, self._notes)
        for record in appended.events:
            self._listen(record)
