"""The list of runs: filters, pages, and who is shown what."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlencode

import pytest

from checkrein import Agent, Runtime
from checkrein.core.enums import Status
from checkrein.core.events import ReasonAdded, RunStarted
from checkrein.models import ScriptedModel, Turn
from checkrein.processes.identity import this_process
from checkrein.server.auth.principals import Principal, Role
from checkrein.server.run_list import Listing, RunFilters
from tests.server.serving import Client
from tests.server.test_stream import Paper
from tests.support.agent_tools import wire_money
from tests.support.patience import PATIENCE_SECONDS
from tests.support.questions import count_questions
from tests.support.witness import Witness

pytestmark = pytest.mark.anyio


class Clock:
    """Says what it is told: runs of a test were begun when the test says so."""

    def __init__(self) -> None:
        self.at = 1_000.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
async def clock() -> Clock:
    return Clock()


@pytest.fixture
async def runtime(store: str, clock: Clock, witness: Witness) -> AsyncIterator[Runtime]:
    quick = Agent("quick", model=ScriptedModel(lambda _: Turn("Done.")))
    turns = [Turn("I pay.", calls=[("wire_money", {"log": witness.log})]), Turn("Paid.")]
    payer = Agent("payer", model=ScriptedModel(turns), tools=[wire_money])
    async with Runtime(store, agents=[quick, payer], clock=clock) as opened:
        yield opened


async def ids(client: Client, who: str = "op:operator:", **query: Any) -> list[str]:
    status, told = await client.get(f"/api/runs?{urlencode(query)}", headers={"who": who})
    assert status == 200, told
    return [run["id"] for run in told["runs"]]


async def done(client: Client, goal: str = "go", who: str = "op:operator:") -> str:
    _, run = await client.post("/api/runs", {"agent": "quick", "goal": goal}, headers={"who": who})
    await client.until(run["id"], "completed")
    return str(run["id"])


async def test_runs_are_found_by_when_they_were_begun(client: Client, clock: Clock) -> None:
    runs = []
    for clock.at in (1_000.0, 2_000.0, 3_000.0):
        runs.append(await done(client))
    first, second, third = runs

    assert await ids(client, since=2_000) == [third, second]
    assert await ids(client, until=2_000) == [first]
    assert await ids(client, since="1970-01-01T00:30", until="1970-01-01T00:45:00Z") == [second]
    assert await ids(client, since="1970-01-01T01:30+01:00") == [third, second]
    assert await ids(client, since="1970-01-02") == []


async def test_runs_are_found_by_a_part_of_their_goal_or_by_how_their_id_begins(client: Client) -> None:
    churn, mail = await done(client, "Which customers will churn?"), await done(client, "Write a mail")

    assert await ids(client, search="CHURN") == [churn]
    assert await ids(client, search=mail[:8]) == [mail]
    assert await ids(client, search="churn", agent="payer") == []


async def test_those_that_wait_for_a_person_are_asked_for_alone(client: Client) -> None:
    await done(client)
    waiting = await client.start("payer")
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await ids(client, waiting="true") != [waiting]:
            await asyncio.sleep(0.02)

    assert await ids(client, waiting="true", status="completed") == []


async def test_a_list_comes_in_pages_that_fit_its_filters(client: Client) -> None:
    runs = [await done(client, f"even {n}" if n % 2 == 0 else "odd") for n in range(5)]

    assert await ids(client, search="even", limit=2) == [runs[4], runs[2]]
    assert await ids(client, search="even", limit=2, before=runs[2]) == [runs[0]]


async def test_nobody_is_shown_the_runs_of_others_whatever_they_ask_for(client: Client) -> None:
    anns = await done(client, "of ann", "ann:controller:ann")
    bobs = await done(client, "of bob", "bob:controller:bob")
    theirs = "ann:controller:ann"

    assert await ids(client, theirs) == [anns]
    assert await ids(client, theirs, owner="ann") == [anns]
    assert await ids(client, theirs, owner="bob") == []
    assert await ids(client, theirs, search="of bob") == []
    assert await ids(client, theirs, search=bobs) == []
    assert await ids(client, owner="bob") == [bobs], "an operator sees everybody's"
    assert (await client.get(f"/api/runs?before={bobs}", headers={"who": theirs}))[0] == 404


@pytest.mark.parametrize(
    "query",
    [
        "status=sleeping",
        "since=yesterday",
        "since=nan",
        "until=-5",
        "since=1e999",
        "until=99999-01-01",
        "search=",
        "agent=",
        "limit=0",
        "limit=501",
        "waiting=perhaps",
        f"search={'x' * 201}",
    ],
)
async def test_what_cannot_be_meant_is_refused_with_a_code_and_a_sentence(client: Client, query: str) -> None:
    status, told = await client.get(f"/api/runs?{query}")

    assert (status, told["code"]) == (422, "invalid")
    assert query.partition("=")[0] in told["message"]


async def test_a_page_takes_as_many_questions_for_fifty_runs_as_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    paper = Paper()
    runs = [await paper.start("paper", "go") for _ in range(50)]
    for run in runs:
        lease = await paper.journal.claim(run, this_process(), seconds=60)
        began = RunStarted(id=f"{run}.began", at=paper.now(), epoch=lease.epoch, status=Status.RUNNING)
        await paper.journal.append(run, [began], after=1, epoch=lease.epoch)
    listing, asked = Listing(paper), count_questions(paper.journal, monkeypatch)
    operator = Principal(name="op", role=Role.OPERATOR)

    async def page() -> dict[str, int]:
        asked.clear()
        found = await listing.page(operator, RunFilters(), before=None, limit=100)
        assert [line.id for line in found.runs] == runs[::-1]
        assert all(line.driven and line.status is Status.RUNNING for line in found.runs)
        return dict(asked)

    assert await page() == {"runs": 1, "states": 1, "leases": 1}
    assert await page() == {"runs": 1, "leases": 1}
    await paper.journal.append(runs[0], [ReasonAdded(id="why", at=paper.now(), reason="x", by="ann")], after=2)
    assert await page() == {"runs": 1, "states": 1, "leases": 1}
