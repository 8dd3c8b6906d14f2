"""`checkrein demo`: a page with something on it to stop."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from checkrein.cli import output
from checkrein.cli.app import run as run_program
from checkrein.cli.commands.operate.serve import has_browser, open_browser
from tests.cli.shell import Done, until
from tests.server.processes.client import TOKEN
from tests.server.processes.serving import Place, Server
from tests.support.patience import PATIENCE_SECONDS


def test_the_demo_is_a_page_on_which_a_run_can_be_started_and_cancelled(place: Place) -> None:
    """D1 D27 D33"""
    server = Server(place.shell.start("demo", "--fast", "--port", "0"))
    (card,) = server.client.get("/api/agents")["agents"]

    done = server.client.start(card["name"], "Which customers will churn?")
    until(lambda: server.client.status(done) == "completed", lambda: f"{server.client.view(done)}")
    stopped = server.client.start(card["name"], "Which customers will churn?")
    until(lambda: any(call["name"] == "score_churn" for call in server.client.view(stopped)["calls"]))
    receipt = server.client.verb(stopped, "cancel", wait=30)

    assert (card["name"], receipt.status, receipt.body["status"]) == ("churn", 200, "cancelled")
    assert [effect["now"] for effect in receipt.body["effects"]] == ["undone", "undone"], "the draft and the lock"
    assert server.end() == 0
    place.nothing_is_left()


def test_its_folder_is_gone_with_it_unless_one_was_named(place: Place) -> None:
    server = Server(
        place.shell.start("demo", "--fast", "--port", "0", "--folder", "mine", TMPDIR=str(place.shell.folder))
    )
    server.end()
    assert (place.shell.folder / "mine" / "runs.db").exists()

    server = Server(place.shell.start("demo", "--fast", "--port", "0", TMPDIR=str(place.shell.folder)))
    assert list(place.shell.folder.glob("checkrein-demo-*/runs.db"))
    server.end()

    assert not list(place.shell.folder.glob("checkrein-demo-*"))


def test_where_the_port_of_the_page_is_taken_the_demo_finds_another(place: Place) -> None:
    taken = Server(place.shell.start("demo", "--fast"))

    beside = Server(place.shell.start("demo", "--fast"))

    assert taken.client.port != beside.client.port
    until(lambda: beside.client.get("/healthz")["status"] == "ok")


@pytest.mark.parametrize(
    ("variables", "is_terminal", "has_one"),
    [
        ({"DISPLAY": ":0"}, True, True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, True, True),
        ({"BROWSER": "firefox"}, True, True),
        ({}, True, False),
        ({"DISPLAY": ":0", "CI": "true"}, True, False),
        ({"DISPLAY": ":0"}, False, False),
    ],
)
def test_a_browser_is_opened_only_where_somebody_would_see_it(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], is_terminal: bool, has_one: bool
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER", "CI"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(output, "is_terminal", lambda: is_terminal)
    monkeypatch.setattr("sys.platform", "linux")

    assert has_browser() is has_one


def test_a_browser_that_does_not_start_disturbs_nobody() -> None:
    shown: list[str] = []
    tried = threading.Event()

    def broken(link: str) -> None:
        shown.append(link)
        tried.set()
        raise OSError("no such browser")

    open_browser("http://127.0.0.1:8420/", broken)

    assert tried.wait(PATIENCE_SECONDS)
    assert shown == ["http://127.0.0.1:8420/"]


def test_the_terminal_is_still_there_for_those_who_want_it(place: Place) -> None:
    demo = place.shell.start("demo", "--fast", "--terminal", "--folder", str(Path("here")))

    assert demo.wait() == 0
    assert "memo.md" in demo.text


@pytest.mark.parametrize(
    ("command", "code", "remedy"),
    [
        (("serve", "crew.py", "--store", "sqlite:////sys/checkrein/runs.db"), "store_not_writable", "choose another"),
        (("demo", "--folder", "/sys/checkrein"), "folder_not_writable", "Name another one with --folder"),
    ],
)
def test_a_place_that_may_not_be_written_is_said_in_one_sentence(
    place: Place,
    command: tuple[str, ...],
    code: str,
    remedy: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(place.shell.folder)
    monkeypatch.setenv("CHECKREIN_TOKEN", TOKEN)

    refused = Done(run_program([*command, "--port", "0"]), *capsys.readouterr())

    assert refused.code == 2, refused
    assert refused.err.startswith(f"error[{code}]: ")
    assert "/sys/checkrein" in refused.err
    assert remedy in refused.err
