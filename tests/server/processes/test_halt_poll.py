"""A halt in PostgreSQL, put up elsewhere: the front finds it, and a driver stuck in C is ended."""

from __future__ import annotations

import asyncio
import time

from checkrein.journal import open_journal
from checkrein.journal.base import Fence, Scope
from checkrein.timings import DRIVER_SILENT_SECONDS
from tests.cli.shell import until
from tests.server.processes.serving import Place
from tests.support.postgres import Cluster
from tests.support.witness import is_alive

AGENTS = """
import ctypes
from pathlib import Path

from checkrein import Agent, tool
from checkrein.models import ScriptedModel, Turn

LOG = Path(__file__).with_name("stuck.log")


@tool(effect="none")
async def stuck() -> str:
    "Keeps the interpreter."
    LOG.write_text("in C")
    ctypes.PyDLL(None).sleep(600)
    LOG.write_text("woke")
    return "done"


keeper = Agent("keeper", model=ScriptedModel([Turn("Go.", calls=[("stuck", {})]), "Done."]), tools=[stuck])
"""


def test_a_driver_stuck_in_c_is_ended_by_a_fence_in_postgresql_that_nobody_told_it_of(
    place: Place, postgres: Cluster
) -> None:
    """D16, D35: only the fence is written; no run is ended and no process is signalled by whoever halts."""
    schema = postgres.new_schema()
    place.file.write_text(AGENTS)
    place.shell.environment["CHECKREIN_STORE"] = postgres.address(schema)
    server = place.serve("--drivers", "1")
    driver, log = server.driver(), place.shell.folder / "stuck.log"
    server.client.start("keeper")
    until(lambda: log.exists() and log.read_text() == "in C")

    async def fence() -> None:
        async with await open_journal(postgres.address(schema)) as journal:
            await journal.fence(Fence(scope=Scope.ALL, by="op", at=time.time()))

    began = time.monotonic()
    asyncio.run(fence())
    until(lambda: not is_alive(driver))
    seconds = time.monotonic() - began

    # Without a halt the front ends a silent driver too, but far later.
    assert seconds < DRIVER_SILENT_SECONDS / 2
    assert log.read_text() == "in C"
    server.started.process.kill()
    server.started.wait()
    postgres.drop(schema)
