"""The OpenAI wire: what is sent, what comes, how it is stopped, how it fails. The witness is a provider on its own."""

from __future__ import annotations

import asyncio
import socket
import statistics
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given

from checkrein import errors
from checkrein.models import (
    Assistant,
    Delta,
    Finish,
    Finished,
    Message,
    Note,
    Request,
    Settings,
    TextDelta,
    ThinkingDelta,
    ToolCall,
    ToolCallDelta,
    ToolResult,
    ToolSpec,
    UsageDelta,
    User,
    as_json,
    collect,
    repair,
)
from checkrein.models import Reply as Answer
from checkrein.models.http import client as http
from checkrein.models.http.client import Timeouts, client
from checkrein.models.openai import Bodies, OpenAIModel, OpenAIReader
from checkrein.testing.provider import Fault, Provider, Reply
from tests.models.sockets import END, HEAD, KeepsAlive, chunk, listening, request
from tests.models.strategies import HISTORIES
from tests.models.strict_provider import judge_openai
from tests.support.patience import PATIENCE_SECONDS, within

pytestmark = pytest.mark.anyio

ASKED = Request("Be brief.", (User("Which customers will churn?"),))
LOOKUP = ToolSpec("lookup", "Look somebody up.", as_json({"type": "object", "properties": {"who": {"type": "string"}}}))
SLOW = Reply(
    "one two three",
    thinking="hm",
    calls=[("lookup", {"who": "somebody with a long name " * 200})],
    tokens_per_second=20,
)


def model(provider: Provider, name: str = "gpt-5", **options: Any) -> OpenAIModel:
    return OpenAIModel(name, **{"base_url": provider.openai_url, "api_key": provider.key, **options})


async def failing(stream: AsyncIterator[Delta]) -> tuple[list[Delta], errors.ModelError]:
    """What came of `stream` before it failed, and how it failed."""
    deltas: list[Delta] = []
    with pytest.raises(errors.ModelError) as caught:
        async with asyncio.timeout(PATIENCE_SECONDS):
            async for delta in stream:
                deltas.append(delta)
    assert caught.value.remedy
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    return deltas, caught.value


def text(deltas: Sequence[Delta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


# -- what is sent


async def test_a_whole_conversation_is_sent_as_the_wire_wants_it():
    call = ToolCall("call_1", "lookup", as_json({"who": "Ann"}))
    messages = (
        User("Look up Ann."),
        Assistant("I look.", thinking="hm", calls=(call,)),
        ToolResult("call_1", "lookup", "not found", is_error=True),
        Note("Ann was renamed."),
        Assistant("I see."),
        User("Go on."),
    )
    async with Provider("Fine.") as provider:
        await collect(model(provider).stream(Request("Be brief.", messages, tools=(LOOKUP,))))
        sent = provider.log[0].body

    assert sent["model"] == "gpt-5"
    assert sent["stream"] is True
    assert sent["stream_options"] == {"include_usage": True}
    assert sent["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Look up Ann."},
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "lookup", "arguments": '{"who":"Ann"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "not found"},
        {"role": "user", "content": "Ann was renamed."},
        {"role": "assistant", "content": "I see."},
        {"role": "user", "content": "Go on."},
    ]
    assert sent["tools"] == [
        {
            "type": "function",
            "function": {
                "name": "lookup",
                "description": "Look somebody up.",
                "parameters": {"type": "object", "properties": {"who": {"type": "string"}}},
            },
        }
    ]
    assert "tool_choice" not in sent


def body(asked: Request, **options: Any) -> dict[str, Any]:
    made = Bodies("m-1", **{"limit_field": "max_tokens", "thinking_field": "", "asks_for_usage": True, **options}).make(
        asked
    )
    decoded: dict[str, Any] = msgspec.json.decode(made)
    return decoded


def test_without_instructions_or_tools_nothing_stands_in_for_them():
    sent = body(Request("", (User("Hi."),), settings=Settings(tool_choice="required")))

    assert [message["role"] for message in sent["messages"]] == ["user"]
    assert not {"tools", "tool_choice"} & sent.keys()


def test_settings_are_sent_under_the_names_of_the_wire_and_extra_ones_as_they_are():
    settings = Settings(
        max_tokens=100,
        temperature=0.5,
        reasoning="low",
        tool_choice="none",
        extra=as_json({"seed": 7, "temperature": 0.1, "stream_options": {"include_usage": False}}),
    )

    sent = body(Request("", (User("Hi."),), tools=(LOOKUP,), settings=settings), limit_field="max_completion_tokens")

    assert sent["max_completion_tokens"] == 100
    assert sent["reasoning_effort"] == "low"
    assert sent["tool_choice"] == "none"
    assert (sent["seed"], sent["temperature"]) == (7, 0.1)
    assert sent["stream_options"] == {"include_usage": False}


@pytest.mark.parametrize("extra", [{"stream": False}, {"messages": []}, [1], "x"])
def test_extra_settings_cannot_replace_what_makes_the_request(extra: object):
    with pytest.raises(errors.MisuseError, match="`extra`"):
        body(Request("", (User("Hi."),), settings=Settings(extra=as_json(extra))))


def test_the_form_of_the_answer_is_asked_for_by_its_schema():
    sent = body(Request("", (User("Hi."),), output_schema=as_json({"type": "object"})))

    assert sent["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": {"type": "object"}},
    }


def test_thinking_is_given_back_only_where_a_server_wants_it():
    asked = Request("", (User("Hi."), Assistant("Hello.", thinking="hm"), User("And?")))

    assert "hm" not in str(body(asked))
    assert body(asked, thinking_field="reasoning_content")["messages"][1]["reasoning_content"] == "hm"


def test_a_server_that_does_not_know_the_question_for_usage_is_not_asked_it():
    assert "stream_options" not in body(ASKED, asks_for_usage=False)


@given(HISTORIES)
def test_every_history_that_was_repaired_is_one_that_openai_accepts(history: list[Message]):
    judge_openai(body(Request("", repair(history)))["messages"])


# -- what comes


async def test_an_answer_comes_as_typed_deltas():
    reply = Reply("Hello there.", thinking="let me see", calls=[("lookup", {"who": "Ann"}), ("list", {})])
    async with Provider(reply) as provider:
        asked = msgspec.structs.replace(ASKED, tools=(LOOKUP,))
        deltas = [delta async for delta in model(provider).stream(asked)]

    assert [delta for delta in deltas if isinstance(delta, ThinkingDelta)] == [
        ThinkingDelta("let"),
        ThinkingDelta(" me"),
        ThinkingDelta(" see"),
    ]
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == "Hello there."
    calls = [delta for delta in deltas if isinstance(delta, ToolCallDelta)]
    assert [(call.index, call.name) for call in calls if call.name] == [(0, "lookup"), (1, "list")]
    assert "".join(call.arguments for call in calls if call.index == 0) == '{"who": "Ann"}'
    assert all(call.id for call in calls if call.name)
    assert deltas[-2] == Finished(Finish.TOOL_CALLS)
    assert isinstance(deltas[-1], UsageDelta)
    assert deltas[-1].final
    assert deltas[-1].usage.input_tokens > 0
    assert deltas[-1].usage.output_tokens > 0
    assert deltas[-1].usage.cost_usd is None


async def test_an_answer_is_the_same_however_its_bytes_are_cut():
    reply = Reply(
        "Grüße an alle, 統計 😀!", thinking="naïve", calls=[("lookup", {"who": "Ä" * 40})], call_ids=["call_1"]
    )
    async with Provider(reply) as provider:
        whole = await collect(model(provider).stream(ASKED), ASKED)
        answers: list[Answer] = []
        for size in (1, 2, 7, 64):
            provider.play(msgspec.structs.replace(reply, shred=size))
            answers.append(await collect(model(provider).stream(ASKED), ASKED))

    assert whole.message.text == "Grüße an alle, 統計 😀!"
    assert whole.finish is Finish.TOOL_CALLS
    for answer in answers:
        assert msgspec.json.encode(answer) == msgspec.json.encode(whole)


@pytest.mark.parametrize(
    ("said", "finish"),
    [("stop", Finish.STOP), ("length", Finish.LENGTH), ("content_filter", Finish.FILTERED), ("eos", Finish.STOP)],
)
async def test_why_an_answer_ended_is_told(said: str, finish: Finish):
    async with Provider(Reply("Hello.", finish=said)) as provider:
        answer = await collect(model(provider).stream(ASKED), ASKED)

    assert answer.finish is finish


async def test_usage_that_the_provider_does_not_say_is_estimated_and_marked():
    async with Provider(Reply("Hello there.", usage=False)) as provider:
        answer = await collect(model(provider).stream(ASKED), ASKED)

    assert answer.usage.estimated
    assert answer.usage.output_tokens > 0


async def test_all_streams_share_connections_and_use_them_again():
    async with Provider(Reply("one two three")) as provider:
        asked = model(provider)
        for _ in range(5):
            await collect(asked.stream(ASKED), ASKED)
        await collect(model(provider, "gpt-5-mini").stream(ASKED), ASKED)

        assert provider.connections == 1


async def test_a_connection_whose_response_ends_a_moment_after_the_answer_is_used_again():
    server = KeepsAlive(b'data: {"choices":[{"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n', seconds=0.02)

    async with listening(server) as address:
        asked = OpenAIModel("m-1", base_url=f"http://{address}/v1", api_key="")
        for _ in range(3):
            await collect(asked.stream(ASKED), ASKED)

    assert server.connections == 1


# -- servers that are compatible, in their way


def read(*events: dict[str, Any]) -> list[Delta]:
    reader = OpenAIReader()
    return [delta for event in events for delta in reader.read(msgspec.json.encode(event))]


def delta(**fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": None}]}


def call(id: str | None, name: str | None, arguments: Any, index: int | None = None) -> dict[str, Any]:
    made: dict[str, Any] = {"id": id, "function": {"name": name, "arguments": arguments}}
    return made if index is None else {**made, "index": index}


def test_thinking_is_found_under_either_name():
    assert read(delta(reasoning_content="a"), delta(reasoning="b")) == [ThinkingDelta("a"), ThinkingDelta("b")]
    assert read(delta(content="", reasoning="c")) == [ThinkingDelta("c")]


def test_content_in_parts_is_taken_apart():
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "Yes."}]

    assert read(delta(content=parts)) == [ThinkingDelta("hm"), TextDelta("Yes.")]


@pytest.mark.parametrize(
    "pieces",
    [
        [call("a", "f", "", 0), call(None, None, '{"x":', 0), call(None, None, "1}", 0), call("b", "g", "{}", 1)],
        [call("a", "f", '{"x":'), call(None, None, "1}"), call("b", "g", "{}")],
        [call("a", "f", '{"x":', 0), call("a", "f", "1}", 0), call("b", "g", "{}", 0)],
        [call("a", "f", '{"x":', 0), call("other", None, "1}", 0), call("b", "g", {}, 0)],
        [call("a", "f", '{"x":', 5), call("", "", "1}", 5), call("b", "g", None, 7)],
    ],
    ids=["as documented", "without numbers", "ids repeated, all numbered 0", "ids made up", "odd numbers"],
)
def test_parallel_tool_calls_are_told_apart(pieces: list[dict[str, Any]]):
    deltas = read(*(delta(tool_calls=[piece]) for piece in pieces))

    calls = [one for one in deltas if isinstance(one, ToolCallDelta)]
    assert [one.index for one in calls] == sorted(one.index for one in calls)
    assert "".join(one.arguments for one in calls if one.index == 0) == '{"x":1}'
    assert {one.name for one in calls if one.index == 1} == {"g"}
    assert {one.index for one in calls} == {0, 1}


def test_a_refusal_is_text_that_was_filtered():
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}

    assert read(delta(refusal="I will not."), end) == [TextDelta("I will not."), Finished(Finish.FILTERED)]


def test_other_choices_and_what_follows_the_end_are_left_out():
    other = {"choices": [{"index": 1, "delta": {"content": "no"}}]}
    end = {"choices": [{"index": 0, "delta": {"content": "!"}, "finish_reason": "stop"}]}

    assert read(delta(content="Yes"), other, end, delta(content="no")) == [
        TextDelta("Yes"),
        TextDelta("!"),
        Finished(Finish.STOP),
    ]


def test_fields_that_nobody_knows_and_nulls_are_no_matter():
    odd = {"choices": None, "usage": None, "error": None, "x": [1]}

    assert read(odd, {}, {"choices": []}, {"choices": [{"delta": None, "finish_reason": ""}]}) == []


def test_the_price_is_taken_from_a_provider_that_says_it():
    (used,) = read({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2, "cost": 0.5}})

    assert isinstance(used, UsageDelta)
    assert (used.usage.input_tokens, used.usage.output_tokens, used.usage.cost_usd) == (7, 2, 0.5)


def test_what_was_read_from_a_cache_is_told_apart_and_is_never_more_than_was_read():
    said = {"prompt_tokens": 70, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 64}}

    deltas = read(
        {"choices": [], "usage": said},
        {"choices": [], "usage": {**said, "prompt_tokens_details": {"cached_tokens": 99}}},
        {"choices": [], "usage": {**said, "prompt_tokens_details": None}},
    )

    assert [delta.usage.cached_tokens for delta in deltas if isinstance(delta, UsageDelta)] == [64, 70, 0]


async def served(*pieces: bytes, head: bytes = HEAD) -> AsyncGenerator[Delta, None]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(head + b"".join(pieces))
        await writer.drain()

    async with listening(serve) as address:
        asked = OpenAIModel("m-1", base_url=f"http://{address}/v1", api_key="")
        async for one in asked.stream(ASKED):
            yield one


async def test_a_stream_that_says_done_without_a_reason_is_complete():
    said = b'data: {"choices":[{"delta":{"content":"Hi."}}]}\n\ndata: [DONE]\n\n'

    assert [one async for one in served(chunk(said), END)] == [TextDelta("Hi."), Finished(Finish.STOP)]


async def test_a_stream_that_is_over_with_the_connection_is_complete_if_it_said_so():
    said = b'data: {"choices":[{"delta":{"content":"Hi."},"finish_reason":"stop"}]}\n\n'
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"

    assert [one async for one in served(said, head=head)] == [TextDelta("Hi."), Finished(Finish.STOP)]


async def test_a_stream_that_is_over_without_saying_so_was_cut():
    said = b'data: {"choices":[{"delta":{"content":"Hi."}}]}\n\n'

    deltas, error = await failing(served(chunk(said), END))

    assert text(deltas) == "Hi."
    assert isinstance(error, errors.ModelUnavailable)
    assert error.reason == "cut"
    assert error.partial.message.text == "Hi."


async def test_an_answer_that_is_no_stream_is_refused_with_the_remedy():
    page = b"<html>Welcome</html>"
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: %d\r\n\r\n" % len(page)

    _, error = await failing(served(page, head=head))

    assert isinstance(error, errors.ModelUnavailable)
    assert (error.reason, error.may_retry) == ("malformed", False)
    assert "base URL" in error.remedy


async def test_an_error_that_comes_with_status_200_is_an_error():
    said = b'{"error":{"message":"Slow down.","code":429}}'
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(said)

    _, error = await failing(served(said, head=head))

    assert isinstance(error, errors.ModelRateLimited)
    assert "Slow down." in str(error)


# -- stopping


class Reading:
    """A task that reads a stream and remembers what came, and when."""

    def __init__(self, stream: AsyncGenerator[Delta, None]) -> None:
        self.deltas: list[Delta] = []
        self.came = asyncio.Event()
        self.task = asyncio.create_task(self._read(stream))

    async def _read(self, stream: AsyncGenerator[Delta, None]) -> None:
        async for one in stream:
            self.deltas.append(one)
            self.came.set()

    async def until(self, kind: type[Delta]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not any(isinstance(one, kind) for one in self.deltas):
                self.came.clear()
                await self.came.wait()

    async def stop(self) -> float:
        """Cancel it, and return the time of that. Nothing comes afterwards."""
        before = len(self.deltas)
        stopped_at = time.monotonic()
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task
        assert self.task.cancelled()
        assert len(self.deltas) == before
        return stopped_at


async def test_d2_a_stream_that_is_stopped_before_it_began_asks_for_nothing():
    async with Provider(SLOW) as provider:
        stream = model(provider).stream(ASKED)
        await stream.aclose()
        reading = Reading(model(provider).stream(ASKED))
        await reading.stop()

        assert provider.log == []


async def test_d2_a_stop_while_waiting_for_the_first_byte_reaches_the_provider():
    async with Provider(Reply("Hello.", first_byte_after=60)) as provider:
        reading = Reading(model(provider).stream(ASKED))
        await provider.until(lambda log: log)

        await reading.stop()

        await provider.until(lambda log: log[0].how == "disconnected")
        assert len(provider.log) == 1
        assert provider.log[0].tokens_sent == 0


@pytest.mark.parametrize("kind", [ThinkingDelta, TextDelta, ToolCallDelta])
async def test_d2_d12_a_stop_in_the_middle_reaches_the_provider_and_nothing_is_given_out_afterwards(kind: type[Delta]):
    asked = msgspec.structs.replace(ASKED, tools=(LOOKUP,))
    async with Provider(SLOW) as provider:
        reading = Reading(model(provider).stream(asked))
        await reading.until(kind)

        await reading.stop()

        await provider.until(lambda log: log[0].how == "disconnected")
        assert len(provider.log) == 1
        assert not any(isinstance(one, Finished) for one in reading.deltas)
        await asyncio.sleep(0.15)  # three tokens long
        assert provider.log[0].disconnected_at is not None
        assert provider.log[0].tokens_since(provider.log[0].disconnected_at) == 0


async def test_d2_a_stop_in_the_last_chunk_reaches_the_provider_and_the_answer_is_whole():
    async with Provider(Reply("Hello.", fault=Fault(stall_before_end=True))) as provider:
        reading = Reading(model(provider).stream(ASKED))
        await reading.until(UsageDelta)

        await reading.stop()

        await provider.until(lambda log: log[0].disconnected_at is not None)
        assert Finished(Finish.STOP) in reading.deltas


@pytest.mark.parametrize("tokens", [1, 3, 5])
async def test_d2_closing_a_stream_reaches_the_provider_too(tokens: int):
    async with Provider(SLOW) as provider:
        stream = model(provider).stream(ASKED)
        for _ in range(tokens):
            await anext(stream)

        await stream.aclose()

        await provider.until(lambda log: log[0].how == "disconnected")
        with pytest.raises(StopAsyncIteration):
            await anext(stream)


async def test_d4_a_connection_that_was_stopped_is_not_used_again_and_the_next_request_is_answered():
    async with Provider([SLOW, Reply("Hello.")]) as provider:
        reading = Reading(model(provider).stream(ASKED))
        await reading.until(TextDelta)
        await reading.stop()

        answer = await collect(model(provider).stream(ASKED), ASKED)

        assert answer.message.text == "Hello."
        assert [one.connection for one in provider.log] == [1, 2]


async def test_d12_of_many_streams_that_are_stopped_at_once_every_one_is_closed_at_once():
    """The median is a few milliseconds where the machine has nothing else to do."""
    streams = 100
    async with Provider(Reply("word " * 400, tokens_per_second=20)) as provider:
        readings = [Reading(model(provider).stream(ASKED)) for _ in range(streams)]
        for reading in readings:
            await reading.until(TextDelta)

        stopped_at = [await reading.stop() for reading in readings]
        await provider.until(lambda log: all(one.how == "disconnected" for one in log))

        gone = [one.disconnected_at or 0.0 for one in provider.log]
        assert len(gone) == streams
        assert statistics.median(sorted(gone)) - statistics.median(stopped_at) < within(2.0)
        assert client()._open == set()


# -- failing


async def test_a_missing_key_is_said_before_anything_is_sent(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    async with Provider("Hello.") as provider:
        _, error = await failing(model(provider, api_key=None).stream(ASKED))

        assert provider.connections == 0
    assert isinstance(error, errors.ModelUnauthorised)
    assert "OPENAI_API_KEY" in error.remedy


@pytest.mark.parametrize("key", ["sk-with-a\nnewline", "sk-schlüssel"])
async def test_a_key_that_cannot_be_sent_is_said_without_showing_it(key: str):
    _, error = await failing(OpenAIModel("gpt-5", api_key=key, base_url="http://127.0.0.1:1/v1").stream(ASKED))

    assert isinstance(error, errors.ModelUnauthorised)
    assert key not in str(error)


async def test_a_wrong_key_is_said_and_shown_nowhere():
    key = "sk-wrong-but-secret"
    async with Provider("Hello.") as provider:
        asked = model(provider, api_key=key, headers={"x-gateway": "another-secret"})
        _, error = await failing(asked.stream(ASKED))

    assert isinstance(error, errors.ModelUnauthorised)
    assert not error.may_retry
    for shown in (str(error), repr(error), repr(vars(error)), repr(asked), str(asked)):
        assert key not in shown
        assert "another-secret" not in shown


async def test_a_server_that_repeats_the_key_does_not_get_it_shown():
    fault = Fault(status=401, body={"error": {"message": "No such key: sk-secret-key; x-gateway: other-secret"}})
    async with Provider(Reply(fault=fault), key=None) as provider:
        asked = model(provider, api_key="sk-secret-key", headers={"x-gateway": "other-secret"})
        _, error = await failing(asked.stream(ASKED))

    assert "No such key: [hidden]; x-gateway: [hidden]" in str(error)


async def test_a_model_that_the_provider_does_not_have_is_said():
    async with Provider("Hello.") as provider:
        _, error = await failing(model(provider, "davinci").stream(ASKED))

    assert isinstance(error, errors.ModelNotFound)
    assert "davinci" in str(error)


async def test_a_broken_history_is_refused_with_the_place_of_the_message():
    calls = (ToolCall("call_1", "lookup", as_json({})),)
    broken = Request("Be brief.", (User("Look."), Assistant("", calls=calls), User("And?")))
    async with Provider("Hello.") as provider:
        _, error = await failing(model(provider).stream(broken))

    assert isinstance(error, errors.ModelRefusedRequest)
    assert error.position == 2
    assert "did not have response messages: call_1" in str(error)


async def test_a_setting_that_a_model_does_not_take_is_refused_in_the_providers_words():
    asked = msgspec.structs.replace(ASKED, settings=Settings(temperature=0.5))
    async with Provider("Hello.") as provider:
        _, error = await failing(model(provider).stream(asked))

    assert isinstance(error, errors.ModelRefusedRequest)
    assert error.position is None
    assert "'temperature' does not support 0.5" in str(error)


async def test_a_rate_limit_says_how_long_to_wait():
    async with Provider(Reply(fault=Fault(status=429, retry_after=8))) as provider:
        _, error = await failing(model(provider).stream(ASKED))

        assert len(provider.log) == 1
    assert isinstance(error, errors.ModelRateLimited)
    assert error.may_retry
    assert error.retry_after == 8.0


@pytest.mark.parametrize("status", [500, 502, 503, 529])
async def test_a_fault_of_the_provider_may_be_tried_again_and_is_not_tried_again_here(status: int):
    async with Provider(Reply(fault=Fault(status=status))) as provider:
        _, error = await failing(model(provider).stream(ASKED))

        assert len(provider.log) == 1
    assert isinstance(error, errors.ModelUnavailable)
    assert error.may_retry


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Fault(cut_after_tokens=2, cut="close"), "cut"),
        (Fault(malformed_after_tokens=2), "malformed"),
        (Fault(oversized_after_tokens=2), "oversized"),
        (Fault(error_after_tokens=2), "fault"),
    ],
)
async def test_d15_an_answer_that_breaks_in_the_middle_says_how_and_keeps_what_had_come(fault: Fault, reason: str):
    async with Provider(Reply("one two three four", tokens_per_second=50, fault=fault)) as provider:
        deltas, error = await failing(model(provider).stream(ASKED))

    assert isinstance(error, errors.ModelUnavailable)
    assert error.reason == reason
    assert error.may_retry
    assert text(deltas) == "one two"
    assert error.partial.message == Assistant("one two", interrupted=True)
    assert error.partial.usage.estimated


async def test_d15_an_answer_whose_connection_is_reset_keeps_what_had_come():
    fault = Fault(cut_after_tokens=3)
    async with Provider(Reply("one two three four", tokens_per_second=20, fault=fault)) as provider:
        deltas, error = await failing(model(provider).stream(ASKED))

    assert isinstance(error, errors.ModelUnavailable)
    assert error.reason == "cut"
    # A reset may overtake the last token.
    assert text(deltas) in ("one two", "one two three")
    assert error.partial.message.text == text(deltas)


async def test_half_a_tool_call_is_no_part_of_what_had_come():
    reply = Reply(calls=[("lookup", {"who": "somebody"})], fault=Fault(cut_after_tokens=2, cut="close"))
    async with Provider(reply) as provider:
        _, error = await failing(model(provider).stream(ASKED))

    assert isinstance(error, errors.ModelUnavailable)
    assert error.partial.message.calls == ()


@pytest.mark.parametrize("pings", [None, 0.05], ids=["silent", "with keep-alives"])
async def test_d15_an_answer_that_stalls_is_given_up(pings: float | None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http, "LOOK_SECONDS", 0.05)
    fault = Fault(stall_after_tokens=2, pings_every=pings)
    async with Provider(Reply("one two three", fault=fault)) as provider:
        asked = model(provider, timeouts=Timeouts(first_byte=0.5, between_bytes=0.3))
        deltas, error = await failing(asked.stream(ASKED))

        await provider.until(lambda log: log[0].disconnected_at is not None)
    assert isinstance(error, errors.ModelUnavailable)
    assert error.reason == "stalled"
    assert text(deltas) == error.partial.message.text == "one two"


async def test_an_answer_that_is_complete_is_not_lost_when_its_end_does_not_come(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(OpenAIModel, "end_seconds", 0.1)
    async with Provider(Reply("Hello.", fault=Fault(stall_before_end=True))) as provider:
        async with asyncio.timeout(PATIENCE_SECONDS):
            answer = await collect(model(provider).stream(ASKED), ASKED)

        await provider.until(lambda log: log[0].disconnected_at is not None)
    assert answer.message.text == "Hello."
    assert not answer.usage.estimated


async def test_a_server_that_is_not_there_is_said_with_what_helps(monkeypatch: pytest.MonkeyPatch):
    with socket.socket() as silent:  # nobody else gets its port meanwhile, and nobody listens there
        silent.bind(("127.0.0.1", 0))
        monkeypatch.setenv("OLLAMA_HOST", f"127.0.0.1:{silent.getsockname()[1]}")

        _, error = await failing(OpenAIModel("llama3", provider="ollama").stream(ASKED))

    assert isinstance(error, errors.ModelUnavailable)
    assert error.reason == "refused"
    assert "`ollama serve`" in error.remedy


@pytest.mark.parametrize("url", ["api.openai.com", "ftp://host/v1", "http://", "http://host:port/v1", ""])
def test_an_address_that_is_none_is_refused_when_the_model_is_made(url: str):
    with pytest.raises(errors.MisuseError, match="base_url"):
        OpenAIModel("gpt-5", base_url=url)


def test_a_header_that_cannot_be_sent_is_refused_when_the_model_is_made():
    with pytest.raises(errors.MisuseError, match="'x-note'"):
        OpenAIModel("gpt-5", headers={"x-note": "two\nlines"})
