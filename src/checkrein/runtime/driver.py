"""The one live executor of a run.

A driver holds the run's lease, plays its program, and does what the state orders: abort, hold, undo, answer, settle.
The program never sees a verb. It asks for calls; a call waits at the gate until it may begin, and comes back with its
outcome, or raises `Interrupted` when a person redirected the run or stopped that call.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Final

import msgspec

from checkrein.core import commands as c
from checkrein.core.ends import RUNTIME
from checkrein.core.events import (
    UNDO_PREFIX,
    CallAnswered,
    Event,
    Need,
    RunCreated,
    VersionChosen,
    WatcherFlagged,
)
from checkrein.core.orders import (
    Abort,
    AnswerQuestion,
    Hold,
    LetGoOn,
    Order,
    Settle,
    TakeAnswer,
    UndoEffect,
    may_permit,
    orders,
)
from checkrein.core.state import PendingVerb, State
from checkrein.core.words import Answer, CallKind, EffectState, Outcome, Status, Verb
from checkrein.errors import CheckreinError, ReplayDiverged, RunOver, StaleEpoch, StoreUnavailable
from checkrein.journal.contract import Journal, Lease, stream_of
from checkrein.journal.rules import answer_id
from checkrein.journal.surely import surely
from checkrein.runtime.calling import Calling, Result
from checkrein.runtime.checking import CHECK_PREFIX, CHECK_SECONDS, checked
from checkrein.runtime.desk import Desk, Flight
from checkrein.runtime.former import LOOK_SECONDS, answered, answers_for_the_dead, has_unanswered
from checkrein.runtime.handing_over import hand_over, stop_flights
from checkrein.runtime.replay import Past, Replay
from checkrein.runtime.scribe import CommandRefused, OwnershipLost
from checkrein.runtime.secrets import OFF, Secrets
from checkrein.runtime.spec import Ended, Performance, Permit, Program, Spec
from checkrein.runtime.subruns import SubRun
from checkrein.runtime.timing import time_is_up, time_left
from checkrein.runtime.undoing import Undoing
from checkrein.runtime.values import recordable

EVICT_SECONDS: Final = 60.0
"""How long a paused run waits in memory; after that it is let go, and played again when it is resumed."""
SHUT_DOWN_SECONDS: Final = 10.0
LOST: Final = (OwnershipLost, StaleEpoch, StoreUnavailable)
"""The run is somebody else's by now, or it cannot be told: let go of it, and leave it to whoever claims it next."""

Hire = Callable[[Program | None, str], Awaitable[None]]
"""Sees to it that somebody drives a sub-run, whose program is given if this process has it."""

Chunked = Callable[[str, str, int, str], None]
"""Told each piece of streamed text: run, call, offset, text."""


async def _nobody(program: Program | None, run: str) -> None:
    """Whoever has the agent will find the run by itself."""


def _unheard(run: str, call: str, offset: int, text: str) -> None:
    """Nobody listens."""


class Driver:
    """Drives one run for one lease. Make one, `await drive()`; it returns when the run needs no driver any more."""

    def __init__(
        self,
        journal: Journal,
        program: Program,
        lease: Lease,
        *,
        owner_dead: bool,
        settle_seconds: float = c.SETTLE_SECONDS,
        evict_seconds: float = EVICT_SECONDS,
        stage: Any = None,
        secrets: Secrets = OFF,
        hire: Hire = _nobody,
        on_chunk: Chunked = _unheard,
        clock: Callable[[], float] = time.time,
        holds: Callable[[], bool] = lambda: True,
    ) -> None:
        """`holds` says whether the lease still holds, by this process's own clock."""
        self.journal = journal
        self.lease = lease
        self.run = lease.run
        self.stage = stage
        """Where tools are performed."""
        self.secrets = secrets
        """What is taken out of everything that comes in."""
        self._program = program
        self._owner_dead = owner_dead
        self._settle_seconds = settle_seconds
        self._evict_seconds = evict_seconds
        self._hire = hire
        self._on_chunk = on_chunk
        self._clock = clock
        self._holds = holds
        self._answering: set[str] = set()
        self._answers: dict[str, str] = {}
        self._late: set[asyncio.Task[None]] = set()
        self._tried_at = 0
        self._versions: dict[str, bool] = {}
        self._uuids = 0
        self._idle_since: float | None = None
        self._look_at = 0.0
        self._is_shutting_down = False
        self._wants_undo = False
        self._past: Past
        self._replay: Replay
        self._desk: Desk
        self._calling: Calling
        self._undoing: Undoing

    @property
    def state(self) -> State:
        return self._desk.state

    # -- life

    async def drive(self) -> None:
        """Drive the run until it is finished, its lease is lost, it is let go, or this is cancelled.

        Cancelled, it aborts what is in flight and leaves the run as it is: the next driver finds it in doubt.
        """
        await self._prepare()
        desk = self._desk
        try:
            await desk.scribe.do(
                c.TakeOver(
                    id=desk.new_id("took"),
                    at=desk.now(),
                    epoch=self.lease.epoch,
                    owner_dead=self._owner_dead,
                    host=self.lease.owner.host,
                    pid=self.lease.owner.pid,
                )
            )
            await self._rewind()  # only now is everything recorded that the driver before left in flight
            await self._resume_itself()
            desk.start(self._follow())
            self._wants_undo = self.state.is_finished  # until the ledger says otherwise
            if not self.state.is_finished:
                desk.start(self._play())
            await self._obey_until_over()
            if self._owes_an_answer():
                raise OwnershipLost
        except LOST:
            desk.lose()
            await hand_over(desk)
        except asyncio.CancelledError:
            # Nobody has asked for a stop, so the program must not hear of one: what is broken off here is in doubt.
            desk.lose()
            await surely(self._leave())
            raise
        finally:
            await surely(self._stop_everything())

    def _owes_an_answer(self) -> bool:
        """Whether somebody has ended the run by force, and asks what became of the calls that were in flight here."""
        return any(self.lease.epoch in doubt.unanswered for doubt in self._desk.scribe.committed.doubts.values())

    def lose_lease(self) -> None:
        """The lease runs out: begin nothing more, and stop every call before somebody else can claim the run."""
        if not self._desk.scribe.is_lost:
            self._desk.lose()
            self._desk.start(stop_flights(self._desk))

    async def _prepare(self) -> None:
        """Read where the run stands. Nothing is appended yet."""
        self._desk = Desk(self.journal, self.lease, await self.journal.load(self.run), self._clock, self._holds)
        self._undoing = Undoing(self._desk, lambda effect, call: self._program.undo(effect, call, self))
        still_open = await self.journal.effects(self.run, {EffectState.OPEN})
        self._desk.wanted.update(effect.id for effect in still_open if effect.wanted)

    async def _obey_until_over(self) -> None:
        desk = self._desk
        while desk.scribe.is_lost or not self._is_over():
            if desk.scribe.is_lost:
                raise OwnershipLost
            desk.stir.clear()
            await self._obey()
            await self._mind_the_time()
            await self._mind_former_owners()
            if not self._is_over():
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._next_deadline()):
                        await desk.stir.wait()
        await desk.scribe.flush()

    def _is_over(self) -> bool:
        state = self._desk.scribe.committed
        if state.is_finished:
            return not state.live and not self._undoing.is_busy and not self._wants_undo
        return self._is_let_go(state)

    def _is_let_go(self, state: State) -> bool:
        """A run that has been paused for long, with nothing to do and nothing frozen, need not stay in memory."""
        is_idle = state.status is Status.PAUSED and not state.verbs and not state.live and not state.resumes_itself
        if not is_idle or self._is_shutting_down:
            self._idle_since = None
            return is_idle
        self._idle_since = self._idle_since or time.monotonic()
        return time.monotonic() - self._idle_since >= self._evict_seconds

    def _next_deadline(self) -> float | None:
        """When the clock alone gives the driver something to do: a late cancel, a pause that lasts, time used up."""
        if self._idle_since is not None:
            return max(0.01, self._idle_since + self._evict_seconds - time.monotonic())
        deadlines = [] if (left := time_left(self.state, self._desk.now())) is None else [left]
        cancel = self.state.pending(Verb.CANCEL)
        if cancel is not None:
            deadlines = [max(0.01, cancel.accepted_at + self._settle_seconds - self._desk.now())]
        if has_unanswered(self.state):
            deadlines.append(LOOK_SECONDS)
        return min(deadlines, default=None)

    async def _mind_the_time(self) -> None:
        """A cap on the time at work holds also while a call takes long."""
        trip = time_is_up(self.state, self._desk.now())
        if trip is not None:
            await self._desk.try_to(c.TripCondition(id=self._desk.new_id("cap"), at=self._desk.now(), trip=trip))

    async def shut_down(self) -> None:
        """Pause the run durably; it resumes itself at the next start, unless a person had paused it."""
        self._is_shutting_down = True
        desk = self._desk
        pause = c.PauseRun(
            id=desk.new_id("shutdown"), at=desk.now(), by=RUNTIME, reason="shutdown", resumes_itself=True
        )
        with suppress(CommandRefused, OwnershipLost, RunOver):
            await desk.scribe.do(pause)
        with suppress(TimeoutError):
            async with asyncio.timeout(SHUT_DOWN_SECONDS):
                while self.state.status in (Status.PAUSING, Status.CANCELLING):
                    await desk.change()

    async def _resume_itself(self) -> None:
        """What a shutdown paused goes on by itself."""
        if self.state.resumes_itself and self.state.status in (Status.PAUSING, Status.PAUSED):
            desk = self._desk
            await desk.try_to(c.ResumeRun(id=desk.new_id("resumed"), at=desk.now(), by=RUNTIME, reason="started again"))

    async def _follow(self) -> None:
        """Take in what others append; what this driver does itself it knows already."""
        scribe = self._desk.scribe
        new = self.journal.follow(
            self.run, after=scribe.committed.seq, wants=lambda record: record.seq > scribe.committed.seq
        )
        async for record in new:
            scribe.absorb(record)

    async def _leave(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(SHUT_DOWN_SECONDS):
                await hand_over(self._desk)

    async def _stop_everything(self) -> None:
        await stop_flights(self._desk)
        tasks = list(self._desk.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with suppress(OwnershipLost):
            await self._desk.scribe.flush()  # how they ended
        self._desk.close()

    # -- the program

    async def _play(self) -> None:
        while True:
            try:
                await self._play_once()
            except ReplayDiverged as diverged:
                for flight in list(self._desk.flights.values()):
                    await flight.performance.abort()
                remedy = "Put the program back and resume, or cancel."
                await self.need(Need(code=diverged.code, what=diverged.message, remedy=remedy))
                await self._rewind()
            else:
                return

    async def _rewind(self) -> None:
        """Make ready to play the program from its beginning again."""
        await self._desk.scribe.flush()
        self._past = Past(await self.journal.read(self.run))
        self._replay = Replay(self._past)
        self._calling = Calling(self._desk, self._replay, self._past.number, self._past.began_at)
        self._uuids = 0
        self._versions = {}

    async def _play_once(self) -> None:
        try:
            result = await self._program.play(self)
            self._replay.check_all_asked()
        except LOST:
            self._desk.lose()
        except ReplayDiverged:
            raise
        except Exception as error:
            await self._end(Status.FAILED, error=f"{type(error).__name__}: {error}")
        else:
            if not self.state.is_finished:
                await self._end(Status.COMPLETED, result=result)

    async def _end(self, status: Status, *, result: bytes | None = None, error: str | None = None) -> None:
        self._calling.is_over = True
        while not await self.try_finish(status, result=result, error=error, undelivered_ok=True):
            await self._desk.change(self._tried_at)

    # -- orders

    async def _obey(self) -> None:
        state = self.state
        desk = self._desk
        is_stopping = any(live.stop is not None or live.hold for live in state.live.values())
        if not (state.verbs or is_stopping or state.doubts or desk.held or desk.wanted or state.is_finished):
            return
        for order in orders(state, held=desk.held):  # what is to stop stops now: it needs no ledger
            if isinstance(order, Abort | Hold | LetGoOn):
                await self._carry_out(order)
        effects = await self._desk.effects()
        self._wants_undo = any(e.wanted and e.undo is not None and not state.is_blocked(e.id) for e in effects)
        self._check_doubts()
        due = orders(
            self.state, effects, at=self._desk.now(), held=self._desk.held, settle_seconds=self._settle_seconds
        )
        for order in due:
            await self._carry_out(order)

    async def _carry_out(self, order: Order) -> None:
        match order:
            case Abort(call=call):
                self._abort(call)
            case Hold(call=call):
                await self._hold(call)
            case LetGoOn(call=call):
                await self._let_go_on(call)
            case UndoEffect(effect=effect):
                self._undoing.start(effect)
            case TakeAnswer(call=call, answer=answer):
                await self._take_answer(call, answer)
            case AnswerQuestion(verb=verb) if verb.id not in self._answering:
                self._answering.add(verb.id)
                self._desk.start(self._answer(verb))
            case Settle(verb=verb):
                await self._settle(verb)
            case _:
                pass

    async def _take_answer(self, call: str, answer: Answer) -> None:
        """The former owner has said what became of a call, and with which result."""
        said = await answered(self.journal, self.run, call)
        resolve = c.ResolveCall(
            id=self._desk.new_id("answer"),
            at=self._desk.now(),
            by="owner",
            call=call,
            answer=answer,
            result=None if said is None else said.result,
        )
        await self._desk.try_to(resolve)

    async def _mind_former_owners(self) -> None:
        """Whoever drove the run before may have died since."""
        if has_unanswered(self.state) and time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + LOOK_SECONDS
            self._desk.scribe.note(*await answers_for_the_dead(self.journal, self.state, self._desk.now()))

    def _abort(self, call: str) -> None:
        flight = self._desk.flights.get(call)
        if flight is not None and flight.aborting is None:
            flight.aborting = self._desk.start(flight.performance.abort())

    async def _hold(self, call: str) -> None:
        flight = self._desk.flights.get(call)
        if flight is not None and await flight.performance.hold():
            self._desk.held |= {call}
            self._desk.stir.set()

    async def _let_go_on(self, call: str) -> None:
        self._desk.held -= {call}
        flight = self._desk.flights.get(call)
        if flight is not None:
            await flight.performance.go_on()

    def _check_doubts(self) -> None:
        """Ask the tools of calls in doubt whether they happened, once each and when a person wants to know, as a help for
        whoever decides."""
        for call, doubt in self.state.doubts.items():
            if doubt.person and doubt.effect is not None and call not in self._desk.checked:
                self._desk.checked.add(call)
                self._desk.start(self._check(call))

    async def _check(self, call: str) -> None:
        performance = self._program.check(await self._undoing.call_of(call), self)
        if performance is None:
            return
        self._desk.flights[CHECK_PREFIX + call] = Flight(CHECK_PREFIX + call, performance)
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                ended = await performance.ended()
        except TimeoutError:
            await performance.abort()
            ended = Ended(outcome=Outcome.FAILED, error=f"it did not end within {CHECK_SECONDS:g} s")
        finally:
            self._desk.flights.pop(CHECK_PREFIX + call, None)
        self._desk.scribe.note(checked(ended, id=self._desk.new_id("checked"), at=self._desk.now(), call=call))

    async def _settle(self, verb: PendingVerb) -> None:
        desk = self._desk
        await desk.scribe.flush()
        effects = await desk.effects()  # not those the order was made from: an undo may have ended since
        settle = c.SettleVerb(
            id=desk.new_id("settled"),
            at=desk.now(),
            accepted=verb.id,
            effects=effects,
            held=desk.held,
            settle_seconds=self._settle_seconds,
            answer=self._answers.get(verb.id),
        )
        await desk.try_to(settle)

    async def _answer(self, verb: PendingVerb) -> None:
        """Answer a side question, from a copy of the context, while the run goes on or stays paused."""
        desk = self._desk
        call, question = verb.call or "", verb.question or ""
        attempt, arguments = desk.state.attempt_due(call), msgspec.json.encode(question)
        start = c.StartCall(
            id=desk.new_id("ask"),
            at=desk.now(),
            epoch=self.lease.epoch,
            call=call,
            kind=CallKind.ASK,
            name="ask",
            attempt=attempt,
            arguments=msgspec.Raw(arguments),
            key=call,
        )
        try:
            if await desk.try_to(start):
                spec = Spec(kind=CallKind.ASK, name="ask", perform=self._program.answer(question, self))
                permit = Permit(run=self.run, call=call, key=call, attempt=attempt, arguments=arguments)
                ended, _ = await self._calling.perform(spec, permit)
                if ended.outcome is Outcome.COMPLETED:
                    self._answers[verb.id] = _text(ended.result)
        finally:
            self._answering.discard(verb.id)

    # -- what a program may ask for

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


def _text(result: bytes | None) -> str:
    value = None if result is None else msgspec.json.decode(result)
    return value if isinstance(value, str) else str(value)
