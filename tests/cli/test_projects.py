"""Agents of a project as it is: inside packages, by module, and with settings that are said once."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkrein.agents.loader import agents_in, is_target, local_files, target_of
from checkrein.cli import output
from checkrein.cli.app import run as run_program
from checkrein.cli.config import configured
from checkrein.errors import WrongInput
from tests.cli.shell import Shell

AGENT = """
from checkrein import Agent
from checkrein.models import ScriptedModel, Turn
{imports}
agent = Agent("{name}", model=ScriptedModel([Turn("I add.", calls=[("add", {{"a": 1, "b": 2}})]), "3"]), tools=[add])
other = Agent("{name}-other", model=ScriptedModel(["Hi."]))
"""
TOOL = '''
from checkrein import tool

@tool(effect="none")
def add(a: int, b: int) -> int:
    """Add."""
    return a + b
'''


def project(folder: Path, *, imports: str, is_package: bool = True, name: str = "shop") -> Path:
    """A package with a tool in one module and an agent in another."""
    agents = folder / name / "agents"
    agents.mkdir(parents=True)
    (agents / "tools.py").write_text(TOOL)
    (agents / "main.py").write_text(AGENT.format(imports=imports, name=name))
    if is_package:
        (folder / name / "__init__.py").touch()
        (agents / "__init__.py").touch()
    return agents / "main.py"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A current folder of its own, whose modules are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(output, "_options", [])
    monkeypatch.setattr(output, "_file", ["FILE"])
    monkeypatch.delenv("CHECKREIN_STORE", raising=False)
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        if name.partition(".")[0] == "shop":
            del sys.modules[name]


# fmt: off
IMPORTS = [
    ("from .tools import add",                 True,  "shop/agents/main.py"),
    ("from shop.agents.tools import add",      True,  "shop/agents/main.py"),
    ("from shop.agents.tools import add",      False, "shop/agents/main.py"),
    ("from .tools import add",                 False, "shop/agents/main.py"),
    ("from .tools import add",                 True,  "shop.agents.main"),
    ("from ..agents.tools import add",         True,  "./shop/agents/main.py"),
]
# fmt: on


@pytest.mark.parametrize(("imports", "is_package", "said"), IMPORTS)
def test_an_agent_inside_a_package_is_loaded_as_a_part_of_it(
    here: Path, imports: str, is_package: bool, said: str
) -> None:
    project(here, imports=imports, is_package=is_package)

    agents = agents_in(said)

    assert list(agents) == ["shop", "shop-other"]
    tool = agents["shop"].tools["add"]
    tool.check_importable()


@pytest.mark.parametrize("said", ["shop/agents/main.py:agent", "shop.agents.main:agent"])
def test_one_agent_is_meant_by_its_name_in_the_code(here: Path, said: str) -> None:
    project(here, imports="from .tools import add")

    assert list(agents_in(said)) == ["shop"]


@pytest.mark.parametrize(
    ("said", "code", "words"),
    [
        ("shop.agents.main:nobody", "agent_not_found", "has no agent nobody at its top level; there are: agent, other"),
        ("shop.agents.nothing:agent", "file_not_found", "no module shop.agents.nothing that can be imported from here"),
        ("nothing/at/all.py", "file_not_found", "`checkrein new nothing/at/all.py` writes one"),
        ("nothing at all", "file_not_found", "There is no file nothing at all."),
        ("my-agent", "file_not_found", "There is no file my-agent; there is my-agent.py."),
    ],
)
def test_what_is_not_there_is_said(here: Path, said: str, code: str, words: str) -> None:
    project(here, imports="from .tools import add")
    (here / "my-agent.py").touch()

    with pytest.raises(WrongInput) as refused:
        agents_in(said)

    assert (refused.value.code, words in refused.value.message) == (code, True), refused.value.message


def test_a_module_beside_is_found_without_its_ending(here: Path) -> None:
    (here / "m7_of_mine.py").write_text(AGENT.format(imports="add = print", name="m").replace(", tools=[add]", ""))

    assert list(agents_in("m7_of_mine")) == ["m", "m-other"]


def test_what_lies_in_the_current_folder_takes_the_place_of_nothing(here: Path) -> None:
    """It comes last: a file there that is called like an installed package does no harm."""
    elsewhere = here / "elsewhere"
    elsewhere.mkdir()
    (here / "psutil.py").write_text("raise RuntimeError('not this one')")
    (elsewhere / "lonely.py").write_text(AGENT.format(imports="add = print", name="l").replace(", tools=[add]", ""))

    agents_in("elsewhere/lonely.py")

    assert sys.path[0] == str(elsewhere)
    assert sys.path[-1] == str(here)


def test_the_files_of_an_agent_are_those_that_it_imports_from_its_project(here: Path) -> None:
    main = project(here, imports="import os\nfrom .tools import add\nfrom shop import texts")
    (here / "shop" / "texts.py").write_text("from shop.agents import tools\nraise RuntimeError('never carried out')")
    (here / "shop" / "unused.py").touch()

    files = {str(path.relative_to(here)) for path in local_files("shop/agents/main.py")}

    assert files == {
        "shop/__init__.py",
        "shop/texts.py",
        "shop/agents/__init__.py",
        "shop/agents/main.py",
        "shop/agents/tools.py",
    }
    assert main.exists()


def test_a_file_of_a_package_knows_its_module(here: Path) -> None:
    project(here, imports="from .tools import add")

    target = target_of("shop/agents/main.py:agent")

    assert (target.module, target.root, target.attribute) == ("shop.agents.main", here, "agent")


def test_a_run_of_an_agent_in_a_package_calls_its_tool_in_a_worker(shell: Shell) -> None:
    """The worker imports the tool by the same name."""
    project(shell.folder, imports="from .tools import add")

    done = shell.do("run", "shop.agents.main:agent", "Add.", "--json")

    assert done.code == 0, done.err
    assert done.json[-1]["result"] == "3"
    ended = [item for item in done.json if item["type"] == "call.finished" and item["call"] == "c2"]
    assert [item["result"] for item in ended] == [3]


# -- settings


def settings(folder: Path, text: str, name: str = "checkrein.toml") -> None:
    (folder / name).write_text(text)


def test_settings_are_read_from_the_nearest_file(here: Path) -> None:
    settings(here, '[tool.checkrein]\nfile = "shop/main.py"\nstore = "data/runs.db"\nport = 9000\n', "pyproject.toml")
    below = here / "below"
    below.mkdir()

    config = configured()
    assert (config.get("file"), config.get("store"), config.get("port")) == (
        "shop/main.py",
        "sqlite:///data/runs.db",
        9000,
    )
    os.chdir(below)
    config = configured()
    assert (config.get("file"), config.get("store")) == ("../shop/main.py", "sqlite:///../data/runs.db")
    settings(below, 'file = "shop.agents:agent"\nstore = "sqlite:////var/runs.db"\n')
    config = configured()
    assert (config.get("file"), config.get("store"), config.get("port")) == (
        "shop.agents:agent",
        "sqlite:////var/runs.db",
        None,
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('stroe = "x.db"', "'stroe' in {} is nothing that can be set; there are: file, store, listen_store, port."),
        ("store = 7", "store in {} must be a path, or an address such as sqlite:///runs.db, not 7."),
        ('port = "8420"', "port in {} must be a whole number from 0 to 65535, not '8420'."),
        ("port = 80000", "port in {} must be a whole number from 0 to 65535, not 80000."),
        ("port = true", "port in {} must be a whole number from 0 to 65535, not True."),
        ('file = ""', "file in {} must be a Python file with agents"),
        ("file", "{} is not TOML"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused_by_every_command(
    here: Path, capsys: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    settings(here, text)

    assert run_program(["ps"]) == 2

    err = capsys.readouterr().err
    assert err.startswith("error[config]: ")
    assert words.format(here / "checkrein.toml") in err
    assert err.count("\n") == 1
    assert run_program(["--help"]) == 0


def test_an_option_comes_before_the_environment_and_that_before_the_settings(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings(here, 'store = "set.db"')

    def said(*arguments: str) -> str:
        run_program(["ps", *arguments])
        return capsys.readouterr().err

    assert "There is no store sqlite:///set.db yet" in said()
    monkeypatch.setenv("CHECKREIN_STORE", "environment.db")
    assert "There is no store sqlite:///environment.db yet" in said()
    assert "There is no store sqlite:///option.db yet" in said("--store", "option.db")


def test_the_doctor_says_where_each_setting_comes_from(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "lonely2.py").write_text(AGENT.format(imports="add = print", name="l").replace(", tools=[add]", ""))
    settings(here, 'file = "lonely2.py"\nstore = "set.db"\nport = 9000')
    monkeypatch.setenv("CHECKREIN_STORE", "environment.db")

    assert run_program(["doctor"]) == 0

    out = capsys.readouterr().out
    assert f"file: lonely2.py, from {here}/checkrein.toml" in out
    assert "store: sqlite:///environment.db, from CHECKREIN_STORE" in out
    assert f"port: 9000, from {here}/checkrein.toml" in out


def test_with_a_file_in_the_settings_the_goal_is_enough(shell: Shell) -> None:
    (shell.folder / "lonely3.py").write_text(AGENT.format(imports="add = print", name="l").replace(", tools=[add]", ""))
    settings(shell.folder, 'file = "lonely3.py:other"\nstore = "set.db"')

    done = shell.do("run", "Say hi.", "--plain")

    assert done.code == 0, done.err
    assert "agent l-other: Say hi." in done.out
    assert (shell.folder / "set.db").exists()


@pytest.mark.parametrize(
    ("said", "is_one"),
    [
        ("agent.py", True), ("agent.py:x", True), ("shop.agents:x", True), ("beside", True), ("beside:x", True),
        ("Say hi.", False), ("hello", False), ("Stop: now", False),
    ],
)  # fmt: skip
def test_a_word_that_names_a_file_is_told_from_a_goal(here: Path, said: str, is_one: bool) -> None:
    (here / "beside.py").touch()

    assert is_target(said) is is_one
