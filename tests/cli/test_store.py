"""`checkrein store`, on a real server."""

from __future__ import annotations

import pytest

from checkrein.journal.postgres.schema import scripts
from tests.cli.shell import SAMPLE, Shell
from tests.support.postgres import Cluster

VERSION = len(scripts())


@pytest.fixture
def address(postgres_store: str) -> str:
    return postgres_store


def test_tables_are_made_once_checked_and_up_to_date(shell: Shell, address: str) -> None:
    made = shell.do("store", "init", address)
    again = shell.do("store", "init", address)
    checked = shell.do("store", "check", address, "--json")
    migrated = shell.do("store", "migrate", address)

    assert made.out == again.out == f"{address} has its tables (schema {VERSION}).\n"
    rights = {"user": "postgres", "writes_tables": True, "owns_schema": True, "roles": []}
    assert checked.json == [{"store": address, "version": VERSION, "least_reader": 1, "least_writer": 1, **rights}]
    assert migrated.out == f"{address} is up to date (schema {VERSION}).\n"


def test_the_address_may_be_in_the_environment_and_its_password_is_never_printed(shell: Shell, address: str) -> None:
    shell.environment["CHECKREIN_STORE"] = address.replace("postgres@", "postgres:hunter2secret@")

    assert shell.do("store", "init").code == 0
    checked = shell.do("store", "check")

    assert checked.code == 0, checked.err
    assert "postgres:***@127.0.0.1" in checked.out
    assert "hunter2" not in checked.out + checked.err


PASSWORD = "hunter2secret"


@pytest.mark.parametrize("command", [("run", f"{SAMPLE}:quick", "hi"), ("serve", str(SAMPLE)), ("ps",), ("pause",)])
def test_a_place_to_listen_that_is_not_that_of_the_store_is_refused_in_a_sentence(
    shell: Shell, command: tuple[str, ...]
) -> None:
    (shell.folder / "runs.db").touch()

    refused = shell.do(*command, "--store", "runs.db", "--listen-store", f"postgresql://ann:{PASSWORD}@db/agents")

    assert refused.code == 2
    assert refused.err.startswith("error[listen_store_refused]: ")
    assert len(refused.err.splitlines()) == 1
    assert PASSWORD not in refused.out + refused.err


def test_what_is_said_for_the_store_of_the_project_is_not_meant_for_one_that_is_typed(shell: Shell) -> None:
    shell.environment["CHECKREIN_LISTEN_STORE"] = f"postgresql://ann:{PASSWORD}@127.0.0.1:1/agents"

    typed = shell.do("ps", "--store", "runs.db")
    shell.environment["CHECKREIN_STORE"] = "runs.db"
    (shell.folder / "runs.db").touch()
    not_typed = shell.do("ps")

    assert "error[store_not_found]" in typed.err
    assert "error[listen_store_refused]" in not_typed.err


def test_a_project_may_say_where_its_store_is_and_where_to_listen(shell: Shell, address: str) -> None:
    (shell.folder / "checkrein.toml").write_text(
        f'store = "{address}"\nlisten_store = "{address.replace("/postgres?", "/template1?")}"\n'
    )

    refused = shell.do("ps")
    typed = shell.do("ps", "--listen-store", address)

    assert "error[listen_store_refused]" in refused.err
    assert "is another database" in refused.err
    assert typed.code == 0, typed.err


def test_the_doctor_and_a_run_that_is_not_there_show_no_password(shell: Shell, address: str) -> None:
    shell.environment["CHECKREIN_STORE"] = address.replace("postgres@", f"postgres:{PASSWORD}@")

    looked = shell.do("doctor")
    missed = shell.do("pause", "r-123456789abc")

    assert "postgres:***@127.0.0.1" in looked.out
    assert "postgres:***@127.0.0.1" in missed.err
    assert PASSWORD not in looked.out + looked.err + missed.out + missed.err


def test_tables_of_somebody_else_are_left_alone(shell: Shell, address: str, postgres: Cluster) -> None:
    schema = address.rpartition("=")[2]
    with postgres.connect() as db:
        db.execute(f"CREATE SCHEMA {schema}".encode())
        db.execute(f"CREATE TABLE {schema}.invoices (id int)".encode())

    refused = shell.do("store", "init", address)

    assert refused.code != 0
    assert "error[store_not_ours]" in refused.err


def test_a_server_that_is_not_there_is_said_in_a_sentence(shell: Shell) -> None:
    refused = shell.do("store", "check", "postgresql://ann:hunter2secret@127.0.0.1:1/agents")

    assert refused.code != 0
    assert "error[store_un" in refused.err
    assert "hunter2" not in refused.err
    assert len(refused.err.splitlines()) == 1


def test_roles_are_made_once_and_it_is_said_how_a_login_gets_them(shell: Shell, address: str) -> None:
    schema = address.rpartition("=")[2]

    made = shell.do("store", "init", address, "--roles")
    again = shell.do("store", "migrate", address, "--roles")
    listed = shell.do("store", "init", address, "--roles", "--json")

    assert made.out.splitlines() == [
        f"{address} has its tables (schema {VERSION}).",
        f"Role {schema}_worker was made: it may read, and drive runs and begin sub-runs.",
        f"Role {schema}_front was made: it may read, and begin runs and take the verbs of people, but for halts.",
        f"Role {schema}_operator was made: it may read, and halt and reset, and say that a worker is dead.",
        f"A login gets what it needs by: GRANT {schema}_worker TO my_login;",
    ]
    assert again.out.count("is up to date") == 4
    assert listed.json[0]["roles"] == [f"{schema}_worker", f"{schema}_front", f"{schema}_operator"]


def test_a_check_says_in_plain_words_what_the_user_may_do(shell: Shell, address: str, postgres: Cluster) -> None:
    schema = address.rpartition("=")[2]
    shell.do("store", "init", address, "--roles")
    user = postgres.login(schema, "worker")

    limited = shell.do("store", "check", postgres.address(schema, user))
    owning = shell.do("store", "check", address)

    assert limited.out.splitlines()[1:] == [
        f"User {user} may read, and through functions drive runs and begin sub-runs ({schema}_worker).",
        f"It may not begin runs and take the verbs of people, but for halts ({schema}_front); halt and reset, "
        f"and say that a worker is dead ({schema}_operator); nor write the tables.",
    ]
    assert owning.out.splitlines()[1:] == [
        "User postgres writes the tables, which it owns: it may do everything that can be done to runs."
    ]


def test_what_a_role_may_not_do_is_one_sentence_with_a_code(shell: Shell, address: str, postgres: Cluster) -> None:
    schema = address.rpartition("=")[2]
    shell.do("store", "init", address, "--roles")
    user = postgres.login(schema, "worker")

    refused = shell.do("store", "init", postgres.address(schema, user), "--roles")

    assert refused.code != 0
    assert refused.err.startswith("error[store_forbidden]: ")
    assert len(refused.err.splitlines()) == 1


def test_a_file_needs_none_of_this(shell: Shell) -> None:
    refused = shell.do("store", "init", "runs.db")

    assert refused.code == 2
    assert "sqlite:///runs.db needs no `store init`" in refused.err
