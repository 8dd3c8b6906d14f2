"""What a shell may offer while a person types: commands, runs, the names of agents.

A file is read and never carried out here, and whatever goes wrong means that nothing is offered.
"""

from __future__ import annotations

import ast
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from checkrein.errors import CheckreinError

_log = logging.getLogger(__name__)

VARIABLE: Final = "_CHECKREIN_COMPLETE"
"""How a shell says that it wants to know what could be typed next, and in which manner."""
SHELLS: Final = ("bash", "zsh", "fish")
_OFFERED: Final = 50
_LONGEST_GOAL: Final = 50


def source(shell: str) -> str:
    """What a shell must read to ask us."""
    return str(_completer(shell).source())


def answer(instruction: str) -> bool:
    """Print what a shell has asked for in `VARIABLE`; whether it could be understood."""
    shell, _, what = instruction.partition("_")
    if shell not in SHELLS or what not in ("source", "complete"):
        return False
    completer = _completer(shell)
    click.echo(completer.source() if what == "source" else completer.complete())
    return True


def _completer(shell: str) -> Any:
    from click.shell_completion import get_completion_class

    from checkrein.cli.app import program

    kind = get_completion_class(shell)
    assert kind is not None
    return kind(program, {}, "checkrein", VARIABLE)


# -- runs


def complete_runs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The newest runs that begin so, each with its status and its goal."""
    return [
        CompletionItem(run, help=f"{status}: {goal[:_LONGEST_GOAL]}")
        for run, status, goal in _runs(ctx)
        if run.startswith(incomplete) or run.removeprefix("r-").startswith(incomplete)
    ][:_OFFERED] + [CompletionItem("last", help="the newest run")] * "last".startswith(incomplete)


def complete_words(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The words of a verb: the first is a run, or what follows one."""
    is_first = not ctx.params.get(param.name or "")
    return complete_runs(ctx, param, incomplete) if is_first else []


def _runs(ctx: click.Context) -> list[tuple[str, str, str]]:
    from checkrein.cli.session import StoreSession, with_store
    from checkrein.core.escape import one_line
    from checkrein.journal import address_of

    async def act(session: StoreSession) -> list[tuple[str, str, str]]:
        rows = await session.journal.runs(limit=200)
        return [(row.id, row.status.value, one_line(row.goal, _LONGEST_GOAL)) for row in rows if row.parent is None]

    try:
        return with_store(address_of(ctx.params.get("store") or _default_store()), act)
    except Exception as error:  # a shell has no place for a sentence
        _log.debug("no runs to offer: %s", error)
        return []


def _default_store() -> str:
    from checkrein.cli.config import configured
    from checkrein.cli.options import DEFAULT_STORE, STORE_VARIABLE

    return os.environ.get(STORE_VARIABLE) or str(configured().get("store") or DEFAULT_STORE)


# -- files, and the agents in them


def complete_files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Python files; the shell itself knows which there are."""
    return [CompletionItem(incomplete, type="file")]


def complete_agents(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The agents that the file says, as far as they can be read in it."""
    try:
        names = list(_agents_of(_file_in(ctx)))
    except (OSError, SyntaxError, ValueError, CheckreinError) as error:
        _log.debug("no agents to offer: %s", error)
        names = []
    return [CompletionItem(name) for name in dict.fromkeys(names) if name.startswith(incomplete)]


def _file_in(ctx: click.Context) -> str:
    """The file that is named so far, or in the settings; in `args` while the value of an option is being typed."""
    from checkrein.cli.config import configured

    words = [word for word in ctx.args if ".py" in word]
    file = str(ctx.params.get("file") or next(iter(words), "") or configured().get("file") or "")
    return file.partition(".py:")[0] + ".py" if ".py:" in file else file


def _agents_of(file: str) -> Iterator[str]:
    """The names in `Agent("name", …)`, and of functions with `@agent`."""
    for node in ast.walk(ast.parse(Path(file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and _name(node.func) == "Agent" and node.args:
            first = node.args[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield first.value
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for decorator in node.decorator_list:
                if _name(decorator) == "agent":
                    yield node.name
                elif isinstance(decorator, ast.Call) and _name(decorator.func) == "agent":
                    yield next((_text(one.value) for one in decorator.keywords if one.arg == "name"), node.name)


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _text(node: ast.expr) -> str:
    return str(node.value) if isinstance(node, ast.Constant) else ""
