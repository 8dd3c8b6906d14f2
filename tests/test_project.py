"""What holds for the repository as a whole: nothing of a machine in it, exact versions, links that lead somewhere,
errors that are documented, and a wheel that carries everything."""

from __future__ import annotations

import inspect
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Final

import pytest

from checkrein import errors
from tests.conftest import LONGEST, TESTS

ROOT: Final = Path(__file__).parents[1]
DOCS: Final = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
ERRORS: Final = sorted(
    (
        kind
        for _, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, errors.CheckreinError) and kind.__module__ == errors.__name__
    ),
    key=lambda kind: kind.__name__,
)

# Put together from pieces, so that this file does not contain what it looks for.
OF_A_MACHINE: Final = tuple(
    "".join(pieces)
    for pieces in [
        ("/", "work", "/"),
        ("/", "root", "/"),
        ("pypi", ".org"),
        ("files.", "pythonhosted"),
        ("registry.", "npmjs"),
    ]
)


def normal(name: str) -> str:
    """A distribution's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def kept_files() -> list[Path]:
    """Every file that is in the repository or would be with the next `git add`."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]


def constraints() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return {normal(name): version for name, _, version in (line.partition("==") for line in lines)}


def test_no_file_names_a_path_of_one_machine_or_a_registry():
    found = [
        f"{path.relative_to(ROOT)}: {needle}"
        for path in kept_files()
        for needle in OF_A_MACHINE
        if needle.encode() in path.read_bytes()
    ]

    assert found == []


def test_constraints_hold_exact_versions_and_nothing_else():
    lines = (ROOT / "constraints.txt").read_text().splitlines()

    assert lines == sorted(lines, key=str.lower)
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9][\w.-]*==[0-9][\w.+!]*", line)] == []


def test_everything_the_project_asks_for_is_constrained():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    asked = [
        *project["build-system"]["requires"],
        *project["project"]["dependencies"],
        *(line for extra in project["project"]["optional-dependencies"].values() for line in extra),
    ]

    names = {normal(re.split(r"[^\w.-]", line, maxsplit=1)[0]) for line in asked}

    assert names - constraints().keys() == set()


@pytest.mark.parametrize("page", DOCS, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_to_a_file(page: Path):
    prose = re.sub(r"^```.*?^```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    targets = re.findall(r"\]\(([^)\s]+)\)|^\[[^\]]+\]:\s*(\S+)", prose, flags=re.MULTILINE)
    relative = [target for pair in targets if (target := "".join(pair)) and not re.match(r"[a-z]+:|#", target)]

    missing = [target for target in relative if not (page.parent / target.partition("#")[0]).exists()]

    assert missing == []


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_every_error_has_a_code_of_its_own(kind: type[errors.CheckreinError]):
    others = {other.code for other in ERRORS if other is not kind}

    assert "code" in vars(kind)
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", kind.code)
    assert kind.code not in others


def test_the_reference_lists_every_error_with_its_code_and_no_other():
    page = (ROOT / "docs" / "reference" / "errors.md").read_text()

    listed = re.findall(r"^### `(\w+)` · `(\w+)`$", page, flags=re.MULTILINE)

    assert sorted(listed) == sorted((kind.__name__, kind.code) for kind in ERRORS)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names of the files in the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    [built] = folder.glob("*.whl")
    return set(zipfile.ZipFile(built).namelist())


def test_the_wheel_carries_every_file_of_the_package_and_no_other(wheel: set[str]):
    source = ROOT / "src"
    wanted = {
        str(path.relative_to(source))
        for path in (source / "checkrein").rglob("*")
        if path.is_file() and path.suffix in {".py", ".sql", ".typed", ".js", ".css", ".html"}
    }

    about = {name for name in wheel if ".dist-info/" in name}

    assert wanted - wheel == set()
    assert {
        name for name in wheel - wanted - about if not name.endswith((".json", ".svg", ".md", ".ico", ".d.ts"))
    } == set()
    assert any(name.endswith("licenses/LICENSE") for name in about)


def test_of_the_demo_the_wheel_carries_what_checkrein_demo_plays_and_not_the_tour(wheel: set[str]):
    carried = {Path(name).name for name in wheel if name.startswith("checkrein/demo/")}

    scripted = {"__init__.py", "agent.py", "churn_score.py", "data.py", "model.py", "tools.py"}
    real = {"engine.py", "engine_main.py", "writer.py"}
    assert carried == scripted | real


def test_nothing_that_only_tests_and_contributors_use_is_in_the_wheel(wheel: set[str]):
    """A server without a guard least of all."""
    assert {name for name in wheel if re.search(r"playground|/tests?/|/test_|examples|bench", name)} == set()


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make here")
@pytest.mark.parametrize(("target", "has_tools"), [("demo", False), ("tour", False), ("test", True), ("check", True)])
def test_only_targets_that_test_or_check_install_the_tools_for_it(target: str, has_tools: bool, tmp_path: Path):
    planned = subprocess.run(
        ["make", "--dry-run", f"VENV={tmp_path}/venv", target], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout

    assert " -e .\n" in planned
    assert (" -e '.[dev]'" in planned) is has_tools


def test_files_that_are_to_be_begun_first_are_there():
    assert [name for name in LONGEST if not (TESTS / name).is_file()] == []
