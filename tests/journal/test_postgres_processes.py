"""Several processes on one database: a verb is heard soon, a frozen process stops nobody, no permit follows a fence."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from itertools import pairwise
from typing import Any

import anyio
import psycopg
import pytest
from anyio import to_thread
from msgspec.structs import replace

from checkrein.core.enums import Verb
from checkrein.errors import CheckreinError, Conflict, Fenced, Refused
from checkrein.journal import Journal, Lease
from checkrein.journal.base import Fence, Scope, Worker
from checkrein.journal.postgres import PostgresJournal, listener
from checkrein.journal.postgres.connection import Session, target_of
from checkrein.journal.postgres.writes import job
from checkrein.journal.postgres.writes.append import Create
from checkrein.journal.postgres.writes.job import Context
from checkrein.journal.subscriptions import News
from tests.journal.build import ALICE, BOB, created, driven, outcome, permit, verb
from tests.journal.conftest import PostgresStore
from tests.journal.test_sqlite_processes import delays_of_following, freeze, nearly_all, other_process, timed_verbs
from tests.support.patience import PATIENCE_SECONDS, within

pytestmark = pytest.mark.anyio


async def test_what_another_process_appends_reaches_a_follower_soon(postgres_store: PostgresStore):
    delays = await delays_of_following(postgres_store.open(), postgres_store.address)

    assert nearly_all(delays) < within(150)


async def test_a_verb_is_accepted_soon_while_another_process_commits_back_to_back(postgres_store: PostgresStore):
    journal = postgres_store.open()

    with other_process("busy", postgres_store.address, 50):
        took = await timed_verbs(journal, 40)

    assert nearly_all(took) < within(150)


async def test_processes_that_append_to_one_run_together_lose_nothing(either_store: PostgresStore):
    journal = either_store.open()
    await driven(journal, "shared")

    with other_process("fill", either_store.address, 100) as one:
        for _ in range(100):
            await journal.append("shared", [outcome()], after=1, epoch=1)
        assert one.wait(PATIENCE_SECONDS) == 0

    assert await journal.verify("shared") == 201


async def test_a_worker_that_drives_nothing_says_that_it_lives_in_one_statement_and_renews_nothing(
    postgres_store: PostgresStore, monkeypatch: pytest.MonkeyPatch
):
    journal = postgres_store.open()
    worker = Worker(name="one", owner=ALICE, agents=("churn",))
    first = await journal.enlist(worker, seconds=60)
    said: list[str] = []
    execute = Session._execute

    def noting(session: Session, statement: Any, params: Any) -> Any:
        said.append(statement)
        return execute(session, statement, params)

    monkeypatch.setattr(Session, "_execute", noting)

    again = await journal.enlist(worker, seconds=60)
    renewed = await journal.renew(ALICE, seconds=60, runs=())

    asked = [statement for statement in said if "{s}." in statement and "pg_notify" not in statement]
    assert ["enlist(" in statement for statement in asked] == [True, False], said
    assert ".version" in asked[1]
    assert renewed == frozenset()
    assert (again.since, again.agents) == (first.since, first.agents)
    assert [worker] == [replace(one, since=0.0, seen_until=0.0) for one in await journal.workers()]
    assert (await journal.workers())[0].seen_until == pytest.approx(again.seen_until, abs=1)


# -- a frozen process


async def verbs_beside_a_frozen_process(store: PostgresStore, times: int) -> list[float]:
    """How long verbs take on a run that a process was appending to when it was frozen."""
    journal = store.open()
    await driven(journal, "shared")
    after, took = 1, []
    with other_process("fill", store.address, 1_000_000) as process:
        for _ in range(times):
            freeze(process.pid)
            began = time.perf_counter()
            after = (await journal.append("shared", [verb()], after=after)).events[-1].seq
            took.append(time.perf_counter() - began)
            os.kill(process.pid, signal.SIGCONT)
            seq = (await journal.runs())[0].seq
            with anyio.fail_after(PATIENCE_SECONDS):
                while (await journal.runs())[0].seq == seq:  # it is at work again
                    await anyio.sleep(0.002)
    return took


async def test_no_verb_waits_for_a_process_that_is_frozen_while_it_appends(either_store: PostgresStore):
    assert max(await verbs_beside_a_frozen_process(either_store, 15)) < within(1.0)


@pytest.mark.torture
async def test_no_verb_of_200_waits_for_a_process_that_is_frozen_while_it_appends(postgres_store: PostgresStore):
    assert max(await verbs_beside_a_frozen_process(postgres_store, 200)) < within(1.0)


# -- no permit after a fence


async def keep_permitting(journal: Journal, lease: Lease, permitted: list[int], place: int) -> None:
    """Begin one call after the other, each in full knowledge, as long as there is no fence, and again after it."""
    run = lease.run
    seq = len(await journal.read(run))
    while True:
        try:
            taken = await journal.append(run, [permit(f"c{seq}", lease.epoch)], after=seq, epoch=lease.epoch)
            seq = permitted[place] = taken.events[-1].seq
        except Fenced:
            await asyncio.sleep(0.001)
        except Conflict as error:
            seq = error.missed[-1].seq


@asynccontextmanager
async def permitting(journals: Sequence[Journal], leases: Sequence[Lease]) -> AsyncIterator[list[int]]:
    """Every run has somebody who permits calls back to back, over the journals in turn; how far each has come."""
    permitted = [0 for _ in leases]
    tasks = [
        asyncio.create_task(keep_permitting(journals[place % len(journals)], lease, permitted, place))
        for place, lease in enumerate(leases)
    ]
    try:
        yield permitted
    finally:
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            assert not isinstance(ended, CheckreinError), ended


async def until_all_move(permitted: list[int]) -> None:
    before = [*permitted]
    with anyio.fail_after(PATIENCE_SECONDS):
        while any(now == then for now, then in zip(permitted, before, strict=True)):
            await anyio.sleep(0.001)


async def seqs(journal: Journal) -> dict[str, int]:
    return {row.id: row.seq for row in await journal.runs(limit=1000)}


async def halts(store: PostgresStore, processes: int, times: int) -> None:
    """Real processes that permit calls back to back, and an operator: what is there when a halt is answered is all."""
    operator = store.open()
    with ExitStack() as stack:
        others = [stack.enter_context(other_process("permits", store.address, 2)) for _ in range(processes)]
        for number in range(times):
            scope, name = ((Scope.ALL, ""), (Scope.AGENT, "churn"))[number % 2]
            before = await seqs(operator)
            with anyio.fail_after(PATIENCE_SECONDS):
                while any(seq == before[run] for run, seq in (await seqs(operator)).items()):
                    await anyio.sleep(0.001)
            await operator.fence(Fence(scope=scope, name=name))
            answered = await seqs(operator)
            for other in others:
                assert other.stdout is not None
                with anyio.fail_after(PATIENCE_SECONDS):
                    assert await to_thread.run_sync(other.stdout.readline, abandon_on_cancel=True) == b"fenced\n"
            assert await seqs(operator) == answered
            await operator.unfence(scope, name)
            for other in others:
                assert other.stdin is not None
                other.stdin.write(b"go on\n")
                other.stdin.flush()


async def test_no_permit_follows_a_halt_that_was_answered(either_store: PostgresStore):
    await halts(either_store, processes=3, times=15)


@pytest.mark.torture
async def test_no_permit_follows_300_halts_that_were_answered(either_store: PostgresStore):
    await halts(either_store, processes=6, times=300)


async def cancels(store: PostgresStore, times: int) -> None:
    operator, *journals = [store.open() for _ in range(4)]
    for number in range(times):
        top = f"t{number}"
        parents = {top: None, f"{top}.a": top, f"{top}.b": top, f"{top}.a.c": f"{top}.a", f"{top}.a.c.d": f"{top}.a.c"}
        leases = []
        for run, parent in parents.items():
            await operator.create(created(run, parent=parent, root=parent and top))
            leases.append(await operator.claim(run, BOB, seconds=60))
        async with permitting(journals, leases) as permitted:
            await until_all_move(permitted)
            late = asyncio.create_task(journals[0].create(created(f"{top}.late", parent=f"{top}.a", root=top)))
            await operator.append(top, [verb(Verb.CANCEL)], after=1)
            answered = await seqs(operator)
            await anyio.sleep(0.02)
            assert await seqs(operator) == answered
            [created_late] = await asyncio.gather(late, return_exceptions=True)
        if not isinstance(created_late, Fenced):  # it was there before the cancel, so it is cancelled, too
            lease = await operator.claim(f"{top}.late", BOB, seconds=60)
            with pytest.raises(Fenced):
                await operator.append(f"{top}.late", [permit()], after=1, epoch=lease.epoch)


async def test_no_permit_follows_the_cancel_of_a_tree_that_was_answered(either_store: PostgresStore):
    await cancels(either_store, 10)


@pytest.mark.torture
async def test_no_permit_follows_300_cancels_of_trees_that_were_answered(either_store: PostgresStore):
    await cancels(either_store, 300)


async def test_an_append_keeps_a_halt_waiting_until_it_is_there_and_the_other_way_round(postgres_store: PostgresStore):
    """The gate: in ROW SHARE mode while an append looks at the fences, also by a prepared statement."""
    journal = postgres_store.open()
    await driven(journal)
    for seq in range(1, 20):
        await journal.append("r", [permit(f"c{seq}")], after=seq, epoch=1)

    with postgres_store.cluster.connect() as db:
        db.execute("BEGIN")
        db.execute(f"LOCK TABLE {postgres_store.schema}.gate IN EXCLUSIVE MODE".encode())
        waiting = asyncio.create_task(journal.append("r", [permit()], after=20, epoch=1))
        locks = (
            "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = "
            f"'{postgres_store.schema}.gate'::regclass AND mode = 'RowShareLock'"
        ).encode()
        with postgres_store.cluster.connect() as look, anyio.fail_after(PATIENCE_SECONDS):
            while look.execute(locks).fetchone() != (1,):
                await anyio.sleep(0.01)
        db.execute("COMMIT")

    assert (await waiting).events[0].seq == 21


async def test_a_fact_does_not_wait_for_a_halt_that_is_being_put_up(postgres_store: PostgresStore):
    """No fence ever refuses one, so it has no reason to look at them."""
    journal = postgres_store.open()
    await driven(journal)

    with postgres_store.cluster.connect() as db:
        db.execute("BEGIN")
        db.execute(f"LOCK TABLE {postgres_store.schema}.gate IN EXCLUSIVE MODE".encode())
        with anyio.fail_after(PATIENCE_SECONDS):
            taken = await journal.append("r", [outcome()], after=1, epoch=1)
        db.execute("COMMIT")

    assert taken.events[0].seq == 2


async def test_whoever_has_just_heard_something_lets_others_speak_before_it_hears_again(
    postgres_store: PostgresStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(listener, "REST_SECONDS", 0.5)
    journal, other = postgres_store.open(), postgres_store.open()
    assert isinstance(journal, PostgresJournal)
    await driven(other)
    heard: list[float] = []
    announce = journal._tower.announce

    def note(news: News) -> None:
        heard.append(time.monotonic())
        announce(news)

    monkeypatch.setattr(journal._tower, "announce", note)
    follower = journal.follow("r", after=1)

    with anyio.fail_after(PATIENCE_SECONDS):
        for seq in range(1, 5):
            await other.append("r", [outcome()], after=seq, epoch=1)
            assert (await anext(follower)).seq == seq + 1

    assert len(heard) >= 3
    assert min(later - earlier for earlier, later in pairwise(heard)) >= 0.5


async def test_a_lease_is_renewed_by_whoever_has_just_heard_something(
    postgres_store: PostgresStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(listener, "REST_SECONDS", 10 * PATIENCE_SECONDS)
    journal, other = postgres_store.open(), postgres_store.open()
    await driven(journal)
    follower = journal.follow("r", after=1)

    with anyio.fail_after(PATIENCE_SECONDS):
        await other.append("r", [outcome()], after=1, epoch=1)

        assert await journal.renew(ALICE, seconds=60) == {"r"}

    await follower.aclose()


async def test_what_is_told_while_a_lease_is_renewed_is_heard(postgres_store: PostgresStore):
    """It then arrives together with the answer to a statement."""
    journal, other = postgres_store.open(), postgres_store.open()
    await driven(journal)
    follower = journal.follow("r", after=1)

    async def renew() -> None:
        while True:
            await journal.renew(ALICE, seconds=60)

    renewing = asyncio.create_task(renew())
    with anyio.fail_after(PATIENCE_SECONDS):
        for seq in range(1, 101):
            await other.append("r", [outcome()], after=seq, epoch=1)
            assert (await anext(follower)).seq == seq + 1
    renewing.cancel()


async def test_more_runs_than_are_remembered_are_served_all_the_same(
    postgres_store: PostgresStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(job, "MOST_HEADS", 3)
    journal = postgres_store.open()
    names = [f"r{number}" for number in range(8)]
    for run in names:
        await driven(journal, run)

    for seq in range(1, 4):
        await asyncio.gather(*(journal.append(run, [outcome()], after=1, epoch=1) for run in names[: 3 + seq]))

    assert [len(await journal.read(run)) for run in names] == [4, 4, 4, 4, 3, 2, 1, 1]


async def test_a_creation_that_is_not_committed_yet_keeps_the_next_one_of_its_thread_waiting(
    postgres_store: PostgresStore,
):
    """Else the second would be committed first and be listed second, and both would think that it is their turn."""
    journal, target = postgres_store.open(), target_of(postgres_store.address)
    session = Session(target)
    with session.connection.transaction():
        Create(created("first")).perform(Context(session, job.Heads(), target, "somebody"))
        second = asyncio.ensure_future(journal.create(created("second")))
        refused = asyncio.ensure_future(journal.create(created("third"), if_busy="refuse"))
        with postgres_store.cluster.connect() as db:
            await _until_waiting(db)
        assert await journal.runs(thread="t1") == ()
        assert not second.done()
    session.close()

    with anyio.fail_after(PATIENCE_SECONDS):
        await second
        with pytest.raises(Refused) as busy:
            await refused
    assert busy.value.run == "first"
    assert [row.id for row in await journal.runs(thread="t1")] == ["second", "first"]


async def _until_waiting(db: psycopg.Connection[tuple[object, ...]]) -> None:
    """Return when some connection waits for a lock on a thread."""
    with anyio.fail_after(PATIENCE_SECONDS):
        while db.execute("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted").fetchone() is None:
            await anyio.sleep(0.02)
