"""The scribe of a driver, when the run is no longer as it was."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from checkrein.core.events import PlanPublished, RunCreated, RunFinished, RunStarted
from checkrein.core.words import Status
from checkrein.journal import Appended, MemoryJournal
from checkrein.runtime.identity import this_process
from checkrein.runtime.scribe import Scribe

RUN = "r-1"


class Patient(MemoryJournal):
    """Is asked a few times, and not for ever."""

    appends = 0

    async def append(self, *args: Any, **more: Any) -> Appended:
        self.appends += 1
        assert self.appends < 20, "the same is tried again and again"
        return await super().append(*args, **more)


@pytest.mark.anyio
async def test_what_a_finished_run_does_not_take_is_let_go_and_not_tried_for_ever() -> None:
    """D4: a run that is cancelled just as it begins leaves nothing behind that keeps the machine busy."""
    async with Patient() as journal:
        at = time.time()
        await journal.create(RunCreated(id="created", at=at, run=RUN, agent="a", goal="g", thread=RUN))
        lease = await journal.claim(RUN, this_process(), seconds=60)
        began = RunStarted(id="began", at=at, epoch=lease.epoch, status=Status.RUNNING)
        await journal.append(RUN, [began], after=1, epoch=lease.epoch)
        scribe = Scribe(journal, await journal.load(RUN), lease.epoch, lambda record: None)
        over = RunFinished(id="over", at=at, status=Status.CANCELLED)
        await journal.append(RUN, [over], after=2, epoch=lease.epoch)

        scribe.note(PlanPublished(id="plan.1", at=at, steps=("Fetch",)))
        async with asyncio.timeout(20):
            await scribe.flush()
            await scribe.rest()

        assert scribe.state.status is Status.CANCELLED
        assert [record.event.id for record in await journal.read(RUN)] == ["created", "began", "over"]
