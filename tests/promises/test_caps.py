"""Caps on whole runs: each trips in view, pauses by default, and a resume grants the same allowance again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from checkrein import Agent, Context, Cost, Effects, Elapsed, Repeats, RunFailed, Runtime, Tokens, ToolCalls, Turns
from checkrein import agent as program
from checkrein.core.conditions import Condition, Usage
from checkrein.core.enums import EffectState, Status, Then, Verb
from checkrein.core.events import ConditionTripped
from checkrein.models import Request, ScriptedModel, ToolResult, Turn
from checkrein.models.base import Delta, UsageDelta
from tests.support.abort_tools import draft, work
from tests.support.patience import PATIENCE_SECONDS
from tests.support.runs import (
    StallingModel,
    agent,
    calls,
    events,
    ledger,
    let_go,
    model,
    result,
    settled,
    until_let,
    until_status,
)
from tests.support.witness import Witness, until

pytestmark = pytest.mark.anyio


def steps(witness: Witness, number: int, *, same: bool = False) -> list[Turn | str]:
    """So many turns with one tool call each, and an answer."""
    words = ["again" if same else f"step {n}" for n in range(number)]
    return [*(calls(("work", {"log": witness.log, "word": word, "seconds": 0})) for word in words), "Done."]


def done(witness: Witness) -> int:
    return len([word for word in witness.words() if word.endswith("done")])


@pytest.mark.parametrize(
    ("cap", "first", "granted"),
    [(Turns(2), 2, 4), (ToolCalls(2), 2, 4), (Effects(2), 2, 4), (Repeats(3), 3, 6)],
    ids=lambda value: getattr(value, "label", str(value)),
)
async def test_a_cap_pauses_the_run_and_a_resume_grants_it_again(
    runtime: Runtime, witness: Witness, cap: Condition, first: int, granted: int
) -> None:
    """D9 D10 D25: by the tool's own log it stops after its allowance, says which, and again after the next."""
    turns = steps(witness, 7, same=isinstance(cap, Repeats))
    if isinstance(cap, Effects):
        turns = [calls(("draft", {"log": witness.log, "what": f"d{n}"})) for n in range(7)]
    churn = agent(turns, [work, draft], stop_when=cap)
    run = await runtime.start(churn, "Go.")

    state = await until_status(run, Status.PAUSED)

    assert used(witness) == first
    (waiting,) = state.waiting()
    assert waiting.kind == "cap"
    assert cap.label in waiting.what
    assert cap.label in waiting.remedy
    assert (await run.controls())[Verb.RESUME].consequence == f"goes on, and grants {cap.label} again"
    (tripped,) = await events(runtime, run, ConditionTripped)
    assert (tripped.condition, tripped.observed, tripped.then) == (cap.label, first, Then.PAUSE)

    await run.resume()
    await until_status(run, Status.PAUSED)

    assert used(witness) == granted
    await run.cancel()


def used(witness: Witness) -> int:
    return len([word for word in witness.words() if word.endswith((" done", " made"))])


async def test_a_cap_on_tokens_pauses_before_the_next_call(runtime: Runtime, witness: Witness) -> None:
    """D25: it may overshoot by what was permitted before."""
    churn = agent(steps(witness, 5), [work], stop_when=Tokens(30))
    run = await runtime.start(churn, "Go.")

    state = await until_status(run, Status.PAUSED)

    assert state.usage.tokens >= 30
    assert model(churn).requests == 1
    assert done(witness) == 0
    assert "Tokens(30)" in state.waiting()[0].what
    await run.cancel()


class Priced(ScriptedModel):
    """Knows, or does not know, what each request costs."""

    def __init__(self, turns: Any, price: float | None) -> None:
        super().__init__(turns, name="house")
        self.tells_cost = price is not None
        self._price = price

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        stream = super().stream(request)
        async for delta in stream:
            if isinstance(delta, UsageDelta):
                usage = delta.usage
                yield UsageDelta(
                    Usage(input_tokens=usage.input_tokens, output_tokens=usage.output_tokens, cost_usd=self._price),
                    delta.final,
                )
            else:
                yield delta
        await stream.aclose()


async def test_a_cap_on_cost_pauses_once_the_money_is_spent(runtime: Runtime, witness: Witness) -> None:
    """D25: two requests at 60 cents and a cap of one dollar."""
    churn = Agent("churn", model=Priced(steps(witness, 9), 0.6), tools=[work], stop_when=Cost(usd=1))
    run = await runtime.start(churn, "Go.")

    state = await until_status(run, Status.PAUSED)

    assert state.usage.cost_usd == pytest.approx(1.2)
    assert done(witness) == 1, "the second turn's tool was not permitted any more"
    await run.resume()
    state = await until_status(run, Status.PAUSED)
    assert state.usage.cost_usd == pytest.approx(2.4)
    await run.cancel()


async def test_a_price_that_is_not_known_is_said_and_does_not_let_the_cap_sleep(
    runtime: Runtime, witness: Witness
) -> None:
    """D25 C6: nothing is asked for that nobody could count. Whoever resumes was told, and is not asked again."""
    churn = Agent("churn", model=Priced(steps(witness, 3), None), tools=[work], stop_when=Cost(usd=1))
    run = await runtime.start(churn, "Go.")

    state = await until_status(run, Status.PAUSED)

    assert model(churn).requests == 0
    (tripped,) = await events(runtime, run, ConditionTripped)
    assert tripped.observed is None
    (waiting,) = state.waiting()
    assert waiting.what == "Cost(1) cannot hold: the price of the model is not known"
    assert "Tokens(…)" in waiting.remedy
    assert "Resume goes on without this cap" in waiting.remedy
    await run.resume()
    assert await result(run) == "Done."
    assert done(witness) == 3


async def test_a_program_is_not_let_ask_a_model_without_a_price_either(runtime: Runtime) -> None:
    """C6"""
    house = Priced(["Done."], None)

    @program(name="asks", model=house, stop_when=Cost(usd=1))
    async def asks(ctx: Context, goal: str) -> str:
        return str((await ctx.model(goal)).text)

    run = await runtime.start(asks, "Go.")
    await until_status(run, Status.PAUSED)

    assert house.requests == 0
    await run.resume()
    assert await result(run) == "Done."


async def test_whoever_waits_for_the_result_is_told_what_it_waits_for(
    runtime: Runtime, capsys: pytest.CaptureFixture[str]
) -> None:
    """C6: on stderr, or where they want to have it; each thing once."""
    churn = Agent("churn", model=Priced(["Done."], None), stop_when=Cost(usd=1))
    run = await runtime.start(churn, "Go.")
    told: list[str] = []
    waits = asyncio.create_task(run.result(on_waiting=lambda waiting: told.append(waiting.what)))
    await until(lambda: told)

    said = asyncio.create_task((await runtime.get(run.id)).result())
    await until_said(capsys, f"Run {run.id} waits for you: Cost(1) cannot hold")
    await run.resume()

    assert [await waits, await said] == ["Done.", "Done."]
    assert told == ["Cost(1) cannot hold: the price of the model is not known"]


async def until_said(capsys: pytest.CaptureFixture[str], words: str) -> None:
    said = ""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while words not in said:
            await asyncio.sleep(0.01)
            said += capsys.readouterr().err


async def test_a_cap_on_time_holds_also_in_the_middle_of_a_tool(runtime: Runtime, witness: Witness) -> None:
    """D25: the run is paused as a person would pause it: the tool is let to finish."""
    churn = agent([calls(("work", until_let(witness))), "Done."], [work], stop_when=Elapsed(seconds=1.5))
    run = await runtime.start(churn, "Go.")
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not witness.words():  # on a busy machine the time may be over before the tool begins
            if (await run.state()).status is Status.PAUSED:
                await run.resume()
            await asyncio.sleep(0.01)

    await until_status(run, Status.PAUSING)

    assert witness.words() == ["work"], "it did not wait for the tool to say so"
    let_go(witness)
    state = await until_status(run, Status.PAUSED)
    assert "Elapsed(1.5)" in state.waiting()[0].what
    assert witness.words() == ["work", "work done"]
    await run.resume()
    assert await result(run) == "Done."
    assert witness.words() == ["work", "work done"]


async def test_the_parts_of_one_turn_share_what_is_left(runtime: Runtime, witness: Witness) -> None:
    """D9: of three calls at the same time two are permitted; the third follows after the resume, and none twice."""
    three = [("work", {"log": witness.log, "word": f"w{n}", "seconds": 0}) for n in range(3)]
    churn = agent([calls(*three), "Done."], [work], stop_when=ToolCalls(2))
    run = await runtime.start(churn, "Go.")
    await until_status(run, Status.PAUSED)
    assert done(witness) == 2

    await run.resume()

    assert await result(run) == "Done."
    assert sorted(word for word in witness.words() if "done" not in word) == ["w0", "w1", "w2"]


# -- then


async def test_a_cap_can_cancel_and_undo(runtime: Runtime, witness: Witness) -> None:
    """D9 D33"""
    churn = agent(
        [calls(("draft", {"log": witness.log})), *steps(witness, 5)],
        [draft, work],
        stop_when=ToolCalls(2, then=Then.CANCEL),
    )
    run = await runtime.start(churn, "Go.")

    with pytest.raises(RunFailed) as failed:
        await result(run)

    assert failed.value.status is Status.CANCELLED
    assert await ledger(runtime, run) == {"draft": EffectState.UNDONE}
    assert witness.words()[-1] == "undo draft"
    assert done(witness) == 1


def summing_up(witness: Witness) -> Callable[[Request], Turn | str]:
    """A model that uses its tool for as long as it has one."""

    def turn(request: Request) -> Turn | str:
        used = sum(isinstance(message, ToolResult) for message in request.messages)
        if not request.tools:
            return f"That is what I have: {used}."
        return calls(("work", {"log": witness.log, "word": f"step {used}", "seconds": 0}))

    return turn


@pytest.mark.parametrize(
    "cap", [Turns(3, then=Then.FINISH), ToolCalls(3, then=Then.FINISH)], ids=["Turns", "ToolCalls"]
)
async def test_a_cap_can_grant_one_last_model_call_without_tools(
    runtime: Runtime, witness: Witness, cap: Condition
) -> None:
    """D9 D32: it completes with what there is."""
    churn = Agent("churn", model=ScriptedModel(summing_up(witness)), tools=[work], stop_when=cap)
    run = await runtime.start(churn, "Go.")

    answer = await result(run)

    assert answer.startswith("That is what I have")
    assert done(witness) == 3
    assert model(churn).asked[-1].tools == ()
    assert all(request.tools for request in list(model(churn).asked)[:-1])
    assert (await run.state()).status is Status.COMPLETED


async def test_a_run_that_is_about_to_finish_by_its_cap_survives_a_restart(store: str, witness: Witness) -> None:
    """D25 D29: in the middle of its last model call, after a tool that it was not granted any more.

    A restart is not a person: it grants nothing.
    """

    def churn(pace: float | None) -> Agent:
        two = [("work", {"log": witness.log, "word": word, "seconds": 0}) for word in ("one", "two")]
        turns = [calls(*two), "That is all I have, and I am saying it slowly."]
        return agent(turns, [work], pace=pace, stop_when=ToolCalls(1, then=Then.FINISH))

    slow = churn(0.05)
    slow.model = StallingModel(model(slow)._turns, {2: asyncio.Event()})
    async with Runtime(store) as first:
        run = await first.start(slow, "Go.")
        await until(lambda: model(slow).requests == 2 and model(slow).live)

    quick = churn(None)
    async with Runtime(store, agents=[quick]) as second:
        again = await second.get(run.id)
        assert await result(again) == "That is all I have, and I am saying it slowly."
        assert model(quick).asked[0].tools == ()
    assert done(witness) == 1
    assert model(quick).requests == 1


async def test_a_model_that_asks_for_tools_in_its_last_call_ends_with_what_it_said(
    runtime: Runtime, witness: Witness
) -> None:
    """D9 D25: it gets neither the tool nor another call."""
    one = ("work", {"log": witness.log, "seconds": 0})
    churn = agent(
        [Turn(f"I will go on {n}.", calls=[one]) for n in range(9)], [work], stop_when=Turns(2, then=Then.FINISH)
    )
    run = await runtime.start(churn, "Go.")

    assert await result(run) == "I will go on 2."
    assert model(churn).requests == 3
    assert done(witness) == 2


async def test_a_last_call_without_an_answer_asks_a_person_instead_of_failing(
    runtime: Runtime, witness: Witness
) -> None:
    """D25: resume grants the allowance again."""
    one = ("work", {"log": witness.log, "seconds": 0})
    churn = agent([*(Turn(calls=[one]) for _ in range(4)), "Done."], [work], stop_when=Turns(2, then=Then.FINISH))
    run = await runtime.start(churn, "Go.")

    state = await until_status(run, Status.PAUSED)

    assert state.waiting()[0].kind == "cap"
    assert done(witness) == 2
    await run.resume()
    assert await result(run) == "Done."


async def test_the_strongest_of_several_caps_decides(runtime: Runtime, witness: Witness) -> None:
    """D36: composed into one contract."""
    churn = agent(steps(witness, 5), [work], stop_when=Turns(2) | ToolCalls(2, then=Then.CANCEL))
    run = await runtime.start(churn, "Go.")

    with pytest.raises(RunFailed):
        await result(run)

    assert done(witness) == 2
    assert (await run.state()).status is Status.CANCELLED


async def test_caps_that_must_all_be_reached_wait_for_each_other(runtime: Runtime, witness: Witness) -> None:
    """D36"""
    churn = agent(steps(witness, 6), [work], stop_when=Turns(2) & ToolCalls(4))
    run = await runtime.start(churn, "Go.")

    state = await until_status(run, Status.PAUSED)

    assert done(witness) == 4
    assert state.usage.turns == 4
    await run.cancel()


async def test_an_agent_without_caps_gets_the_default_ones(runtime: Runtime, witness: Witness) -> None:
    """D9 D25: fifty turns."""
    turns = [calls(("work", {"log": witness.log, "word": f"step {n}", "seconds": 0})) for n in range(60)]
    run = await runtime.start(agent(turns, [work]), "Go.")

    state = await until_status(run, Status.PAUSED)

    assert state.usage.turns == 50
    assert done(witness) == 50
    assert "Turns(50)" in state.waiting()[0].what
    await run.cancel()


async def test_a_redirect_after_a_cap_grants_it_too(runtime: Runtime, witness: Witness) -> None:
    """D21 D25: and the button says so."""
    churn = agent(steps(witness, 2), [work], stop_when=Turns(2))
    run = await runtime.start(churn, "Go.")
    await until_status(run, Status.PAUSED)
    assert "grants Turns(2) again" in (await run.controls())[Verb.REDIRECT].consequence

    receipt = settled(await run.redirect("and now sum up"))

    assert receipt.delivered is True
    assert await result(run) == "Done."


async def test_a_cap_is_still_reached_after_a_restart(store: str, witness: Witness) -> None:
    """D25 D29: neither forgotten nor granted by itself."""
    churn = agent(steps(witness, 4), [work], stop_when=Turns(2))
    async with Runtime(store) as first:
        run = await first.start(churn, "Go.")
        await until_status(run, Status.PAUSED)

    async with Runtime(store, agents=[churn]) as second:
        again = await second.get(run.id)
        await asyncio.sleep(0.3)
        assert (await again.state()).status is Status.PAUSED
        assert done(witness) == 2
        await again.resume()
        await until_status(again, Status.PAUSED)
        assert done(witness) == 4
        await again.cancel()
