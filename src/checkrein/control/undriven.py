"""Runs that nobody drives: what needs no code of their authors is settled by whoever asks.

The run is claimed; if its former owner stands still on this host, the processes of its tools are ended; what that owner
left in flight is in doubt from then on, verbs that wait for nothing are settled, and it is let go again. Undos wait for
a process that has the agent.
"""

from __future__ import annotations

import logging
import math
import uuid
from collections.abc import Callable

from checkrein.asyncutil import run_to_completion
from checkrein.calls.executor import processes_of
from checkrein.calls.model import kept_texts
from checkrein.core import commands as c
from checkrein.core.effects import Effect
from checkrein.core.enums import ACTING, Status
from checkrein.core.orders import Settle, orders
from checkrein.core.state import State
from checkrein.driver.ownership import claim, is_driven
from checkrein.driver.sub_runs import unfinished_sub_runs
from checkrein.errors import JournalError, Refused, StaleEpoch
from checkrein.journal.base import Journal, Lease, Owner, RunRow
from checkrein.journal.commands import take_command
from checkrein.processes import termination
from checkrein.timings import CONTROL_LEASE_SECONDS

_log = logging.getLogger(__name__)


class UndrivenRuns:
    """Settles verbs on the runs of a journal that nobody drives, under the name of `owner`."""

    def __init__(self, journal: Journal, owner: Owner, clock: Callable[[], float]) -> None:
        self._journal = journal
        self._owner = owner
        self._clock = clock
        self._buried: set[str] = set()

    async def settle(self, run: str) -> None:
        """Settle what needs no user code, leaves first. Does nothing if somebody is faster."""
        await self._settle_below(run)
        claiming = claim(
            self._journal, run, self._owner, seconds=CONTROL_LEASE_SECONDS, at=self._clock(), reaped=self._buried
        )
        try:
            lease, over = await run_to_completion(claiming, take_back=lambda claimed: self._journal.release(claimed[0]))
        except JournalError as error:
            _log.debug("run %s is not settled from here: %s", run, error, extra={"run": run})
            return
        _log.info("claimed run %s to settle it without a driver", run, extra={"run": run, "epoch": lease.epoch})
        try:
            await self._end_processes(lease, over)
            await self._take_over(lease, over)
            await self._settle_verbs(lease)
        except StaleEpoch:
            # A driver has taken it by force, and will settle what there is.
            _log.info("lost run %s to a driver", run, extra={"run": run, "epoch": lease.epoch})
        finally:
            await run_to_completion(self._journal.release(lease))

    async def _settle_below(self, run: str) -> None:
        try:
            for row in await self._sub_runs(run):
                if not await is_driven(self._journal, row.id, at=self._clock()):
                    await self.settle(row.id)
        except JournalError as error:
            _log.debug("what is below run %s is not settled from here: %s", run, error, extra={"run": run})

    async def _end_processes(self, lease: Lease, over: frozenset[int]) -> None:
        """End what the tools of this run still do in processes of their own, while their owner stands still.

        It has lost the run, and would end them itself if it could. What it does in its own process stays in doubt.
        """
        if lease.previous is not None and lease.previous.host != self._owner.host:
            return
        live = (await self._journal.load(lease.run)).live
        calls = {id: c.attempt for id, c in live.items() if c.kind in ACTING and c.epoch not in over}
        if not calls:
            return
        about = {"run": lease.run, "epoch": lease.epoch}
        _log.info("kill: the processes of the calls %s, whose owner gives no sign of life", sorted(calls), extra=about)
        await termination.end(processes_of(lease.run, calls), grace_seconds=0.0)

    async def _take_over(self, lease: Lease, over: frozenset[int]) -> None:
        kept = await kept_texts(self._journal, lease.run, (await self._journal.load(lease.run)).live)
        taking = c.TakeOver(
            id=_new_id(),
            at=self._clock(),
            epoch=lease.epoch,
            over=over,
            drives=False,
            alive_at=lease.alive_at,
            kept=kept,
        )
        await self._take(lease, lambda state, effects: taking)

    async def _settle_verbs(self, lease: Lease) -> None:
        run = lease.run
        state, effects = await self._journal.load(run), await self._journal.effects(run)
        below = tuple(row.id for row in await self._sub_runs(run))
        # An undo that nobody was there for is not late: it waits for a worker that has the agent.
        for order in orders(state, effects, at=self._clock(), below=below, settle_seconds=math.inf):
            if isinstance(order, Settle):
                await self._take(lease, self._settling(order.verb.id, below, lease.alive_at))

    def _settling(
        self, accepted: str, below: tuple[str, ...], alive_at: float
    ) -> Callable[[State, tuple[Effect, ...]], c.Command]:
        event_id = _new_id()
        return lambda state, effects: c.SettleVerb(
            id=event_id,
            at=self._clock(),
            accepted=accepted,
            effects=effects,
            below=below,
            settle_seconds=math.inf,
            alive_at=alive_at,
        )

    async def _sub_runs(self, run: str) -> list[RunRow]:
        """The sub-runs that a cancel of `run` has to wait for."""
        state = await self._journal.load(run)
        return await unfinished_sub_runs(self._journal, state) if state.status is Status.CANCELLING else []

    async def _take(self, lease: Lease, make: Callable[[State, tuple[Effect, ...]], c.Command]) -> None:
        try:
            await take_command(self._journal, lease.run, make, epoch=lease.epoch)
        except Refused as refused:  # settled with another one, or it waits for something after all
            _log.debug("%s", refused, extra={"run": lease.run, "epoch": lease.epoch})


def _new_id() -> str:
    return uuid.uuid4().hex
