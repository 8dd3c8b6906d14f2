"""The agents in a Python file."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from checkrein.cli.clean import one_line
from checkrein.errors import CheckreinError, WrongInput

if TYPE_CHECKING:
    from checkrein.runtime.spec import Program

_PARTS: Final = ("name", "play", "undo", "answer")
"""What an agent has, whoever made it."""


def agents_in(file: Path) -> dict[str, Program]:
    """The agents at the top level of a file, by name, in the order in which they stand there.

    The file is imported under its own name, with its folder on the path, so that worker processes can import the tools
    in it too. Raises `WrongInput`, with what is wrong with the file.
    """
    module = _imported(file)
    found: dict[str, Program] = {}
    for value in vars(module).values():
        if not _is_agent(value):
            continue
        other = found.get(value.name)
        if other is not None and other is not value:
            raise WrongInput(
                f"{file} has two agents with the name {one_line(value.name)}; a run could not tell them apart.",
                code="ambiguous_agent",
            )
        found[value.name] = value
    if not found:
        raise WrongInput(
            f"{file} has no agent at its top level. Write one as in `checkrein new`, for example: "
            'agent = Agent("name", model=…).',
            code="no_agents",
        )
    return found


def the_agent(file: Path, agents: dict[str, Program], name: str | None) -> Program:
    """The agent that is meant. Without a name: the only one."""
    if name is not None:
        if name not in agents:
            listed = ", ".join(one_line(known) for known in agents)
            raise WrongInput(f"{file} has no agent {one_line(name)}; it has: {listed}.", code="agent_not_found")
        return agents[name]
    if len(agents) > 1:
        listed = ", ".join(one_line(known) for known in agents)
        raise WrongInput(f"{file} has several agents: {listed}. Choose one with --agent.", code="ambiguous_agent")
    return next(iter(agents.values()))


def _is_agent(value: Any) -> bool:
    return not isinstance(value, type | ModuleType) and all(hasattr(value, part) for part in _PARTS)


def _imported(file: Path) -> ModuleType:
    path = file.resolve()
    if not path.is_file():
        raise WrongInput(
            f"There is no file {file}. `checkrein new {file}` writes one to begin with.", code="file_not_found"
        )
    name = path.stem
    if path.suffix != ".py" or not name.isidentifier():
        raise WrongInput(
            f"{file} cannot be imported by worker processes under its name; call it something like agent.py.",
            code="file_name",
        )
    known = sys.modules.get(name)
    is_taken = known is not None and getattr(known, "__file__", None) != str(path)
    if is_taken or name in sys.stdlib_module_names:
        raise WrongInput(
            f"{file} has the name of a module that Python or Checkrein uses itself ({name}); give it another one.",
            code="file_name",
        )
    sys.path.insert(0, str(path.parent))
    try:
        return importlib.import_module(name)
    except CheckreinError:
        raise
    except SyntaxError as error:
        where = f"{error.filename or file}, line {error.lineno}"
        raise WrongInput(f"{where}: {error.msg}.", code="file_broken") from None
    except (Exception, SystemExit) as error:
        raise WrongInput(
            f"{file} cannot be imported{_line_of(error, path)}: {type(error).__name__}: {one_line(str(error), 400)}.",
            code="file_broken",
        ) from None


def _line_of(error: BaseException, path: Path) -> str:
    """The last line of the file itself that was being carried out."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f" (line {lines[-1]})" if lines else ""
