"""An instruction whose receipt says *delivered* is not lost when the call that carried it comes to nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from checkrein import Agent, Receipt, Run, Runtime
from checkrein.core.commands import Command, StartCall
from checkrein.core.enums import Status
from checkrein.driver.commits import RunWriter
from checkrein.errors import ModelUnauthorised
from checkrein.models import Failure, Request, ScriptedModel, Turn, User
from tests.support.patience import PATIENCE_SECONDS
from tests.support.text import words

pytestmark = pytest.mark.anyio

INSTRUCTION = User("only Q3")


async def until_status(run: Run, wanted: Status) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
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
        return Turn("Only Q3, then." if heard.count(True) > 1 else words(5_000))

    talker = Agent("talker", model=ScriptedModel(answer, tokens_per_second=100), stop_when=None)
    async with Runtime(f"sqlite:///{tmp_path}/runs.db", agents=[talker]) as runtime:
        run = await runtime.start(talker, "Count.")
        receipt = await run.redirect(INSTRUCTION.text, wait=PATIENCE_SECONDS)
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

        assert (await run.result()).endswith("Only Q3, then.")
        assert heard[-1]


async def test_a_redirect_that_overtakes_the_retry_of_a_call_does_not_fail_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D20: it was to be asked again after a pause, and is not any more once somebody wants something else."""
    talker = Agent(
        "talker",
        model=ScriptedModel(
            lambda request: Turn("Only Q3, then." if INSTRUCTION in request.messages else words(5_000)),
            tokens_per_second=100,
        ),
    )
    commit, overtaken = RunWriter.commit, asyncio.Event()
    async with Runtime(f"sqlite:///{tmp_path}/runs.db", agents=[talker]) as runtime:
        run = await runtime.start(talker, "Count.")

        async def commit_later(self: RunWriter, command: Command, **given: Any) -> None:
            if isinstance(command, StartCall) and command.attempt == 2 and not overtaken.is_set():
                overtaken.set()
                await run.redirect(INSTRUCTION.text, wait=0)
            await commit(self, command, **given)

        monkeypatch.setattr(RunWriter, "commit", commit_later)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (await run.state()).live:
                await asyncio.sleep(0.005)
            await run.pause(wait=PATIENCE_SECONDS)
            await run.resume()

            assert (await run.result()).endswith("Only Q3, then.")
    assert overtaken.is_set()
