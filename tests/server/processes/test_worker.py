"""`checkrein worker`: drivers without a page, for fronts without agents.

The witnesses are the log that the tools write themselves, the process table, and the roster of the store.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import psutil
import pytest

from checkrein.journal import Owner, base, open_journal
from checkrein.processes.identity import this_process
from tests.cli.shell import PROGRAM, Started, until
from tests.server.processes.serving import Place, Server

STORE = "runs.db"
DRAFTER = Path(__file__).parent / "samples" / "drafter.py"
QUICK = ("--lease-seconds", "3")
FRESH_SECONDS = 3.0


class Worker:
    """One `checkrein worker`, ready."""

    def __init__(self, place: Place, *arguments: str, file: str = "crew.py") -> None:
        self.started = place.shell.start("worker", file, "--store", STORE, *arguments)
        self.started.until("drives: ")

    @property
    def pid(self) -> int:
        return self.started.process.pid

    def driver(self) -> int:
        children = psutil.Process(self.pid).children()
        (found,) = [one.pid for one in children if "driver_main" in " ".join(one.cmdline())]
        return found

    def end(self) -> int:
        self.started.process.terminate()
        return self.started.wait()


def front(place: Place, *arguments: str) -> Server:
    return Server(place.shell.start("serve", "--store", STORE, "--port", "0", *arguments))


def roster(place: Place) -> list[dict[str, Any]]:
    done = place.shell.say("workers", "--store", STORE, "--json")
    assert done.code == 0, done.err
    return done.json


def told(port: int, path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            assert json.loads(answer.read())["status"] == "ok"
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def _calls(server: Server, run: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = server.client.view(run)["calls"]
    return found


def wait_for(server: Server, run: str, *status: str) -> None:
    until(lambda: server.client.status(run) in status, lambda: f"it is {server.client.view(run)}")


# -- a front without agents


def test_a_front_without_agents_begins_runs_that_a_worker_drives_and_stops_them(place: Place) -> None:
    server = front(place)
    assert server.drivers() == []
    assert server.client.get("/healthz") == {"status": "ok", "drivers": []}
    assert server.client.get("/readyz") == {"status": "ok"}
    assert server.client.get("/api/agents") == {"agents": []}

    worker = Worker(place, "--name", "w1")
    until(lambda: "talker" in {card["name"] for card in server.client.get("/api/agents")["agents"]})
    quick, talker = server.client.start("quick"), server.client.start("talker")
    wait_for(server, quick, "completed")
    wait_for(server, talker, "running")
    receipt = server.client.verb(talker, "cancel", wait=30)

    assert (receipt.status, receipt.body["status"]) == (200, "cancelled")
    imported = {int(line.split()[1]) for line in place.shell.log.read_text().splitlines() if line.endswith("imported")}
    assert worker.driver() in imported
    assert not {server.pid, worker.pid} & imported, "neither the front nor the parent of drivers imports an agent"
    assert server.end() == 0
    assert "goes on at its workers" in server.started.text


def test_a_run_of_an_agent_that_nobody_has_is_taken_and_waits_for_a_worker(place: Place) -> None:
    server = front(place)

    answer = server.client.ask("POST", "/api/runs", {"agent": "quick", "goal": "Do it."})
    run = answer.body["id"]
    listed = place.shell.say("ps", "--store", STORE)

    assert answer.status == 201
    assert answer.body["waits_for_worker"] == "a worker with agent quick"
    assert server.client.view(run)["status"] == "queued"
    (row,) = [row for row in server.client.get("/api/runs")["runs"] if row["id"] == run]
    assert row["waits_for_worker"] == "a worker with agent quick"
    assert "a worker with agent quick" in listed.out
    Worker(place)
    wait_for(server, run, "completed")
    assert server.client.view(run)["waits_for_worker"] == ""


def test_a_run_whose_version_nobody_has_any_more_says_which_one_it_waits_for(place: Place) -> None:
    shutil.copy(DRAFTER, place.shell.folder)
    worker = Worker(place, "--name", "w1", "--version", "v2", "--lease-seconds", "1", file=DRAFTER.name)
    server = front(place)
    run = server.client.start("drafter")
    until(lambda: any(call["kind"] == "model" and call["now"] == "running" for call in _calls(server, run)[2:]))
    family = psutil.Process(worker.pid).children(recursive=True)
    for process in (psutil.Process(worker.pid), *family):
        process.kill()
    worker.started.wait()
    wanted = "a worker with agent drafter (version v2)"

    until(lambda: server.client.view(run)["waits_for_worker"] == wanted)
    answer = server.client.ask("POST", "/api/runs", {"agent": "drafter", "goal": "Do it."})
    listed = place.shell.say("ps", "--store", STORE)
    cancelling = server.client.verb(run, "cancel", wait=0.5)

    assert answer.body["waits_for_worker"] == "a worker with agent drafter"
    (row,) = [row for row in server.client.get("/api/runs")["runs"] if row["id"] == run]
    assert row["waits_for_worker"] == wanted
    assert f"{wanted}\n" in listed.out
    assert (cancelling.status, cancelling.body["waiting_for"]) == (202, wanted), "its draft is to be undone"
    Worker(place, "--version", "v3", file=DRAFTER.name)
    wait_for(server, run, "cancelled")
    assert place.shell.words().count("undrafted") == 1


def test_a_server_that_ends_is_not_ready_and_still_lives(place: Place) -> None:
    server = place.serve("--store", STORE)
    assert server.client.get("/readyz") == {"status": "ok"}
    psutil.Process(server.driver()).suspend()  # so that it takes a while

    os.kill(server.pid, signal.SIGTERM)
    until(lambda: server.client.ask("GET", "/readyz")[:2] == (503, {"status": "not ready"}))

    assert server.client.ask("GET", "/healthz").status == 200
    os.kill(server.pid, signal.SIGTERM)
    server.started.wait()


# -- the roster


def test_a_worker_is_on_the_roster_while_it_lives_and_gone_when_it_ended_in_order(place: Place) -> None:
    worker = Worker(place, "--name", "w1", "--version", "v2", "--slots", "7", *QUICK)

    (row,) = roster(place)

    assert (row["name"], row["version"], row["slots"], row["free"], row["is_seen"]) == ("w1", "v2", 7, 7, True)
    assert "quick" in row["agents"]
    assert row["pid"] == worker.driver()
    table = place.shell.say("workers", "--store", STORE)
    assert re.search(r"w1 +yes +v2 .* 7 of 7 ", table.out), table.out
    assert worker.end() == 0
    assert roster(place) == []
    assert place.shell.say("workers", "--store", STORE).err == f"No worker on the roster of sqlite:///{STORE}.\n"


def test_a_server_with_agents_is_on_the_roster_and_its_successors_too(place: Place) -> None:
    """Nobody who shares its store is told to wait for a worker that is there."""
    server, other = place.serve("--store", STORE, "--drivers", "2"), front(place)
    until(lambda: len(roster(place)) == 2)
    names = {row["name"] for row in roster(place)}

    os.kill(server.drivers()[0], signal.SIGKILL)
    until(lambda: {row["pid"] for row in roster(place)} == set(server.drivers()))
    run = other.client.start("quick")
    wait_for(other, run, "completed")

    assert {row["name"] for row in roster(place)} == names
    assert "quick" in {card["name"] for card in other.client.get("/api/agents")["agents"]}
    assert server.end() == 0
    assert roster(place) == []


def test_a_second_worker_of_a_name_is_refused_and_told_since_when_and_where(place: Place) -> None:
    Worker(place, "--name", "w1", *QUICK)

    second = place.shell.do("worker", "crew.py", "--store", STORE, "--name", "w1", *QUICK)

    assert second.code == 2
    assert re.search(r"error\[name_taken\]: There is a worker w1 already, since .* UTC on ", second.err), second.err
    assert len(roster(place)) == 1


def test_a_worker_that_was_killed_is_followed_by_one_of_its_name_at_once_and_nothing_is_done_twice(
    place: Place,
) -> None:
    worker = Worker(place, "--name", "w1", "--lease-seconds", "600")
    server = front(place)
    run = place.begun(server)
    family = psutil.Process(worker.pid).children(recursive=True)

    for process in (*family, psutil.Process(worker.pid)):
        process.kill()
    worker.started.wait()
    Worker(place, "--name", "w1", "--lease-seconds", "600")
    wait_for(server, run, "completed")

    assert place.shell.words().count("first") == 1
    assert place.shell.words().count("second") == 1
    (row,) = roster(place)
    assert row["name"] == "w1"


def test_several_drivers_of_a_worker_have_a_name_each(place: Place) -> None:
    worker = Worker(place, "--name", "w1", "--drivers", "2", *QUICK)

    until(lambda: {row["name"] for row in roster(place)} == {"w1", "w1/2"})

    assert worker.end() == 0
    assert roster(place) == []


def test_a_worker_says_when_another_of_its_version_has_another_agent_of_the_same_name(place: Place) -> None:
    Worker(place, "--name", "w1", "--version", "v2", *QUICK)
    (place.shell.folder / "other.py").write_text(
        "from checkrein import Agent\nfrom checkrein.models import ScriptedModel\n"
        "quick = Agent('quick', model=ScriptedModel(['Hi.']), goals=['Another one.'])\n"
    )

    same = Worker(place, "--name", "w2", "--version", "v2", *QUICK, file="other.py")
    later = Worker(place, "--name", "w3", "--version", "v3", *QUICK, file="other.py")

    same.started.until("Agent quick is another one at worker w1, of the same version 'v2'")
    assert "goals=('Another one.',)" in same.started.text
    assert "is another one" not in later.started.text


def test_an_operator_buries_a_worker_that_is_not_seen_and_no_other(place: Place) -> None:
    worker = Worker(place, "--name", "w1", "--lease-seconds", "1")
    refused = place.shell.say("bury", "w1", "--reason", "so I heard", "--store", STORE)
    process = psutil.Process(worker.driver())
    process.suspend()
    until(lambda: not roster(place)[0]["is_seen"])

    buried = place.shell.say("bury", "w1", "--reason", "the rack burnt", "--by", "ann", "--store", STORE)
    nobody = place.shell.say("bury", "w9", "--reason", "dead", "--store", STORE)
    process.resume()

    assert (refused.code, "error[worker_seen]" in refused.err) == (2, True), refused
    assert buried.out == "Worker w1 is buried: dead, says ann (the rack burnt).\n"
    assert "error[worker_not_found]" in nobody.err
    assert worker.started.wait() == 2, "it may not drive any more"
    assert "error[worker_buried]: ann has said that worker w1 is dead (the rack burnt)" in worker.started.text


# -- ending


def test_sigterm_hands_runs_over_and_another_worker_goes_on(place: Place) -> None:
    one = Worker(place, "--name", "w1")
    server = front(place)
    run = place.begun(server)
    Worker(place, "--name", "w2")

    assert one.end() == 0

    wait_for(server, run, "completed")
    assert place.shell.words().count("first") == 1
    assert place.shell.words().count("second") == 1


def test_a_driver_of_a_worker_that_does_not_answer_a_stop_is_killed_and_another_takes_its_place(place: Place) -> None:
    worker = Worker(place, "--name", "w1")
    server = front(place)
    run = server.client.start("napper")
    place.shell.saw("wedged")
    wedged = worker.driver()

    server.client.verb(run, "cancel", wait=60)

    wait_for(server, run, "cancelled")
    until(lambda: worker.driver() != wedged)
    assert "woke" not in place.shell.words()


# -- health


def test_the_health_file_is_touched_while_all_is_well_and_gone_at_the_end(place: Place) -> None:
    file = place.shell.folder / "health"
    worker = Worker(place, "--health-file", str(file))
    until(file.exists)

    before = file.stat().st_mtime
    until(lambda: file.stat().st_mtime > before)
    process = psutil.Process(worker.driver())
    process.suspend()
    until(lambda: _stands_still(file))
    process.resume()
    before = file.stat().st_mtime
    until(lambda: file.stat().st_mtime > before)

    assert worker.end() == 0
    assert not file.exists()


def _stands_still(file: Path) -> bool:
    return bool(time.time() - file.stat().st_mtime > FRESH_SECONDS)


def test_the_health_port_says_that_it_lives_and_whether_it_is_ready(place: Place) -> None:
    port = _free_port()
    worker = Worker(place, "--health-port", str(port))

    assert (told(port, "/healthz"), told(port, "/readyz")) == (200, 200)
    assert told(port, "/other") == 404
    process = psutil.Process(worker.driver())
    process.suspend()
    until(lambda: told(port, "/readyz") == 503)
    assert told(port, "/healthz") == 200
    process.resume()
    until(lambda: told(port, "/readyz") == 200)
    assert worker.end() == 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# -- bad input


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("crew.py", "--store", "memory:"), "error[usage]: memory: is the journal of one process"),
        (("crew.py", "--slots", "0"), "'0' is not a whole number from 1 to 100000"),
        (("crew.py", "--engine", "cron"), "'cron' is not "),
        (("crew.py", "--name", "a/b"), "use letters, digits, dots, dashes and underlines"),
        (("crew.py", "--health-file", "f", "--health-port", "1"), "Say either --health-file or --health-port."),
        (("gone.py",), "gone.py"),
        ((), "FILE"),
        (("crew.py", "--health-file", "."), "is no plain file"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_sentence(place: Place, arguments: tuple[str, ...], said: str) -> None:
    refused = place.shell.say("worker", *arguments)

    assert refused.code == 2
    assert said in refused.err, refused.err
    assert [line for line in refused.err.splitlines() if line.startswith("error[")] == refused.err.splitlines()[-1:]


@pytest.mark.parametrize(
    ("host", "boot_id", "is_refused"),
    [
        ("elsewhere", "another boot", True),
        ("this one", "another boot", False),  # before it was restarted
        ("elsewhere", "this one", False),  # a container on the same machine
    ],
)
def test_a_file_that_a_worker_on_another_machine_shares_is_refused(
    place: Place, host: str, boot_id: str, is_refused: bool
) -> None:
    here = this_process()
    owner = Owner(
        process="another",
        host=here.host if host == "this one" else host,
        boot_id=here.boot_id if boot_id == "this one" else boot_id,
        pid=1,
    )

    async def enlist() -> None:
        async with await open_journal(str(place.shell.folder / STORE)) as journal:
            await journal.enlist(base.Worker(name="other", owner=owner, agents=("talker",)), seconds=600)

    asyncio.run(enlist())
    worker = place.shell.start("worker", "crew.py", "--store", STORE)

    if is_refused:
        assert worker.wait() == 2
        assert "error[store_on_several_hosts]: " in worker.text
        assert "worker other on elsewhere shares it" in worker.text
    else:
        worker.until("drives: ")


def test_two_agents_of_one_name_in_two_files_are_refused(place: Place) -> None:
    (place.shell.folder / "twin.py").write_text(
        "from checkrein import Agent\nfrom checkrein.models import ScriptedModel\n"
        "quick = Agent('quick', model=ScriptedModel(['Hi.']))\n"
    )

    refused = place.shell.do("worker", "crew.py", "twin.py", "--store", STORE)

    assert refused.code == 2
    assert "There are two agents with the name quick, one of them in twin.py" in refused.err


def test_a_server_without_agents_names_the_store_that_it_shares(place: Place) -> None:
    refused = place.shell.say("serve")

    assert refused.code == 2
    assert "Name a FILE with agents, or, where workers drive their runs, the store that they share" in refused.err


# -- in a container


def test_as_the_first_process_of_a_pid_namespace_it_heeds_sigterm_and_reaps_orphans(place: Place) -> None:
    unshare = ["unshare", "--fork", "--pid", "--uts", "--mount-proc", "--kill-child"]
    if subprocess.run([*unshare, "true"], capture_output=True).returncode:
        pytest.skip("This system lets nobody make a pid namespace here.")
    orphan = "import os, subprocess; subprocess.Popen(['sleep', '2']); os._exit(0)"
    command = [*unshare, *PROGRAM, "worker", "crew.py", "--store", STORE, "--name", "w1"]
    process = subprocess.Popen(
        command,
        cwd=place.shell.folder,
        env=place.shell.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout is not None
    started = Started(process, os.dup(process.stdout.fileno()))
    process.stdout.close()
    try:
        started.until("drives: ")
        (first,) = psutil.Process(process.pid).children()
        enter = ["nsenter", "--target", str(first.pid), "--pid", "--mount"]
        subprocess.run([*enter, sys.executable, "-c", orphan], check=True, timeout=60)
        until(lambda: "sleep" in [one.name() for one in first.children()])
        until(lambda: "sleep" not in [one.name() for one in first.children()])  # nor as a zombie

        first.terminate()
        assert started.wait() == 0
    finally:
        started.close()
    assert roster(place) == []


# -- on several hosts


@pytest.fixture
def address(postgres_store: str) -> str:
    return postgres_store


def test_a_worker_and_a_front_share_a_store_in_postgresql(place: Place, address: str) -> None:
    place.shell.environment["CHECKREIN_STORE"] = address
    server = Server(place.shell.start("serve", "--port", "0"))
    run = server.client.start("quick")
    worker = place.shell.start("worker", "crew.py", "--name", "w1")
    worker.until("Worker w1 drives: ")

    wait_for(server, run, "completed")

    assert "is a file" not in worker.text
    (row,) = place.shell.say("workers", "--json").json
    assert (row["name"], row["is_seen"]) == ("w1", True)
    worker.process.terminate()
    assert worker.wait() == 0
    assert place.shell.say("workers", "--json").json == []
