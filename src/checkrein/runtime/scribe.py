"""The one writer of a run: every command of its driver becomes events here, in the order it was given.

Commands that wait at the same time go into one append. A fact may be noted without waiting for it (`note`): it is
committed with the next command, or shortly after on its own. So a `call.finished` and the `call.started` that follows
it share a commit, and nothing has left the process in between, because only a permit lets anything out.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

from checkrein.core.commands import Command
from checkrein.core.decide import decide
from checkrein.core.events import Event, is_taken_after_the_end
from checkrein.core.evolve import evolve, fold
from checkrein.core.state import State
from checkrein.core.verdict import Joined, Refusal
from checkrein.errors import Conflict, Fenced, MisuseError, RunOver, StaleEpoch, StoreFull, StoreUnavailable
from checkrein.journal.contract import Appended, Journal, Recorded

LINGER_SECONDS: Final = 0.002
"""How long a noted fact waits for a command to go with."""

FULL_SECONDS: Final = 0.5
"""How long to wait before a full disk is tried again."""

Listener = Callable[[Recorded], None]


class CommandRefused(Exception):
    """A command of the driver came to nothing, for the reason given."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class OwnershipLost(Exception):
    """Somebody else drives the run by now. Nothing more may be begun, and nothing but answers is taken."""


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


class Scribe:
    """Holds the run's state as this process knows it. `listen` is told every event once, in order."""

    def __init__(
        self,
        journal: Journal,
        state: State,
        epoch: int,
        listen: Listener,
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        self._journal = journal
        self._on_lost = on_lost
        self._epoch = epoch
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
        self.is_lost = False

    @property
    def committed(self) -> State:
        return self._state

    # -- writing

    async def do(self, command: Command, *, unwanted: Callable[[], None] | None = None) -> tuple[Recorded, ...]:
        """Carry out `command`. Raises `CommandRefused`, or `OwnershipLost`; then nothing of it was taken.

        A task that is cancelled while it waits does not take the command back: `unwanted` is told when it was taken.
        """
        if self.is_lost:
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

    def note(self, *events: Event) -> None:
        """Record facts soon. They count in `state` at once."""
        loop = asyncio.get_running_loop()
        if not self._notes:
            self._noted_at = loop.time()
        self._notes.extend(events)
        self.state = fold(self.state, events)
        if self._writing is None and self._linger is None:
            self._linger = loop.call_later(LINGER_SECONDS, self._lingered)

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
            if self.is_lost:
                raise OwnershipLost
            self._wake()
            if self._writing is not None:
                await asyncio.shield(self._writing)

    async def rest(self) -> None:
        """Return when no append is under way."""
        while self._writing is not None:
            await asyncio.wait([self._writing])

    def lose(self) -> None:
        """The run is no longer ours. Whoever waits for a command is told so, whatever became of it."""
        if not self.is_lost:
            self.is_lost = True
            self._fail(OwnershipLost())
            self._on_lost()

    def _wake(self) -> None:
        if self._writing is None and (self._notes or self._commands):
            self._writing = asyncio.get_running_loop().create_task(self._write(), name=f"scribe {self._state.run}")

    async def _write(self) -> None:
        try:
            while (self._notes or self._commands) and not self.is_lost:
                await self._write_once()
        except BaseException as error:
            self._fail(error)
            raise
        finally:
            self._writing = None
        if self.is_lost:
            self._fail(OwnershipLost())

    async def _write_once(self) -> None:
        draft = self._decide()
        if not draft.events:
            return
        try:
            appended = await self._journal.append(
                self._state.run, draft.events, after=draft.before.seq, epoch=self._epoch
            )
        except Conflict as conflict:
            self._absorb_all(conflict.missed)
            return
        except (Fenced, RunOver) as refused:
            self._absorb_all(refused.missed)
            if isinstance(refused, RunOver):
                # It was ended before this was recorded, and nothing takes it any more: asking again would never end.
                self._notes = [note for note in self._notes if is_taken_after_the_end(note)]
                self.state = fold(self._state, self._notes)
            for asked, _ in draft.taken:
                self._drop(asked)
                asked.refused(refused)
            return
        except StaleEpoch:
            self.lose()
            return
        except MisuseError:
            # A driver that has the run by now has given the same permit, under the same id.
            if (await self._journal.load(self._state.run)).epoch <= self._epoch:
                raise
            self.lose()
            return
        except StoreFull:
            # No permit is given, nothing is lost, and there may be room again soon. What is noted needs none.
            await asyncio.sleep(FULL_SECONDS)
            return
        except StoreUnavailable:
            # Whether that was taken is not known. Whoever claims the run next will see, and so will we.
            self.lose()
            return
        self._take_in(draft, appended)
        by_id = {record.event.id: record for record in appended.events}
        for asked, events in draft.taken:
            self._drop(asked)
            asked.taken(tuple(by_id[event.id] for event in events))

    def _decide(self) -> _Draft:
        """What to append now; commands that are refused, or need nothing, are answered here."""
        notes, state = self._notes, self.state
        decisions: list[Event] = []
        taken = []
        for asked in tuple(self._commands):
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
