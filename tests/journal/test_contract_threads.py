"""Threads: whose turn it is, and creations at the same moment on several journals of one store."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from checkrein.core.events import RunCreated
from checkrein.errors import Refused
from checkrein.journal import Journal, Recorded
from tests.journal.build import created, over
from tests.journal.conftest import Store
from tests.support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio

ROUNDS = 30


async def refused_creation(journal: Journal, event: RunCreated) -> Refused:
    with pytest.raises(Refused) as refused:
        await journal.create(event, if_busy="refuse")
    return refused.value


async def test_a_busy_thread_refuses_a_run_and_names_the_one_whose_turn_it_is(journal: Journal):
    await journal.create(created("r1"))
    await journal.create(created("r2"))

    refused = await refused_creation(journal, created("r3"))

    assert (refused.code, refused.run) == ("thread_busy", "r1")
    assert refused.message == "Thread t1 is busy with run r1."
    assert [row.id for row in await journal.runs(thread="t1")] == ["r2", "r1"]


async def test_a_run_that_waits_for_its_turn_is_not_refused(journal: Journal):
    await journal.create(created("r1"))

    await journal.create(created("r2"), if_busy="queue")

    assert [row.id for row in await journal.runs(thread="t1")] == ["r2", "r1"]


async def test_other_threads_other_owners_sub_runs_and_what_is_finished_keep_nobody_busy(journal: Journal):
    await journal.create(created("r1", thread="t2"))
    await journal.create(created("r2", owner="ann"))
    await journal.create(created("r3", thread="t3"))
    await journal.create(created("r3.1", parent="r3", root="r3"))
    await over(journal, "r4")

    record = await journal.create(created("r5"), if_busy="refuse")

    assert record.seq == 1


async def test_a_creation_that_is_repeated_is_not_refused_for_its_own_run(journal: Journal):
    first = await journal.create(created("r1"), if_busy="refuse")

    assert await journal.create(created("r1"), if_busy="refuse") == first


async def test_of_two_creations_at_the_same_moment_exactly_one_is_taken(store: Store):
    journals = [store.open() for _ in range(3)]

    for number in range(ROUNDS):
        creations = [
            journal.create(created(f"r{number}-{each}", thread=f"t{number}"), if_busy="refuse")
            for each, journal in enumerate(journals)
        ]
        answers = await asyncio.gather(*creations, return_exceptions=True)

        taken = [answer for answer in answers if isinstance(answer, Recorded)]
        refused = [answer for answer in answers if isinstance(answer, Refused)]
        rows = await journals[0].runs(thread=f"t{number}")
        assert [row.id for row in rows] == [record.run for record in taken]
        assert len(taken) == 1
        assert {answer.run for answer in refused} == {taken[0].run}


async def test_runs_of_a_thread_are_listed_in_the_order_of_their_commits(store: Store):
    """Who has seen a run never sees an older one appear: else two would each think that it is their turn."""
    journals, reader = [store.open() for _ in range(3)], store.open()
    seen: list[list[str]] = []
    is_over = anyio.Event()

    async def create(each: int, journal: Journal) -> None:
        for number in range(ROUNDS):
            await journal.create(created(f"r{each}-{number}"))

    async def look() -> None:
        while not is_over.is_set():
            seen.append([row.id for row in reversed(await reader.runs(thread="t1", limit=1000))])
            await asyncio.sleep(0)

    with anyio.fail_after(PATIENCE_SECONDS):
        async with anyio.create_task_group() as group:
            group.start_soon(look)
            await asyncio.gather(*(create(each, journal) for each, journal in enumerate(journals)))
            is_over.set()

    last = [row.id for row in reversed(await reader.runs(thread="t1", limit=1000))]
    assert len(last) == 3 * ROUNDS
    assert all(ids == last[: len(ids)] for ids in seen)
