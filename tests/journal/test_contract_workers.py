"""The roster of workers, on every journal."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from checkrein.errors import MisuseError, NameTaken, WorkerNotFound
from checkrein.journal import Journal, Owner, Worker
from checkrein.journal.base import LISTED_SECONDS
from tests.journal.build import ALICE, BOB
from tests.journal.conftest import Store

pytestmark = pytest.mark.anyio


def worker(name: str = "w1", owner: Owner = ALICE, agents: tuple[str, ...] = ("churn",), version: str = "v2") -> Worker:
    return Worker(
        name=name, owner=owner, version=version, cards=b'[{"name":"churn"}]', agents=agents, slots=50, free=49
    )


async def test_a_worker_is_listed_with_all_that_it_said_and_by_the_clock_of_the_store(journal: Journal, store: Store):
    enlisted = await journal.enlist(worker(), seconds=15)

    assert enlisted == replace(worker(), since=store.clock.now, seen_until=store.clock.now + 15)
    assert await journal.workers() == (enlisted,)


async def test_another_process_sees_the_same_roster(journal: Journal, store: Store):
    enlisted = await journal.enlist(worker(), seconds=15)

    assert await store.open().workers() == (enlisted,)


async def test_a_worker_that_says_so_again_is_seen_for_longer_and_may_say_something_else(
    journal: Journal, store: Store
):
    first = await journal.enlist(worker(), seconds=15)
    store.clock.now += 10
    again = await journal.enlist(
        replace(worker(), free=0, cards=b"[]", agents=("churn", "mail"), version="v3"), seconds=15
    )

    assert (again.since, again.seen_until) == (first.since, store.clock.now + 15)
    assert (again.free, again.cards, again.agents, again.version) == (0, b"[]", ("churn", "mail"), "v3")
    assert await journal.workers() == (again,)


async def test_workers_are_listed_the_last_enlisted_first_whether_seen_or_not(journal: Journal, store: Store):
    await journal.enlist(worker("w1"), seconds=15)
    store.clock.now += 60
    await journal.enlist(worker("w2", BOB), seconds=15)

    assert [listed.name for listed in await journal.workers()] == ["w2", "w1"]


async def test_a_name_is_refused_while_another_process_of_that_name_is_seen(journal: Journal, store: Store):
    first = await journal.enlist(worker(), seconds=15)
    store.clock.now += 14

    with pytest.raises(NameTaken) as refused:
        await journal.enlist(worker(owner=BOB), seconds=15)

    assert refused.value.code == "name_taken"
    assert refused.value.worker == first
    assert "since 1970-01-01 00:16:40 UTC on here (process 11)" in refused.value.message
    assert await journal.workers() == (first,)
    assert await journal.departed([ALICE.process, BOB.process]) == frozenset()


async def test_a_newer_process_of_a_name_has_it_once_the_older_is_not_seen_and_that_one_is_known_dead(
    journal: Journal, store: Store
):
    await journal.enlist(worker(), seconds=15)
    store.clock.now += 15
    newer = await journal.enlist(worker(owner=BOB), seconds=15)

    assert await journal.workers() == (newer,)
    assert await journal.departed([ALICE.process, BOB.process, "unknown"]) == {ALICE.process}
    with pytest.raises(NameTaken) as refused:
        await journal.enlist(worker(), seconds=15)  # it only slept
    assert refused.value.worker == newer


async def test_a_process_that_is_known_dead_is_replaced_at_once(journal: Journal):
    await journal.enlist(worker(), seconds=15)
    newer = await journal.enlist(worker(owner=BOB), seconds=15, instead_of=[ALICE.process])

    assert await journal.workers() == (newer,)
    assert await journal.departed([ALICE.process]) == {ALICE.process}


async def test_a_replaced_process_gets_its_name_back_in_no_way(journal: Journal, store: Store):
    await journal.enlist(worker(), seconds=15)
    await journal.enlist(worker(owner=BOB), seconds=15, instead_of=[ALICE.process])
    store.clock.now += 60

    with pytest.raises(NameTaken):
        await journal.enlist(worker(), seconds=15, instead_of=[BOB.process])

    assert await journal.departed([ALICE.process, BOB.process]) == {ALICE.process}


async def test_of_many_that_want_a_name_at_the_same_moment_one_has_it(store: Store):
    journals = [store.open() for _ in range(4)]
    owners = [Owner(process=f"p{number}") for number in range(4)]

    answers = await asyncio.gather(
        *(j.enlist(worker(owner=o), seconds=15) for j, o in zip(journals, owners, strict=True)), return_exceptions=True
    )

    taken = [answer for answer in answers if isinstance(answer, NameTaken)]
    (got,) = [answer for answer in answers if isinstance(answer, Worker)]
    assert len(taken) == 3
    assert {refused.worker.owner for refused in taken} == {got.owner}
    assert await journals[0].workers() == (got,)


async def test_a_worker_that_ended_in_order_is_not_listed_and_its_name_is_free(journal: Journal):
    await journal.enlist(worker(), seconds=15)
    await journal.discharge(ALICE)
    await journal.discharge(BOB)  # never heard of: nothing happens

    assert await journal.workers() == ()
    assert await journal.departed([ALICE.process]) == frozenset()
    newer = await journal.enlist(worker(owner=BOB), seconds=15)
    assert await journal.workers() == (newer,)
    assert await journal.departed([ALICE.process]) == {ALICE.process}


async def test_a_worker_that_was_killed_is_listed_for_a_day_and_then_still_known(journal: Journal, store: Store):
    await journal.enlist(worker("killed"), seconds=15)
    await journal.enlist(worker("buried", owner=BOB), seconds=15)
    store.clock.now += 20
    await journal.bury("buried", by="ann", reason="the rack burnt")
    store.clock.now += LISTED_SECONDS - 2
    assert [one.name for one in await journal.workers()] == ["buried"]

    store.clock.now += 20
    assert await journal.workers() == ()
    assert await journal.departed([ALICE.process, BOB.process]) == {BOB.process}
    await journal.bury("killed", by="ann", reason="it never came back")
    assert [one.name for one in await journal.workers()] == ["killed"]


async def test_a_buried_worker_is_known_dead_and_listed_with_who_said_so_when_and_why(journal: Journal, store: Store):
    await journal.enlist(worker(), seconds=15)
    store.clock.now += 60
    buried = await journal.bury("w1", by="ann\0", reason="the rack burnt \N{FIRE}\0")
    store.clock.now += 60
    again = await journal.bury("w1", by="bob", reason="me too")

    assert buried.burial is not None
    assert (buried.burial.by, buried.burial.reason, buried.burial.at) == ("ann\0", "the rack burnt \N{FIRE}\0", 1060.0)
    assert buried == again
    assert await journal.workers() == (buried,)
    assert await journal.departed([ALICE.process, BOB.process]) == {ALICE.process}


async def test_a_buried_worker_that_lives_is_told_so_and_a_new_one_has_its_name(journal: Journal):
    await journal.enlist(worker(), seconds=15)
    await journal.bury("w1", by="ann", reason="the rack burnt")

    with pytest.raises(NameTaken, match="ann has said that worker w1 is dead") as refused:
        await journal.enlist(worker(), seconds=15)
    assert refused.value.code == "worker_buried"

    newer = await journal.enlist(worker(owner=BOB), seconds=15)
    assert await journal.workers() == (newer,)
    assert newer.burial is None
    assert await journal.departed([ALICE.process, BOB.process]) == {ALICE.process}


async def test_nobody_of_an_unknown_name_is_buried(journal: Journal):
    for name in ("w1", "w\0"):
        with pytest.raises(WorkerNotFound, match="checkrein workers"):
            await journal.bury(name, by="ann", reason="dead")


async def test_one_process_may_have_two_names_and_ends_with_both(journal: Journal):
    await journal.enlist(worker("w1"), seconds=15)
    await journal.enlist(worker("w2"), seconds=15)
    assert [listed.name for listed in await journal.workers()] == ["w2", "w1"]

    await journal.discharge(ALICE)

    assert await journal.workers() == ()


async def test_nobody_is_known_dead_on_an_empty_roster(journal: Journal):
    assert await journal.workers() == ()
    assert await journal.departed([]) == frozenset()
    assert await journal.departed(["p\0", ALICE.process]) == frozenset()


@pytest.mark.parametrize("wrong", [{"name": ""}, {"name": "a\nb"}, {"name": "x" * 201}, {"version": "\0"}])
async def test_a_name_or_version_that_cannot_be_shown_is_refused(journal: Journal, wrong: dict[str, str]):
    with pytest.raises(MisuseError):
        await journal.enlist(replace(worker(), **wrong), seconds=15)
