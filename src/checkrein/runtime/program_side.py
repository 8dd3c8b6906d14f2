"""What a program may ask of its driver. It never sees a verb: it asks for calls, and for little else.

A program that is played again asks for the same, and is told the same: what is recorded comes back.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from checkrein.core import commands as c
from checkrein.core.ends import RUNTIME
from checkrein.core.events import UNDO_PREFIX, CallAnswered, Event, Need, RunCreated, VersionChosen, WatcherFlagged
from checkrein.core.orders import may_permit
from checkrein.core.state import State
from checkrein.core.words import CallKind, Outcome, Status
from checkrein.errors import CheckreinError
from checkrein.journal.contract import Journal, Lease, stream_of
from checkrein.journal.rules import answer_id
from checkrein.runtime.calling import Calling, Result
from checkrein.runtime.desk import Desk
from checkrein.runtime.replay import Past, Replay
from checkrein.runtime.scribe import OwnershipLost
from checkrein.runtime.secrets import Secrets
from checkrein.runtime.spec import Performance, Permit, Program, Spec
from checkrein.runtime.subruns import SubRun
from checkrein.runtime.values import recordable

Hire = Callable[[Program | None, str], Awaitable[None]]
"""Sees to it that somebody drives a sub-run, whose program is given if this process has it."""

Chunked = Callable[[str, str, int, str], None]
"""Told each piece of streamed text: run, call, offset, text."""


class ProgramSide:
    """The half of a driver that its program sees."""

    def __init__(
        self,
        journal: Journal,
        lease: Lease,
        *,
        settle_seconds: float,
        stage: Any,
        secrets: Secrets,
        hire: Hire,
        on_chunk: Chunked,
    ) -> None:
        self.journal = journal
        self.lease = lease
        self.run = lease.run
        self.stage = stage
        """Where tools are performed."""
        self.secrets = secrets
        """What is taken out of everything that comes in."""
        self._settle_seconds = settle_seconds
        self._hire = hire
        self._on_chunk = on_chunk
        self._late: set[asyncio.Task[None]] = set()
        self._tried_at = 0
        self._versions: dict[str, bool] = {}
        self._uuids = 0
        self._past: Past
        self._replay: Replay
        self._desk: Desk
        self._calling: Calling

    @property
    def state(self) -> State:
        return self._desk.state

    async def _rewind(self) -> None:
        """Make ready to play the program from its beginning again."""
        await self._desk.scribe.flush()
        self._past = Past(await self.journal.read(self.run))
        self._replay = Replay(self._past)
        self._calling = Calling(self._desk, self._replay, self._past.number, self._past.began_at)
        self._uuids = 0
        self._versions = {}

    async def call(self, spec: Spec) -> Result:
        """Make a call, or give back what is recorded of it.

        Raises `Interrupted` when a person stopped it, `CallFailed` when it failed or was declined.
        """
        if isinstance(spec.arguments, bytes):
            spec = msgspec.structs.replace(spec, arguments=self.secrets.json(spec.arguments))
        return await self._calling.call(spec)

    def has_recorded(self, place: str) -> bool:
        """Whether a call at this place would be answered from the past."""
        return self._replay.knows(place)

    def has_outcome(self, place: str) -> bool:
        """Whether a call at this place is over already: it would be answered from the past, and nothing done."""
        return self._replay.has_outcome(place)

    async def try_finish(
        self,
        status: Status = Status.COMPLETED,
        *,
        result: bytes | None = None,
        error: str | None = None,
        undelivered_ok: bool = False,
    ) -> bool:
        """Finish the run. False when it cannot finish now: paused, an instruction has come, an approval is pending."""
        for call, flight in list(self._desk.flights.items()):
            if not call.startswith(UNDO_PREFIX):
                await flight.performance.abort()
        self._tried_at = self._desk.scribe.committed.seq
        if self.state.verbs:
            await self._desk.scribe.flush()  # or the ledger would not know what a redirect has just interrupted
        command = c.FinishRun(
            id=self._desk.new_id("end"),
            at=self._desk.now(),
            status=status,
            result=None if result is None else msgspec.Raw(self.secrets.json(result)),
            error=None if error is None else recordable(self.secrets.text(error)),
            undelivered_ok=undelivered_ok,
            effects=await self.journal.effects(self.run),
        )
        return await self._desk.try_to(command)

    async def need(self, need: Need, *, about: str = "") -> None:
        """Pause the run until a person has given it what it needs and resumed it.

        `about` names the call because of which it is needed: when the program is played again, that was asked for.
        """
        desk = self._desk
        verb = f"need.{about}" if about else desk.new_id("need")
        if verb not in self._past.steps:
            await desk.try_to(c.PauseRun(id=verb, at=desk.now(), by=RUNTIME, reason=need.what, needs=need))
        await desk.gate()

    async def until_it_may_go_on(self) -> None:
        """Wait until the run may begin calls, or something it waits for has come."""
        if self.state.instruction is None or not may_permit(self.state):
            await self._desk.change(self._tried_at)
            await self._desk.gate()

    def now(self) -> float:
        """The time of the last thing this program has seen: the same when it is played again."""
        return self._calling.at

    def uuid(self) -> uuid.UUID:
        """A new UUID, the same when the program is played again."""
        self._uuids += 1
        return uuid.uuid5(uuid.NAMESPACE_OID, f"{self.run}/{self._uuids}")

    def version(self, name: str) -> bool:
        """Whether to take the newer way of a program that was changed on purpose at this place.

        False while a run that came by here before the change is played again, and from then on for that run.
        """
        event = VersionChosen(id=f"version.{name}", at=0.0, name=name)
        if name not in self._versions:
            self._versions[name] = event.id in self._past.steps or self._replay.is_over
        if self._versions[name]:
            self.note_once(event)
        return self._versions[name]

    def sub_run(self, program: Program, goal: str, *, place: str = "", step: int | None = None) -> Spec:
        """The call that begins a sub-run and waits for it."""
        state, goal = self.state, self.secrets.text(goal)

        def perform(permit: Permit) -> Performance:
            run = f"{self.run}.{permit.call}"
            created = RunCreated(
                id=f"{run}.created",
                at=self._desk.now(),
                run=run,
                agent=program.name,
                goal=goal,
                thread=run,
                owner=state.owner,
                parent=self.run,
                root=state.root or self.run,
                stop_when=getattr(program, "stop_when", None),
            )
            return SubRun(
                self.journal,
                created,
                hire=lambda: self._hire(program, run),
                clock=self._desk.now,
                undo=lambda: self.state.undo,
                settle_seconds=self._settle_seconds,
                on_held=self.look_again,
            )

        arguments = msgspec.json.encode({"goal": goal})
        return Spec(kind=CallKind.RUN, name=program.name, perform=perform, arguments=arguments, place=place, step=step)

    async def change(self) -> None:
        """Return at the next change of the run."""
        await self._desk.change()

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do something beside the program; it ends with the driver at the latest."""
        return self._desk.start(work)

    def look_again(self) -> None:
        """Something outside the journal has changed, such as a call that has come to rest."""
        self._desk.stir.set()

    def ended_late(self, call: str) -> None:
        """A call that could not be stopped has ended after all: nothing keeps its effect from being undone any more."""
        task = asyncio.get_running_loop().create_task(self._answer_late(call))  # this driver may be over by now
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    async def _answer_late(self, call: str) -> None:
        epoch = self.lease.epoch
        answer = CallAnswered(
            id=answer_id(call, epoch), at=self._desk.now(), call=call, epoch=epoch, outcome=Outcome.DETACHED
        )
        with suppress(CheckreinError, OwnershipLost):
            await self._desk.scribe.flush()
            await self.journal.append(self.run, [answer], after=0, epoch=epoch)

    def note_once(self, event: Event) -> None:
        """Record a fact of the program, at the present time, unless it is recorded already."""
        if event.id not in self._past.steps:
            self._past.steps.add(event.id)
            self._desk.scribe.note(msgspec.structs.replace(event, at=self._desk.now()))

    def shows(self, permit: Permit) -> Callable[[int, str], None]:
        """Whoever is to be told the pieces of a call's text, with their offsets: they are shown at once, kept soon."""
        return partial(self._on_chunk, self.run, stream_of(permit.call, permit.attempt))

    def flag(self, call: str, watcher: str, what: str, offset: int, action: str) -> None:
        """A watcher has noticed something; what it asks for is done at once."""
        desk, at, reason = self._desk, self._desk.now(), f"{watcher}: {what}"
        desk.scribe.note(
            WatcherFlagged(id=desk.new_id("flag"), at=at, watcher=watcher, what=what, call=call, offset=offset)
        )
        verb_id = desk.new_id("flagged")
        if action == "cancel":
            desk.start(desk.try_to(c.CancelRun(id=verb_id, at=at, by=RUNTIME, reason=reason)))
        elif action == "pause":
            need = Need(code="flagged", what=reason, remedy="Look at it, then resume or cancel.")
            desk.start(desk.try_to(c.PauseRun(id=verb_id, at=at, by=RUNTIME, reason=reason, needs=need)))
