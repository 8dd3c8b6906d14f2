"""OpenAI's Responses and Gemini as wires of a model: what is sent, what comes, how it is stopped, how it fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from checkrein import errors
from checkrein.core.conditions import Usage as Used
from checkrein.models import (
    Assistant,
    Finish,
    Model,
    Note,
    Request,
    Settings,
    ThinkingDelta,
    ToolCall,
    ToolResult,
    ToolSpec,
    User,
    as_json,
    collect,
    resolve,
)
from checkrein.models.gemini import GeminiModel, GeminiReader
from checkrein.models.openai_responses import ResponsesModel, ResponsesReader
from checkrein.models.prices import cost_of
from checkrein.testing.provider import Fault, Provider, Reply, Usage
from tests.support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio

LOOKUP = ToolSpec("lookup", "Look somebody up.", as_json({"type": "object", "properties": {"who": {"type": "string"}}}))
ASKED = Request("Be brief.", (User("Which customers will churn?"),), tools=(LOOKUP,))
CALL = ToolCall("call_1", "lookup", as_json({"who": "Ann"}))
HISTORY = (
    User("Look up Ann."),
    Assistant("I look.", thinking="hm", calls=(CALL, ToolCall("call_2", "lookup", as_json({"who": "Bob"})))),
    ToolResult("call_1", "lookup", "not found", is_error=True),
    ToolResult("call_2", "lookup", "found"),
    Note("Ann was renamed."),
)


def responses(provider: Provider, **options: Any) -> Model:
    return ResponsesModel("gpt-5", **{"base_url": provider.openai_url, "api_key": provider.key, **options})


def gemini(provider: Provider, **options: Any) -> Model:
    return GeminiModel("gemini-2.5-flash", **{"base_url": provider.gemini_url, "api_key": provider.key, **options})


each = pytest.mark.parametrize("model", [responses, gemini])


@each
async def test_text_thinking_calls_and_usage_come_as_they_are_said(model: Callable[..., Model]):
    said = Reply(
        "I will look.", thinking="hm hm", calls=[("lookup", {"who": "Kühe"})], usage=Usage(100, 20, cache_read=64)
    )
    async with Provider(said) as provider:
        reply = await collect(model(provider).stream(ASKED), ASKED)

    assert (reply.message.text, reply.message.thinking) == ("I will look.", "hm hm")
    assert [(call.name, msgspec.json.decode(bytes(call.arguments))) for call in reply.message.calls] == [
        ("lookup", {"who": "Kühe"})
    ]
    assert reply.message.calls[0].id
    assert reply.finish is Finish.TOOL_CALLS
    assert reply.usage == Used(input_tokens=100, output_tokens=20, cost_usd=None, cached_tokens=64)


@each
async def test_a_whole_conversation_is_accepted(model: Callable[..., Model]):
    settings = Settings(max_tokens=500, temperature=0.5, tool_choice="required")
    async with Provider("Fine.") as provider:
        reply = await collect(model(provider).stream(Request("Be brief.", HISTORY, (LOOKUP,), settings=settings)))

    assert reply.message.text == "Fine."
    assert provider.log[0].how == "completed"
    assert provider.log[0].turn == 1


async def test_what_is_sent_over_responses_is_kept_nowhere():
    async with Provider("Fine.") as provider:
        await collect(
            responses(provider).stream(Request("Be brief.", HISTORY, output_schema=as_json({"type": "object"})))
        )
        sent = provider.log[0].body

    assert (sent["store"], sent["instructions"]) == (False, "Be brief.")
    assert sent["text"]["format"]["schema"] == {"type": "object"}
    assert [item.get("type", item.get("role")) for item in sent["input"]] == [
        "user",
        "assistant",
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
        "user",
    ]


async def test_results_go_back_to_gemini_in_one_turn_and_seals_with_their_calls():
    seals = '{"1":"c2VhbA=="}'
    sealed = (HISTORY[0], msgspec.structs.replace(HISTORY[1], signature=seals), *HISTORY[2:])
    async with Provider("Fine.") as provider:
        await collect(gemini(provider).stream(Request("Be brief.", sealed)))
        sent = provider.log[0].body

    assert [content["role"] for content in sent["contents"]] == ["user", "model", "user", "user"]
    assert [part.get("thoughtSignature") for part in sent["contents"][1]["parts"]] == [None, None, "c2VhbA=="]
    assert [part["functionResponse"]["id"] for part in sent["contents"][2]["parts"]] == ["call_1", "call_2"]
    assert sent["systemInstruction"] == {"parts": [{"text": "Be brief."}]}


def test_a_seal_of_gemini_is_kept_with_its_call():
    part = {"functionCall": {"name": "lookup", "args": {}}, "thoughtSignature": "c2VhbA=="}

    deltas = GeminiReader().read(msgspec.json.encode({"candidates": [{"content": {"parts": [part]}}]}))

    assert deltas[-1] == ThinkingDelta("", '{"0":"c2VhbA=="}')


@each
async def test_stopped_it_is_closed_at_the_provider_at_once(model: Callable[..., Model]):
    async with Provider(Reply("word " * 1000, tokens_per_second=100)) as provider:
        reading = asyncio.ensure_future(collect(model(provider).stream(ASKED)))
        await provider.until(lambda log: bool(log) and log[0].tokens_sent >= 5, PATIENCE_SECONDS)
        reading.cancel()
        with suppress(asyncio.CancelledError):
            await reading

        await provider.until(lambda log: log[0].how == "disconnected", PATIENCE_SECONDS)


@each
@pytest.mark.parametrize(
    ("fault", "raised"),
    [
        (Fault(status=401), errors.ModelUnauthorised),
        (Fault(status=429, retry_after=2.0), errors.ModelRateLimited),
        (Fault(status=503), errors.ModelUnavailable),
        (Fault(cut_after_tokens=1), errors.ModelUnavailable),
        (Fault(cut_after_tokens=1, cut="close"), errors.ModelUnavailable),
        (Fault(error_after_tokens=1), errors.ModelUnavailable),
        (Fault(malformed_after_tokens=1), errors.ModelUnavailable),
        (Fault(oversized_after_tokens=1), errors.ModelUnavailable),
    ],
)
async def test_what_goes_wrong_is_said_in_our_words(model: Callable[..., Model], fault: Fault, raised: type[Exception]):
    async with Provider(Reply("one two three", fault=fault)) as provider:
        with pytest.raises(raised) as caught:
            await collect(model(provider).stream(ASKED))

    assert provider.key not in str(caught.value)


@each
async def test_an_answer_that_a_limit_cut_off_says_so(model: Callable[..., Model]):
    async with Provider("one two three four five") as provider:
        reply = await collect(model(provider).stream(Request("", ASKED.messages, settings=Settings(max_tokens=2))))

    assert reply.finish is Finish.LENGTH


@pytest.mark.parametrize("name", ["openai-responses:gpt-5", "gemini:gemini-2.5-flash"])
def test_a_name_is_a_model_with_a_price(name: str):
    assert resolve(name).name == name
    assert cost_of(name, Used(input_tokens=1000, output_tokens=1000))


def test_kinds_of_events_that_are_not_known_are_passed_over():
    assert ResponsesReader().read(b'{"type":"response.steer.accepted","sequence_number":3}') == []
    assert GeminiReader().read(b'{"candidates":[{"content":{"parts":[{"inlineData":{}}]}}]}') == []
