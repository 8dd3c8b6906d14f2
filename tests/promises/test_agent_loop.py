"""The built-in agent: plan and steps, approvals that queue, time limits, checks, what tools are given, threads."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

from checkrein import Agent, Elapsed, Receipt, Runtime, Tool, Turns, current_call, tool
from checkrein.control.control import Control
from checkrein.core.enums import Answer, CallKind, EffectState, Outcome, Status
from checkrein.core.events import CallChecked, CallFinished, CallStarted, PlanPublished, StepFinished, StepStarted
from checkrein.errors import MisuseError, Refused
from checkrein.journal import open_journal
from checkrein.models import Note, ScriptedModel, ToolResult, Turn, User
from checkrein.processes.identity import this_process
from tests.support.agent_tools import crunch, discard, lines, make_draft, note, send
from tests.support.patience import PATIENCE_SECONDS
from tests.support.runs import program, until_status
from tests.support.witness import until

pytestmark = pytest.mark.anyio


# -- plan and steps


async def test_the_model_walks_through_the_plan_of_its_author(store: str, log: str) -> None:
    """D19 D24: every call belongs to a step, and a step ends only by an event."""
    turns: list[Turn | str] = [
        Turn("First.", calls=[("make_draft", {"log": log})]),
        Turn("Second.", calls=[("plan", {"step": 2}), ("send", {"log": log})]),
        "Done.",
    ]
    churn = Agent("churn", model=ScriptedModel(turns), tools=[make_draft, send], plan=["Draft", "Send"])

    async with Runtime(store) as runtime:
        run = await runtime.start(churn, "Go.")
        await run.result()
        events = [record.event for record in await runtime.journal.read(run.id)]

    shown = [event for event in events if isinstance(event, PlanPublished | StepStarted | StepFinished)]
    assert [type(event).__name__ for event in shown] == [
        "PlanPublished",
        "StepStarted",
        "StepFinished",
        "StepStarted",
        "StepFinished",
    ]
    tools = {e.name: e.step for e in events if isinstance(e, CallStarted) and e.kind is CallKind.TOOL}
    assert tools == {"make_draft": 1, "send": 2}


async def test_the_model_may_make_and_change_the_plan(store: str, log: str) -> None:
    turns: list[Turn | str] = [
        Turn("A plan.", calls=[("plan", {"steps": ["Look", "Write"], "step": 1})]),
        Turn("More.", calls=[("plan", {"steps": ["Check", "Write"], "step": 2})]),
        Turn("Wrong.", calls=[("plan", {"step": 9})]),
        "Done.",
    ]
    churn = Agent("churn", model=ScriptedModel(turns), plan=True)

    async with Runtime(store) as runtime:
        run = await runtime.start(churn, "Go.")
        await run.result()
        state = await run.state()

    assert state.plan == ("Look", "Check", "Write")
    assert (state.steps_begun, state.steps_finished) == (2, 2)
    told = churn.model.asked[-1].messages  # type: ignore[attr-defined]
    wrong = next(message for message in told if isinstance(message, ToolResult) and message.is_error)
    assert wrong.content == "There is no step 9; there are 3."


async def test_the_next_run_of_a_thread_sees_plan_calls_as_answered(store: str) -> None:
    turns: list[Turn | str] = [Turn("A plan.", calls=[("plan", {"steps": ["Look"], "step": 1})]), "One.", "Two."]
    churn = Agent("churn", model=ScriptedModel(turns), plan=True)

    async with Runtime(store) as runtime:
        await (await runtime.start(churn, "Go.", thread="t")).result()
        assert await (await runtime.start(churn, "And?", thread="t")).result() == "Two."


# -- approvals that do not block


@tool(effect="irreversible", approval="queue")
async def publish(log: str, what: str) -> str:
    """Publish something for good."""
    note(log, f"publish {what}")
    return f"published {what}"


async def test_an_action_that_is_queued_for_review_lets_the_agent_work_on(store: str, log: str) -> None:
    """D37: the agent is told *pending*, goes on, does not complete before a decision, and is told the result."""
    turns: list[Turn | str] = [
        Turn("Publish.", calls=[("publish", {"log": log, "what": "memo"})]),
        Turn("Meanwhile.", calls=[("send", {"log": log})]),
        "All done.",
        "Now it is out.",
    ]
    churn = Agent("churn", model=ScriptedModel(turns), tools=[publish, send])

    async with Runtime(store) as runtime:
        run = await runtime.start(churn, "Go.")
        await until(lambda: churn.model.requests == 3)  # type: ignore[attr-defined]
        await asyncio.sleep(0.2)
        state = await run.state()
        assert lines(log) == ["sending", "sent"]
        assert state.status is Status.RUNNING
        assert state.waiting() == (), "it works on: nothing blocks"

        (call,) = state.approvals
        await run.approve(call)

        assert await run.result() == "Now it is out."
    assert lines(log) == ["sending", "sent", "publish memo"]
    told = churn.model.asked[-1].messages  # type: ignore[attr-defined]
    assert any(isinstance(m, ToolResult) and "approval" in m.content for m in told)
    assert any(isinstance(m, Note) and "published memo" in m.text for m in told)


async def test_a_queued_action_that_is_denied_is_never_done_and_the_agent_is_told_why(store: str, log: str) -> None:
    """D37"""
    turns: list[Turn | str] = [
        Turn("Publish.", calls=[("publish", {"log": log, "what": "memo"})]),
        "Waiting.",
        "Not published.",
    ]
    churn = Agent("churn", model=ScriptedModel(turns), tools=[publish])

    async with Runtime(store) as runtime:
        run = await runtime.start(churn, "Go.")
        await until(lambda: churn.model.requests == 2)  # type: ignore[attr-defined]
        (call,) = (await run.state()).approvals
        await run.deny(call, note="not before Monday")

        assert await run.result() == "Not published."
    assert lines(log) == []
    told = churn.model.asked[-1].messages  # type: ignore[attr-defined]
    assert any(isinstance(m, Note) and "not before Monday" in m.text for m in told)


async def test_queued_approvals_survive_a_restart_and_a_cancel_leaves_none(store: str, log: str) -> None:
    turns: list[Turn | str] = [
        Turn("Publish.", calls=[("publish", {"log": log, "what": "memo"})]),
        "Waiting.",
        "It is out.",
    ]

    def churn() -> Agent:
        return Agent("churn", model=ScriptedModel(turns), tools=[publish])

    async with Runtime(store) as first:
        run = await first.start(churn(), "Go.")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (await run.state()).approvals:
                await asyncio.sleep(0.01)
    async with Runtime(store, agents=[churn()]) as second:
        again = await second.get(run.id)
        (call,) = (await again.state()).approvals
        await again.approve(call)
        assert await again.result() == "It is out."
        assert lines(log) == ["publish memo"]

        last = await second.start("churn", "Go.")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (await last.state()).approvals:
                await asyncio.sleep(0.01)
        await last.cancel()
        assert (await last.state()).approvals == {}
    assert lines(log) == ["publish memo"]


# -- time


@tool(effect="none", timeout=1.0)
def dawdle(log: str) -> None:
    """Take too long."""
    note(log, "dawdling")
    import time

    time.sleep(60)
    note(log, "dawdled")


async def test_a_tool_that_takes_longer_than_it_may_is_ended_and_the_model_is_told(store: str, log: str) -> None:
    churn = Agent("churn", model=ScriptedModel([Turn("Go.", calls=[("dawdle", {"log": log})]), "Oh."]), tools=[dawdle])

    async with Runtime(store) as runtime:
        assert await (await runtime.start(churn, "Go.")).result() == "Oh."

    told = churn.model.asked[-1].messages  # type: ignore[attr-defined]
    (result,) = [message for message in told if isinstance(message, ToolResult)]
    assert "did not end within 1 s" in result.content
    assert "dawdled" not in lines(log)


async def test_a_cap_on_time_trips_in_the_middle_of_a_call(store: str, log: str) -> None:
    """D25: the run pauses as *needs you*, and resume grants the same time again."""
    turns: list[Turn | str] = [Turn("Long.", calls=[("crunch", {"log": log, "ticks": 30})]), "Done."]
    churn = Agent("churn", model=ScriptedModel(turns), tools=[crunch], stop_when=Elapsed(seconds=0.5) | Turns(9))

    async with Runtime(store) as runtime:
        run = await runtime.start(churn, "Go.")
        await until_status(run, Status.PAUSING, Status.PAUSED)
        (waiting,) = (await run.state()).waiting()
        assert waiting.kind == "cap"
        assert "Elapsed" in waiting.what
        await until_status(run, Status.PAUSED)
        assert (await run.state()).tripped == ("Elapsed(0.5)",)
        await run.cancel()


# -- in doubt, with a check


def was_sent(call: Any) -> dict[str, Any]:
    return {"happened": "sent" in lines(call.arguments["log"]), "result": "sent"}


@tool(verify=was_sent)
def send_checked(log: str, seconds: float = 0.0) -> str:
    """Send an e-mail, and be able to say later whether it went out."""
    return send.function(log, seconds)


SCRIPT = """
import asyncio, sys
from checkrein import Agent, Runtime
from checkrein.models import ScriptedModel, Turn
from tests.promises.test_agent_loop import send_checked
async def main():
    log, store = sys.argv[1:]
    turns = [Turn("Send.", calls=[("send_checked", {"log": log, "seconds": 60})]), "Done."]
    agent = Agent("churn", model=ScriptedModel(turns), tools=[send_checked])
    async with Runtime(store, agents=[agent]) as runtime:
        await (await runtime.start(agent, "Send it.")).result()
if __name__ == "__main__":
    asyncio.run(main())
"""


async def test_a_tool_that_can_verify_helps_to_decide_about_a_call_in_doubt(
    store: str, log: str, tmp_path: Path
) -> None:
    """D30: what the check says is recorded, and a person still decides."""
    async with program(tmp_path, SCRIPT, log, store):
        await until(lambda: "sending" in lines(log))
    churn = Agent("churn", model=ScriptedModel(["never", "Done."]), tools=[send_checked])

    async with Runtime(store, agents=[churn]) as runtime:
        (row,) = await runtime.runs()
        run = await runtime.get(row.id)

        async with asyncio.timeout(PATIENCE_SECONDS):
            checked = await anext(r.event async for r in run.events() if isinstance(r.event, CallChecked))

        assert checked.answer is Answer.DID_NOT_HAPPEN
        assert (await run.state()).waiting()[0].kind == "in_doubt"
        await run.check(checked.call, by="alice")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while sum(isinstance(r.event, CallChecked) for r in await runtime.journal.read(run.id)) < 2:
                await asyncio.sleep(0.01)
        with pytest.raises(Refused, match="not in doubt"):
            await run.check("c99")
        await run.resolve(checked.call, "happened", result="sent")
        assert await run.result() == "Done."


# -- what a tool is given, and what it says


def settings() -> dict[str, str]:
    return {"currency": "EUR"}


@tool(effect="none")
def price_in_worker() -> str:
    """The currency, in a worker process."""
    return str(current_call().deps["currency"])


@tool(effect="none")
async def price_in_task() -> str:
    """The currency, on the event loop."""
    return str(current_call().deps["currency"])


async def test_tools_find_what_the_agent_was_given(store: str) -> None:
    turns: list[Turn | str] = [Turn("Ask.", calls=[("price_in_worker", {}), ("price_in_task", {})]), "Done."]
    churn = Agent("churn", model=ScriptedModel(turns), tools=[price_in_worker, price_in_task], deps=settings)

    async with Runtime(store) as runtime:
        await (await runtime.start(churn, "Go.")).result()

    told = churn.model.asked[-1].messages  # type: ignore[attr-defined]
    assert [message.content for message in told if isinstance(message, ToolResult)] == ["EUR", "EUR"]


@tool(undo=discard)
async def keep_draft(log: str) -> str:
    """Make a draft that is meant to stay."""
    note(log, "draft")
    current_call().settle()
    return "draft-8"


def crunches_after(log: str, *tools: Tool, last: str = "Done.") -> Agent:
    """Calls the tools together, and then one that takes long."""
    first = Turn("First these.", calls=[(tool.name, {"log": log}) for tool in tools])
    then = Turn("Numbers.", calls=[("crunch", {"log": log})])
    return Agent("churn", model=ScriptedModel([first, then, last]), tools=[*tools, crunch])


async def test_an_effect_that_its_tool_settles_is_not_undone_by_a_cancel(store: str, log: str) -> None:
    churn = crunches_after(log, keep_draft, make_draft)

    async with Runtime(store) as runtime:
        run = await runtime.start(churn, "Go.")
        await until(lambda: "tick" in lines(log))
        receipt = await run.cancel()

        states = {effect.what: effect.state for effect in await runtime.journal.effects(run.id)}
    assert isinstance(receipt, Receipt)
    assert states == {"keep_draft": EffectState.SETTLED, "make_draft": EffectState.UNDONE}
    assert [line for line in lines(log) if line.startswith("discard")] == ["discard draft-7"]


# -- threads


async def test_a_run_on_a_busy_thread_waits_for_its_turn(store: str, log: str) -> None:
    """D38"""
    turns: list[Turn | str] = [
        Turn("Send.", calls=[("send", {"log": log, "seconds": 3600, "file": f"{log}.go"})]),
        "One.",
        "Two.",
    ]
    churn = Agent("churn", model=ScriptedModel(turns), tools=[send])

    async with Runtime(store) as runtime:
        first = await runtime.start(churn, "Go.", thread="t")
        await until(lambda: "sending" in lines(log))
        second = await runtime.start(churn, "And then?", thread="t")
        await asyncio.sleep(0.2)
        assert (await second.state()).status is Status.QUEUED

        Path(f"{log}.go").touch()
        assert await first.result() == "One."
        assert await second.result() == "Two."
    told = churn.model.asked[-1].messages  # type: ignore[attr-defined]
    assert [message.text for message in told if isinstance(message, User)] == ["Go.", "And then?"]


async def test_a_run_goes_on_from_where_a_cancelled_one_stopped(store: str, log: str) -> None:
    """D6 D22: finished work is known, undone work is named."""
    churn = crunches_after(log, make_draft, send, last="Going on.")

    async with Runtime(store) as runtime:
        run = await runtime.start(churn, "Go.")
        await until(lambda: "tick" in lines(log))
        await run.cancel()

        on = await runtime.start(churn, continues=run.id)

        assert await on.result() == "Going on."
        (created, *_) = await runtime.journal.read(on.id)
    assert created.event.continues == run.id  # type: ignore[attr-defined]
    told = churn.model.asked[-1].messages  # type: ignore[attr-defined]
    results = {message.name: message.content for message in told if isinstance(message, ToolResult)}
    assert "undone" in results["make_draft"]
    assert results["send"] == "sent"
    assert lines(log).count("sending") == 1


async def test_a_run_without_a_goal_is_refused_with_a_sentence(store: str) -> None:
    churn = Agent("churn", model=ScriptedModel(["Hello."]))

    async with Runtime(store) as runtime:
        with pytest.raises(MisuseError, match="needs a goal"):
            await runtime.start(churn, "  ")
        assert await runtime.runs() == ()


# -- a driver that is wedged in user code


WEDGED = """
import asyncio, sys, time
from checkrein import Agent, Runtime, tool
from checkrein.models import ScriptedModel, Turn
from tests.support.agent_tools import make_draft, note

@tool
async def block(log: str) -> None:
    note(log, "blocking")
    while True:
        time.sleep(0.05)
        note(log, "tick")

async def main():
    log, store = sys.argv[1:]
    turns = [
        Turn("Draft.", calls=[("make_draft", {"log": log})]),
        Turn("Block.", calls=[("block", {"log": log})]),
        "never",
    ]
    agent = Agent("churn", model=ScriptedModel(turns), tools=[make_draft, block])
    async with Runtime(store, agents=[agent]) as runtime:
        await (await runtime.start(agent, "Go.")).result()
if __name__ == "__main__":
    asyncio.run(main())
"""


async def test_a_driver_whose_event_loop_is_blocked_is_killed_when_a_stop_waits_for_it(
    store: str, log: str, tmp_path: Path
) -> None:
    """D2 D16: P6. The cancel is accepted at once; the process is ended; what it was doing is in doubt."""
    async with program(tmp_path, WEDGED, log, store) as process:
        await until(lambda: "tick" in lines(log))
        async with await open_journal(store) as journal:
            control = Control(journal, this_process())
            (row,) = await journal.runs()

            answer = await control.cancel(row.id, by="ann", wait=0)
            assert not isinstance(answer, Receipt)

            assert await asyncio.to_thread(process.wait, PATIENCE_SECONDS) == -signal.SIGKILL
            async with asyncio.timeout(PATIENCE_SECONDS):
                while answer.waiting_for != "a worker with agent churn":  # the draft is still to be undone
                    answer = await control.cancel(row.id, by="ann", wait=0.2)
                    assert not isinstance(answer, Receipt)
            ticks = lines(log).count("tick")
            finished = [r.event for r in await journal.read(row.id) if isinstance(r.event, CallFinished)]
            assert finished[-1].outcome is Outcome.IN_DOUBT
            await asyncio.sleep(0.3)
            assert lines(log).count("tick") == ticks
    churn = Agent("churn", model=ScriptedModel(["never"]), tools=[make_draft])
    async with Runtime(store, agents=[churn]) as runtime:
        await until_status(await runtime.get(row.id), Status.CANCELLED)
    assert "discard draft-7" in lines(log)
