"""An instruction whose receipt says *delivered* is not lost when the call that carried it comes to nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from checkrein import Agent, Receipt, Run, Runtime
from checkrein.core.words import Status
from checkrein.errors import ModelUnauthorised
from checkrein.models import Failure, Request, ScriptedModel, Turn, User

pytestmark = pytest.mark.anyio

INSTRUCTION = User("only Q3")


async def until_status(run: Run, wanted: Status) -> None:
    async with asyncio.timeout(20):
        while (await run.state()).status is not wanted:
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("how", ["it fails", "a person aborts it", "it is paused"])
async def test_an_instruction_that_was_delivered_with_a_call_that_came_to_nothing_is_told_again(
    tmp_path: Path, how: str
) -> None:
    """D21 D32"""
    heard: list[bool] = []

    def answer(request: Request) -> Turn:
        heard.append(INSTRUCTION in request.messages)
        if heard.count(True) == 1 and how == "it fails":
            return Turn("Q3", fails=Failure(ModelUnauthorised("The key is not valid.", remedy=""), times=1))
        return Turn("Only Q3, then." if heard.count(True) > 1 else "one two three four five six seven eight nine ten")

    talker = Agent("talker", model=ScriptedModel(answer, tokens_per_second=100), stop_when=None)
    async with Runtime(f"sqlite:///{tmp_path}/runs.db", agents=[talker]) as runtime:
        run = await runtime.start(talker, "Count.")
        receipt = await run.redirect(INSTRUCTION.text)
        assert isinstance(receipt, Receipt)
        assert receipt.delivered
        if how == "it fails":
            await until_status(run, Status.PAUSED)
            await run.resume()
        elif how == "it is paused":
            await run.pause()
            await run.resume()
        else:
            (call,) = (await run.state()).live
            await run.abort(call)

        assert await run.result() == "Only Q3, then."
        assert heard[-1]
