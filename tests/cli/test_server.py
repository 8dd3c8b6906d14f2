"""A server from the command line: its runs are steered with --server, and its agents are loaded again with --reload."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from checkrein.cli import output
from checkrein.cli.app import run as run_program
from tests.cli.shell import Done, Shell, Started, until

TOKEN = "ckr_" + "t" * 43

AGENTS = '''
import time
from checkrein import Agent, tool
from checkrein.models import ScriptedModel, Turn
from words import WORD

@tool(effect="none", on_pause="hold")
def wait_long() -> str:
    """Wait until somebody stops it."""
    for _ in range(6000):
        time.sleep(0.05)
    return "waited"

@tool(effect="irreversible")
def post(to: str) -> str:
    """Post something."""
    return f"posted to {to}"

def answer(request):
    return WORD

speaker = Agent("speaker", model=ScriptedModel(answer), loops=False)
waiter = Agent(
    "waiter", model=ScriptedModel([Turn("I wait.", calls=[("wait_long", {})]), "Waited."]), tools=[wait_long]
)
poster = Agent(
    "poster", model=ScriptedModel([Turn("I post.", calls=[("post", {"to": "ann"})]), "Posted."]), tools=[post]
)
talk = " ".join(f"word{n}" for n in range(100_000))
talker = Agent("talker", model=ScriptedModel(lambda request: talk, tokens_per_second=20), loops=False)
'''


class Served(NamedTuple):
    server: Started
    url: str
    folder: Path


class Client:
    """The command line in this process, in a folder that knows nothing but the server."""

    def __init__(self, served: Served, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.server, self.folder, self.files = served.server, folder, served.folder
        self._capsys = capsys

    def do(self, *arguments: str) -> Done:
        return Done(run_program(list(arguments)), *self._capsys.readouterr())

    def start(self, agent: str) -> str:
        started = self.do("start", agent, "Do it.")
        assert started.code == 0, started.err
        return started.out.strip()

    def status(self, run: str) -> str:
        rows = self.do("ps", "--all", "--json").json
        return next(f"{row['status']}{', needs you' * bool(row['waiting'])}" for row in rows if row["run"] == run)

    def shows(self, run: str, status: str) -> None:
        until(lambda: self.status(run) == status, lambda: f"{run} is {self.status(run)}:\n{self.server.text}")

    def said(self) -> str:
        """What the agent `speaker` says now."""
        result = self.do("start", "speaker", "Say.", "--watch", "--json").json[-1]["result"]
        assert isinstance(result, str)
        return result


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    here = Shell(tmp_path_factory.mktemp("server"))
    (here.folder / "crew.py").write_text(AGENTS)
    (here.folder / "words.py").write_text('WORD = "old"\n')
    server = here.start("serve", "crew.py", "--port", "0", "--reload", CHECKREIN_TOKEN=TOKEN)
    server.until("Ctrl-C pauses what is at work")
    url = re.search(r"http://127\.0\.0\.1:\d+", server.text)
    assert url is not None
    yield Served(server, url[0], here.folder)
    here.close()


@pytest.fixture
def client(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Client:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(output, "_options", [])
    monkeypatch.setenv("CHECKREIN_SERVER", served.url)
    monkeypatch.setenv("CHECKREIN_TOKEN", TOKEN)
    monkeypatch.delenv("CHECKREIN_STORE", raising=False)
    return Client(served, tmp_path, capsys)


def test_a_run_of_a_server_is_started_listed_steered_and_watched(client: Client) -> None:
    run = client.start("waiter")
    client.shows(run, "running")

    paused = client.do("pause", run)
    again = client.do("resume", "go on", "--json")
    cancelled = client.do("stop", run, "--reason", "enough")
    shown = client.do("show", run)

    assert paused.lines[0].startswith("Paused."), paused.err
    assert again.json[0]["status"] == "running", again.err
    assert cancelled.lines[0].startswith("Cancelled."), cancelled.err
    assert shown.code == 3
    assert f"run        {run}, agent waiter: Do it." in shown.out
    assert "by operator: go on" in shown.out
    assert "(enough)" in shown.out
    assert not (client.folder / ".checkrein").exists(), "no store was touched here"


def test_a_run_of_a_server_is_forked_after_a_finished_step(client: Client) -> None:
    run = client.start("poster")
    client.shows(run, "running, needs you")
    too_early = client.do("fork", run, "--at", "1")
    client.do("approve", run, "post")
    client.shows(run, "completed")

    forked = client.do("fork", run, "--at", "1", "say it again", "--json")
    missing = client.do("fork", run, "--at", "9")
    wrong = client.do("fork", run, "--at", "none")

    assert (too_early.code, missing.code) == (2, 2), (too_early.err, missing.err)
    assert "Step 1" in too_early.err
    assert "is not finished" in too_early.err
    assert "has no step 9: its steps are 1 to 1" in missing.err
    assert wrong.code == 2
    (made,) = forked.json
    assert made["forked_from"]["run"] == run
    assert made["forked_from"]["instruction"] == "say it again"
    client.shows(made["run"], "completed")


def test_consent_is_given_over_a_server_by_the_name_of_the_call(client: Client) -> None:
    run = client.start("poster")
    client.shows(run, "running, needs you")

    unnamed = client.do("approve", run)
    approved = client.do("approve", "post")

    assert "error[call_not_named]" in unnamed.err
    assert approved.lines == [f"Approved post (call c2 of run {run}).", "  to: ann"], approved.err
    client.shows(run, "completed")
    finished = client.do("redirect", run, "once more")
    assert (
        f"error[finished]: Run {run} completed: there is nothing left to redirect. To go on from it: " in finished.err
    )
    assert f'checkrein start AGENT "…" --continue {run}' in finished.err


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("pause", "r-nope"), "run_not_found"),
        (("start", "nobody", "Do it."), "unknown_agent"),
        (("ps", "--token", "ckr_wrong"), "unauthorised"),
        (("ps", "--server", "http://127.0.0.1:1"), "server_unavailable"),
        (("ps", "--server", "ftp://x"), "server_address"),
        (("ps", "--server", "http://127.0.0.1:1", "--store", "x.db"), "usage"),
        (("ps", "--store", "x.db"), "store_not_found"),
    ],
)
def test_what_a_server_refuses_is_one_sentence_with_its_code(
    client: Client, arguments: tuple[str, ...], code: str
) -> None:
    done = client.do(*arguments)

    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"error[{code}]: "), done.err
    assert done.err.count("\n") == 1
    assert ("CHECKREIN_TOKEN" in done.err) is (code == "unauthorised")


def test_without_a_server_nothing_is_started(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CHECKREIN_SERVER")

    done = client.do("start", "speaker", "Do it.")

    assert done.err.startswith("error[no_server]: Say on which server")


def test_changed_code_is_taken_up_and_broken_code_is_not(client: Client) -> None:
    """The run at work goes on; new runs have the new code; what cannot be loaded is said and changes nothing."""
    words = client.files / "words.py"
    at_work = client.start("talker")
    client.shows(at_work, "running")
    assert client.said() == "old"

    words.write_text('WORD = "new and other"\n')
    client.server.until("words.py has changed: what is at work is paused, and goes on with the new code.")
    client.server.until("Driver 1 is at work again.")

    assert client.said() == "new and other"
    client.shows(at_work, "running")

    words.write_text("WORD = (\n")
    client.server.until("words.py has changed and cannot be loaded, so the old code goes on.")
    client.server.until("words.py, line 1: '(' was never closed.")

    assert client.said() == "new and other"
    assert client.server.text.count("is at work again") == 1
    assert client.do("cancel", at_work).lines[0].startswith("Cancelled.")
