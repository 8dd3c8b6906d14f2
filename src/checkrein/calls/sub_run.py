"""A sub-run as a call of its parent: it has a journal, a driver and a receipt of its own, and stops with its parent.

The call only attends to it. A parent that crashes finds its sub-run again by its id and goes on waiting for it; one
that is stopped cancels it and waits until it has settled, so that what it did is undone before what its parent did.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable
from typing import Final

from checkrein.calls.arguments import stored
from checkrein.calls.base import CallResult, Execution
from checkrein.core import commands as c
from checkrein.core.decide.endings import RUNTIME
from checkrein.core.enums import Outcome, Status, Undo, Verb
from checkrein.core.events import HELD_PREFIX, RunCreated, RunFinished, VerbJoined
from checkrein.core.state import State
from checkrein.errors import Fenced, JournalError, Refused, RunOver
from checkrein.journal.base import Journal
from checkrein.journal.commands import Make, take_command

_log = logging.getLogger(__name__)

_OUTCOMES: Final = {
    Status.COMPLETED: Outcome.COMPLETED,
    Status.FAILED: Outcome.FAILED,
    Status.CANCELLED: Outcome.ABORTED,
    Status.KILLED: Outcome.KILLED,
}


class SubRun(Execution):
    """Attends to one sub-run. `ensure_driven` sees to it that somebody drives it."""

    def __init__(
        self,
        journal: Journal,
        created: RunCreated,
        *,
        ensure_driven: Callable[[], Awaitable[None]],
        clock: Callable[[], float],
        undo: Callable[[], Undo],
        settle_seconds: float,
        on_held: Callable[[], None],
    ) -> None:
        self._journal = journal
        self._created = created
        self._ensure_driven = ensure_driven
        self._clock = clock
        self._undo = undo
        self._settle_seconds = settle_seconds
        self._on_held = on_held
        self._is_stopped = False
        self._is_let_go = False
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(self._attend(), name=f"sub-run {created.run}")
        self._settling: asyncio.Task[None] | None = None

    @property
    def run(self) -> str:
        return self._created.run

    async def ended(self) -> CallResult:
        await asyncio.wait([self._task])
        if self._task.cancelled():
            return CallResult(outcome=Outcome.DETACHED if self._is_let_go else Outcome.ABORTED)
        return self._task.result()

    async def abort(self) -> None:
        """Cancel the sub-run and wait until it has settled: leaves first."""
        self._is_stopped = True
        await self._try_to(
            lambda state, effects: c.CancelRun(
                id=f"{self.run}.stop.{self._undo()}", at=self._clock(), by=RUNTIME, reason=WHY, undo=self._undo()
            )
        )
        await asyncio.wait([self._task], timeout=self._settle_seconds + 5.0)
        if not self._task.done():
            # Nobody drives it. It is fenced and can begin nothing; whoever takes it up will cancel it.
            _log.warning("a sub-run has not settled and is let go; it is fenced", extra={"run": self.run})
            self._is_let_go = True
            self._task.cancel()
            await asyncio.wait([self._task])

    async def hurry(self) -> None:
        """Have it cancelled once more: its calls wait for nothing then, either."""
        try:
            state = await self._journal.load(self.run)
            if state.status is Status.CANCELLING:
                joined = VerbJoined(
                    id=f"{self.run}.hurry",
                    at=self._clock(),
                    verb=Verb.CANCEL,
                    accepted=state.cancelled_by or "",
                    by=RUNTIME,
                )
                await self._journal.append(self.run, [joined], after=0)
        except JournalError as error:
            _log.warning("a sub-run was not told to hurry: %s", error, extra={"run": self.run})

    async def let_go(self) -> None:
        """Attend to it no longer. It goes on, or stays paused, as it is."""
        self._is_let_go = True
        self._task.cancel()
        await asyncio.wait([self._task])

    async def hold(self) -> bool:
        """Pause the sub-run. False while it is pausing; `on_held` tells when it has."""
        await self._try_to(
            lambda state, effects: c.PauseRun(
                id=HELD_PREFIX + uuid.uuid4().hex, at=self._clock(), by=RUNTIME, reason=WHY
            )
        )
        if await self._is_paused():
            return True
        if self._settling is None and not self._task.done():
            self._settling = asyncio.get_running_loop().create_task(self._until_paused())
        return False

    async def _until_paused(self) -> None:
        try:
            await self._until(lambda state: state.status is Status.PAUSED or state.is_finished)
        finally:
            self._settling = None
        self._on_held()

    async def resume(self) -> None:
        """Resume the sub-run, unless somebody else has paused it."""
        if self._settling is not None:
            self._settling.cancel()
        await self._resume()

    # -- attending

    async def _attend(self) -> CallResult:
        try:
            await self._journal.create(self._created)
        except (Fenced, RunOver):
            return CallResult(outcome=Outcome.ABORTED)
        if not self._is_stopped:
            await self._resume()
        await self._ensure_driven()
        return await self._end()

    async def _resume(self) -> None:
        def resume(state: State, effects: object) -> c.ResumeRun:
            # Somebody may pause it for itself until the resume is in the journal.
            if not state.is_held:
                raise Refused(f"Run {self.run} is not paused with its parent alone.", code="not_now", run=self.run)
            return c.ResumeRun(id=uuid.uuid4().hex, at=self._clock(), by=RUNTIME, reason="resumed with its parent")

        await self._try_to(resume)

    async def _try_to(self, make: Make) -> None:
        """Have a verb taken by the sub-run. One that is refused has come too late or too early, and is let be."""
        try:
            await take_command(self._journal, self.run, make)
        except Refused as refused:
            _log.debug("a sub-run refused a verb of its parent: %s", refused, extra={"run": self.run})
        except JournalError as error:
            _log.warning("a sub-run was not told a verb of its parent: %s", error, extra={"run": self.run})

    async def _is_paused(self) -> bool:
        try:
            return (await self._journal.load(self.run)).status is Status.PAUSED
        except JournalError as error:
            _log.warning("nobody knows whether a sub-run is paused: %s", error, extra={"run": self.run})
            return False

    async def _end(self) -> CallResult:
        finished = await self._until(lambda state: state.is_finished)
        for record in reversed(await self._journal.read(self.run)):
            if isinstance(record.event, RunFinished):
                event = record.event
                break
        else:  # pragma: no cover - a finished run has its end in the journal
            raise AssertionError(f"{self.run} is finished without an end")
        return CallResult(
            outcome=_OUTCOMES[event.status], result=stored(event.result), error=event.error, usage=finished.usage
        )

    async def _until(self, condition: Callable[[State], bool]) -> State:
        follower = self._journal.follow(self.run)
        try:
            async for _ in follower:
                state = await self._journal.load(self.run)
                if condition(state):
                    return state
        finally:
            await follower.aclose()
        raise AssertionError("a follower never ends by itself")


WHY: Final = "with its parent"
