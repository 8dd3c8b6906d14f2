"""An agent that blocks its process delays neither a verb nor anybody else, and is ended when a stop waits for it."""

from __future__ import annotations

import os
import signal
import time

import pytest

from checkrein.timings import WATCHDOG_GRACE_SECONDS as GRACE_SECONDS
from tests.cli.shell import until
from tests.server.processes.serving import Place
from tests.support.patience import within
from tests.support.witness import is_alive

TOOLS = {"napper": "nap", "hogger": "hog", "freezer": "freeze"}


@pytest.mark.parametrize("kind", TOOLS)
def test_a_wedged_driver_keeps_nobody_from_stopping_it_and_its_other_runs_go_on(place: Place, kind: str) -> None:
    """D2 D16: `time.sleep` in an async tool, code in C that keeps the interpreter, a process that stands still."""
    server = place.serve()
    beside = place.begun(server)
    run = server.client.start(kind)
    place.shell.saw("wedged")
    wedged = server.driver()
    if kind == "freezer":
        os.kill(wedged, signal.SIGSTOP)
    reading = server.client.read(f"/api/runs/{run}/live")

    accepted = server.client.verb(run, "cancel", wait=0)
    accepted_at = time.monotonic()

    assert (accepted.status, accepted.body["status"]) == (202, "cancelling")
    assert accepted.seconds < within(3)
    until(lambda: not is_alive(wedged))
    assert time.monotonic() - accepted_at < within(GRACE_SECONDS + 1)
    until(lambda: any(f.event == "view" and f.data.get("status") == "cancelling" for f in reading.frames))
    assert server.client.ask("GET", "/").seconds < within(3)
    until(lambda: server.client.status(run) == "cancelled", lambda: f"{server.client.view(run)}")
    until(lambda: server.client.status(beside) == "completed", lambda: f"{server.client.view(beside)}")
    (receipt,) = server.client.view(run)["receipts"]
    assert [(call["name"], call["now"]) for call in receipt["calls"]] == [
        ({"napper": "nap", "hogger": "hog"}.get(kind, "freeze"), "in_doubt")
    ]
    words = place.shell.words()
    assert [words.count(word) for word in ("wedged", "woke", "first", "second")] == [1, 0, 1, 1]
    assert server.driver() != wedged
    server.started.until("gave no heartbeat while a stop waited for it")
    reading.close()


def test_a_halt_ends_a_wedged_driver_too(place: Place) -> None:
    """D35: the kill switch does not wait for anybody, and what was halted does not go on anywhere."""
    server = place.serve()
    run = server.client.start("hogger")
    place.shell.saw("wedged")
    wedged = server.driver()

    halted = server.client.ask("POST", "/api/halt", {"scope": "run", "name": run, "reason": "runaway", "wait": 0})

    assert (halted.status, server.client.status(run)) == (200, "killed")
    until(lambda: not is_alive(wedged))
    until(lambda: server.client.get("/healthz")["status"] == "ok")
    assert place.shell.words().count("wedged") == 1


def test_a_driver_that_is_busy_is_left_alone_for_a_while_when_nobody_asks_anything_of_it(place: Place) -> None:
    """A process that is blocked for seconds is the agent's business, until somebody wants it to stop.

    Its server says that it is not ready. For how long it may stay so: `test_silence.py`.
    """
    server = place.serve()
    server.client.start("hogger")
    place.shell.saw("wedged")
    wedged = server.driver()

    other = server.client.start("quick")
    until(lambda: server.client.status(other) == "queued")
    paused = server.client.verb(other, "pause", wait=10)

    assert (paused.status, paused.body["status"]) == (200, "paused"), "nobody drives it yet, so it needs no driver"
    until(lambda: server.client.get("/healthz")["drivers"] == [{"number": 1, "phase": "silent", "restarts": 0}])
    assert server.client.get("/healthz")["status"] == "no driver"
    assert server.driver() == wedged
    os.kill(server.pid, signal.SIGKILL)
    place.nothing_is_left()
