"""The one live executor of a run, and its lifecycle: take over, reconcile until it is over, hand over.

A driver holds the run's lease, plays its program, and does what the state orders: abort, hold, undo, answer, settle.
The program never sees a verb. It asks for calls; a call waits at the gate until it may begin, and comes back with its
outcome, or raises `Interrupted` when a person redirected the run or stopped that call.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from checkrein.asyncutil import run_to_completion
from checkrein.calls.executor import ToolExecutor
from checkrein.calls.model import kept_texts
from checkrein.core import commands as c
from checkrein.core.decide.endings import RUNTIME
from checkrein.core.enums import ENDED_BY_ITSELF, PAUSE_IN_FORCE, PERMITTING, STOPPING, EffectState, Status
from checkrein.core.events import Need
from checkrein.core.orders import next_late, settle_seconds_of, time_is_up, time_left
from checkrein.core.state import State
from checkrein.driver.fork import take_over_origin
from checkrein.driver.ownership import LOOK_SECONDS, Ownership, OwnershipLost, answers_for_the_dead, has_unanswered
from checkrein.driver.program_api import Chunked, EnsureDriven, Program, ProgramApi, nobody, unheard
from checkrein.driver.reconcile import Reconciler
from checkrein.driver.running_calls import leave_call
from checkrein.driver.session import RunSession
from checkrein.errors import ReplayDiverged, RunNotFound, StaleEpoch, StoreUnavailable, describe
from checkrein.journal.base import Journal
from checkrein.processes.halt_flags import Flags
from checkrein.processes.identity import program_version
from checkrein.secrets import OFF, Secrets
from checkrein.timings import SETTLE_SECONDS, SHUT_DOWN_SECONDS

_log = logging.getLogger(__name__)

EVICT_SECONDS: Final = 60.0
"""How long a run that is paused, or waits for a person, stays in memory; after that it is let go, and played again when
it goes on."""
UNCOUNTED_SECONDS: Final = 1.0
"""How long a run that a person has let go on may be at work before its driver says so, with nothing else to say."""
LOST: Final = (OwnershipLost, StaleEpoch, StoreUnavailable)
"""The run is somebody else's by now, or it cannot be told: let go of it, and leave it to whoever claims it next."""


@dataclass(frozen=True, kw_only=True)
class DriverOptions:
    """What all drivers of a process have in common."""

    settle_seconds: float = SETTLE_SECONDS
    """How long a cancel waits for what it stops and undoes, before it settles and lists the rest."""
    evict_seconds: float = EVICT_SECONDS
    shutdown_seconds: float = SHUT_DOWN_SECONDS
    """How long a run is given to be paused durably when its process ends."""
    executor: ToolExecutor | None = None
    """Where tools are performed; None where no program uses any."""
    secrets: Secrets = OFF
    """What is taken out of everything that comes in."""
    on_chunk: Chunked = unheard
    flags: Flags | None = None
    """The flags of this host, by which an operator halts without the store; None: there are none to heed."""
    version: str = ""
    """Of the agents, as whoever deploys them names it; empty: that of Checkrein is recorded."""


class Driver:
    """Drives one run for one lease. Make one, `await drive()`; it returns when the run needs no driver any more.

    `state` is where the run stood when it was claimed, or before. `after_death`: the driver before has died with it in
    its hands. `set_aside`: so have others, and it is not played again before a person says so.
    """

    def __init__(
        self,
        journal: Journal,
        program: Program,
        ownership: Ownership,
        state: State,
        *,
        over: frozenset[int],
        after_death: bool = False,
        set_aside: bool = False,
        ensure_driven: EnsureDriven = nobody,
        options: DriverOptions | None = None,
    ) -> None:
        options = options or DriverOptions()
        self.ownership = ownership
        self._program = program
        self._over = over
        self._after_death = after_death
        self._set_aside = set_aside
        self._settle_seconds = settle_seconds_of(state, options.settle_seconds)
        self._evict_seconds = options.evict_seconds
        self._shutdown_seconds = options.shutdown_seconds
        self._version = options.version or program_version()
        self._session = RunSession(journal, ownership, state, options.flags)
        self._api = ProgramApi(
            self._session,
            settle_seconds=self._settle_seconds,
            executor=options.executor,
            secrets=options.secrets,
            ensure_driven=ensure_driven,
            on_chunk=options.on_chunk,
            replays=program.replays,
        )
        self._reconciler = Reconciler(self._session, program, self._api, settle_seconds=self._settle_seconds)

        # Since when the run has had nothing to do, by the monotonic clock, and at which event; None while it has.
        self._idle_since: float | None = None
        self._idle_seq = 0

        # Since when the run has been at work again without a word of this driver, by the monotonic clock.
        self._uncounted_since: float | None = None

        # When it is next asked whether former owners still live, by the monotonic clock.
        self._look_at = 0.0

        self._is_shutting_down = False

    @property
    def state(self) -> State:
        """Where the run stands."""
        return self._session.state

    @property
    def has_taken_over(self) -> bool:
        """Whether the journal has it that this driver drives the run."""
        return self._session.writer.committed.epoch == self.ownership.epoch

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do: the run is paused with nothing frozen, or waits for a person."""
        state = self._session.writer.committed
        if state.status is Status.PAUSED:
            return not state.verbs and not state.live and not state.resumes_itself
        return state.waits_for_person and not self._session.writer.is_busy

    def let_go(self) -> None:
        """If there is nothing to do, the run leaves memory now, and is played again when it goes on."""
        self._evict_seconds = 0.0
        self._session.wake.set()

    @property
    def is_halted(self) -> bool:
        """Whether it was told that a halt covers the run, and not since that none does."""
        return self._session.was_told_of_halt

    def heed_halt(self, is_halted: bool) -> bool:
        """An operator's halt covers the run, or does not any more. Its calls are stopped at once, receipts follow.
        Whether that is news."""
        return self._session.heed_halt(is_halted)

    def mind_the_clock(self) -> None:
        """Have it recorded if the wall clock was set. To be called now and then: an idle driver looks at no clock."""
        if self.ownership.is_held:
            self._session.writer.mind_the_clock()

    # -- life

    async def drive(self) -> None:
        """Drive the run until it is finished, its lease is lost, it is let go, or this is cancelled.

        Cancelled, it aborts what is in flight and leaves the run as it is: the next driver finds it in doubt.
        """
        session, ownership = self._session, self.ownership
        session.driving = asyncio.current_task()
        try:
            await self._take_over()
            if self._set_aside:
                await self._ask_for_a_person()
            await self._resume_itself()
            session.start(self._follow())
            self._reconciler.wants_undo = self.state.is_finished  # until the ledger says otherwise
            if not self.state.is_finished:
                session.start(self._play())
            await self._obey_until_over()
            if self._owes_an_answer():
                raise OwnershipLost
        except LOST as error:
            ownership.lose(str(error) or "somebody else has ended it")
            await self._give_up()
        except asyncio.CancelledError:
            # Nobody has asked for a stop, so the program must not hear of one: what is broken off here is in doubt.
            ownership.lose("its driver was cancelled")
            await run_to_completion(self._leave())
            raise
        finally:
            try:
                await run_to_completion(session.close())
            finally:  # also where what was noted last cannot be recorded
                if self.state.status not in ENDED_BY_ITSELF:
                    # A tool shares its process with what says that its call is over. One that is stopped, or that
                    # nobody drives any more, leaves no process behind that has worked for it.
                    await run_to_completion(self._api.end_workers())

    async def _take_over(self) -> None:
        """The first append: what was in flight is in doubt, or gets its next attempt."""
        session, ownership = self._session, self.ownership
        owner = ownership.lease.owner
        # Until the claim the owner before could still record how its calls ended: what it said is not said again.
        for record in await session.journal.read(session.run, after=session.writer.committed.seq):
            session.writer.absorb(record)
        session.want(await session.journal.effects(session.run, {EffectState.OPEN}))
        kept = await kept_texts(session.journal, session.run, self.state.live)
        await session.writer.commit(
            c.TakeOver(
                id=session.new_id("took"),
                at=session.now(),
                epoch=ownership.epoch,
                over=self._over,
                host=owner.host,
                pid=owner.pid,
                process=owner.process,
                boot_id=owner.boot_id,
                started=owner.started or None,
                version=self._version,
                after_death=self._after_death,
                alive_at=ownership.lease.alive_at,
                ahead=ownership.ahead,
                kept=kept,
            )
        )

    def _owes_an_answer(self) -> bool:
        """Whether somebody has ended the run by force, and asks what became of the calls that were in flight here."""
        calls, doubts = self._session.calls, self._session.writer.committed.doubts.items()
        return any(self.ownership.epoch in doubt.unanswered and not calls.has_recorded(call) for call, doubt in doubts)

    async def _obey_until_over(self) -> None:
        session = self._session
        while not self.ownership.is_held or not self._is_over():
            if not self.ownership.is_held:
                raise OwnershipLost
            session.wake.clear()
            session.writer.mind_the_clock()  # first: whether something is late, or the time is up, depends on it
            await self._reconciler.obey()
            await self._mind_the_time()
            await self._mind_former_owners()
            if not self._is_over():
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._next_deadline()):
                        await session.wake.wait()
        await session.writer.flush()

    def _is_over(self) -> bool:
        state = self._session.writer.committed
        if state.is_finished:
            return not state.live and not state.verbs and not self._reconciler.is_undoing
        return self._is_let_go(state)

    def _is_let_go(self, state: State) -> bool:
        """A run that has had nothing to do for long need not stay in memory."""
        is_idle = self.is_idle
        if has_unanswered(state) and not self._look_at:
            return False  # first it is asked whether former owners still live: it may have been taken up for that
        if not is_idle or self._is_shutting_down:
            self._idle_since = None
            return is_idle and state.status is Status.PAUSED
        if self._idle_since is None or self._idle_seq != state.seq:
            self._idle_since, self._idle_seq = time.monotonic(), state.seq
        return time.monotonic() - self._idle_since >= self._evict_seconds

    def _next_deadline(self) -> float | None:
        """When the clock alone gives the driver something to do: a late cancel, a pause that lasts, time used up."""
        deadlines = [] if (left := time_left(self.state, self._session.now())) is None else [left]
        if (late := next_late(self.state, self._session.now(), self._settle_seconds)) is not None:
            deadlines = [max(0.01, late)]
        if self._idle_since is not None:
            deadlines = [max(0.01, self._idle_since + self._evict_seconds - time.monotonic())]
        if has_unanswered(self.state):
            deadlines.append(LOOK_SECONDS)
        if self._uncounted_since is not None:
            deadlines.append(UNCOUNTED_SECONDS)
        return min(deadlines, default=None)

    async def _mind_the_time(self) -> None:
        """A cap on the time at work holds also while a call takes long, or the program makes none."""
        if self.state.active_since is not None or not self.state.is_at_work:
            self._uncounted_since = None
        elif self._uncounted_since is None:
            self._uncounted_since = time.monotonic()
        elif time.monotonic() - self._uncounted_since >= UNCOUNTED_SECONDS:
            self._session.writer.say_the_time()
        trip = time_is_up(self.state, self._session.now())
        if trip is not None:
            await self._session.try_to(
                c.TripCondition(id=self._session.new_id("cap"), at=self._session.now(), trip=trip)
            )

    async def _mind_former_owners(self) -> None:
        """Whoever drove the run before may have died since."""
        if has_unanswered(self.state) and time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + LOOK_SECONDS
            answers = await answers_for_the_dead(self._session.journal, self.state, self._session.now())
            self._session.writer.record(*answers)

    async def shut_down(self) -> None:
        """Pause the run durably; it resumes itself at the next start, unless a person had paused it."""
        self._is_shutting_down = True
        session = self._session
        pause = c.PauseRun(
            id=session.new_id("shutdown"), at=session.now(), by=RUNTIME, reason="shutdown", resumes_itself=True
        )
        with suppress(OwnershipLost):
            await session.try_to(pause)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._shutdown_seconds):
                while self.state.status in STOPPING:
                    await session.change()

    async def _ask_for_a_person(self) -> None:
        """Pause a run that has ended its driver's process again and again; nothing of its code is played until then."""
        session, deaths = self._session, self.state.deaths
        _log.warning("set aside: %d drivers have died with the run in their hands", deaths, extra=self._about)
        what = f"The process that drives it has died {deaths} times in a row with this run in its hands."
        need = Need(
            code="driver_died",
            what=what,
            remedy="Look in the server's log for how it ended, mend the program, then resume; or cancel.",
        )
        await session.try_to(
            c.PauseRun(id=session.new_id("aside"), at=session.now(), by=RUNTIME, reason=need.what, needs=need)
        )

    async def _resume_itself(self) -> None:
        """What a shutdown paused goes on by itself."""
        if self.state.resumes_itself and self.state.status in PAUSE_IN_FORCE:
            session = self._session
            await session.try_to(
                c.ResumeRun(id=session.new_id("resumed"), at=session.now(), by=RUNTIME, reason="started again")
            )

    async def _follow(self) -> None:
        """Take in what others append; what this driver does itself it knows already."""
        session, writer = self._session, self._session.writer
        new = session.journal.follow(
            session.run, after=writer.committed.seq, wants=lambda record: record.seq > writer.committed.seq
        )
        try:
            async for record in new:
                writer.absorb(record)
        finally:
            await new.aclose()

    async def _give_up(self) -> None:
        """Stop everything and say what became of it. Cancelled, it hurries: whoever has the run waits for its word."""
        try:
            await self._stop_and_tell()
        except asyncio.CancelledError:
            await run_to_completion(self._leave())
            raise

    async def _stop_and_tell(self) -> None:
        await self._session.calls.let_go()
        await self._api.end_workers()
        await self._session.hand_over()

    async def _leave(self) -> None:
        try:
            async with asyncio.timeout(self._shutdown_seconds):
                await self._stop_and_tell()
        except TimeoutError:
            _log.warning("left without a last word: whoever takes over finds its calls in doubt", extra=self._about)

    # -- the program

    async def _play(self) -> None:
        leave_call()  # a driver may have been started by the call that waits for its run
        while True:
            # Its code runs only while the run may go on: of one that is being cancelled there is nothing left to play,
            # and one that is paused is played when it is resumed.
            while self.state.status not in PERMITTING:
                await self._session.change()
            if not await self._has_taken_over_origin():
                return
            await self._api.rewind()  # by now everything is recorded that the driver before left in flight
            try:
                await self._play_once()
            except ReplayDiverged as diverged:
                _log.warning("the program diverged from its record: %s", diverged.message, extra=self._about)
                await self._session.calls.abort_all()
                remedy = "Put the program back and resume, or cancel."
                await self._api.need(Need(code=diverged.code, what=diverged.message, remedy=remedy))
            else:
                return

    async def _has_taken_over_origin(self) -> bool:
        """Record what a fork goes on from. Where that is gone, the run fails: it could only do everything again."""
        try:
            await take_over_origin(self._session)
        except LOST as error:
            self.ownership.lose(str(error) or "its origin could not be taken over")
            return False
        except RunNotFound as gone:
            why = f"It was forked from run {gone.run}, which is not in the store any more. Nothing was done again."
            await self._api.finish(Status.FAILED, error=why)
            return False
        return True

    async def _play_once(self) -> None:
        """Play the program to its end. However that comes about, the run finishes with it, and nothing else does."""
        task = asyncio.current_task()
        try:
            result = await self._program.play(self._api)
        except LOST as error:
            self.ownership.lose(str(error) or "its program has met the loss")
        except BaseException as error:
            if self._session.is_ending or not _is_current(task):
                raise  # the driver ends, and has told its program so; or nothing runs any more
            self._api.check_divergence(error)
            while task is not None and task.cancelling():
                task.uncancel()  # it was its own doing
            _log.info("the program failed with %s", type(error).__name__, extra=self._about)
            await self._api.finish(Status.FAILED, error=describe(error))
        else:
            self._api.check_all_asked()
            if not self.state.is_finished:
                await self._api.finish(Status.COMPLETED, result=result)

    @property
    def _about(self) -> dict[str, object]:
        return {"run": self._session.run, "epoch": self.ownership.epoch}


def _is_current(task: asyncio.Task[Any] | None) -> bool:
    """Whether this is called by a step of the task, and not because its coroutine is thrown away."""
    try:
        return asyncio.current_task() is task
    except RuntimeError:
        return False
