"""The scripted model plays its turns by the history alone, at a pace, and stops when it is told to."""

from __future__ import annotations

import time
from typing import Any

import anyio
import pytest

from checkrein.core.events import Json
from checkrein.errors import MisuseError, ModelRateLimited, ModelRefusedRequest, ModelUnavailable
from checkrein.models import (
    Assistant,
    Collector,
    Failure,
    Finish,
    Message,
    Model,
    Reply,
    Request,
    ScriptedModel,
    TextDelta,
    ToolCall,
    ToolResult,
    Turn,
    User,
    collect,
    repair,
)
from tests.support.patience import within

pytestmark = pytest.mark.anyio

GOAL = User("Which customers will churn?")


def request(*messages: Message) -> Request:
    return Request("Be brief.", (GOAL, *messages))


async def ask(model: ScriptedModel, *messages: Message) -> Reply:
    return await collect(model.stream(request(*messages)), request(*messages))


async def test_it_is_a_model():
    assert isinstance(ScriptedModel(["Hi."]), Model)
    assert ScriptedModel([]).name == "scripted"


async def test_a_turn_of_text_and_calls_comes_out_as_it_was_written():
    arguments: dict[str, Any] = {"to": "finance", "rows": [1, 2, {"deep": None}], "é": "統計"}
    model = ScriptedModel([Turn("I will  ask\nfinance. ", [("send", arguments), ("now", {})], thinking="hm, well")])

    reply = await ask(model)

    assert reply.message.text == "I will  ask\nfinance. "
    assert reply.message.thinking == "hm, well"
    assert [(call.id, call.name) for call in reply.message.calls] == [("call_0_0", "send"), ("call_0_1", "now")]
    assert bytes(reply.message.calls[0].arguments).decode().startswith('{"to":"finance"')
    assert reply.finish is Finish.TOOL_CALLS


async def test_the_history_alone_decides_which_turn_is_played():
    turns: list[Turn | str] = [Turn(calls=[("fetch", {})]), Turn(calls=[("score", {})]), "Done."]
    history: list[Message] = []
    played = []

    for _ in turns:
        reply = await ask(ScriptedModel(turns), *history)  # a new process each time
        played.append(reply.message)
        history.append(reply.message)
        history += [ToolResult(call.id, call.name, "ok") for call in reply.message.calls]

    assert [message.calls[0].name for message in played[:2]] == ["fetch", "score"]
    assert played[2] == Assistant("Done.")
    assert len({call.id for message in played for call in message.calls}) == 2


async def test_an_interrupted_turn_is_played_again():
    model = ScriptedModel(["First.", "Second."])

    reply = await ask(model, *repair([Assistant("Fir", interrupted=True)])[1:])

    assert reply.message.text == "First."


async def test_a_turn_may_be_a_function_of_the_request():
    def echo(request: Request) -> str:
        return f"You said: {request.messages[-1].text}"  # type: ignore[union-attr]

    assert (await ask(ScriptedModel([echo]))).message.text == f"You said: {GOAL.text}"
    assert (await ask(ScriptedModel(echo), Assistant("1"), Assistant("2"), User("3"))).message.text == "You said: 3"


async def test_a_script_that_is_over_says_so():
    with pytest.raises(MisuseError, match="has 1 turns; the history has 1 replies"):
        await ask(ScriptedModel(["Hi."]), Assistant("Hi."), User("And?"))


async def test_it_refuses_a_history_that_a_provider_would_refuse_unless_told_not_to():
    dangling = Assistant("", calls=(ToolCall("c1", "send", Json(b"{}")),))

    with pytest.raises(ModelRefusedRequest):
        await ask(ScriptedModel(["a", "b"]), dangling)
    assert (await ask(ScriptedModel(["a", "b"], strict=False), dangling)).message.text == "b"


async def test_it_can_be_as_wrong_as_a_model():
    broken = ToolCall("c1", "send", Json(b'{"to":'))

    reply = await ask(ScriptedModel([Turn(calls=[broken])]))

    assert reply.message.calls == (ToolCall("c1", "send", Json(b'"{\\"to\\":"')),)


# -- failing


@pytest.mark.parametrize("after", [0, 2])
async def test_it_fails_where_the_script_says_so_as_often_as_it_says(after: int):
    error = ModelRateLimited("Slow down.", retry_after=3.0)
    model = ScriptedModel([Turn("one two three", fails=Failure(error, after_pieces=after, times=2))])

    for _ in range(2):
        collector = Collector()
        with pytest.raises(ModelRateLimited) as caught:
            async for delta in model.stream(request()):
                collector.add(delta)
        assert caught.value.retry_after == 3.0
        assert collector.partial().message.text == "one two three"[: [0, 0, 8][after]]

    assert (await ask(model)).message.text == "one two three"
    assert (model.requests, model.stopped, model.live) == (3, 2, 0)


async def test_a_failure_without_a_count_is_for_ever():
    model = ScriptedModel([Turn("one", fails=Failure(ModelUnavailable("Away.")))])

    for _ in range(3):
        with pytest.raises(ModelUnavailable):
            await ask(model)


# -- pace, and stopping


async def test_it_streams_word_by_word_and_counts():
    model = ScriptedModel(["The first three customers."])

    words = [delta.text async for delta in model.stream(request()) if isinstance(delta, TextDelta)]

    assert words == ["The ", "first ", "three ", "customers."]
    assert (model.requests, model.tokens, model.live, model.stopped) == (1, 4, 0, 0)
    assert list(model.asked) == [request()]


async def test_its_usage_is_its_own_word():
    usage = (await ask(ScriptedModel(["one two three"]))).usage

    assert usage.output_tokens == 3
    assert usage.input_tokens > 0
    assert not usage.estimated


async def test_it_keeps_the_pace_it_was_given():
    model = ScriptedModel(["word " * 20], tokens_per_second=200)

    began = time.monotonic()
    await ask(model)
    took = time.monotonic() - began

    assert 0.1 <= took < within(1)


async def test_a_stop_takes_hold_at_once_and_nothing_is_streamed_after_it():
    model = ScriptedModel(["word " * 1000], tokens_per_second=5)
    collector = Collector(request())
    under_way = anyio.Event()

    async def read() -> None:
        async for delta in model.stream(request()):
            collector.add(delta)
            if model.tokens == 2:
                under_way.set()

    async with anyio.create_task_group() as readers:
        readers.start_soon(read)
        await under_way.wait()
        await anyio.sleep(0.01)  # until it waits for its next word
        stopped_at = time.monotonic()
        readers.cancel_scope.cancel()
    took = time.monotonic() - stopped_at
    by_then = model.tokens
    await anyio.sleep(0.25)

    assert took < within(0.15)
    assert model.tokens == by_then
    assert (model.live, model.stopped) == (0, 1)
    assert collector.partial().message == Assistant("word " * by_then, interrupted=True)
    assert collector.partial().usage.estimated


async def test_a_stop_in_the_middle_of_a_call_leaves_no_call():
    model = ScriptedModel([Turn("I will.", [("send", {"body": "x" * 500})])], tokens_per_second=500)
    collector = Collector(request())

    with anyio.CancelScope() as scope:
        async for delta in model.stream(request()):
            collector.add(delta)
            if model.tokens == 5:
                scope.cancel()

    assert collector.partial().message == Assistant("I will.", interrupted=True)


async def test_a_request_by_a_cancelled_task_is_counted_but_not_answered():
    model = ScriptedModel(["Hi."])

    with anyio.CancelScope() as scope:
        scope.cancel()
        await ask(model)

    assert model.tokens == 0


async def test_without_a_pace_a_turn_costs_microseconds():
    model = ScriptedModel(lambda _: Turn("Ten words that are streamed one by one, each alone.", [("now", {})]))
    await ask(model)
    rounds = 300

    best = min([await _seconds(model, rounds) for _ in range(5)])

    assert best / rounds < 0.001  # of the processor's time, whatever else it has to do; it takes 60 µs


async def _seconds(model: ScriptedModel, rounds: int) -> float:
    began = time.thread_time()
    for _ in range(rounds):
        await ask(model)
    return time.thread_time() - began


async def test_a_pace_of_nothing_is_refused():
    with pytest.raises(MisuseError):
        ScriptedModel(["Hi."], tokens_per_second=0)
