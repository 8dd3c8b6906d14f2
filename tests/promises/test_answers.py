"""What a model says: an answer that is stopped half-way, cut off, filtered or too long; and what a model raises.

The witness is the model itself: it keeps what it was asked, and what it has said.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from checkrein import Agent, Context, Run, RunFailed, Runtime, Tokens, Turns, agent, tool
from checkrein.control.viewer import look
from checkrein.core.conditions import Usage
from checkrein.core.enums import Outcome, Status
from checkrein.core.events import CallFinished, CallStarted, RetryScheduled
from checkrein.driver.program_api import Program
from checkrein.errors import ModelContextExceeded, ModelRefusedRequest
from checkrein.models import (
    Assistant,
    Delta,
    Finish,
    Finished,
    Message,
    Note,
    Request,
    ScriptedModel,
    Settings,
    TextDelta,
    ToolCallDelta,
    ToolResult,
    UsageDelta,
    User,
    estimate_tokens,
)
from checkrein.models.history import INTERRUPTED_REPLY, MESSAGES_LEFT_OUT, RESULT_LEFT_OUT, check, shortened
from tests.support.runs import events, program, result, settled, until_state, until_status
from tests.support.witness import until

pytestmark = pytest.mark.anyio

Says = Callable[[Request, int], "AsyncGenerator[Delta, None]"]


class Witnessing:
    """A model that does what it was made for, and keeps a record of its own."""

    name = "scripted:own"

    def __init__(self, says: Says, *, can_continue: bool = False) -> None:
        self.asked: list[Request] = []
        self.said: list[str] = []
        """All text that it has given away, piece by piece."""
        self._says = says
        self._can_continue = can_continue

    async def can_continue(self, request: Request) -> bool:
        return self._can_continue

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        self.asked.append(request)
        async with aclosing(self._says(request, len(self.asked))) as deltas:
            async for delta in deltas:
                if isinstance(delta, TextDelta):
                    self.said.append(delta.text)
                yield delta


def words(text: str, *, finish: Finish | None = Finish.STOP, then: Awaitable[Any] | None = None) -> Any:
    """Say `text` word by word, and end; or wait for `then`, for ever if it never comes."""

    async def say() -> AsyncGenerator[Delta, None]:
        for word in text.split(" "):
            yield TextDelta(word + " ")
        if then is not None:
            await then
        if finish is not None:
            yield UsageDelta(Usage(input_tokens=10, output_tokens=len(text.split())))
            yield Finished(finish)

    return say()


async def never() -> None:
    await asyncio.Event().wait()


async def ended_calls(runtime: Runtime, run: Run) -> list[CallFinished]:
    return list(await events(runtime, run, CallFinished))


# -- what a model raises


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise TypeError("there are no words for it")


@pytest.mark.parametrize("when", ["at once", "in the middle", "while it is closed"])
@pytest.mark.parametrize(
    "kind", [asyncio.CancelledError, GeneratorExit, SystemExit, KeyboardInterrupt, Unspeakable, BaseException]
)
async def test_whatever_a_model_raises_is_the_failure_of_that_call_alone(
    runtime: Runtime, kind: type[BaseException], when: str
) -> None:
    """S8 S28: the run ends at once, is asked no second time, and whatever else the process does goes on."""

    async def says(request: Request, number: int) -> AsyncGenerator[Delta, None]:
        try:
            if when == "at once":
                raise kind(3)
            yield TextDelta("Hello ")
            if when == "in the middle":
                raise kind(3)
            yield TextDelta(5)  # type: ignore[arg-type]
        finally:
            if when == "while it is closed":
                raise kind(3)

    model = Witnessing(says)
    other = await runtime.start(Agent("other", model=ScriptedModel(["still here"])), "Go.")
    run = await runtime.start(Agent("bad", model=model), "Go.")

    with pytest.raises(RunFailed):
        await result(run)

    assert len(model.asked) == 1
    (ended,) = await ended_calls(runtime, run)
    assert ended.outcome is Outcome.FAILED
    assert ended.error
    assert await result(other) == "still here"


async def test_a_model_that_cancels_the_task_that_reads_it_has_failed(runtime: Runtime) -> None:
    """S28: nobody has asked for a stop, so it is none, and the model is not asked again and again."""

    async def says(request: Request, number: int) -> AsyncGenerator[Delta, None]:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await never()
        yield TextDelta("never said")

    model = Witnessing(says)
    run = await runtime.start(Agent("bad", model=model), "Go.")

    with pytest.raises(RunFailed):
        await result(run)

    assert len(model.asked) == 1
    assert [one.outcome for one in await ended_calls(runtime, run)] == [Outcome.FAILED]


async def test_a_model_that_answers_a_stop_with_an_error_of_its_own_is_stopped(runtime: Runtime) -> None:
    """S8: the cancel settles, and the pause is one that can be resumed."""

    async def says(request: Request, number: int) -> AsyncGenerator[Delta, None]:
        yield TextDelta("Once upon a time ")
        try:
            await never()
        except asyncio.CancelledError:
            raise SystemExit(3) from None

    model = Witnessing(says)
    run = await runtime.start(Agent("bad", model=model), "Go.")
    await until(lambda: model.said)

    assert settled(await run.pause(wait=60)).status is Status.PAUSED
    await run.resume()
    await until(lambda: len(model.asked) == 2)
    assert settled(await run.cancel()).status is Status.CANCELLED

    assert [one.outcome for one in await ended_calls(runtime, run)] == [Outcome.ABORTED, Outcome.ABORTED]


# -- stopped half-way


async def paused_in_mid_answer(runtime: Runtime, model: Witnessing, *, thread: str | None = None) -> Run:
    run = await runtime.start(Agent("writer", model=model), "Tell me a story.", thread=thread)
    await until(lambda: len(model.said) >= 4)
    settled(await run.pause())
    return run


async def test_where_a_model_cannot_go_on_the_second_attempt_takes_the_place_of_the_first(runtime: Runtime) -> None:
    """C2: the same is asked again, nothing is joined, and both are in the record."""

    def says(request: Request, number: int) -> Any:
        return words("He sat by the old lighthouse") if number > 1 else words("She stood by the sea", then=never())

    model = Witnessing(says)
    run = await paused_in_mid_answer(runtime, model, thread="story")
    await run.resume()

    assert await result(run) == "He sat by the old lighthouse "
    assert model.asked[1] == model.asked[0], "without half an answer, and without a word about it"
    first, second = await ended_calls(runtime, run)
    assert b"She stood" in bytes(first.result or b"")
    assert b"He sat" in bytes(second.result or b"")
    assert b"She stood" not in bytes(second.result or b"")
    (call,) = (await look(runtime.journal, run.id, at=0.0)).calls
    assert call.text == "He sat by the old lighthouse "
    following = await runtime.start("writer", "And then?", thread="story")
    await result(following)
    assert [said.text for said in model.asked[-1].messages if isinstance(said, Assistant)] == [
        "He sat by the old lighthouse"
    ]


async def resumed_in_mid_answer(runtime: Runtime, model: Witnessing) -> tuple[Run, list[str]]:
    """A run that goes on after a pause, and what is heard of it from then on."""
    run = await paused_in_mid_answer(runtime, model)
    heard: list[str] = []
    runtime.listen(run.id, lambda chunk: heard.append(chunk.text))
    await run.resume()
    return run, heard


async def test_where_a_model_can_go_on_its_answer_is_one(runtime: Runtime) -> None:
    """C2: the half answer is the last message, without its blank at the end; only the rest is said."""

    def says(request: Request, number: int) -> Any:
        return words("and looked out.") if request.continues else words("She stood by the sea", then=never())

    model = Witnessing(says, can_continue=True)
    run, heard = await resumed_in_mid_answer(runtime, model)

    assert await result(run) == "She stood by the seaand looked out. "
    assert model.asked[1].messages == (*model.asked[0].messages, Assistant("She stood by the sea", interrupted=True))
    assert "".join(heard) == "She stood by the seaand looked out. "


async def test_a_model_that_begins_again_although_it_was_to_go_on_is_not_joined(runtime: Runtime) -> None:
    """C2: it gives its own beginning away, before any of it is shown as a rest."""

    def says(request: Request, number: int) -> Any:
        whole = "She stood by the sea and looked out."
        return words(whole) if number > 1 else words("She stood by the sea", then=never())

    model = Witnessing(says, can_continue=True)
    run, heard = await resumed_in_mid_answer(runtime, model)

    assert await result(run) == "She stood by the sea and looked out. "
    assert "".join(heard) == "She stood by the sea and looked out. "
    assert model.asked[1].continues


async def test_a_model_that_refuses_to_go_on_is_asked_anew(runtime: Runtime) -> None:
    """C2: as the newest ones do, whatever is believed of them."""

    async def says(request: Request, number: int) -> AsyncGenerator[Delta, None]:
        if request.continues:
            raise ModelRefusedRequest("This model does not support assistant message prefill.", status=400)
        async for delta in words("He sat down.") if number > 1 else words("She stood by the sea", then=never()):
            yield delta

    model = Witnessing(says, can_continue=True)
    run = await paused_in_mid_answer(runtime, model)
    await run.resume()

    assert await result(run) == "He sat down. "
    assert [request.continues for request in model.asked] == [False, True, False]


async def test_an_instruction_in_mid_answer_comes_after_what_was_said_and_gets_an_answer_of_its_own(
    runtime: Runtime,
) -> None:
    """C2: the model knows what it had said, and goes on with none of it."""

    def says(request: Request, number: int) -> Any:
        return words("A boat came.") if number > 1 else words("She stood by the sea", then=never())

    model = Witnessing(says, can_continue=True)
    run = await paused_in_mid_answer(runtime, model)
    await run.resume("shorter, please")

    assert await result(run) == "A boat came. "
    assert model.asked[1].messages[1:] == (
        Assistant("She stood by the sea", interrupted=True),
        Note(INTERRUPTED_REPLY),
        User("shorter, please"),
    )


TALKS = """
import asyncio, sys
from checkrein import Agent, Runtime
from checkrein.models import ScriptedModel

async def main(store):
    model = ScriptedModel(["".join(f"{number}, " for number in range(5_000))], tokens_per_second=40)
    talks = Agent("talks", model=model, loops=False)
    async with Runtime(store) as runtime:
        await (await runtime.start(talks, "Count, and explain each number to me.")).result()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("continues", [True, False])
async def test_after_a_kill_an_answer_goes_on_or_is_replaced_and_its_tokens_are_counted(
    store: str, tmp_path: Path, continues: bool
) -> None:
    """C2 C8: from what was kept of it, and marked as an estimate."""
    async with program(tmp_path, TALKS, store), Runtime(store) as looking:
        kept = ""
        while len(kept) < 40:
            await asyncio.sleep(0.05)
            for row in await looking.runs():
                kept = "".join(chunk.text for chunk in await looking.journal.chunks(row.id, "c1"))

    # Words that never come again: a rest that begins as the answer did would be taken for an answer that begins anew.
    text = "".join(f"{number}, " for number in range(5_000)) if continues else "It is done."
    model = ScriptedModel([text], continues=continues)
    async with Runtime(store, agents=[Agent("talks", model=model, loops=False)]) as runtime:
        (row,) = await runtime.runs()
        run = await runtime.get(row.id)
        assert await result(run) == text
        killed, _ = await ended_calls(runtime, run)
        (call,) = (await look(runtime.journal, run.id, at=0.0)).calls

    assert call.text == text
    (asked,) = model.asked
    assert asked.continues is continues
    assert (killed.outcome, killed.chars >= len(kept)) == (Outcome.IN_DOUBT, True)
    assert killed.usage is not None
    assert killed.usage.estimated
    assert killed.usage.output_tokens >= len(kept) // 4
    assert killed.usage.input_tokens == estimate_tokens(Request("", (User("Count, and explain each number to me."),)))


# -- cut off, or filtered


@tool(effect="none")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def half_a_call(request: Request) -> AsyncGenerator[Delta, None]:
    yield ToolCallDelta(0, id="call_1", name="add", arguments='{"a": 1, ')
    yield UsageDelta(Usage(input_tokens=10, output_tokens=request.settings.max_tokens or 20))
    yield Finished(Finish.LENGTH)


async def half_a_sentence(request: Request) -> AsyncGenerator[Delta, None]:
    yield TextDelta("It is")
    yield UsageDelta(Usage(input_tokens=10, output_tokens=request.settings.max_tokens or 20))
    yield Finished(Finish.LENGTH)


@pytest.mark.parametrize("answer", ["text", "a tool call"])
async def test_an_answer_that_was_cut_off_is_asked_for_again_with_more_room(runtime: Runtime, answer: str) -> None:
    """C3: it is no answer, and the record says why it was asked for again. No turn is used up by it."""

    def says(request: Request, number: int) -> Any:
        if number > 2:
            return words("It is three.")
        return half_a_call(request) if answer == "a tool call" else half_a_sentence(request)

    model = Witnessing(says)
    cut = Agent("cut", model=model, tools=[add], settings=Settings(max_tokens=400), stop_when=Turns(1))
    run = await runtime.start(cut, "Add 1 and 2.")

    assert await result(run) == "It is three. "
    assert [request.settings.max_tokens for request in model.asked] == [400, 800, 1600]
    assert [one.outcome for one in await ended_calls(runtime, run)] == ["failed", "failed", "completed"]
    assert ["model_cut" in one.why for one in await events(runtime, run, RetryScheduled)] == [True, True]
    (call,) = (await look(runtime.journal, run.id, at=0.0)).calls
    assert call.text == "It is three. "


@pytest.mark.parametrize("is_program", [False, True])
async def test_an_answer_that_is_cut_off_however_much_room_it_has_needs_you(runtime: Runtime, is_program: bool) -> None:
    """C3: a tool call that was cut off never ends a run with an empty result. Resume gives it more room still."""

    def says(request: Request, number: int) -> Any:
        return half_a_call(request) if (request.settings.max_tokens or 0) < 4000 and number < 5 else words("Three.")

    model = Witnessing(says)

    @agent(name="asks", model=model)
    async def asks(ctx: Context, goal: str) -> str:
        return str((await ctx.model(goal, settings=Settings(max_tokens=400))).text)

    cut: Program = asks if is_program else Agent("cut", model=model, tools=[add], settings=Settings(max_tokens=400))
    run = await runtime.start(cut, "Add 1 and 2.")

    state = await until_status(run, Status.PAUSED)

    assert len(model.asked) == 3
    (waiting,) = state.waiting()
    assert waiting.kind == "model_cut"
    assert "cut off by a limit of 1600 tokens" in waiting.what
    assert "more room" in waiting.remedy
    view = await look(runtime.journal, run.id, at=0.0)
    assert "cut off" in (view.calls[-1].error or "")
    assert view.calls[-1].shown == "failed"
    await run.resume()
    assert str(await result(run)).startswith("Three.")


async def test_an_answer_that_the_provider_filtered_needs_you(runtime: Runtime) -> None:
    """C3: it is neither an answer nor asked for again by itself."""

    def says(request: Request, number: int) -> Any:
        return words("I will", finish=Finish.FILTERED) if number == 1 else words("Gladly.")

    model = Witnessing(says)
    run = await runtime.start(Agent("polite", model=model), "Say something.")

    state = await until_status(run, Status.PAUSED)

    assert len(model.asked) == 1
    (waiting,) = state.waiting()
    assert waiting.kind == "model_filtered"
    assert "provider's own rules" in waiting.what
    await run.resume("then something nice")
    assert await result(run) == "Gladly. "


async def test_a_model_that_refuses_more_room_needs_you_and_does_not_fail(runtime: Runtime) -> None:
    """C3"""

    async def says(request: Request, number: int) -> AsyncGenerator[Delta, None]:
        if (request.settings.max_tokens or 0) > 500:
            raise ModelRefusedRequest("max_tokens: 800 > 512, which is the maximum.", status=400)
        async for delta in half_a_sentence(request):
            yield delta

    model = Witnessing(says)
    run = await runtime.start(Agent("cut", model=model, settings=Settings(max_tokens=400)), "Tell me all.")

    state = await until_status(run, Status.PAUSED)

    assert state.waiting()[0].kind == "model_cut"
    assert "which is the maximum" in state.waiting()[0].what
    await run.cancel()


# -- caps in mid-stream


async def test_a_cap_on_tokens_holds_in_the_middle_of_an_answer_that_never_ends(runtime: Runtime) -> None:
    """C5: by the model's own count. What is left of it goes out as the limit, and the view counts as it comes."""
    slow = asyncio.Event()

    async def says(request: Request, number: int) -> AsyncGenerator[Delta, None]:
        for piece in range(100_000):
            yield TextDelta("What is the topic? ")
            if piece == 10:
                await slow.wait()

    model = Witnessing(says)
    run = await runtime.start(Agent("endless", model=model, loops=False, stop_when=Tokens(200)), "Talk.")
    await until(lambda: len(model.said) > 10)
    await runtime.texts.kept()

    view = await look(runtime.journal, run.id, at=0.0)
    assert view.usage.estimated
    assert view.usage.tokens >= 50
    (cap,) = view.caps
    assert cap.used == view.usage.tokens
    assert cap.words == f"about {view.usage.tokens} of 200 tokens"

    slow.set()
    state = await until_status(run, Status.PAUSED)
    assert sum(map(len, model.said)) <= 4 * 200 + 40
    assert 200 <= state.usage.tokens <= 210
    assert state.usage.estimated
    assert "Tokens(200)" in state.waiting()[0].what
    limit = model.asked[0].settings.max_tokens
    assert limit is not None
    assert 150 <= limit < 200
    await run.resume()
    await until(lambda: len(model.asked) == 2)
    await until_state(run, lambda state: state.status is Status.PAUSED and state.usage.tokens >= 400)
    assert sum(map(len, model.said)) <= 2 * 4 * 200 + 80
    await run.cancel()


async def test_a_limit_that_a_model_does_not_take_is_left_out_and_watched(runtime: Runtime) -> None:
    """C5: what is left of a large cap may be more than a model can be asked for."""

    async def says(request: Request, number: int) -> AsyncGenerator[Delta, None]:
        if request.settings.max_tokens is not None:
            raise ModelRefusedRequest("max_tokens is too large.", status=400)
        async for delta in words("Hello."):
            yield delta

    model = Witnessing(says)
    run = await runtime.start(Agent("small", model=model, stop_when=Tokens(10_000)), "Go.")

    assert await result(run) == "Hello. "
    assert len(model.asked) == 2


# -- longer than the model can read


def long_history() -> list[Message]:
    from checkrein.models import ToolCall, as_json

    messages: list[Message] = [User("Read all the files.")]
    for number in range(6):
        messages.append(Assistant("Next.", calls=(ToolCall(f"c{number}", "read", as_json({"n": number})),)))
        messages.append(ToolResult(f"c{number}", "read", f"file {number} " * 200))
    return messages


def test_a_history_is_shortened_by_its_oldest_results_first() -> None:
    """C10: what a person said stays, and what is left is a history that a provider takes."""
    messages, size = long_history(), estimate_tokens(Request("", tuple(long_history())))

    once, count = shortened(messages)
    shorter: Sequence[Message] = once
    for _ in range(4):
        shorter, _more = shortened(shorter)
        check(shorter)

    assert estimate_tokens(Request("", tuple(once))) <= size * 0.6
    results = [one.content for one in once if isinstance(one, ToolResult)]
    assert results[:count] == [RESULT_LEFT_OUT] * count
    assert results[-1] == messages[-1].content  # type: ignore[union-attr]
    assert shorter[0] == User("Read all the files.")
    assert Note(MESSAGES_LEFT_OUT) in shorter


@tool(effect="none")
async def read(n: int) -> str:
    """Read a file."""
    return f"file {n} " * 300


def small(limit: int) -> Witnessing:
    """A model that can read so many tokens, and reads six files."""

    async def says(request: Request, number: int) -> AsyncGenerator[Delta, None]:
        if estimate_tokens(request) > limit:
            raise ModelContextExceeded("The prompt is too long.", status=400)
        done = sum(isinstance(message, Assistant) for message in request.messages)
        if done < 6:
            yield ToolCallDelta(0, id=f"call_{done}", name="read", arguments=f'{{"n": {done}}}')
            yield Finished(Finish.TOOL_CALLS)
        else:
            yield TextDelta("All read.")
            yield Finished(Finish.STOP)

    return Witnessing(says)


async def test_a_thread_that_outgrows_the_model_needs_you_and_goes_on_with_a_shortened_history(store: str) -> None:
    """C10: the record says so, and after a restart it is the same."""
    async with Runtime(store) as runtime:
        run = await runtime.start(Agent("reader", model=small(1500), tools=[read]), "Read all the files.")
        state = await until_status(run, Status.PAUSED)
        (waiting,) = state.waiting()
        assert waiting.kind == "model_context_exceeded"
        assert "shortened history" in waiting.remedy
        await run.resume()
        await until_status(run, Status.PAUSED)

    model = small(1500)
    async with Runtime(store, agents=[Agent("reader", model=model, tools=[read])]) as runtime:
        run = await runtime.get(run.id)
        while (await until_status(run, Status.PAUSED, Status.COMPLETED)).status is Status.PAUSED:
            await run.resume()
        assert await result(run) == "All read."
        started = [one for one in await events(runtime, run, CallStarted) if one.place.startswith("turn:")]

    told = [bytes(one.arguments or b"") for one in started if one.kind == "model"]
    assert any(b'"left_out":' in one for one in told)
    assert b'"left_out":' not in told[0]
    last = model.asked[-1].messages
    assert any(isinstance(one, ToolResult) and one.content == RESULT_LEFT_OUT for one in last)
    assert last[0] == User("Read all the files.")


async def test_a_model_that_is_cut_off_before_its_limit_holds_no_more_and_goes_on_with_less(runtime: Runtime) -> None:
    """C3 C10: more room would not help it."""

    async def says(request: Request, number: int) -> AsyncGenerator[Delta, None]:
        yield TextDelta("It is")
        if number < 3:
            yield UsageDelta(Usage(input_tokens=500, output_tokens=12))
        yield Finished(Finish.LENGTH if number < 3 else Finish.STOP)

    model = Witnessing(says)
    run = await runtime.start(Agent("full", model=model), "Tell me all.")

    state = await until_status(run, Status.PAUSED)

    assert [request.settings.max_tokens for request in model.asked] == [None, 512]
    assert state.waiting()[0].kind == "model_context_exceeded"
    await run.resume()
    assert await result(run) == "It is"


async def test_a_program_whose_question_is_too_long_goes_on_with_a_shorter_one(runtime: Runtime) -> None:
    """C10"""
    model = Witnessing(small(1500)._says)

    @agent(name="asks", model=model)
    async def asks(ctx: Context, goal: str) -> str:
        return str((await ctx.model(long_history())).text)

    run = await runtime.start(asks, "Go.")
    assert (await until_status(run, Status.PAUSED)).waiting()[0].kind == "model_context_exceeded"

    await run.resume()

    assert await result(run) == "All read."
    assert len(model.asked) == 2
