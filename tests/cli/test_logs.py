"""The log of real processes: on pipes, at a terminal with a full screen, and from the drivers of a server."""

from __future__ import annotations

import json

import pytest

from checkrein.cli.app import run as run_program
from tests.cli.shell import Done, Shell

LEAVES_THE_SCREEN = "\x1b[?1049l"
ENTERS_THE_SCREEN = "\x1b[?1049h"

AGENT = """
import logging, os, sys
from checkrein import agent

logging.basicConfig(level=logging.INFO, format="of the author: %(message)s", stream=sys.stderr)
log = logging.getLogger("checkrein.sample")
log.info("the file is loaded")

@agent
async def chatty(ctx, goal):
    log.debug("all of it")
    log.info("begun with %s", os.environ["SAMPLE_API_KEY"], extra={"run": ctx.run, "epoch": 1})
    log.warning("careful \\x1b[2J", extra={"run": ctx.run})
    logging.getLogger("mine").info("a word of my own")
    return "done"
"""
KEY = "wren-52-otter-lantern"


@pytest.fixture
def chatty(shell: Shell) -> Shell:
    (shell.folder / "chatty.py").write_text(AGENT)
    shell.environment["SAMPLE_API_KEY"] = KEY
    return shell


def logged(text: str) -> list[dict[str, object]]:
    """The lines that are objects of the sample's own logger."""
    found = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return [one for one in found if one.get("logger") == "checkrein.sample"]


def test_without_a_word_about_it_only_warnings_are_logged_and_the_author_keeps_their_own_log(chatty: Shell) -> None:
    done = chatty.do("run", "chatty.py", "Talk.", "--plain")

    assert done.code == 0, done.err
    (line,) = [line for line in done.err.splitlines() if "checkrein.sample" in line]
    assert " WARNING [" in line
    assert line.endswith(": careful \\x1b[2J")
    assert "of the author: a word of my own" in done.out
    assert "of the author: careful" not in done.out + done.err


def test_json_on_standard_error_says_which_run_and_holds_no_secret(chatty: Shell) -> None:
    done = chatty.do("run", "chatty.py", "Talk.", "--json", "--log-level", "info", "--log-format", "json")

    assert done.code == 0, done.err
    loaded, begun, careful = logged(done.err)
    assert (loaded["message"], loaded["level"]) == ("the file is loaded", "info")
    assert str(begun["message"]).startswith("begun with ")
    assert begun["run"] == careful["run"] == done.json[-1]["run"]
    assert begun["epoch"] == 1
    assert KEY not in done.out + done.err


def test_the_environment_says_it_as_well_and_an_option_has_the_last_word(chatty: Shell) -> None:
    variables = {"CHECKREIN_LOG_LEVEL": "DEBUG", "CHECKREIN_LOG_FORMAT": "json"}

    by_variable = chatty.do("run", "chatty.py", "Talk.", "--plain", **variables)
    by_option = chatty.do("run", "chatty.py", "Talk.", "--plain", "--log-level", "error", **variables)

    assert "all of it" in [one["message"] for one in logged(by_variable.err)]
    assert logged(by_option.err) == []


@pytest.mark.parametrize("command", [("run", "chatty.py", "Talk."), ("serve", "chatty.py"), ("demo",), ("watch",)])
@pytest.mark.parametrize(
    ("option", "value", "allowed"),
    [("--log-level", "loud", "'debug', 'info', 'warning', 'error'"), ("--log-format", "xml", "'text', 'json'")],
)
def test_a_level_or_format_that_there_is_none_of_is_refused_with_those_there_are(
    chatty: Shell,
    command: tuple[str, ...],
    option: str,
    value: str,
    allowed: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(chatty.folder)

    refused = Done(run_program([*command, option, value]), *capsys.readouterr())

    variable = f"CHECKREIN{option[1:].replace('-', '_').upper()}"
    sentence = f"Invalid value for '{option}' (env var: '{variable}'): '{value}' is not one of {allowed}; see --help."
    assert (refused.code, refused.out, refused.err) == (2, "", f"error[usage]: {sentence}\n")


def test_a_wrong_variable_is_refused_by_every_command(shell: Shell) -> None:
    refused = shell.say("ps", CHECKREIN_LOG_LEVEL="loud")

    sentence = "CHECKREIN_LOG_LEVEL is 'loud'; it may be one of debug, info, warning, error."
    assert (refused.code, refused.err) == (2, f"error[usage]: {sentence}\n")


def test_a_full_screen_is_not_torn_by_the_log_which_follows_it(chatty: Shell) -> None:
    """The witness is what the terminal was sent."""
    run = chatty.terminal("run", "chatty.py", "Talk.", "--log-level", "info")
    run.until("Completed")
    run.keys("q")

    assert run.wait() == 0
    before, screen, after = run.text.partition(ENTERS_THE_SCREEN)[0], *_screen(run.text)
    assert "checkrein.sample: the file is loaded" in before
    assert "careful" not in screen
    assert ": careful \\x1b[2J" in after


def _screen(text: str) -> tuple[str, str]:
    """What was sent while the screen was shown, and what after it."""
    shown, _, after = text.partition(ENTERS_THE_SCREEN)[2].rpartition(LEAVES_THE_SCREEN)
    assert shown, text
    return shown, after


def test_the_drivers_of_a_server_log_as_the_server_was_told(chatty: Shell) -> None:
    server = chatty.start("serve", "chatty.py", "--port", "0", "--log-level", "info", "--log-format", "json")
    server.until("Ctrl-C pauses what is at work")
    server.until("the file is loaded")
    server.process.terminate()
    assert server.wait() == 0

    loaded = logged(server.text)[0]
    assert (loaded["message"], loaded["level"]) == ("the file is loaded", "info")
    assert loaded["process"] != server.process.pid, "another process says so"
