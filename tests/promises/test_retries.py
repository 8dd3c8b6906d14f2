"""A model that fails: asked again by itself while that may help, and put to a person when it does not."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from checkrein import Agent, Context, Receipt, Run, Runtime, Turns, agent
from checkrein.core.enums import Status
from checkrein.core.events import CallFinished, RetryScheduled
from checkrein.driver.program_api import Program
from checkrein.errors import ModelRateLimited, ModelUnauthorised, ModelUnavailable
from checkrein.models import Assistant, Failure, ScriptedModel, Turn
from checkrein.models.failures import Retries
from tests.support.patience import PATIENCE_SECONDS
from tests.support.runs import until_status
from tests.support.text import words
from tests.support.witness import until

pytestmark = pytest.mark.anyio


def limited(seconds: float, times: int | None) -> Failure:
    return Failure(ModelRateLimited("Too many requests.", retry_after=seconds, may_retry=True), times=times)


async def retries(runtime: Runtime, run: Run) -> list[RetryScheduled]:
    return [r.event for r in await runtime.journal.read(run.id) if isinstance(r.event, RetryScheduled)]


async def test_a_rate_limit_is_waited_out_and_shown_as_an_event(runtime: Runtime) -> None:
    agent = Agent("a", model=ScriptedModel([Turn("Hello.", fails=limited(0.3, 2))]))
    began = time.monotonic()

    run = await runtime.start(agent, "Say hello.")

    assert await run.result() == "Hello."
    assert time.monotonic() - began >= 0.6
    shown = await retries(runtime, run)
    assert [event.attempt for event in shown] == [2, 3]
    assert all(event.wait_seconds >= 0.3 and "Too many requests" in event.why for event in shown)
    assert (await run.state()).usage.turns == 1, "asking again is no new turn"


async def test_a_person_can_cancel_while_a_retry_is_waited_for(runtime: Runtime) -> None:
    """D1"""
    agent = Agent("a", model=ScriptedModel([Turn("Hello.", fails=limited(60, None))]))
    run = await runtime.start(agent, "Say hello.")
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await retries(runtime, run):
            await asyncio.sleep(0.01)

    receipt = await run.cancel()

    assert isinstance(receipt, Receipt)
    assert receipt.status is Status.CANCELLED
    assert agent.model.requests == 1  # type: ignore[attr-defined]


async def test_a_person_can_pause_while_a_retry_is_waited_for_and_nothing_is_asked_meanwhile(runtime: Runtime) -> None:
    agent = Agent("a", model=ScriptedModel([Turn("Hello.", fails=limited(0.5, 1))]))
    run = await runtime.start(agent, "Say hello.")
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await retries(runtime, run):
            await asyncio.sleep(0.01)

    receipt = await run.pause()
    await asyncio.sleep(0.8)

    assert isinstance(receipt, Receipt)
    assert receipt.status is Status.PAUSED
    assert agent.model.requests == 1  # type: ignore[attr-defined]
    await run.resume()
    assert await run.result() == "Hello."


async def test_when_retries_are_used_up_the_run_needs_you(runtime: Runtime) -> None:
    down = Failure(ModelUnavailable("It cannot be reached.", may_retry=True), times=3)
    agent = Agent("a", model=ScriptedModel([Turn("Hello.", fails=down)]), retries=2)
    run = await runtime.start(agent, "Say hello.")

    await until_status(run, Status.PAUSED)

    (waiting,) = (await run.state()).waiting()
    assert waiting.kind == "model_unavailable"
    assert waiting.remedy
    assert len(await retries(runtime, run)) == 2
    await run.resume()
    assert await run.result() == "Hello."


async def test_what_will_not_pass_is_not_tried_again(runtime: Runtime) -> None:
    refused = Failure(ModelUnauthorised("The key was refused."), times=1)
    agent = Agent("a", model=ScriptedModel([Turn("Hello.", fails=refused)]))
    run = await runtime.start(agent, "Say hello.")

    await until_status(run, Status.PAUSED)

    assert await retries(runtime, run) == []
    assert agent.model.requests == 1  # type: ignore[attr-defined]
    await run.cancel()


async def test_a_stream_that_is_cut_is_asked_again_and_only_the_whole_answer_counts(runtime: Runtime) -> None:
    cut = Failure(ModelUnavailable("Cut off.", may_retry=True), after_pieces=2, times=1)
    agent = Agent("a", model=ScriptedModel([Turn("one two three four", fails=cut)]))

    run = await runtime.start(agent, "Count.")

    assert await run.result() == "one two three four"
    first, second = [r.event for r in await runtime.journal.read(run.id) if isinstance(r.event, CallFinished)]
    assert (first.outcome, first.retry) == ("failed", True)
    assert second.outcome == "completed"


async def test_a_model_that_was_paused_goes_on_where_it_broke_off(runtime: Runtime) -> None:
    """D23: it is given what it had said, and the answer is one."""
    model = ScriptedModel(["one two three four five six seven eight"], tokens_per_second=30)
    agent = Agent("a", model=model)
    heard: list[str] = []
    run = await runtime.start(agent, "Count.")
    runtime.listen(run.id, lambda chunk: heard.append(chunk.text))
    await until(lambda: len(heard) >= 3)
    await run.pause()
    said = "".join(heard)

    await run.resume()

    assert await run.result() == "one two three four five six seven eight"
    assert model.asked[-1].continues
    assert model.asked[-1].messages[-1] == Assistant(said.rstrip(), interrupted=True)


def test_waits_grow_and_end() -> None:
    error = ModelUnavailable("Down.", may_retry=True)
    tries = Retries(4)

    waits = [tries.after(error) for _ in range(5)]

    assert waits[4] is None
    assert all(0.5 * 2**n <= (wait or 0) <= 1.5 * 2**n for n, wait in enumerate(waits[:4]))
    assert Retries().after(ModelRateLimited("Later.", retry_after=4000.0, may_retry=True)) is None


def a_program(model: ScriptedModel) -> Program:
    @agent(name="asks", model=model)
    async def asks(ctx: Context, goal: str) -> str:
        return str((await ctx.model(goal)).text)

    return asks


async def test_the_model_of_a_program_is_asked_again_too_where_that_may_help(runtime: Runtime) -> None:
    run = await runtime.start(a_program(ScriptedModel([Turn("Hello.", fails=limited(0.05, 2))])), "Say hello.")

    assert await run.result() == "Hello."
    assert [event.attempt for event in await retries(runtime, run)] == [2, 3]


async def test_a_program_whose_model_fails_needs_you_and_goes_on_when_it_is_mended(runtime: Runtime) -> None:
    refused = Failure(ModelUnauthorised("The key was refused."), times=1)
    run = await runtime.start(a_program(ScriptedModel([Turn("Hello.", fails=refused)])), "Say hello.")

    await until_status(run, Status.PAUSED)

    (waiting,) = (await run.state()).waiting()
    assert waiting.kind == "model_unauthorised"
    await run.resume("now with a new key")
    assert await run.result() == "Hello."


@pytest.mark.parametrize("is_program", [True, False])
async def test_what_was_mended_is_not_asked_for_again_after_a_restart(tmp_path: Path, is_program: bool) -> None:
    """D29"""
    store = f"sqlite:///{tmp_path}/runs.db"

    def made(times: int) -> Program:
        refused = Failure(ModelUnauthorised("The key was refused."), times=times) if times else None
        model = ScriptedModel([Turn(words(500), fails=refused)], tokens_per_second=20)
        return a_program(model) if is_program else Agent("asks", model=model)

    async with Runtime(store) as first:
        run = await first.start(made(1), "Say hello.")
        await until_status(run, Status.PAUSED)
        await run.resume()
        await streaming(run)

    async with Runtime(store, agents=[made(0)]) as second:
        again = await second.get(run.id)
        await streaming(again)
        events = [record.event for record in await second.journal.read(run.id)]
        await again.cancel()

    assert len([event for event in events if getattr(event, "needs", None) is not None]) == 1


async def streaming(run: Run) -> None:
    """Return when the model is at work."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (state := await run.state()).live or state.status is not Status.RUNNING:
            await asyncio.sleep(0.01)


async def test_a_model_that_could_not_be_asked_for_want_of_a_key_is_no_turn(runtime: Runtime) -> None:
    no_key = Failure(ModelUnauthorised("There is no API key."), times=1)
    agent = Agent("a", model=ScriptedModel([Turn("Hello.", fails=no_key)]), stop_when=Turns(1))
    run = await runtime.start(agent, "Say hello.")
    await until_status(run, Status.PAUSED)
    assert (await run.state()).usage.turns == 0

    await run.resume()

    assert await run.result() == "Hello.", "the one turn that it is allowed is not used up"
    assert (await run.state()).usage.turns == 1


async def test_a_provider_that_nobody_knows_pauses_the_run_like_a_model_that_nobody_knows(runtime: Runtime) -> None:
    run = await runtime.start(Agent("a", model="nobody:gpt-9"), "Say hello.")

    await until_status(run, Status.PAUSED)

    (waiting,) = (await run.state()).waiting()
    assert waiting.kind == "unknown_model"
    assert "nobody:gpt-9" in waiting.what
    assert waiting.remedy
    await run.cancel()
