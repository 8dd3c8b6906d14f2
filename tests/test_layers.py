"""The layers of the package, read from its source: who may import whom, and that the core stays pure.

Imports are read with `ast`, so one inside a function or under `TYPE_CHECKING` counts like any other.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

SRC: Final = Path(__file__).parents[1] / "src"
MODULES: Final = sorted((SRC / "checkrein").rglob("*.py"))

ORDER: Final = (
    "core",
    "journal",
    "processes",
    "secrets",
    "logs",
    "watchers",
    "models",
    "calls",
    "driver",
    "mcp",
    "agents",
    "engines",
    "control",
    "run",
    "runtime",
    "adapters",
    "gateway",
    "exec",
    "demo",
    "server",
    "client",
    "ui",
    "cli",
)
"""A package imports only from those above it."""

ENDS: Final = frozenset({"ui", "cli"})
"""Ways in from outside. Nothing is built on them, not even by one another."""

FREE: Final = frozenset({"errors", "asyncutil", "testing", "timings"})
"""Anybody may use these."""

ROOTS: Final = frozenset({"__init__", "__main__"})
"""The package's own front door: it may pick its public names from any layer."""

# fmt: off
IMPURE: Final = frozenset({
    "time", "datetime", "random", "uuid", "secrets",                                 # clocks and chance
    "os", "io", "pathlib", "shutil", "tempfile", "sqlite3",                          # files
    "socket", "ssl", "select", "selectors",                                          # the network
    "asyncio", "anyio", "trio", "threading", "concurrent", "queue",                  # waiting
    "subprocess", "multiprocessing", "signal", "psutil",                             # other processes
})
# fmt: on
"""What the core may not import: clocks, chance, other processes and the world outside."""

CALLS: Final = frozenset({"open", "input", "__import__"})
"""The same, where no import is needed for it."""

ASYNC: Final = (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await)


def name_of(path: Path) -> tuple[str, ...]:
    """The dotted name of a module, in parts, with `__init__` kept as its last part."""
    return path.relative_to(SRC).with_suffix("").parts


def imports(tree: ast.AST, module: tuple[str, ...]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Every name imported anywhere in `module`: its line and its absolute dotted name, in parts."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, tuple(alias.name.split("."))) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = module[: -node.level] if node.level else ()
            base += tuple(node.module.split(".")) if node.module else ()
            yield from ((node.lineno, (*base, alias.name)) for alias in node.names)


def may_import(layer: str, target: str) -> bool:
    if layer in ROOTS or layer == "testing" or layer == target:
        return True
    if layer in ("errors", "asyncutil", "timings") or target in ENDS:
        return False
    return target in FREE or (target in ORDER and ORDER.index(target) < ORDER.index(layer))


def broken_layers(source: str, module: tuple[str, ...]) -> list[str]:
    layer = module[1]
    return [
        f"{'.'.join(module)}:{line}: {layer} may not import {'.'.join(name)}"
        for line, name in imports(ast.parse(source), module)
        if name[0] == "checkrein" and not may_import(layer, name[1] if len(name) > 1 else "")
    ]


def impurities(source: str, module: tuple[str, ...]) -> list[str]:
    tree = ast.parse(source)
    found = [(line, f"imports {'.'.join(name)}") for line, name in imports(tree, module) if name[0] in IMPURE]
    for node in ast.walk(tree):
        if isinstance(node, ASYNC):
            found.append((node.lineno, "is async"))
        elif isinstance(node, ast.comprehension) and node.is_async:
            found.append((node.iter.lineno, "is async"))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS:
            found.append((node.lineno, f"calls {node.func.id}()"))
    return [f"{'.'.join(module)}:{line}: the core is pure, but this {what}" for line, what in sorted(found)]


def status_sets(source: str) -> list[int]:
    """The lines on which several statuses are put together into a set, a tuple or a list of their own."""
    tree = ast.parse(source)
    unpacked = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Assign) and _is_unpacking(node)}
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.expr) and id(node) not in unpacked and _is_status_set(node)
    ]


def _is_unpacking(node: ast.Assign) -> bool:
    """`RUNNING, PAUSED = Status.RUNNING, Status.PAUSED` gives names, not a meaning."""
    return isinstance(node.targets[0], ast.Tuple)


def _is_status_set(node: ast.expr) -> bool:
    if isinstance(node, ast.Set | ast.Tuple | ast.List):
        return sum(ast.unparse(one).startswith("Status.") for one in node.elts) > 1
    return isinstance(node, ast.BinOp) and ast.unparse(node.left) in ("set(Status)", "frozenset(Status)")


@pytest.mark.parametrize(
    "path", [path for path in MODULES if name_of(path)[1:] != ("core", "enums")], ids=lambda p: ".".join(name_of(p)[1:])
)
def test_what_a_set_of_statuses_means_is_named_in_one_place(path: Path):
    """In `core/enums.py`: unfinished, at work, stopping and the like have one definition each."""
    assert status_sets(path.read_text()) == []


@pytest.mark.parametrize(
    "source",
    [
        "LIVE = frozenset({Status.RUNNING, Status.PAUSED})",
        "if state.status in (Status.RUNNING, Status.PAUSED): pass",
        "LIVE = frozenset(Status) - TERMINAL",
    ],
)
def test_a_set_of_statuses_elsewhere_is_noticed(source: str):
    assert status_sets(source) == [1]


WORDS: Final = frozenset(
    {"Status", "Verb", "Outcome", "EffectState", "CallKind", "Answer", "Decision", "OnPause", "When"}
)


def word_maps(source: str) -> list[int]:
    """The lines on which words of the core are mapped to English: several of them to strings with letters in them."""
    return [node.lineno for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Dict) and _is_word_map(node)]


def _is_word_map(node: ast.Dict) -> bool:
    said = [
        value.value
        for key, value in zip(node.keys, node.values, strict=True)
        if isinstance(key, ast.Attribute) and ast.unparse(key.value) in WORDS and isinstance(value, ast.Constant)
    ]
    return sum(isinstance(word, str) and any(map(str.isalpha, word)) for word in said) > 1


@pytest.mark.parametrize(
    "path",
    [path for path in MODULES if name_of(path)[1:] != ("core", "wording")],
    ids=lambda p: ".".join(name_of(p)[1:]),
)
def test_what_the_words_of_the_core_are_called_is_said_in_one_place(path: Path):
    """In `core/wording.py`, whose words the page gets too."""
    assert word_maps(path.read_text()) == []


@pytest.mark.parametrize(
    "source", ['{Status.PAUSED: "Paused", Status.FAILED: "Failed"}', '{Outcome.KILLED: "killed", Outcome.FAILED: "no"}']
)
def test_words_elsewhere_are_noticed(source: str):
    assert word_maps(source) == [1]


def test_every_module_belongs_to_a_layer():
    layers = {name_of(path)[1] for path in MODULES}

    assert "core" in layers
    assert layers <= {*ORDER, *FREE, *ROOTS}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: ".".join(name_of(path)[1:]))
def test_a_package_imports_only_from_those_above_it(path: Path):
    assert broken_layers(path.read_text(), name_of(path)) == []


@pytest.mark.parametrize(
    "path", [path for path in MODULES if name_of(path)[1] == "core"], ids=lambda path: ".".join(name_of(path)[1:])
)
def test_the_core_never_awaits_reads_a_clock_draws_randomness_or_does_io(path: Path):
    assert impurities(path.read_text(), name_of(path)) == []


@pytest.mark.parametrize(
    ("layer", "source"),
    [
        ("core", "import checkrein.journal.base"),
        ("core", "from checkrein.journal import contract"),
        ("core", "from checkrein import journal"),
        ("core", "from ..journal import contract"),
        ("core", "from .. import journal"),
        ("core", "def later():\n    from checkrein.driver import driver"),
        ("journal", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from checkrein.control import x"),
        ("journal", "from checkrein import Runtime"),
        ("journal", "import checkrein"),
        ("server", "from checkrein.cli import app"),
        ("control", "from checkrein.server import app"),
        ("errors", "from checkrein.core import enums"),
    ],
)
def test_an_import_from_below_is_noticed(layer: str, source: str):
    assert len(broken_layers(source, ("checkrein", layer, "module"))) == 1


@pytest.mark.parametrize(
    ("layer", "source"),
    [
        ("journal", "from checkrein.core.events import Event"),
        ("journal", "from ..core.events import Event"),
        ("journal", "from .contract import Journal"),
        ("journal", "from checkrein.errors import Conflict"),
        ("engines", "from checkrein.driver import driver"),
        ("control", "from checkrein.driver import ownership"),
        ("cli", "from checkrein.server.processes import front"),
        ("testing", "from checkrein.control import verbs"),
        ("core", "import json, checkrein_elsewhere"),
    ],
)
def test_an_import_from_above_is_allowed(layer: str, source: str):
    assert broken_layers(source, ("checkrein", layer, "module")) == []


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "from datetime import datetime",
        "import os.path",
        "def f():\n    import random",
        "async def f(): pass",
        "def f(xs): return [x async for x in xs]",
        "open('a')",
    ],
)
def test_an_impurity_is_noticed(source: str):
    assert impurities(source, ("checkrein", "core", "module"))
