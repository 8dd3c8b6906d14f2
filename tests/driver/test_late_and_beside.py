"""What a tool has led to does not belong to it: the record of its late end, and runs that it has started."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import pytest

from checkrein import Context, Receipt, Runtime, agent, tool
from checkrein.core.events import CallAnswered
from tests.support.patience import PATIENCE_SECONDS
from tests.support.tools import whatever_is_raised
from tests.support.witness import Witness, note

pytestmark = pytest.mark.anyio


def hold_until_let(log: str) -> None:
    """Blocks in small sleeps that no exception can end, until its file is there."""

    def work() -> None:
        if not Witness(log).lines("held"):
            note(log, "held")
        while not os.path.exists(f"{log}.go"):
            time.sleep(0.02)
        note(log, "let")

    whatever_is_raised(work)


def undo_hold(call: Any) -> None:
    note(call.arguments["log"], "undone")


async def hold(log: str) -> None:
    await asyncio.to_thread(hold_until_let, log)


async def test_the_late_end_of_a_detached_call_is_recorded_and_its_effect_undone_at_once(
    runtime: Runtime, witness: Witness
) -> None:
    """Its tool has left a thread that cannot be stopped: it is undone when that has ended, not when time is up."""

    @agent(name="holder")
    async def program(ctx: Context, log: str) -> None:
        await ctx.call(hold, log, undo=undo_hold)

    run = await runtime.start(program, witness.log)
    await witness.saw("held")
    cancelling = asyncio.create_task(run.cancel(wait=PATIENCE_SECONDS))
    await until_detached(runtime, run.id)
    let_at = time.time()
    Path(f"{witness.log}.go").touch()

    receipt = await cancelling

    assert isinstance(receipt, Receipt)
    assert [(effect.what, effect.now) for effect in receipt.effects] == [("hold", "undone")]
    assert witness.words() == ["held", "let", "undone"]
    (answered,) = [r.event for r in await runtime.journal.read(run.id) if isinstance(r.event, CallAnswered)]
    assert answered.at >= let_at - 1


async def until_detached(runtime: Runtime, run: str) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (await runtime.journal.load(run)).doubts:
            await asyncio.sleep(0.02)


async def mail(log: str) -> str:
    note(log, "sending")
    while not os.path.exists(f"{log}.go"):
        await asyncio.sleep(0.01)
    note(log, "sent")
    return "sent"


async def test_a_run_that_a_tool_has_started_does_not_end_with_the_tool(runtime: Runtime, witness: Witness) -> None:
    @agent(name="second")
    async def second(ctx: Context, log: str) -> str:
        return str(await ctx.call(mail, log, changes="a mail"))

    started: list[Any] = []

    @tool(effect="none")
    async def begin(log: str) -> str:
        """Start another run on the same runtime."""
        started.append(await runtime.start(second, log))
        await witness.saw("sending")
        return "begun"

    @agent(name="first")
    async def first(ctx: Context, log: str) -> str:
        return str(await ctx.tool(begin, log=log))

    assert await (await runtime.start(first, witness.log)).result() == "begun"
    Path(f"{witness.log}.go").touch()

    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await started[0].result() == "sent"
    assert witness.words() == ["sending", "sent"]
