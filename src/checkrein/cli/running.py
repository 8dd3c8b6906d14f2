"""Running an agent of a file: load it, open a runtime, start or take up a run, and attach to it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import msgspec

from checkrein.cli import saying
from checkrein.cli.attached import Manner, attach
from checkrein.cli.clean import one_line, printable
from checkrein.cli.finding import agents_in, the_agent
from checkrein.cli.naming import find_run
from checkrein.cli.options import who
from checkrein.cli.prints import Taps, caught
from checkrein.cli.session import Session, opened
from checkrein.control.runs import Runtime
from checkrein.control.starting import IfBusy
from checkrein.core.words import TERMINAL, Status
from checkrein.errors import WrongInput
from checkrein.runtime.identity import this_process

if TYPE_CHECKING:
    from checkrein.runtime.spec import Program

_BUSY: Final = ("queue", "redirect", "refuse")


class Wanted(NamedTuple):
    """What the command line asks for."""

    file: Path
    goal: str | None = None
    agent: str | None = None
    resume: str | None = None
    continues: str | None = None
    thread: str | None = None
    if_busy: str = "queue"
    owner: str = ""


def carry_out(wanted: Wanted, store: str, *, json: bool, plain: bool, leave: bool, by: str) -> int:
    """Run it and return the exit code."""
    _check(wanted)
    manner = Manner(json=json, plain=plain, is_terminal=saying.is_terminal(), leave=leave, by=who(by))
    with caught(lambda line: None) as taps:
        taps.tell = lambda line: print(printable(line), file=taps.err, flush=True)
        agents = agents_in(wanted.file)
        return asyncio.run(_run(wanted, agents, store, manner, taps))


def run_agent(agent: Program, goal: str, store: str, manner: Manner) -> int:
    """Run an agent that needs no file."""
    with caught(lambda line: None) as taps:
        wanted = Wanted(file=Path("-"), goal=goal)
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
    if wanted.if_busy not in _BUSY:
        raise WrongInput(f"--if-busy is one of {', '.join(_BUSY)}.", code="usage")


async def _run(wanted: Wanted, agents: Mapping[str, Program], store: str, manner: Manner, taps: Taps) -> int:
    agent = None
    if wanted.resume is None:
        agent = the_agent(wanted.file, dict(agents), wanted.agent)
    named = await _named_runs(wanted, agents, store)
    await _tell_what_is_taken_up(agents, store, named.get("resume"), taps)
    async with Runtime(store, agents=tuple(agents.values())) as runtime:
        if agent is not None:
            run = (await runtime.start(agent, wanted.goal or "", **_options(wanted, named))).id
        else:
            run = named["resume"]
            await _take_up(runtime, run, manner.by)
        here = runtime if await _is_ours(runtime, run) else None
        return await attach(runtime.journal, runtime.control, run, manner, runtime=here, taps=taps)


async def _is_ours(runtime: Runtime, run: str) -> bool:
    """Whether this process drives the run, or will. One that a redirect has reached may live in another."""
    lease = await runtime.journal.lease(run)
    # Not by its name: each runtime of a process has one of its own.
    return lease is None or msgspec.structs.replace(lease.owner, process="") == msgspec.structs.replace(
        this_process(), process=""
    )


async def _tell_what_is_taken_up(agents: Mapping[str, Program], store: str, but: str | None, taps: Taps) -> None:
    """A runtime goes on with every unfinished run that it has the agent of and that nobody drives. Say with which."""
    with suppress(WrongInput):  # there is no store yet
        async with opened(store) as session:
            for row in await session.journal.runs(status=frozenset(Status) - TERMINAL):
                state = await session.journal.load(row.id)
                rests = state.status is Status.PAUSED and not state.resumes_itself
                if row.agent in agents and row.id != but and not rests and not await session.is_driven(row.id):
                    print(f"Also goes on here: {row.id}, {one_line(row.goal, 80)}", file=taps.err, flush=True)


def _options(wanted: Wanted, named: Mapping[str, str]) -> dict[str, Any]:
    options: dict[str, Any] = {"owner": wanted.owner, "if_busy": cast(IfBusy, wanted.if_busy)}
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
    async with opened(store) as session:
        if wanted.continues is not None:
            named["continues"] = await find_run(session, wanted.continues)
        if wanted.resume is not None:
            named["resume"] = await find_run(session, wanted.resume)
            await _check_resumable(session, named["resume"], wanted.file, agents)
    return named


async def _check_resumable(session: Session, run: str, file: Path, agents: Mapping[str, Program]) -> None:
    state = await session.journal.load(run)
    if state.is_finished:
        raise WrongInput(
            f"Run {run} is {state.status.value} and cannot be taken up; go on from it with --continue {run}.",
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
