"""The way in is true: every module is on the architecture page, every path in the docs leads somewhere, and a word of
the field finds the module where the thing lives."""

from __future__ import annotations

import ast
import importlib
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
PACKAGE: Final = ROOT / "src" / "checkrein"
PAGE: Final = ROOT / "docs" / "architecture.md"
PROSE: Final = sorted({*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")} - {ROOT / "CHANGELOG.md"})
"""Every page that tells how things are. The changelog also tells how they were."""

OURS: Final = frozenset({path.name for path in PACKAGE.iterdir() if path.is_dir()})
BESIDE: Final = frozenset({"tests", "bench", "docs", "examples", "src"})

# fmt: off
WORDS: Final = {
    "state machine":  "core/transitions.py",
    "fencing":        "journal/admission.py",
    "serialization":  "journal/encoding.py",
    "subscribe":      "journal/subscriptions.py",
    "notify":         "journal/subscriptions.py",
    "migration":      "journal/sqlite/database.py",
    "snapshot":       "journal/sqlite/tables.py",
    "heartbeat":      "driver/ownership.py",
    "takeover":       "driver/ownership.py",
    "zombie":         "driver/ownership.py",
    "recovery":       "driver/ownership.py",
    "reconcile":      "driver/reconcile.py",
    "deterministic":  "driver/replay.py",
    "compensation":   "driver/undo.py",
    "lifecycle":      "driver/driver.py",
    "scheduler":      "engines/dispatcher.py",
    "dispatcher":     "engines/dispatcher.py",
    "worker pool":    "calls/workers/pool.py",
    "backpressure":   "server/streaming/sse.py",
    "watchdog":       "processes/supervisor_main.py",
    "orphan":         "processes/supervisor_main.py",
    "logger":         "logs.py",
}
# fmt: on
"""Somebody who knows durable execution searches for the word; the docstring of this module must have it."""


def modules() -> list[str]:
    """Every module of the package, Python and JavaScript. An `__init__.py` counts when it defines something."""
    python = [path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py" or defines(path)]
    return sorted(str(path.relative_to(PACKAGE)) for path in [*python, *PACKAGE.rglob("*.js")])


def defines(path: Path) -> bool:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return any(isinstance(node, kinds) for node in ast.parse(path.read_text()).body)


def listed(page: str) -> Counter[str]:
    """The first cells of the tables below *Every module*, where the second one says something."""
    below = page.partition("\n## Every module\n")[2]
    return Counter(re.findall(r"^\| `([^`]+)` \| *[^ |]", below, flags=re.MULTILINE))


def row(module: str) -> str:
    """A row to paste into the page: what the module says of itself."""
    path = PACKAGE / module
    said = (ast.get_docstring(ast.parse(path.read_text())) or "") if path.suffix == ".py" else ""
    return f"| `{module}` | {' '.join(said.partition(chr(10) * 2)[0].split())} |"


def code_in(page: str) -> list[str]:
    """What stands in backticks, outside of blocks."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", page, flags=re.DOTALL | re.MULTILINE))


def dead_end(code: str) -> str | None:
    """Why `code` leads nowhere; None where it leads somewhere, or names no module at all."""
    if code == "checkrein.toml":
        return None  # a file of a user's project
    if dotted := re.fullmatch(r"(checkrein(?:\.[A-Za-z_]\w*)+)(?:\(.*)?", code):
        return None if is_name(dotted[1]) else "there is no such module or name"
    place, _, name = code.partition(":")
    folder, slash, _ = place.partition("/")
    if not slash or not re.fullmatch(r"[\w./*-]+", place) or folder not in OURS | BESIDE or folder == place:
        return None
    if folder in OURS and not place.endswith((".py", ".js", "/")):
        return None if is_there(PACKAGE, place) or is_there(ROOT, place) else "there is no such folder"
    where = PACKAGE if folder in OURS and not is_there(ROOT, place) else ROOT
    if not is_there(where, place):
        return "there is no such file"
    return None if not name or defined(where / place, name) else f"it has no {name}"


def is_there(where: Path, place: str) -> bool:
    return any(True for _ in where.glob(place.rstrip("/")))


def is_name(dotted: str) -> bool:
    """Whether it is a module, or a name in one."""
    parts = dotted.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


@cache
def source(path: Path) -> str:
    return path.read_text()


def defined(path: Path, name: str) -> bool:
    """Whether a module defines `Class`, `function`, `Class.method`, or a constant."""
    if path.suffix != ".py":
        return re.search(rf"\b(class|function|const) {re.escape(name)}\b", source(path)) is not None
    body: list[ast.stmt] = ast.parse(source(path)).body
    for part in name.split("."):
        found = [node for node in body if part in names_of(node)]
        if not found:
            return False
        body = getattr(found[0], "body", [])
    return True


def names_of(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {target.id for target in targets if isinstance(target, ast.Name)}


def test_every_module_is_on_the_architecture_page_once():
    there, on_page = set(modules()), listed(PAGE.read_text())

    missing = [row(module) for module in sorted(there - on_page.keys())]
    gone = [f"remove | `{module}` |" for module in sorted(on_page.keys() - there)]
    twice = [f"twice | `{module}` |" for module, times in on_page.items() if times > 1]

    assert not missing + gone + twice, "docs/architecture.md:\n" + "\n".join(missing + gone + twice)


MOST_IN_A_FOLDER: Final = 15


def test_no_folder_has_more_modules_than_one_looks_through():
    folders = Counter(
        path.parent for end in ("py", "js") for path in PACKAGE.rglob(f"*.{end}") if path.stem != "__init__"
    )

    assert {str(folder): size for folder, size in folders.items() if size > MOST_IN_A_FOLDER} == {}


@pytest.mark.parametrize("page", PROSE, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_module_that_the_docs_name_is_there(page: Path):
    wrong = [f"`{code}`: {why}" for code in code_in(page.read_text()) if (why := dead_end(code)) is not None]

    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(("word", "module"), WORDS.items(), ids=WORDS.keys())
def test_a_word_of_the_field_finds_the_module_where_the_thing_lives(word: str, module: str):
    said = " ".join((ast.get_docstring(ast.parse((PACKAGE / module).read_text())) or "").split())

    assert word in said.lower()


@pytest.mark.parametrize("word", [*WORDS, "lease", "epoch", "permit", "idempotent"])
def test_a_word_of_the_field_is_in_the_glossary(word: str):
    assert word in (ROOT / "docs" / "design" / "glossary.md").read_text().lower()


@pytest.mark.parametrize(
    "code",
    [
        "checkrein.core.table",
        "checkrein.nowhere",
        "checkrein.Runtimes",
        "core/table.py",
        "core/enums.py:Statuses",
        "driver/driver.py:Driver.halt_and_catch_fire",
        "ui/connection/verbs.js:Sender",
        "src/checkrein/runtime",
        "tests/crash",
        "journal/mysql",
    ],
)
def test_a_path_that_leads_nowhere_is_noticed(code: str):
    assert dead_end(code) is not None


@pytest.mark.parametrize(
    "code",
    [
        "checkrein.core.enums",
        "checkrein.Runtime",
        "checkrein.models.register(…)",
        "core/enums.py:CallKind",
        "driver/driver.py:Driver.drive",
        "ui/connection/verbs.js:VerbSender",
        "src/checkrein/journal",
        "tests/server/auth/test_*.py",
        "journal/sqlite",
        "agent.py",
        "GET /api/runs",
        "text/event-stream",
    ],
)
def test_a_path_that_leads_somewhere_is_left_alone(code: str):
    assert dead_end(code) is None


def test_a_module_that_is_not_on_the_page_would_be_noticed():
    page = "\n## Every module\n\n| `core/enums.py` | the closed lists |\n"

    assert "core/events.py" in set(modules()) - listed(page).keys()
