"""The documentation is true: its programs run, and every public name is in it."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import checkrein

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = sorted((ROOT / "docs").rglob("*.md"))
BLOCK: Final = re.compile(r"```python\n# file: (\S+)\n(.*?)```", re.DOTALL)
PROGRAMS: Final = [(page, *found.groups()) for page in PAGES for found in BLOCK.finditer(page.read_text())]
SAYS: Final = {
    "orders.py": ["status: cancelled", "stopped: count_stock is killed", "effect: reserve is undone"],
    "undo.py": ["[('draft', 'undone')]", "draft exists: False"],
    "shield.py": ["['taken', 'put']"],
    "caps.py": ["Turns(3) is reached - Resume grants Turns(3) again."],
    "approvals.py": ["Paid."],
    "program.py": ["A fine summary."],
    "notes.py": ["progress: 1 of 2: reading", "look is aborted", "add is undone", "notes left: []"],
    "testing.py": ["At last. ['fault', 'completed']"],
    "own_model.py": ["stop means stop"],
    "other_provider.py": ["Hello from elsewhere."],
}


@pytest.mark.parametrize(("page", "name", "code"), PROGRAMS, ids=[str(program[1]) for program in PROGRAMS])
def test_a_program_in_the_docs_runs_and_says_what_the_page_says(
    page: Path, name: str, code: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(code)

    done = subprocess.run(
        [sys.executable, name], cwd=tmp_path, capture_output=True, text=True, timeout=120, env={**os.environ}
    )

    assert done.returncode == 0, done.stderr
    for sentence in SAYS.get(name, []):
        assert sentence in done.stdout, f"{page.name}: {done.stdout}"


def test_the_programs_that_are_expected_to_say_something_are_there() -> None:
    assert SAYS.keys() <= {name for _, name, _ in PROGRAMS}


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
