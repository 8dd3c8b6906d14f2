"""The engine that finds runs by their leases in the journal: what nobody drives is driven here, if it can be.

It asks the journal once a second what is free, and claims that, as far as there are slots; what others drive costs
nothing. What happens to a run that nobody drives is heard of at once. Only a paused run of which something is asked,
and a finished one with an undo left, need a look at their state: no question for what is free finds those.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import ClassVar, Final, Self

from checkrein.asyncutil import run_to_completion
from checkrein.core.enums import DRIVEN, Status
from checkrein.core.state import State
from checkrein.driver.driver import Driver
from checkrein.driver.ownership import departed, is_held
from checkrein.driver.program_api import Program
from checkrein.engines.dispatcher import Dispatcher
from checkrein.errors import JournalError, StoreTooNew, describe
from checkrein.journal.base import ClaimOptions, Lease, Owner
from checkrein.processes.identity import is_known_dead, is_passing
from checkrein.timings import CLAIM_SECONDS, RECLAIM_SECONDS

TRY_AGAIN_SECONDS: Final = (0.05, 0.05, 0.1, 0.2, 0.4, 0.8)
"""At which intervals a run is looked at again that somebody holds for a moment."""
TOGETHER_SECONDS: Final = 0.02
"""What is due, or has changed, within so long is asked about in one question."""
ROSTER_SECONDS: Final = 5.0
"""How often the roster is asked who is dead by word or name, and which versions there are."""
THEIRS_SECONDS: Final = 10.0
"""For so long after somebody was seen to drive a run, what happens to it is looked at no more than with every look."""
AT_ONCE: Final = 50
"""How many runs are claimed at a time."""
PAGE: Final = 500
"""How many runs are listed at a time."""

_log = logging.getLogger(__name__)


class LeaseEngine:
    """The default, on any journal. Use as an async context manager.

    A run is left to workers of the version that drove it last, as long as there are any, for `version_wait_seconds`.
    """

    name: ClassVar[str] = "leases"

    def __init__(self, dispatcher: Dispatcher, *, version_wait_seconds: float = 60.0) -> None:
        self._dispatcher = dispatcher
        self._journal = dispatcher.journal
        self._version_wait_seconds = version_wait_seconds
        self._asked_at = self._reclaimed_at = float("-inf")
        """When the roster was asked last, and who has died, by the monotonic clock."""
        self._wake = asyncio.Event()
        self._trying: dict[str, tuple[int, float]] = {}
        """Runs that somebody holds for a moment: how often they were looked at, and when that is next."""
        self._retrying: asyncio.Task[None] | None = None
        self._theirs: dict[str, float] = {}
        """Runs that somebody else was seen to drive, and when."""
        self._changed: set[str] = set()
        """Of those, the ones to which something has happened since; and runs at which the store did not let us look."""
        self._looked_for: set[str] = set()
        """Agents whose paused runs have been looked at."""
        self._owners: tuple[Owner, ...] = ()
        self._dead: frozenset[str] = frozenset()
        """Processes that are dead, and whose leases nobody has taken yet."""
        self._versions_elsewhere: frozenset[str] = frozenset()
        dispatcher.when_held = self._held
        dispatcher.when_finished = self._take_up_next
        dispatcher.when_let_go = self._wake.set

    async def __aenter__(self) -> Self:
        await self._dispatcher.__aenter__()
        try:
            for run in await self._journal.wanting_undo():
                await self.take_up(run)
            await self._look()
        except BaseException:
            await self._dispatcher.__aexit__()
            raise
        self._dispatcher.is_open = True
        self._reclaimed_at = float("-inf")  # what was left for later is looked at now
        for work in (self._watch(), self._look_now_and_then()):
            self._dispatcher.start(work)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._dispatcher.__aexit__()

    # -- what is driven here

    @property
    def runs(self) -> tuple[str, ...]:
        return self._dispatcher.runs

    @property
    def slots(self) -> int | None:
        return self._dispatcher.slots

    @property
    def free(self) -> int | None:
        return self._dispatcher.free

    def driver(self, run: str) -> Driver | None:
        return self._dispatcher.driver(run)

    async def take_up(self, run: str) -> None:
        await self._dispatcher.take_up(run)

    async def ensure_driven(self, program: Program | None, run: str) -> None:
        await self._dispatcher.ensure_driven(program, run)

    async def until_too_old(self) -> StoreTooNew:
        return await self._dispatcher.until_too_old()

    # -- what is free

    async def _look_now_and_then(self) -> None:
        while True:
            try:
                await self._look()
            except JournalError as error:
                _log.warning("runs could not be looked for, and will be again: %s", error)
            except Exception as error:  # a mistake of ours: were this to end, nothing would be claimed any more
                _log.error("runs could not be looked for, and will be again: %s", describe(error), exc_info=error)
            next_look = time.monotonic() + CLAIM_SECONDS
            while await self._may_claim_until(next_look):
                await self._claim_or_log()

    async def _may_claim_until(self, then: float) -> bool:
        """Wait until a slot is free, or until then; whether one is."""
        self._wake.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(then - time.monotonic()):
                await self._wake.wait()
                return True
        return False

    async def _look(self) -> None:
        at = time.monotonic()
        # Who has died is seen at once on this host only. Of others a word in the roster tells.
        is_beside = any(owner.host == self._dispatcher.owner.host for owner in self._owners)
        if at >= self._reclaimed_at + (RECLAIM_SECONDS if is_beside else ROSTER_SECONDS):
            await self._take_from_the_dead()
            await self._answer_for_the_dead()
            self._reclaimed_at = at
        await self._look_at_paused()
        await self._claim()
        await self._look_at_changed()
        self._dispatcher.examine_suspects()

    async def _claim_or_log(self) -> None:
        try:
            await self._claim()
        except JournalError as error:  # the next look will find them
            _log.warning("runs were not taken up: %s", error)

    async def _claim(self) -> None:
        """Claim what is free, as far as there are slots: what is being stopped or undone, in any case."""
        while not self._dispatcher.is_closing and await run_to_completion(self._claim_some()):
            pass

    async def _claim_some(self) -> bool:
        """Whether there may be more. Cancelled, it finishes first: a lease that is claimed has a driver, or is given
        back."""
        return await self._claim_free(stops_only=self._dispatcher.free == 0)

    def _wanted(self, *less: str, stops_only: bool = False) -> ClaimOptions:
        """Whatever is free, except for what is driven here, what is left to others, and these runs."""
        return ClaimOptions(
            except_for=(*self._dispatcher.runs, *self._dispatcher.broken, *less),
            stops_only=stops_only,
            not_of=self._dead,
            version=self._dispatcher.version,
            versions_elsewhere=self._versions_elsewhere,
            version_seconds=self._version_wait_seconds,
        )

    async def _claim_free(self, *, stops_only: bool) -> bool:
        dispatcher = self._dispatcher
        most = min(dispatcher.free or AT_ONCE, AT_ONCE)

        async def free(being_taken_up: Collection[str]) -> Collection[Lease]:
            return await self._journal.claim_free(
                list(dispatcher.programs),
                dispatcher.owner,
                most=most,
                seconds=dispatcher.lease_seconds,
                **self._wanted(*being_taken_up, stops_only=stops_only),
            )

        return len(await dispatcher.claim(free)) == most

    async def _look_at_paused(self) -> None:
        """Of agents that are new here: a paused run that is to go on has been left by a process that has ended. After
        that, it changes only by an event."""
        for agent in [agent for agent in self._dispatcher.programs if agent not in self._looked_for]:
            before: str | None = None
            while True:
                rows = await self._journal.runs(status={Status.PAUSED}, agent=agent, limit=PAGE, before=before)
                states = await self._journal.states([row.id for row in rows])
                for run in [run for run, state in states.items() if state.resumes_itself or state.verbs]:
                    await self.take_up(run)
                if len(rows) < PAGE:
                    break
                before = rows[-1].id
            self._looked_for.add(agent)

    async def _take_up_next(self, state: State) -> None:
        """A run has ended: the next one of its thread may begin."""
        queued = {Status.QUEUED}
        for row in await self._journal.runs(thread=state.thread, owner=state.owner, status=queued, limit=1000):
            await self.take_up(row.id)

    # -- owners that have died

    async def _ask_roster(self) -> None:
        dispatcher = self._dispatcher
        dispatcher.departed = await departed(self._journal, self._owners)
        if dispatcher.version:
            workers, at = await self._journal.workers(), self._journal.now()
            ours = dispatcher.programs.keys()
            seen = {one.version for one in workers if one.is_seen(at) and not ours.isdisjoint(one.agents)}
            self._versions_elsewhere = frozenset(seen - {"", dispatcher.version})

    async def _take_from_the_dead(self) -> None:
        """Their leases need not run out. Each is looked at for itself: one of them may have been what it died of."""
        dispatcher = self._dispatcher
        self._owners = tuple(
            owner for owner in await self._journal.owners() if owner.process != dispatcher.owner.process
        )
        # First who there is: whoever has just come under the name of a dead one takes its runs at once.
        if time.monotonic() >= self._asked_at + ROSTER_SECONDS:
            await self._ask_roster()
            self._asked_at = time.monotonic()
        self._dead = frozenset(
            owner.process for owner in self._owners if owner.process in dispatcher.departed or is_known_dead(owner)
        )
        if self._dead:
            left = await self._journal.leases_of(
                self._dead,
                list(dispatcher.programs),
                versions_elsewhere=self._versions_elsewhere,
                version_seconds=self._version_wait_seconds,
            )
            for lease in left:
                await self.take_up(lease.run)

    async def _answer_for_the_dead(self) -> None:
        """Whoever may still have made a call of a run that waits for a person may have died since: its next driver says
        so. Nothing happens to such a run that would tell anybody."""
        resting = self._dispatcher.unanswered
        owners = {owner for each in resting.values() for owner in each}
        if not owners:
            return
        departed = await self._journal.departed([owner.process for owner in owners])
        dead = {owner for owner in owners if owner.process in departed or is_known_dead(owner)}
        for run in [run for run, each in resting.items() if each & dead]:
            await self.take_up(run)

    # -- what happens to runs

    async def _watch(self) -> None:
        async for runs in self._journal.changes(except_for=self._dispatcher):
            for run in runs & self._dispatcher.unanswered.keys():
                del self._dispatcher.unanswered[run]  # whoever drives it now looks after it
            at = time.monotonic() - THEIRS_SECONDS
            theirs = {run for run in runs if self._theirs.get(run, at) > at}
            self._changed |= theirs
            await self._look_at_or_log(runs - theirs)
            await asyncio.sleep(TOGETHER_SECONDS)

    async def _look_at_changed(self) -> None:
        at = time.monotonic() - THEIRS_SECONDS
        self._theirs = {run: seen for run, seen in self._theirs.items() if seen > at}
        changed, self._changed = self._changed, set()
        await self._look_at_or_log(changed)

    async def _look_at_or_log(self, runs: Collection[str]) -> None:
        try:
            await self._look_at(runs)
        except JournalError as error:
            # Not all of them are found by a look for what is free: a paused one that is asked something is not.
            self._changed.update(runs)
            _log.warning("%d runs were not taken up, and will be looked at again: %s", len(runs), error)

    async def _look_at(self, runs: Iterable[str]) -> None:
        """Take up those of them that nobody else has."""
        asked = list(runs)
        # Whoever takes a single one up asks about it anyway.
        leases = await self._journal.leases(asked) if len(asked) > 1 else {}
        free = [run for run in asked if not self._is_held(run, leases)]
        if free and self._versions_elsewhere:
            # Which of them are for this version, the store says.
            states = await self._journal.states(free)
            free = [run for run, state in states.items() if state.status not in DRIVEN and not state.resumes_itself]
            self._wake.set()
        for run in free:
            await self._take_up_or_log(run)

    def _is_held(self, run: str, leases: Mapping[str, Lease]) -> bool:
        held = leases.get(run)
        if held is None or held.owner.process in self._dead:
            return False
        if not is_held(held, self._dispatcher.owner, self._dispatcher.clock()):
            return False
        self._held(run, held.owner)
        return True

    async def _take_up_or_log(self, run: str) -> None:
        try:
            await self.take_up(run)
        except JournalError as error:
            self._changed.add(run)  # the next look does
            _log.warning("a run was not taken up, and will be looked at again: %s", error, extra={"run": run})

    # -- runs that somebody holds at the moment

    def _held(self, run: str, owner: Owner | None) -> None:
        """Somebody has the run. A driver keeps it until it needs none, leaves it to the next, or dies: then it is free.
        Control settles something and lets it go."""
        if owner is not None and not is_passing(owner):
            self._theirs[run] = time.monotonic()
        elif run not in self._trying and not self._dispatcher.is_closing:
            self._trying[run] = (0, time.monotonic() + TRY_AGAIN_SECONDS[0])
            if self._retrying is None or self._retrying.done():
                self._retrying = self._dispatcher.start(self._retry())

    async def _retry(self) -> None:
        while self._trying:
            soonest = min(at for _, at in self._trying.values())
            await asyncio.sleep(max(soonest - time.monotonic(), TOGETHER_SECONDS))
            due = {run: times for run, (times, at) in self._trying.items() if at <= time.monotonic()}
            try:
                leases = await self._journal.leases(due)
            except JournalError as error:
                _log.debug("%d runs were not taken up: %s", len(due), error)
                leases = {}
                for run, times in due.items():
                    self._wait_longer(run, times)
                continue
            for run, times in due.items():
                del self._trying[run]
                held = leases.get(run)
                if held is None or not is_held(held, self._dispatcher.owner, self._dispatcher.clock()):
                    self._dispatcher.start(self._take_up_or_log(run))
                elif is_passing(held.owner):
                    self._wait_longer(run, times)

    def _wait_longer(self, run: str, times: int) -> None:
        self._trying.pop(run, None)
        if times + 1 < len(TRY_AGAIN_SECONDS):
            self._trying[run] = (times + 1, time.monotonic() + TRY_AGAIN_SECONDS[times + 1])
        else:
            self._changed.add(run)  # the next look does
