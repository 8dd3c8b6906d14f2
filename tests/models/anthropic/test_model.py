"""Whole requests over the Anthropic wire. The witness is the provider: its own log, by its own clock."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from checkrein import Agent, Runtime, errors
from checkrein.core.conditions import Usage as Used
from checkrein.models import (
    Assistant,
    Finish,
    Finished,
    Note,
    Request,
    Settings,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolResult,
    UsageDelta,
    User,
    as_json,
    collect,
    resolve,
)
from checkrein.models.anthropic.model import AnthropicModel
from checkrein.models.anthropic.thoughts import Thought, packed
from checkrein.models.http.client import Timeouts, client
from checkrein.testing.provider import Fault, Provider, Reply, Usage
from checkrein.testing.provider.anthropic import signature_of
from tests.models.anthropic_scene import ASK, MODEL, Reading, model_at
from tests.models.sockets import HEAD, chunk, listening, request
from tests.models.statuses import STATUSES
from tests.support.patience import PATIENCE_SECONDS
from tests.support.runs import until_state

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
async def closed() -> AsyncIterator[None]:
    """No connection outlives its test."""
    yield
    await client().close()


# -- answers


async def test_an_answer_comes_as_deltas_in_the_order_of_the_wire():
    reply = Reply("I will look.", thinking="Let me see.", calls=[("search", {"q": "Kühe"}), ("now", {})])
    async with Provider(reply) as provider:
        deltas = [delta async for delta in model_at(provider).stream(ASK)]

    kinds = [type(delta) for delta in deltas]
    assert list(dict.fromkeys(kinds)) == [UsageDelta, ThinkingDelta, TextDelta, ToolCallDelta, Finished]
    assert kinds[-2:] == [UsageDelta, Finished]
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == "I will look."
    assert provider.log[0].how == "completed"


async def test_a_whole_reply_has_thinking_text_calls_and_usage():
    reply = Reply(
        "I will look.",
        thinking="Let me see.",
        calls=[("search", {"q": "Kühe & Schafe", "deep": {"é": ["統計", None]}}), ("now", {})],
        call_ids=["toolu_1", "toolu_2"],
        usage=Usage(100, 20, cache_read=64, cache_write=6),
    )
    async with Provider(reply) as provider:
        got = await collect(model_at(provider).stream(ASK), ASK)

    message = got.message
    assert (message.thinking, message.text) == ("Let me see.", "I will look.")
    assert [(call.id, call.name) for call in message.calls] == [("toolu_1", "search"), ("toolu_2", "now")]
    assert bytes(message.calls[0].arguments).decode() == '{"q":"Kühe & Schafe","deep":{"é":["統計",null]}}'
    assert bytes(message.calls[1].arguments) == b"{}"
    assert got.usage == Used(
        input_tokens=100, output_tokens=20, cost_usd=None, cached_tokens=64, cache_written_tokens=6
    )
    assert got.finish is Finish.TOOL_CALLS


@pytest.mark.parametrize("shred", [1, 7, 1000])
async def test_it_makes_no_difference_how_the_network_cuts_an_answer(shred):
    reply = Reply("Kühe, Schafe und 統計.", thinking="Hm…", calls=[("search", {"q": "é"})], shred=shred)
    async with Provider(reply) as provider:
        got = await collect(model_at(provider).stream(ASK), ASK)

    assert (got.message.text, got.message.thinking) == ("Kühe, Schafe und 統計.", "Hm…")
    assert bytes(got.message.calls[0].arguments).decode() == '{"q":"é"}'


async def test_answers_share_a_connection_one_after_the_other():
    async with Provider("Yes.") as provider:
        for _ in range(3):
            await collect(model_at(provider).stream(ASK), ASK)

    assert (len(provider.log), provider.connections) == (3, 1)


async def test_a_limit_cuts_an_answer_short():
    async with Provider("One two three four.") as provider:
        got = await collect(model_at(provider, max_tokens=2).stream(ASK), ASK)

    assert (got.message.text, got.finish) == ("One two", Finish.LENGTH)


async def test_a_refusal_is_no_answer():
    async with Provider(Reply("", finish="refusal")) as provider:
        got = await collect(model_at(provider).stream(ASK), ASK)

    assert got.finish is Finish.FILTERED


# -- what goes back and forth


def after(reply, *more):
    """The request that follows `reply`."""
    results = [ToolResult(call.id, call.name, "found") for call in reply.message.calls]
    return Request(ASK.instructions, (*ASK.messages, reply.message, *results, *more), tools=ASK.tools)


@pytest.mark.parametrize("name", ["claude-haiku-4-5", "claude-opus-4-6", "claude-opus-5-5"])
async def test_thinking_goes_back_to_the_model_that_thought_it(name):
    """It verifies the signatures, and wants its thoughts back while it uses tools."""
    settings = Settings(reasoning="high")
    replies = [Reply("Looking.", thinking="Let me see.", calls=[("search", {"q": "x"})]), Reply("Done.")]
    async with Provider(replies) as provider:
        model = model_at(provider, name)
        ask = Request(ASK.instructions, ASK.messages, tools=ASK.tools, settings=settings)
        first = await collect(model.stream(ask), ask)
        second = after(first)
        got = await collect(model.stream(second), second)

    assert got.message.text == "Done."
    assert [one.status for one in provider.log] == [200, 200]
    kinds = [block["type"] for block in provider.log[1].messages[1]["content"]]
    assert kinds == ["thinking", "text", "tool_use"]


async def test_thinking_that_is_kept_from_us_goes_back_nevertheless():
    """Newer models show none of it unless they are asked to."""
    async with Provider([Reply("Looking.", thinking="Secret.", calls=[("search", {})]), Reply("Done.")]) as provider:
        model = model_at(provider, "claude-opus-5-5")
        first = await collect(model.stream(ASK), ASK)
        await collect(model.stream(after(first)), ASK)

    assert first.message.thinking == ""
    (block,) = [block for block in provider.log[1].messages[1]["content"] if block["type"] == "thinking"]
    assert (block["thinking"], bool(block["signature"])) == ("", True)


async def test_thinking_that_the_provider_does_not_recognise_is_asked_without():
    """Another model or account thought it, or something before it was changed: no reason to end a run."""
    foreign = Assistant("So.", thinking="Hm.", signature=packed([Thought(0, 0, 3, signature_of("Something else."))]))
    async with Provider("Done.") as provider:
        request = Request("", (User("Go."), foreign, User("And?")))
        got = await collect(model_at(provider).stream(request), request)

    assert got.message.text == "Done."
    assert [(one.status, one.how) for one in provider.log] == [(400, "refused"), (200, "completed")]
    assert provider.log[1].messages[1]["content"] == [{"type": "text", "text": "So."}]


async def test_another_refusal_is_not_tried_again_without_thinking():
    thought = Assistant("So.", thinking="Hm.", signature=packed([Thought(0, 0, 3, signature_of("Hm."))]))
    async with Provider("Done.") as provider:
        request = Request("", (User("Go."), thought, User("?")), settings=Settings(extra=as_json({"nonsense": 1})))
        with pytest.raises(errors.ModelRefusedRequest, match="nonsense: Extra inputs are not permitted"):
            await collect(model_at(provider).stream(request), request)

    assert len(provider.log) == 1


@pytest.mark.parametrize("name", ["claude-haiku-4-5", "claude-opus-5-5"])
async def test_half_an_answer_is_taken_up_where_it_broke_off(name):
    """D23: given back as the assistant's, with a word after it; newer models take no answer that is begun for them."""
    begun = (Assistant("one two ", interrupted=True), Note("Go on exactly there."))
    async with Provider("three four.") as provider:
        request = Request("", (User("Count."), *begun))
        got = await collect(model_at(provider, name).stream(request), request)

    assert got.message.text == "three four."
    assert [turn["role"] for turn in provider.log[0].messages] == ["user", "assistant", "user"]


async def test_an_answer_has_the_form_that_was_asked_for():
    schema = as_json({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
    async with Provider('{"n": 1}') as provider:
        request = Request("", (User("How many?"),), output_schema=schema)
        await collect(model_at(provider).stream(request), request)

    assert provider.log[0].body["output_config"]["format"]["schema"]["required"] == ["n"]


# -- failures


async def failure(reply, *, model=MODEL, request=ASK, **options):
    async with Provider(reply) as provider:
        with pytest.raises(Exception) as caught:
            await collect(model_at(provider, model, **options).stream(request), request)
    return caught.value


async def test_a_wrong_key_is_said_to_be_one():
    error = await failure("Yes.", api_key="sk-ant-wrong")

    assert isinstance(error, errors.ModelUnauthorised)
    assert str(error).startswith("anthropic (127.0.0.1) does not take the API key (401)")
    assert not error.may_retry


@pytest.mark.parametrize(
    ("status", "kind", "may_retry"),
    [(status, *STATUSES[status]) for status in (400, 401, 402, 403, 404, 413, 429, 500, 503, 504, 529)],
)
async def test_an_error_has_its_type_and_says_whether_to_try_again(status, kind, may_retry):
    error = await failure(Reply(fault=Fault(status=status)))

    assert type(error) is kind
    assert (error.may_retry, error.status) == (may_retry, status)
    assert str(status) in str(error)


async def test_a_model_that_there_is_not_is_named():
    error = await failure("Yes.", model="claude3")

    assert isinstance(error, errors.ModelNotFound)
    assert "claude3" in str(error)


async def test_a_request_at_fault_is_refused_in_the_providers_words():
    request = Request("", (User("Go."), Note("Now."), Assistant("?"), ToolResult("a", "search", "x")))

    error = await failure("Yes.", request=request)

    assert isinstance(error, errors.ModelRefusedRequest)
    assert error.position == 3, "the place in the request, not that on the wire"
    assert "unexpected `tool_use_id`" in str(error)


async def test_a_history_that_is_too_long_is_said_to_be_too_long():
    said = {"error": {"type": "invalid_request_error", "message": "prompt is too long: 210000 tokens > 200000 maximum"}}

    error = await failure(Reply(fault=Fault(status=400, body=said)))

    assert isinstance(error, errors.ModelContextExceeded)


async def test_an_account_without_credit_can_be_mended():
    """It comes as any other refusal, but a person can do something about it."""
    said = {"error": {"type": "invalid_request_error", "message": "Your credit balance is too low to access the API."}}

    error = await failure(Reply(fault=Fault(status=400, body=said)))

    assert (type(error), error.may_retry, error.status) == (errors.ModelRateLimited, False, 400)
    assert "Add credit" in error.remedy


async def test_a_rate_limit_says_how_long_to_wait():
    error = await failure(Reply(fault=Fault(status=429, retry_after=7)))

    assert error.retry_after == 7


async def test_an_overload_in_mid_stream_may_pass():
    error = await failure(Reply("one two three.", fault=Fault(error_after_tokens=2, status=529)))

    assert isinstance(error, errors.ModelUnavailable)
    assert (error.reason, error.may_retry) == ("overloaded", True)
    assert error.partial.message.text == "one two"


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Fault(cut_after_tokens=2), "cut"),
        (Fault(cut_after_tokens=2, cut="close"), "cut"),
        (Fault(malformed_after_tokens=2), "malformed"),
        (Fault(oversized_after_tokens=2), "oversized"),
        (Fault(stall_after_tokens=2), "stalled"),
    ],
)
async def test_an_answer_that_breaks_off_keeps_what_had_come(fault, reason):
    error = await failure(Reply("one two three.", fault=fault), timeouts=Timeouts(between_bytes=0.5))

    assert isinstance(error, errors.ModelUnavailable)
    assert (error.reason, error.may_retry) == (reason, True)
    assert error.partial.message.text == "one two"
    assert error.partial.message.interrupted


async def test_an_answer_that_never_begins_is_given_up():
    error = await failure(Reply(fault=Fault(never_answers=True)), timeouts=Timeouts(first_byte=0.5))

    assert (type(error), error.reason) == (errors.ModelUnavailable, "timeout")


async def test_keep_alives_are_not_silence():
    reply = Reply("one two.", fault=Fault(stall_after_tokens=1, pings_every=0.2, times=1))
    async with Provider(reply) as provider:
        reading = Reading(model_at(provider, timeouts=Timeouts(between_bytes=1.0)))
        await reading.until(TextDelta)
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(reading.task), 2.5)

        assert not reading.task.done()
        await reading.stop()


async def test_a_server_that_says_nothing_but_comments_has_stalled():
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(HEAD)
        while True:
            writer.write(chunk(b": still here\n\n"))
            await writer.drain()
            await asyncio.sleep(0.05)

    async with listening(serve) as address:
        model = AnthropicModel(MODEL, api_key="k", base_url=f"http://{address}", timeouts=Timeouts(first_byte=0.5))
        with pytest.raises(errors.ModelUnavailable) as caught:
            await asyncio.wait_for(collect(model.stream(ASK), ASK), PATIENCE_SECONDS)

    assert caught.value.reason == "stalled"


async def test_a_server_that_is_not_there_is_said_not_to_be():
    model = AnthropicModel(MODEL, api_key="k", base_url="http://127.0.0.1:9")
    with pytest.raises(errors.ModelUnavailable) as caught:
        await collect(model.stream(ASK), ASK)

    assert caught.value.reason == "refused"


async def test_a_page_instead_of_a_stream_is_told_with_the_remedy():
    error = await failure(Reply(fault=Fault(status=200, body="<html>Welcome</html>")))

    assert (type(error), error.reason, error.may_retry) == (errors.ModelUnavailable, "malformed", False)
    assert "base URL" in error.remedy


# -- keys and addresses


async def test_key_and_address_come_from_the_environment(monkeypatch):
    async with Provider("Yes.") as provider:
        monkeypatch.setenv("ANTHROPIC_API_KEY", provider.key)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", provider.anthropic_url)
        model = resolve(f"anthropic:{MODEL}")
        got = await collect(model.stream(ASK), ASK)

    assert isinstance(model, AnthropicModel)
    assert (got.message.text, model.name) == ("Yes.", f"anthropic:{MODEL}")


async def test_a_token_stands_in_for_a_key(monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    async with Provider("Yes.") as provider:
        monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", provider.key)
        await collect(AnthropicModel(MODEL, base_url=provider.anthropic_url).stream(ASK), ASK)

    headers = provider.log[0].headers
    assert (headers["authorization"], "x-api-key" in headers) == (f"Bearer {provider.key}", False)


async def test_without_a_key_nothing_is_asked(monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.delenv("ANTHROPIC_AUTH_TOKEN", raising=False)
    async with Provider("Yes.") as provider:
        with pytest.raises(errors.ModelUnauthorised) as caught:
            await collect(AnthropicModel(MODEL, base_url=provider.anthropic_url).stream(ASK), ASK)

        assert "ANTHROPIC_API_KEY" in caught.value.remedy
        assert (provider.log, provider.connections) == ([], 0)


async def test_a_server_that_takes_no_key_is_given_none():
    async with Provider("Yes.", key=None) as provider:
        await collect(model_at(provider, api_key="").stream(ASK), ASK)

    assert "x-api-key" not in provider.log[0].headers


@pytest.mark.parametrize("ending", ["", "/", "/v1", "/v1/"])
async def test_the_address_may_end_with_the_version_or_not(ending):
    async with Provider("Yes.") as provider:
        await collect(model_at(provider, base_url=provider.anthropic_url + ending).stream(ASK), ASK)

    assert provider.log[0].path == "/v1/messages"


@pytest.mark.parametrize(
    "fault",
    [
        Fault(status=401, body={"error": {"type": "authentication_error", "message": "bad key sk-ant-secret"}}),
        Fault(status=500, body="<p>sk-ant-secret</p>"),
        Fault(error_after_tokens=1),
        Fault(cut_after_tokens=1),
    ],
)
async def test_a_key_is_in_no_error_and_no_repr(fault):
    key = "sk-ant-secret"
    async with Provider(Reply("one two", fault=fault), key=key) as provider:
        model = model_at(provider)
        with pytest.raises(Exception) as caught:
            await collect(model.stream(ASK), ASK)

    error = caught.value
    seen = [repr(model), str(error), repr(error), repr(error.__dict__), repr(error.__cause__), repr(error.__context__)]
    assert not [one for one in seen if key in one]


async def test_a_key_is_in_no_journal(tmp_path):
    key = "sk-ant-secret"
    said = {"error": {"type": "authentication_error", "message": f"{key} is not a key that may do this"}}
    reply = Reply(fault=Fault(status=403, body=said))
    async with Provider(reply, key=key) as provider, Runtime(f"sqlite:///{tmp_path}/runs.db") as runtime:
        run = await runtime.start(Agent("reader", model=model_at(provider)), "Hello?")
        state = await until_state(run, lambda state: state.needs)

    assert "is not a key that may do this" in repr(state.needs), "what the provider says is shown"
    kept = b"".join(file.read_bytes() for file in tmp_path.iterdir() if file.is_file())
    assert b"is not a key that may do this" in kept
    assert key.encode() not in kept


@pytest.mark.parametrize("options", [{"base_url": "localhost"}, {"max_tokens": 0}, {"headers": {"x": "a\nb"}}])
async def test_nonsense_is_refused_when_the_model_is_made(options):
    with pytest.raises(errors.MisuseError):
        AnthropicModel(MODEL, **options)


async def test_other_providers_of_this_wire_have_names_of_their_own(monkeypatch):
    async with Provider("Yes.", models=["kimi-k2"]) as provider:
        monkeypatch.setenv("MOONSHOT_API_KEY", provider.key)
        model = AnthropicModel("kimi-k2", provider="moonshot", base_url=provider.anthropic_url)
        await collect(model.stream(ASK), ASK)

    assert model.name == "moonshot:kimi-k2"


async def test_the_example_in_the_docs_works(tmp_path):
    """As it stands on the page, in a process of its own, against the provider of this machine."""
    page = Path(__file__).parents[3] / "docs" / "howto" / "providers" / "anthropic.md"
    (program, *_) = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    (tmp_path / "program.py").write_text(program)
    both = Reply(calls=[("revenue", {"customer": "Ann"}), ("revenue", {"customer": "Bob"})])

    async with Provider([both, Reply("Ann does.")]) as provider:
        environment = {"ANTHROPIC_API_KEY": provider.key, "ANTHROPIC_BASE_URL": provider.anthropic_url}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "program.py", cwd=tmp_path, env={**os.environ, **environment}, stdout=subprocess.PIPE
        )
        printed, _ = await asyncio.wait_for(process.communicate(), PATIENCE_SECONDS)

    assert (process.returncode, printed.decode().strip()) == (0, "Ann does.")
    assert [one.status for one in provider.log] == [200, 200]
    assert [block["content"] for block in provider.log[1].messages[2]["content"]] == ["120", "80"]
