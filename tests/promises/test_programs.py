"""Programs over a context, and sub-runs: live, replayed in a new process, and stopped. The witness is their own log."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

import psutil
import pytest

from checkrein import Agent, Context, Interrupted, Receipt, Run, RunFailed, Runtime, Settling, agent
from checkrein.agents.program import ProgramAgent
from checkrein.calls import sub_run
from checkrein.core.enums import Status
from checkrein.core.events import CallStarted, PlanPublished, StepFinished, StepStarted
from checkrein.driver import replay
from checkrein.journal.commands import take_command
from checkrein.models import ScriptedModel, ToolResult, Turn, User
from tests.support.agent_tools import lines, note, times
from tests.support.programs import book, boss, everything, look, many, undo_booking, words
from tests.support.runs import until_status
from tests.support.witness import until

pytestmark = pytest.mark.anyio


async def left_paused(store: str, program: ProgramAgent, goal: str, log: str, word: str) -> Run:
    """A run of a runtime that has ended since, which paused it when its log said `word`."""
    async with Runtime(store) as first:
        run = await first.start(program, goal)
        await until(lambda: word in lines(log))
        await run.pause()
    return run


async def test_a_program_has_everything_it_needs_from_its_context(store: str, log: str) -> None:
    async with Runtime(store) as runtime:
        run = await runtime.start(everything, log)
        result = await run.result()
        records = [record.event for record in await runtime.journal.read(run.id)]

    assert result["found"] == ["A", "B", "C"]
    assert result["square"] == 49
    assert result["booked"] == "table-1"
    assert result["said"] == "one two three "
    assert result["version"] is True
    assert [event.steps for event in records if isinstance(event, PlanPublished)] == [("Look", "Book")]
    assert [event.title for event in records if isinstance(event, StepStarted)] == ["Look", "Book"]
    assert len([event for event in records if isinstance(event, StepFinished)]) == 2
    steps = {event.name: event.step for event in records if isinstance(event, CallStarted)}
    assert steps == {"look": 1, "compute": 1, "book": 2, "stream": 2}


async def test_a_program_is_replayed_in_a_new_runtime_without_doing_anything_again(store: str, log: str) -> None:
    """D29 D30: concurrent calls, a worker's call and a stream come back as they were recorded."""
    run = await left_paused(store, everything, log, log, "booking last")
    before = lines(log)

    async with Runtime(store, agents=[everything]) as second:
        again = await second.get(run.id)
        await again.resume()
        result = await again.result()

    assert result["found"] == ["A", "B", "C"]
    assert result["said"] == "one two three "
    assert lines(log) == before, "everything was recorded, nothing was done again"
    assert before.count("booked last") == 1


async def test_the_clock_and_the_ids_of_a_program_are_the_same_when_it_is_played_again(store: str, log: str) -> None:
    seen: list[tuple[float, str]] = []

    @agent(name="clock")
    async def program(ctx: Context, goal: str) -> None:
        await ctx.call(book, log, "one")
        seen.append((ctx.now(), str(ctx.uuid())))
        await ctx.call(book, log, "two", 0.5)

    run = await left_paused(store, program, "go", log, "booking two")
    async with Runtime(store, agents=[program]) as second:
        again = await second.get(run.id)
        await again.resume()
        await again.result()

    assert len(seen) == 2
    assert seen[0] == seen[1]


async def test_an_instruction_in_the_middle_of_a_program_reaches_its_next_model_call(store: str, log: str) -> None:
    """D21 D32: also after a restart, the instruction is given once and to the call that carried it."""
    model = ScriptedModel(
        lambda request: "noted: " + " / ".join(m.text for m in request.messages if isinstance(m, User))
    )

    @agent(name="told", model=model)
    async def program(ctx: Context, goal: str) -> str:
        with contextlib.suppress(Interrupted):
            await ctx.call(book, log, "slow", 30)
        first = await ctx.model("what now?")
        await ctx.call(book, log, "end", 0.5)
        return str(first.text)

    async with Runtime(store) as runtime:
        run = await runtime.start(program, "go")
        await until(lambda: "booking slow" in lines(log))
        receipt = await run.redirect("only Q3")
        await until(lambda: "booking end" in lines(log))
        await run.pause()
    async with Runtime(store, agents=[program]) as second:
        again = await second.get(run.id)
        await again.resume()
        result = await again.result()

    assert isinstance(receipt, Receipt)
    assert receipt.delivered is True
    assert result == "noted: what now? / only Q3"
    assert "booked slow" not in lines(log)
    assert model.requests == 1


async def diverges(run: Run) -> str:
    """Resume a run that pauses again, because its program is another than the one recorded. What it says about that."""
    await run.resume()
    await until_status(run, Status.PAUSED)
    (waiting,) = (await run.state()).waiting()
    assert waiting.kind == "replay_diverged"
    return waiting.what


async def test_a_program_that_asks_for_something_else_pauses_and_names_both(store: str, log: str) -> None:
    """What a person can mend pauses: put back, the program goes on."""
    asked = "first"

    @agent(name="fickle")
    async def program(ctx: Context, goal: str) -> str:
        await ctx.call(book, log, asked)
        await ctx.call(book, log, "slow", 0.5)
        return "done"

    run = await left_paused(store, program, "go", log, "booking slow")
    asked = "other"
    async with Runtime(store, agents=[program]) as second:
        again = await second.get(run.id)
        what = await diverges(again)
        assert "asked for book" in what
        assert "recorded book" in what
        assert "booking other" not in lines(log)

        asked = "first"
        await again.resume()
        assert await again.result() == "done"
    assert lines(log).count("booking first") == 1


CHANGES = {"removed": ["two", "slow"], "swapped": ["two", "one", "slow"], "removed at the end": ["one", "slow"]}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("swallows", [False, True])
async def test_a_program_that_lost_a_recorded_call_pauses_instead_of_waiting_for_ever(
    store: str, log: str, change: str, swallows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "RELEASE_SECONDS", 0.2)
    monkeypatch.setattr(replay, "STALL_SECONDS", 0.2)
    steps = ["one", "two", "slow"]

    @agent(name="forgetful")
    async def program(ctx: Context, goal: str) -> str:
        for step in steps:
            try:
                await ctx.call(book, log, step, 0.5 if step == "slow" else 0.0)
            except Exception:
                if not swallows:
                    raise
        return "done"

    run = await left_paused(store, program, "go", log, "booking slow")
    before = lines(log)
    steps = CHANGES[change]
    async with Runtime(store, agents=[program]) as second:
        again = await second.get(run.id)
        await diverges(again)

        steps = ["one", "two", "slow"]
        await again.resume()
        assert await again.result() == "done"
    assert lines(log) == before, "nothing was done again"


async def test_a_program_may_change_on_purpose(store: str, log: str) -> None:
    version = 1

    @agent(name="growing")
    async def program(ctx: Context, goal: str) -> str:
        await ctx.call(book, log, "one")
        if version == 2 and ctx.version("looks-first"):
            await ctx.tool(look, log=log, what="new")
        await ctx.call(book, log, "two", 0.5)
        return "done"

    run = await left_paused(store, program, "go", log, "booking two")
    version = 2
    async with Runtime(store, agents=[program]) as second:
        old = await second.get(run.id)
        await old.resume()
        assert await old.result() == "done"
        assert "look new" not in lines(log), "a run that came by before the change keeps to the old way"
        new = await second.start(program, "go")
        assert await new.result() == "done"
    assert lines(log).count("look new") == 1


async def test_a_stream_that_is_paused_is_closed_and_asked_again(store: str) -> None:
    closed: list[int] = []

    async def source() -> Any:
        try:
            async for word in words("a b c d e f g h", 0.05):
                yield word
        finally:
            closed.append(1)

    @agent(name="streams")
    async def program(ctx: Context, goal: str) -> str:
        return str(await ctx.stream(source))

    async with Runtime(store) as runtime:
        run = await runtime.start(program, "go")
        heard: list[str] = []
        runtime.listen(run.id, lambda chunk: heard.append(chunk.text))
        await until(lambda: len(heard) >= 2)

        await run.pause()
        by_then = len(heard)
        await asyncio.sleep(0.2)

        assert closed == [1]
        assert len(heard) == by_then
        await run.resume()
        assert await run.result() == "a b c d e f g h "


async def fails(program: Any, store: str, match: str, **options: Any) -> None:
    async with Runtime(store, **options) as runtime:
        with pytest.raises(RunFailed, match=match):
            await (await runtime.start(program, "go")).result()


async def test_what_the_author_raises_fails_the_run(store: str) -> None:
    @agent(name="broken")
    async def program(ctx: Context, goal: str) -> None:
        raise ZeroDivisionError("by zero")

    await fails(program, store, "ZeroDivisionError: by zero")


async def test_a_result_that_json_cannot_hold_fails_with_one_sentence(store: str) -> None:
    @agent(name="odd")
    async def program(ctx: Context, goal: str) -> object:
        return object()

    await fails(program, store, "JSON cannot hold")


async def test_a_result_that_is_too_large_fails_the_run_and_says_so(store: str) -> None:
    @agent(name="talkative")
    async def program(ctx: Context, goal: str) -> str:
        return "x" * 1_001

    await fails(program, store, r"ResultTooLarge: .* more than 1,000 bytes", result_bytes=1_000)


async def make_nothing() -> object:
    return object()


async def test_a_call_whose_result_json_cannot_hold_fails_and_names_its_function(store: str) -> None:
    @agent(name="odd call")
    async def program(ctx: Context, goal: str) -> None:
        await ctx.call(make_nothing)

    async with Runtime(store) as runtime:
        with pytest.raises(RunFailed, match="make_nothing returned a value of type object"):
            await (await runtime.start(program, "go")).result()


# -- sub-runs


async def test_sub_runs_give_their_results_to_the_program_that_spawned_them(store: str) -> None:
    async with Runtime(store) as runtime:
        run = await runtime.start(many, "ab")

        assert await run.result() == ["0ba", "1ba", "2ba"]
        rows = await runtime.journal.runs(root=run.id)
        assert {row.parent for row in rows} == {run.id}
        assert len(rows) == 3


async def test_a_cancel_stops_sub_runs_first_and_undoes_leaves_before_their_parent(store: str, log: str) -> None:
    """D2 D3 D26: the table's line for sub-runs. The child process of the sub-run's tool is gone, nothing ticks."""
    async with Runtime(store) as runtime:
        run = await runtime.start(boss, log)
        await until(lambda: "tick" in lines(log))
        pid = int(next(line for line in lines(log) if line.startswith("child ")).split()[1])

        receipt = await run.cancel()
        stopped_at = time.time()

        assert isinstance(receipt, Receipt)
        assert receipt.status is Status.CANCELLED
        assert [(call.kind, call.name, call.now) for call in receipt.calls] == [("run", "worker", "aborted")]
        (row,) = await runtime.journal.runs(root=run.id)
        assert row.status is Status.CANCELLED
        assert not psutil.pid_exists(pid)
        undone = [line for line in lines(log) if line.startswith("unbook")]
        assert undone == ["unbook child", "unbook parent"]
        await asyncio.sleep(0.3)
        assert max(times(log, "tick")) <= stopped_at


def parent_of(child: ProgramAgent) -> ProgramAgent:
    @agent(name="waits")
    async def parent(ctx: Context, goal: str) -> str:
        return str(await ctx.spawn(child, "go"))

    return parent


async def test_a_pause_and_a_resume_reach_sub_runs(store: str, log: str) -> None:
    """D20 D28"""

    @agent(name="slow-child")
    async def child(ctx: Context, goal: str) -> str:
        for n in range(10_000):
            await ctx.call(book, log, f"{n}", 0.05)
            if "enough" in lines(log):
                break
        return "done"

    async with Runtime(store) as runtime:
        run = await runtime.start(parent_of(child), "go")
        await until(lambda: "booked 2" in lines(log))

        receipt = await run.pause()
        (row,) = await runtime.journal.runs(root=run.id)
        by_then = len(lines(log))
        await asyncio.sleep(0.3)

        assert isinstance(receipt, Receipt)
        assert receipt.status is Status.PAUSED
        assert row.status is Status.PAUSED
        assert len(lines(log)) == by_then
        await run.resume()
        await until(lambda: len(lines(log)) > by_then + 2)
        note(log, "enough")
        assert await run.result() == "done"
    booked = [line for line in lines(log) if line.startswith("booking")]
    assert booked == [f"booking {n}" for n in range(len(booked))]


async def test_a_sub_run_that_a_person_paused_stays_paused_when_its_parent_is_resumed(store: str, log: str) -> None:
    async def wait_until_told() -> None:
        note(log, "waiting")
        await until(lambda: "go on" in lines(log))

    @agent(name="held-child")
    async def child(ctx: Context, goal: str) -> str:
        await ctx.call(wait_until_told)
        await ctx.call(book, log, "two")
        return "done"

    async with Runtime(store) as runtime:
        run = await runtime.start(parent_of(child), "go")
        await until(lambda: "waiting" in lines(log))
        (row,) = await runtime.journal.runs(root=run.id)
        below = await runtime.get(row.id)
        pausing = asyncio.create_task(below.pause())
        await until_status(below, Status.PAUSING)
        note(log, "go on")
        await pausing
        await run.pause()

        await run.resume()
        await asyncio.sleep(0.3)

        assert (await below.state()).status is Status.PAUSED
        assert "booking two" not in lines(log)
        await below.resume()
        assert await run.result() == "done"


@agent(name="books-twice")
async def books_twice(ctx: Context, log: str) -> str:
    await ctx.call(book, log, "one", 0.3)
    await ctx.call(book, log, "two")
    return "done"


@agent(name="hands-on")
async def hands_on(ctx: Context, log: str) -> str:
    return str(await ctx.spawn(books_twice, log))


async def held_with_its_parent(runtime: Runtime, log: str) -> tuple[Run, Run]:
    """A run that ann has paused, and its sub-run, which was paused with it."""
    run = await runtime.start(hands_on, log)
    await until(lambda: "booking one" in lines(log))
    (row,) = await runtime.journal.runs(root=run.id)
    below = await runtime.get(row.id)
    await run.pause(by="ann")
    await until_status(below, Status.PAUSED)
    return run, below


@pytest.mark.parametrize("restarted", [False, True], ids=["same process", "another process"])
async def test_a_pause_of_a_sub_run_that_is_held_with_its_parent_outlives_the_resume_of_the_parent(
    store: str, log: str, restarted: bool
) -> None:
    """What was acknowledged is kept: it goes on when it is resumed itself, and not before."""
    async with contextlib.AsyncExitStack() as open_runtimes:
        runtime = await open_runtimes.enter_async_context(Runtime(store, agents=[hands_on, books_twice]))
        run, below = await held_with_its_parent(runtime, log)

        receipt = await below.pause(by="bob")

        assert isinstance(receipt, Receipt)
        assert (receipt.by, receipt.status) == ("bob", Status.PAUSED)
        if restarted:
            await open_runtimes.aclose()
            runtime = await open_runtimes.enter_async_context(Runtime(store, agents=[hands_on, books_twice]))
            run, below = await runtime.get(run.id), await runtime.get(below.id)
        await run.resume(by="ann")
        await until_status(run, Status.RUNNING)
        await asyncio.sleep(0.5)
        assert "booking two" not in lines(log)
        assert (await below.state()).status is Status.PAUSED

        await below.resume(by="bob")
        assert await run.result() == "done"
    assert [line for line in lines(log) if line.startswith("booking")] == ["booking one", "booking two"]


async def test_a_pause_of_a_sub_run_that_comes_while_its_parent_resumes_it_is_kept(
    store: str, log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the parent's look at the sub-run and its resume."""
    async with Runtime(store) as runtime:
        run, below = await held_with_its_parent(runtime, log)
        asked: list[str] = []

        async def bob_pauses() -> None:
            if not asked:
                asked.append("bob")
                await below.pause(by="bob")

        async def take_late(journal: Any, of: str, make: Any) -> Any:
            return await take_command(journal, of, make, look=bob_pauses)

        monkeypatch.setattr(sub_run, "take_command", take_late)
        await run.resume(by="ann")
        await until(lambda: asked)
        await asyncio.sleep(0.5)

        assert "booking two" not in lines(log)
        assert (await below.state()).status is Status.PAUSED
        await below.resume(by="bob")
        assert await run.result() == "done"


async def test_a_sub_run_that_has_not_come_to_rest_when_its_parent_is_resumed_goes_on_with_it(
    runtime: Runtime, log: str
) -> None:
    """It waits for its tool to finish, and would be paused then for ever."""

    async def work() -> None:
        note(log, "working")
        await until(lambda: "go on" in lines(log))

    @agent
    async def child(ctx: Context, goal: str) -> str:
        await ctx.call(work)
        await ctx.call(book, log, "two")
        return "done"

    run = await runtime.start(parent_of(child), "go")
    await until(lambda: "working" in lines(log))
    (row,) = await runtime.journal.runs(root=run.id)
    below = await runtime.get(row.id)
    assert isinstance(await run.pause(wait=0.0), Settling)
    await until_status(below, Status.PAUSING)

    await run.resume()
    await until_status(below, Status.RUNNING)
    note(log, "go on")

    assert await run.result() == "done"


async def test_a_parent_finds_its_sub_run_again_after_a_restart(store: str, log: str) -> None:
    """D29 D30"""

    async def wait_until_told() -> None:
        await until(lambda: "go on" in lines(log))

    @agent
    async def child(ctx: Context, goal: str) -> None:
        await ctx.call(book, goal, "child", undo=undo_booking)
        await ctx.call(wait_until_told)

    @agent
    async def parent(ctx: Context, goal: str) -> None:
        await ctx.spawn(child, goal)

    async with Runtime(store) as first:
        run = await first.start(parent, log)
        await until(lambda: "booked child" in lines(log))
        await run.pause(wait=0)
        note(log, "go on")
        await until_status(run, Status.PAUSED)

    async with Runtime(store, agents=[parent, child]) as second:
        again = await second.get(run.id)
        receipt = await again.cancel()

        assert isinstance(receipt, Receipt)
        assert receipt.status is Status.CANCELLED
        (row,) = await second.journal.runs(root=run.id)
        await until_status(await second.get(row.id), Status.CANCELLED)
    assert lines(log).count("booking child") == 1


async def test_an_agent_hands_work_to_another_agent_among_its_tools(store: str, log: str) -> None:
    helper = Agent("helper", model=ScriptedModel(["Forty-two."]), instructions="Answer.")
    lead = Agent(
        "lead",
        model=ScriptedModel([Turn("Ask the helper.", calls=[("helper", {"goal": "How many?"})]), "It is 42."]),
        tools=[helper],
    )

    async with Runtime(store) as runtime:
        run = await runtime.start(lead, "Find out.")

        assert await run.result() == "It is 42."
        told = lead.model.asked[-1].messages  # type: ignore[attr-defined]
        assert [message.content for message in told if isinstance(message, ToolResult)] == ["Forty-two."]
        (row,) = await runtime.journal.runs(root=run.id)
        assert (row.agent, row.goal) == ("helper", "How many?")
