"""The documentation is true: its programs run, and every public name is in it."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import json
import logging
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final
from unittest.mock import create_autospec

import click
import pytest
from fastapi import FastAPI

import checkrein
from checkrein.models import ScriptedModel
from tests.support.docs import ROOT, Block, blocks_of, environment_of_a_user, parsed

REPLY: Final = "The answer of a provider."
AGENT: Final = """
from checkrein import Agent
from checkrein.models import ScriptedModel

agent = Agent("sample", model=ScriptedModel(["Done."]))
"""

PAGES: Final = sorted((ROOT / "docs").rglob("*.md"))
PROSE: Final = [*PAGES, *sorted(ROOT.glob("*.md"))]


BLOCKS: Final = [block for page in PROSE for block in blocks_of(page)]
PROGRAMS: Final = [block for block in BLOCKS if block.language == "python" and "asyncio.run(" in block.code]
RUN_ELSEWHERE: Final = {"docs/howto/client.md": "tests/client/test_howto.py"}
"""Pages whose code needs a server, and the test that has one."""
COMMANDS_ELSEWHERE: Final = {"docs/howto/scale-out.md": "tests/test_scale_out.py"}
"""Pages whose commands need several, and the test that has them."""
FRAGMENTS: Final = [
    block
    for block in BLOCKS
    if block.language == "python" and block not in PROGRAMS and not block.file and block.page not in RUN_ELSEWHERE
]
COMMANDS: Final = [block for block in BLOCKS if block.language == "sh"]
NOT_RUN: Final = frozenset(
    {"text", "html", "css", "js", "nginx", "yaml", "ini", "dockerfile", "sql", "mermaid", "diff"}
)
"""Languages of blocks that nothing here can run: what is printed, and what other programs read."""


def test_every_block_says_in_which_language_it_is():
    known = NOT_RUN | {"python", "sh", "json", "toml"}

    assert [str(block) for block in BLOCKS if block.language not in known] == []


def test_a_command_stands_in_a_block_of_commands():
    """Where it is run by a test; so no block of text begins a line with one."""
    command = re.compile(r"^(\$ |checkrein |pip |make |python3? |uvx? |curl )", re.MULTILINE)

    assert [str(block) for block in BLOCKS if block.language == "text" and command.search(block.code)] == []


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language == "json"], ids=str)
def test_json_in_the_docs_is_json(block: Block):
    json.loads(block.code)


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language == "toml"], ids=str)
def test_toml_in_the_docs_is_toml(block: Block):
    tomllib.loads(block.code)


# -- programs


SAYS: Final = {
    "orders.py": ["status: cancelled", "stopped: count_stock is killed", "effect: reserve is undone"],
    "undo.py": ["[('draft', 'undone')]", "draft exists: False"],
    "shield.py": ["['taken', 'put']"],
    "caps.py": ["Turns(3) is reached - Resume grants Turns(3) again."],
    "approvals.py": ["Paid."],
    "told.py": ["press waits: approve publish", "Out."],
    "program.py": ["A fine summary."],
    "own_loop.py": [REPLY],
    "notes.py": ["progress: 1 of 2: reading", "look is aborted", "add is undone", "notes left: []"],
    "testing.py": ["At last. ['fault', 'completed']"],
    "own_model.py": ["stop means stop"],
    "other_provider.py": ["Hello from elsewhere."],
    "churn.py": ["cancelled"],
    "accounts_openai.py": [REPLY],
    "accounts_anthropic.py": [REPLY],
    "writer_ollama.py": [REPLY],
    "writer_compatible.py": [REPLY],
    "writer_openrouter.py": [REPLY],
    "writer_gemini.py": [REPLY],
}
KEYS: Final = ("OPENAI", "ANTHROPIC", "OPENROUTER", "ACME", "OLLAMA", "GEMINI")


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment in which every provider is a server on this machine, which gives every model the same reply."""
    scenario = tmp_path_factory.mktemp("provider") / "scenario.json"
    scenario.write_text(json.dumps([{"text": REPLY}] * 20))
    command = [sys.executable, "-m", "checkrein.testing.provider", "--port", "0", "--scenario", str(scenario)]
    with subprocess.Popen(
        [*command, "--key", "", "--with-stdin"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        told = json.loads(server.stdout.readline())
        urls = {f"{name}_BASE_URL": told["openai_url"] for name in KEYS}
        yield {
            **urls,
            **{f"{name}_API_KEY": "sk-of-a-test" for name in KEYS},
            "ANTHROPIC_BASE_URL": told["anthropic_url"],
            "GOOGLE_GEMINI_BASE_URL": told["anthropic_url"],  # both say their version in the path
            "OLLAMA_HOST": told["openai_url"].removesuffix("/v1"),
            "BILLING_API_KEY": "correct horse battery",
        }
        server.communicate()


@pytest.mark.parametrize("block", PROGRAMS, ids=lambda block: block.file or str(block))
def test_a_program_in_the_docs_runs_and_says_what_the_page_says(
    block: Block, provider: Mapping[str, str], tmp_path: Path
) -> None:
    name = block.file or "program_of_the_page.py"
    (tmp_path / name).write_text(block.code)

    done = subprocess.run(
        [sys.executable, name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **provider},
    )

    assert done.returncode == 0, done.stderr
    for sentence in SAYS.get(block.file, []):
        assert sentence in done.stdout, f"{block}: {done.stdout}"


def test_the_programs_that_are_expected_to_say_something_are_there() -> None:
    assert SAYS.keys() <= {block.file for block in PROGRAMS}


@pytest.mark.parametrize("block", FRAGMENTS, ids=str)
def test_a_fragment_in_the_docs_runs(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the names that its page has spoken of."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(logging.getLogger("checkrein"), "level", logging.WARNING)
    agent = checkrein.Agent("sample", model=ScriptedModel(["Done."]))
    given: dict[str, object] = {"__name__": "fragment", "checkrein": checkrein, "agent": agent}
    if "app.mount(" in block.code and "app =" not in block.code:
        given |= {"app": FastAPI(), "runtime": checkrein.Runtime("memory:", agents=[agent])}

    # A run that takes every call which a run has, with the arguments it has there, and no other.
    given |= {"run": create_autospec(checkrein.Run, instance=True), "call": "c1"}
    code = compile(block.code, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    awaited = eval(code, given)
    if inspect.iscoroutine(awaited):
        asyncio.run(awaited)


# -- commands


INSTALL: Final = "python3 -m venv .venv\n. .venv/bin/activate\npip install ../checkrein\n"
UNRUN: Final = {
    "make demo": "serves until it is ended; tests of the server start the demo, tests of the project read the Makefile",
    "checkrein demo": "serves until it is ended; tests of the server start it",
    "checkrein serve": "serves until it is ended, on a port that may be taken here",
    "CHECKREIN_TOKEN=… checkrein serve": "the same, with a token to be filled in",
    "export CHECKREIN_NOTIFY_SECRET": "serves until it is ended; tests of notifications start it",
    "export CHECKREIN_SERVER": "needs a server with a token; tests of the command line have one",
    'checkrein run agent.py "Count." ': "forms of one command; tests of the command line have such files",
    'eval "$(checkrein completion': "writes to a person's shell; a test asks for completions as a shell does",
    "curl": "asks a server at an address of an example",
    "checkrein token link": "needs the files of a server that has been started",
    "checkrein token list\ncheckrein token revoke": "names a token of an example",
    "checkrein new   ": "one run in two terminals; the commands of the tutorial are the same, and are run",
    'checkrein run agent.py "Write the letters." --log-level': "one of them serves until it is ended",
    f"{INSTALL}checkrein --version": "so does the tutorial begin",
    "pip install '../checkrein[": "an extra needs an index; without one it is the command of the README",
    "ollama pull": "loads a model from elsewhere",
    "python3 -m venv .venv\n.venv/bin/python -m pip install -c": "installs the tools of the tests; `make test` does",
    ".venv/bin/python -m tests.golden.record": "records what tests compare with",
    "checkrein store init": "needs a server of that name; tests/cli/test_store.py does it on a real one",
    "temporal server start-dev": "serves until it is ended; tests/support/temporal.py starts it",
    "checkrein worker agent.py --engine temporal": "tests/server/processes/test_worker_temporal.py does it as printed",
    "checkrein pause last      # frozen": "needs a program at work; tests/cli/test_exec.py does it",
    "checkrein exec --approve": "needs claude; tests/exec/test_tool_hook.py does it with a stand-in",
    "checkrein halt all": "needs a store with runs; tests/cli/test_halt.py does it",
    "export CHECKREIN_HALT_TOKEN": "serves until it is ended; tests/server/processes/test_secrets.py does it",
    "python -m checkrein.testing.provider": "serves until it is ended; the fixture above starts it as printed",
}
"""How a block of commands begins that is not run here, and why."""


def reason_of(block: Block) -> str:
    return next((reason for start, reason in UNRUN.items() if block.code.startswith(start)), "")


def test_every_reason_not_to_run_a_command_is_about_a_command_that_is_there() -> None:
    assert [start for start in UNRUN if not any(block.code.startswith(start) for block in COMMANDS)] == []


def checkrein_lines() -> list[tuple[str, list[str]]]:
    """Every line of `checkrein` in a block of commands, in words. A comment begins with `#`, as a shell has it."""
    found = []
    for block in COMMANDS:
        for line in block.code.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            while words and re.match(r"\w+=", words[0]):
                words.pop(0)
            if words[:1] == ["checkrein"]:
                stop = next((n for n, word in enumerate(words) if re.match(r"[0-9&]*[&>|]", word)), len(words))
                found.append((f"{block}: {line}", words[1:stop]))
    return found


@pytest.mark.parametrize(("line", "words"), checkrein_lines(), ids=[line for line, _ in checkrein_lines()])
def test_a_line_of_checkrein_in_the_docs_is_one_that_it_takes(line: str, words: list[str]) -> None:
    with contextlib.suppress(click.exceptions.Exit):  # --version and --help end there
        parsed(words)


STAYS: Final = {'checkrein run orders.py "Reserve a chair and count the rest."\n': "until grep -qs counting orders.log"}
"""Commands that a page has in one terminal while it goes on in another, and what is then there to go on with."""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return environment_of_a_user(tmp_path_factory.mktemp("machine"))


@pytest.mark.parametrize(
    "page", sorted({block.page for block in COMMANDS if not reason_of(block)} - COMMANDS_ELSEWHERE.keys())
)
def test_the_commands_of_a_page_run_as_printed_one_after_the_other(
    page: str, machine: Mapping[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (tmp_path / "checkrein").symlink_to(ROOT)
    if not any("checkrein new" in block.code for block in COMMANDS if block.page == page):
        (folder / "agent.py").write_text(AGENT)
    for block in BLOCKS:
        if block.page == page and block.file:
            (folder / block.file).write_text(block.code)
    script = ["set -euo pipefail"]
    for block in COMMANDS:
        if block.page == page and not reason_of(block):
            script += [f"echo '@ {block}' >&2", _played(block)]

    done = subprocess.run(
        ["bash", "-c", "\n".join(script)],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=900,  # it installs, and a machine under load takes its time
        env=machine,
    )

    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def _played(block: Block) -> str:
    until = STAYS.get(block.code)
    return (
        block.code
        if until is None
        else f"rm -f *.log; {block.code.strip()} > first 2>&1 &\n{until}; do sleep 0.2; done"
    )


# -- pages


def slug(heading: str) -> str:
    """The anchor that a forge makes of a heading."""
    words = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return words.replace(" ", "-")


@pytest.mark.parametrize("page", PROSE, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_link_to_a_part_of_a_page_finds_its_heading(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:\s]*)#([^)\s]+)\)", page.read_text())

    lost = [
        f"{target}#{anchor}"
        for target, anchor in links
        if anchor
        not in map(slug, re.findall(r"^#+ (.+)$", ((page.parent / target) if target else page).read_text(), re.M))
    ]

    assert lost == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_can_be_reached_from_the_index(page: Path) -> None:
    index = ROOT / "docs" / "index.md"
    linked = {(index.parent / target).resolve() for target in re.findall(r"\]\(([^)#\s]+)", index.read_text())}

    assert page == index or page.resolve() in linked


@pytest.mark.parametrize("name", checkrein.__all__)
def test_every_public_name_is_in_the_reference(name: str) -> None:
    reference = (ROOT / "docs" / "reference" / "python.md").read_text()

    assert re.search(rf"`@?{name}[`(]|\*\*`@?{name}", reference), f"{name} is not documented"


@pytest.mark.parametrize("made", [checkrein.Agent, checkrein.Runtime, checkrein.Tool, checkrein.MCP])
def test_everything_that_can_be_said_when_it_is_made_is_in_the_reference(made: type) -> None:
    reference = (ROOT / "docs" / "reference" / "python.md").read_text()
    (entry,) = [one for one in re.split(r"(?m)^- ", reference) if f"**`{made.__name__}" in one.split(":")[0]]

    missing = [name for name in inspect.signature(made).parameters if not re.search(rf"\b{name}\b", entry)]

    assert missing == []


@pytest.mark.parametrize("name", checkrein.__all__)
def test_every_public_name_says_what_it_is(name: str) -> None:
    assert (getattr(checkrein, name).__doc__ or "").strip()
