"""The front serves before any driver is ready, and goes on without one: a verb needs none."""

from __future__ import annotations

import os
import signal
import threading

import psutil

from tests.cli.shell import until
from tests.server.processes.client import Answer, Client
from tests.server.processes.serving import Place, Server
from tests.support.patience import PATIENCE_SECONDS

SLOWLY = """
import os, time
from pathlib import Path
while not Path("load").exists():
    time.sleep(0.02)
"""
DEADLY = """
import os
from typing import Any
from checkrein import agent

@agent
async def deadly(ctx: Any, goal: str) -> Any:
    note("died")
    os._exit(4)
"""


def listening(place: Place) -> Client:
    """A client of a server whose drivers do not begin yet, so that it has printed nothing."""
    started = place.shell.start("serve", "crew.py", "--port", "0")
    until(lambda: (place.shell.folder / ".checkrein").exists())
    port: list[int] = []

    def found() -> bool:
        port[:] = ports_of(started.process.pid)
        return bool(port)

    until(found)
    return Client(port[0])


def ports_of(pid: int) -> list[int]:
    try:
        return [one.laddr.port for one in psutil.Process(pid).net_connections() if one.status == psutil.CONN_LISTEN]
    except psutil.Error:
        return []


def test_pages_and_verbs_are_served_while_the_agents_are_still_being_loaded(place: Place) -> None:
    """P6: and a run that is asked for meanwhile is begun as soon as its agent is known."""
    server = place.serve()
    run = server.client.start("talker")
    until(lambda: server.client.status(run) == "running")
    assert server.end() == 0
    place.file.write_text(place.file.read_text() + SLOWLY)
    imported = place.shell.words().count("imported")
    client = listening(place)

    assert client.ask("GET", "/").status == 200
    assert client.get("/healthz") == {
        "status": "no driver",
        "drivers": [{"number": 1, "phase": "starting", "restarts": 0}],
    }
    cancelled = client.verb(run, "cancel", wait=30)
    assert (cancelled.status, cancelled.body["status"]) == (200, "cancelled")
    started: list[Answer] = []
    asking = threading.Thread(
        target=lambda: started.append(client.ask("POST", "/api/runs", {"agent": "quick", "goal": "x"}))
    )
    asking.start()
    assert place.shell.words().count("imported") == imported, "nobody has loaded the agents yet"
    (place.shell.folder / "load").touch()
    asking.join(PATIENCE_SECONDS)
    assert [answer.status for answer in started] == [201]
    until(lambda: client.status(started[0].body["id"]) == "completed")


def test_a_run_in_whose_hands_every_driver_dies_keeps_nobody_from_stopping_it(place: Place) -> None:
    """S1 S18: neither while it is so, nor after a restart of the whole server."""
    place.file.write_text(place.file.read_text() + DEADLY)
    server = place.serve()
    run = server.client.start("deadly")
    until(lambda: server.client.get("/healthz")["drivers"][0]["restarts"] >= 2)
    os.kill(server.pid, signal.SIGKILL)
    place.nothing_is_left()

    again = Server(place.shell.start("serve", "crew.py", "--port", "0"))

    assert again.client.ask("GET", "/").status == 200
    accepted = again.client.verb(run, "cancel", wait=0)
    assert accepted.status in (200, 202)
    until(lambda: again.client.status(run) == "cancelled", lambda: f"{again.client.view(run)}")
    until(lambda: again.client.get("/healthz")["status"] == "ok")
    beside = again.client.start("quick")
    until(lambda: again.client.status(beside) == "completed")
