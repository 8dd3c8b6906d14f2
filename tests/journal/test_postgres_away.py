"""A server that is away, cut off, frozen or ended: nothing acknowledged is lost or done twice, and nobody hangs."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import psycopg
import pytest
from anyio import to_thread

from checkrein.core.enums import Verb
from checkrein.errors import StoreFull, StoreUnavailable
from checkrein.journal import Journal
from checkrein.journal.base import Chunk, Fence, Scope
from checkrein.journal.postgres import PostgresJournal, connection
from checkrein.journal.postgres.connection import Session
from tests.journal.build import ALICE, BOB, created, driven, outcome, permit, verb
from tests.journal.conftest import PostgresStore
from tests.support.cut_network import CutNetwork
from tests.support.patience import PATIENCE_SECONDS, within
from tests.support.postgres import Cluster, running

pytestmark = pytest.mark.anyio

RUNS = [f"r{number}" for number in range(10)]


@pytest.fixture(scope="module")
def own_cluster() -> Any:
    """A server of its own, which may be stopped without disturbing other tests."""
    with running() as cluster:
        yield cluster


@pytest.fixture
async def own_store(own_cluster: Cluster) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(own_cluster)
    yield store
    await store.close()


async def append_steadily(journal: Journal, run: str, acknowledged: list[str], is_over: Callable[[], bool]) -> None:
    """One fact after the other, each waited for, until it is over."""
    seq = len(await journal.read(run))
    while not is_over():
        event = outcome(f"{run}-{seq}")
        taken = await journal.append(run, [event], after=seq, epoch=1)
        assert [record.event.id for record in taken.events] == [event.id]
        acknowledged.append(event.id)
        seq = taken.events[-1].seq


async def all_there(journal: Journal, acknowledged: list[str]) -> None:
    """Each event that was acknowledged is there, once, and there is no other."""
    kept: list[str] = []
    for run in RUNS:
        records = await journal.read(run, after=1)
        assert await journal.verify(run) == len(records) + 1
        kept += [record.event.id for record in records]
    assert sorted(kept) == sorted(acknowledged)


async def under_load(journal: Journal, disturb: Callable[[], Any], times: int, pause: float = 0.05) -> None:
    """Append to ten runs while something is done to the server, so many times."""
    for run in RUNS:
        await driven(journal, run)
    acknowledged: list[str] = []
    is_over = False
    async with anyio.create_task_group() as tasks:
        for run in RUNS:
            tasks.start_soon(append_steadily, journal, run, acknowledged, lambda: is_over)
        for _ in range(times):
            before = len(acknowledged)
            await to_thread.run_sync(disturb)
            with anyio.fail_after(PATIENCE_SECONDS):
                while len(acknowledged) < before + len(RUNS):  # all goes on
                    await anyio.sleep(0.005)
            await anyio.sleep(pause)
        is_over = True
    await all_there(journal, acknowledged)


async def test_connections_that_are_cut_cost_nothing(own_store: PostgresStore, own_cluster: Cluster):
    await under_load(own_store.open(), own_cluster.terminate_backends, 10)


@pytest.mark.torture
async def test_connections_that_are_cut_500_times_cost_nothing(own_store: PostgresStore, own_cluster: Cluster):
    await under_load(own_store.open(), own_cluster.terminate_backends, 500, pause=0.0)


def restart(cluster: Cluster, how: str, seconds: float) -> None:
    cluster.stop(how)
    time.sleep(seconds)
    cluster.start()


@pytest.mark.parametrize("how", ["fast", "immediate"])
async def test_a_server_that_is_restarted_costs_nothing(own_store: PostgresStore, own_cluster: Cluster, how: str):
    journal = own_store.open()
    assert isinstance(journal, PostgresJournal)
    journal._patience = journal._reader._patience = PATIENCE_SECONDS  # on a loaded machine a start takes long

    await under_load(journal, lambda: restart(own_cluster, how, 0.5), 2)


@pytest.mark.torture
@pytest.mark.parametrize(("how", "times", "seconds"), [("fast", 10, 2.0), ("immediate", 20, 0.0), ("fast", 1, 15.0)])
async def test_a_server_that_is_restarted_often_costs_nothing(
    own_store: PostgresStore, own_cluster: Cluster, how: str, times: int, seconds: float
):
    journal = own_store.open()
    assert isinstance(journal, PostgresJournal)
    journal._patience = journal._reader._patience = PATIENCE_SECONDS

    await under_load(journal, lambda: restart(own_cluster, how, seconds), times)


class CutAfterCommit:
    """The statements that match are executed, and then the connection is cut before anybody hears of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, statement: str) -> None:
        self.times = 0
        self.is_armed = False

        def cutting(execute: Callable[[Session, Any, Any], Any]) -> Callable[[Session, Any, Any], Any]:
            def execute_and_cut(session: Session, said: Any, params: Any) -> Any:
                answer = execute(session, said, params)
                if self.is_armed and statement in said:
                    self.is_armed = False
                    self.times += 1
                    session.connection.close()
                    raise psycopg.OperationalError("the connection was cut")
                return answer

            return execute_and_cut

        for way in ("_execute", "_send"):
            monkeypatch.setattr(Session, way, cutting(getattr(Session, way)))


async def cut_after_commit(journal: Journal, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    cut = CutAfterCommit(monkeypatch, "moved AS")
    await driven(journal)
    ids = []
    for seq in range(1, times + 1):
        event = outcome()
        cut.is_armed = True
        taken = await journal.append("r", [event], after=seq, epoch=1)
        ids.append(event.id)
        assert taken.events[0].seq == seq + 1

    assert cut.times == times
    assert [record.event.id for record in await journal.read("r", after=1)] == ids


async def test_an_append_whose_answer_was_lost_is_neither_lost_nor_doubled(
    postgres_store: PostgresStore, monkeypatch: pytest.MonkeyPatch
):
    await cut_after_commit(postgres_store.open(), monkeypatch, 20)


@pytest.mark.torture
async def test_200_appends_whose_answer_was_lost_are_neither_lost_nor_doubled(
    postgres_store: PostgresStore, monkeypatch: pytest.MonkeyPatch
):
    await cut_after_commit(postgres_store.open(), monkeypatch, 200)


async def test_a_permit_whose_answer_was_lost_is_not_refused_for_being_there(
    postgres_store: PostgresStore, monkeypatch: pytest.MonkeyPatch
):
    journal = postgres_store.open()
    cut = CutAfterCommit(monkeypatch, "moved AS")
    await driven(journal)
    cut.is_armed = True

    taken = await journal.append("r", [outcome("a"), permit("b")], after=1, epoch=1)

    assert [record.seq for record in taken.events] == [2, 3]
    assert len(await journal.read("r")) == 3


@pytest.mark.parametrize("kind", [Verb.PAUSE, Verb.CANCEL])
async def test_a_verb_whose_answer_was_lost_is_taken_once(
    postgres_store: PostgresStore, monkeypatch: pytest.MonkeyPatch, kind: Verb
):
    journal = postgres_store.open()
    cut = CutAfterCommit(monkeypatch, "append_and_fence" if kind is Verb.CANCEL else "moved AS")
    await driven(journal)
    cut.is_armed = True

    taken = await journal.append("r", [verb(kind)], after=1)

    assert (cut.times, taken.events[0].seq, len(await journal.read("r"))) == (1, 2, 2)


async def test_a_claim_whose_answer_was_lost_still_names_who_held_the_run(
    postgres_store: PostgresStore, monkeypatch: pytest.MonkeyPatch
):
    journal = postgres_store.open()
    cut = CutAfterCommit(monkeypatch, "{s}.claim(")
    await driven(journal)
    cut.is_armed = True

    lease = await journal.claim("r", BOB, seconds=60, force=True)

    assert (cut.times, lease.epoch, lease.previous) == (1, 2, ALICE)


async def test_whatever_else_lost_its_answer_is_done_once(
    postgres_store: PostgresStore, monkeypatch: pytest.MonkeyPatch
):
    journal = postgres_store.open()
    cut = CutAfterCommit(monkeypatch, "")
    await driven(journal)

    for ask in (
        lambda: journal.create(created("s")),
        lambda: journal.fence(Fence(scope=Scope.AGENT, name="x")),
        lambda: journal.write_chunks({"r": [Chunk("a", 0, "hello")]}),
        lambda: journal.renew(ALICE, seconds=60),
        lambda: journal.runs(),
        lambda: journal.load("r"),
    ):
        cut.is_armed = True
        await ask()

    assert cut.times == 6
    assert [row.id for row in await journal.runs()] == ["s", "r"]
    assert await journal.chunks("r", "a") == (Chunk("a", 0, "hello"),)


async def test_patience_ends_with_an_error_for_readers_and_writers_and_then_all_goes_on(
    own_store: PostgresStore, own_cluster: Cluster
):
    journal = PostgresJournal(own_store.address, patience=0.5)
    lease = await driven(journal)
    follower = journal.follow("r")
    assert (await anext(follower)).seq == 1
    own_cluster.stop()

    answers = await asyncio.wait_for(
        asyncio.gather(
            journal.append("r", [outcome()], after=1, epoch=lease.epoch),
            journal.read("r"),
            journal.renew(ALICE, seconds=60),
            journal.claim("r", ALICE, seconds=60),
            return_exceptions=True,
        ),
        PATIENCE_SECONDS,
    )
    own_cluster.start()

    assert [type(answer) for answer in answers] == [StoreUnavailable] * 4
    with anyio.fail_after(PATIENCE_SECONDS):
        while True:
            try:
                await journal.append("r", [outcome(id="after")], after=1, epoch=lease.epoch)
                break
            except StoreUnavailable:
                await anyio.sleep(0.05)
        assert (await anext(follower)).event.id == "after"
    await journal.close()


async def test_a_write_under_a_short_lease_has_no_more_patience_than_that(postgres_store: PostgresStore):
    journal = postgres_store.open()
    assert isinstance(journal, PostgresJournal)
    await journal.create(created("r"))
    await journal.claim("r", ALICE, seconds=3)

    assert journal._patience_for("r", 1) == 2.0
    assert journal._patience_for("r", None) == journal._patience == 10.0


async def test_a_journal_can_be_closed_while_its_server_is_away(own_store: PostgresStore, own_cluster: Cluster):
    journal = PostgresJournal(own_store.address, patience=0.3)
    await driven(journal)
    own_cluster.stop()
    try:
        with anyio.fail_after(PATIENCE_SECONDS):
            await journal.close()
    finally:
        own_cluster.start()


async def test_a_server_that_is_frozen_is_taken_for_gone(
    postgres_store: PostgresStore, postgres: Cluster, monkeypatch: pytest.MonkeyPatch
):
    journal = postgres_store.open()
    assert isinstance(journal, PostgresJournal)
    await driven(journal)
    monkeypatch.setattr(connection, "SILENT_SECONDS", 1.0)
    at = journal._writer._at
    assert at is not None
    pid = at.session.connection.info.backend_pid
    os.kill(pid, signal.SIGSTOP)
    try:
        with anyio.fail_after(PATIENCE_SECONDS):
            taken = await journal.append("r", [outcome()], after=1, epoch=1)
    finally:
        os.kill(pid, signal.SIGCONT)

    assert taken.events[0].seq == 2
    await anyio.sleep(0.1)  # what the frozen one does when it wakes up
    assert await journal.verify("r") == 2


REFUSED_AT_COMMIT = """
CREATE FUNCTION {s}.no_room() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION USING ERRCODE = 'program_limit_exceeded', MESSAGE = 'too many notifications'; END $$;
CREATE CONSTRAINT TRIGGER no_room AFTER INSERT ON {s}.events DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION {s}.no_room();
"""


@pytest.mark.parametrize("is_prepared", [False, True])
async def test_what_fails_in_the_commit_is_not_acknowledged(
    postgres_store: PostgresStore, postgres: Cluster, is_prepared: bool
):
    """P5: the server answers a statement before it commits it."""
    journal = postgres_store.open()
    assert isinstance(journal, PostgresJournal)
    await driven(journal)
    if is_prepared:
        journal._writer.prepare_statements()
        await journal.append("r", [outcome("earlier")], after=1, epoch=1)
    seq = 2 if is_prepared else 1
    with postgres.connect() as db:
        db.execute(REFUSED_AT_COMMIT.replace("{s}", postgres_store.schema).encode())

    event = outcome("late")
    with pytest.raises(StoreUnavailable, match="too many notifications"):
        await journal.append("r", [event], after=seq, epoch=1)

    assert await journal.verify("r") == seq
    with postgres.connect() as db:
        db.execute(f"DROP TRIGGER no_room ON {postgres_store.schema}.events".encode())
    taken = await journal.append("r", [event], after=seq, epoch=1)
    assert taken.events[0].seq == seq + 1 == await journal.verify("r")


async def test_statements_that_a_server_was_told_to_forget_are_said_again(postgres_store: PostgresStore):
    journal = postgres_store.open()
    assert isinstance(journal, PostgresJournal)
    await driven(journal)
    journal._writer.prepare_statements()
    await journal.append("r", [outcome("earlier")], after=1, epoch=1)
    at = journal._writer._at
    assert at is not None
    at.session.connection.execute("DISCARD ALL")

    await journal.append("r", [outcome("later")], after=2, epoch=1)

    assert await journal.verify("r") == 3


async def test_the_text_of_a_call_that_has_finished_is_one_row_and_reads_as_before(
    postgres_store: PostgresStore, postgres: Cluster
):
    journal = postgres_store.open()
    await driven(journal)
    chunks = [Chunk(call, 3 * n, f"ä{n}\n") for call in ("c1", "c1#2") for n in range(9)]
    await journal.write_chunks({"r": chunks})

    await journal.append("r", [outcome("c1", chunks=18)], after=1, epoch=1)

    with postgres.connect() as db, anyio.fail_after(PATIENCE_SECONDS):
        count = f"SELECT count(*) FROM {postgres_store.schema}.chunks".encode()
        while db.execute(count).fetchone() != (2,):
            await anyio.sleep(0.01)
    assert await journal.chunks("r", "c1") == tuple(chunks[:9])
    assert await journal.chunks("r", "c1#2", after=12) == tuple(chunks[14:])


async def black_holes(store: PostgresStore, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    with CutNetwork(store.cluster.port) as network:
        address = store.address.replace(f":{store.cluster.port}/", f":{network.port}/")
        journal = PostgresJournal(address, patience=0.5)
        await driven(journal)
        monkeypatch.setattr(connection, "SILENT_SECONDS", 0.5)
        seq = 1
        for _ in range(times):
            network.is_cut = True
            began = time.monotonic()
            event = outcome()
            with pytest.raises(StoreUnavailable):
                await journal.append("r", [event], after=seq, epoch=1)
            assert time.monotonic() - began < within(8.0)
            network.restore()
            with anyio.fail_after(PATIENCE_SECONDS):
                while True:
                    try:
                        seq = (await journal.append("r", [event], after=seq, epoch=1)).events[-1].seq
                        break
                    except StoreUnavailable:
                        await anyio.sleep(0.05)
        assert await journal.verify("r") == seq == times + 1
        await journal.close()


async def test_a_network_that_swallows_everything_is_an_error_in_time_and_then_all_goes_on(
    postgres_store: PostgresStore, monkeypatch: pytest.MonkeyPatch
):
    await black_holes(postgres_store, monkeypatch, 2)


@pytest.mark.torture
async def test_a_network_that_swallows_everything_10_times_is_an_error_in_time_and_then_all_goes_on(
    postgres_store: PostgresStore, monkeypatch: pytest.MonkeyPatch
):
    await black_holes(postgres_store, monkeypatch, 10)


async def test_a_full_disk_of_the_server_is_said_and_costs_nothing_that_was_taken(
    postgres_store: PostgresStore, monkeypatch: pytest.MonkeyPatch
):
    journal = postgres_store.open()
    await driven(journal)
    with monkeypatch.context() as full:

        def refuse(*_: object) -> Any:
            raise psycopg.errors.DiskFull("could not extend file")

        full.setattr(Session, "_execute", refuse)
        full.setattr(Session, "_send", refuse)
        for ask in (
            lambda: journal.append("r", [outcome()], after=1, epoch=1),
            lambda: journal.append("r", [verb(Verb.CANCEL)], after=1),
            lambda: journal.create(created("s")),
        ):
            with pytest.raises(StoreFull):
                await ask()

    await journal.append("r", [outcome()], after=1, epoch=1)
    assert await journal.verify("r") == 2
