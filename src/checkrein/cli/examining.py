"""What `checkrein doctor` looks at: tools that could not be stopped or undone, the system, the store."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from checkrein.cli.clean import one_line
from checkrein.cli.finding import agents_in
from checkrein.errors import CheckreinError, NotImportable

if TYPE_CHECKING:
    from checkrein.agents.mcp import MCP
    from checkrein.agents.tool import Tool

_VERIFIED_RUNS: Final = 1000
"""How many runs are verified from their first event to their last: the newest."""


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at."""

    PROBLEM: ClassVar = "problem"
    ADVICE: ClassVar = "consider"
    FINE: ClassVar = "ok"

    level: str
    about: str
    what: str
    why: str = ""


def examine(file: Path | None, store: str) -> list[Finding]:
    """Everything that was found, the file first. Raises `WrongInput` if the file cannot be read at all."""
    tools = [] if file is None else list(_file(file))
    return [*tools, *_system(), *_store(store)]


# -- the tools of a file


def _file(file: Path) -> Iterator[Finding]:
    try:
        agents = agents_in(file)
    except NotImportable as error:
        yield Finding(Finding.PROBLEM, str(file), error.message, "Without that it cannot be ended from outside.")
        return
    for agent in agents.values():
        tools: dict[str, Tool] = getattr(agent, "tools", None) or {}
        findings = [finding for tool in tools.values() for finding in _tool(agent, tool)]
        findings += [finding for source in getattr(agent, "sources", ()) for finding in _server(agent, source)]
        yield from findings
        if not findings:
            count = f"{len(tools)} {'tool' if len(tools) == 1 else 'tools'}"
            yield Finding(
                Finding.FINE, f"agent {one_line(agent.name)}", f"{count}, all can be stopped and say what they do"
            )


def _tool(agent: Any, tool: Tool) -> Iterator[Finding]:
    about = f"{one_line(agent.name)}.{one_line(tool.name)}"
    try:
        tool.check_importable()
    except NotImportable as error:
        yield Finding(Finding.PROBLEM, about, error.message, "Without that it cannot be ended from outside.")
    if not tool.is_async and tool.isolation == "thread":
        yield Finding(
            Finding.ADVICE,
            about,
            'runs in a thread (isolation="thread") and may not be stoppable',
            "A thread cannot be killed: after a stop it may go on until it looks up, and what it did is then in doubt.",
        )
    if tool.effect == "unknown" and tool.undo is None:
        yield Finding(
            Finding.ADVICE,
            about,
            "says nothing about its effect and has no undo",
            'When it is interrupted, all that can be said is: may have partly happened. Say effect="none" if it only '
            'looks, give it an undo=, or say effect="irreversible".',
        )
    if tool.effect == "irreversible" and tool.approval is None:
        yield Finding(
            Finding.ADVICE,
            about,
            "cannot be undone and asks nobody (approval=False)",
            "By the time somebody cancels, it has happened.",
        )
    if tool.effect == "reversible" and tool.undo is None:
        yield Finding(
            Finding.ADVICE,
            about,
            'says effect="reversible" and has no undo',
            "A cancel cannot take it back, and will list it as left.",
        )


def _server(agent: Any, source: MCP) -> Iterator[Finding]:
    about = f"{one_line(agent.name)}.{one_line(source.name)}"
    path = source.env.get("PATH")
    if source.command is not None and shutil.which(source.command[0], path=path) is None:
        yield Finding(
            Finding.PROBLEM,
            about,
            f"there is no command {one_line(source.command[0])}",
            "The first run that needs this MCP server will pause and ask for it.",
        )
    yield Finding(
        Finding.ADVICE,
        about,
        "the tools of an MCP server can only be told to stop",
        "The protocol knows no answer to that: what a call did that was stopped is in doubt until its server answers "
        'or ends, or somebody finds out. Say effect="none" of those that only look; give others an undo= or a verify=.',
    )


# -- the system


def _system() -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    yield Finding(Finding.FINE, "python", f"{version} on {sys.platform}")
    if sys.platform.startswith("linux"):
        yield from _linux()
    else:
        yield Finding(
            Finding.ADVICE,
            "system",
            f"{sys.platform}, not Linux",
            "Children that a tool starts are found by group and by tree; one that leaves both can be missed.",
        )


def _linux() -> Iterator[Finding]:
    if Path("/proc/self/environ").exists():
        yield Finding(
            Finding.FINE, "/proc", "is there: the children of a tool are found by their mark, setsid ones too"
        )
    else:
        yield Finding(
            Finding.PROBLEM,
            "/proc",
            "is not mounted",
            "The children of a tool cannot be found, so a stop could leave some behind.",
        )
    if _has_pidfd():
        yield Finding(Finding.FINE, "pidfd", "works: a signal cannot hit a process that only inherited a number")
    else:
        yield Finding(
            Finding.ADVICE,
            "pidfd",
            "does not work here (an old kernel, or a sandbox forbids it)",
            "Processes are then signalled by number, after a look at their start time.",
        )


def _has_pidfd() -> bool:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    return True


# -- the store


def _store(store: str) -> Iterator[Finding]:
    yield Finding(Finding.FINE, "sqlite", sqlite3.sqlite_version)
    if outside := _file_of(store):
        yield from outside
        return
    try:
        yield asyncio.run(_journal(store))
    except CheckreinError as error:
        yield Finding(Finding.PROBLEM, store, error.message, f"code: {error.code}")


def _file_of(store: str) -> list[Finding]:
    """What can be seen of the file of a store from outside; nothing where all is well with it."""
    from checkrein.journal.address import SQLITE

    path = Path(store.removeprefix(SQLITE)).absolute()
    if not store.startswith(SQLITE):
        return []
    if path.exists():
        if os.access(path, os.W_OK) and os.access(path.parent, os.W_OK):
            return []
        return [Finding(Finding.PROBLEM, store, "may not be written to: no run can be started here, and none stopped")]
    folder = next(parent for parent in path.parents if parent.exists())
    if os.access(folder, os.W_OK):
        return [Finding(Finding.FINE, store, "is not there yet; the first run makes it")]
    return [Finding(Finding.PROBLEM, store, f"cannot be made: {folder} may not be written to")]


async def _journal(store: str) -> Finding:
    """Open it, and walk the chains of its runs."""
    from checkrein.journal import open_journal

    async with await open_journal(store) as journal:
        rows = await journal.runs(limit=_VERIFIED_RUNS)
        events = sum([await journal.verify(row.id) for row in rows])
        return Finding(
            Finding.FINE, store, f"opens, and the chains of its runs hold (runs: {len(rows)}, events: {events})"
        )
