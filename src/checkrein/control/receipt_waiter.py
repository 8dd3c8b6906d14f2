"""Waiting for the receipt of a verb that is in force, and saying what it still waits for when that takes too long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from checkrein.control.undriven import UndrivenRuns
from checkrein.control.worker_roster import WorkerRoster
from checkrein.core.decide.verdict import known_of
from checkrein.core.enums import Verb
from checkrein.core.events import VerbSettled
from checkrein.core.orders import obstacle
from checkrein.core.receipts import Receipt, VerbAnswer
from checkrein.driver.ownership import is_driven
from checkrein.driver.sub_runs import unfinished_sub_runs
from checkrein.journal.base import Journal

_LOOK_SECONDS: Final = 0.25
_LOOK_SECONDS_MOST: Final = 2.0
"""How often it is looked whether a run whose verb is waited for has lost its driver."""


class Settling(VerbAnswer, frozen=True, kw_only=True, omit_defaults=True):
    """What is known so far of a verb that is accepted and in force and has not settled: also what it waits for.

    It has everything that a `Receipt` has, so that a program may read either without asking which it is.
    """

    accepted: str
    waiting_for: str

    @property
    def is_settled(self) -> bool:
        return False


class ReceiptWaiter:
    """Waits for receipts. What nobody drives is settled meanwhile, as far as that needs no driver."""

    def __init__(self, journal: Journal, undriven: UndrivenRuns, clock: Callable[[], float]) -> None:
        self._journal = journal
        self._undriven = undriven
        self._clock = clock
        self._roster = WorkerRoster(journal)
        self._deadlines: set[asyncio.Timeout] = set()
        self._is_hurried = False

    def hurry(self) -> None:
        """From now on nobody is kept waiting for a receipt: whoever does is told what their verb waits for."""
        self._is_hurried = True
        for deadline in self._deadlines:
            with suppress(RuntimeError):  # it has just run out by itself
                deadline.reschedule(0.0)

    async def wait(self, run: str, accepted: str, after: int, wait: float) -> Receipt | Settling:
        """The receipt of a verb, or, when that takes too long, what it waits for."""
        settled = asyncio.get_running_loop().create_task(self._settled(run, accepted, after))
        deadline = asyncio.timeout(0.0 if self._is_hurried else wait)
        self._deadlines.add(deadline)
        try:
            async with deadline:
                pause = _LOOK_SECONDS
                while not settled.done():
                    # Also later on: a driver that is wedged in user code is killed after a while.
                    if not await self._is_driven(run):
                        await self._undriven.settle(run)
                    await asyncio.wait([settled], timeout=pause)
                    pause = min(2 * pause, _LOOK_SECONDS_MOST)
                return settled.result()
        except TimeoutError:
            return await self._still_settling(run, accepted, after)
        finally:
            self._deadlines.discard(deadline)
            settled.cancel()
            await asyncio.gather(settled, return_exceptions=True)

    async def _settled(self, run: str, accepted: str, after: int) -> Receipt:
        follower = self._journal.follow(run, after=after)
        try:
            async for record in follower:
                if isinstance(record.event, VerbSettled) and record.event.accepted == accepted:
                    return record.event.receipt
        finally:
            await follower.aclose()
        raise AssertionError("a follower never ends by itself")

    async def _still_settling(self, run: str, accepted: str, after: int) -> Receipt | Settling:
        state, effects = await self._journal.load(run), await self._journal.effects(run)
        verb = state.verb(accepted)
        if verb is None:
            return await self._settled(run, accepted, after)
        sub_runs = await unfinished_sub_runs(self._journal, state) if verb.verb is Verb.CANCEL else []
        waits_for = obstacle(state, verb, effects, below=[row.id for row in sub_runs]) or "its driver"
        if not await self._is_driven(run):
            waits_for = (await self._roster.wanted([state])).get(run, waits_for)
        return Settling(**known_of(verb), run=run, status=state.status, accepted=accepted, waiting_for=waits_for)

    async def _is_driven(self, run: str) -> bool:
        return await is_driven(self._journal, run, at=self._clock())
