"""`checkrein serve` with its runs in PostgreSQL: stops work, and the password of the store is nowhere."""

from __future__ import annotations

import re
from collections.abc import Iterator

import psutil
import pytest

from tests.cli.shell import until
from tests.server.processes.client import Client
from tests.server.processes.serving import Place
from tests.support.postgres import LOCKED, Cluster, bytes_of
from tests.support.witness import Witness

PASSWORD = "hunter2-of-the-store"
LISTEN_PASSWORD = "hunter3-of-the-listener"
LISTENING = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'postgres' AND application_name = 'checkrein'"
TOKEN = "ckr_" + 43 * "t"
AGENTS = """
import os
import time

from checkrein import Agent, tool
from checkrein.models import ScriptedModel, Turn


@tool
def tick(log: str) -> str:
    print(sorted(os.environ.items()))
    while True:
        with open(log, "a") as file:
            file.write(f"{time.time()} {os.getpid()} tick\\n")
        with open(log + ".environment", "w") as file:
            file.write(str(sorted(os.environ.items())))
        time.sleep(0.05)


ticker = Agent("ticker", model=ScriptedModel([Turn("I tick.", calls=[("tick", {"log": LOG})]), "Done."]), tools=[tick])
"""


@pytest.fixture
def address(postgres: Cluster) -> Iterator[str]:
    """A store of a role that needs a password."""
    schema = postgres.new_schema()
    with postgres.connect() as db:
        db.execute(f"DO $$ BEGIN CREATE ROLE {LOCKED} LOGIN; EXCEPTION WHEN duplicate_object THEN END $$".encode())
        db.execute(f"ALTER ROLE {LOCKED} PASSWORD '{PASSWORD}'".encode())
        db.execute(f"CREATE SCHEMA {schema} AUTHORIZATION {LOCKED}".encode())
    yield postgres.address(schema, LOCKED).replace(f"{LOCKED}@", f"{LOCKED}:{PASSWORD}@")
    postgres.drop(schema)


def test_a_server_that_has_become_too_old_for_its_store_ends_in_order_and_says_so(
    place: Place, address: str, postgres: Cluster, witness: Witness
) -> None:
    """Its run is left to whoever comes next, and nothing of it is at work any more, by the tool's own log."""
    place.file.write_text(
        AGENTS.replace("LOG}", f"{witness.log!r}}}").replace("@tool\n", "@tool(on_pause='abort', idempotent=True)\n")
    )
    place.shell.environment |= {"CHECKREIN_STORE": address, "CHECKREIN_TOKEN": TOKEN}
    started = place.shell.start("serve", "crew.py", "--port", "0")
    started.until("Ctrl-C pauses what is at work")
    found = re.search(r"http://127\.0\.0\.1:(\d+)/enter", started.text)
    assert found is not None
    run = Client(int(found[1]), TOKEN).start("ticker")
    until(lambda: witness.lines("tick"))

    with postgres.connect() as db:
        schema = address.rpartition("=")[2]
        db.execute(f"UPDATE {schema}.version SET version = 99, least_reader = 99, least_writer = 99".encode())

    assert started.wait() == 2
    assert "error[store_too_new]: " in started.text
    assert PASSWORD not in started.text
    ticks = len(witness.lines("tick"))
    with postgres.connect() as db:
        query = f"SELECT h.status FROM {schema}.heads h JOIN {schema}.runs r ON r.key = h.run WHERE r.id = %s"
        status = db.execute(query.encode(), (run,)).fetchone()
        held = db.execute(f"SELECT run FROM {schema}.leases WHERE deadline > 0".encode()).fetchall()
    assert (status, held) == (("paused",), [])
    assert len(witness.lines("tick")) == ticks


def test_a_run_is_stopped_and_the_password_of_its_store_is_nowhere(
    place: Place, address: str, postgres: Cluster, witness: Witness
) -> None:
    """D2, W15: the witnesses are the tool's own log, the process table and the rows of the store."""
    place.file.write_text(AGENTS.replace("LOG}", f"{witness.log!r}}}"))
    listen = postgres.address(address.rpartition("=")[2]).replace("postgres@", f"postgres:{LISTEN_PASSWORD}@")
    place.shell.environment |= {
        "CHECKREIN_STORE": address,
        "CHECKREIN_LISTEN_STORE": listen,
        "CHECKREIN_TOKEN": TOKEN,
    }
    started = place.shell.start("serve", "crew.py", "--port", "0")
    started.until("Ctrl-C pauses what is at work")
    found = re.search(r"http://127\.0\.0\.1:(\d+)/enter", started.text)
    assert found is not None
    client = Client(int(found[1]), TOKEN)

    run = client.start("ticker")
    until(lambda: witness.lines("tick"))
    family = psutil.Process(started.process.pid).children(recursive=True)
    commands = [" ".join(one.cmdline()) for one in family]
    with postgres.connect() as db:
        listening = db.execute(LISTENING).fetchone()
    answer = client.verb(run, "cancel", wait=30)

    assert answer.body["status"] == "cancelled"
    ticks = len(witness.lines("tick"))
    until(lambda: client.status(run) == "cancelled")
    assert len(witness.lines("tick")) == ticks
    assert any("driver_main" in command for command in commands)
    with open(f"{witness.log}.environment") as file:
        shown = file.read()
    for what in (*commands, shown, started.text, str(client.view(run))):
        assert PASSWORD not in what
        assert LISTEN_PASSWORD not in what
    assert PASSWORD.encode() not in bytes_of(address)
    assert LISTEN_PASSWORD.encode() not in bytes_of(address)
    assert listening == (2,), "the front and its driver each listen there, and nowhere else"
    started.process.terminate()
    assert started.wait() == 0


def test_the_password_of_the_store_of_a_worker_is_nowhere(place: Place, address: str, witness: Witness) -> None:
    """D2, W15: neither among the arguments of a process, nor in the environment of a tool, nor in what is said."""
    place.file.write_text(AGENTS.replace("LOG}", f"{witness.log!r}}}"))
    place.shell.environment |= {"CHECKREIN_STORE": address, "CHECKREIN_TOKEN": TOKEN, "CHECKREIN_LOG_LEVEL": "debug"}
    front = place.shell.start("serve", "--port", "0")
    front.until("Ctrl-C")
    found = re.search(r"http://127\.0\.0\.1:(\d+)/enter", front.text)
    assert found is not None
    client = Client(int(found[1]), TOKEN)
    worker = place.shell.start("worker", "crew.py", "--name", "w1")
    worker.until("Worker w1 drives: ")

    run = client.start("ticker")
    until(lambda: witness.lines("tick"))
    family = psutil.Process(worker.process.pid).children(recursive=True)
    commands = [" ".join(one.cmdline()) for one in family]
    assert client.verb(run, "cancel", wait=30).body["status"] == "cancelled"
    worker.process.terminate()
    assert worker.wait() == 0

    assert any("driver_main" in command for command in commands)
    with open(f"{witness.log}.environment") as file:
        shown = file.read()
    for what in (*commands, shown, worker.text, front.text, str(client.view(run))):
        assert PASSWORD not in what
    front.process.terminate()
    assert front.wait() == 0
