"""A new run from a finished step of another. The witness of what is done, and done once, is the tools' own log."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from checkrein import Agent, Context, Run, Runtime, Turns, agent, tool
from checkrein.core.enums import EffectState, Status
from checkrein.core.events import CallReused, CallStarted, InstructionDelivered
from checkrein.errors import ModelUnauthorised, Refused, RunNotFound
from checkrein.models import Assistant, ScriptedModel, ToolResult, Turn, User
from tests.support import stoppable
from tests.support.agent_tools import lines, make_draft, note, send, wire_money
from tests.support.programs import book, look, undo_booking, words
from tests.support.runs import asked, calls, events, in_flight, ledger, program, result, until_status
from tests.support.witness import until

pytestmark = pytest.mark.anyio


@agent
async def trip(ctx: Context, log: str) -> list[str]:
    """Three steps with an effect each. Its ids and its clock go into what it asks for."""
    done = []
    for city in ("Rome", "Oslo", "Bonn"):
        async with ctx.step(city):
            stamp = f"{city}/{ctx.uuid()}/{ctx.now()}"
            done.append(await ctx.call(book, log, stamp, undo=undo_booking))
    return done


def cities(log: str, word: str = "booked") -> list[str]:
    """The cities that were booked, as the log of the tool has it."""
    said = [line.removeprefix(f"{word} ") for line in lines(log) if line.startswith(f"{word} ")]
    return [stamp.partition("/")[0] for stamp in said]


async def finished(runtime: Runtime, program: Any, goal: str) -> Run:
    run = await runtime.start(program, goal)
    await result(run)
    return run


# -- programs


async def test_a_fork_of_a_program_does_only_what_comes_after_its_step(runtime: Runtime, log: str) -> None:
    """D29 D30: not even a program whose ids and times are part of what it asks for diverges."""
    origin = await finished(runtime, trip, log)

    fork = await origin.fork(at=2)
    brought = await result(fork)

    assert cities(log) == ["Rome", "Oslo", "Bonn", "Bonn"]
    assert brought[:2] == (await origin.result())[:2]
    assert brought[2] != (await origin.result())[2], "an id that the fork draws is one that no other run has"
    assert [call.call for call in await events(runtime, fork, CallReused)] == ["c1", "c2"]
    assert [call.call for call in await events(runtime, fork, CallStarted)] == ["c3"]
    await runtime.journal.verify(fork.id)


async def test_a_fork_names_its_origin_and_what_of_it_stands(runtime: Runtime, log: str) -> None:
    origin = await finished(runtime, trip, log)

    view = await (await origin.fork(at=2, by="ann")).view()

    assert view.forked_from is not None
    assert (view.forked_from.run, view.forked_from.step, view.forked_from.title) == (origin.id, 2, "Oslo")
    assert view.forked_from.by == "ann"
    assert [effect.now for effect in view.forked_from.effects] == [EffectState.SETTLED, EffectState.SETTLED]


async def test_the_steps_that_a_fork_has_taken_over_are_done_and_marked(runtime: Runtime, log: str) -> None:
    origin = await finished(runtime, trip, log)
    fork = await origin.fork(at=2)
    await result(fork)

    view = await fork.view()

    assert [(step.title, step.shown) for step in view.steps] == [("Rome", "done"), ("Oslo", "done"), ("Bonn", "done")]
    assert [call.reused_from for call in view.calls] == [origin.id, origin.id, ""]


async def test_cancelling_a_fork_undoes_nothing_of_its_origin_and_the_other_way_round(
    runtime: Runtime, log: str
) -> None:
    @agent(name="long")
    async def program(ctx: Context, goal: str) -> None:
        async with ctx.step("first"):
            await ctx.call(book, log, "first", undo=undo_booking)
        async with ctx.step("second"):
            await ctx.call(book, log, "second", 60, undo=undo_booking)

    origin = await runtime.start(program, "go")
    await until(lambda: "booking second" in lines(log))
    fork = await origin.fork(at=1)
    await until(lambda: lines(log).count("booking second") == 2)

    await fork.cancel()
    assert [line for line in lines(log) if line.startswith("unbook")] == ["unbook second"]
    assert set((await ledger(runtime, origin)).values()) == {EffectState.OPEN}
    await origin.cancel()

    assert sorted(line for line in lines(log) if line.startswith("unbook")) == [
        "unbook first",
        "unbook second",
        "unbook second",
    ]


@pytest.mark.parametrize("how", ["running", "paused", "completed", "cancelled", "failed"])
async def test_a_run_is_forked_in_whichever_state_it_is(runtime: Runtime, log: str, how: str, tmp_path: Path) -> None:
    go = tmp_path / "go"

    @agent(name="either")
    async def program(ctx: Context, goal: str) -> str:
        async with ctx.step("first"):
            await ctx.call(book, log, "first", undo=undo_booking)
        seconds = 0 if go.exists() else 60  # asked before the permit: whoever sees that goes on
        if how not in ("completed", "failed"):
            await ctx.stream(lambda: words("second", seconds))
        if how == "failed" and not go.exists():
            raise ValueError("as planned")
        return "done"

    origin = await runtime.start(program, "go")
    if how in ("completed", "failed"):
        await until_status(origin, Status(how))
    else:
        await in_flight(origin, "stream")
    if how == "paused":
        await origin.pause()
    elif how == "cancelled":
        await origin.cancel()
    stood, before = await origin.state(), await runtime.journal.read(origin.id)
    assert stood.status is Status(how)
    go.touch()

    fork = await origin.fork(at=1)
    brought = await result(fork)

    assert brought == "done"
    assert lines(log).count("booking first") == 1, "what came before the step is not done again"
    assert await runtime.journal.read(origin.id) == before, "the origin stays as it is"
    (effect,) = (await fork.view()).forked_from.effects  # type: ignore[union-attr]
    assert effect.now is _STANDS[how]
    if how in ("running", "paused"):
        await origin.cancel()


_STANDS = {
    "running": EffectState.OPEN,
    "paused": EffectState.OPEN,
    "completed": EffectState.SETTLED,
    "cancelled": EffectState.UNDONE,
    "failed": EffectState.LEFT,
}


async def test_a_fork_can_be_forked_before_and_after_where_it_began(runtime: Runtime, log: str) -> None:
    origin = await finished(runtime, trip, log)
    fork = await origin.fork(at=2)
    await result(fork)

    early = await fork.fork(at=1)
    await result(early)
    late = await fork.fork(at=3)
    brought = await result(late)

    assert cities(log) == ["Rome", "Oslo", "Bonn", "Bonn", "Oslo", "Bonn"]
    assert brought == await fork.result()
    assert [call.origin for call in await events(runtime, late, CallReused)] == [origin.id, origin.id, fork.id]
    assert [call.origin for call in await events(runtime, early, CallReused)] == [origin.id]


async def test_a_fork_at_an_unknown_or_unfinished_step_is_refused_in_a_sentence(runtime: Runtime, log: str) -> None:
    @agent(name="slow")
    async def program(ctx: Context, goal: str) -> None:
        async with ctx.step("first"):
            await ctx.call(book, log, "first")
        async with ctx.step("second"):
            await ctx.call(book, log, "second", 60)

    run = await runtime.start(program, "go")
    await until(lambda: "booking second" in lines(log))

    with pytest.raises(Refused, match=r"has no step 7: its steps are 1 to 2") as unknown:
        await run.fork(at=7)
    with pytest.raises(
        Refused, match=r"Step 2 of run .*, second, is not finished .running.. Finished: 1"
    ) as unfinished:
        await run.fork(at=2)
    with pytest.raises(RunNotFound):
        await runtime.fork("r-none", at=1)
    await run.cancel()

    assert (unknown.value.code, unfinished.value.code) == ("step_not_found", "step_not_finished")
    assert len(await runtime.runs()) == 1, "nothing was begun"


async def test_a_call_that_began_beside_the_step_is_not_done_again_or_the_fork_is_refused(
    runtime: Runtime, log: str, tmp_path: Path
) -> None:
    go = tmp_path / "go"

    @agent(name="both")
    async def program(ctx: Context, goal: str) -> None:
        async def slow() -> None:
            async with ctx.step("slow"):
                await ctx.tool(send, log=log, seconds=60, file=str(go))

        async def quick() -> None:
            async with ctx.step("quick"):
                await until(lambda: "sending" in lines(log))
                await ctx.call(book, log, "quick")

        await asyncio.gather(slow(), quick())

    run = await runtime.start(program, "go")
    await until(lambda: "booked quick" in lines(log))

    with pytest.raises(Refused, match=r"send, which had begun by the end of step 2 .* is still at work"):
        for _ in range(200):  # until the step is finished
            try:
                await run.fork(at=2)
            except Refused as refused:
                if "is not finished (running)" not in refused.message:
                    raise
                await asyncio.sleep(0.02)
    go.touch()
    await result(run)
    fork = await run.fork(at=2)
    await result(fork)

    assert lines(log).count("sending") == 1
    assert lines(log).count("booking quick") == 1


async def test_the_sub_run_of_an_origin_is_not_begun_again(runtime: Runtime, log: str) -> None:
    @agent(name="child")
    async def child(ctx: Context, goal: str) -> str:
        return str(await ctx.call(book, log, "child"))

    @agent(name="parent")
    async def parent(ctx: Context, goal: str) -> str:
        first = await ctx.spawn(child, "go")
        await ctx.tool(look, log=log, what="after")
        return str(first)

    origin = await finished(runtime, parent, "go")

    fork = await origin.fork(at=1)

    assert await result(fork) == "child-1"
    assert lines(log).count("booking child") == 1
    assert lines(log).count("look after") == 2
    assert (await fork.view()).calls[0].run == f"{origin.id}.c1", "the page leads to the sub-run of the origin"


# -- the built-in loop


def in_order(*turns: Turn | str) -> ScriptedModel:
    """Says one thing after the other, whatever the history: a fork is answered otherwise than its origin was."""
    left = iter(turns)
    return ScriptedModel(lambda request: next(left))


def told(model: ScriptedModel, number: int) -> list[str]:
    """What people said, as the request of this number had it."""
    return [message.text for message in model.asked[number].messages if isinstance(message, User)]


async def test_a_fork_of_the_loop_asks_the_model_again_only_after_its_step(runtime: Runtime, log: str) -> None:
    """D21 D32: with the instruction, and with everything that came before as it was."""
    model = in_order(
        calls(("look", {"log": log, "what": "one"})),
        calls(("look", {"log": log, "what": "two"})),
        "First answer.",
        calls(("look", {"log": log, "what": "three"})),
        "Second answer.",
    )
    churn = Agent("churn", model=model, tools=[look])
    origin = await finished(runtime, churn, "Go.")

    fork = await origin.fork(at=1, instruction="only Q3")

    assert await result(fork) == "Second answer."
    assert lines(log) == ["look one", "look two", "look three"]
    assert model.requests == 5
    (delivered,) = await events(runtime, fork, InstructionDelivered)
    assert delivered.call == "c3"
    assert (await fork.state()).usage.turns == 2, "what it spends counts, not what its origin did"


async def test_caps_of_a_fork_count_what_it_spends_itself(runtime: Runtime, log: str) -> None:
    turns = [calls(("look", {"log": log, "what": str(n)})) for n in range(3)]
    model = in_order(*turns, "One.", *turns, "Two.")
    churn = Agent("churn", model=model, tools=[look], stop_when=Turns(4))
    origin = await finished(runtime, churn, "Go.")

    fork = await origin.fork(at=3, instruction="again")

    assert await result(fork) == "Two."
    assert (await origin.state()).usage.turns == 4
    assert (await fork.state()).usage.turns == 4


async def test_the_answer_that_begins_the_next_step_of_a_plan_is_asked_for_anew(runtime: Runtime, log: str) -> None:
    """The model ends a step and begins the next in one answer: the fork must not do what that answer wanted."""
    model = in_order(
        Turn("", calls=(("plan", {"steps": ["Look", "Send"], "step": 1}), ("look", {"log": log, "what": "one"}))),
        Turn("", calls=(("plan", {"step": 2}), ("send", {"log": log}))),
        "Sent.",
        "Not sent.",
    )
    churn = Agent("churn", model=model, tools=[look, send])
    origin = await finished(runtime, churn, "Go.")

    fork = await origin.fork(at=1, instruction="do not send it")

    assert await result(fork) == "Not sent."
    assert lines(log) == ["look one", "sending", "sent"]


async def test_an_agent_is_told_what_does_not_stand_any_more(runtime: Runtime, log: str) -> None:
    seen: list[list[str]] = []

    def answer(request: Any) -> Any:
        seen.append([message.text for message in request.messages if isinstance(message, User)])
        if any(isinstance(message, ToolResult) for message in request.messages):
            return "Done." if len(seen) > 2 else calls(("send", {"log": log, "seconds": 60}))
        return calls(("make_draft", {"log": log}))

    churn = Agent("churn", model=ScriptedModel(answer), tools=[make_draft, send])
    origin = await runtime.start(churn, "Go.")
    await until(lambda: "sending" in lines(log))
    await origin.cancel()

    fork = await origin.fork(at=1)
    await result(fork)

    assert lines(log) == ["draft", "sending", "discard draft-7"]
    assert "taken back since" in seen[-1][-1]
    assert "make_draft" in seen[-1][-1]


async def test_consent_to_a_call_of_the_origin_is_none_to_a_call_of_the_fork(runtime: Runtime, log: str) -> None:
    model = in_order(
        calls(("look", {"log": log, "what": "one"})),
        calls(("wire_money", {"log": log})),
        "Wired.",
        calls(("wire_money", {"log": log})),
        "Not wired.",
        "As before.",
    )
    churn = Agent("churn", model=model, tools=[look, wire_money])
    origin = await runtime.start(churn, "Go.")
    await origin.approve(await asked(origin), always=True)
    await result(origin)

    fork = await origin.fork(at=1)
    await fork.deny(await asked(fork))
    await result(fork)
    paid = await origin.fork(at=2)

    assert await result(paid) == "As before."
    assert lines(log).count("wired") == 1


async def test_a_pending_approval_is_asked_for_again_in_the_fork(runtime: Runtime, log: str) -> None:
    @tool(approval="queue", effect="irreversible")
    async def pay(log: str) -> str:
        """Pay."""
        note(log, "paid")
        return "paid"

    def answer(request: Any) -> Any:
        said = [message for message in request.messages if isinstance(message, Assistant)]
        if not said:
            return calls(("pay", {"log": log}))
        return calls(("look", {"log": log, "what": "one"})) if len(said) == 1 else "Done."

    churn = Agent("churn", model=ScriptedModel(answer), tools=[look, pay])
    origin = await runtime.start(churn, "Go.")
    first = await asked(origin)
    await until(lambda: "look one" in lines(log))
    view = await origin.view()
    number = next(step.number for step in view.steps if step.title == "look")
    while next(step for step in (await origin.view()).steps if step.title == "look").finished_at is None:
        await asyncio.sleep(0.01)

    fork = await origin.fork(at=number)
    await fork.approve(await asked(fork))
    await result(fork)

    assert lines(log).count("paid") == 1
    assert lines(log).count("look one") == 1
    assert (await origin.state()).approvals[first].decision is None, "that of the origin still waits"
    await origin.cancel()


async def test_a_failure_that_a_person_has_mended_is_not_asked_about_again(runtime: Runtime, log: str) -> None:

    said = 0

    def answer(request: Any) -> Any:
        nonlocal said
        said += 1
        if said == 1:
            raise ModelUnauthorised("no such key")
        return calls(("look", {"log": log, "what": "one"})) if said == 2 else "Done."

    churn = Agent("churn", model=ScriptedModel(answer), tools=[look])
    origin = await runtime.start(churn, "Go.")
    await until_status(origin, Status.PAUSED)
    await origin.resume()
    await result(origin)

    fork = await origin.fork(at=1)

    assert await result(fork) == "Done."
    assert lines(log) == ["look one"]


async def test_what_was_said_before_the_origin_is_known_to_its_fork_and_to_what_continues_that(
    runtime: Runtime, log: str
) -> None:
    model = in_order(
        "Hello.",
        calls(("look", {"log": log, "what": "one"})),
        "Looked.",
        "Looked otherwise.",
        "Went on.",
    )
    churn = Agent("churn", model=model, tools=[look])
    first = await runtime.start(churn, "Hi.", thread="talk")
    await result(first)
    second = await runtime.start(churn, "Look.", thread="talk")
    await result(second)

    fork = await second.fork(at=1, instruction="otherwise")
    await result(fork)
    third = await runtime.start(churn, "Go on.", continues=fork.id)
    await result(third)

    assert told(model, 3) == ["Hi.", "Look.", "otherwise"]
    assert told(model, 4) == ["Hi.", "Look.", "otherwise", "Go on."]
    results = [message.content for message in model.asked[4].messages if isinstance(message, ToolResult)]
    assert results == ["ONE"]


# -- processes

KILLED = """
import asyncio, sys
from checkrein import Runtime
from tests.promises.test_fork import crossing

async def main():
    async with Runtime(sys.argv[1], agents=[crossing]) as runtime:
        run = await runtime.get(sys.argv[2])
        await (await run.fork(at=1)).result()

asyncio.run(main())
"""


@agent
async def crossing(ctx: Context, log: str) -> list[str]:
    """Its second step waits for a file beside its log."""
    done = []
    async with ctx.step("first"):
        done.append(await ctx.call(book, log, "first"))
    async with ctx.step("second"):
        done.append(await ctx.call(book, log, "second"))
    async with ctx.step("third"):
        done.append(await ctx.tool(send, log=log, seconds=0 if Path(f"{log}.go").exists() else 60))
    return done


async def test_a_fork_whose_driver_is_killed_goes_on_without_doing_anything_twice(
    store: str, log: str, tmp_path: Path
) -> None:
    """D10 D29: kill -9 in the middle of the fork, then another process plays it again."""
    go = Path(f"{log}.go")
    go.touch()
    async with Runtime(store) as runtime:
        origin = await finished(runtime, crossing, log)
    go.unlink()
    async with program(tmp_path, KILLED, store, origin.id):
        await until(lambda: lines(log).count("sending") == 2)

    async with Runtime(store, agents=[crossing]) as runtime:
        fork = next(row.id for row in await runtime.runs() if row.id != origin.id)
        again = await runtime.get(fork)
        await until_status(again, Status.RUNNING)
        (call,) = await _in_doubt(again)
        await again.resolve(call, "happened", result="sent")
        brought = await result(again)
        await runtime.journal.verify(fork)

    assert brought == ["first-1", "second-1", "sent"]
    assert lines(log).count("booking first") == 1
    assert lines(log).count("booking second") == 2
    assert lines(log).count("sending") == 2


async def _in_doubt(run: Run) -> list[str]:
    while not (doubts := (await run.view()).doubts):
        await asyncio.sleep(0.01)
    return [doubt.call for doubt in doubts]


async def test_a_program_that_nobody_replays_is_not_forked(runtime: Runtime, log: str) -> None:
    shell = stoppable.Shell(stoppable.script(log, f"{log}.go"))
    Path(f"{log}.go").touch()
    run = await finished(runtime, shell, "Go.")

    with pytest.raises(Refused, match="cannot be played from its middle") as refused:
        await run.fork(at=1)

    assert refused.value.code == "not_replayed"
