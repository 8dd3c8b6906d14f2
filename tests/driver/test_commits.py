"""The scribe of a driver, when the run is no longer as it was."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec
import pytest

from checkrein.calls.base import CallRequest
from checkrein.core.enums import CallKind, Outcome, Status
from checkrein.core.events import CallFinished, PlanPublished, RunCreated, RunFinished, RunStarted
from checkrein.driver.commits import RunWriter
from checkrein.driver.ownership import Ownership
from checkrein.errors import EventTooLarge
from checkrein.journal import Appended, MemoryJournal, encoding
from checkrein.processes.identity import this_process
from tests.support.driver_harness import Outside, Playing, Scripted, Stage, drive, new_run
from tests.support.patience import PATIENCE_SECONDS

RUN = "r-1"


class Patient(MemoryJournal):
    """Is asked a few times, and not for ever."""

    appends = 0
    most = 20

    async def append(self, *args: Any, **more: Any) -> Appended:
        self.appends += 1
        assert self.appends < self.most, "the same is tried again and again"
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
        writer = RunWriter(journal, await journal.load(RUN), Ownership(journal, lease), lambda record: None)
        over = RunFinished(id="over", at=at, status=Status.CANCELLED)
        await journal.append(RUN, [over], after=2, epoch=lease.epoch)

        writer.record(PlanPublished(id="plan.1", at=at, steps=("Fetch",)))
        async with asyncio.timeout(PATIENCE_SECONDS):
            await writer.flush()
            await writer.rest()

        assert writer.state.status is Status.CANCELLED
        assert [record.event.id for record in await journal.read(RUN)] == ["created", "began", "over"]


@pytest.fixture
def small_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal that takes little in one event, so that a test need not make much."""
    monkeypatch.setattr(encoding, "LARGEST_EVENT", 20_000)


@pytest.mark.anyio
@pytest.mark.usefixtures("small_events")
async def test_a_result_that_no_journal_takes_is_the_failure_of_its_call_and_the_run_goes_on() -> None:
    """D4: nothing is tried for ever."""
    journal, outside = Patient(), Outside()
    journal.most = 40

    async def script(stage: Stage) -> Any:
        await stage.driver.call(
            CallRequest(
                kind=CallKind.TOOL, name="huge", perform=lambda permit: Scripted(huge, outside, "huge"), arguments=b"{}"
            )
        )
        return str(await stage.call("next"))

    async def huge() -> str:
        return "x" * 30_000

    await new_run(journal)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await (await drive(journal, Playing(outside, script)))

    ends = [record.event for record in await journal.read("r") if isinstance(record.event, CallFinished)]
    assert [(end.outcome, end.result is None) for end in ends] == [(Outcome.FAILED, True), (Outcome.COMPLETED, False)]
    assert "30002 bytes" in str(ends[0].error)
    assert outside.log == ["begin next", "end next"]


@pytest.mark.anyio
@pytest.mark.usefixtures("small_events")
async def test_arguments_that_no_journal_takes_fail_the_call_before_it_begins() -> None:
    journal, outside = Patient(), Outside()

    async def script(stage: Stage) -> str:
        request = CallRequest(
            kind=CallKind.TOOL,
            name="huge",
            perform=lambda permit: Scripted(nothing, outside, "huge"),
            arguments=msgspec.json.encode("x" * 30_000),
        )
        with pytest.raises(EventTooLarge) as refused:
            await stage.driver.call(request)
        return refused.value.code

    async def nothing() -> None:
        outside.log.append("it began")

    await new_run(journal)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await (await drive(journal, Playing(outside, script)))

    assert outside.log == []
    assert (await journal.load("r")).status is Status.COMPLETED


@pytest.mark.anyio
@pytest.mark.usefixtures("small_events")
async def test_a_run_whose_result_no_journal_takes_has_failed_and_says_why() -> None:
    journal, outside = Patient(), Outside()

    async def script(stage: Stage) -> str:
        return "x" * 30_000

    await new_run(journal)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await (await drive(journal, Playing(outside, script)))

    (*_, last) = await journal.read("r")
    assert isinstance(last.event, RunFinished)
    assert last.event.status is Status.FAILED
    assert "bytes" in str(last.event.error)
