"""The real `openai` client against the provider: what it parses, what it raises. It is the judge of the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from checkrein.testing.provider import Fault, Provider, Reply, Usage
from checkrein.testing.provider.openai_rules import PARAMETERS
from tests.support.lazy import lazy_module

if TYPE_CHECKING:
    import openai as sdk
else:
    sdk = lazy_module("openai")

pytestmark = pytest.mark.anyio

ASK: dict[str, Any] = {"model": "gpt-5", "messages": [{"role": "user", "content": "Hello?"}]}
SEARCH: dict[str, Any] = {
    "type": "function",
    "function": {"name": "search", "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}},
}
ARGUMENTS = {"q": "Kühe & Schafe", "limit": 3, "deep": {"é": ["統計", None]}}


async def chunks_of(client: sdk.AsyncOpenAI, **ask: Any) -> list[sdk.types.chat.ChatCompletionChunk]:
    return [chunk async for chunk in await client.chat.completions.create(stream=True, **ask)]


async def test_a_whole_answer_has_its_text_its_calls_and_its_usage(openai):
    reply = Reply("I will look.", calls=[("search", ARGUMENTS), ("now", {})], usage=Usage(100, 20, cache_read=64))
    async with Provider(reply) as provider:
        answer = await openai(provider).chat.completions.create(**ASK, tools=[SEARCH])

    (choice,) = answer.choices
    assert choice.message.content == "I will look."
    assert [call.function.name for call in choice.message.tool_calls] == ["search", "now"]
    assert choice.message.tool_calls[1].function.arguments == "{}"
    assert choice.finish_reason == "tool_calls"
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (100, 20, 120)
    assert answer.usage.prompt_tokens_details.cached_tokens == 64
    assert answer.model == "gpt-5"
    assert provider.log[0].how == "completed"


async def test_a_stream_is_text_word_by_word_then_the_reason_it_ended(openai):
    async with Provider("Nothing  has\nhappened. ") as provider:
        chunks = await chunks_of(openai(provider), **ASK)

    assert chunks[0].choices[0].delta.role == "assistant"
    texts = [chunk.choices[0].delta.content for chunk in chunks[1:-1]]
    assert texts == ["Nothing", "  has", "\nhappened.", " "]
    assert [chunk.choices[0].finish_reason for chunk in chunks[-2:]] == [None, "stop"]
    assert len({chunk.id for chunk in chunks}) == 1
    assert all(chunk.usage is None for chunk in chunks)


async def test_usage_comes_in_a_last_chunk_without_choices_where_it_is_asked_for(openai):
    async with Provider(Reply("One two three.", usage=Usage(11, 3))) as provider:
        chunks = await chunks_of(openai(provider), **ASK, stream_options={"include_usage": True})

    *others, last = chunks
    assert last.choices == []
    assert last.usage is not None
    assert (last.usage.prompt_tokens, last.usage.completion_tokens) == (11, 3)
    assert all(chunk.usage is None and chunk.choices for chunk in others)


async def test_a_server_may_keep_its_usage_to_itself(openai):
    async with Provider(Reply("One.", usage=False)) as provider:
        chunks = await chunks_of(openai(provider), **ASK, stream_options={"include_usage": True})
        whole = await openai(provider).chat.completions.create(**ASK)

    assert all(chunk.choices and chunk.usage is None for chunk in chunks)
    assert whole.usage is None


async def test_parallel_calls_come_in_pieces_under_their_index(openai):
    async with Provider(Reply("", calls=[("search", ARGUMENTS), ("search", {"q": "x"})])) as provider:
        chunks = await chunks_of(openai(provider), **ASK, tools=[SEARCH])
        async with openai(provider).chat.completions.stream(**ASK, tools=[SEARCH]) as stream:
            final = await stream.get_final_completion()

    pieces = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or ()]
    starts = [piece for piece in pieces if piece.id]
    assert [start.index for start in starts] == [0, 1]
    assert {start.type for start in starts} == {"function"}
    assert len({start.id for start in starts}) == 2
    assert len([piece for piece in pieces if piece.index == 0]) > 3
    calls = final.choices[0].message.tool_calls
    assert [call.function.arguments for call in calls] == [
        '{"q": "Kühe & Schafe", "limit": 3, "deep": {"é": ["統計", null]}}',
        '{"q": "x"}',
    ]


async def test_arguments_that_a_model_got_wrong_are_sent_as_it_wrote_them(openai):
    async with Provider(Reply("", calls=[("search", '{"q": "unfin')], call_ids=["call_1"])) as provider:
        answer = await openai(provider).chat.completions.create(**ASK, tools=[SEARCH])

    assert answer.choices[0].message.tool_calls[0].function.arguments == '{"q": "unfin'
    assert answer.choices[0].message.tool_calls[0].id == "call_1"


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_thinking_comes_under_the_name_that_the_server_has_for_it(openai, field: str):
    async with Provider(Reply("Yes.", thinking="Let me see.", reasoning_field=field)) as provider:
        chunks = await chunks_of(openai(provider), **ASK)
        whole = await openai(provider).chat.completions.create(**ASK)

    assert "".join(getattr(chunk.choices[0].delta, field, "") for chunk in chunks) == "Let me see."
    assert getattr(whole.choices[0].message, field) == "Let me see."


async def test_a_limit_of_tokens_cuts_the_answer_short_and_says_so(openai):
    async with Provider("one two three four five") as provider:
        chunks = await chunks_of(openai(provider), **ASK, max_completion_tokens=3)

    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "one two three"
    assert chunks[-1].choices[0].finish_reason == "length"


async def test_an_answer_may_end_for_any_reason_in_the_words_of_either_wire(openai):
    async with Provider([Reply("a", finish="content_filter"), Reply("a", finish="max_tokens")]) as provider:
        client = openai(provider)
        first = await client.chat.completions.create(**ASK)
        second = await client.chat.completions.create(**ASK)

    assert (first.choices[0].finish_reason, second.choices[0].finish_reason) == ("content_filter", "length")


async def test_an_answer_of_nothing_is_still_an_answer(openai):
    async with Provider("") as provider:
        chunks = await chunks_of(openai(provider), **ASK)

    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None, "stop"]


async def test_models_are_listed(openai):
    async with Provider("", models=["gpt-5", "local/llama"]) as provider:
        client = openai(provider)
        listed = [model.id async for model in client.models.list()]
        one = await client.models.retrieve("gpt-5")
        with pytest.raises(sdk.NotFoundError):
            await client.models.retrieve("gpt-4")

    assert listed == ["gpt-5", "local/llama"]
    assert one.id == "gpt-5"


async def test_requests_one_after_the_other_share_a_connection(openai):
    async with Provider("Fine.") as provider:
        client = openai(provider)
        for _ in range(3):
            await chunks_of(client, **ASK)
            await client.chat.completions.create(**ASK)

        assert provider.connections == 1
        assert [request.connection for request in provider.log] == [1] * 6


async def test_the_log_has_what_was_asked(openai):
    async with Provider("Fine.") as provider:
        await chunks_of(openai(provider), **ASK, user="me")

    (request,) = provider.log
    assert (request.wire, request.model, request.stream, request.status) == ("openai", "gpt-5", True, 200)
    assert request.body["user"] == "me"
    assert request.messages == ASK["messages"]
    assert request.headers["authorization"] == f"Bearer {provider.key}"


# -- errors become the client's own


async def test_a_missing_key_and_a_wrong_one_are_authentication_errors(openai):
    async with Provider("") as provider:
        with pytest.raises(sdk.AuthenticationError) as wrong:
            await openai(provider, api_key="sk-stolen").chat.completions.create(**ASK)
        client = openai(provider, default_headers={"authorization": ""})
        with pytest.raises(sdk.AuthenticationError, match="You didn't provide an API key"):
            await client.chat.completions.create(**ASK)

    assert wrong.value.code == "invalid_api_key"
    assert "stolen" not in str(wrong.value)
    assert {request.how for request in provider.log} == {"refused"}


async def test_a_provider_without_a_key_serves_anybody(openai):
    async with Provider("Fine.", key=None) as provider:
        assert await openai(provider, api_key="whatever").chat.completions.create(**ASK)


async def test_an_unknown_model_is_not_found(openai):
    async with Provider("") as provider:
        with pytest.raises(sdk.NotFoundError) as found:
            await openai(provider).chat.completions.create(**{**ASK, "model": "no-such-model"})

    assert found.value.code == "model_not_found"
    assert "no-such-model" in str(found.value)


async def test_too_many_requests_say_when_to_come_back(openai):
    async with Provider(Reply(fault=Fault(status=429, retry_after=2))) as provider:
        with pytest.raises(sdk.RateLimitError) as found:
            await openai(provider).chat.completions.create(**ASK, stream=True)

    assert found.value.code == "rate_limit_exceeded"
    assert found.value.response.headers["retry-after"] == "2"
    assert found.value.response.headers["retry-after-ms"] == "2000"
    assert found.value.response.headers["x-ratelimit-remaining-requests"] == "0"
    assert (provider.log[0].how, provider.log[0].fault, provider.log[0].status) == ("fault", "status", 429)


async def test_the_client_s_own_retries_succeed_when_the_fault_has_happened_often_enough(openai):
    fault = Fault(status=429, retry_after=0.01, times=2)
    async with Provider([Reply("At last.", fault=fault)]) as provider:
        answer = await openai(provider, max_retries=2).chat.completions.create(**ASK)

    assert answer.choices[0].message.content == "At last."
    assert [request.how for request in provider.log] == ["fault", "fault", "completed"]


@pytest.mark.parametrize("status", [500, 502, 503, 529])
async def test_a_failing_server_is_an_internal_server_error(openai, status: int):
    async with Provider(Reply(fault=Fault(status=status))) as provider:
        with pytest.raises(sdk.InternalServerError) as found:
            await openai(provider).chat.completions.create(**ASK)

    assert found.value.status_code == status
    assert found.value.type == "server_error"


async def test_the_page_of_a_proxy_is_passed_on_as_it_is(openai):
    async with Provider(Reply(fault=Fault(status=502, body="<html>Bad gateway</html>"))) as provider:
        with pytest.raises(sdk.InternalServerError) as found:
            await openai(provider).chat.completions.create(**ASK)

    assert found.value.response.headers["content-type"].startswith("text/html")
    assert found.value.response.text == "<html>Bad gateway</html>"


async def test_a_body_of_one_s_own_is_an_error_of_one_s_own(openai):
    body = {
        "error": {"message": "You exceeded your quota.", "type": "insufficient_quota", "code": "insufficient_quota"}
    }
    async with Provider(Reply(fault=Fault(status=429, body=body, headers={"x-should-retry": "false"}))) as provider:
        with pytest.raises(sdk.RateLimitError) as found:
            await openai(provider, max_retries=5).chat.completions.create(**ASK)

    assert found.value.code == "insufficient_quota"
    assert len(provider.log) == 1


async def test_a_dangling_call_is_a_bad_request(openai):
    call = {"id": "call_1", "type": "function", "function": {"name": "search", "arguments": "{}"}}
    messages = [
        *ASK["messages"],
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "user", "content": "Well?"},
    ]
    async with Provider("") as provider:
        with pytest.raises(sdk.BadRequestError) as found:
            await openai(provider).chat.completions.create(model="gpt-5", messages=messages)

    assert "did not have response messages: call_1" in str(found.value)
    assert found.value.param == "messages.[2].role"
    assert found.value.type == "invalid_request_error"


async def test_a_connection_cut_in_mid_stream_is_a_connection_error(openai):
    async with Provider(Reply("one two three four", fault=Fault(cut_after_tokens=2))) as provider:
        seen = []
        with pytest.raises(sdk.APIConnectionError):
            async for chunk in await openai(provider).chat.completions.create(**ASK, stream=True):
                seen.append(chunk.choices[0].delta.content)

    assert "".join(text or "" for text in seen) == "one two"
    assert (provider.log[0].how, provider.log[0].tokens_sent) == ("fault", 2)


async def test_a_connection_closed_without_the_end_of_the_answer_is_noticed_by_the_client(openai):
    async with Provider(Reply("one two three", fault=Fault(cut_after_tokens=2, cut="close"))) as provider:
        seen = []
        with pytest.raises(sdk.APIConnectionError):
            async for chunk in await openai(provider).chat.completions.create(**ASK, stream=True):
                seen.append(chunk.choices[0].delta.content)

    assert "".join(text or "" for text in seen) == "one two"


async def test_silence_is_a_timeout_of_the_client_and_a_disconnect_for_the_provider(openai):
    async with Provider(Reply("one two three", fault=Fault(stall_after_tokens=2))) as provider:
        with pytest.raises(sdk.APITimeoutError):
            await chunks_of(openai(provider, timeout=1.0), **ASK)
        await provider.until(lambda log: log[0].how == "disconnected")

    assert provider.log[0].tokens_sent == 2


async def test_an_error_in_mid_stream_is_an_api_error(openai):
    async with Provider(Reply("one two three", fault=Fault(error_after_tokens=2, status=500))) as provider:
        seen = []
        with pytest.raises(sdk.APIError, match="The server had an error"):
            async for chunk in await openai(provider).chat.completions.create(**ASK, stream=True):
                seen.append(chunk.choices[0].delta.content)

    assert "".join(text or "" for text in seen) == "one two"


async def test_a_malformed_chunk_is_no_json(openai):
    async with Provider(Reply("one two three", fault=Fault(malformed_after_tokens=2))) as provider:
        with pytest.raises(ValueError):
            await chunks_of(openai(provider), **ASK)
        await provider.until(lambda log: log[0].how)


async def test_an_oversized_chunk_is_one_large_piece_of_text(openai):
    fault = Fault(oversized_after_tokens=2, oversized_bytes=1_000_000)
    async with Provider(Reply("one two three", fault=fault)) as provider:
        chunks = await chunks_of(openai(provider), **ASK)

    longest = max(len(chunk.choices[0].delta.content or "") for chunk in chunks)
    assert longest == 1_000_000
    assert provider.log[0].how == "completed"


async def test_pieces_of_any_size_make_the_same_answer(openai):
    text = "Grüße aus 東京 🐄!"
    async with Provider([Reply(text, calls=[("search", ARGUMENTS)], shred=size) for size in (1, 3, 7)]) as provider:
        for _ in range(3):
            async with openai(provider).chat.completions.stream(**ASK, tools=[SEARCH]) as stream:
                final = await stream.get_final_completion()
            assert final.choices[0].message.content == text
            assert "Kühe & Schafe" in final.choices[0].message.tool_calls[0].function.arguments


def test_every_parameter_that_the_client_knows_is_known_here():
    from openai.types.chat.completion_create_params import CompletionCreateParamsBase

    assert set(CompletionCreateParamsBase.__annotations__) <= PARAMETERS
