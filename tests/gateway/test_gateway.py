"""Requests pass through the gateway as they are, and become calls of its run. The witness is the provider."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import Any

import aiohttp
import anthropic as anthropic_sdk
import openai as openai_sdk
import pytest

from checkrein.errors import MisuseError
from checkrein.gateway import upstream
from checkrein.testing.provider import Fault, Reply, Usage
from tests.gateway.conftest import scene

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession"),
]

ASK: dict[str, Any] = {"model": "gpt-5", "messages": [{"role": "user", "content": "Hello?"}]}
CLAUDE: dict[str, Any] = {"model": "claude-haiku-4-5", "max_tokens": 1000, "messages": ASK["messages"]}
REPLY = Reply("Hello there.", calls=[("look", {"at": "it"})], usage=Usage(100, 20))


async def test_every_wire_is_answered_recorded_and_priced():
    async with scene(REPLY) as here:
        chat = await here.openai().chat.completions.create(**ASK)
        response = await here.openai().responses.create(model="gpt-5", input="Hello?")
        message = await here.anthropic().messages.create(**CLAUDE)
        async with here.gemini() as gemini:
            content = await gemini.models.generate_content(model="gemini-2.5-flash", contents="Hello?")
        view = await here.recorded(4)

    assert chat.choices[0].message.content == response.output_text == message.content[0].text == "Hello there."
    assert content.candidates[0].content.parts[0].text == "Hello there."
    assert [call.name for call in view.calls] == [
        "openai:gpt-5",
        "openai:gpt-5",
        "anthropic:claude-haiku-4-5",
        "gemini:gemini-2.5-flash",
    ]
    assert [call.now for call in view.calls] == ["completed"] * 4
    assert view.usage.input_tokens == 400
    assert view.usage.cost_usd
    assert not view.usage.estimated


async def test_every_wire_streams_what_the_provider_sends_byte_for_byte():
    async with scene(REPLY) as here:
        async with aiohttp.ClientSession() as session:
            key = {"authorization": f"Bearer {here.provider.key}"}
            body = json.dumps(ASK | {"stream": True}, indent=3).encode()
            url = f"{here.gateway.urls['openai']}/chat/completions"
            async with session.post(url, data=body, headers=key | {"content-type": "application/json"}) as answer:
                through = await answer.read()

        assert bytes(here.provider.log[0].raw) == body
        assert through.endswith(b"data: [DONE]\n\n")
        assert b'"obfuscation"' in through
        assert "x-request-id" in answer.headers


async def test_addresses_without_v1_with_queries_and_everything_else_pass():
    async with scene("Fine.") as here:
        models = await here.openai().models.list()
        counted = await here.anthropic().messages.count_tokens(model="claude-haiku-4-5", messages=ASK["messages"])
        async with aiohttp.ClientSession() as session:
            headers = {"x-api-key": here.provider.key, "anthropic-version": "2023-06-01"}
            bare = f"{here.gateway.urls['anthropic']}/v1/messages?beta=true"
            async with session.post(bare, json=CLAUDE, headers=headers) as answer:
                assert (answer.status, (await answer.json())["content"][0]["text"]) == (200, "Fine.")
            async with session.head(here.gateway.urls["anthropic"]) as head:
                assert head.status == 404  # what the provider says
        view = await here.recorded(1)

    assert models.data
    assert counted.input_tokens > 0
    assert len(view.calls) == 1


async def test_a_websocket_is_refused_with_426_and_another_secret_with_404(caplog):
    async with scene("Fine.") as here, aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await session.ws_connect(f"{here.gateway.urls['openai']}/responses")
        assert caught.value.status == 426
        for _ in range(3):
            async with session.post(f"http://127.0.0.1:{here.gateway.port}/other/openai/v1/chat/completions") as answer:
                assert answer.status == 404

        assert here.provider.log == []
    assert sum("another secret" in record.getMessage() for record in caplog.records) == 1


async def test_the_secret_may_come_in_a_header_which_goes_no_further():
    async with scene("Fine.") as here, aiohttp.ClientSession() as session:
        secret = upstream.secret_in(here.gateway.urls["openai"])
        url = f"http://127.0.0.1:{here.gateway.port}/-/openai/v1/chat/completions"
        key = {"authorization": f"Bearer {here.provider.key}"}
        for wrong in ({}, {upstream.SECRET_HEADER: "other"}, {upstream.SECRET_HEADER: ""}):
            async with session.post(url, json=ASK, headers=key | wrong) as answer:
                assert answer.status == 404
        async with session.post(url, json=ASK, headers=key | {upstream.SECRET_HEADER: secret}) as answer:
            assert answer.status == 200

        assert len(here.provider.log) == 1
        assert upstream.SECRET_HEADER not in {name.lower() for name in here.provider.log[0].headers}


@pytest.mark.parametrize("status", [401, 429, 503])
async def test_what_the_provider_refuses_the_client_hears_from_it(status):
    async with scene(Reply(fault=Fault(status=status, retry_after=7.0))) as here:
        with pytest.raises(openai_sdk.APIStatusError) as of_openai:
            await here.openai().chat.completions.create(**ASK, stream=True)
        with pytest.raises(anthropic_sdk.APIStatusError) as of_anthropic:
            await here.anthropic().messages.create(**CLAUDE)
        view = await here.recorded(2)

    assert of_openai.value.status_code == of_anthropic.value.status_code == status
    assert of_openai.value.response.headers["retry-after"] == "7"
    assert str(view.status) == "running"


async def test_a_provider_that_breaks_off_is_not_taken_for_whole():
    async with scene(Reply("one two three four", fault=Fault(cut_after_tokens=2))) as here:
        heard = []
        with pytest.raises(openai_sdk.APIConnectionError):
            async for chunk in await here.openai().chat.completions.create(**ASK, stream=True):
                heard.append(chunk.choices[0].delta.content)

    assert "".join(heard) == "one two"


async def test_a_client_that_goes_away_is_seen_by_the_provider_at_once():
    async with scene(Reply("word " * 2000, tokens_per_second=50)) as here:
        stream = await here.openai().chat.completions.create(**ASK, stream=True)
        await here.tokens(5)
        await stream.close()

        await here.provider.until(lambda log: log[0].how == "disconnected")


async def test_a_body_that_cannot_be_read_is_passed_on_and_counted_and_said_once(caplog):
    async with scene("Fine.") as here, aiohttp.ClientSession(auto_decompress=False) as session:
        url = f"{here.gateway.urls['openai']}/chat/completions"
        key = {"authorization": f"Bearer {here.provider.key}"}
        async with session.post(url, data=b"\x00 no JSON", headers=key) as answer:
            assert answer.status == 400
        compressed = key | {"content-encoding": "zstd", "content-type": "application/json"}
        async with session.post(url, data=b"(\xb5/\xfd", headers=compressed, skip_auto_headers=()) as answer:
            assert answer.status == 400
        gzipped = key | {"content-encoding": "gzip", "content-type": "application/json"}
        async with session.post(url, data=gzip.compress(json.dumps(ASK).encode()), headers=gzipped) as answer:
            await answer.read()
        view = await here.recorded(3)

    assert here.gateway.requests == 3
    assert sum("cannot be read" in record.getMessage() for record in caplog.records) == 1
    assert [call.name for call in view.calls] == ["openai:unreadable", "openai:unreadable", "openai:gpt-5"]


async def test_after_a_cancel_everything_is_refused_and_nothing_reaches_the_provider():
    """D12: a thousand requests after the receipt, none of them upstream."""
    async with scene(Reply("word " * 2000, tokens_per_second=50)) as here:
        url, key = f"{here.gateway.urls['openai']}/chat/completions", {"authorization": f"Bearer {here.provider.key}"}
        stream = await here.openai().chat.completions.create(**ASK, stream=True)
        await here.tokens(5)
        receipt = await here.run.cancel()
        seen = len(here.provider.log)

        outcomes: list[object] = []
        async with aiohttp.ClientSession() as session:
            for _ in range(1000):
                try:
                    async with session.post(url, json=ASK, headers=key) as answer:
                        outcomes.append(answer.status)
                except aiohttp.ClientError:
                    outcomes.append("refused")
        with pytest.raises(Exception):  # noqa: B017 - however the client puts it
            async for _ in stream:
                pass

        assert [call.now for call in receipt.calls] == ["aborted"]
        assert set(outcomes) <= {400, "refused"}
        assert len(here.provider.log) == seen
        assert here.provider.log[0].how == "disconnected"


async def test_keys_and_the_secret_are_in_no_record_and_no_log(caplog):
    caplog.set_level("DEBUG")
    async with scene([Reply("Fine."), Reply(fault=Fault(status=401))]) as here:
        await here.openai().chat.completions.create(**ASK)
        with pytest.raises(openai_sdk.AuthenticationError):
            await here.openai(api_key="sk-another-key-that-is-secret").chat.completions.create(**ASK)
        events = [event async for event in _recorded(here)]
        secret = here.gateway.urls["openai"].split("/")[3]

    ours = [record.getMessage() for record in caplog.records if record.name.startswith(("checkrein", "aiohttp"))]
    told = json.dumps([*map(str, events), *ours])
    assert "test-key" not in told
    assert "sk-another-key" not in told
    assert secret not in told


async def _recorded(here: Any) -> Any:
    view = await here.run.view()
    yield view
    try:
        async with asyncio.timeout(2):
            async for event in here.run.events():
                yield event
    except TimeoutError:
        return


def test_an_upstream_is_what_is_given_or_what_the_variable_held_or_the_providers_own():
    held = {"OPENAI_API_BASE": "http://127.0.0.1:1/v1/"}

    found = upstream.upstreams_of({"anthropic": "http://127.0.0.1:2"}, held)

    assert found == {
        "openai": "http://127.0.0.1:1/v1",
        "anthropic": "http://127.0.0.1:2",
        "gemini": "https://generativelanguage.googleapis.com",
    }
    assert upstream.is_gateway("http://127.0.0.1:1/checkrein-abc/openai/v1")


@pytest.mark.parametrize(
    ("given", "says"), [({"acme": "http://x"}, "no provider 'acme'"), ({"openai": "x"}, "no address")]
)
def test_an_upstream_that_means_nothing_is_refused(given, says):
    with pytest.raises(MisuseError, match=says):
        upstream.upstreams_of(given, {})
