"""Drivers in this process: every run whose agent it has, and that nobody else drives."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import suppress
from typing import Any, Final

from checkrein.core.state import State
from checkrein.core.words import EffectState, Status
from checkrein.errors import JournalError, LeaseHeld, RunNotFound, StaleEpoch
from checkrein.journal.contract import Journal, Owner
from checkrein.journal.surely import surely
from checkrein.runtime.claiming import claim, is_held
from checkrein.runtime.driver import Driver
from checkrein.runtime.leases import LEASE_SECONDS, LeaseKeeper, now
from checkrein.runtime.spec import Program

UNFINISHED: Final = frozenset(
    {Status.QUEUED, Status.RUNNING, Status.PAUSING, Status.PAUSED, Status.REDIRECTING, Status.CANCELLING}
)
TRY_AGAIN_SECONDS: Final = (0.05, 0.05, 0.1, 0.2, 0.4, 0.8)
"""At which intervals a run is looked at again that somebody holds at the moment."""
PAGE: Final = 500
"""How many runs are listed at a time."""
RECLAIM_SECONDS: Final = 2.0
"""How often runs are looked for whose owner has died or gone silent."""


class LocalEngine:
    """Use as an async context manager. Runs go on until it is left; then they are paused durably and resume themselves.

    `programs` maps names of agents to their programs; entries may be added while it runs.
    """

    def __init__(
        self,
        journal: Journal,
        owner: Owner,
        programs: MutableMapping[str, Program],
        *,
        clock: Callable[[], float] = time.time,
        lease_seconds: float = LEASE_SECONDS,
        driver_options: Mapping[str, Any] | None = None,
    ) -> None:
        self._journal = journal
        self._owner = owner
        self._programs = programs
        self._clock = clock
        self._lease_seconds = lease_seconds
        self._options = dict(driver_options or {})
        self._drivers: dict[str, tuple[Driver, asyncio.Task[None]]] = {}
        self._taking: set[str] = set()
        self._trying: set[str] = set()
        self._later: set[asyncio.Task[None]] = set()
        self._watching: list[asyncio.Task[None]] = []
        self._keeper: LeaseKeeper
        self._elsewhere: set[str] = set()
        """Runs that somebody else has: of those, one that is finished and being undone would not be found otherwise."""
        self._buried: set[str] = set()
        """Processes that are dead, and whose tools are known to be."""
        self._broken: dict[str, tuple[float, float]] = {}
        """Runs whose driver failed: how long they were left alone last, and until when they are."""
        self._looked_for: set[str] = set()
        """Agents whose paused runs have been looked at."""
        self._hired: dict[str, Program] = {}
        """Sub-runs whose program is not the one that is known here by its name."""
        self._is_closing = False

    async def __aenter__(self) -> LocalEngine:
        self._keeper = LeaseKeeper(self._journal, self._owner, lease_seconds=self._lease_seconds)
        try:
            self._elsewhere.update(await self._journal.wanting_undo())
            await self._look_for_runs()
        except BaseException:
            await surely(self._close())
            raise
        loop = asyncio.get_running_loop()
        minding = (self._watch(), self._reclaim(), self._mind_leases())
        self._watching = [loop.create_task(one) for one in minding]
        return self

    async def __aexit__(self, *_: object) -> None:
        await surely(self._close())

    async def _close(self) -> None:
        self._is_closing = True
        waiting = [*self._watching, *self._later]
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await asyncio.gather(*(self._shut_down(driver, task) for driver, task in list(self._drivers.values())))
        await asyncio.to_thread(self._keeper.stop)

    @property
    def runs(self) -> tuple[str, ...]:
        """The runs that are driven here."""
        return tuple(self._drivers)

    def driver(self, run: str) -> Driver | None:
        """The driver of a run, if it lives here."""
        entry = self._drivers.get(run)
        return None if entry is None else entry[0]

    # -- finding runs

    async def _watch(self) -> None:
        async for runs in self._journal.changes(except_for=self._drivers):
            for run in runs:
                with suppress(JournalError):  # if it does not answer now, the next look will find the run
                    await self.take_up(run)

    async def _reclaim(self) -> None:
        while True:
            await asyncio.sleep(RECLAIM_SECONDS)
            with suppress(JournalError):
                await self._look_for_runs()

    async def _mind_leases(self) -> None:
        """A driver whose lease could not be renewed gives its run up before somebody else can claim it."""
        while True:
            await asyncio.sleep(min(0.5, self._lease_seconds / 20))
            for run, (driver, _) in list(self._drivers.items()):
                if not self._keeper.holds(run):
                    driver.lose_lease()

    async def _look_for_runs(self) -> None:
        elsewhere, self._elsewhere = self._elsewhere, set()
        for run in elsewhere:
            await self.take_up(run)
        # A paused run changes only by an event, and `_watch` hears of that: one look at it is enough.
        for agent in list(self._programs):
            status = UNFINISHED - {Status.PAUSED} if agent in self._looked_for else UNFINISHED
            self._looked_for.add(agent)
            await self._look_at_all(agent, status)

    async def _look_at_all(self, agent: str, status: frozenset[Status]) -> None:
        before: str | None = None
        while True:
            rows = await self._journal.runs(status=status, agent=agent, limit=PAGE, before=before)
            for row in rows:
                await self.take_up(row.id)
            if len(rows) < PAGE:
                return
            before = rows[-1].id

    async def take_up(self, run: str) -> None:
        """Drive a run here, if it needs a driver, has none, and this process has its agent.

        Cancelled, it finishes first: a lease that is claimed has a driver, or is given back.
        """
        if run in self._drivers or run in self._taking or self._broken.get(run, (0, 0))[1] > time.monotonic():
            return
        self._taking.add(run)
        try:
            await surely(self._take_up(run))
        finally:
            self._taking.discard(run)

    async def _take_up(self, run: str) -> None:
        try:
            held = await self._journal.lease(run)
            if held is not None and is_held(held, self._owner, self._clock()):
                return self._try_again(run)
            state = await self._journal.load(run)
            program = self._hired.get(run) or self._programs.get(state.agent)
            if program is None or self._is_closing or not await self._needs_driver(state):
                return
            sent = now()
            lease, dead = await claim(
                self._journal, run, self._owner, seconds=self._lease_seconds, at=self._clock(), buried=self._buried
            )
        except (LeaseHeld, StaleEpoch):
            return self._try_again(run)
        except RunNotFound:
            return
        if self._is_closing:
            await self._journal.release(lease)
            return
        self._keeper.keep(run, sent)
        driver = Driver(
            self._journal,
            program,
            lease,
            owner_dead=dead,
            clock=self._clock,
            hire=self.hire,
            holds=lambda: self._keeper.holds(run),
            **self._options,
        )
        task = asyncio.get_running_loop().create_task(self._drive(run, driver), name=f"driver {run}")
        self._drivers[run] = (driver, task)

    def _try_again(self, run: str) -> None:
        """Somebody has the run: perhaps only control, which settles something and lets it go."""
        self._elsewhere.add(run)
        if run not in self._trying and not self._is_closing:
            self._trying.add(run)
            task = asyncio.get_running_loop().create_task(self._take_up_later(run))
            self._later.add(task)
            task.add_done_callback(self._later.discard)

    async def _take_up_later(self, run: str) -> None:
        try:
            for seconds in TRY_AGAIN_SECONDS:
                await asyncio.sleep(seconds)
                with suppress(JournalError):  # if it does not answer now, the next look will find the run
                    held = await self._journal.lease(run)
                    if held is None or not is_held(held, self._owner, self._clock()):
                        await self.take_up(run)
                        return
        finally:
            self._trying.discard(run)

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
            with suppress(JournalError):
                await surely(self._journal.release(driver.lease))
        if driver.state.is_finished:
            self._hired.pop(run, None)
            if not self._is_closing:
                await self._next_of(driver.state.thread)

    def _break(self, run: str, error: Exception) -> None:
        """A driver has failed, which is a mistake of ours: say so, and leave its run alone for a while."""
        wait = min(2 * self._broken.get(run, (0.5, 0.0))[0], 60.0)
        self._broken[run] = (wait, time.monotonic() + wait)
        told = {"message": f"The driver of run {run} failed; it is tried again in {wait:g} s", "exception": error}
        asyncio.get_running_loop().call_exception_handler(told)

    async def _next_of(self, thread: str) -> None:
        """A run has ended: the next one of its thread may begin."""
        for row in await self._journal.runs(thread=thread, status={Status.QUEUED}, limit=1000):
            await self.take_up(row.id)

    async def _needs_driver(self, state: State) -> bool:
        if state.is_finished:
            left = await self._journal.effects(state.run, {EffectState.OPEN})
            return any(effect.wanted for effect in left)
        if state.status is Status.PAUSED:
            return state.resumes_itself or bool(state.verbs)
        return state.status is not Status.QUEUED or not await self._waits_its_turn(state)

    async def _waits_its_turn(self, state: State) -> bool:
        """Whether an earlier run of the same thread is not finished."""
        rows = await self._journal.runs(thread=state.thread, status=UNFINISHED, limit=1000)
        earlier = itertools.dropwhile(lambda row: row.id != state.run, rows)
        return any(row.id != state.run and row.parent is None for row in earlier)

    async def hire(self, program: Program | None, run: str) -> None:
        """Drive a sub-run here, if this process has its program."""
        if program is not None:
            self._programs.setdefault(program.name, program)
            if self._programs[program.name] is not program:
                self._hired[run] = program
        await self.take_up(run)

    async def _shut_down(self, driver: Driver, task: asyncio.Task[None]) -> None:
        with suppress(Exception):
            await driver.shut_down()
        task.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await task
