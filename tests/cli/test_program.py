"""The program as a newcomer meets it: help, a first file, the doctor, the demo, how quickly it starts, what is written
about it."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import click
import pytest

from checkrein.cli.app import COMMANDS, Listed
from checkrein.cli.app import run as run_program
from tests.cli.shell import SAMPLE, Done, Shell
from tests.support.patience import PATIENCE_SECONDS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "command-line.md"


def test_without_arguments_it_explains_itself(shell: Shell) -> None:
    done = shell.do()

    assert done.code == 0
    for head in ("Begin:", "Look:", "Steer:", "Answer:"):
        assert head in done.out
    for word in ("--version", "-V", "version"):
        assert shell.say(word).out.startswith("checkrein 0.")
    assert shell.say("help").out == done.out
    assert shell.say("help", "pause").out == shell.say("pause", "--help").out


def test_a_new_file_runs_as_it_is_and_a_cancel_takes_its_letter_back(shell: Shell) -> None:
    """D1 D5 D33: what a newcomer does first."""
    written = shell.do("new", "first.py")
    assert written.code == 0
    assert 'checkrein run first.py "' in written.out
    run = shell.start("run", "first.py", "Write to everybody.", "--plain")
    run.until("tool       find_unpaid")
    assert (shell.folder / "drafts" / "ann.txt").exists()

    # The tool has twelve seconds, of which processes of their own for the verbs may take too many.
    paused = shell.say("pause")
    cancelled = shell.say("cancel")

    assert "find_unpaid (frozen" in paused.out, paused.out
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


MODELS = """
from checkrein import Agent, agent
unknown = Agent("unknown", model="gpt-5")
keyless = Agent("keyless", model="openai:gpt-5")
local = Agent("local", model="ollama:llama3")

@agent(model="anthropic:claude-opus-5-5")
async def program(ctx): ...
"""


def test_the_doctor_resolves_models_and_looks_for_their_keys(shell: Shell) -> None:
    """Without asking anybody: an address that nothing listens on is not noticed."""
    (shell.folder / "asked.py").write_text(MODELS)
    keys = {"OPENAI_API_KEY": "", "ANTHROPIC_API_KEY": "", "ANTHROPIC_AUTH_TOKEN": ""}

    without = shell.do("doctor", "asked.py", "--json", **keys)
    with_keys = shell.do("doctor", "asked.py", "--json", OPENAI_API_KEY="k", ANTHROPIC_API_KEY="k")

    def problems(done: Done) -> dict[str, str]:
        return {one["about"]: one["what"] for one in done.json if one["level"] == "problem"}

    assert problems(without).keys() == {"unknown.model", "keyless.model", "program.model"}
    assert "does not say who provides it" in problems(without)["unknown.model"]
    assert problems(without)["keyless.model"] == "There is no API key for openai: OPENAI_API_KEY is not set"
    assert problems(with_keys).keys() == {"unknown.model"}
    assert (without.code, with_keys.code) == (1, 1)


def test_the_doctor_walks_the_chains_of_a_store(shell: Shell) -> None:
    assert shell.do("run", str(SAMPLE), "Do it.", "--agent", "quick").code == 0

    done = shell.say("doctor")

    assert done.code == 0
    assert re.search(r"opens, and the chains of its runs hold \(runs: 1, events: \d+\)", done.out)


def test_the_demo_can_be_steered_from_another_terminal(shell: Shell) -> None:
    """D1 D20 D33"""
    demo = shell.start("demo", "--folder", "here", "--plain")
    demo.until("tool       ")
    store = f"sqlite:///{shell.folder}/here/runs.db"

    cancelled = shell.say("cancel", "--store", store)

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
print(*[name for name in ("textual", "pydantic", "rich", "checkrein.agents.agent") if name in sys.modules])
"""


def test_verbs_load_neither_textual_nor_pydantic_nor_an_agent(shell: Shell) -> None:
    """What is not loaded costs no time between a person and a stop."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED], cwd=shell.folder, env=shell.environment, capture_output=True, text=True
    )

    assert done.stdout.strip() == "", done.stdout
    assert done.stderr.count("No run is unfinished") == 7, done.stderr


# -- what is written about it


LISTED = [one for several in COMMANDS.values() for one in several]


def commands() -> dict[str, click.Command]:
    found: dict[str, click.Command] = {}
    for listed in LISTED:
        command = listed.load()
        inner = command.commands if isinstance(command, click.Group) else None
        found |= {f"{listed.name} {one}": part for one, part in inner.items()} if inner else {listed.name: command}
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


_SHARED = frozenset(
    {"--store", "--listen-store", "--server", "--token", "--json", "--by", "--log-level", "--log-format"}
)
"""Explained once, for all commands."""


def test_the_page_has_no_command_or_flag_that_is_gone() -> None:
    page = PAGE.read_text()
    written = re.findall(r"^### `checkrein ([\w -]+)`$", page, re.MULTILINE)
    flags = {name for command in commands().values() for param in command.params for name in param.opts}

    assert sorted(written) == sorted(commands())
    for name in written:
        assert set(re.findall(r"^\| `(--[\w-]+)", section(name), re.MULTILINE)) <= flags


@pytest.mark.parametrize("listed", LISTED, ids=lambda listed: listed.name)
def test_a_command_is_listed_under_its_name_with_the_first_sentence_of_its_help(listed: Listed) -> None:
    command = listed.load()

    assert command.name == listed.name
    assert (command.help or "").partition("\n\n")[0] == listed.help


def test_every_command_that_a_module_has_is_listed() -> None:
    folder = ROOT / "src" / "checkrein" / "cli" / "commands"
    paths = [path.relative_to(folder).with_suffix("") for path in folder.rglob("*.py") if path.stem != "__init__"]
    modules = {".".join(path.parts) for path in paths}
    groups = [command for listed in LISTED if isinstance(command := listed.load(), click.Group)]
    inner = [part for group in groups for part in group.commands.values()]
    found = {
        command.name
        for name in modules
        for command in vars(import_module(f"checkrein.cli.commands.{name}")).values()
        if isinstance(command, click.Command) and command not in inner
    }

    assert {one.module for one in LISTED} == modules
    assert found == {one.name for one in LISTED}


def test_a_command_loads_no_other_command() -> None:
    """So that a verb does not wait for what another command needs."""
    code = (
        "import sys; from checkrein.cli.app import run; run(['--help']); run(['pause', '--help']); "
        "sys.exit(str(sorted(name for name in sys.modules if name.startswith('checkrein.cli.commands.'))))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_SECONDS)

    assert done.stderr.strip() == "['checkrein.cli.commands.verbs']"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["paus"], "There is no command 'paus'. Did you mean pause or ps? See --help."),
        (["status"], "There is no command 'status'. Did you mean ps? See --help."),
        (["zzz"], "There is no command 'zzz'; see --help."),
        (
            ["kill"],
            "There is no command 'kill'. `checkrein cancel` ends a run and all it started, and undoes what is open; "
            "`halt` is the kill switch; see --help.",
        ),
        (
            ["cancel", "--resaon", "x"],
            "No such option '--resaon'. Did you mean one of: '--json', '--reason'? See --help.",
        ),
        (["token"], "Missing command; see --help."),
        (
            ["ps", "--limit", "x"],
            "Invalid value for '--limit': 'x' is not a whole number from 1 to 100000; see --help.",
        ),
        (["pause", "--wait", "x"], "Invalid value for '--wait': 'x' is not a number from 0 to 86400; see --help."),
        (["pause", "--wait", "nan"], "Invalid value for '--wait': 'nan' is not a number from 0 to 86400; see --help."),
        (["pause", "--wait", "-1"], "Invalid value for '--wait': '-1' is not a number from 0 to 86400; see --help."),
        (
            ["serve", "a.py", "--port", "80000"],
            "Invalid value for '--port': '80000' is not a whole number from 0 to 65535; see --help.",
        ),
        (
            ["demo", "--port", "-1"],
            "Invalid value for '--port': '-1' is not a whole number from 0 to 65535; see --help.",
        ),
        (
            ["serve", "a.py", "--drivers", "0"],
            "Invalid value for '--drivers': '0' is not a whole number from 1 to 256; see --help.",
        ),
        (
            ["stops", "--limit", "0"],
            "Invalid value for '--limit': '0' is not a whole number from 1 to 100000; see --help.",
        ),
        (["ps", "extra"], "Got unexpected extra argument (extra); see --help."),
        (["redirect"], "Missing argument '[RUN] INSTRUCTION'; see --help."),
        (["cancel", "--undo", "x"], "Invalid value for '--undo': 'x' is not one of 'open', 'all', 'none'; see --help."),
        (["token", "create"], "Missing option '--role'. Choose from: viewer, controller, operator; see --help."),
    ],
)
def test_wrong_arguments_get_one_sentence(
    capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    code = run_program(arguments)

    assert (code, capsys.readouterr()) == (2, ("", f"error[usage]: {sentence}\n"))


def test_every_code_that_the_command_line_makes_up_is_listed() -> None:
    made = set()
    for path in (ROOT / "src" / "checkrein" / "cli").rglob("*.py"):
        made |= set(re.findall(r'code="(\w+)"', path.read_text()))

    listed = set(re.findall(r"^\| `(\w+)` \|", PAGE.read_text().partition("## Wrong input")[2], re.MULTILINE))

    assert made - listed == set()
