"""The scheduler (dispatcher) of this process: it takes up the runs that it is told of, and drives each of them.

It does not look for runs: an engine does, and tells it.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, MutableMapping
from contextlib import suppress
from typing import Any, Final, Self

from msgspec.structs import replace

from checkrein.asyncutil import postpone_collection, run_to_completion, start
from checkrein.core.enums import UNFINISHED, EffectState, Status
from checkrein.core.state import State
from checkrein.driver.driver import Driver, DriverOptions
from checkrein.driver.halt_watch import HaltWatch
from checkrein.driver.ownership import (
    LeaseKeeper,
    Ownership,
    claim,
    claimed,
    has_unanswered,
    has_waiting_stop,
    is_held,
    needs_no_slot,
    now,
    unanswered_owners,
)
from checkrein.driver.program_api import Program
from checkrein.engines.suspects import Suspect, Suspects, plays
from checkrein.errors import JournalError, LeaseHeld, RunNotFound, StaleEpoch, StoreTooNew
from checkrein.journal.base import Journal, Lease, Owner
from checkrein.processes.identity import is_known_dead
from checkrein.timings import HALT_LOOK_SECONDS, LEASE_SECONDS

IDLE_SECONDS: Final = 0.25
"""How often it is looked whether a run has nothing to do any more, where it matters to somebody."""

_log = logging.getLogger(__name__)

UNCOLLECTED_SECONDS: Final = 1.0
"""So long after news of a halt no garbage is collected."""


async def _nothing(_: State) -> None:
    pass


class Dispatcher:
    """Drives runs in this process. An engine enters and leaves it with itself.

    Runs go on until it is left; then they are paused durably and resume themselves.

    `programs` maps names of agents to their programs; entries may be added while it runs. `stop_waits` is called, in
    another thread, while a stop waits for a run that is driven here. Once this version is too old for the store, its
    runs are handed over, as when it is left, no other is taken up, and `until_too_old` returns.

    `slots` is how many runs are driven at once; None: any number. A run that is paused or waits for a person takes
    none, nor does a sub-run of one that is driven here: it goes with that one. What is being stopped or undone is taken
    up also when all are taken, and so is a paused run of which something is asked.
    """

    when_held: Callable[[str, Owner | None], None] = staticmethod(lambda *_: None)
    """Called when somebody else has a run that was to be taken up, with who that is, if it is known."""
    when_finished: Callable[[State], Awaitable[None]] = staticmethod(_nothing)
    """Called when a run that was driven here has ended, and is driven no more. A `JournalError` of it is logged."""
    when_let_go: Callable[[], None] = staticmethod(lambda: None)
    """Called when a run is driven here no more: there may be room for another."""

    def __init__(
        self,
        journal: Journal,
        owner: Owner,
        programs: MutableMapping[str, Program],
        *,
        clock: Callable[[], float] = time.time,
        lease_seconds: float = LEASE_SECONDS,
        driver_options: DriverOptions | None = None,
        stop_waits: Callable[[], None] | None = None,
        slots: int | None = None,
    ) -> None:
        self.journal = journal
        self.owner = owner
        self.programs = programs
        self.clock = clock
        self.lease_seconds = lease_seconds
        self.slots = slots
        self._options = driver_options or DriverOptions()
        self._stop_waits = stop_waits
        self._drivers: dict[str, tuple[Driver, asyncio.Task[None]]] = {}
        self._claiming = asyncio.Lock()
        """Held while runs are claimed together. Nothing is taken up by itself meanwhile: were one run claimed in both
        ways, the later claim would take it from the earlier."""
        self._taking: set[str] = set()
        self._again: set[str] = set()
        """Of those, the ones that have changed since they were looked at."""
        self._reserved: set[str] = set()
        """Runs that are being taken up, and for which there is a slot."""
        self.departed: frozenset[str] = frozenset()
        """Set by the engine: processes that are dead by an operator's word, or because a newer one has their name."""
        self.unanswered: dict[str, frozenset[Owner]] = {}
        """Runs that wait for a person and were let go here, and who may still make their calls: once those are dead,
        somebody has to answer for them."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._keeper: LeaseKeeper
        self._reaped: set[str] = set()
        """Processes that are dead, and whose tools are known to be."""
        self._broken: dict[str, tuple[float, float]] = {}
        """Runs whose driver failed: how long they were left alone last, and until when they are."""
        self._program_of: dict[str, Program] = {}
        """Sub-runs whose program is not the one that is known here by its name."""
        self._suspects = Suspects()
        self._examining: asyncio.Task[None] | None = None
        self.is_open = False
        """Set by the engine once it is open. Only then are runs taken up whose driver has died."""
        self.is_closing = False
        """Nothing is taken up any more."""
        self._retiring: asyncio.Task[None] | None = None
        self._too_old: asyncio.Future[StoreTooNew]

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._too_old = self._loop.create_future()
        self._keeper = LeaseKeeper(
            self.journal,
            self.owner,
            lease_seconds=self.lease_seconds,
            stop_waits=self._stop_waits,
            is_too_old=self._retire_soon,
        )
        self.start(self._mind_leases())
        halts = HaltWatch(self.journal, self._options.flags)
        self.start(self._mind_fences(halts))
        self.start(self._mind_flags(halts))
        return self

    async def __aexit__(self, *_: object) -> None:
        await run_to_completion(self._close())

    async def _close(self) -> None:
        self.is_closing = True
        if self._retiring is not None:
            await self._retiring
        waiting = list(self._tasks)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await self._shut_down_all()
        await asyncio.to_thread(self._keeper.stop)

    async def _shut_down_all(self) -> None:
        await asyncio.gather(*(self._shut_down(driver, task) for driver, task in list(self._drivers.values())))

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Have something done beside, which is cancelled when this is left, before anything is handed over."""
        task = start(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # -- a store that was migrated

    async def until_too_old(self) -> StoreTooNew:
        """Return, with what says so, once this version is too old for the store and has handed its runs over."""
        return await asyncio.shield(self._too_old)

    def _retire_soon(self, error: StoreTooNew) -> None:
        """Called in the thread that renews leases."""
        with suppress(RuntimeError):  # the loop has ended, and with it all of this
            self._loop.call_soon_threadsafe(self._retire, error)

    def _retire(self, error: StoreTooNew) -> None:
        if self._retiring is None and not self.is_closing:
            _log.error("its runs are handed over, and no other is taken up (%s): %s", error.code, error)
            self.is_closing = True
            self._retiring = start(self._hand_over(error))

    async def _hand_over(self, error: StoreTooNew) -> None:
        await self._shut_down_all()
        self._too_old.set_result(error)

    # -- what is driven here

    def __contains__(self, run: object) -> bool:
        return run in self._drivers

    @property
    def runs(self) -> tuple[str, ...]:
        """The runs that are driven here."""
        return tuple(self._drivers)

    def has_waiting_stop(self) -> bool:
        """Whether a stop waits for a run that is driven here."""
        return any(has_waiting_stop(driver.state) for driver, _ in self._drivers.values())

    def driver(self, run: str) -> Driver | None:
        """The driver of a run, if it lives here."""
        entry = self._drivers.get(run)
        return None if entry is None else entry[0]

    @property
    def version(self) -> str:
        """Of the agents that are driven here; empty: they have none."""
        return self._options.version

    @property
    def broken(self) -> tuple[str, ...]:
        """Runs whose driver has failed a moment ago."""
        now = time.monotonic()
        return tuple(run for run, (_, until) in self._broken.items() if until > now)

    def has(self, run: str) -> bool:
        """Whether a run is driven here, or about to be."""
        return run in self._drivers or run in self._taking or run in self._suspects

    async def until_left(self, run: str, *, is_full: Callable[[], bool]) -> None:
        """Return when a run is driven here no more, nor about to be. While `is_full` says that others wait for its
        place, it leaves memory as soon as it has nothing to do."""
        while self.has(run):
            entry = self._drivers.get(run)
            if entry is None:  # being taken up, or waiting for its turn to be
                await asyncio.sleep(IDLE_SECONDS)
                continue
            driver, task = entry
            await asyncio.wait([task], timeout=IDLE_SECONDS)
            if driver.is_idle and is_full():
                driver.let_go()

    # -- slots

    @property
    def free(self) -> int | None:
        """How many more runs may be taken up; None: any number. May be asked in any thread."""
        if self.slots is None:
            return None
        taken = [run for run, (driver, _) in list(self._drivers.items()) if self._takes_slot(driver)]
        return max(0, self.slots - len(self._reserved.union(taken)))

    def _takes_slot(self, driver: Driver) -> bool:
        return not driver.is_idle and not self._goes_with(driver.state)

    def _goes_with(self, state: State) -> bool:
        """Whether this is a sub-run of one that is driven here."""
        return state.parent is not None and state.parent in self._drivers

    def _reserve(self, state: State) -> bool:
        """Whether there is room for a run; then it is kept until the run has a driver, or is given up."""
        if self._goes_with(state) or needs_no_slot(state):
            return True
        if self.free == 0:
            return False
        self._reserved.add(state.run)
        return True

    def _make_room(self) -> None:
        """More runs are in memory than there are slots: those that are paused or wait for a person leave it. When they
        go on, whoever has a slot takes them up."""
        own = [driver for driver, _ in self._drivers.values() if not self._goes_with(driver.state)]
        idle = [driver for driver in own if driver.is_idle]
        for driver in idle[: max(0, len(own) - (self.slots or len(own)))]:
            driver.let_go()

    # -- halts

    async def _mind_fences(self, halts: HaltWatch) -> None:
        """Stop the calls of all runs that a halt covers, at once when it is recorded, and look every second. Whoever
        halts ends the runs; nothing waits for that here."""
        async for _ in self.journal.operated(seconds=HALT_LOOK_SECONDS):
            self._heed(halts, is_news=await halts.look())

    async def _mind_flags(self, halts: HaltWatch) -> None:
        """The same by the flags of this host. A store that is away keeps whoever asks it waiting; this asks nobody."""
        while True:
            await asyncio.sleep(HALT_LOOK_SECONDS)
            if halts.is_flagged_anew():
                self._heed(halts, is_news=True)

    def _heed(self, halts: HaltWatch, *, is_news: bool) -> None:
        if is_news:
            postpone_collection(UNCOLLECTED_SECONDS)
        count, up = 0, halts.flags_up()
        for driver, _ in list(self._drivers.values()):
            if (is_halted := halts.covers(driver.state, self._above(driver.state), up)) or driver.is_halted:
                count += driver.heed_halt(is_halted)
        if count:
            _log.warning("an operator's halt covers what is driven here: the calls of %d runs are stopped", count)

    def _above(self, state: State) -> set[str]:
        """The run and those above it, as far as they are driven here, and the topmost."""
        above = {state.run, state.parent or state.run, state.root or state.run}
        while state.parent in self._drivers:
            state = self._drivers[state.parent][0].state
            above |= {state.run, state.parent or state.run}
        return above

    # -- life of a driver

    async def _mind_leases(self) -> None:
        """A driver whose lease could not be renewed gives its run up before somebody else can claim it."""
        while True:
            await asyncio.sleep(min(0.5, self.lease_seconds / 20))
            for driver, _ in list(self._drivers.values()):
                driver.ownership.check()
                driver.mind_the_clock()

    async def take_up(self, run: str) -> None:
        """Drive a run here, if it needs a driver, has none, this process has its agent, and a slot is free for it.

        Cancelled, it finishes first: a lease that is claimed has a driver, or is given back.
        """
        await self._until_claimed()
        if run in self._taking:
            self._again.add(run)
            return
        if run in self._drivers or run in self.broken:
            return
        self._taking.add(run)
        self._again.add(run)
        try:
            while run in self._again and run not in self._drivers:
                self._again.discard(run)
                await run_to_completion(self._take_up(run))
        finally:
            self._taking.discard(run)

    async def _until_claimed(self) -> None:
        """Return when it is known which runs are claimed together at the moment."""
        while self._claiming.locked():
            async with self._claiming:
                pass

    async def claim(self, some: Callable[[Collection[str]], Awaitable[Collection[Lease]]]) -> Collection[Lease]:
        """Claim runs together, and drive them, or give them back. `some` claims none that is driven here, nor any of
        those that it is told: they are being taken up by themselves.

        Cancelled, it finishes first.
        """
        return await run_to_completion(self._claim(some))

    async def _claim(self, some: Callable[[Collection[str]], Awaitable[Collection[Lease]]]) -> Collection[Lease]:
        async with self._claiming:
            sent = now()
            leases = await some(tuple(self._taking))
            self._taking.update(lease.run for lease in leases)
            # All of them are kept alive from now on: the last may have to wait for long until it is looked at.
            for lease in leases:
                self._keeper.keep(lease.run, sent)
        for lease in leases:
            try:
                await self._take_over_one(lease)
            except JournalError as error:  # its lease runs out by itself
                _log.warning("a run was not taken up: %s", error, extra={"run": lease.run})
            except Exception as error:  # a mistake of ours, and no reason to leave the others lying
                self._break(lease.run, error)
        return leases

    async def _take_over_one(self, lease: Lease) -> None:
        try:
            await self._take_over(lease)
        finally:
            self._taking.discard(lease.run)
        if lease.run in self._again:
            self._again.discard(lease.run)
            await self.take_up(lease.run)

    async def _take_over(self, lease: Lease) -> None:
        is_driven = False
        try:
            state = await self.journal.load(lease.run)
            if not await self.wants(state) or not self._reserve(state):
                return
            held = None
            if lease.previous is not None:
                held = replace(lease, owner=lease.previous, epoch=lease.epoch - 1, until=lease.previous_until)
            lease, over = await claimed(self.journal, lease, held, reaped=self._reaped)
            died = held is not None and self._has_died(held.owner)
            is_driven = self._begin(state, lease, over, died=died)
        finally:
            self._reserved.discard(lease.run)
            if not is_driven:
                self._keeper.forget(lease.run)
                await self.journal.release(lease)

    async def _take_up(self, run: str, *, suspect: Suspect | None = None) -> None:
        try:
            held = await self.journal.lease(run)
            died = held is not None and self._has_died(held.owner)
            if held is not None and not died and is_held(held, self.owner, self.clock()):
                return self.when_held(run, held.owner)
            state = await self.journal.load(run)
            if not await self.wants(state):
                if held is not None and died and not state.live and self._program_for(state) is not None:
                    await self._clear(held)
                return
            if held is not None and died and suspect is None and self._must_wait(state, held.owner):
                return
            if not self._reserve(state):
                if held is None and state.status is Status.PAUSED:
                    await self._leave(run)
                return
            sent = now()
            lease, over = await claim(
                self.journal,
                run,
                self.owner,
                seconds=self.lease_seconds,
                at=self.clock(),
                reaped=self._reaped,
                version="" if needs_no_slot(state) else self.version,
            )
            self._keeper.keep(run, sent)
            set_aside = suspect is not None and self._suspects.is_guilty(suspect)
            if not self._begin(state, lease, over, died=died, set_aside=set_aside):
                self._keeper.forget(run)
                await self.journal.release(lease)
        except (LeaseHeld, StaleEpoch):
            self.when_held(run, None)
        except RunNotFound:
            return
        finally:
            self._reserved.discard(run)

    async def _leave(self, run: str) -> None:
        """Leave a paused run that is to go on for whoever has a slot: nothing happens to it that would tell anybody,
        and of paused runs only those are found whose lease was left behind."""
        lease = await self.journal.claim(run, self.owner, seconds=self.lease_seconds)
        await self.journal.release(lease, hands_over=True)

    async def _clear(self, held: Lease) -> None:
        """Nobody needs the lease that a dead process has left: it is not to be found again and again."""
        lease = await self.journal.claim(
            held.run, self.owner, seconds=self.lease_seconds, force=True, epoch=held.epoch + 1
        )
        await self.journal.release(lease)

    def _begin(self, state: State, lease: Lease, over: frozenset[int], *, died: bool, set_aside: bool = False) -> bool:
        """Have a driver for the run, of which the lease is this process's; False: nothing is begun any more."""
        run = state.run
        program = self._program_for(state)
        if program is None or self.is_closing:
            return False
        driver = Driver(
            self.journal,
            program,
            Ownership(self.journal, lease, clock=self.clock, holds=lambda: self._keeper.holds(run)),
            state,
            over=over,
            after_death=died and plays(state),
            set_aside=set_aside,
            ensure_driven=self.ensure_driven,
            options=self._options,
        )
        self._drivers[run] = (driver, start(self._drive(run, driver), name=f"driver {run}"))
        if self.version and needs_no_slot(state):
            driver.let_go()  # it goes on where its version is, which may not be here
        self._make_room()
        return True

    def _program_for(self, state: State) -> Program | None:
        return self._program_of.get(state.run) or self.programs.get(state.agent)

    async def wants(self, state: State) -> bool:
        """Whether a run is for this process to drive, if there is room for it."""
        if self._program_for(state) is None or self.is_closing:
            return False
        return not await self._is_left_to_others(state) and await self.needs_driver(state)

    async def _is_left_to_others(self, state: State) -> bool:
        """A sub-run goes with its parent: as long as somebody else drives that, it is theirs."""
        if state.parent is None or state.parent in self._drivers:
            return False
        held = await self.journal.lease(state.parent)
        return held is not None and not self._has_died(held.owner) and is_held(held, self.owner, self.clock())

    # -- runs in whose hands drivers have died

    def _has_died(self, owner: Owner) -> bool:
        """Whether this process ended by itself or was killed. With its host it would have died of something else."""
        if owner.process in self.departed:
            return True
        return owner.process != self.owner.process and owner.boot_id == self.owner.boot_id and is_known_dead(owner)

    def _must_wait(self, state: State, owner: Owner) -> bool:
        """Whether a run whose driver has died is left for later: until this engine is open, since it might end this
        process too; and, if it is not the first time, until nothing else is being examined."""
        if not plays(state):
            return False
        if not self.is_open:
            return True
        if not state.deaths:
            return False
        self._suspects.add(state, owner)
        return True

    def examine_suspects(self) -> None:
        """To be called after a look for runs: only then is it known which of them were in the same hands."""
        if self._suspects and self.is_open and (self._examining is None or self._examining.done()):
            self._examining = self.start(self._examine())

    async def _examine(self) -> None:
        """Take suspects up one at a time, each once the one before has got on, rests, or has lived for a while."""
        while self._suspects and not self.is_closing:
            suspect = self._suspects.take()
            await self._until_claimed()
            if suspect.run in self._drivers or suspect.run in self._taking:
                continue
            _log.info("taken up alone: %d drivers died of it, or beside it", suspect.deaths, extra={"run": suspect.run})
            self._taking.add(suspect.run)
            try:
                await run_to_completion(self._take_up(suspect.run, suspect=suspect))
            except JournalError as error:  # the next look will find the run
                _log.warning("a run was not taken up: %s", error, extra={"run": suspect.run})
            finally:
                self._taking.discard(suspect.run)
            await self._until_cleared(suspect)

    async def _until_cleared(self, suspect: Suspect) -> None:
        give_up = time.monotonic() + suspect.probation_seconds
        while (driver := self.driver(suspect.run)) is not None and time.monotonic() < give_up:
            if driver.has_taken_over and not (driver.state.deaths and plays(driver.state)):
                return
            await asyncio.sleep(0.02)

    async def _drive(self, run: str, driver: Driver) -> None:
        try:
            await driver.drive()
            self._broken.pop(run, None)
        except Exception as error:
            self._break(run, error)
            return
        finally:
            self._drivers.pop(run, None)
            self._keeper.forget(run)
            await self._release(driver)
            self.when_let_go()
        if driver.state.is_finished:
            self._program_of.pop(run, None)
            self.unanswered.pop(run, None)
        if not self.is_closing:
            try:
                # A verb that came while the driver left was heard by nobody: an engine leaves its runs to drivers.
                if not driver.state.waits_for_person or (await self.journal.load(run)).seq > driver.state.seq:
                    await self.take_up(run)
                elif has_unanswered(driver.state):
                    self.unanswered[run] = await unanswered_owners(self.journal, driver.state)
                else:
                    self.unanswered.pop(run, None)
                if driver.state.is_finished:
                    await self.when_finished(driver.state)
            except JournalError as error:  # the next look will find it
                _log.warning("what comes after a run was not taken up: %s", error, extra={"run": run})

    async def _release(self, driver: Driver) -> None:
        """Give a run back. One that waits for a person rests; one that was only paused because this process ends wants
        another driver at once, though nothing happens to it that would tell anybody."""
        state = driver.state
        rests_at = state.seq if state.waits_for_person else 0
        hands_over = self.is_closing and state.resumes_itself
        release = self.journal.release(driver.ownership.lease, rests_at=rests_at, hands_over=hands_over)
        try:
            await run_to_completion(release)
        except JournalError as error:  # it runs out by itself
            _log.warning("a lease was not given back: %s", error, extra={"run": state.run})

    def _break(self, run: str, error: Exception) -> None:
        """A driver has failed, which is a mistake of ours: say so, and leave its run alone for a while."""
        wait = min(2 * self._broken.get(run, (0.5, 0.0))[0], 60.0)
        self._broken[run] = (wait, time.monotonic() + wait)
        _log.warning("the driver failed; it is tried again in %g s", wait, extra={"run": run})
        told = {"message": f"The driver of run {run} failed; it is tried again in {wait:g} s", "exception": error}
        asyncio.get_running_loop().call_exception_handler(told)

    async def needs_driver(self, state: State) -> bool:
        """Whether there is something to do for a run that only a driver does."""
        if state.is_finished and state.verbs:
            return True  # a question on the side
        if state.is_finished:
            left = await self.journal.effects(state.run, {EffectState.OPEN})
            return any(effect.wanted for effect in left)
        if state.status is Status.PAUSED:
            return state.resumes_itself or bool(state.verbs)
        return state.status is not Status.QUEUED or not await self._waits_its_turn(state)

    async def _waits_its_turn(self, state: State) -> bool:
        """Whether an earlier run of the same thread, which belongs to one owner, is not finished."""
        rows = await self.journal.runs(thread=state.thread, owner=state.owner, status=UNFINISHED, limit=1000)
        earlier = itertools.dropwhile(lambda row: row.id != state.run, rows)
        return any(row.id != state.run and row.parent is None for row in earlier)

    async def ensure_driven(self, program: Program | None, run: str) -> None:
        """Drive a sub-run here, if this process has its program."""
        if program is not None:
            self.programs.setdefault(program.name, program)
            if self.programs[program.name] is not program:
                self._program_of[run] = program
        await self.take_up(run)

    async def _shut_down(self, driver: Driver, task: asyncio.Task[None]) -> None:
        try:
            await driver.shut_down()
        except Exception as error:
            _log.warning("a run was not paused at the shutdown: %r", error, extra={"run": driver.ownership.run})
        task.cancel()
        await asyncio.wait([task])  # how it ended was told by `_drive`
