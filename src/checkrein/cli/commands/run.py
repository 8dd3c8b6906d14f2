"""`checkrein run`: load the agents of a file, open a runtime, start or take up a run, and attach to it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from checkrein import logs
from checkrein.agents.loader import agents_in, is_target, the_agent
from checkrein.cli import options, output
from checkrein.cli.completion import complete_runs
from checkrein.cli.lookup import find_run
from checkrein.cli.session import StoreSession, check_writable, opened
from checkrein.core.enums import UNFINISHED, Status
from checkrein.core.escape import one_line, printable
from checkrein.errors import WrongInput
from checkrein.journal import MEMORY
from checkrein.processes.capture import Taps, caught

if TYPE_CHECKING:
    from checkrein.cli.attach import Manner
    from checkrein.control.start import IfBusy
    from checkrein.driver.program_api import Program
    from checkrein.runtime import Runtime

_log = logging.getLogger(__name__)


class Wanted(NamedTuple):
    """What the command line asks for."""

    file: str
    goal: str | None = None
    agent: str | None = None
    resume: str | None = None
    continues: str | None = None
    thread: str | None = None
    if_busy: IfBusy = "queue"
    owner: str = ""
    listen_store: str | None = None


@click.command
@options.agents_file(
    required=True, help="A Python file with an agent at its top level, or a module; `agent.py:name` means one of them."
)
@click.argument("goal", metavar="[GOAL]", required=False, help="What the agent is to do.")
@options.agent
@click.option(
    "--resume",
    metavar="RUN",
    shell_complete=complete_runs,
    help="Take up an unfinished run, instead of starting one; or `last`.",
)
@click.option(
    "--continue",
    "continues",
    metavar="RUN",
    shell_complete=complete_runs,
    help="Go on from where a finished run ended, in the same thread.",
)
@options.thread
@options.if_busy
@click.option("--owner", metavar="NAME", default="", help="Whose run it is.")
@click.option("--leave", is_flag=True, help="Exit when the run is paused or needs you; with code 4.")
@options.plain
@options.as_json
@options.by
@options.store
@options.listen_store
@options.log_level
@options.log_format
def run(store: str, listen_store: str | None, plain: bool, as_json: bool, leave: bool, by: str, **wanted: Any) -> int:
    """Run an agent, attached to this terminal.

    Ctrl-C pauses and says how to go on; a second one cancels, a third kills this process. Exit code: 0 completed,
    1 failed, 2 wrong input, 3 cancelled, 4 left unfinished.
    """
    from checkrein.cli.attach import Manner

    manner = Manner(
        json=as_json, plain=plain, is_terminal=output.is_terminal(), leave=leave, by=by, in_memory=store == MEMORY
    )
    return run_file(_configured(Wanted(**wanted, listen_store=listen_store)), store, manner)


def _configured(wanted: Wanted) -> Wanted:
    """The same, where the file is said once for all: then a word that names no file is the goal."""
    configured = str(click.get_current_context().lookup_default("file") or "")
    if configured and wanted.goal is None and not is_target(wanted.file):
        wanted = wanted._replace(file=configured, goal=wanted.file)
    output.remember_file("" if wanted.file == configured else wanted.file)
    return wanted


def run_file(wanted: Wanted, store: str, manner: Manner) -> int:
    """Run it and return the exit code."""
    _check(wanted)
    check_writable(store)
    with caught(lambda line: None) as taps:
        taps.tell = lambda line: print(printable(line), file=taps.err, flush=True)
        agents = agents_in(wanted.file)
        return asyncio.run(_run(wanted, agents, store, manner, taps))


def run_agent(agent: Program, goal: str, store: str, manner: Manner) -> int:
    """Run an agent that needs no file."""
    check_writable(store)
    with caught(lambda line: None) as taps:
        wanted = Wanted(file="", goal=goal)
        return asyncio.run(_run(wanted, {agent.name: agent}, store, manner, taps))


def _check(wanted: Wanted) -> None:
    if wanted.resume is None and wanted.continues is None and not (wanted.goal or "").strip():
        raise WrongInput(
            f'Say what the agent is to do: checkrein run {wanted.file} "…"; or take up a run with --resume.',
            code="no_goal",
        )
    if wanted.resume is not None and (wanted.goal is not None or wanted.continues is not None):
        raise WrongInput(
            "--resume takes up a run as it is, without another goal; an instruction is given with `checkrein resume`.",
            code="usage",
        )


async def _run(wanted: Wanted, agents: Mapping[str, Program], store: str, manner: Manner, taps: Taps) -> int:
    from checkrein.cli.attach import attach
    from checkrein.processes import orphans
    from checkrein.runtime import Runtime

    agent = None
    if wanted.resume is None:
        agent = the_agent(wanted.file, dict(agents), wanted.agent)
    named = await _named_runs(wanted, agents, store)
    await _tell_what_is_taken_up(wanted, agents, store, named.get("resume"), taps)
    opening = Runtime(store, agents=tuple(agents.values()), listen_store=wanted.listen_store)
    async with orphans.adopting(), opening as runtime:
        logs.redact_with(runtime.secrets)
        if agent is not None:
            run = (await runtime.start(agent, wanted.goal or "", **_options(wanted, named))).id
        else:
            run = named["resume"]
            await _take_up(runtime, run, manner.by)
        here = runtime if await _is_ours(runtime, run) else None
        return await attach(runtime.journal, runtime.control, run, manner, runtime=here, taps=taps)


async def _is_ours(runtime: Runtime, run: str) -> bool:
    """Whether this process drives the run, or will. One that a redirect has reached may live in another."""

    import msgspec

    from checkrein.driver.ownership import is_driven
    from checkrein.processes.identity import this_process

    lease = await runtime.journal.lease(run)
    if lease is None or not await is_driven(runtime.journal, run, at=runtime.now()):
        return True  # one that a dead process has left is taken up in a moment
    # Not by its name: each runtime of a process has one of its own.
    return msgspec.structs.replace(lease.owner, process="") == msgspec.structs.replace(this_process(), process="")


async def _tell_what_is_taken_up(
    wanted: Wanted, agents: Mapping[str, Program], store: str, but: str | None, taps: Taps
) -> None:
    """A runtime goes on with every unfinished run that it has the agent of and that nobody drives. Say with which."""
    try:
        async with opened(store, wanted.listen_store) as session:
            for row in await session.journal.runs(status=UNFINISHED):
                state = await session.journal.load(row.id)
                rests = state.status is Status.PAUSED and not state.resumes_itself
                if row.agent in agents and row.id != but and not rests and not await session.is_driven(row.id):
                    print(f"Also goes on here: {row.id}, {one_line(row.goal, 80)}", file=taps.err, flush=True)
                    _log.info("an unfinished run is taken up", extra={"run": row.id})
    except WrongInput as error:
        _log.debug("nothing to take up: %s", error)  # there is no store yet


def _options(wanted: Wanted, named: Mapping[str, str]) -> dict[str, Any]:
    options: dict[str, Any] = {"owner": wanted.owner, "if_busy": wanted.if_busy}
    if wanted.thread is not None:
        options["thread"] = wanted.thread
    if "continues" in named:
        options["continues"] = named["continues"]
    return options


async def _named_runs(wanted: Wanted, agents: Mapping[str, Program], store: str) -> dict[str, str]:
    """The runs that the command line names, by what they are named for. Looked up before anything is taken up."""
    named: dict[str, str] = {}
    if wanted.resume is None and wanted.continues is None:
        return named
    async with opened(store, wanted.listen_store) as session:
        if wanted.continues is not None:
            named["continues"] = await find_run(session, wanted.continues)
        if wanted.resume is not None:
            named["resume"] = await find_run(session, wanted.resume)
            await _check_resumable(session, named["resume"], wanted.file, agents)
    return named


async def _check_resumable(session: StoreSession, run: str, file: str, agents: Mapping[str, Program]) -> None:
    state = await session.journal.load(run)
    if state.is_finished:
        raise WrongInput(
            f"Run {run} is {state.status.value} and cannot be taken up. Go on from it with: {output.go_on_from(run)}",
            code="run_over",
        )
    if state.agent not in agents:
        raise WrongInput(
            f"Run {run} belongs to agent {state.agent}, and {file} has: {', '.join(agents)}.", code="agent_not_found"
        )
    if await session.is_driven(run):
        raise WrongInput(
            f"Run {run} is at work in another process; use `checkrein watch {run}` or `checkrein resume {run}`.",
            code="run_driven",
        )


async def _take_up(runtime: Runtime, run: str, by: str) -> None:
    """Resume a run that is paused; one that is unfinished otherwise was taken up when the runtime opened."""
    state = await runtime.journal.load(run)
    if state.status is Status.PAUSED and not state.resumes_itself:
        await runtime.control.resume(run, by=by, wait=0)
