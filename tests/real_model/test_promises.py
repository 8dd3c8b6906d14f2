"""What the promises of stopping are worth with a real language model, as its own CPU tells."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from checkrein import Agent, Receipt, Run, Runtime, Tokens
from checkrein.control.viewer import look
from checkrein.core.enums import Outcome, Status
from checkrein.models import Settings
from checkrein.models.openai import OpenAIModel
from tests.real_model.engine import Engine
from tests.support.patience import PATIENCE_SECONDS
from tests.support.runs import until_state, until_status

pytestmark = [pytest.mark.anyio, pytest.mark.model]

STORY = "Write a long story about a lighthouse keeper and the sea."
CPU_AFTER_A_STOP = 1.0
"""CPU seconds. A token takes about 0.02; a whole answer to `STORY` takes more than ten times as much as this."""


def writer(real: Engine, *, max_tokens: int | None = 1500, **options: Any) -> Agent:
    model = OpenAIModel("smollm2", base_url=f"{real.url}/v1", api_key="none")
    settings = Settings(max_tokens=max_tokens, temperature=0.0)
    options.setdefault("loops", False)
    return Agent("writer", model=model, instructions="You are a writer.", settings=settings, **options)


async def begun(runtime: Runtime, agent: Agent, goal: str = STORY, chars: int = 60) -> tuple[Run, list[str]]:
    """A run that has begun to speak, and what it says."""
    run = await runtime.start(agent, goal)
    heard: list[str] = []
    runtime.listen(run.id, lambda chunk: heard.append(chunk.text))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while sum(map(len, heard)) < chars:
            await asyncio.sleep(0.01)
    return run, heard


async def in_thread(work: Callable[[], float]) -> float:
    return await asyncio.to_thread(work)


async def test_a_cancel_stops_the_engine(runtime: Runtime, real: Engine) -> None:
    """D2 D4 D12"""
    run, heard = await begun(runtime, writer(real))
    receipt = await run.cancel()
    said = len(heard)
    assert isinstance(receipt, Receipt)

    spent = await in_thread(real.until_idle)

    print(f"\ncancel: receipt after {receipt.timing_ms.calls_stopped} ms, then {spent:.2f} CPU s")
    assert [call.now for call in receipt.calls] == [Outcome.ABORTED]
    assert receipt.calls[0].before_first_token is False
    assert spent < CPU_AFTER_A_STOP
    assert await in_thread(lambda: real.used_in(2)) < 0.1
    assert len(heard) == said, "and nothing was heard of it afterwards"


async def test_a_pause_stops_it_and_a_resume_lets_it_say_the_rest_once(runtime: Runtime, real: Engine) -> None:
    """D18 D31: at temperature 0 the model says what it would have said, whether it goes on or begins again."""
    goal = "Say in five sentences what a lighthouse is for."
    agent = writer(real, max_tokens=120)
    undisturbed = await runtime.start(agent, goal)
    async with asyncio.timeout(PATIENCE_SECONDS):
        whole = await undisturbed.result()
    run, _ = await begun(runtime, agent, goal)

    await run.pause()
    await in_thread(real.until_idle)
    assert await in_thread(lambda: real.used_in(1)) < 0.1, "paused is paused"
    await run.resume()
    async with asyncio.timeout(PATIENCE_SECONDS):
        text = await run.result()

    print(f"\n{whole!r}\n{text!r}")
    opening = whole[:30]
    assert text.startswith(opening)
    assert text.count(opening) == 1, "the answer was begun a second time and glued to the first"


async def test_a_redirect_stops_it_and_the_model_hears_the_instruction(runtime: Runtime, real: Engine) -> None:
    """D21"""
    run, _ = await begun(runtime, writer(real))

    receipt = await run.redirect("Forget the story. Say only the word: yes")

    assert isinstance(receipt, Receipt)
    assert receipt.delivered is True
    assert [call.now for call in receipt.calls] == [Outcome.ABORTED]
    await until_state(run, lambda state: state.usage.model_calls == 2)
    await run.cancel()
    assert await in_thread(real.until_idle) < CPU_AFTER_A_STOP


async def test_a_cap_on_tokens_holds_in_the_middle_of_an_answer(runtime: Runtime, real: Engine) -> None:
    """D10: by what was heard, and by the engine that has nothing more to do."""
    run, heard = await begun(runtime, writer(real, max_tokens=None, stop_when=Tokens(200)))

    state = await until_status(run, Status.PAUSED, Status.COMPLETED, Status.FAILED)

    print(f"\ncap of 200 tokens: {len(heard)} pieces came, {state.usage}")
    assert await in_thread(real.until_idle) < CPU_AFTER_A_STOP
    assert state.status is Status.PAUSED
    assert state.needs is not None
    assert len(heard) <= 200
    await run.cancel()


async def test_a_stop_before_the_first_token_says_only_what_is_known(runtime: Runtime, real: Engine) -> None:
    """The engine reads a prompt of some thousand tokens, in batches, and only then looks who has gone."""
    prompt = " ".join(f"Entry {n}: the keeper wrote down the wind and the height of wave {n}." for n in range(150))
    run = await runtime.start(writer(real), prompt)
    await asyncio.to_thread(real.until_busy)

    receipt = await run.cancel()

    spent = await in_thread(real.until_idle)
    print(f"\nbefore the first token: {spent:.2f} CPU s after the receipt")
    assert isinstance(receipt, Receipt)
    assert [call.before_first_token for call in receipt.calls] == [True]


async def test_a_model_that_goes_round_in_circles_is_paused_by_default(runtime: Runtime, real: Engine) -> None:
    """D10"""
    goal = "Repeat this again and again, and nothing else: What's the topic? What's the topic? I'm here to help."
    run, heard = await begun(runtime, writer(real, max_tokens=400, loops=True), goal)

    state = await until_status(run, Status.PAUSED, Status.COMPLETED)

    view = await look(runtime.journal, run.id, at=0.0)
    print(f"\nloop: {len(heard)} pieces, {[flag.what for flag in view.flags]}: {view.calls[0].text[-200:]!r}")
    if state.status is Status.PAUSED:
        assert await in_thread(real.until_idle) < CPU_AFTER_A_STOP
        assert [flag.watcher for flag in view.flags] == ["loops"]
        await run.cancel()
    else:
        assert len(heard) < 150, "it stopped by itself, before anybody had to notice"
