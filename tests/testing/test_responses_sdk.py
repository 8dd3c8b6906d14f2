"""The real `openai` client against the provider's Responses: what it parses, what it raises. It is the judge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from checkrein.testing.provider import Fault, Provider, Reply, Usage, by_turn
from tests.support.lazy import lazy_module

if TYPE_CHECKING:
    import openai as sdk
else:
    sdk = lazy_module("openai")

pytestmark = pytest.mark.anyio

ASK: dict[str, Any] = {"model": "gpt-5", "input": "Hello?"}
SEARCH: dict[str, Any] = {"type": "function", "name": "search", "parameters": {"type": "object", "properties": {}}}
REPLY = Reply("I will look.", thinking="hm hm", calls=[("search", {"q": "Kühe"})], usage=Usage(100, 20, cache_read=64))


async def test_a_whole_answer_has_its_items_and_its_usage(openai):
    async with Provider(REPLY) as provider:
        answer = await openai(provider).responses.create(**ASK, tools=[SEARCH])

    assert answer.output_text == "I will look."
    assert [item.type for item in answer.output] == ["reasoning", "message", "function_call"]
    assert answer.output[2].arguments == '{"q": "Kühe"}'
    assert answer.status == "completed"
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (100, 20)
    assert answer.usage.input_tokens_details.cached_tokens == 64


async def test_a_stream_adds_up_to_the_same_answer(openai):
    async with Provider(REPLY) as provider, openai(provider).responses.stream(**ASK, tools=[SEARCH]) as stream:
        events = [event async for event in stream]
        answer = await stream.get_final_response()

    numbers = [event.sequence_number for event in events]
    assert numbers == sorted(set(numbers))
    assert [event.type for event in events[:2]] == ["response.created", "response.in_progress"]
    assert events[-1].type == "response.completed"
    assert answer.output_text == "I will look."
    assert [item.type for item in answer.output] == ["reasoning", "message", "function_call"]


async def test_an_error_in_the_stream_is_its_last_event_and_one_instead_of_it_is_raised(openai):
    async with Provider(
        [Reply("a b c", fault=Fault(error_after_tokens=1)), Reply(fault=Fault(status=429))]
    ) as provider:
        *_, last = [event async for event in await openai(provider).responses.create(**ASK, stream=True)]
        assert (last.type, last.code) == ("error", "server_error")
        with pytest.raises(sdk.RateLimitError):
            await openai(provider).responses.create(**ASK)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"model": "no-such-model", "input": "Hi"}, "does not exist"),
        ({"model": "gpt-5", "input": []}, "input"),
        ({"model": "gpt-5", "input": [{"type": "function_call_output", "call_id": "c", "output": ""}]}, "No tool call"),
        (
            {"model": "gpt-5", "input": [{"type": "function_call", "call_id": "c", "name": "n", "arguments": "{}"}]},
            "No tool output",
        ),
        (
            {"model": "gpt-5", "input": [{"role": "assistant", "content": [{"type": "input_text", "text": "x"}]}]},
            "Supported values are: 'output_text'",
        ),
    ],
)
async def test_what_openai_refuses_is_refused(openai, body, says):
    async with Provider("Fine.") as provider:
        with pytest.raises(sdk.APIStatusError, match=says):
            await openai(provider).responses.create(**body)


async def test_a_turn_is_told_by_the_items_of_the_assistant(openai):
    call = {"type": "function_call", "call_id": "c", "name": "search", "arguments": "{}"}
    history = [{"role": "user", "content": "Hi"}, call, {"type": "function_call_output", "call_id": "c", "output": "1"}]
    async with Provider(by_turn(["first", "second"])) as provider:
        assert (await openai(provider).responses.create(**ASK)).output_text == "first"
        assert (await openai(provider).responses.create(model="gpt-5", input=history)).output_text == "second"


async def test_a_websocket_is_refused_with_426():
    import aiohttp

    async with Provider("Fine.") as provider, aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await session.ws_connect(f"{provider.openai_url}/responses")

    assert caught.value.status == 426
