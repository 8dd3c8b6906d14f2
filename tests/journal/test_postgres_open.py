"""Opening a journal in PostgreSQL: what is made, and what is refused, each with a sentence and a code of its own."""

from __future__ import annotations

import asyncio
import logging
import re
import subprocess
import sys
import time
import traceback
from pathlib import Path
from types import SimpleNamespace

import anyio
import pytest
from anyio import to_thread

from checkrein.core.enums import Verb
from checkrein.errors import MisuseError, StoreNotOurs, StoreTooNew, StoreUnavailable
from checkrein.journal import open_journal, shown
from checkrein.journal.postgres import PostgresJournal, leases, listener, schema
from checkrein.journal.postgres.connection import target_of
from tests.journal.build import ALICE, created, driven, outcome, verb
from tests.journal.conftest import PostgresStore
from tests.support.patience import PATIENCE_SECONDS
from tests.support.postgres import LOCKED, Cluster, running

pytestmark = pytest.mark.anyio

SECRET = "hunter2-canary"


def run(cluster: Cluster, *statements: str) -> None:
    with cluster.connect() as db:
        for statement in statements:
            db.execute(statement.encode())


async def refusal(address: str, patience: float = 0.3) -> StoreUnavailable:
    with pytest.raises(StoreUnavailable) as refused:
        await to_thread.run_sync(lambda: PostgresJournal(address, patience=patience))
    return refused.value


# -- addresses


@pytest.mark.parametrize(
    ("address", "seen"),
    [
        ("postgresql://ann:pw@db:5432/x?schema=s", "postgresql://ann:***@db:5432/x?schema=s"),
        ("postgres://ann@db/x", "postgres://ann@db/x"),
        ("postgresql://ann:p@ss/w?rd@db/x", "postgresql://ann:***@db/x"),
        ("postgresql://db/x?user=ann&password=pw", "postgresql://db/x?user=ann&password=***"),
        ("postgresql://a:pw@one:1,two:2/x?sslpassword=pw", "postgresql://a:***@one:1,two:2/x?sslpassword=***"),
        ("postgresql:///x?host=/run/pg&passfile=/etc/pw", "postgresql:///x?host=/run/pg&passfile=/etc/pw"),
        ("mysql://ann:pw@db/x", "mysql://ann:***@db/x"),
        ("sqlite:////var/a:b@c.db", "sqlite:////var/a:b@c.db"),
        ("memory:", "memory:"),
    ],
)
def test_an_address_is_shown_without_its_secret(address: str, seen: str):
    assert shown(address) == seen


def test_where_a_journal_is_kept_can_be_logged():
    assert SECRET not in repr(target_of(f"postgresql://ann:{SECRET}@db/x"))


def test_several_hosts_are_asked_for_the_one_that_takes_writes():
    assert "target_session_attrs=read-write" in target_of("postgresql://one,two/db").conninfo
    assert "target_session_attrs" not in target_of("postgresql://one/db").conninfo


@pytest.mark.parametrize(
    "address",
    [
        f"postgresql://a:{SECRET}%zz@h/db",
        f"postgresql://a:{SECRET}@h/db?schema=No-1",
        f"postgresql://a:x@{SECRET}@h/db",  # a host would be looked up by the end of the password
    ],
)
def test_an_address_that_cannot_be_meant_is_refused_without_its_secret(address: str):
    with pytest.raises(MisuseError) as refused:
        target_of(address)

    assert SECRET not in "".join(traceback.format_exception(refused.value))


async def test_a_socket_and_a_password_file_are_ways_in(postgres: Cluster, postgres_store: PostgresStore, tmp_path):
    run(postgres, f"DROP ROLE IF EXISTS {LOCKED}", f"CREATE ROLE {LOCKED} LOGIN SUPERUSER PASSWORD '{SECRET}'")
    passfile = tmp_path / "pgpass"
    passfile.write_text(f"*:*:*:{LOCKED}:{SECRET}\n")
    passfile.chmod(0o600)
    name = postgres_store.schema
    by_file = f"postgresql://{LOCKED}@127.0.0.1:{postgres.port}/postgres?schema={name}&passfile={passfile}"
    by_socket = f"postgres://postgres@/postgres?host={postgres.folder}&port={postgres.port}&schema={name}"

    async with await open_journal(by_file) as one, await open_journal(by_socket) as two:
        await one.create(created("r"))
        assert len(await two.read("r")) == 1


# -- what is made


async def test_an_empty_database_becomes_a_journal_for_all_who_open_it_at_once(postgres_store: PostgresStore):
    journals = await asyncio.gather(*(open_journal(postgres_store.address) for _ in range(3)))

    await journals[0].create(created("r"))
    assert [len(await journal.read("r")) for journal in journals] == [1, 1, 1]
    for journal in journals:
        await journal.close()


async def test_a_schema_is_made_migrated_and_checked_by_name(postgres_store: PostgresStore):
    made = schema.init(postgres_store.address)

    assert made == schema.init(postgres_store.address) == schema.check(postgres_store.address)[0]
    assert schema.migrate(postgres_store.address).version == len(schema.scripts())


@pytest.mark.parametrize("older", range(1, len(schema.scripts())))
async def test_a_store_of_every_older_version_is_migrated_with_all_that_is_in_it(
    postgres_store: PostgresStore, monkeypatch: pytest.MonkeyPatch, older: int
):
    address, known = postgres_store.address, schema.scripts()
    with monkeypatch.context() as then:
        then.setattr(schema, "scripts", lambda: known[:older])
        async with await open_journal(address) as journal:
            await journal.create(created("r"))
            await journal.append("r", [verb(Verb.PAUSE)], after=1)
            before = await journal.read("r")
    assert (await refusal(address)).code == "store_too_old"

    assert schema.migrate(address).version == len(known)

    async with await open_journal(address) as journal:
        assert await journal.read("r") == before
        lease = await journal.claim("r", ALICE, seconds=60)
        await journal.append("r", [outcome()], after=2, epoch=lease.epoch)
        assert await journal.verify("r") == 3


async def test_looking_makes_nothing(postgres: Cluster, postgres_store: PostgresStore):
    with pytest.raises(StoreUnavailable) as refused:
        schema.check(postgres_store.address)

    assert (refused.value.code, "store init" in refused.value.message) == ("store_not_initialised", True)
    with postgres.connect() as db:
        assert db.execute("SELECT to_regnamespace(%s) IS NULL", (postgres_store.schema,)).fetchone() == (True,)


# -- what is refused


async def test_tables_of_something_else_are_left_alone(postgres: Cluster, postgres_store: PostgresStore):
    name = postgres_store.schema
    run(postgres, f"CREATE SCHEMA {name}", f"CREATE TABLE {name}.orders (id int)")

    with pytest.raises(StoreNotOurs, match="another schema"):
        await open_journal(postgres_store.address)

    with postgres.connect() as db:
        assert db.execute("SELECT count(*) FROM pg_tables WHERE schemaname = %s", (name,)).fetchone() == (1,)


async def test_an_older_schema_names_the_command_that_helps(postgres: Cluster, postgres_store: PostgresStore):
    schema.init(postgres_store.address)
    run(postgres, f"UPDATE {postgres_store.schema}.version SET version = 0")

    refused = await refusal(postgres_store.address)

    assert refused.code == "store_too_old"
    assert "checkrein store migrate" in refused.message


async def test_a_newer_schema_is_refused_unless_it_says_that_this_version_may_write(
    postgres: Cluster, postgres_store: PostgresStore
):
    schema.init(postgres_store.address)
    run(postgres, f"UPDATE {postgres_store.schema}.version SET version = 99")
    await (await open_journal(postgres_store.address)).close()

    run(postgres, f"UPDATE {postgres_store.schema}.version SET least_writer = 99")

    with pytest.raises(StoreTooNew) as refused:
        await open_journal(postgres_store.address)
    assert refused.value.version == 99


async def test_a_user_who_may_make_nothing_is_told_who_can(postgres: Cluster, postgres_store: PostgresStore):
    run(postgres, "DROP ROLE IF EXISTS humble", "CREATE ROLE humble LOGIN")

    refused = await refusal(postgres.address(postgres_store.schema, user="humble"))

    assert refused.code == "store_not_initialised"
    assert "checkrein store init" in refused.message


async def test_a_server_that_is_not_there_is_waited_for_and_then_named():
    began = time.monotonic()

    refused = await refusal("postgresql://postgres@127.0.0.1:9/db", patience=0.5)

    assert refused.code == "store_unreachable"
    assert "127.0.0.1:9/db" in refused.message
    assert time.monotonic() - began >= 0.5


async def test_a_wrong_password_is_said_at_once_and_nowhere_repeated(
    postgres: Cluster, postgres_store: PostgresStore, caplog: pytest.LogCaptureFixture
):
    run(postgres, f"DROP ROLE IF EXISTS {LOCKED}", f"CREATE ROLE {LOCKED} LOGIN PASSWORD 'right'")
    caplog.set_level(logging.DEBUG)
    address = f"postgresql://{LOCKED}:{SECRET}@127.0.0.1:{postgres.port}/postgres?schema={postgres_store.schema}"

    refused = await refusal(address, patience=60)

    assert refused.code == "store_login_refused"
    said = "".join(traceback.format_exception(refused)) + repr(vars(refused)) + caplog.text
    assert SECRET not in said
    assert f"{LOCKED}:***@" in said


# -- where it is listened


async def test_another_way_to_the_same_database_may_be_listened_on(postgres: Cluster, postgres_store: PostgresStore):
    run(postgres, "DROP ROLE IF EXISTS hears", "CREATE ROLE hears LOGIN")
    other = postgres_store.open()  # the tables are made by somebody who may
    await driven(other)
    run(
        postgres,
        f"GRANT USAGE ON SCHEMA {postgres_store.schema} TO hears",
        f"GRANT ALL ON ALL TABLES IN SCHEMA {postgres_store.schema} TO hears",
    )
    socket = f"postgresql://hears@/postgres?host={postgres.folder}&port={postgres.port}"
    async with await open_journal(postgres_store.address, listen=socket) as journal:
        follower = journal.follow("r", after=1)

        await other.append("r", [outcome()], after=1, epoch=1)

        with anyio.fail_after(PATIENCE_SECONDS):
            assert (await anext(follower)).seq == 2
        with postgres.connect() as db:
            listening = db.execute("SELECT 1 FROM pg_stat_activity WHERE usename = 'hears'").fetchall()
        assert len(listening) == 1
        await follower.aclose()


@pytest.mark.parametrize(
    ("listen", "words"),
    [
        ("postgresql://a:{secret}@127.0.0.1:{port}/postgres?schema=elsewhere", "about schema elsewhere"),
        ("postgresql://postgres:{secret}@127.0.0.1:{port}/template1", "is another database"),
        ("sqlite:///{secret}.db", "no address of PostgreSQL"),
        ("", "no address of PostgreSQL"),
    ],
)
async def test_an_address_to_listen_on_that_leads_elsewhere_is_refused(
    postgres: Cluster, postgres_store: PostgresStore, listen: str, words: str
):
    with pytest.raises(MisuseError) as refused:
        await open_journal(postgres_store.address, listen=listen.format(port=postgres.port, secret=SECRET))

    assert (refused.value.code, words in refused.value.message) == ("listen_store_refused", True)
    assert SECRET not in refused.value.message.replace(f"sqlite:///{SECRET}.db", "")


async def test_another_server_is_another_database(postgres_store: PostgresStore, postgres_18: Cluster):
    with pytest.raises(MisuseError, match="is another database"):
        await open_journal(postgres_store.address, listen=postgres_18.address(postgres_store.schema))


@pytest.mark.parametrize("address", ["memory:", "sqlite:///{folder}/runs.db"])
async def test_only_a_store_in_postgresql_is_listened_to_elsewhere(address: str, tmp_path: Path):
    with pytest.raises(MisuseError, match="is for a store in PostgreSQL") as refused:
        await open_journal(address.format(folder=tmp_path), listen=f"postgresql://ann:{SECRET}@db/agents")

    assert refused.value.code == "listen_store_refused"
    assert SECRET not in refused.value.message + refused.value.address
    assert not (tmp_path / "runs.db").exists()


# -- settings that would lose something


async def test_a_role_that_does_not_wait_for_the_disk_is_refused(postgres: Cluster, postgres_store: PostgresStore):
    run(
        postgres,
        "DROP ROLE IF EXISTS hasty",
        "CREATE ROLE hasty LOGIN SUPERUSER",
        "ALTER ROLE hasty SET synchronous_commit = off",
    )

    refused = await refusal(postgres.address(postgres_store.schema, user="hasty"))

    assert refused.code == "store_unsafe"
    assert "synchronous_commit" in refused.message


async def test_a_role_whose_statements_share_one_view_of_the_past_is_refused(
    postgres: Cluster, postgres_store: PostgresStore
):
    run(
        postgres,
        "DROP ROLE IF EXISTS dated",
        "CREATE ROLE dated LOGIN SUPERUSER",
        "ALTER ROLE dated SET default_transaction_isolation = 'repeatable read'",
    )

    refused = await refusal(postgres.address(postgres_store.schema, user="dated"))

    assert (refused.code, "read committed" in refused.message) == ("store_unsafe", True)


async def test_a_database_that_cannot_hold_what_people_write_is_refused(postgres: Cluster):
    run(postgres, "DROP DATABASE IF EXISTS latin")
    run(postgres, "CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    try:
        refused = await refusal(postgres.address("checkrein").replace("/postgres?", "/latin?"))
    finally:
        run(postgres, "DROP DATABASE latin")

    assert (refused.code, "UTF8" in refused.message) == ("store_unsafe", True)


async def test_a_server_that_loses_what_it_took_and_a_standby_are_refused():
    with running(fsync="off", full_page_writes="off") as cluster:
        unsafe = await refusal(cluster.address())
        cluster.stop()
        (cluster.data / "standby.signal").touch()
        cluster.start()
        standby = await refusal(cluster.address())

    assert (unsafe.code, "fsync and full_page_writes" in unsafe.message) == ("store_unsafe", True)
    assert (standby.code, "primary" in standby.message) == ("store_is_standby", True)


async def test_a_host_whose_clock_is_far_off_may_not_drive_and_may_do_everything_else(
    postgres_store: PostgresStore, monkeypatch: pytest.MonkeyPatch
):
    """P6: a stop is worth more than a clock that is set, and goes by the server's."""
    monkeypatch.setattr(leases, "time", SimpleNamespace(time=lambda: time.time() + 3_600))

    async with await open_journal(postgres_store.address) as journal:
        assert abs(journal.now() - time.time()) < 60
        with pytest.raises(StoreUnavailable) as refused:
            journal.check_may_drive()

    assert refused.value.code == "store_clock_off"
    assert re.search(r"\+(3599|3600|3601) s", refused.value.message), "give or take what a question takes"


async def test_the_time_is_that_of_the_server(postgres_store: PostgresStore, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(leases, "time", SimpleNamespace(time=lambda: time.time() - 3))

    async with await open_journal(postgres_store.address) as journal:
        assert abs(journal.now() - time.time()) < 2  # and not three seconds behind


def test_without_the_driver_the_command_that_installs_it_is_named():
    code = (
        "import sys, asyncio; sys.modules['psycopg'] = None\n"
        "from checkrein.journal import open_journal\n"
        "try: asyncio.run(open_journal('postgresql://a:secret@h/d'))\n"
        "except Exception as e: print(e.code, e.message)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert said.startswith("store_driver_missing")
    assert "pip install 'checkrein[postgres]'" in said
    assert "secret" not in said


# -- a pooler in transaction mode


async def test_where_notifications_are_swallowed_it_looks_often_and_says_so_once(
    postgres_store: PostgresStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(listener, "ECHO_SECONDS", 0.05)
    monkeypatch.setattr(listener, "LISTEN", "SELECT 1 AS {}")  # as such a pooler makes it: another connection listens
    deaf, other = postgres_store.open(), postgres_store.open()
    await driven(deaf)
    follower, changes = deaf.follow("r"), deaf.changes()
    assert (await anext(follower)).seq == 1
    assert isinstance(deaf, PostgresJournal)
    assert isinstance(other, PostgresJournal)
    with anyio.fail_after(PATIENCE_SECONDS):
        while not (deaf._listener._is_deaf and other._listener._is_deaf):
            await anyio.sleep(0.01)

    await other.append("r", [outcome()], after=1, epoch=1)

    with anyio.fail_after(PATIENCE_SECONDS):
        assert (await anext(follower)).seq == 2
        assert await anext(changes) == {"r"}
    with anyio.fail_after(PATIENCE_SECONDS):
        while caplog.text.count("pooler") < 2:  # each journal once
            await anyio.sleep(0.01)
    assert caplog.text.count("pooler") == 2
