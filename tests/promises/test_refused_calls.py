"""A tool call that does not fit, by its name or its arguments: shown, with the reason, and counted like any other."""

from __future__ import annotations

from typing import Any

import pytest

from checkrein import Agent, Repeats, Runtime, ToolCalls, Turns
from checkrein.agents.loop import AgentLoop
from checkrein.cli.printers import Lines
from checkrein.control.view import CallView, RunView, Shown
from checkrein.control.viewer import look
from checkrein.core.conditions import Condition
from checkrein.core.enums import CallKind, Status
from checkrein.core.events import CallFinished
from checkrein.models import Request, ScriptedModel, ToolCall, ToolResult, Turn
from checkrein.models.messages import as_json
from tests.support.agent_tools import lines, make_draft
from tests.support.runs import until_status

pytestmark = pytest.mark.anyio

CAP = Turns(50)

MISFITS = {
    "an unknown name": (
        "fetch_everything",
        {"what": "all"},
        "There is no tool fetch_everything; there are: make_draft",
    ),
    "a missing argument": ("make_draft", {}, "The arguments do not fit"),
    "an argument too many": ("make_draft", {"log": "x", "colour": "red"}, "The arguments do not fit"),
    "no object": ("make_draft", [1, 2], "The arguments do not fit"),
    "an agent without a goal": ("helper", {"task": "x"}, "The arguments do not fit"),
    "a step that is not there": ("plan", {"step": 9}, "There is no step 9"),
    "a plan of another form": ("plan", {"stepp": 9}, "stepp"),
}


def asks(name: str, arguments: Any, number: int = 1) -> Turn:
    return Turn("I try.", calls=[ToolCall(f"try-{number}", name, as_json(arguments))])


def agent(model: ScriptedModel, *, stop_when: Condition = CAP) -> Agent:
    helper = Agent("helper", model=ScriptedModel(["Helped."]))
    return Agent("clumsy", model=model, tools=[make_draft, helper], plan=["One", "Two"], stop_when=stop_when)


def refused(view: RunView) -> list[CallView]:
    return [call for call in view.calls if call.now == "refused"]


@pytest.mark.parametrize("misfit", MISFITS)
async def test_a_call_that_no_tool_fits_is_shown_refused_and_why(runtime: Runtime, misfit: str) -> None:
    name, arguments, why = MISFITS[misfit]
    model = ScriptedModel([asks(name, arguments), "I give up."])
    run = await runtime.start(agent(model), "Do it.")

    assert await run.result() == "I give up."

    view = await look(runtime.journal, run.id, at=0.0)
    (call,) = refused(view)
    assert (call.kind, call.name, call.shown, call.arguments) == (CallKind.TOOL, name, Shown.FAILED, arguments)
    assert why in (call.error or "")
    assert view.usage.tool_calls == 1
    assert view.effects == ()
    told = model.asked[-1].messages[-1]
    assert isinstance(told, ToolResult)
    assert told.is_error
    assert told.content == call.error
    terminal = Lines()
    written = [line for record in await runtime.journal.read(run.id) for line in terminal.take(record)]
    assert any("refused" in line and why in line for line in written), written


@pytest.mark.parametrize("cap", [Repeats(3), ToolCalls(3)], ids=str)
async def test_a_cap_on_calls_ends_a_model_that_asks_for_what_is_not_there(runtime: Runtime, cap: Condition) -> None:
    def stubborn(request: Request) -> Turn:
        return asks("fetch_everything", {"what": "all"}, len(request.messages))

    model = ScriptedModel(stubborn)
    run = await runtime.start(agent(model, stop_when=cap), "Do it.")

    state = await until_status(run, Status.PAUSED)

    assert state.needs is not None
    assert state.needs.code == "cap"
    assert state.tripped == (cap.label,)
    assert model.requests <= 4
    await run.cancel()


async def test_a_call_that_fits_is_made_beside_one_that_does_not(runtime: Runtime, log: str) -> None:
    fits = ToolCall("fits", "make_draft", as_json({"log": log}))
    model = ScriptedModel([Turn("Two.", calls=[*asks("nothing_like_it", {}).calls, fits]), "Done."])
    run = await runtime.start(agent(model), "Do it.")

    await run.result()

    assert lines(log) == ["draft"]
    assert len(refused(await look(runtime.journal, run.id, at=0.0))) == 1


async def test_one_that_is_recorded_is_not_refused_again_when_the_run_is_played_again(store: str) -> None:
    run = await left_after_a_refusal(store)

    model = ScriptedModel([asks("nothing_like_it", {}), "Done."])
    async with Runtime(store, agents=[agent(model)]) as runtime:
        again = await runtime.get(run)
        await again.result()
        view = await look(runtime.journal, run, at=0.0)

    assert len(refused(view)) == 1
    assert view.usage.tool_calls == 1


async def test_a_record_that_knows_nothing_of_refused_calls_is_played_again(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def untold(self: AgentLoop, call: ToolCall, misfit: object = None) -> ToolResult:
        return ToolResult(call.id, call.name, "There is no such tool.", is_error=True)

    with monkeypatch.context() as before:
        before.setattr(AgentLoop, "_use", untold)
        run = await left_after_a_refusal(store)

    model = ScriptedModel([asks("nothing_like_it", {}), "Done."])
    async with Runtime(store, agents=[agent(model)]) as runtime:
        again = await runtime.get(run)
        assert (await again.result()).endswith("Done.")
        records = await runtime.journal.read(run)

    assert not any(isinstance(record.event, CallFinished) and record.event.refused for record in records)


async def left_after_a_refusal(store: str) -> str:
    """A run whose runtime was closed in the turn after a refused call."""
    model = ScriptedModel([asks("nothing_like_it", {}), "word " + "and another " * 5], tokens_per_second=2)
    async with Runtime(store) as runtime:
        run = await runtime.start(agent(model), "Do it.")
        await until_turn(runtime, run.id, 2)
    return run.id


async def until_turn(runtime: Runtime, run: str, turn: int) -> None:
    async for record in runtime.journal.follow(run):
        if getattr(record.event, "place", "") == f"turn:{turn}":
            return
