"""A sub-run as a call of its parent: it has a journal, a driver and a receipt of its own, and stops with its parent.

The call only attends to it. A parent that crashes finds its sub-run again by its id and goes on waiting for it; one
that is stopped cancels it and waits until it has settled, so that what it did is undone before what its parent did.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from checkrein.core import commands as c
from checkrein.core.ends import RUNTIME
from checkrein.core.events import RunCreated, RunFinished
from checkrein.core.state import State
from checkrein.core.words import Outcome, Status, Undo
from checkrein.errors import Fenced, JournalError, Refused, RunOver
from checkrein.journal.contract import Journal
from checkrein.runtime.deciding import take
from checkrein.runtime.spec import Ended
from checkrein.runtime.values import stored

HELD: Final = "held:"
"""The id of a pause that a parent passed on begins with this: it is resumed with the parent, and no other is."""

_OUTCOMES: Final = {
    Status.COMPLETED: Outcome.COMPLETED,
    Status.FAILED: Outcome.FAILED,
    Status.CANCELLED: Outcome.ABORTED,
    Status.KILLED: Outcome.KILLED,
}


class SubRun:
    """Attends to one sub-run. `hire` sees to it that somebody drives it."""

    def __init__(
        self,
        journal: Journal,
        created: RunCreated,
        *,
        hire: Callable[[], Awaitable[None]],
        clock: Callable[[], float],
        undo: Callable[[], Undo],
        settle_seconds: float,
        on_held: Callable[[], None],
    ) -> None:
        self._journal = journal
        self._created = created
        self._hire = hire
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

    async def ended(self) -> Ended:
        await asyncio.wait([self._task])
        if self._task.cancelled():
            return Ended(outcome=Outcome.DETACHED if self._is_let_go else Outcome.ABORTED)
        return self._task.result()

    async def abort(self) -> None:
        """Cancel the sub-run and wait until it has settled: leaves first."""
        self._is_stopped = True
        with suppress(Refused, JournalError):
            await take(
                self._journal,
                self.run,
                lambda state, effects: c.CancelRun(
                    id=f"{self.run}.stop.{self._undo()}", at=self._clock(), by=RUNTIME, reason=WHY, undo=self._undo()
                ),
            )
        await asyncio.wait([self._task], timeout=self._settle_seconds + 5.0)
        if not self._task.done():
            # Nobody drives it. It is fenced and can begin nothing; whoever takes it up will cancel it.
            self._is_let_go = True
            self._task.cancel()
            await asyncio.wait([self._task])

    async def let_go(self) -> None:
        """Attend to it no longer. It goes on, or stays paused, as it is."""
        self._is_let_go = True
        self._task.cancel()
        await asyncio.wait([self._task])

    async def hold(self) -> bool:
        """Pause the sub-run. False while it is pausing; `on_held` tells when it has."""
        with suppress(Refused, JournalError):
            await take(
                self._journal,
                self.run,
                lambda state, effects: c.PauseRun(id=HELD + uuid.uuid4().hex, at=self._clock(), by=RUNTIME, reason=WHY),
            )
            if (await self._journal.load(self.run)).status is Status.PAUSED:
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

    async def go_on(self) -> None:
        """Resume the sub-run, unless somebody else has paused it."""
        if self._settling is not None:
            self._settling.cancel()
        await self._resume()

    # -- attending

    async def _attend(self) -> Ended:
        try:
            await self._journal.create(self._created)
        except (Fenced, RunOver):
            return Ended(outcome=Outcome.ABORTED)
        if not self._is_stopped:
            await self._resume()
        await self._hire()
        return await self._end()

    async def _resume(self) -> None:
        def resume(state: State, effects: object) -> c.ResumeRun:
            return c.ResumeRun(id=uuid.uuid4().hex, at=self._clock(), by=RUNTIME, reason="resumed with its parent")

        with suppress(Refused, JournalError):
            state = await self._journal.load(self.run)
            is_ours = (state.paused_by or "").startswith(HELD)
            if is_ours and state.status in (Status.PAUSED, Status.PAUSING):
                await take(self._journal, self.run, resume)

    async def _end(self) -> Ended:
        finished = await self._until(lambda state: state.is_finished)
        for record in reversed(await self._journal.read(self.run)):
            if isinstance(record.event, RunFinished):
                event = record.event
                break
        else:  # pragma: no cover - a finished run has its end in the journal
            raise AssertionError(f"{self.run} is finished without an end")
        return Ended(
            outcome=_OUTCOMES[event.status],
            result=stored(event.result),
            error=event.error,
            usage=finished.usage,
        )

    async def _until(self, condition: Callable[[State], bool]) -> State:
        follower = self._journal.follow(self.run)
        try:
            async for _ in follower:
                state = await self._journal.load(self.run)
                if condition(state):
                    return state
        finally:
            await follower.aclose()  # type: ignore[attr-defined]
        raise AssertionError("a follower never ends by itself")


WHY: Final = "with its parent"
