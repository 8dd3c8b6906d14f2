"""A store that is away for a while: nothing in flight is stopped for it, and the next verb is heard when it is back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import pytest

from checkrein.calls.sub_run import SubRun
from checkrein.control.control import Control
from checkrein.core.enums import Outcome, Status, Undo
from checkrein.core.events import CallFinished, CallStarted, Event, RunCreated, RunFinished, RunStarted
from checkrein.core.receipts import Receipt
from checkrein.driver.ownership import Ownership
from checkrein.driver.patient_journal import PatientJournal
from checkrein.errors import StoreUnavailable
from checkrein.journal import Appended, MemoryJournal
from tests.support.away import store_away
from tests.support.driver_harness import Outside, Playing, Stage, at_work, drive, driver_of, new_run, owner, until
from tests.support.patience import PATIENCE_SECONDS, within

pytestmark = pytest.mark.anyio

AWAY_SECONDS = 0.5
"""Long enough for a driver to notice several times."""


@pytest.fixture
def journal() -> MemoryJournal:
    return MemoryJournal()


@pytest.fixture
def outside() -> Outside:
    return Outside()


async def ends(journal: MemoryJournal) -> list[tuple[str, Outcome]]:
    finished = [record.event for record in await journal.read("r") if isinstance(record.event, CallFinished)]
    return [(end.call, end.outcome) for end in finished]


async def test_a_cancel_is_heard_within_a_second_of_the_return_of_a_store_that_was_away(
    journal: MemoryJournal, outside: Outside
) -> None:
    async def script(stage: Stage) -> None:
        await stage.call("send", seconds=600, effect=True)

    driving = await at_work(journal, Playing(outside, script), "begin send")
    with store_away(journal):
        await asyncio.sleep(AWAY_SECONDS)

    back = time.monotonic()
    receipt = await Control(journal, owner("control")).cancel("r", by="a person", wait=PATIENCE_SECONDS)

    assert time.monotonic() - back < within(1.0)
    assert isinstance(receipt, Receipt)
    assert outside.log == ["begin send", "abort send", "undo send"]
    async with asyncio.timeout(PATIENCE_SECONDS):
        await driving


async def test_what_is_in_flight_goes_on_while_the_end_of_another_call_cannot_be_recorded(
    journal: MemoryJournal, outside: Outside
) -> None:
    async def script(stage: Stage) -> None:
        async with asyncio.TaskGroup() as both:
            both.create_task(stage.call("long", seconds=600, effect=True, place="a"))
            both.create_task(stage.call("short", seconds=0.2, effect=True, place="b"))

    await new_run(journal)
    driving = await drive(journal, Playing(outside, script))
    await until(lambda: {"begin long", "begin short"} <= set(outside.log))
    with store_away(journal):
        await until(lambda: "end short" in outside.log)
        await asyncio.sleep(AWAY_SECONDS)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(await ends(journal)) < 1:
            await asyncio.sleep(0.01)

    assert [outcome for _, outcome in await ends(journal)] == [Outcome.COMPLETED]
    assert "abort long" not in outside.log
    started = [record.event for record in await journal.read("r") if isinstance(record.event, RunStarted)]
    assert len(started) == 1, "nobody else took the run up"
    driving.cancel()
    await asyncio.gather(driving, return_exceptions=True)


class Forgetful(MemoryJournal):
    """Takes the append with a permit, and is away before it can say so; more than once."""

    unanswered = 0

    async def append(self, run: str, events: Sequence[Event], *, after: int, epoch: int | None = None) -> Appended:
        appended = await super().append(run, events, after=after, epoch=epoch)
        if any(isinstance(event, CallStarted) for event in events) and self.unanswered < 3:
            self.unanswered += 1
            raise StoreUnavailable("The connection was lost before it answered.")
        return appended


async def test_an_append_whose_answer_was_lost_is_looked_up_and_nothing_is_done_twice(outside: Outside) -> None:
    journal = Forgetful()

    async def script(stage: Stage) -> Any:
        return [await stage.call("first"), await stage.call("second")]

    await new_run(journal)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await (await drive(journal, Playing(outside, script)))

    assert journal.unanswered == 3
    assert outside.log == ["begin first", "end first", "begin second", "end second"]
    assert (await journal.load("r")).status is Status.COMPLETED
    permits = [record.event.call for record in await journal.read("r") if isinstance(record.event, CallStarted)]
    assert len(permits) == len(set(permits)) == 2


async def test_a_run_is_given_up_when_its_lease_is_over_and_the_store_is_still_away(
    journal: MemoryJournal, outside: Outside
) -> None:
    holds = True

    async def script(stage: Stage) -> None:
        async with asyncio.TaskGroup() as both:
            both.create_task(stage.call("long", seconds=600, effect=True, place="a"))
            both.create_task(stage.call("short", seconds=0.2, place="b"))

    await new_run(journal)
    lease = await journal.claim("r", owner(), seconds=60)
    driver = await driver_of(journal, Playing(outside, script), lease)
    driver.ownership._holds = lambda: holds
    driving = asyncio.ensure_future(driver.drive())
    await until(lambda: {"begin long", "begin short"} <= set(outside.log))
    with store_away(journal):
        await until(lambda: "end short" in outside.log)
        await asyncio.sleep(AWAY_SECONDS)
        assert "abort long" not in outside.log

        holds = False
        await until(lambda: "abort long" in outside.log)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await driving

    assert (Outcome.IN_DOUBT in dict(await ends(journal)).values()) is True


async def test_the_end_of_a_sub_run_is_heard_within_a_second_of_the_return_of_the_store(journal: MemoryJournal) -> None:
    await new_run(journal, "parent")
    ownership = Ownership(journal, await journal.claim("parent", owner(), seconds=60))
    created = RunCreated(
        id="child.created",
        at=1.0,
        run="child",
        agent="player",
        goal="g",
        thread="child",
        parent="parent",
        root="parent",
    )

    async def nobody() -> None:
        return None

    sub_run = SubRun(
        PatientJournal(journal, ownership),
        created,
        ensure_driven=nobody,
        clock=time.time,
        undo=lambda: Undo.OPEN,
        settle_seconds=30.0,
        on_held=lambda: None,
    )
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await journal.find("parent", "created") is None or "child" not in journal._runs:
            await asyncio.sleep(0.01)
    with store_away(journal):
        await asyncio.sleep(AWAY_SECONDS)

    epoch = (await journal.claim("child", owner("driver"), seconds=60)).epoch
    back = time.monotonic()
    over = RunFinished(id="over", at=2.0, status=Status.COMPLETED)
    await journal.append("child", [over], after=1, epoch=epoch)
    async with asyncio.timeout(PATIENCE_SECONDS):
        ended = await sub_run.ended()

    assert ended.outcome is Outcome.COMPLETED
    assert time.monotonic() - back < within(1.0)
