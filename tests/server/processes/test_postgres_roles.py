"""`checkrein serve` for a user of the database who may drive runs and take verbs, and may not halt."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from checkrein.journal.postgres import schema
from tests.cli.shell import until
from tests.server.processes.serving import Place
from tests.server.processes.test_postgres import AGENTS
from tests.support.postgres import Cluster
from tests.support.witness import Witness


@pytest.fixture
def address(postgres: Cluster) -> Iterator[str]:
    name = postgres.new_schema()
    schema.init(postgres.address(name))
    schema.make_roles(postgres.address(name))
    yield postgres.address(name, postgres.login(name, "worker", "front"))
    postgres.drop(name)


def test_a_run_is_cancelled_and_a_halt_is_refused_with_the_role_that_it_takes(
    place: Place, address: str, witness: Witness
) -> None:
    place.file.write_text(AGENTS.replace("LOG}", f"{witness.log!r}}}"))
    place.shell.environment["CHECKREIN_STORE"] = address
    server = place.serve()
    client = server.client
    run = client.start("ticker")
    until(lambda: witness.lines("tick"))

    halt = client.ask("POST", "/api/halt", {"scope": "all", "reason": "runaway"})
    ticks = len(witness.lines("tick"))
    until(lambda: len(witness.lines("tick")) > ticks)  # it works on
    answer = client.verb(run, "cancel", wait=30)

    assert halt.status == 403
    assert halt.body["code"] == "store_forbidden"
    assert "_operator TO " in halt.body["message"]
    assert answer.body["status"] == "cancelled"
    ticks = len(witness.lines("tick"))
    until(lambda: client.status(run) == "cancelled")
    assert len(witness.lines("tick")) == ticks
    assert "Traceback" not in server.started.text
