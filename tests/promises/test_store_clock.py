"""Hosts whose clocks differ: whatever is recorded or shown in a store of PostgreSQL goes by the clock of its server."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import ClassVar

import pytest

from checkrein import Agent, Runtime
from checkrein.control.control import Control
from checkrein.control.start import StartRun
from checkrein.control.worker_roster import AgentCard
from checkrein.core.enums import Status, Verb
from checkrein.core.receipts import Receipt
from checkrein.errors import StoreUnavailable
from checkrein.journal import Journal, open_journal
from checkrein.models import ScriptedModel
from checkrein.processes.identity import this_process
from checkrein.secrets import OFF
from checkrein.server.processes.backend import FrontBackend

pytestmark = pytest.mark.anyio

HOUR = 3_600.0

Clock = Callable[[], float]


@pytest.fixture
def address(postgres_store: str) -> str:
    return postgres_store


def set_clock(monkeypatch: pytest.MonkeyPatch, seconds: float) -> Clock:
    """From now on the clock of this host is off; the one that is returned is right."""
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + seconds)
    return right


async def times(journal: Journal, run: str) -> list[float]:
    return [record.event.at for record in await journal.read(run)]


class Drivers:
    """Of another host: there is an agent, and nobody here who drives it."""

    cards: ClassVar = {"worker": AgentCard(name="worker")}


@pytest.mark.parametrize("off", [HOUR, -HOUR])
async def test_a_front_whose_clock_is_off_by_an_hour_begins_and_stops_runs_by_the_clock_of_the_store(
    address: str, monkeypatch: pytest.MonkeyPatch, off: float
) -> None:
    right = set_clock(monkeypatch, off)
    began = right()
    async with await open_journal(address) as journal:
        control = Control(journal, this_process(), secrets=OFF)
        front = FrontBackend(journal, control, OFF)
        front.slots = Drivers()  # type: ignore[assignment]
        assert abs(front.now() - right()) < HOUR / 2

        run = await front.start(StartRun(agent="worker", goal="Go.", by="ann"))
        receipt = await control.cancel(run, by="ann")

        assert isinstance(receipt, Receipt)
        assert (receipt.verb, (await journal.load(run)).status) == (Verb.CANCEL, Status.CANCELLED)
        assert all(began - 1 < at < right() + 1 for at in await times(journal, run))
        accepted, settled = receipt.timing_ms.accepted, receipt.timing_ms.settled
        assert accepted is not None
        assert settled is not None
        assert 0 <= accepted <= settled < HOUR * 500


async def test_a_runtime_records_by_the_clock_of_the_store(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = set_clock(monkeypatch, -4)
    began = right()
    async with Runtime(address, agents=[(speaker := Agent("speaker", model=ScriptedModel(["Hello."])))]) as runtime:
        run = await runtime.start(speaker, "Go.")
        await run.result()

        recorded = await times(runtime.journal, run.id)
        assert all(began - 1 < at < right() + 1 for at in recorded), [at - began for at in recorded]
        assert began - 1 < runtime.now() < right() + 1


async def test_a_runtime_whose_clock_is_off_by_an_hour_drives_nothing_and_says_why(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_clock(monkeypatch, HOUR)

    with pytest.raises(StoreUnavailable, match="The clock of this host is") as refused:
        async with Runtime(address, agents=[Agent("speaker", model=ScriptedModel(["Hello."]))]):
            pass

    assert refused.value.code == "store_clock_off"
