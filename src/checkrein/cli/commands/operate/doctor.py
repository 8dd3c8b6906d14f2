"""`checkrein doctor`, and what it looks at: tools that could not be stopped or undone, the system, the store."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

import click
import msgspec
from click.core import ParameterSource

from checkrein.agents.loader import agents_in
from checkrein.cli import options, output
from checkrein.cli.session import why_not_writable
from checkrein.core.escape import one_line
from checkrein.errors import CheckreinError, ModelError, NotImportable, UnknownModel
from checkrein.journal import file_of, shown

if TYPE_CHECKING:
    from checkrein.driver.program_api import Program, ToolInfo, ToolServer

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


@click.command
@options.agents_file(required=False, help="A Python file with agents to look at, or a module.")
@options.as_json
@options.store
def doctor(file: str | None, as_json: bool, store: str) -> int:
    """Say what could not be stopped or undone here, and why.

    Looks at the tools and models of a file, at this system, at the store, and at what is configured. Asks nobody over
    the network. Exit code: 1 when there is a problem.
    """
    findings = [*examine(file, store), *_settings()]
    for finding in findings:
        if as_json:
            output.out_json(finding)
        else:
            output.out(f"{finding.level:<8} {finding.about}: {finding.what}")
            if finding.why:
                output.out(f"{'':8}   {finding.why}")
    problems = sum(finding.level == Finding.PROBLEM for finding in findings)
    if not as_json:
        advice = sum(finding.level == Finding.ADVICE for finding in findings)
        output.out(f"{problems} {'problem' if problems == 1 else 'problems'}, {advice} to consider.")
    return 1 if problems else 0


def examine(file: str | None, store: str) -> list[Finding]:
    """Everything that was found, the file first. Raises `WrongInput` if the file cannot be read at all."""
    tools = [] if not file else list(_file(file))
    return [*tools, *_system(), *_store(store)]


# -- the tools of a file


def _file(file: str) -> Iterator[Finding]:
    try:
        agents = agents_in(file)
    except NotImportable as error:
        yield Finding(Finding.PROBLEM, file, error.message, "Without that it cannot be ended from outside.")
        return
    for agent in agents.values():
        tools = agent.tools
        findings = [finding for tool in tools.values() for finding in _tool(agent, tool)]
        findings += [finding for source in agent.sources for finding in _server(agent, source)]
        findings += _model(agent)
        yield from findings
        if not findings:
            count = f"{len(tools)} {'tool' if len(tools) == 1 else 'tools'}"
            yield Finding(
                Finding.FINE, f"agent {one_line(agent.name)}", f"{count}, all can be stopped and say what they do"
            )


def _tool(agent: Program, tool: ToolInfo) -> Iterator[Finding]:
    about = f"{one_line(agent.name)}.{one_line(tool.name)}"
    try:
        tool.check_importable()
    except NotImportable as error:
        yield Finding(Finding.PROBLEM, about, error.message, "Without that it cannot be ended from outside.")
    for warning in tool.warnings():
        yield Finding(Finding.ADVICE, about, warning.what, warning.why)


def _model(agent: Program) -> list[Finding]:
    """Whether the model that an agent names is one, and whether it could be asked: by what is set here, unasked."""
    from checkrein.models.registry import resolve

    about = f"{one_line(agent.name)}.model"
    try:
        named = getattr(agent, "model", None)
        if named is None:
            return []
        model = resolve(named)
        check = getattr(model, "check_settings", None)
        if check is not None:
            check()
    except ModelError as error:
        remedy = error.remedy.removesuffix("; then resume.").removesuffix(", then resume.").removesuffix(".")
        why = "" if isinstance(error, UnknownModel) else f"{remedy}. A run would pause and ask for it."
        return [Finding(Finding.PROBLEM, about, one_line(error.message.removesuffix("."), 400), why)]
    return []


def _server(agent: Program, source: ToolServer) -> Iterator[Finding]:
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


# -- what is configured


def _settings() -> Iterator[Finding]:
    """Where each setting comes from that may be said in several places."""
    from checkrein.cli.config import configured

    context, config = click.get_current_context(), configured()
    for name, variable in (("file", ""), ("store", options.STORE_VARIABLE), ("port", "")):
        value, source = context.params.get(name), context.get_parameter_source(name)
        if name == "port" and (value := config.get(name)) is not None:
            source = ParameterSource.DEFAULT_MAP  # `serve` takes it from there
        if value is not None:
            where = _SOURCES.get(source, "which is the default") if source is not None else "which is the default"
            said = shown(value) if name == "store" else value
            yield Finding(Finding.FINE, name, f"{said}, {where.format(variable=variable, path=config.path)}")


_SOURCES: Final = {
    ParameterSource.COMMANDLINE: "from the command line",
    ParameterSource.ENVIRONMENT: "from {variable}",
    ParameterSource.DEFAULT_MAP: "from {path}",
}


# -- the store


def _store(store: str) -> Iterator[Finding]:
    yield Finding(Finding.FINE, "sqlite", sqlite3.sqlite_version)
    if (obstacle := why_not_writable(store)) is not None:
        yield Finding(Finding.PROBLEM, store, obstacle)
        return
    if (path := file_of(store)) is not None and not os.path.exists(path):
        yield Finding(Finding.FINE, store, "is not there yet; the first run makes it")
        return
    try:
        yield asyncio.run(_journal(store))
    except CheckreinError as error:
        yield Finding(Finding.PROBLEM, shown(store), error.message, f"code: {error.code}")


async def _journal(store: str) -> Finding:
    """Open it, and walk the chains of its runs."""
    from checkrein.journal import open_journal

    async with await open_journal(store) as journal:
        rows = await journal.runs(limit=_VERIFIED_RUNS)
        events = sum([await journal.verify(row.id) for row in rows])
        return Finding(
            Finding.FINE, shown(store), f"opens, and the chains of its runs hold (runs: {len(rows)}, events: {events})"
        )
