"""The agents in a Python file, or in a module: which is meant, how it is imported, and the files that it consists of.

A file inside a package is imported as a part of it, so that its relative and its absolute imports work; every other
file under its own name. Worker processes import the tools in it by the same name.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from checkrein.core.escape import one_line
from checkrein.errors import CheckreinError, WrongInput

if TYPE_CHECKING:
    from checkrein.driver.program_api import Program

_PARTS: Final = ("name", "play", "undo", "answer")
"""What an agent has, whoever made it."""


class Target(NamedTuple):
    """Where agents come from."""

    said: str
    module: str
    """By what name it is imported."""
    root: Path
    """Where imports of it begin: the folder that is put on the path."""
    path: Path | None = None
    """The file, where one was named."""
    attribute: str = ""
    """The only one that is meant; empty: all at the top level."""


def agents_in(said: str | Path) -> dict[str, Program]:
    """The agents that are meant by `agent.py`, `agent.py:name`, `package.module` or `package.module:name`.

    By name, in the order in which they stand there at the top level. Raises `WrongInput`, with what is wrong.
    """
    target = target_of(said)
    module = _imported(target)
    if target.attribute:
        agent: Any = getattr(module, target.attribute, None)
        if not _is_agent(agent):
            raise _no_such_agent(target, module)
        return {agent.name: agent}
    found: dict[str, Program] = {}
    for value in vars(module).values():
        if not _is_agent(value):
            continue
        other = found.get(value.name)
        if other is not None and other is not value:
            raise WrongInput(
                f"{said} has two agents with the name {one_line(value.name)}; a run could not tell them apart.",
                code="ambiguous_agent",
            )
        found[value.name] = value
    if not found:
        raise WrongInput(
            f"{said} has no agent at its top level. Write one as in `checkrein new`, for example: "
            'agent = Agent("name", model=…).',
            code="no_agents",
        )
    return found


def the_agent(said: str | Path, agents: dict[str, Program], name: str | None) -> Program:
    """The agent that is meant. Without a name: the only one."""
    if name is not None:
        if name not in agents:
            listed = ", ".join(one_line(known) for known in agents)
            raise WrongInput(f"{said} has no agent {one_line(name)}; it has: {listed}.", code="agent_not_found")
        return agents[name]
    if len(agents) > 1:
        listed = ", ".join(one_line(known) for known in agents)
        raise WrongInput(f"{said} has several agents: {listed}. Choose one with --agent.", code="ambiguous_agent")
    return next(iter(agents.values()))


def _is_agent(value: Any) -> bool:
    return not isinstance(value, type | ModuleType) and all(hasattr(value, part) for part in _PARTS)


def _no_such_agent(target: Target, module: ModuleType) -> WrongInput:
    there = ", ".join(name for name, value in vars(module).items() if _is_agent(value)) or "none"
    return WrongInput(
        f"{target.module} has no agent {target.attribute} at its top level; there are: {there}.", code="agent_not_found"
    )


# -- what is meant


def target_of(said: str | Path) -> Target:
    """What a person means who names a file or a module. Raises `WrongInput`; imports nothing."""
    where, attribute = _parts(str(said))
    if where.endswith(".py") or os.path.isfile(where) or os.sep in where:
        return _file_target(str(said), where, attribute)
    if all(part.isidentifier() for part in where.split(".")):
        return Target(str(said), where, Path.cwd(), attribute=attribute)
    raise _no_file(where)


def is_target(said: str) -> bool:
    """Whether a word names a file or a module, rather than saying something else."""
    where, attribute = _parts(said)
    if os.path.isfile(where) or where.endswith(".py"):
        return True
    is_module = all(part.isidentifier() for part in where.split("."))
    return is_module and ("." in where or bool(attribute) or _file_of(where, [Path.cwd()]) is not None)


def _parts(said: str) -> tuple[str, str]:
    """What stands before the colon, and the name of an agent after it; without one, all of it."""
    head, colon, tail = said.rpartition(":")
    is_named = colon and tail.isidentifier() and not os.path.exists(said)
    return (head, tail) if is_named else (said, "")


def _no_file(where: str) -> WrongInput:
    if os.path.isfile(f"{where}.py"):
        return WrongInput(f"There is no file {where}; there is {where}.py.", code="file_not_found")
    remedy = f" `checkrein new {where}` writes one to begin with." if where.endswith(".py") else ""
    return WrongInput(f"There is no file {where}.{remedy}", code="file_not_found")


def _file_target(said: str, where: str, attribute: str) -> Target:
    if not os.path.isfile(where):
        raise _no_file(where)
    path = Path(where).resolve()
    if path.suffix != ".py" or not path.stem.isidentifier():
        raise WrongInput(
            f"{where} cannot be imported by worker processes under its name; call it something like agent.py.",
            code="file_name",
        )
    root = _root_of(path)
    module = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
    return Target(said, module, root, path, attribute)


def _root_of(path: Path) -> Path:
    """The folder that holds the outermost package of the file; its own folder where it is in none."""
    root = path.parent
    while (root / "__init__.py").is_file() and root.name.isidentifier() and root != root.parent:
        root = root.parent
    if root != path.parent:
        return root
    # A package without __init__.py cannot be seen in its folders. One that imports from beside itself is one, though.
    here = Path.cwd().resolve()
    inside = path.is_relative_to(here) and all(part.isidentifier() for part in path.relative_to(here).parts[:-1])
    return here if inside and _imports_relatively(path) else root


def _imports_relatively(path: Path) -> bool:
    tree = _parsed(path)
    return tree is not None and any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(tree))


def _parsed(path: Path) -> ast.Module | None:
    try:
        return ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None  # importing it will say what is wrong


# -- importing it


def _imported(target: Target) -> ModuleType:
    top = target.module.partition(".")[0]
    if target.path is not None:
        known = sys.modules.get(target.module)
        is_taken = known is not None and getattr(known, "__file__", None) != str(target.path)
        if is_taken or top in sys.stdlib_module_names:
            raise WrongInput(
                f"{target.said} has the name of a module that Python or Checkrein uses itself ({target.module}); "
                "give it another one.",
                code="file_name",
            )
    _put_on_path(target)
    try:
        return importlib.import_module(target.module)
    except CheckreinError:
        raise
    except SyntaxError as error:
        where = f"{error.filename or target.said}, line {error.lineno}"
        raise WrongInput(f"{where}: {error.msg}.", code="file_broken") from None
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and _is_part(error.name or "", target.module):
            raise WrongInput(
                f"There is no file {target.said}, and no module {target.module} that can be imported from here.",
                code="file_not_found",
            ) from None
        raise WrongInput(
            f"{target.said} cannot be imported{_line_of(error, target)}: {type(error).__name__}: "
            f"{one_line(str(error), 400).removesuffix('.')}.",
            code="file_broken",
        ) from None


def _put_on_path(target: Target) -> None:
    """The root first; the current folder too, but last: what lies there takes the place of nothing."""
    root, here = str(target.root), os.getcwd()
    if sys.path[:1] != [root]:
        sys.path.insert(0, root)
    if here not in sys.path:
        sys.path.append(here)


def _is_part(name: str, module: str) -> bool:
    return bool(name) and (module == name or module.startswith(f"{name}."))


def _line_of(error: BaseException, target: Target) -> str:
    """The last line of the file itself that was being carried out."""
    path = str(target.path)
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    return f" (line {lines[-1]})" if lines else ""


# -- the files that it consists of


def local_files(said: str | Path) -> set[Path]:
    """The file of the agents and every file of the same project that it imports, as far as that can be read in them.

    Nothing is imported for it. What is imported in another way than by a statement is not found.
    """
    target = target_of(said)
    roots = [target.root, Path.cwd().resolve()]
    found: set[Path] = set()
    waiting = [(target.module, path) for path in [target.path or _file_of(target.module, roots)] if path is not None]
    while waiting:
        module, path = waiting.pop()
        if path in found:
            continue
        found.add(path)
        for name in _imports(module, path):
            if (imported := _file_of(name, roots)) is not None:
                waiting.append((name, imported))
    return found


def _imports(module: str, path: Path) -> Iterator[str]:
    """The names of all modules that a file may import, and of what holds them."""
    tree = _parsed(path)
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Import):
            names = [one.name for one in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: max(0, len(package) - node.level + 1)] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            names = [base, *(f"{base}.{one.name}" if base else one.name for one in node.names)]
        else:
            continue
        for name in names:
            parts = name.split(".")
            yield from (".".join(parts[:count]) for count in range(1, len(parts) + 1))


def _file_of(module: str, roots: list[Path]) -> Path | None:
    for root in roots:
        path = root.joinpath(*module.split("."))
        for file in (path.with_name(f"{path.name}.py"), path / "__init__.py"):
            if module and file.is_file():
                return file.resolve()
    return None
