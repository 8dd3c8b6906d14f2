"""The program as a newcomer meets it: help, a first file, the doctor, the demo, how quickly it starts, what is written
about it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from checkrein.cli.app import COMMANDS, _name, app
from tests.cli.shell import SAMPLE, Shell

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "command-line.md"


def test_without_arguments_it_explains_itself(shell: Shell) -> None:
    done = shell.do()

    assert done.code == 0
    for head in ("Begin:", "Look:", "Steer:", "Answer:"):
        assert head in done.out
    assert shell.do("--version").out.startswith("checkrein 0.")


def test_a_new_file_runs_as_it_is_and_a_cancel_takes_its_letter_back(shell: Shell) -> None:
    """D1 D5 D33: what a newcomer does first."""
    written = shell.do("new", "first.py")
    assert written.code == 0
    assert 'checkrein run first.py "' in written.out
    run = shell.start("run", "first.py", "Write to everybody.", "--plain")
    run.until("tool       find_unpaid")
    assert (shell.folder / "drafts" / "ann.txt").exists()

    cancelled = shell.do("cancel")

    assert cancelled.lines[0].startswith("Cancelled. Stopped in ")
    assert "Undone: write_draft." in cancelled.lines
    assert run.wait() == 3
    assert not (shell.folder / "drafts" / "ann.txt").exists()
    assert "0 problems, 0 to consider." in shell.do("doctor", "first.py").out


def test_a_file_that_exists_is_not_overwritten(shell: Shell) -> None:
    (shell.folder / "agent.py").write_text("mine")

    refused = shell.do("new")

    assert (refused.code, refused.err.startswith("error[file_exists]: agent.py exists already")) == (2, True)
    assert (shell.folder / "agent.py").read_text() == "mine"


RISKY = """
import time
from checkrein import Agent, tool
from checkrein.models import ScriptedModel

@tool(isolation="thread", effect="none")
def nap() -> None:
    time.sleep(100)

@tool
def post() -> None: ...

@tool(effect="irreversible", approval=False)
async def pay() -> None: ...

@tool(effect="reversible")
async def reserve() -> None: ...

agent = Agent("risky", model=ScriptedModel(["Hi."]), tools=[nap, post, pay, reserve])
"""


def test_the_doctor_says_what_could_not_be_stopped_or_undone_and_why(shell: Shell) -> None:
    """D15 D34"""
    (shell.folder / "risky.py").write_text(RISKY)

    done = shell.do("doctor", "risky.py")

    assert done.code == 0, done.err
    assert "risky.nap: runs in a thread" in done.out
    assert "A thread cannot be killed" in done.out
    assert "risky.post: says nothing about its effect and has no undo" in done.out
    assert "risky.pay: cannot be undone and asks nobody" in done.out
    assert 'risky.reserve: says effect="reversible" and has no undo' in done.out
    assert "0 problems, 4 to consider." in done.out
    assert not (shell.folder / ".checkrein").exists(), "looking makes nothing"


def test_the_doctor_says_that_the_tools_of_an_mcp_server_can_only_be_told_to_stop(shell: Shell) -> None:
    """D15 D34: without starting it."""
    (shell.folder / "served.py").write_text(
        "from checkrein import MCP, Agent\n"
        "from checkrein.models import ScriptedModel\n"
        'wiki = MCP("wiki", url="http://127.0.0.1:1/mcp")\n'
        'notes = MCP("notes", command=["no-such-command-anywhere"])\n'
        'agent = Agent("served", model=ScriptedModel(["Hi."]), tools=[wiki, notes])\n'
    )

    done = shell.do("doctor", "served.py")

    assert done.code == 1, done.err
    assert "served.wiki: the tools of an MCP server can only be told to stop" in done.out
    assert "served.notes: there is no command no-such-command-anywhere" in done.out
    assert "1 problem, 2 to consider." in done.out


def test_the_doctor_finds_real_problems(shell: Shell) -> None:
    (shell.folder / "closure.py").write_text(
        "from checkrein import Agent\n"
        "from checkrein.models import ScriptedModel\n"
        "def make():\n"
        "    def inner() -> None: ...\n"
        "    return inner\n"
        'agent = Agent("closed", model=ScriptedModel(["Hi."]), tools=[make()])\n'
    )
    (shell.folder / "noise.db").write_text("this is no database, and long enough to look at" * 10)

    done = shell.do("doctor", "closure.py", "--store", "sqlite:///noise.db", "--json")

    assert done.code == 1, done.err
    problems = [finding for finding in done.json if finding["level"] == "problem"]
    assert "inner cannot run in a worker process" in problems[0]["what"]
    assert problems[1]["about"] == "sqlite:///noise.db"


def test_the_doctor_walks_the_chains_of_a_store(shell: Shell) -> None:
    assert shell.do("run", str(SAMPLE), "Do it.", "--agent", "quick").code == 0

    done = shell.do("doctor")

    assert done.code == 0
    assert re.search(r"opens, and the chains of its runs hold \(runs: 1, events: \d+\)", done.out)


def test_the_demo_can_be_steered_from_another_terminal(shell: Shell) -> None:
    """D1 D20 D33"""
    demo = shell.start("demo", "--folder", "here", "--plain")
    demo.until("tool       ")
    store = f"sqlite:///{shell.folder}/here/runs.db"

    cancelled = shell.do("cancel", "--store", store)

    assert demo.text.startswith("From another terminal: checkrein ps --store ")
    assert cancelled.lines[0].startswith("Cancelled. Stopped in ")
    assert demo.wait() == 3


LOADED = """
import asyncio, sys
from checkrein.cli.app import run
from checkrein.journal import open_journal

async def make():
    await (await open_journal("sqlite:///runs.db")).close()

asyncio.run(make())
for command in ("ps", "pause", "resume", "cancel", "approve", "resolve happened", "stops", "redirect now", "ask why"):
    run([*command.split(), "--store", "sqlite:///runs.db"])
print(*[name for name in ("textual", "pydantic", "rich", "checkrein.agents.loop") if name in sys.modules])
"""


def test_verbs_load_neither_textual_nor_pydantic_nor_an_agent(shell: Shell) -> None:
    """What is not loaded costs no time between a person and a stop."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED], cwd=shell.folder, env=shell.environment, capture_output=True, text=True
    )

    assert done.stdout.strip() == "", done.stdout
    assert done.stderr.count("No run is unfinished") == 7, done.stderr


# -- what is written about it


def commands() -> dict[str, typer.core.TyperCommand]:
    group = typer.main.get_command(app)
    found: dict[str, typer.core.TyperCommand] = {}
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        inner = getattr(command, "commands", None)
        found |= {f"{name} {one}": part for one, part in inner.items()} if inner else {name: command}
    return found


def section(command: str) -> str:
    """What the page says about one command."""
    page = PAGE.read_text()
    found = re.search(rf"^### `checkrein {re.escape(command)}`\n(.*?)(?=^##)", page + "\n## ", re.DOTALL | re.MULTILINE)
    assert found is not None, f"docs/reference/command-line.md has no section about checkrein {command}"
    return found[1]


@pytest.mark.parametrize("command", commands())
def test_every_command_and_every_flag_is_documented(command: str) -> None:
    text = section(command)
    for param in commands()[command].params:
        names = [*param.opts, *param.secondary_opts] if param.param_type_name == "option" else [param.metavar]
        for name in names:
            word = str(name) if " " in str(name) else str(name).strip("[]")
            assert re.search(rf"`{re.escape(word)}[` ]", text) or word in _SHARED, (
                f"{command}: {name} is not documented"
            )


_SHARED = frozenset({"--store", "--json", "--by"})
"""Explained once, for all commands."""


def test_the_page_has_no_command_or_flag_that_is_gone() -> None:
    page = PAGE.read_text()
    written = re.findall(r"^### `checkrein ([\w -]+)`$", page, re.MULTILINE)
    flags = {name for command in commands().values() for param in command.params for name in param.opts}

    assert sorted(written) == sorted(commands())
    for name in written:
        assert set(re.findall(r"^\| `(--[\w-]+)", section(name), re.MULTILINE)) <= flags


def test_every_command_is_under_a_head_of_the_help() -> None:
    heads = [_name(one) for several in COMMANDS.values() for one in several]

    assert sorted(heads) == sorted({name.partition(" ")[0] for name in commands()})


def test_every_code_that_the_command_line_makes_up_is_listed() -> None:
    made = set()
    for path in (ROOT / "src" / "checkrein" / "cli").rglob("*.py"):
        made |= set(re.findall(r'code="(\w+)"', path.read_text()))

    listed = set(re.findall(r"^\| `(\w+)` \|", PAGE.read_text().partition("## Wrong input")[2], re.MULTILINE))

    assert made - listed == set()
