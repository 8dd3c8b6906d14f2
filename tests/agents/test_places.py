"""Places, a person's word, calls inside calls, and programs that nobody can play again."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import anyio
import pytest

from checkrein import Context, Interrupted, RunFailed, Runtime, agent, tool
from checkrein.core.enums import EffectState, Status
from checkrein.core.events import CallStarted
from checkrein.errors import CallFailed
from checkrein.models import ScriptedModel
from tests.support.agent_tools import lines, note
from tests.support.programs import look
from tests.support.runs import until_status
from tests.support.witness import until

pytestmark = pytest.mark.anyio


@pytest.fixture
def log(tmp_path: Path) -> str:
    return str(tmp_path / "log")


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'runs.db'}"


async def wait(log: str, what: str) -> str:
    note(log, f"waiting {what}")
    await asyncio.sleep(600)
    return what


# -- places


async def test_a_call_that_has_a_place_is_recognised_by_it_whatever_it_asks_for_by_now(store: str, log: str) -> None:
    """D30: a program that asks with other arguments than before, at the same places, has nothing done again."""
    round = 0

    @agent
    async def helper(ctx: Context, goal: str) -> str:
        return goal

    @agent
    async def program(ctx: Context, goal: str) -> list[Any]:
        done = [
            await ctx.tool(look, place="look", log=log, what=f"a{round}"),
            await ctx.call(look.function, log, f"b{round}", place="call", effect="none"),
            await ctx.spawn(helper, f"c{round}", place="spawn"),
            (await ctx.model(f"d{round}", model=ScriptedModel(["Said."]), place="model")).text,
        ]
        await ctx.call(wait, log, "end", place="end", effect="none", idempotent=True, on_pause="abort")
        return done

    async with Runtime(store, agents=[program, helper]) as first:
        run = await first.start(program, "Go.")
        await until(lambda: "waiting end" in lines(log))
        await run.pause()
    round = 1
    async with Runtime(store, agents=[program, helper]) as second:
        again = await second.get(run.id)
        await again.resume()
        await until(lambda: lines(log).count("waiting end") == 2)
        await again.cancel()
        asked = [one.event.place for one in await second.journal.read(run.id) if isinstance(one.event, CallStarted)]

    assert [line for line in lines(log) if line.startswith("look")] == ["look a0", "look b0"]
    assert asked == ["look", "call", "spawn", "model", "end", "end"]


async def test_a_tool_that_takes_a_place_itself_is_given_it() -> None:
    @tool(effect="none")
    async def weather(place: str) -> str:
        return f"Rain in {place}."

    @agent
    async def program(ctx: Context, goal: str) -> str:
        return str(await ctx.tool(weather, place=goal))

    async with Runtime("memory:") as runtime:
        assert await (await runtime.start(program, "Bern")).result() == "Rain in Bern."


# -- a person


async def test_a_question_to_a_person_survives_restarts_and_is_answered_by_the_resume(store: str, log: str) -> None:
    """D29 D32"""

    @agent
    async def program(ctx: Context, goal: str) -> list[str]:
        note(log, "playing")
        first = await ctx.ask_person("Which colour?")
        return [first, await ctx.ask_person("And which size?", place="size")]

    async with Runtime(store, agents=[program]) as one:
        run = await one.start(program, "Shop.")
        await until_status(run, Status.PAUSED)
        (waiting,) = (await run.view()).waiting
        assert (waiting.kind, waiting.what) == ("question", "Which colour?")
    async with Runtime(store, agents=[program]) as two:
        run = await two.get(run.id)
        assert lines(log) == ["playing"], "a run that waits for a person is not played"
        await run.resume("blue")
        await until(lambda: lines(log).count("playing") == 2)
        await until_status(run, Status.PAUSED)
        assert [one.what for one in (await run.view()).waiting] == ["And which size?"]
        await run.resume()
        assert await run.result() == ["blue", ""]


async def test_a_question_that_comes_while_a_person_pauses_is_put_after_the_resume(log: str) -> None:
    @agent
    async def program(ctx: Context, goal: str) -> str:
        await ctx.call(asyncio.sleep, 0.3, effect="none")
        note(log, "asking")
        return await ctx.ask_person("Which?")

    async with Runtime("memory:") as runtime:
        run = await runtime.start(program, "Go.")
        await run.pause()
        await run.resume()
        await until(lambda: "asking" in lines(log))
        await until_status(run, Status.PAUSED)
        assert [one.kind for one in (await run.view()).waiting] == ["question"]
        await run.resume("this one")
        assert await run.result() == "this one"


async def test_a_program_that_asks_no_model_takes_an_instruction_once_also_when_it_is_played_again(
    store: str, log: str
) -> None:
    """D38"""
    told: list[list[str | None]] = []

    @agent
    async def program(ctx: Context, goal: str) -> None:
        heard: list[str | None] = [await ctx.instruction()]
        told.append(heard)
        try:
            await ctx.call(wait, log, "one", effect="none")
        except Interrupted as interrupted:
            heard.append(interrupted.instruction)
        heard += [await ctx.instruction(), await ctx.instruction()]
        await ctx.call(wait, log, "two", effect="none", idempotent=True, on_pause="abort")

    async with Runtime(store, agents=[program]) as one:
        run = await one.start(program, "Go.")
        await until(lambda: "waiting one" in lines(log))
        receipt = await run.redirect("Only Q3.")
        assert receipt.delivered
        await until(lambda: "waiting two" in lines(log))
        await run.pause()
    async with Runtime(store, agents=[program]) as two:
        run = await two.get(run.id)
        await run.resume()
        await until(lambda: lines(log).count("waiting two") == 2)
        await run.cancel()

    assert told == [[None, "Only Q3.", "Only Q3.", None]] * 2


# -- calls inside calls


@pytest.mark.parametrize("how", ["tool", "call", "stream", "person"])
async def test_a_call_inside_a_call_is_refused_with_what_to_do_instead(how: str) -> None:
    """D28: a pause of it could never settle: it would wait for a call that waits for one that is paused."""

    @agent
    async def program(ctx: Context, goal: str) -> str:
        async def inner() -> Any:
            if how == "tool":
                return await ctx.tool(look, log="/dev/null", what="x")
            if how == "call":
                return await asyncio.create_task(ctx.call(asyncio.sleep, 0))
            if how == "stream":
                return await ctx.stream(lambda: iter(()))  # type: ignore[arg-type,return-value]
            return await ctx.ask_person("Why?")

        try:
            await ctx.call(inner, effect="none")
        except CallFailed as failed:
            return failed.error
        return "done"

    async with Runtime("memory:") as runtime:
        said = await (await runtime.start(program, "Go.")).result()

    assert said.startswith("MisuseError: ")
    assert "inside another call" in said
    assert "ctx.spawn" in said


async def test_a_sub_run_may_make_calls_of_its_own(log: str) -> None:
    @agent
    async def below(ctx: Context, goal: str) -> str:
        return str(await ctx.tool(look, log=log, what=goal))

    @agent
    async def above(ctx: Context, goal: str) -> str:
        return str(await ctx.spawn(below, goal))

    async with Runtime("memory:", agents=[below, above]) as runtime:
        assert await (await runtime.start(above, "deep")).result() == "DEEP"


# -- threads of anyio


def tick(log: str) -> None:
    for _ in range(600):
        note(log, "tick")
        time.sleep(0.05)


@pytest.mark.parametrize("heeds", [True, False])
async def test_blocking_work_in_a_thread_of_anyio_is_stopped_or_reported_as_what_it_is(heeds: bool, log: str) -> None:
    """D2 D15: the witness is the log of the thread."""

    def block(log: str) -> None:
        for _ in range(8):
            try:
                tick(log)
            except BaseException:
                if heeds:
                    raise

    async def work(log: str) -> None:
        await anyio.to_thread.run_sync(block, log)

    @agent
    async def program(ctx: Context, goal: str) -> None:
        await ctx.call(work, log, changes="the log")

    async with Runtime("memory:", settle_seconds=4) as runtime:
        run = await runtime.start(program, "Go.")
        await until(lambda: "tick" in lines(log))
        receipt = await run.cancel()
        before = len(lines(log))
        await asyncio.sleep(0.3)
        after = len(lines(log))

    (call,) = receipt.calls
    if heeds:
        assert (call.now, after) == ("aborted", before)
    else:
        assert call.now == "detached", "it still ticks, and the receipt says that it could not be stopped"
    assert [effect.now for effect in receipt.effects] == [EffectState.IN_DOUBT]


# -- black boxes


async def test_a_program_that_nobody_can_play_again_begins_anew_without_waiting_for_what_is_recorded(
    store: str, log: str
) -> None:
    @agent
    async def black_box(ctx: Context, goal: str) -> None:
        number = lines(log).count("begun")
        note(log, "begun")
        await ctx.call(look.function, log, f"{number}", effect="none")
        note(log, f"seen {number}")
        await ctx.call(wait, log, f"{number}", effect="none", idempotent=True, on_pause="abort")

    black_box.replays = False
    async with Runtime(store, agents=[black_box]) as one:
        run = await one.start(black_box, "Go.")
        await until(lambda: "waiting 0" in lines(log))
        await run.pause()
    async with Runtime(store, agents=[black_box]) as two:
        run = await two.get(run.id)
        await run.resume()
        await until(lambda: "waiting 1" in lines(log))
        view = await run.view()
        await run.cancel()
        calls = [one.event.call for one in await two.journal.read(run.id) if isinstance(one.event, CallStarted)]

    assert view.status == "running"
    assert not view.waiting
    assert calls == ["c1", "c2", "c3", "c4"]


async def test_a_run_whose_author_asks_inside_a_call_fails_and_says_so() -> None:
    @agent
    async def program(ctx: Context, goal: str) -> Any:
        async def inner() -> Any:
            return await ctx.model("x", model=ScriptedModel(["y"]))

        return await ctx.call(inner)

    async with Runtime("memory:") as runtime:
        with pytest.raises(RunFailed, match="inside another call"):
            await (await runtime.start(program, "Go.")).result()
