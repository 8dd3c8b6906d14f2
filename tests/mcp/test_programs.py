"""A server's tools in a program: recorded, stopped and undone like every other call."""

from __future__ import annotations

from typing import Any

import pytest

from checkrein import MCP, CallFailed, Context, Runtime, agent
from checkrein.core.enums import EffectState, Outcome
from checkrein.core.events import CallStarted
from tests.mcp.scene import command
from tests.support.runs import effects, events, outcomes, settled
from tests.support.witness import Witness

pytestmark = pytest.mark.anyio

SHELF: MCP


async def take_back(call: Any) -> None:
    await SHELF.call("delete_note", number=call.result)


async def test_a_program_uses_a_servers_tool_and_a_cancel_takes_it_back(runtime: Runtime, witness: Witness) -> None:
    global SHELF
    SHELF = command(witness, tools={"add_note": {"undo": take_back}, "work": {"effect": "none"}})

    @agent(tools=[SHELF])
    async def shopping(ctx: Context, goal: str) -> str:
        number = await ctx.tool(SHELF.tool("add_note"), text="milk")
        with pytest.raises(CallFailed, match="the shelf is empty"):
            await ctx.tool(SHELF.tool("fail"))
        await ctx.tool(SHELF.tool("work"), steps=2000, seconds=0.02)
        return f"note {number}"

    run = await runtime.start(shopping, "Go shopping.")
    await witness.saw("work step")

    receipt = settled(await run.cancel())

    assert outcomes(receipt) == {"work": Outcome.ABORTED}
    assert effects(receipt)["add_note"] is EffectState.UNDONE
    assert witness.lines("delete 1")
    names = [call.name for call in await events(runtime, run, CallStarted)]
    assert names == ["add_note", "fail", "work", "add_note"]


async def test_a_program_gets_the_value_that_the_server_gave(runtime: Runtime, witness: Witness) -> None:
    notes = command(witness)

    @agent
    async def counting(ctx: Context, goal: str) -> Any:
        table = await ctx.tool(notes.tool("table"))
        return sum(table["rows"])

    assert await (await runtime.start(counting, "Count.")).result() == 3
