"""The sub-runs of a run that is being cancelled: told to stop, and waited for, so that leaves are undone first.

A sub-run has a call of its parent that attends to it. After a crash it has none: the call is in doubt, and the sub-run
goes on settling under whoever drives it. This reads from the journal which are left.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from checkrein.calls.sub_run import WHY
from checkrein.core import commands as c
from checkrein.core.decide.endings import RUNTIME
from checkrein.core.enums import TERMINAL, CallKind, Status
from checkrein.core.events import RunFinished
from checkrein.core.state import State
from checkrein.driver.session import RunSession
from checkrein.errors import JournalError, Refused
from checkrein.journal.base import Journal, RunRow
from checkrein.journal.commands import take_command

_log = logging.getLogger(__name__)

AGAIN_SECONDS: Final = 0.2
"""How long to wait before a store that did not answer is asked again."""


async def unfinished_sub_runs(journal: Journal, state: State) -> list[RunRow]:
    """The sub-runs of a run that are not over, and whose call in flight does not attend to them."""
    attended = {f"{state.run}.{call}" for call, live in state.live.items() if live.kind is CallKind.RUN}
    family = await journal.runs(root=state.root or state.run, limit=10_000)
    return [row for row in family if row.parent == state.run and row.status not in TERMINAL and row.id not in attended]


class SubRuns:
    """Those of one driver's run. `ensure_driven` sees to it that somebody drives a run of the agent that is named."""

    def __init__(self, session: RunSession, ensure_driven: Callable[[str, str], Awaitable[None]]) -> None:
        self._session = session
        self._ensure_driven = ensure_driven
        self._unfinished: set[str] | None = None
        """None: nobody has looked yet. Nothing is added later: a run that is being cancelled begins no sub-run."""

    async def unfinished(self) -> tuple[str, ...]:
        """The sub-runs that a cancel of this run still has to wait for. Each is cancelled, and looked after once."""
        state = self._session.state
        if state.status is not Status.CANCELLING:
            return ()
        if self._unfinished is None:
            found = await unfinished_sub_runs(self._session.journal, state)
            self._unfinished = {row.id for row in found}
            for row in found:
                _log.info("a cancel waits for a sub-run: %s", row.id, extra=self._about)
                self._session.start(self._see_off(row.id, row.agent))
        return tuple(sorted(self._unfinished))

    async def _see_off(self, run: str, agent: str) -> None:
        """Have a sub-run cancelled and driven, and wait until it is over."""
        while True:
            try:
                await self._cancel(run)
                await self._ensure_driven(agent, run)
                await self._until_over(run)
                break
            except JournalError as error:
                _log.warning("a sub-run could not be waited for, and will be again: %s", error, extra={"run": run})
                await asyncio.sleep(AGAIN_SECONDS)
        if self._unfinished is not None:
            self._unfinished.discard(run)
        self._session.wake.set()

    async def _cancel(self, run: str) -> None:
        session, undo = self._session, self._session.state.undo
        stop = c.CancelRun(id=f"{run}.stop.{undo}", at=session.now(), by=RUNTIME, reason=WHY, undo=undo)
        try:
            await take_command(session.journal, run, lambda state, effects: stop)
        except Refused as refused:
            _log.debug("a sub-run refused the cancel of its parent: %s", refused, extra={"run": run})

    async def _until_over(self, run: str) -> None:
        state = await self._session.journal.load(run)
        if state.is_finished:
            return
        new = self._session.journal.follow(run, after=state.seq)
        try:
            async for record in new:
                if isinstance(record.event, RunFinished):
                    return
        finally:
            await new.aclose()

    @property
    def _about(self) -> dict[str, object]:
        return {"run": self._session.run, "epoch": self._session.ownership.epoch}
