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


def test_the_wheel_carries_every_file_of_the_package(tmp_path: Path):
    source = ROOT / "src"
    wanted = {
        str(path.relative_to(source))
        for path in (source / "checkrein").rglob("*")
        if path.is_file() and path.suffix in {".py", ".sql", ".typed", ".js", ".css", ".html"}
    }

    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    [wheel] = tmp_path.glob("*.whl")
    carried = set(zipfile.ZipFile(wheel).namelist())

    assert wanted - carried == set()
    assert any(name.endswith("licenses/LICENSE") for name in carried)
