"""Whole runs on the real runtime, each with only one possible order of events."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

from checkrein import Receipt, Run, RunFailed, Runtime
from checkrein.control.halt import Halting
from checkrein.core.state import State
from checkrein.journal.base import Fence, Scope
from checkrein.processes.identity import this_process
from tests.golden import agents
from tests.golden.agents import boss, capped, clerk, ended, gate, planner, program, watched
from tests.golden.normal import Names, journal_lines
from tests.support.patience import PATIENCE_SECONDS

Play = Callable[[Runtime], Awaitable[Run]]


@asynccontextmanager
async def stage(folder: Path) -> AsyncIterator[Runtime]:
    """A runtime with every agent of the golden runs, in a folder of its own. Nothing is taken for a secret."""
    before = os.environ.get(agents.LOG)
    os.environ[agents.LOG] = str(folder / "log")
    try:
        async with Runtime(f"sqlite:///{folder}/runs.db", agents=agents.AGENTS, secrets=()) as runtime:
            yield runtime
    finally:
        if before is None:
            del os.environ[agents.LOG]
        else:
            os.environ[agents.LOG] = before


async def played(runtime: Runtime, play: Play) -> str:
    """Play one scenario and write down the journal of its run, and those of its sub-runs."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        run = await play(runtime)
    names = Names()
    lines = journal_lines(await runtime.journal.read(run.id), names)
    for row in reversed(await runtime.journal.runs(root=run.id)):
        lines += ["-- sub-run", *journal_lines(await runtime.journal.read(row.id), names)]
    return "\n".join(lines) + "\n"


# -- waiting


async def noted(word: str) -> None:
    """Return when a tool or a model has written this to their log."""
    while word not in agents.words():
        await asyncio.sleep(0.005)


async def until(run: Run, holds: Callable[[State], object]) -> State:
    while not holds(state := await run.state()):
        await asyncio.sleep(0.005)
    return state


async def until_status(run: Run, status: str) -> State:
    return await until(run, lambda state: state.status == status)


async def ends(run: Run) -> Run:
    with suppress(RunFailed):
        await run.result()
    return run


def settled(receipt: object) -> None:
    assert isinstance(receipt, Receipt), receipt


def _to_the_end(agent: Any, goal: str) -> Play:
    async def play(runtime: Runtime) -> Run:
        return await ends(await runtime.start(agent, goal))

    return play


# -- pause and resume


async def pause_in_a_text(runtime: Runtime) -> Run:
    run = await runtime.start(clerk, "tells", owner="ann")
    await noted("waiting tells")
    settled(await run.pause(by="ann", reason="lunch"))
    gate("tells").touch()
    await run.resume(by="bob")
    return await ends(run)


async def pause_at_work(runtime: Runtime) -> Run:
    run = await runtime.start(clerk, "pauses at work")
    await noted("begin ann")
    pausing = asyncio.create_task(run.pause(by="ann"))
    await until_status(run, "pausing")
    gate("pauses at work").touch()
    settled(await pausing)
    await run.resume("go on, but briefly", by="ann", wait=0.0)
    return await ends(run)


async def pause_of_a_tool_that_may_be_tried_again(runtime: Runtime) -> Run:
    run = await runtime.start(clerk, "pauses a fetch")
    await noted("fetch pauses a fetch")
    settled(await run.pause(by="ann"))
    gate("pauses a fetch").touch()
    await run.resume(by="ann")
    return await ends(run)


# -- redirect


async def redirect_now(runtime: Runtime) -> Run:
    run = await runtime.start(clerk, "redirected")
    await noted("begin bob")
    settled(await run.redirect("only Q3", by="ann", reason="too much"))
    return await ends(run)


async def redirect_at_the_next_step(runtime: Runtime) -> Run:
    run = await runtime.start(clerk, "redirected later")
    await until(run, lambda state: any(live.name == "slow_draft" for live in state.live.values()))
    redirecting = asyncio.create_task(run.redirect("only Q3", when="next_step", by="ann", wait=PATIENCE_SECONDS))
    await until(run, lambda state: state.verbs)
    gate("redirected later").touch()
    settled(await redirecting)
    return await ends(run)


async def redirect_in_a_text(runtime: Runtime) -> Run:
    run = await runtime.start(clerk, "tells and drafts")
    await noted("waiting tells and drafts")
    settled(await run.redirect("that will do", by="ann"))
    gate("tells and drafts").touch()
    return await ends(run)


# -- cancel


def _cancelled(undo: str) -> Play:
    async def play(runtime: Runtime) -> Run:
        seen = agents.words().count("begin bob")
        run = await runtime.start(clerk, "cancelled")
        await until(run, lambda state: any(live.name == "slow_draft" for live in state.live.values()))
        while agents.words().count("begin bob") == seen:
            await asyncio.sleep(0.005)
        settled(await run.cancel(undo=undo, by="ann", reason="wrong direction"))
        return run

    return play


def _cancelled_at(word: str, program: Any, goal: str) -> Play:
    """Cancelled once a tool has noted `word`."""

    async def play(runtime: Runtime) -> Run:
        run = await runtime.start(program, goal)
        await noted(word)
        settled(await run.cancel(by="ann"))
        return run

    return play


async def sub_runs_complete(runtime: Runtime) -> Run:
    gate("completes below").touch()
    return await ends(await runtime.start(boss, "completes below"))


async def cancel_of_a_paused_run(runtime: Runtime) -> Run:
    run = await runtime.start(clerk, "pays")
    await until(run, lambda state: state.approvals)
    settled(await run.pause(by="ann"))
    settled(await run.cancel(by="ann"))
    return run


async def halt(runtime: Runtime) -> Run:
    run = await runtime.start(clerk, "halted")
    await until(run, lambda state: any(live.name == "slow_draft" for live in state.live.values()))
    halting = Halting(runtime.journal, this_process())
    fence = Fence(scope=Scope.RUN, name=run.id, by="operator", reason="enough", at=time.time())
    await runtime.journal.fence(fence, host="")
    # Its driver stops the call at the fence; whether it has by the time the run is ended is otherwise a race.
    await until(run, lambda state: not state.live)
    await halting.end("run", run.id, wait=PATIENCE_SECONDS)
    return run


async def abort_of_one_call(runtime: Runtime) -> Run:
    run = await runtime.start(clerk, "aborted")
    await noted("crunch aborted")
    state = await run.state()
    (call,) = state.live
    settled(await run.abort(call, by="ann"))
    return await ends(run)


async def side_question(runtime: Runtime) -> Run:
    run = await runtime.start(clerk, "asked")
    await noted("crunch asked")
    assert await run.ask("How far are you?", by="ann") == "Half way."
    gate("asked").touch()
    return await ends(run)


# -- approvals


async def _asked(runtime: Runtime, goal: str) -> tuple[Run, str]:
    run = await runtime.start(clerk, goal)
    state = await until(run, lambda state: state.approvals)
    return run, next(iter(state.approvals))


async def approval_granted(runtime: Runtime) -> Run:
    run, call = await _asked(runtime, "pays")
    await run.approve(call, by="ann", note="as agreed")
    return await ends(run)


async def approval_denied(runtime: Runtime) -> Run:
    run, call = await _asked(runtime, "pays")
    await run.deny(call, by="ann", note="over budget")
    return await ends(run)


# -- what stops by itself


async def cap_pauses_and_is_granted_again(runtime: Runtime) -> Run:
    run = await runtime.start(capped, "many looks")
    await until_status(run, "paused")
    await run.resume(by="ann")
    await until_status(run, "paused")
    settled(await run.cancel(by="ann"))
    return run


async def a_model_that_refuses_pauses(runtime: Runtime) -> Run:
    run = await runtime.start(clerk, "unauthorised")
    await until_status(run, "paused")
    await run.resume(by="ann")
    return await ends(run)


async def a_watcher_pauses(runtime: Runtime) -> Run:
    run = await runtime.start(watched, "confess")
    await until_status(run, "paused")
    settled(await run.cancel(by="ann"))
    return run


async def thread_continues(runtime: Runtime) -> Run:
    first = await ends(await runtime.start(clerk, "first of a thread", thread="golden"))
    return await ends(await runtime.start(clerk, "And then?", continues=first.id))


SCENARIOS: Final[Mapping[str, Play]] = {
    "agent_answers": _to_the_end(clerk, "answer"),
    "agent_thinks": _to_the_end(clerk, "think"),
    "agent_uses_two_tools": _to_the_end(clerk, "two tools"),
    "tool_fails": _to_the_end(clerk, "tool fails"),
    "tool_is_unknown": _to_the_end(clerk, "unknown tool"),
    "tool_gets_wrong_arguments": _to_the_end(clerk, "wrong arguments"),
    "model_is_retried": _to_the_end(clerk, "limited"),
    "agent_delegates": _to_the_end(clerk, "delegates"),
    "agent_follows_a_plan": _to_the_end(planner, "planned"),
    "cap_cancels": _to_the_end(ended, "many looks"),
    "program_uses_everything": _to_the_end(program, "everything"),
    "program_raises": _to_the_end(program, "raises"),
    **{
        play.__name__: play
        for play in (
            pause_in_a_text, pause_at_work, pause_of_a_tool_that_may_be_tried_again,
            redirect_now, redirect_at_the_next_step, redirect_in_a_text,
            sub_runs_complete, cancel_of_a_paused_run, halt, abort_of_one_call, side_question,
            approval_granted, approval_denied, cap_pauses_and_is_granted_again,
            a_model_that_refuses_pauses, a_watcher_pauses, thread_continues,
        )
    },
    "cancel_undo_open": _cancelled("open"),
    "cancel_undo_all": _cancelled("all"),
    "cancel_undo_none": _cancelled("none"),
    "cancel_with_an_undo_that_fails": _cancelled_at("crunch stubborn", clerk, "stubborn"),
    "cancel_leaves_what_is_settled": _cancelled_at("crunch settles", clerk, "settles"),
    "cancel_of_sub_runs": _cancelled_at("begin below cancelled below", boss, "cancelled below"),
}  # fmt: skip
"""By name. Every one leaves its run finished, so that none disturbs another on the same runtime."""
