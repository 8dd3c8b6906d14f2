"""What the writer does when the store fails under it: nothing is guessed, nobody is left waiting."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from contextlib import closing
from typing import ClassVar

import anyio
import pytest

from checkrein.core.enums import Verb
from checkrein.errors import MisuseError, StoreDamaged, StoreFull, StoreUnavailable
from checkrein.journal import SqliteJournal
from checkrein.journal.base import Fence, Journal, Scope
from checkrein.journal.queue import LARGEST_BATCH_WITH_A_VERB, Lane, WriteQueue
from checkrein.journal.sqlite.job import Job
from tests.journal.build import ALICE, created, driven, outcome, permit, verb
from tests.journal.conftest import SqliteStore
from tests.support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio


class Faulty(sqlite3.Connection):
    """A connection whose next commits fail: before they take effect, or after."""

    faults: ClassVar[list[tuple[int, bool]]] = []
    checkpoints = 0

    def execute(self, sql, *parameters):
        if "wal_checkpoint" in sql:
            Faulty.checkpoints += 1
        if sql == "COMMIT" and Faulty.faults:
            code, took_effect = Faulty.faults.pop(0)
            if took_effect:
                super().execute(sql)
            error = sqlite3.OperationalError("a fault was asked for")
            error.sqlite_errorcode = code
            raise error
        return super().execute(sql, *parameters)


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bool]]:
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **kw: connect(*a, factory=Faulty, **kw))
    Faulty.faults = []
    Faulty.checkpoints = 0
    return Faulty.faults


IOERR, FULL, CORRUPT, READONLY = 10, 13, 11, 8


# -- after an error


async def test_a_commit_that_failed_and_did_not_happen_is_tried_again(faults, sqlite_store: SqliteStore):
    journal = sqlite_store.open()
    await driven(journal)
    faults.append((IOERR, False))

    appended = await journal.append("r", [outcome()], after=1, epoch=1)

    assert appended.events[0].seq == 2
    assert await journal.verify("r") == 2


async def test_a_commit_that_failed_and_did_happen_is_made_durable_and_acknowledged(faults, sqlite_store: SqliteStore):
    journal = sqlite_store.open()
    lease = await driven(journal)
    faults.append((IOERR, True))

    appended = await journal.append("r", [outcome(), permit()], after=1, epoch=lease.epoch)

    assert [record.seq for record in appended.events] == [2, 3]
    assert await journal.verify("r") == 3
    assert Faulty.checkpoints == 1


async def test_each_of_a_batch_gets_its_own_answer_after_a_failed_commit(faults, sqlite_store: SqliteStore):
    for took_effect in (False, True):
        journal = sqlite_store.open()
        runs = [f"{took_effect}-{n}" for n in range(5)]
        for run in runs:
            await driven(journal, run)
        faults.append((IOERR, took_effect))

        answers = await asyncio.gather(*(journal.append(run, [outcome()], after=1, epoch=1) for run in runs))

        assert [answer.events[0].run for answer in answers] == runs
        assert [await journal.verify(run) for run in runs] == [2] * 5


async def test_a_store_that_keeps_failing_says_that_nothing_is_known(faults, sqlite_store: SqliteStore):
    journal = sqlite_store.open()
    await driven(journal)
    event = outcome()
    faults += [(IOERR, False), (IOERR, False)]

    with pytest.raises(StoreUnavailable):
        await journal.append("r", [event], after=1, epoch=1)

    assert await journal.find("r", event.id) is None
    assert (await journal.append("r", [event], after=1, epoch=1)).events[0].seq == 2


@pytest.mark.parametrize(("code", "error"), [(CORRUPT, StoreDamaged), (READONLY, StoreUnavailable)])
async def test_what_will_not_mend_itself_is_not_tried_again(faults, sqlite_store: SqliteStore, code: int, error: type):
    journal = sqlite_store.open()
    await driven(journal)
    faults += [(code, False), (IOERR, False)]

    with pytest.raises(error):
        await journal.append("r", [outcome()], after=1, epoch=1)

    assert len(faults) == 1


@pytest.mark.parametrize("took_effect", [False, True])
async def test_creations_claims_and_fences_survive_a_failed_commit(faults, sqlite_store: SqliteStore, took_effect):
    journal = sqlite_store.open()

    faults.append((IOERR, took_effect))
    assert (await journal.create(created("r"))).seq == 1
    faults.append((IOERR, took_effect))
    held = await journal.claim("r", ALICE, seconds=60, epoch=7)
    faults.append((IOERR, took_effect))
    await journal.fence(Fence(scope=Scope.ALL))

    assert len(await journal.fences()) == 1
    assert held.epoch == 7
    assert await journal.lease("r") == held


async def test_followers_hear_of_what_was_committed_after_an_error(faults, sqlite_store: SqliteStore):
    journal = sqlite_store.open()
    await driven(journal)
    follower = journal.follow("r", after=1)
    faults.append((IOERR, True))

    await journal.append("r", [outcome()], after=1, epoch=1)

    with anyio.fail_after(PATIENCE_SECONDS):
        assert (await anext(follower)).seq == 2


# -- a full disk, as SQLite reports it (a real one is in test_sqlite_full_disk)


async def test_a_full_disk_refuses_permits_but_takes_the_facts_before_them(faults, sqlite_store: SqliteStore):
    journal = sqlite_store.open()
    await driven(journal)
    faults += [(FULL, False), (FULL, False)]

    with pytest.raises(StoreFull) as refused:
        await journal.append("r", [outcome("a"), permit("b")], after=1, epoch=1)

    assert [record.seq for record in vars(refused.value)["committed"]] == [2]
    assert len(await journal.read("r")) == 2
    assert str(sqlite_store.path) in str(refused.value)


async def test_the_log_is_emptied_before_the_reserve_is_spent(faults, sqlite_store: SqliteStore):
    journal = sqlite_store.open()
    await driven(journal)
    faults += [(FULL, False)]

    await journal.append("r", [permit()], after=1, epoch=1)

    assert Faulty.checkpoints == 1
    assert (sqlite_store.path.parent / "runs.db-reserve").exists()


# -- the write lock


async def test_a_lock_that_is_never_let_go_ends_in_an_error_that_names_its_holder(sqlite_store: SqliteStore):
    journal = SqliteJournal(str(sqlite_store.path), patience=0.2)
    await driven(journal)

    with closing(sqlite3.connect(sqlite_store.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="kept locked"):
            await journal.append("r", [verb()], after=1)
        other.execute("COMMIT")

    await journal.append("r", [verb()], after=1)
    await journal.close()


async def test_whoever_waits_is_served_when_the_lock_comes_free(sqlite_store: SqliteStore):
    journal = sqlite_store.open()
    await driven(journal)

    with closing(sqlite3.connect(sqlite_store.path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        threading.Timer(0.1, lambda: other.execute("COMMIT")).start()
        appended = await journal.append("r", [outcome()], after=1, epoch=1)

    assert appended.events[0].seq == 2


# -- verbs first


class Nothing(Job[None]):
    def __init__(self, lane: Lane) -> None:
        self.lane = lane

    def perform(self, tx) -> None:
        """Nothing."""


def test_verbs_are_taken_first_and_idle_jobs_last():
    lanes: WriteQueue[Job[object]] = WriteQueue()
    for lane in [Lane.IDLE, *[Lane.ORDINARY] * 300, Lane.VERB]:
        lanes.put(Nothing(lane))

    batches = []
    lanes.close()
    while lanes.wait():
        batches.append([job.lane for job in lanes.take()])

    assert batches[0] == [Lane.VERB] + [Lane.ORDINARY] * (LARGEST_BATCH_WITH_A_VERB - 1)
    assert batches[-1] == [Lane.IDLE]
    assert sum(map(len, batches)) == 302


async def test_a_verb_overtakes_what_is_queued(sqlite_store: SqliteStore):
    journal = sqlite_store.open()
    await driven(journal, "verb")
    for number in range(4):
        await driven(journal, f"r{number}")
    finished: list[str] = []

    async def append(run: str, event, after: int) -> None:
        await journal.append(run, [event], after=after, epoch=1)
        finished.append(run)

    async with anyio.create_task_group() as tasks:
        for number in range(1_500):
            tasks.start_soon(append, f"r{number % 4}", outcome(), 1)
        tasks.start_soon(append, "verb", verb(Verb.CANCEL), 1)

    assert finished.index("verb") < 600


async def test_a_load_that_folded_much_leaves_a_snapshot_behind(sqlite_store: SqliteStore):
    journal: Journal = sqlite_store.open()
    await driven(journal)
    await journal.append("r", [outcome() for _ in range(300)], after=1, epoch=1)

    await journal.load("r")
    await journal.close()

    with closing(sqlite3.connect(sqlite_store.path)) as db:
        assert db.execute("SELECT seq FROM snapshots").fetchall() == [(301,)]


# -- a lone append, which is made without the thread


async def test_a_lone_append_that_fails_is_mended_while_others_come_in(faults, sqlite_store: SqliteStore):
    """Only the writer's thread may take what waits: a repair beside it once waited for ever."""
    journal = sqlite_store.open()
    await driven(journal)
    for number in range(20):
        faults.append((IOERR, number % 2 == 0))
        async with anyio.create_task_group() as tasks:
            with anyio.fail_after(PATIENCE_SECONDS):
                await journal.append("r", [outcome(f"a{number}")], after=1, epoch=1)
                for other in range(5):
                    tasks.start_soon(append_one, journal, f"b{number}.{other}")

    assert len(await journal.read("r")) == await journal.verify("r")


async def append_one(journal: Journal, call: str) -> None:
    await journal.append("r", [outcome(call)], after=1, epoch=1)


async def test_what_a_loop_that_has_ended_left_behind_is_still_done(sqlite_store: SqliteStore):
    journal = sqlite_store.open()
    await driven(journal)
    event = outcome("stranded")

    def other_loop() -> None:
        async def leave() -> None:
            asyncio.ensure_future(journal.append("r", [event], after=1, epoch=1))  # noqa: RUF006
            await asyncio.sleep(0)

        asyncio.run(leave())

    await asyncio.to_thread(other_loop)
    await journal.append("r", [outcome("next")], after=1, epoch=1)

    with anyio.fail_after(PATIENCE_SECONDS):
        while await journal.find("r", event.id) is None:
            await asyncio.sleep(0.01)


async def test_a_journal_from_before_a_fork_says_so(sqlite_store: SqliteStore, monkeypatch: pytest.MonkeyPatch):
    journal = sqlite_store.open()
    await driven(journal)
    monkeypatch.setattr(os, "getpid", lambda: -1)

    with pytest.raises(MisuseError, match="forked"):
        await journal.append("r", [outcome()], after=1, epoch=1)
