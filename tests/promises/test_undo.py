"""Undos: what they return is nobody's business, and one is found also when its tool is no longer the agent's."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from checkrein import Agent, Runtime, agent, tool
from checkrein.core.enums import EffectState, Status
from tests.support import runs
from tests.support.abort_tools import draft, work
from tests.support.witness import Witness, note

pytestmark = pytest.mark.anyio


class Unencodable:
    """As what an HTTP client returns."""

    def __repr__(self) -> str:
        raise RuntimeError("nobody may look at it")


def return_something(call: Any) -> Any:
    note(call.arguments["log"], "undo in a worker")
    return Unencodable()


async def return_something_async(call: Any) -> Any:
    note(call.arguments["log"], "undo in a task")
    return Unencodable()


@tool(undo=return_something)
async def make_one(log: str) -> str:
    note(log, "one")
    return "one"


@tool(undo=return_something_async)
async def make_two(log: str) -> str:
    note(log, "two")
    return "two"


UNDOS = ["undo in a task", "undo in a worker"]


async def test_what_an_undo_returns_is_dropped(runtime: Runtime, witness: Witness) -> None:
    log = {"log": witness.log}
    churn = runs.agent(
        [runs.calls(("make_one", log)), runs.calls(("make_two", log)), runs.calls(("work", log))],
        [make_one, make_two, work],
    )
    run = await runs.at_work(runtime, churn, witness)

    receipt = runs.settled(await run.cancel())

    assert runs.effects(receipt) == {"make_one": EffectState.UNDONE, "make_two": EffectState.UNDONE}
    assert witness.words()[-2:] == UNDOS


async def take(log: str, what: str) -> str:
    note(log, what)
    return what


async def wait(log: str) -> None:
    note(log, "work")
    await asyncio.sleep(3600)


@agent(name="taker")
async def taker(ctx: Any, goal: str) -> None:
    await ctx.call(take, goal, "one", undo=undo_of_program)
    await ctx.call(take, goal, "two", undo=undo_of_program_async)
    await ctx.call(wait, goal, effect="none")


def undo_of_program(call: Any) -> Any:
    note(call.arguments["log"], "undo in a worker")
    return Unencodable()


async def undo_of_program_async(call: Any) -> Any:
    note(call.arguments["log"], "undo in a task")
    return Unencodable()


async def test_what_an_undo_of_a_program_returns_is_dropped(runtime: Runtime, witness: Witness) -> None:
    run = await runtime.start(taker, witness.log)
    await witness.saw("work")

    receipt = runs.settled(await run.cancel())

    assert [effect.now for effect in receipt.effects] == [EffectState.UNDONE] * 2
    assert witness.words()[-2:] == UNDOS


# -- a tool that was taken out of its agent


def local_tool() -> Any:
    async def discard_local(call: Any) -> None:
        note(call.arguments["log"], "undo local")

    @tool(undo=discard_local)
    async def local_draft(log: str) -> str:
        note(log, "local")
        return "local"

    return local_draft


def churn_with(witness: Witness, tools: list[Any], *names: str) -> Agent:
    log = {"log": witness.log}
    turns = [runs.calls((name, log)) for name in names]
    return runs.agent([*turns, runs.calls(("work", runs.until_let(witness))), "done"], [*tools, work])


async def test_the_effect_of_a_tool_that_was_taken_out_of_the_agent_is_undone_if_its_undo_can_be_found(
    store: str, witness: Witness
) -> None:
    async with Runtime(store) as first:
        run = await runs.paused_at_work(
            first, churn_with(witness, [draft, local_tool()], "draft", "local_draft"), witness
        )

    async with Runtime(store, agents=[churn_with(witness, [])]) as second:
        again = await second.get(run.id)
        receipt = runs.settled(await again.cancel(wait=60))

    assert receipt.status is Status.CANCELLED
    told = {effect.what: (effect.now, effect.why) for effect in receipt.effects}
    assert told["draft"] == (EffectState.UNDONE, "")
    state, why = told["local_draft"]
    assert state is EffectState.LEFT
    assert why.startswith("its undo could not begin: tests.promises.test_undo:local_tool.<locals>.discard_local cannot")
    assert witness.words().count("undo draft") == 1
    assert "undo local" not in witness.words()
