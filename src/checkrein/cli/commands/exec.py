"""`checkrein exec -- COMMAND`: a program that knows nothing of Checkrein, as a run that can be paused and stopped."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from checkrein import logs
from checkrein.cli import options, output
from checkrein.cli.completion import complete_runs
from checkrein.cli.lookup import find_run
from checkrein.cli.session import check_writable, opened
from checkrein.core.enums import ENDED_BY_ITSELF, TERMINAL, Status
from checkrein.core.escape import one_line
from checkrein.errors import WrongInput
from checkrein.exec.profiles import NAMES, PROFILES, profile_of

if TYPE_CHECKING:
    from checkrein.calls.process import Command
    from checkrein.cli.printers import Printer
    from checkrein.cli.terminal.attendance import Attendance
    from checkrein.cli.terminal.session import Line
    from checkrein.core.conditions import Condition
    from checkrein.exec.program import CommandProgram
    from checkrein.runtime import Runtime
    from checkrein.server.processes.beside import PageAccess

NOT_FOUND: Final = 127
NOT_EXECUTABLE: Final = 126
"""As a shell says it."""
MOST_TURNS: Final = 1_000_000
MOST_USD: Final = 1_000_000.0
MOST_MINUTES: Final = 525_600.0


class Wanted(NamedTuple):
    """What the command line asks for."""

    command: tuple[str, ...]
    name: str | None = None
    goal: str | None = None
    turns: int | None = None
    cost: float | None = None
    minutes: float | None = None
    pause: str = "freeze"
    sealed: bool = False
    profile: str | None = None
    upstream: tuple[str, ...] = ()
    approve: tuple[str, ...] = ()
    opens: bool = False
    continues: str | None = None


class _AfterDashes(click.Command):
    """Everything behind `--` is the program's own, also what looks like an option of ours."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not {"--", "--help", "-h", "--continue"} & {arg.partition("=")[0] for arg in args}:
            raise click.UsageError("Say which program after `--`, as in: checkrein exec -- claude", ctx)
        return super().parse_args(ctx, args)


def _cap(
    flag: str, metavar: str, kind: click.ParamType[Any], help: str
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(flag, metavar=metavar, type=kind, help=help)


@click.command(cls=_AfterDashes)
@click.argument("command", metavar="-- COMMAND…", nargs=-1, type=click.UNPROCESSED, help="The program, as it is typed.")
@click.option("--name", metavar="NAME", help="What its runs are called; the program's own name if left out.")
@click.option("--goal", metavar="TEXT", help="What it is for, as the page shows it; the command if left out.")
@_cap("--turns", "N", options.WholeNumber(1, MOST_TURNS), "Pause and ask when it has asked a model so often.")
@_cap("--cost", "USD", options.Number(0.000001, MOST_USD), "Pause and ask when it has spent so much on models.")
@_cap("--minutes", "N", options.Number(0.001, MOST_MINUTES), "Pause and ask when it has been at work for so long.")
@click.option(
    "--pause",
    metavar="HOW",
    type=click.Choice(["freeze", "soft"]),
    default="freeze",
    show_default=True,
    help="What a pause does: freeze it, or let its commands finish and hold its next request to a model (soft).",
)
@click.option(
    "--profile",
    metavar="NAME",
    type=click.Choice([*NAMES, "none"]),
    help=f"How it is told to ask the gateway, if not by its name: {', '.join(NAMES)}, or none.",
)
@click.option(
    "--upstream",
    metavar="PROVIDER=URL",
    multiple=True,
    help="Where requests to openai, anthropic or gemini go on to, if not where its variable says.",
)
@click.option("--sealed", is_flag=True, help="Without a network but for the gateway (Linux): it cannot go round it.")
@click.option(
    "--approve",
    metavar="TOOL",
    multiple=True,
    help="Ask a person before it uses this tool, such as Bash or 'mcp__*', where the program asks first (claude). "
    "Repeatable.",
)
@click.option(
    "--continue",
    "continues",
    metavar="RUN",
    shell_complete=complete_runs,
    help="Go on from where a run ended, in the same thread, by the program's own record; or `last`.",
)
@click.option("--open", "opens", is_flag=True, help="Serve a page with the run beside it, and open that in a browser.")
@options.plain
@options.as_json
@options.by
@options.store
@options.log_level
@options.log_format
def exec(store: str, plain: bool, as_json: bool, by: str, **wanted: Any) -> int:
    """Run a program of any kind, such as a coding agent, as a run.

    It is paused, resumed and cancelled with all that it has started. In a terminal: Ctrl-] and then p, r, c or d for
    pause, redirect, cancel and detach. Elsewhere Ctrl-C pauses, a second one cancels. From another terminal:
    `checkrein pause last` and the other verbs. Exit code: the program's own where it ended by itself, 3 cancelled,
    4 left unfinished.
    """
    in_terminal = output.is_terminal() and not (plain or as_json)
    return _exec(Wanted(**wanted), store, Manner(as_json, in_terminal, by))


class Manner(NamedTuple):
    """How the person is shown the run beside the program."""

    as_json: bool
    in_terminal: bool
    """The program gets a terminal of its own, with our line below it; otherwise it has our streams."""
    by: str


def _exec(wanted: Wanted, store: str, manner: Manner) -> int:
    if wanted.continues is not None:
        wanted = asyncio.run(_going_on(wanted, wanted.continues, store))
    if not wanted.command:
        raise click.UsageError("Say which program after `--`, as in: checkrein exec -- claude")
    file = shutil.which(wanted.command[0])
    if file is None:
        return _cannot_be_run(wanted.command[0], as_json=manner.as_json)
    check_writable(store)
    upstreams = _upstreams(wanted)
    _check_approvals(wanted, file)
    page = _page(wanted, store)
    if wanted.sealed:
        from checkrein.exec.seal import check_allowed

        check_allowed()
    run = partial(_run, wanted, os.path.abspath(file), upstreams, store, manner, page)
    if not manner.in_terminal:
        return asyncio.run(run(None))
    from checkrein.cli.terminal.session import hold_terminal

    # Before anything has threads or an event loop: this process becomes two.
    return hold_terminal(lambda held: asyncio.run(run(held)))


async def _going_on(wanted: Wanted, run: str, store: str) -> Wanted:
    """What is asked for where a program goes on from `run`: what is said after `--` goes behind its own arguments."""
    from checkrein.exec.continuation import continued

    async with opened(store, None) as session:
        found = await find_run(session, run)
        command = await continued(session.journal, found, wanted.command, profile=wanted.profile)
    return wanted._replace(command=tuple(command), continues=found)


def _page(wanted: Wanted, store: str) -> PageAccess | None:
    if not wanted.opens:
        return None
    from checkrein.server.processes.beside import PageAccess

    return PageAccess(store)


def _check_approvals(wanted: Wanted, file: str) -> None:
    profile = profile_of(file, wanted.profile)
    if wanted.approve and not profile.asks:
        asking = " and ".join(one.name for one in PROFILES if one.asks)
        raise WrongInput(
            f"--approve is for programs that ask before they use a tool: {asking}. {one_line(wanted.command[0], 200)} "
            "does not; pause it, or give it a cap.",
            code="asks_nobody",
        )


def _upstreams(wanted: Wanted) -> dict[str, str]:
    """Where requests go on to, as far as that was said here. Raises what cannot be meant."""
    from checkrein.gateway.upstream import upstreams_of

    said: dict[str, str] = {}
    for one in wanted.upstream:
        provider, equals, url = one.partition("=")
        if not equals or not url:
            raise click.UsageError(f"--upstream {one} is no PROVIDER=URL, such as openai=http://127.0.0.1:8000/v1.")
        said[provider] = url
    upstreams_of(said)  # what cannot be meant is said before anything begins
    return said


def _cannot_be_run(name: str, *, as_json: bool) -> int:
    """Why there is no such program, in the words and with the codes of a shell."""
    said = one_line(name, 200)
    if "/" in name and os.path.exists(name):
        what = "is a folder" if os.path.isdir(name) else "may not be executed: chmod +x makes it a program"
        output.complain("not_executable", f"{said} {what}.", as_json=as_json)
        return NOT_EXECUTABLE
    where = "There is no such file." if "/" in name else "It is in no folder of PATH."
    output.complain("command_not_found", f"There is no program {said}. {where}", as_json=as_json)
    return NOT_FOUND


async def _run(
    wanted: Wanted,
    file: str,
    upstreams: Mapping[str, str],
    store: str,
    manner: Manner,
    page: PageAccess | None,
    held: Line | None,
) -> int:
    from checkrein.engines.own_runs import OwnRunsEngine
    from checkrein.exec.program import CommandProgram
    from checkrein.runtime import Runtime

    name = wanted.name or os.path.basename(wanted.command[0])
    attendance = None if held is None else _attendance(held, name, manner)
    terminal = None if attendance is None else attendance.terminal
    stack = AsyncExitStack()

    async def show(run: str) -> None:
        if page is not None:
            link = await stack.enter_async_context(page.served(runtime, run))
            (output.note if attendance is None else attendance.print)(
                f"Open this in a browser (it works once):  {link}"
            )
            _open(link)

    program = CommandProgram(
        name,
        _command(file, wanted, terminal),
        profile_of(file, wanted.profile),
        upstreams=upstreams,
        sealed=wanted.sealed,
        approves=wanted.approve,
        before=show,
        stop_when=_caps(wanted),
    )
    with nullcontext() if attendance is None else logs.held():
        async with Runtime(store, agents=[program], engine=OwnRunsEngine) as runtime, stack:
            logs.redact_with(runtime.secrets)
            goal = wanted.goal or shlex.join(wanted.command)
            run = await runtime.start(program, goal, continues=wanted.continues)
            if attendance is None:
                return await _attend(runtime, run.id, program, manner)
            return _exit_code(await attendance.attend(runtime, run.id), program)


def _open(link: str) -> None:
    from checkrein.cli.commands.operate.serve import has_browser, open_browser

    if has_browser():
        open_browser(link)


def _attendance(held: Line, name: str, manner: Manner) -> Attendance:
    from checkrein.cli.terminal.attendance import Attendance

    return Attendance(held, name, by=manner.by)


def _command(file: str, wanted: Wanted, terminal: int | None) -> Command:
    from checkrein.calls.process import Command

    # Its terminal says how large it is; these would say it of ours.
    sizes = () if terminal is None else ("LINES", "COLUMNS")
    environment = {name: value for name, value in os.environ.items() if name not in sizes}
    return Command(
        file=file,
        arguments=wanted.command,
        environment=environment,
        freezes=wanted.pause == "freeze",
        terminal=terminal,
    )


def _caps(wanted: Wanted) -> Condition | None:
    from checkrein.core.conditions import Cost, Elapsed, Turns

    caps: list[Condition] = []
    if wanted.turns is not None:
        caps.append(Turns(wanted.turns))
    if wanted.cost is not None:
        caps.append(Cost(usd=wanted.cost))
    if wanted.minutes is not None:
        caps.append(Elapsed(minutes=wanted.minutes))
    whole: Condition | None = None
    for cap in caps:
        whole = cap if whole is None else whole | cap
    return whole


async def _attend(runtime: Runtime, run: str, program: CommandProgram, manner: Manner) -> int:
    """Beside a program that has our streams: what is said about the run goes to standard error."""
    from checkrein.cli.attach import PlainAttachment, result_of
    from checkrein.cli.printers import JsonPrinter, VerbPrinter

    printer: Printer = JsonPrinter(sys.stderr, sys.stderr) if manner.as_json else VerbPrinter(sys.stderr)
    attendance = PlainAttachment(runtime.journal, runtime.control, run, printer, by=manner.by, runtime=runtime)
    status = await attendance.attend()
    if manner.as_json:
        printer.end(await result_of(runtime.journal, run))
    if status not in TERMINAL:
        printer.say(f"{program.name} ends with this process, and what it was doing is in doubt.")
    if status not in ENDED_BY_ITSELF and program.going_on:
        printer.say(program.going_on)
    return _exit_code(status, program)


def _exit_code(status: Status, program: CommandProgram) -> int:
    if status in ENDED_BY_ITSELF and program.exit_code is not None:
        return program.exit_code
    return output.of_status(status)
