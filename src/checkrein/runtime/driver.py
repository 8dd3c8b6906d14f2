"""The one live executor of a run.

A driver holds the run's lease, plays its program, and does what the state orders: abort, hold, undo, answer, settle.
The program never sees a verb. It asks for calls; a call waits at the gate until it may begin, and comes back with its
outcome, or raises `Interrupted` when a person redirected the run or stopped that call.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from checkrein.core import commands as c
from checkrein.core.ends import RUNTIME
from checkrein.core.events import Need
from checkrein.core.state import State
from checkrein.core.words import EffectState, Status, Verb
from checkrein.errors import ReplayDiverged, RunOver, StaleEpoch, StoreUnavailable
from checkrein.journal.contract import Journal, Lease
from checkrein.journal.surely import surely
from checkrein.runtime.desk import Desk
from checkrein.runtime.former import LOOK_SECONDS, answers_for_the_dead, has_unanswered
from checkrein.runtime.handing_over import hand_over, stop_flights
from checkrein.runtime.obeying import Obeying
from checkrein.runtime.program_side import Chunked, Hire, ProgramSide
from checkrein.runtime.scribe import CommandRefused, OwnershipLost
from checkrein.runtime.secrets import OFF, Secrets
from checkrein.runtime.spec import Program
from checkrein.runtime.timing import time_is_up, time_left

EVICT_SECONDS: Final = 60.0
"""How long a paused run waits in memory; after that it is let go, and played again when it is resumed."""
SHUT_DOWN_SECONDS: Final = 10.0
LOST: Final = (OwnershipLost, StaleEpoch, StoreUnavailable)
"""The run is somebody else's by now, or it cannot be told: let go of it, and leave it to whoever claims it next."""


async def _nobody(program: Program | None, run: str) -> None:
    """Whoever has the agent will find the run by itself."""


def _unheard(run: str, call: str, offset: int, text: str) -> None:
    """Nobody listens."""


class Driver(ProgramSide):
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
        super().__init__(
            journal,
            lease,
            settle_seconds=settle_seconds,
            stage=stage,
            secrets=secrets,
            hire=hire,
            on_chunk=on_chunk,
        )
        self._program = program
        self._owner_dead = owner_dead
        self._evict_seconds = evict_seconds
        self._clock = clock
        self._holds = holds
        self._idle_since: float | None = None
        self._look_at = 0.0
        self._is_shutting_down = False
        self._obeying: Obeying

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
            self._obeying.wants_undo = self.state.is_finished  # until the ledger says otherwise
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
        doubts = self._desk.scribe.committed.doubts.items()
        return any(self.lease.epoch in doubt.unanswered and call not in self._desk.told for call, doubt in doubts)

    def lose_lease(self) -> None:
        """The lease runs out: begin nothing more, and stop every call before somebody else can claim the run."""
        if not self._desk.scribe.is_lost:
            self._desk.lose()
            self._desk.start(stop_flights(self._desk))

    async def _prepare(self) -> None:
        """Read where the run stands. Nothing is appended yet."""
        self._desk = Desk(self.journal, self.lease, await self.journal.load(self.run), self._clock, self._holds)
        self._obeying = Obeying(
            self._desk,
            self._program,
            self,
            lambda spec, permit: self._calling.perform(spec, permit),
            settle_seconds=self._settle_seconds,
        )
        still_open = await self.journal.effects(self.run, {EffectState.OPEN})
        self._desk.wanted.update(effect.id for effect in still_open if effect.wanted)

    async def _obey_until_over(self) -> None:
        desk = self._desk
        while desk.scribe.is_lost or not self._is_over():
            if desk.scribe.is_lost:
                raise OwnershipLost
            desk.stir.clear()
            await self._obeying.obey()
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
            return not state.live and not self._obeying.is_undoing
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

    async def _mind_former_owners(self) -> None:
        """Whoever drove the run before may have died since."""
        if has_unanswered(self.state) and time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + LOOK_SECONDS
            self._desk.scribe.note(*await answers_for_the_dead(self.journal, self.state, self._desk.now()))

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
