"""Drivers in this process: every run whose agent it has, and that nobody else drives."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final
from weakref import WeakSet

from checkrein.core.state import State
from checkrein.core.words import EffectState, Status, Verb
from checkrein.errors import JournalError, LeaseHeld, RunNotFound
from checkrein.journal.contract import Journal, Owner
from checkrein.runtime.driver import Driver
from checkrein.runtime.identity import is_known_dead
from checkrein.runtime.leases import LEASE_SECONDS, LeaseKeeper
from checkrein.runtime.spec import Program

UNFINISHED: Final = frozenset(
    {Status.QUEUED, Status.RUNNING, Status.PAUSING, Status.PAUSED, Status.REDIRECTING, Status.CANCELLING}
)
TRY_AGAIN_SECONDS: Final = 0.05
TRIES: Final = 20
"""How often, and at which intervals, a run is asked for again that somebody holds at the moment."""
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
        programs: Mapping[str, Program],
        *,
        clock: Callable[[], float] = time.time,
        driver_options: Mapping[str, Any] | None = None,
    ) -> None:
        self._journal = journal
        self._owner = owner
        self._programs = programs
        self._clock = clock
        self._options = dict(driver_options or {})
        self._drivers: dict[str, tuple[Driver, asyncio.Task[None]]] = {}
        self._taking: set[str] = set()
        self._tries: dict[str, int] = {}
        self._later: WeakSet[asyncio.Task[None]] = WeakSet()
        self._watching: list[asyncio.Task[None]] = []
        self._keeper: LeaseKeeper | None = None
        self._is_closing = False

    async def __aenter__(self) -> LocalEngine:
        self._keeper = LeaseKeeper(self._journal, self._owner)
        await self._look_for_runs()
        loop = asyncio.get_running_loop()
        self._watching = [loop.create_task(self._watch()), loop.create_task(self._reclaim())]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_closing = True
        for task in self._watching:
            task.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)
        await asyncio.gather(*(self._shut_down(driver, task) for driver, task in list(self._drivers.values())))
        if self._keeper is not None:
            await asyncio.to_thread(self._keeper.stop)

    def driver(self, run: str) -> Driver | None:
        """The driver of a run, if it lives here."""
        entry = self._drivers.get(run)
        return None if entry is None else entry[0]

    # -- finding runs

    async def _watch(self) -> None:
        async for runs in self._journal.changes():
            for run in runs:
                await self.take_up(run)

    async def _reclaim(self) -> None:
        while True:
            await asyncio.sleep(RECLAIM_SECONDS)
            await self._look_for_runs()

    async def _look_for_runs(self) -> None:
        for agent in list(self._programs):
            for row in await self._journal.runs(status=UNFINISHED, agent=agent, limit=10_000):
                await self.take_up(row.id)

    async def take_up(self, run: str) -> None:
        """Drive a run here, if it needs a driver, has none, and this process has its agent."""
        if run in self._drivers or run in self._taking:
            return
        self._taking.add(run)
        try:
            await self._take_up(run)
        finally:
            self._taking.discard(run)

    async def _take_up(self, run: str) -> None:
        try:
            state = await self._journal.load(run)
            program = self._programs.get(state.agent)
            if program is None or self._is_closing or not await self._needs_driver(state):
                return
            previous = await self._journal.lease(run)
            dead = previous is not None and is_known_dead(previous.owner)
            lease = await self._journal.claim(run, self._owner, seconds=LEASE_SECONDS, force=dead)
        except LeaseHeld:
            self._try_again(run)  # perhaps only control, which settles something and lets it go
            return
        except RunNotFound:
            return
        self._tries.pop(run, None)
        driver = Driver(self._journal, program, lease, owner_dead=dead, clock=self._clock, **self._options)
        task = asyncio.get_running_loop().create_task(self._drive(run, driver), name=f"driver {run}")
        self._drivers[run] = (driver, task)

    def _try_again(self, run: str) -> None:
        left = self._tries.get(run, TRIES)
        if left and not self._is_closing:
            self._tries[run] = left - 1
            loop = asyncio.get_running_loop()
            loop.call_later(TRY_AGAIN_SECONDS, lambda: self._later.add(loop.create_task(self.take_up(run))))
        else:
            self._tries.pop(run, None)

    async def _drive(self, run: str, driver: Driver) -> None:
        try:
            await driver.drive()
        finally:
            self._drivers.pop(run, None)
            with suppress(JournalError):
                await asyncio.shield(self._journal.release(driver.lease))

    async def _needs_driver(self, state: State) -> bool:
        if state.is_finished:
            left = await self._journal.effects(state.run, {EffectState.OPEN})
            return any(effect.wanted for effect in left)
        if state.status is Status.PAUSED:
            return state.resumes_itself or state.pending(Verb.ASK) is not None
        return True

    async def _shut_down(self, driver: Driver, task: asyncio.Task[None]) -> None:
        with suppress(Exception):
            await driver.shut_down()
        task.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await task
