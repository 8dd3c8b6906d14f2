"""The roles of a store in PostgreSQL: what each may do, by the journal and by whatever SQL it can think of.

That a user with the roles and without the tables keeps the whole contract is shown by the contract itself (`roles`).
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
from anyio import to_thread
from psycopg import errors

from checkrein.core.enums import PAUSE_IN_FORCE, UNFINISHED, CallKind, Status, Verb
from checkrein.core.events import Event, RunStarted
from checkrein.core.transitions import ABOUT_A_CALL, SETTLES, VERBS
from checkrein.errors import Fenced, StoreForbidden, StoreUnavailable
from checkrein.journal import Fence, Journal, Scope, Worker, encoding
from checkrein.journal.base import Chunk
from checkrein.journal.evidence import SignedEntry, Withheld
from checkrein.journal.postgres import PostgresJournal, roles, schema
from checkrein.journal.postgres.connection import target_of
from checkrein.journal.postgres.tables import SaveSnapshot
from checkrein.journal.postgres.writes.append import CREATE
from tests.journal.build import ALICE, created, driven, ended, outcome, permit, settled, started, undo, verb
from tests.journal.conftest import RolesStore
from tests.support.postgres import Cluster

pytestmark = pytest.mark.anyio

RUNTIME = "checkrein"

CANCELLED_TWICE = (Status.CANCELLED, Verb.CANCEL)
"""Joined: nothing is accepted in a run that is over."""


class Roles:
    """A store with a journal for a user of each role, and its owner's."""

    def __init__(self, store: RolesStore) -> None:
        self.store = store
        self.owner = PostgresJournal(store.owner)
        store.opened.append(self.owner)
        self.worker, self.front, self.operator = (self.open(role) for role in roles.ROLES)

    def open(self, *granted: str) -> PostgresJournal:
        journal = PostgresJournal(self.store.address_of(*granted))
        self.store.opened.append(journal)
        return journal

    def connect(self, *granted: str) -> psycopg.Connection[Any]:
        """What somebody has who got hold of the password of such a user."""
        return psycopg.connect(target_of(self.store.address_of(*granted)).conninfo, autocommit=True)

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        with self.store.cluster.connect() as db:
            return list(db.execute(statement.replace("{s}", self.store.schema).encode()).fetchall())


@pytest.fixture
async def at(postgres: Cluster) -> AsyncIterator[Roles]:
    store = RolesStore(postgres)
    opened = await to_thread.run_sync(Roles, store)
    yield opened
    await store.close()


# -- what a journal says to whom


async def forbidden(asked: Any) -> StoreForbidden:
    with pytest.raises(StoreForbidden) as refused:
        await asked
    assert "\n" not in refused.value.message
    return refused.value


async def test_a_worker_drives_what_a_front_began_and_the_front_cancels_it(at: Roles):
    await at.front.create(created("r"))
    (lease,) = await at.worker.claim_free(["churn"], ALICE, most=5, seconds=60)

    await at.worker.append("r", [started(lease.epoch)], after=1, epoch=lease.epoch)
    await at.worker.append("r", [permit(epoch=lease.epoch)], after=2, epoch=lease.epoch)
    await at.worker.write_chunks({"r": [Chunk("c1", 0, "so far")]})
    assert await at.worker.renew(ALICE, seconds=60) == {"r"}
    await at.front.append("r", [verb(Verb.CANCEL)], after=3)
    await at.worker.append("r", [outcome(), ended(Status.CANCELLED)], after=4, epoch=lease.epoch)
    await at.worker.release(lease)

    assert (await at.operator.load("r")).status is Status.CANCELLED
    assert await at.owner.verify("r") == 6
    assert [chunk.text for chunk in await at.front.chunks("r", "c1")] == ["so far"]


async def test_leases_are_renewed_over_an_address_of_its_own_too(at: Roles):
    worker = at.store.address_of("worker")
    journal = await to_thread.run_sync(lambda: PostgresJournal(worker, listen=worker))
    at.store.opened.append(journal)
    await driven(at.owner)

    assert await journal.renew(ALICE, seconds=60) == {"r"}


async def test_a_fence_is_put_up_by_the_operator_alone(at: Roles):
    await driven(at.owner)
    fence = Fence(scope=Scope.ALL, by="p", at=1.0)

    for journal in (at.worker, at.front):
        assert (await forbidden(journal.fence(fence))).role == f"{at.store.schema}_operator"
        assert (await forbidden(journal.unfence(Scope.ALL))).role == f"{at.store.schema}_operator"
    assert at.rows("SELECT * FROM {s}.fences") == []
    await at.operator.fence(fence)

    assert (await at.worker.fences())[0].scope is Scope.ALL
    await forbidden(at.front.unfence(Scope.ALL))
    assert await at.operator.unfence(Scope.ALL)


async def test_a_worker_enlists_and_an_operator_buries_and_nobody_else(at: Roles):
    worker = Worker(name="w1", owner=ALICE)
    await at.worker.enlist(worker, seconds=60)

    for journal in (at.front, at.operator):
        assert (await forbidden(journal.enlist(worker, seconds=60))).role == f"{at.store.schema}_worker"
        assert (await forbidden(journal.discharge(ALICE))).role == f"{at.store.schema}_worker"
    for journal in (at.front, at.worker):
        refused = await forbidden(journal.bury("w1", by="p", reason="dead"))
        assert refused.role == f"{at.store.schema}_operator"
        assert "does not let this user say that a worker is dead" in refused.message
    await at.operator.bury("w1", by="p", reason="dead")

    assert [found.name for found in await at.front.workers()] == ["w1"]
    assert await at.worker.departed([ALICE.process]) == {ALICE.process}


async def test_what_is_refused_says_what_whose_and_the_remedy_in_one_sentence(at: Roles):
    refused = await forbidden(at.front.fence(Fence(scope=Scope.ALL, by="p", at=1.0)))

    user = at.front._target.shown.partition("//")[2].partition("@")[0]
    assert refused.code == "store_forbidden"
    assert refused.message.endswith(
        f"does not let this user halt anything. Have its owner run GRANT {at.store.schema}_operator TO {user}."
    )


@pytest.mark.parametrize(
    ("role", "said", "needed"),
    [
        ("worker", verb(Verb.HALT), "operator"),
        ("front", verb(Verb.HALT), "operator"),
        ("front", permit(), "worker"),
        ("operator", permit(), "worker"),
        ("operator", verb(Verb.CANCEL), "front"),
        ("worker", verb(Verb.CANCEL), "front"),
        ("worker", verb(Verb.PAUSE), "front"),
        ("worker", verb(Verb.RESUME), "front"),
        ("worker", verb(Verb.RESUME, by=RUNTIME), "front"),
        ("worker", ended(Status.KILLED), "operator"),
        ("front", ended(Status.COMPLETED), "worker"),
    ],
)
async def test_an_event_is_appended_only_by_the_role_whose_it_is(at: Roles, role: str, said: Event, needed: str):
    await driven(at.owner)
    journal: Journal = getattr(at, role)

    refused = await forbidden(journal.append("r", [said], after=1, epoch=1))

    assert refused.role == f"{at.store.schema}_{needed}"
    assert at.rows("SELECT seq, status, cover FROM {s}.heads") == [(1, "queued", 0)]


async def test_a_worker_resumes_what_the_runtime_paused_for_a_while_and_nothing_that_a_person_paused(at: Roles):
    for run, fields in (("mine", {"by": RUNTIME, "resumes_itself": True}), ("theirs", {"by": "ann"})):
        await driven(at.owner, run)
        pause = verb(Verb.PAUSE, **fields)
        await at.owner.append(run, [pause, settled(pause, Status.PAUSED)], after=1, epoch=1)
    resume = verb(Verb.RESUME, by=RUNTIME)

    await at.worker.append("mine", [resume], after=3, epoch=1)
    await forbidden(at.worker.append("theirs", [resume], after=3, epoch=1))
    again = verb(Verb.PAUSE, by=RUNTIME, resumes_itself=True)
    await forbidden(at.worker.append("theirs", [again], after=3, epoch=1))
    await forbidden(at.worker.append("theirs", [permit()], after=3, epoch=1))
    await forbidden(at.worker.append("theirs", [settled(again, Status.RUNNING)], after=3, epoch=1))

    assert (await at.owner.load("mine")).status is Status.RUNNING
    assert (await at.owner.load("theirs")).status is Status.PAUSED


async def test_a_worker_resumes_what_a_person_paused_with_the_run_above_once_that_goes_on(at: Roles):
    await driven(at.owner)
    await driven(at.owner, "r.c1", parent="r", root="r")
    above, below = verb(Verb.PAUSE, by="ann"), verb(Verb.PAUSE, by="ann", id="held:1")
    await at.front.append("r", [above], after=1)
    await at.front.append("r.c1", [below], after=1)
    resume = verb(Verb.RESUME, by=RUNTIME)

    await forbidden(at.worker.append("r.c1", [resume], after=2, epoch=1))
    await at.worker.append("r", [settled(above, Status.PAUSED)], after=2, epoch=1)
    await at.worker.append("r.c1", [settled(below, Status.PAUSED)], after=2, epoch=1)
    await forbidden(at.worker.append("r.c1", [resume], after=3, epoch=1))
    await at.front.append("r.c1", [verb(Verb.ASK, status=Status.PAUSED)], after=3)
    await at.front.append("r", [verb(Verb.RESUME, by="ann")], after=3)
    await at.worker.append("r.c1", [resume], after=4, epoch=1)

    assert (await at.owner.load("r.c1")).status is Status.RUNNING


async def test_a_worker_resumes_no_pause_that_only_looks_as_if_it_came_from_above(at: Roles):
    await driven(at.owner)
    await at.front.append("r", [verb(Verb.PAUSE, by="ann", id="held:1")], after=1)

    await forbidden(at.worker.append("r", [verb(Verb.RESUME, by=RUNTIME)], after=2, epoch=1))


async def test_what_was_withheld_is_written_by_a_worker_and_read_by_whoever_makes_bundles(at: Roles):
    await at.front.create(created("r"))
    withheld = Withheld("c1", "f1", 0, "the discount code")
    entry = SignedEntry(number=1, body=b"said", key=b"k", signature=b"s")

    await at.worker.evidence.write_withheld("r", withheld)
    await forbidden(at.worker.evidence.withheld("r"))
    await forbidden(at.worker.evidence.signed())
    await forbidden(at.worker.evidence.add_signed(entry))
    for journal in (at.worker, at.front):
        await forbidden(journal.evidence.delete_run("r", entry))

    assert await at.front.evidence.withheld("r") == await at.operator.evidence.withheld("r") == (withheld,)
    assert await at.front.evidence.add_signed(entry)
    assert await at.operator.evidence.signed() == (entry,)


async def test_a_role_claims_a_run_under_the_next_epoch_and_no_other(at: Roles):
    await at.front.create(created("r"))

    for journal in (at.worker, at.front, at.operator):
        await forbidden(journal.claim("r", ALICE, seconds=60, epoch=2))
        await forbidden(journal.claim("r", ALICE, seconds=60, epoch=2**63 - 1))
    assert at.rows("SELECT epoch FROM {s}.heads") == [(0,)]
    assert (await at.worker.claim("r", ALICE, seconds=60, epoch=1)).epoch == 1
    assert (await at.owner.claim("r", ALICE, seconds=60, epoch=7)).epoch == 7


async def test_an_id_is_kept_as_it_was_given_also_one_that_looks_like_an_escape(at: Roles):
    await at.front.create(created("r"))
    event = verb(Verb.REDIRECT, id="req-\\u0000-\\\\ud800", status=Status.QUEUED, instruction="a\0b\\\0\0")

    await at.front.append("r", [event], after=1)
    again = await at.front.append("r", [event], after=2)

    assert [record.seq for record in again.events] == [2]
    assert at.rows("SELECT convert_from(id, 'UTF8') FROM {s}.events WHERE seq > 1") == [(event.id,)]


async def test_a_worker_begins_sub_runs_of_the_same_owner_and_no_other_run(at: Roles):
    await at.owner.create(created("r", owner="ann"))

    assert (await forbidden(at.worker.create(created("top")))).role == f"{at.store.schema}_front"
    await forbidden(at.worker.create(created("r.bob", parent="r", root="r", owner="bob")))
    await forbidden(at.operator.create(created("top")))
    await at.worker.create(created("r.c1", parent="r", root="r", owner="ann"))

    assert {row.id for row in await at.front.runs()} == {"r", "r.c1"}


async def test_a_worker_cancels_a_sub_run_with_its_parent_in_the_name_of_the_runtime(at: Roles):
    await driven(at.owner)
    await at.owner.create(created("r.c1", parent="r", root="r"))

    await at.worker.append("r.c1", [verb(Verb.CANCEL, by=RUNTIME)], after=1)

    assert at.rows("SELECT cover FROM {s}.heads ORDER BY run") == [(0,), (1,)]


async def test_a_worker_keeps_no_snapshot_that_others_would_believe(at: Roles):
    await driven(at.owner)
    state = await at.worker.load("r")

    for journal in (at.worker, at.front):
        await journal._writer.submit(SaveSnapshot(state), 5.0)
        kept = at.rows("SELECT count(*) FROM {s}.snapshots")
        assert kept == [(0 if journal is at.worker else 1,)]


# -- whatever SQL a user can think of

TABLES = ("version", "runs", "heads", "events", "leases", "fences", "gate", "effects", "chunks", "snapshots")

COLUMNS = {"version": "version", "runs": "agent", "fences": "name", "gate": "nothing"}


@pytest.mark.parametrize("role", roles.ROLES)
async def test_a_role_writes_no_table(at: Roles, role: str):
    await driven(at.owner)
    before = {table: at.rows(f"SELECT t.* FROM {{s}}.{table} t") for table in TABLES}

    with at.connect(role) as db:
        for table in TABLES:
            column = COLUMNS.get(table, "run")
            where = f"{at.store.schema}.{table}"
            for statement in (
                f"INSERT INTO {where} DEFAULT VALUES",
                f"UPDATE {where} SET {column} = {column}",
                f"DELETE FROM {where}",
                f"TRUNCATE {where}",
                f"LOCK TABLE {where} IN EXCLUSIVE MODE",
                f"SELECT * FROM {where} FOR SHARE",
                f"ALTER TABLE {where} DISABLE TRIGGER ALL",
                f"DROP TABLE {where}",
                f"COPY {where} FROM STDIN",
            ):
                with pytest.raises(errors.InsufficientPrivilege), db.transaction():
                    db.execute(statement.encode())
        for statement in ("CREATE TABLE {s}.mine ()", "CREATE FUNCTION {s}.f() RETURNS int LANGUAGE sql AS 'SELECT 1'"):
            with pytest.raises(errors.InsufficientPrivilege):
                db.execute(statement.replace("{s}", at.store.schema).encode())

    assert before == {table: at.rows(f"SELECT t.* FROM {{s}}.{table} t") for table in TABLES}


@pytest.mark.parametrize("role", roles.ROLES)
async def test_a_table_that_is_added_later_is_for_its_owner_alone(at: Roles, role: str):
    """As that of the keys of servers would be."""
    with at.store.cluster.connect() as owner:
        owner.execute(f"CREATE TABLE {at.store.schema}.keys (secret text)".encode())

    with at.connect(role) as db, pytest.raises(errors.InsufficientPrivilege):
        db.execute(f"SELECT * FROM {at.store.schema}.keys".encode())


@pytest.mark.parametrize("role", ["worker", "front"])
async def test_the_functions_that_fence_are_closed_to_it_under_every_name(at: Roles, role: str):
    await driven(at.owner)
    await at.owner.fence(Fence(scope=Scope.ALL, by="p", at=1.0))

    with at.connect(role) as db:
        for call in (
            "put_fence('agent', 'x', true, '', '', 0)",
            "lift_fence('all', '')",
            "fence_tree('{1}', 'r', true, '', '', 0)",
            "lock_tree('r')",
            "append_and_fence('r', 1, 1, 1, 3, 2, 2, 'running', 0, '', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}',"
            " '{}', '{}', '{}', false, '', '', 0, 'x', 'x')",
        ):
            with pytest.raises(errors.InsufficientPrivilege):
                db.execute(f"SELECT {at.store.schema}.{call}".encode())

    assert at.rows("SELECT scope, halt FROM {s}.fences") == [("all", True)]


# -- a worker that calls what it may call, and lies

APPEND = (
    "SELECT {s}.append_as_role(%s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %b::bytea[], '{{}}', '{{}}', "
    "'{{}}', '{{}}', '{{}}', '{{}}', 'x', 'x')"
)


class Hostile:
    """Somebody with the password of a worker, who appends by hand."""

    def __init__(self, at: Roles) -> None:
        self.db = at.connect("worker")
        self._statement = APPEND.format(s=at.store.schema).encode()
        ((self.key,),) = at.rows("SELECT key FROM {s}.runs WHERE id = 'r'")

    def append(self, *bodies: bytes, seq: int | None = 1, epoch: int | None = 1) -> list[int]:
        keys = [self.key] * len(bodies)
        row = self.db.execute(self._statement, ([self.key], [seq], [epoch], keys, list(bodies))).fetchone()
        assert row is not None
        found: list[int] = row[0]
        return found

    def is_refused(self, *bodies: bytes, seq: int = 1, epoch: int = 1) -> bool:
        with pytest.raises((errors.InsufficientPrivilege, psycopg.DataError)):
            self.append(*bodies, seq=seq, epoch=epoch)
        return True


@pytest.fixture
async def hostile(at: Roles) -> AsyncIterator[Hostile]:
    await driven(at.owner)
    one = await to_thread.run_sync(Hostile, at)
    yield one
    one.db.close()


def body(event: Event) -> bytes:
    return encoding.encode(event)


async def test_it_appends_only_where_the_run_stands_and_under_its_epoch(at: Roles, hostile: Hostile):
    assert hostile.append(body(outcome()), seq=0) == []
    assert hostile.append(body(outcome()), epoch=0) == []
    assert hostile.append(body(outcome()), epoch=2) == []
    assert hostile.append(body(outcome()), seq=None) == []
    assert hostile.append(body(outcome()), epoch=None) == []
    assert hostile.is_refused(body(permit(epoch=7)))
    assert hostile.is_refused(body(RunStarted(id="s", at=1.0, epoch=7, status=Status.RUNNING)))

    assert hostile.append(body(outcome())) == [hostile.key]
    assert await at.owner.verify("r") == 2  # the chain is the server's own


@pytest.mark.parametrize("scope", [Scope.ALL, Scope.AGENT, Scope.OWNER, Scope.RUN])
async def test_it_permits_nothing_under_a_fence(at: Roles, hostile: Hostile, scope: Scope):
    name = {Scope.ALL: "", Scope.AGENT: "churn", Scope.OWNER: "ann", Scope.RUN: "r"}[scope]
    if scope is Scope.OWNER:
        with at.store.cluster.connect() as owner:
            owner.execute(f"UPDATE {at.store.schema}.runs SET owner = 'ann'".encode())
    await at.operator.fence(Fence(scope=scope, name=name, by="p", at=1.0))

    assert hostile.append(body(permit())) == []
    assert hostile.append(body(undo())) == []
    assert hostile.append(body(outcome()), body(permit())) == []
    assert hostile.append(body(outcome())) == [hostile.key]


async def test_it_permits_nothing_but_undos_after_a_cancel(at: Roles, hostile: Hostile):
    await at.front.append("r", [verb(Verb.CANCEL)], after=1)

    assert hostile.append(body(permit()), seq=2) == []
    assert hostile.append(body(permit(kind=CallKind.ASK)), seq=2) == []
    assert hostile.is_refused(body(started(1)), seq=2)  # to running
    assert hostile.append(body(undo()), seq=2) == [hostile.key]


async def test_it_brings_nothing_to_life_that_is_over(at: Roles, hostile: Hostile):
    await at.owner.append("r", [ended(Status.FAILED)], after=1, epoch=1)
    answer = settled(verb(Verb.ASK), Status.RUNNING)

    assert hostile.is_refused(body(answer), seq=2)
    assert hostile.is_refused(body(started(1)), seq=2)
    assert hostile.is_refused(body(permit()), seq=2)
    assert hostile.is_refused(body(settled(verb(Verb.CANCEL), Status.FAILED)), seq=2)

    assert at.rows("SELECT seq, status FROM {s}.heads") == [(2, "failed")]


@pytest.mark.parametrize("claimed", [Status.CANCELLING, Status.CANCELLED, Status.KILLED, Status.PAUSED])
async def test_nothing_but_a_cancel_leads_to_cancelling_and_a_cancel_puts_up_its_fence(
    at: Roles, hostile: Hostile, claimed: Status
):
    """A cancel of a person would otherwise join one that nobody has made, and wait for it for ever."""
    hostile.append(body(started(1)))

    assert hostile.is_refused(body(started(1, claimed)), seq=2)
    assert hostile.is_refused(body(settled(verb(Verb.PAUSE), claimed)), seq=2)
    assert hostile.is_refused(body(ended(claimed)), seq=2)
    if claimed is not Status.PAUSED:
        assert hostile.is_refused(body(verb(Verb.PAUSE, by=RUNTIME, status=claimed)), seq=2)
    await at.front.append("r", [verb(Verb.CANCEL)], after=2)

    assert at.rows("SELECT status, cover FROM {s}.heads") == [("cancelling", 1)]


async def test_it_lifts_no_pause_of_a_person_within_one_append(at: Roles, hostile: Hostile):
    hostile.append(body(started(1)))
    await at.front.append("r", [verb(Verb.PAUSE)], after=2)

    for there in (Status.COMPLETED, Status.CANCELLING, Status.QUEUED, Status.RUNNING, Status.REDIRECTING):
        assert hostile.is_refused(body(started(1, there)), body(permit()), body(started(1)), seq=3)
        assert hostile.is_refused(body(settled(verb(Verb.PAUSE), there)), body(permit()), seq=3)
    assert hostile.is_refused(body(ended(Status.FAILED)), body(permit()), seq=3)
    paused = settled(verb(Verb.PAUSE), Status.PAUSED)
    assert hostile.is_refused(body(paused), body(permit()), seq=3)
    assert hostile.append(body(started(1, Status.PAUSING)), body(paused), seq=3) == [hostile.key]

    assert at.rows("SELECT seq, status FROM {s}.heads") == [(5, "paused")]


async def test_a_call_of_no_kind_is_permitted_neither_in_a_pause_nor_after_the_end(at: Roles, hostile: Hostile):
    nameless = body(permit()).replace(b'"kind":"tool",', b"")
    assert b"kind" not in nameless
    await at.front.append("r", [verb(Verb.PAUSE)], after=1)

    assert hostile.is_refused(nameless, seq=2)
    await at.owner.append("r", [ended(Status.FAILED)], after=2, epoch=1)
    assert hostile.is_refused(nameless, seq=3)
    assert hostile.is_refused(b'{"type":"call.finished","id":"f","at":1}', seq=3)


async def test_what_is_over_stays_over_within_one_append(at: Roles, hostile: Hostile):
    await at.front.append("r", [verb(Verb.CANCEL)], after=1)
    cancelled = body(settled(verb(Verb.CANCEL), Status.CANCELLED))

    assert hostile.is_refused(body(started(1, Status.CANCELLED)), body(started(1)), seq=2)
    assert hostile.is_refused(cancelled, body(started(1)), seq=2)
    assert hostile.is_refused(cancelled, body(started(1, Status.CANCELLED)), seq=2)
    assert hostile.is_refused(cancelled, body(ended(Status.COMPLETED)), seq=2)
    assert hostile.is_refused(body(ended(Status.CANCELLED)), body(ended(Status.CANCELLED)), seq=2)
    assert hostile.append(cancelled, body(ended(Status.CANCELLED)), seq=2) == [hostile.key]

    assert at.rows("SELECT seq, status FROM {s}.heads") == [(4, "cancelled")]


async def test_a_halt_settles_the_other_verbs_and_finishes_at_once(at: Roles):
    await driven(at.owner)
    pause = verb(Verb.PAUSE)
    await at.front.append("r", [pause], after=1)

    end = [verb(Verb.HALT), settled(pause, Status.KILLED), ended(Status.KILLED)]
    await at.operator.append("r", end, after=2, epoch=1)

    assert at.rows("SELECT seq, status, cover FROM {s}.heads") == [(5, "killed", 2)]


async def test_verbs_lead_where_the_table_of_transitions_says(at: Roles):
    def cells(type: str) -> list[tuple[Any, ...]]:
        names = {"v": ", ".join(f"('{v}')" for v in Verb), "s": ", ".join(f"('{s}')" for s in Status)}
        statement = (
            "SELECT b.s, v.v, a.s FROM (VALUES %(v)s) v (v), (VALUES %(s)s) b (s), (VALUES %(s)s) a (s) "
            f"WHERE {{s}}.may_lead('{type}', v.v, b.s, a.s)"
        )
        return at.rows(statement % names)

    moves = {key: move for key, move in VERBS.items() if key[1] not in ABOUT_A_CALL and key != CANCELLED_TWICE}
    accepted = {(s, v, to) for (s, v), move in moves.items() for to in (move.to, move.undriven) if to is not None}
    settling = {(s, v, to) for (s, v), to in SETTLES.items()}

    # Whether a pause has anything to wait for is for the driver to say: nothing begins either way.
    pauses = {(s, Verb.PAUSE, to) for s in UNFINISHED - {Status.CANCELLING} for to in PAUSE_IN_FORCE}
    assert set(cells("verb.accepted")) == accepted | pauses
    assert set(cells("verb.settled")) == settling | {(s, v, s) for s in Status for v in Verb}


async def test_it_cannot_look_at_fences_as_they_were_before(at: Roles, hostile: Hostile):
    """A transaction that keeps its first snapshot would not see the halt."""
    hostile.db.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    hostile.db.execute(f"SELECT count(*) FROM {at.store.schema}.fences".encode())
    await at.operator.fence(Fence(scope=Scope.ALL, by="p", at=1.0))

    assert hostile.is_refused(body(permit()))


async def test_an_event_is_what_its_bytes_say_and_bytes_that_can_be_read_two_ways_are_none(at: Roles, hostile: Hostile):
    hidden = body(permit()).replace(b'{"type":"call.started"', b'{"type":"call.finished","t\\u0079pe":"call.started"')
    twice = body(permit()).replace(b'"kind":"tool"', b'"kind":"tool","kind":"undo"')
    escaped = body(permit()).replace(b"call.started", b"call\\u002estarted")

    await at.front.append("r", [verb(Verb.CANCEL)], after=1)

    assert hostile.is_refused(hidden, seq=2)
    assert hostile.is_refused(twice, seq=2)
    assert hostile.append(escaped, seq=2) == []  # a permit, however it is spelled
    assert hostile.is_refused(b"not an event", seq=2)
    assert hostile.is_refused(b'{"type":"call.finished"}', seq=2)
    assert hostile.is_refused(b'{"type":"run.created","id":"x","at":1}', seq=2)
    assert hostile.is_refused(
        body(settled(verb(Verb.CANCEL), Status.CANCELLED)).replace(b"cancelled", b"nonsense"), seq=2
    )


async def test_settings_of_its_session_change_nothing_of_what_a_function_does(at: Roles, hostile: Hostile):
    hostile.db.execute("CREATE TEMPORARY TABLE fences (scope text)")
    hostile.db.execute("CREATE FUNCTION pg_temp.sha256(bytea) RETURNS bytea LANGUAGE sql AS 'SELECT $1'")
    hostile.db.execute("SET search_path = pg_temp, pg_catalog")
    hostile.db.execute("SET standard_conforming_strings = off")
    await at.operator.fence(Fence(scope=Scope.ALL, by="p", at=1.0))

    assert hostile.append(body(permit())) == []
    assert hostile.append(body(outcome(result="a\0b\\u0000"))) == [hostile.key]
    assert await at.owner.verify("r") == 2


async def test_a_run_is_begun_as_its_event_says(at: Roles):
    event = created("x", agent="churn")
    said = body(event)
    hash = encoding.link(encoding.genesis("x"), 1, said)
    begin = CREATE.replace("{s}", at.store.schema).encode()

    def values(**other: Any) -> list[Any]:
        given = {
            "run": "x", "agent": "churn", "owner": b"", "thread": b"t1", "parent": None, "root": None,
            "status": "queued", "at": 1.0, "goal": b"", "id": event.id.encode(), "type": "run.created", "hash": hash,
            "body": said, "channel": "x", "note": "x",
        }  # fmt: skip
        whatever_else: list[Any] = [[] for _ in range(CREATE.count("%s") - len(given))]
        return [*(given | other).values(), *whatever_else]

    with at.connect("front") as db:
        for lie in (
            {"agent": "other"},
            {"owner": b"ann"},
            {"status": "completed"},
            {"hash": hashlib.sha256(b"").digest()},
            {"body": said.replace(b"churn", b"other")},
        ):
            with pytest.raises(errors.InsufficientPrivilege):
                db.execute(begin, values(**lie))
        assert (db.execute(begin, values()).fetchone() or [None])[0] == "created"

    assert await at.owner.verify("x") == 1


# -- making them


async def test_a_user_without_roles_may_read_if_at_all_and_is_told_so(at: Roles):
    nobody = at.store.address_of()
    with pytest.raises(StoreForbidden, match="`checkrein store init --roles`, and grant this user one of the roles"):
        await to_thread.run_sync(PostgresJournal, nobody)

    with at.store.cluster.connect() as db:
        user = nobody.partition("//")[2].partition("@")[0]
        db.execute(f"GRANT USAGE ON SCHEMA {at.store.schema} TO {user}".encode())
        db.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {at.store.schema} TO {user}".encode())
    reading = await to_thread.run_sync(PostgresJournal, nobody)
    at.store.opened.append(reading)
    await driven(at.owner)

    assert [row.id for row in await reading.runs()] == ["r"]
    refusal = await forbidden(reading.append("r", [verb(Verb.PAUSE)], after=1))
    assert "`checkrein store init --roles`" in refusal.message


async def test_functions_that_are_older_than_what_is_called_are_refused_with_the_command_that_helps(at: Roles):
    with at.store.cluster.connect() as db:
        db.execute(
            f"CREATE OR REPLACE FUNCTION {at.store.schema}.roles_version() RETURNS integer LANGUAGE sql IMMUTABLE "
            "AS 'SELECT 0'".encode()
        )

    with pytest.raises(StoreUnavailable) as refused:
        await to_thread.run_sync(PostgresJournal, at.store.address)
    assert refused.value.code == "store_too_old"
    assert "`checkrein store migrate --roles`" in refused.value.message

    schema.migrate(at.store.owner)

    at.store.opened.append(await to_thread.run_sync(PostgresJournal, at.store.address))


async def test_roles_are_granted_anew_what_they_may_do_and_lose_what_they_may_not(at: Roles):
    with at.store.cluster.connect() as db:
        db.execute(f"GRANT DELETE ON {at.store.schema}.events TO {at.store.schema}_worker".encode())

    assert set(schema.make_roles(at.store.owner).values()) == {False}

    with at.connect("worker") as db, pytest.raises(errors.InsufficientPrivilege):
        db.execute(f"DELETE FROM {at.store.schema}.events".encode())


async def test_an_owner_who_may_make_no_roles_is_told_what_to_have_run_and_then_gives_them_their_rights(
    postgres: Cluster,
):
    name = postgres.new_schema()
    try:
        owner = postgres.address(name, postgres.login(name))
        with postgres.connect() as db:
            db.execute(
                f"CREATE SCHEMA {name} AUTHORIZATION {target_of(owner).conninfo.split('user=')[1].split()[0]}".encode()
            )
        schema.init(owner)

        with pytest.raises(StoreForbidden) as refused:
            schema.make_roles(owner)
        assert f"CREATE ROLE {name}_worker NOLOGIN; CREATE ROLE {name}_front NOLOGIN;" in refused.value.message
        with postgres.connect() as db:
            for role in roles.ROLES:
                db.execute(f"CREATE ROLE {name}_{role} NOLOGIN".encode())

        assert set(schema.make_roles(owner).values()) == {False}
        limited = PostgresJournal(postgres.address(name, postgres.login(name, *roles.ROLES)))
        async with limited:
            await driven(limited)
            await limited.fence(Fence(scope=Scope.ALL, by="p", at=1.0))
            with pytest.raises(Fenced):
                await limited.append("r", [permit()], after=1, epoch=1)
            assert await limited.unfence(Scope.ALL)
            await limited.append("r", [permit()], after=1, epoch=1)
    finally:
        postgres.drop(name)
