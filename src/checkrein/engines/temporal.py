"""The engine that has Temporal decide which worker drives a run.

Every worker looks in the journal for runs that want a driver and have none, as with leases, and starts an activity for
each; which worker gets it is Temporal's choice. What is true stays the journal's: the driver claims the lease, verbs
are appended to the journal and read there. What is being stopped or undone waits neither for Temporal nor for a slot:
whoever finds it claims it. While Temporal is away nothing else is placed, and all that is driven goes on.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import ClassVar, Final, NamedTuple, Self

import msgspec

from checkrein.asyncutil import start
from checkrein.driver.ownership import is_in_force, needs_no_slot
from checkrein.engines.dispatcher import Dispatcher
from checkrein.engines.leases import PAGE, LeaseEngine
from checkrein.errors import EngineUnavailable, JournalError, RunNotFound

SLOTS: Final = 50
"""How many runs are driven here at a time, where nothing else is said."""
AT_ONCE: Final = 20
"""How many runs are placed at the same time."""
FIRST_WAIT_SECONDS: Final = 0.25
"""How soon a run is placed again that was, and that still nobody drives: the activity that it had may have been about
to end. Twice as long each time, since most of them just wait for a free worker."""
LONGEST_WAIT_SECONDS: Final = 60.0
MOVE_SECONDS: Final = 2.0
"""A run that has waited so long may wait in a queue that nobody polls any more."""
SWEEP_SECONDS: Final = 30.0
"""How often open activities are compared with the journal."""
SAME_OUTAGE_SECONDS: Final = 30.0
"""That Temporal does not answer is said once, and again only when it had answered for so long."""
ELSEWHERE_SECONDS: Final = 1.0
"""How long a worker leaves alone what it cannot drive."""
CLOSE_SECONDS: Final = 5.0
"""How long Temporal may take to be told that all attempts have ended."""

_log = logging.getLogger(__name__)


class TemporalOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where Temporal is, and where in it runs are placed. Workers of one task queue have the same agents."""

    address: str = "127.0.0.1:7233"
    namespace: str = "default"
    task_queue: str = "checkrein"
    tls_ca: str | None = None
    """A file with certificates to check the server's by. With any of the three files the connection is TLS."""
    tls_cert: str | None = None
    tls_key: str | None = None
    """What this worker shows to a server that asks who it is."""
    heartbeat_seconds: float | None = None
    """After how long without a sign of life Temporal tries a run elsewhere; by default as long as a lease lasts."""


class TryElsewhere(Exception):
    """A run is to be driven by another worker, or by this one later. `seconds`: not before."""

    def __init__(self, why: str, *, seconds: float = 0.0) -> None:
        super().__init__(why)
        self.seconds = seconds


class Placed(NamedTuple):
    wait_seconds: float
    due: float
    """When it is placed again, if still nobody drives it."""


def _sdk() -> ModuleType:
    """What uses Temporal's SDK, which is installed with an extra."""
    try:
        return import_module("checkrein.engines.temporal_activities")
    except ImportError as error:
        raise EngineUnavailable(
            f"Temporal's SDK is not installed ({error}).", remedy="Install it: pip install 'checkrein[temporal]'"
        ) from None


async def check(options: TemporalOptions) -> None:
    """Raises `EngineUnavailable` unless Temporal is there, has the namespace, and knows standalone activities."""
    await _sdk().connect(options)


class TemporalEngine(LeaseEngine):
    """Use as an async context manager. It takes as many activities at a time as the dispatcher has slots.

    Where Temporal is not there at the beginning it raises `EngineUnavailable`, unless it is `patient`; later it waits
    for it, for ever. Each version of the agents has a task queue of its own.
    """

    name: ClassVar[str] = "temporal"

    def __init__(
        self,
        dispatcher: Dispatcher,
        *,
        options: TemporalOptions,
        patient: bool = False,
        version_wait_seconds: float = 60.0,
    ) -> None:
        super().__init__(dispatcher, version_wait_seconds=version_wait_seconds)
        self._nobody = msgspec.structs.replace(dispatcher.owner, process="")
        """Who asks what is free. A sub-run goes with its parent, also with one that is driven here."""
        self._patient = patient
        if dispatcher.version:
            options = msgspec.structs.replace(options, task_queue=f"{options.task_queue}@{dispatcher.version}")
        self._activities = _sdk().Activities(
            options,
            drive=self._drive,
            slots=dispatcher.slots or SLOTS,
            heartbeat_seconds=dispatcher.lease_seconds,
            identity=f"{dispatcher.owner.pid}@{dispatcher.owner.host}",
        )
        self._placed: dict[str, Placed] = {}
        self._away_at = -math.inf
        """When Temporal did not answer last."""

    async def __aenter__(self) -> Self:
        await self._activities.open(patient=self._patient)
        try:
            await super().__aenter__()
        except BaseException:
            await self._activities.close()
            raise
        self._dispatcher.start(self._sweep_for_ever())
        return self

    async def __aexit__(self, *_: object) -> None:
        # An attempt ends when its run is handed over; one that comes now would only be sent away.
        stopping = start(self._activities.stop())
        await super().__aexit__()
        await asyncio.wait([stopping], timeout=CLOSE_SECONDS)
        await self._activities.close()

    # -- an attempt

    async def _drive(self, run: str) -> str:
        """What an attempt of the activity of `run` does here; what it returns, Temporal shows."""
        dispatcher = self._dispatcher
        try:
            state = await self._journal.load(run)
            if state.agent not in dispatcher.programs:
                raise TryElsewhere(f"this worker has no agent {state.agent}", seconds=ELSEWHERE_SECONDS)
            await dispatcher.take_up(run)
        except RunNotFound:
            _log.warning("an activity of Temporal names a run that the store does not have", extra={"run": run})
            return "there is no such run"
        except JournalError as error:
            raise TryElsewhere(f"the store did not answer: {error}", seconds=ELSEWHERE_SECONDS) from None
        if not dispatcher.has(run):
            return "it needs no driver, or has one"
        await dispatcher.until_left(run, is_full=lambda: self._activities.is_full)
        return "driven"

    # -- placing runs

    async def take_up(self, run: str) -> None:
        """Place a run, if it needs a driver and has none and this process has its agent; if it stops, drive it here."""
        if self._dispatcher.has(run):
            return
        try:
            state = await self._journal.load(run)
            leases = await self._journal.leases([run])
        except RunNotFound:
            return
        if self._is_held(run, leases) or not await self._dispatcher.wants(state):
            return
        if needs_no_slot(state):
            await self._dispatcher.take_up(run)
        else:
            await self._place([run])

    async def _claim_some(self) -> bool:
        more = await self._claim_free(stops_only=True)
        at = time.monotonic()
        waiting = [run for run, placed in self._placed.items() if placed.due > at]
        free = await self._journal.free_runs(
            list(self._dispatcher.programs),
            self._nobody,
            most=PAGE,
            **self._wanted(*waiting),
        )
        for run in self._placed.keys() - set(waiting) - set(free):
            del self._placed[run]
        return (await self._place(free) and len(free) == PAGE) or more

    async def _place(self, runs: Sequence[str]) -> bool:
        """Whether Temporal has taken all of them; those that it has not are found again at the next look."""
        for first in range(0, len(runs), AT_ONCE):
            answers = await asyncio.gather(*map(self._place_one, runs[first : first + AT_ONCE]))
            if not all(answers):
                return False
        return True

    async def _place_one(self, run: str) -> bool:
        before = self._placed.get(run)
        wait = FIRST_WAIT_SECONDS if before is None else min(2 * before.wait_seconds, LONGEST_WAIT_SECONDS)
        try:
            await self._activities.place(run, move=wait > MOVE_SECONDS)
        except EngineUnavailable as error:
            is_news, self._away_at = time.monotonic() - self._away_at > SAME_OUTAGE_SECONDS, time.monotonic()
            what = "runs are not placed while Temporal is away; all others go on: %s"
            _log.log(logging.WARNING if is_news else logging.DEBUG, what, error)
            return False
        self._placed[run] = Placed(wait, time.monotonic() + wait * random.uniform(1.0, 1.5))
        return True

    # -- ending what is over

    async def _sweep_for_ever(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS * random.uniform(0.5, 1.5))  # workers take turns, more or less
            try:
                await self.sweep()
            except JournalError as error:
                _log.warning("activities of runs that are over could not be looked for: %s", error)
            except EngineUnavailable as error:
                _log.debug("open activities could not be listed: %s", error)

    async def sweep(self) -> None:
        """Close the activities of runs that need no driver, and that wait for a worker all the same."""
        placed = await self._activities.placed()
        for first in range(0, len(placed), PAGE):
            await self._end_needless(placed[first : first + PAGE])

    async def _end_needless(self, runs: list[str]) -> None:
        leases, at = await self._journal.leases(runs), self._dispatcher.clock()
        undriven = [run for run in runs if run not in leases or not is_in_force(leases[run], at)]
        # A run that the store does not have may be one of another store.
        for state in (await self._journal.states(undriven)).values():
            if not await self._dispatcher.needs_driver(state):
                await self._activities.end(state.run, f"the run is {state.status} and needs no driver")
