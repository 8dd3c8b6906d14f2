"""Runs that somebody else drives: they cost an idle process nothing, and are taken up when they are free."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter

import pytest

from checkrein.core.enums import Status
from checkrein.core.events import ReasonAdded
from checkrein.engines.dispatcher import Dispatcher
from checkrein.engines.leases import LeaseEngine
from checkrein.journal import Journal, Lease, Owner
from checkrein.journal.memory import MemoryJournal
from tests.support.driver_harness import Outside, Playing, Stage, new_run, owner
from tests.support.patience import PATIENCE_SECONDS
from tests.support.questions import count_questions

pytestmark = pytest.mark.anyio

ELSEWHERE = Owner(process="another", host="elsewhere")
CONTROL = Owner(process="another-control", host="elsewhere")


async def script(stage: Stage) -> str:
    return "done"


@pytest.fixture
def journal() -> MemoryJournal:
    return MemoryJournal()


def engine_of(journal: Journal) -> LeaseEngine:
    return LeaseEngine(Dispatcher(journal, owner(), {"player": Playing(Outside(), script)}))


async def driven_elsewhere(journal: Journal, count: int, by: Owner = ELSEWHERE) -> list[Lease]:
    for number in range(count):
        await new_run(journal, f"r{number}", thread=f"r{number}")
    return [await journal.claim(f"r{number}", by, seconds=3_600) for number in range(count)]


async def until_all(journal: Journal, status: Status) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not all(row.status is status for row in await journal.runs()):
            await asyncio.sleep(0.01)


async def questions_of_looks(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    async with engine_of(journal) as engine:
        with monkeypatch.context() as patch:
            asked = count_questions(journal, patch)
            for _ in range(3):
                await engine._look()
        assert engine.runs == ()
    return asked


async def test_a_look_asks_the_same_however_many_runs_others_drive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LeaseEngine, "_look_now_and_then", asyncio.Event().wait)  # the looks of the test are all
    few, many = MemoryJournal(), MemoryJournal()
    await driven_elsewhere(few, 5)
    await driven_elsewhere(many, 500)

    asked = await questions_of_looks(many, monkeypatch)

    assert asked == await questions_of_looks(few, monkeypatch)
    assert asked == {"claim_free": 3, "owners": 1}, "one question a look, and now and then who has died"


async def test_what_happens_to_runs_of_others_is_asked_about_once_a_look(
    journal: MemoryJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("checkrein.engines.leases.CLAIM_SECONDS", 3_600.0)
    await driven_elsewhere(journal, 50)
    async with engine_of(journal) as engine:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(engine._theirs) < 50:
                await happens(journal, 50)
                await asyncio.sleep(0.01)
        asked = count_questions(journal, monkeypatch)

        for _ in range(20):
            await happens(journal, 50)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(engine._changed) < 50:
                await asyncio.sleep(0.01)
        await engine._look()

        assert asked["leases"] == 1
        assert asked["lease"] == asked["load"] == 0


async def happens(journal: Journal, count: int) -> None:
    """Something is appended to each of the runs."""
    for number in range(count):
        event = ReasonAdded(id=uuid.uuid4().hex, at=1.0, reason="late", by="ann")
        await journal.append(f"r{number}", [event], after=1)


async def test_runs_that_others_let_go_are_taken_up(journal: Journal) -> None:
    leases = await driven_elsewhere(journal, 50)
    async with engine_of(journal):
        for lease in leases:
            await journal.release(lease)  # an event tells nobody

        await until_all(journal, Status.COMPLETED)


async def test_a_run_that_changes_while_control_has_it_is_taken_up_when_it_is_let_go(
    journal: MemoryJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("checkrein.engines.leases.CLAIM_SECONDS", 3_600.0)
    monkeypatch.setattr("checkrein.engines.leases.TRY_AGAIN_SECONDS", (0.05,) * 100_000)
    leases = await driven_elsewhere(journal, 50, CONTROL)
    async with engine_of(journal) as engine:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(engine._trying) < 50:
                await happens(journal, 50)  # an engine hears only of what happens once it listens
                await asyncio.sleep(0.01)

        for lease in leases:
            await journal.release(lease)

        await until_all(journal, Status.COMPLETED)
