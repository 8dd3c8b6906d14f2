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
from typing import Final

from checkrein.core.commands import Command
from checkrein.core.decide import decide
from checkrein.core.events import Event
from checkrein.core.evolve import evolve, fold
from checkrein.core.state import State
from checkrein.core.verdict import Joined, Refusal
from checkrein.errors import Conflict, Fenced, RunOver, StaleEpoch, StoreFull, StoreUnavailable
from checkrein.journal.contract import Journal, Recorded

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


Answer = asyncio.Future[tuple[Recorded, ...]]


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
        self._ahead: State | None = None
        """`state`, as long as it is still right."""
        self._commands: deque[tuple[Command, Answer]] = deque()
        self._writing: asyncio.Task[None] | None = None
        self._linger: asyncio.TimerHandle | None = None
        self.is_lost = False

    @property
    def state(self) -> State:
        """The state with everything that is noted, also what is not committed yet."""
        if self._ahead is None:
            self._ahead = fold(self._state, self._notes)
        return self._ahead

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
        answer: Answer = asyncio.get_running_loop().create_future()
        self._commands.append((command, answer))
        self._wake()
        if unwanted is None:
            return await answer
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            answer.add_done_callback(lambda told: None if told.cancelled() or told.exception() else unwanted())
            raise

    def note(self, *events: Event) -> None:
        """Record facts soon. They count in `state` at once."""
        self._notes.extend(events)
        self._ahead = None
        if self._writing is None and self._linger is None:
            self._linger = asyncio.get_running_loop().call_later(LINGER_SECONDS, self._wake)

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
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
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
        notes, commands = self._notes, list(self._commands)
        facts, decided, taken = self._decide(notes, commands)
        if not facts and not decided:
            return
        try:
            appended = await self._journal.append(
                self._state.run, (*facts, *decided), after=self._state.seq, epoch=self._epoch
            )
        except Conflict as conflict:
            self._absorb_all(conflict.missed)
            return
        except (Fenced, RunOver) as refused:
            self._absorb_all(refused.missed)
            self._refuse_permits(taken, refused)
            return
        except StaleEpoch:
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
        self._absorb_all((*appended.missed, *appended.events))
        by_id = {record.event.id: record for record in appended.events}
        for command, answer, events in taken:
            self._drop(command, answer)
            if not answer.done():
                answer.set_result(tuple(by_id[event.id] for event in events))

    def _decide(
        self, notes: list[Event], commands: list[tuple[Command, Answer]]
    ) -> tuple[list[Event], list[Event], list[tuple[Command, Answer, tuple[Event, ...]]]]:
        """What to append for these commands; those that are refused, or need nothing, are answered here."""
        state = fold(self._state, notes)
        facts, decisions = list(notes), list[Event]()
        taken = []
        for command, answer in commands:
            verdict = decide(state, command)
            if isinstance(verdict, Refusal | Joined) or not verdict:
                self._commands.remove((command, answer))
                _answer(answer, verdict)
                continue
            state = fold(state, verdict)
            decisions.extend(verdict)
            taken.append((command, answer, verdict))
        return facts, decisions, taken

    def _refuse_permits(self, taken: list[tuple[Command, Answer, tuple[Event, ...]]], error: Exception) -> None:
        for command, answer, _ in taken:
            self._drop(command, answer)
            if not answer.done():
                answer.set_exception(error)

    def _drop(self, command: Command, answer: Answer) -> None:
        with suppress(ValueError):  # it was answered meanwhile, because the run was lost
            self._commands.remove((command, answer))

    def _fail(self, error: BaseException) -> None:
        while self._commands:
            _, answer = self._commands.popleft()
            if not answer.done():
                answer.set_exception(error if isinstance(error, Exception) else OwnershipLost())

    # -- reading

    def absorb(self, record: Recorded) -> None:
        """Take in an event that was committed, by this process or another. One that is known already is passed over."""
        if record.seq != self._state.seq + 1:
            return
        self._state = evolve(self._state, record.event, record.seq)
        if self._notes:
            self._notes = [note for note in self._notes if note.id != record.event.id]
        self._ahead = None
        self._listen(record)

    def _absorb_all(self, records: tuple[Recorded, ...]) -> None:
        for record in records:
            self.absorb(record)


def _answer(answer: Answer, verdict: Refusal | Joined | tuple[Event, ...]) -> None:
    if answer.done():
        return
    if isinstance(verdict, Refusal):
        answer.set_exception(CommandRefused(verdict))
    else:
        answer.set_result(())
