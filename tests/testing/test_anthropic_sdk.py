"""The real `anthropic` client against the provider: what it parses, what it raises. It is the judge of the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from checkrein.testing.provider import Fault, Provider, Reply, Usage
from checkrein.testing.provider.anthropic_rules import PARAMETERS
from tests.support.lazy import lazy_module

if TYPE_CHECKING:
    import anthropic as sdk
else:
    sdk = lazy_module("anthropic")

pytestmark = pytest.mark.anyio

ASK: dict[str, Any] = {
    "model": "claude-haiku-4-5",
    "max_tokens": 4096,
    "messages": [{"role": "user", "content": "Hello?"}],
}
SEARCH: dict[str, Any] = {"name": "search", "input_schema": {"type": "object", "properties": {"q": {"type": "string"}}}}
ARGUMENTS = {"q": "Kühe & Schafe", "limit": 3, "deep": {"é": ["統計", None]}}
THINK: dict[str, Any] = {"thinking": {"type": "enabled", "budget_tokens": 1024}}


async def events_of(client: sdk.AsyncAnthropic, **ask: Any) -> list[Any]:
    return [event async for event in await client.messages.create(stream=True, **ask)]


async def test_a_whole_answer_has_its_blocks_and_its_usage(anthropic):
    reply = Reply(
        "I will look.",
        thinking="Let me see.",
        calls=[("search", ARGUMENTS), ("now", {})],
        usage=Usage(100, 20, cache_read=64, cache_write=6),
    )
    async with Provider(reply) as provider:
        answer = await anthropic(provider).messages.create(**ASK, **THINK, tools=[SEARCH])

    thought, text, first, second = answer.content
    assert (thought.type, thought.thinking, bool(thought.signature)) == ("thinking", "Let me see.", True)
    assert text.text == "I will look."
    assert (first.name, first.input, second.input) == ("search", ARGUMENTS, {})
    assert first.id != second.id
    assert answer.stop_reason == "tool_use"
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (30, 20)
    assert (answer.usage.cache_read_input_tokens, answer.usage.cache_creation_input_tokens) == (64, 6)


async def test_a_stream_has_the_events_that_are_documented_in_their_order(anthropic):
    async with Provider(Reply("One two.", usage=Usage(11, 3))) as provider:
        events = await events_of(anthropic(provider), **ASK)

    assert [event.type for event in events] == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    start, end = events[0].message, events[-2]
    assert (start.usage.input_tokens, start.usage.output_tokens, start.content) == (11, 1, [])
    assert (end.usage.output_tokens, end.delta.stop_reason) == (3, "end_turn")
    assert [event.delta.text for event in events[2:4]] == ["One", " two."]


async def test_a_ping_is_among_the_events(anthropic):
    async with (
        Provider("One.") as provider,
        anthropic(provider).messages.with_streaming_response.create(**ASK, stream=True) as response,
    ):
        raw = await response.read()

    assert b'event: ping\ndata: {"type":"ping"}\n\n' in raw
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.headers["request-id"].startswith("req_")


async def test_the_client_puts_thinking_text_and_calls_together_again(anthropic):
    reply = Reply("I will look.", thinking="Let me see.", calls=[("search", ARGUMENTS), ("now", {})])
    async with Provider(reply) as provider:
        client = anthropic(provider)
        async with client.messages.stream(**ASK, **THINK, tools=[SEARCH]) as stream:
            streamed = await stream.get_final_message()
        whole = await client.messages.create(**ASK, **THINK, tools=[SEARCH])

    assert [block.type for block in streamed.content] == ["thinking", "text", "tool_use", "tool_use"]
    assert streamed.content[0].signature == whole.content[0].signature
    assert streamed.content[2].input == ARGUMENTS
    assert streamed.content[3].input == {}
    assert streamed.stop_reason == whole.stop_reason == "tool_use"


async def test_a_turn_goes_back_with_its_thinking_and_its_results(anthropic):
    replies = [Reply("I will look.", thinking="Let me see.", calls=[("search", ARGUMENTS)]), Reply("Found.")]
    async with Provider(replies) as provider:
        client = anthropic(provider)
        first = await client.messages.create(**ASK, **THINK, tools=[SEARCH])
        result = {"type": "tool_result", "tool_use_id": first.content[2].id, "content": "moo"}
        messages = [
            *ASK["messages"],
            {"role": "assistant", "content": first.content},
            {"role": "user", "content": [result]},
        ]
        second = await client.messages.create(**{**ASK, "messages": messages}, **THINK, tools=[SEARCH])

    assert second.content[0].text == "Found."


async def test_thinking_that_was_changed_is_refused(anthropic):
    async with Provider(Reply("Yes.", thinking="Let me see.")) as provider:
        client = anthropic(provider)
        first = await client.messages.create(**ASK, **THINK)
        changed = {**first.content[0].model_dump(), "thinking": "Let me lie."}
        said = {"role": "assistant", "content": [changed, {"type": "text", "text": "Yes."}]}
        with pytest.raises(sdk.BadRequestError, match="Invalid `signature` in `thinking` block"):
            await client.messages.create(
                **{**ASK, "messages": [*ASK["messages"], said, {"role": "user", "content": "Sure?"}]}, **THINK
            )


@pytest.mark.parametrize(
    ("model", "thinking", "shown"),
    [
        ("claude-opus-4-6", {"type": "adaptive"}, "Let me see."),
        ("claude-opus-5-5", {"type": "adaptive"}, ""),
        ("claude-opus-5-5", {"type": "adaptive", "display": "summarized"}, "Let me see."),
        ("claude-opus-4-6", {"type": "adaptive", "display": "omitted"}, ""),
    ],
)
async def test_newer_models_keep_their_thinking_to_themselves_unless_asked(anthropic, model, thinking, shown):
    async with Provider(Reply("Yes.", thinking="Let me see.")) as provider:
        async with anthropic(provider).messages.stream(**{**ASK, "model": model}, thinking=thinking) as stream:
            answer = await stream.get_final_message()
        said = {"role": "assistant", "content": answer.content}
        asked_again = {
            **ASK,
            "model": model,
            "messages": [*ASK["messages"], said, {"role": "user", "content": "Sure?"}],
        }
        await anthropic(provider).messages.create(**asked_again, thinking=thinking)

    assert answer.content[0].thinking == shown
    assert answer.content[0].signature


async def test_a_limit_of_tokens_cuts_the_answer_short_and_says_so(anthropic):
    async with Provider("one two three four five") as provider:
        answer = await anthropic(provider).messages.create(**{**ASK, "max_tokens": 3})

    assert (answer.content[0].text, answer.stop_reason) == ("one two three", "max_tokens")


async def test_an_answer_may_end_for_any_reason_in_the_words_of_either_wire(anthropic):
    async with Provider([Reply("a", finish="refusal"), Reply("a", finish="length")]) as provider:
        client = anthropic(provider)
        answers = [await client.messages.create(**ASK) for _ in range(2)]

    assert [answer.stop_reason for answer in answers] == ["refusal", "max_tokens"]


async def test_models_are_listed(anthropic):
    async with Provider("", models=["claude-opus-5-5"]) as provider:
        client = anthropic(provider)
        listed = [model.id async for model in client.models.list()]
        with pytest.raises(sdk.NotFoundError):
            await client.models.retrieve("claude-2")

    assert listed == ["claude-opus-5-5"]


async def test_the_log_has_what_was_asked(anthropic):
    async with Provider("Fine.") as provider:
        await anthropic(provider).messages.create(**ASK)

    (request,) = provider.log
    assert (request.wire, request.model, request.stream) == ("anthropic", "claude-haiku-4-5", False)
    assert "anthropic-version" in request.headers


# -- errors become the client's own


async def test_a_missing_key_and_a_wrong_one_are_authentication_errors(anthropic):
    async with Provider("") as provider:
        with pytest.raises(sdk.AuthenticationError) as wrong:
            await anthropic(provider, api_key="sk-stolen").messages.create(**ASK)
        with pytest.raises(sdk.AuthenticationError, match="x-api-key header is required"):
            await anthropic(provider, default_headers={"authorization": sdk.Omit()}).messages.create(**ASK)

    assert wrong.value.type == "authentication_error"
    assert wrong.value.request_id


async def test_the_key_may_come_in_its_own_header(anthropic):
    async with Provider("Fine.") as provider:
        client = anthropic(provider, default_headers={"x-api-key": provider.key, "authorization": "Bearer other"})
        answer = await client.messages.create(**ASK)

    assert answer.content[0].text == "Fine."


async def test_an_unknown_model_is_not_found(anthropic):
    async with Provider("") as provider:
        with pytest.raises(sdk.NotFoundError) as found:
            await anthropic(provider).messages.create(**{**ASK, "model": "no-such-model"})

    assert (found.value.type, found.value.api_message) == ("not_found_error", "model: no-such-model")


async def test_too_many_requests_say_when_to_come_back(anthropic):
    async with Provider(Reply(fault=Fault(status=429, retry_after=2))) as provider:
        with pytest.raises(sdk.RateLimitError) as found:
            await anthropic(provider).messages.create(**ASK, stream=True)

    assert found.value.type == "rate_limit_error"
    assert found.value.response.headers["retry-after"] == "2"
    assert found.value.response.headers["anthropic-ratelimit-requests-remaining"] == "0"


async def test_the_client_s_own_retries_succeed_when_the_fault_has_happened_often_enough(anthropic):
    fault = Fault(status=529, retry_after=0.01, times=2)
    async with Provider([Reply("At last.", fault=fault)]) as provider:
        answer = await anthropic(provider, max_retries=2).messages.create(**ASK)

    assert answer.content[0].text == "At last."
    assert [request.how for request in provider.log] == ["fault", "fault", "completed"]


@pytest.mark.parametrize(
    ("status", "type"), [(500, "api_error"), (503, "api_error"), (504, "timeout_error"), (529, "overloaded_error")]
)
async def test_a_failing_server_is_an_internal_server_error(anthropic, status: int, type: str):
    async with Provider(Reply(fault=Fault(status=status))) as provider:
        with pytest.raises(sdk.InternalServerError) as found:
            await anthropic(provider).messages.create(**ASK)

    assert (found.value.status_code, found.value.type) == (status, type)


async def test_the_page_of_a_proxy_is_passed_on_as_it_is(anthropic):
    async with Provider(Reply(fault=Fault(status=502, body="<html>Bad gateway</html>"))) as provider:
        with pytest.raises(sdk.InternalServerError) as found:
            await anthropic(provider).messages.create(**ASK)

    assert found.value.response.headers["content-type"].startswith("text/html")
    assert found.value.response.text == "<html>Bad gateway</html>"


async def test_a_dangling_call_is_a_bad_request(anthropic):
    use = {"type": "tool_use", "id": "toolu_1", "name": "search", "input": {}}
    messages = [*ASK["messages"], {"role": "assistant", "content": [use]}, {"role": "user", "content": "Well?"}]
    async with Provider("") as provider:
        with pytest.raises(sdk.BadRequestError) as found:
            await anthropic(provider).messages.create(**{**ASK, "messages": messages})

    assert "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_1." in str(
        found.value
    )
    assert found.value.type == "invalid_request_error"


async def test_overload_in_mid_stream_is_an_error_of_the_api(anthropic):
    async with Provider(Reply("one two three", fault=Fault(error_after_tokens=2))) as provider:
        seen = []
        with pytest.raises(sdk.APIStatusError) as found:
            async for event in await anthropic(provider).messages.create(**ASK, stream=True):
                if event.type == "content_block_delta":
                    seen.append(event.delta.text)

    assert "".join(seen) == "one two"
    assert found.value.type == "overloaded_error"
    assert provider.log[0].how == "fault"


async def test_a_connection_cut_in_mid_stream_fails_at_the_client(anthropic):
    async with Provider(Reply("one two three four", fault=Fault(cut_after_tokens=2))) as provider:
        seen = []
        with pytest.raises(Exception) as found:
            async for event in await anthropic(provider).messages.create(**ASK, stream=True):
                if event.type == "content_block_delta":
                    seen.append(event.delta.text)

    # This client lets its HTTP library's own error through.
    assert type(found.value).__name__ in ("ReadError", "APIConnectionError")
    assert "".join(seen) == "one two"


async def test_a_connection_cut_before_the_answer_is_a_connection_error(anthropic):
    async with Provider(Reply("one", fault=Fault(cut_after_tokens=0))) as provider:
        with pytest.raises(sdk.APIConnectionError):
            await anthropic(provider).messages.create(**ASK)


async def test_no_answer_at_all_is_a_timeout_of_the_client_and_a_disconnect_for_the_provider(anthropic):
    async with Provider(Reply(fault=Fault(never_answers=True))) as provider:
        with pytest.raises(sdk.APITimeoutError):
            await anthropic(provider, timeout=1.0).messages.create(**ASK)
        await provider.until(lambda log: log[0].how == "disconnected")

    assert provider.log[0].first_byte_at is None


async def test_a_malformed_event_is_no_json(anthropic):
    async with Provider(Reply("one two three", fault=Fault(malformed_after_tokens=2))) as provider:
        with pytest.raises(ValueError):
            await events_of(anthropic(provider), **ASK)


async def test_an_oversized_event_is_one_large_piece_of_text(anthropic):
    fault = Fault(oversized_after_tokens=2, oversized_bytes=1_000_000)
    async with Provider(Reply("one two three", fault=fault)) as provider:
        events = await events_of(anthropic(provider), **ASK)

    assert max(len(event.delta.text) for event in events if event.type == "content_block_delta") == 1_000_000


async def test_pieces_of_any_size_make_the_same_answer(anthropic):
    text = "Grüße aus 東京 🐄!"
    async with Provider([Reply(text, calls=[("search", ARGUMENTS)], shred=size) for size in (1, 3, 7)]) as provider:
        for _ in range(3):
            async with anthropic(provider).messages.stream(**ASK, tools=[SEARCH]) as stream:
                final = await stream.get_final_message()
            assert final.content[0].text == text
            assert final.content[1].input == ARGUMENTS


def test_every_parameter_that_the_client_puts_into_the_body_is_known_here():
    from anthropic.types.message_create_params import MessageCreateParamsBase

    as_headers = {"user_profile_id", "workspace_id"}

    assert set(MessageCreateParamsBase.__annotations__) - as_headers <= PARAMETERS
