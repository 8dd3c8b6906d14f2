"""What becomes of runs when processes of a server die, are killed, or are told to end.

The witnesses are the log that the tools write themselves, and the process table.
"""

from __future__ import annotations

import http.client
import os
import re
import signal
from collections.abc import Iterator
from typing import NamedTuple

import psutil
import pytest

from checkrein.cli.app import run as run_program
from tests.cli.shell import Done, until
from tests.server.processes.client import TOKEN
from tests.server.processes.serving import Place, Server, new_place
from tests.support.patience import PATIENCE_SECONDS
from tests.support.witness import is_alive


def wait_for(server: Server, run: str, *status: str) -> None:
    until(lambda: server.client.status(run) in status, lambda: f"it is {server.client.view(run)}")


class Calm(NamedTuple):
    """A server that no test of this file ends or disturbs."""

    place: Place
    server: Server


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Calm]:
    with new_place(tmp_path_factory.mktemp("calm")) as place:
        yield Calm(place, place.serve())


def test_agents_live_in_another_process_than_the_one_that_people_talk_to(calm: Calm) -> None:
    place, server = calm

    run = server.client.start("quick")
    wait_for(server, run, "completed")

    imported = {int(line.split()[1]) for line in place.shell.log.read_text().splitlines() if line.endswith("imported")}
    assert server.driver() in imported
    assert server.pid not in imported
    ready = {"status": "ok", "drivers": [{"number": 1, "phase": "ready", "restarts": 0}]}
    until(lambda: server.client.get("/healthz") == ready)


def test_what_the_server_was_given_to_let_people_in_is_not_shown_to_agents(calm: Calm) -> None:
    """An agent that could read the server's token could approve what it asks for."""
    place, server = calm

    environment = psutil.Process(server.driver()).environ()

    assert "CHECKREIN_TOKEN" not in environment
    assert environment["WITNESS"] == str(place.shell.log), "everything else is as it was"


def test_a_run_goes_on_after_its_driver_was_killed_and_nothing_is_done_twice(place: Place) -> None:
    """D29 D30"""
    server = place.serve()
    run = place.begun(server)
    killed = server.driver()

    os.kill(killed, signal.SIGKILL)
    wait_for(server, run, "completed")

    assert place.shell.words().count("first") == 1
    assert place.shell.words().count("second") == 1
    assert server.driver() != killed
    until(lambda: server.client.get("/healthz")["drivers"] == [{"number": 1, "phase": "ready", "restarts": 1}])
    server.started.until("Driver 1 was ended by SIGKILL. It is started again in 0.5 s.")


def test_another_driver_takes_up_what_a_killed_one_was_doing(place: Place) -> None:
    server = place.serve("--drivers", "2")
    until(lambda: len(server.drivers()) == 2)
    run = place.begun(server)
    lines = place.shell.log.read_text().splitlines()
    worker = next(int(line.split()[1]) for line in lines if line.endswith(" first"))
    killed = next(one for one in server.drivers() if any(c.pid == worker for c in psutil.Process(one).children(True)))

    os.kill(killed, signal.SIGKILL)
    wait_for(server, run, "completed")

    assert place.shell.words().count("first") == place.shell.words().count("second") == 1


def test_when_the_front_is_killed_its_drivers_pause_their_runs_and_end(place: Place) -> None:
    """D29: nothing is orphaned, and nothing is in doubt."""
    server = place.serve()
    run = place.begun(server)

    os.kill(server.pid, signal.SIGKILL)
    place.nothing_is_left()

    listed = place.shell.do("ps", "--json").json[0]
    assert (listed["run"], listed["status"], listed["resumes_itself"]) == (run, "paused", True)
    again = place.serve()
    wait_for(again, run, "completed")
    assert place.shell.words().count("first") == place.shell.words().count("second") == 1


def test_a_restart_in_mid_run_is_a_pause_that_ends_by_itself_and_a_persons_pause_stays(place: Place) -> None:
    """D29 D30: deployments."""
    server = place.serve()
    run = place.begun(server)
    held = server.client.start("talker")
    wait_for(server, held, "running")
    assert server.client.verb(held, "pause").status == 200
    reading = server.client.read(f"/api/runs/{run}/events")
    until(lambda: reading.frames)

    code = server.end()

    assert code == 0
    assert reading.wait_for_end(PATIENCE_SECONDS) == "ended", "a stream ends in order, it is not cut"
    assert [f.data["verb"] for f in reading.frames if f.event == "verb.accepted"] == ["pause"], "it was told so"
    place.nothing_is_left()
    again = place.serve()
    wait_for(again, run, "completed")
    assert again.client.status(held) == "paused"
    assert place.shell.words().count("first") == place.shell.words().count("second") == 1


def test_ctrl_c_pauses_and_a_second_one_ends_everything_now(place: Place) -> None:
    started = place.shell.terminal("serve", "crew.py", "--port", "0")
    server = Server(started)
    run = server.client.start("cruncher")
    child = place.shell.child()

    started.keys("\x03")
    started.until("Pausing what is at work")
    until(lambda: server.client.status(run) == "pausing")  # the tool is waited for, and the server still answers
    started.keys("\x03")

    assert started.wait() == 0
    place.nothing_is_left()
    assert not is_alive(child)


def test_a_server_that_ends_leaves_no_process(place: Place) -> None:
    """D4: neither driver, worker, supervisor nor what a tool has started."""
    server = place.serve("--drivers", "2")
    run = server.client.start("cruncher")
    child = place.shell.child()
    assert server.client.verb(run, "cancel", wait=30).status == 200

    assert server.end() == 0

    place.nothing_is_left()
    assert not is_alive(child)


# -- agents that cannot be loaded


def test_a_file_that_cannot_be_imported_is_said_in_a_sentence_with_its_line(place: Place) -> None:
    place.file.write_text("import os\n\nnothing = os.no_such_thing\n")

    done = place.shell.do("serve", "crew.py", "--port", "0")

    assert done.code == 2
    assert done.err.startswith("error[file_broken]: crew.py cannot be imported (line 3): AttributeError: ")
    assert done.err.count("\n") == 1


def test_a_driver_that_dies_while_it_loads_is_not_started_for_ever(place: Place) -> None:
    place.file.write_text("import os\nos._exit(7)\n")

    done = place.shell.do("serve", "crew.py", "--port", "0")

    assert (done.code, done.err) == (
        2,
        "error[driver_ended]: The driver process ended with code 7 while it loaded the agents.\n",
    )


def test_a_driver_that_is_killed_while_it_loads_is_not_the_agents_fault_until_it_happens_again_and_again(
    place: Place,
) -> None:
    """Somebody's kill -9, or the kernel's for want of memory, does not end the server."""
    here = "import os, signal; from pathlib import Path\n"
    killed = 'if len(Path("deaths").read_text()) < {}: Path("deaths").open("a").write("x"); os.kill(os.getpid(), 9)\n'
    whole = place.file.read_text()
    deaths = place.shell.folder / "deaths"
    deaths.touch()
    place.file.write_text(whole + here + killed.format(2))

    server = place.serve()

    wait_for(server, server.client.start("quick"), "completed")
    assert deaths.read_text() == "xx"
    assert server.end() == 0
    place.file.write_text(whole + here + killed.format(100))
    done = place.shell.do("serve", "crew.py", "--port", "0")
    assert (done.code, done.err.splitlines()[-1]) == (
        2,
        "error[driver_ended]: The driver process was ended by SIGKILL while it loaded the agents.",
    )


def test_a_file_that_breaks_later_leaves_the_server_up_and_is_tried_again_at_leisure(place: Place) -> None:
    """P6: verbs and page work without a single driver."""
    server = place.serve()
    run = place.begun(server)
    whole = place.file.read_text()

    place.file.write_text(whole + "\n1 / 0\n")
    os.kill(server.driver(), signal.SIGKILL)
    server.started.until("Driver 1 cannot begin: crew.py cannot be imported")

    assert server.client.get("/healthz")["status"] == "no driver"
    cancelled = server.client.verb(run, "cancel", wait=30)
    assert (cancelled.status, cancelled.body["status"]) == (200, "cancelled")
    started_over = len(re.findall("cannot begin", server.started.text))
    assert started_over == 1, "the same sentence is not said again and again"
    place.file.write_text(whole)
    until(lambda: server.client.get("/healthz")["status"] == "ok")
    wait_for(server, server.client.start("quick"), "completed")


# -- where it listens


def test_the_address_that_is_printed_lets_a_browser_in_once_and_does_not_stay_in_its_address(calm: Calm) -> None:
    server = calm.server
    path = server.link.partition(str(server.client.port))[2]

    def enter() -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", server.client.port, timeout=PATIENCE_SECONDS)
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer

    first, second = enter(), enter()

    assert (first.status, first.headers["Location"]) == (303, "/")
    assert re.search(r"HttpOnly", first.headers["Set-Cookie"])
    assert re.search(r"SameSite=Strict", first.headers["Set-Cookie"], re.IGNORECASE)
    assert second.status == 401
    assert TOKEN not in server.started.text, "the token itself is never printed"


def test_a_port_that_is_taken_is_said_with_what_would_help(calm: Calm) -> None:
    place, server = calm

    done = place.shell.do("serve", "crew.py", "--port", str(server.client.port))

    assert done.code == 2
    assert done.err.startswith(f"error[port_taken]: Port {server.client.port} of 127.0.0.1 is taken")
    assert "--port 0" in done.err


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--host", "0.0.0.0"), "exposed"),
        (("--host", "no-such-host.invalid"), "exposed"),
        (("--store", "memory:"), "usage"),
        (("--drivers", "0"), "usage"),
    ],
)
def test_what_cannot_be_served_is_refused_before_anything_begins(
    place: Place,
    arguments: tuple[str, ...],
    code: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(place.shell.folder)
    monkeypatch.setenv("CHECKREIN_TOKEN", "")
    monkeypatch.setenv("WITNESS", str(place.shell.log))

    done = Done(run_program(["serve", "crew.py", "--port", "0", *arguments]), *capsys.readouterr())

    assert (done.code, done.err.split(":")[0]) == (2, f"error[{code}]")
    assert place.shell.words() == [], "no agent was loaded"
