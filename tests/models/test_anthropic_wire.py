"""Whole requests over the Anthropic wire. The witness is the provider: its own log, by its own clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from checkrein import Agent, Runtime
from checkrein.core.conditions import Usage as Used
from checkrein.core.words import Outcome
from checkrein.errors import (
    MisuseError,
    ModelNotFound,
    ModelRateLimited,
    ModelRefusedRequest,
    ModelUnauthorised,
    ModelUnavailable,
)
from checkrein.models import (
    Assistant,
    Collector,
    Finish,
    Finished,
    Model,
    Note,
    Request,
    Settings,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolResult,
    ToolSpec,
    UsageDelta,
    User,
    as_json,
    close,
    collect,
    resolve,
)
from checkrein.models.anthropic_thinking import Thought, packed
from checkrein.models.anthropic_wire import AnthropicModel
from checkrein.models.http import Timeouts, client
from checkrein.testing.provider import Fault, Provider, Reply, Usage
from checkrein.testing.provider.anthropic import signature_of
from tests.control.scene import outcomes, result, settled
from tests.runtime.witness import until

pytestmark = pytest.mark.anyio

PATIENCE = 5.0
"""For what takes a millisecond on an idle machine."""
MODEL = "claude-opus-4-6"
SEARCH = ToolSpec("search", "Finds.", as_json({"type": "object", "properties": {"q": {"type": "string"}}}))
ASK = Request("Be brief.", (User("Hello?"),), tools=(SEARCH,))
LONG = " ".join(f"word{number}" for number in range(5000))


def model_at(provider, name=MODEL, **options):
    return AnthropicModel(name, **{"api_key": provider.key, "base_url": provider.anthropic_url, **options})


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
    assert [delta.text for delta in deltas if isinstance(delta, TextDelta)] == ["I", " will", " look."]
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
    assert got.usage == Used(input_tokens=100, output_tokens=20, cost_usd=None)
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
        with pytest.raises(ModelRefusedRequest, match="nonsense: Extra inputs are not permitted"):
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


# -- stopping


class Reading:
    """A task that reads a stream, and can be stopped once a delta of some kind has come."""

    def __init__(self, model: Model, request: Request = ASK) -> None:
        self.collector = Collector(request)
        self.deltas: list[object] = []
        self.stopped_at = 0.0
        self._came = asyncio.Event()
        self._late: list[object] = []
        self.task = asyncio.create_task(self._read(model.stream(request)))

    async def _read(self, stream):
        try:
            async for delta in stream:
                (self._late if self.stopped_at else self.deltas).append(delta)
                self.collector.add(delta)
                self._came.set()
        finally:
            await close(stream)

    async def until(self, kind, count=1):
        async with asyncio.timeout(PATIENCE):
            while sum(isinstance(delta, kind) for delta in self.deltas) < count:
                self._came.clear()
                await self._came.wait()

    async def stop(self):
        """The task is cancelled, and nothing has come after that."""
        self.stopped_at = time.monotonic()
        self.task.cancel()
        await asyncio.wait([self.task])
        assert self.task.cancelled()
        assert self._late == [], "something was forwarded after the stop"


async def saw_the_end(provider, reading):
    """The provider has seen the only request there was break off, at once."""
    await provider.until(lambda log: log[0].how == "disconnected", PATIENCE)
    (request,) = provider.log
    assert request.disconnected_at - reading.stopped_at < PATIENCE / 2
    return request


async def test_a_stop_before_the_connection_leaves_no_trace():
    """D2 D3: nothing is asked."""
    async with Provider("Yes.") as provider:
        reading = Reading(model_at(provider))
        await reading.stop()
        never = model_at(provider).stream(ASK)
        await close(never)

        assert (provider.log, provider.connections) == ([], 0)


async def test_a_stop_while_the_connection_is_made_leaves_nothing_open():
    """D2 D4: at every moment up to the request itself."""
    async with Provider(Reply("Yes.", fault=Fault(never_answers=True))) as provider:
        for turns in range(12):
            reading = Reading(model_at(provider))
            for _ in range(turns):
                await asyncio.sleep(0)
            await reading.stop()

        await until(lambda: not provider._open)
        assert {one.how for one in provider.log} <= {"disconnected"}


async def test_a_stop_reaches_a_provider_that_has_not_begun_to_answer():
    """D2 D12"""
    async with Provider(Reply(fault=Fault(never_answers=True))) as provider:
        reading = Reading(model_at(provider))
        await provider.until(lambda log: log, PATIENCE)

        await reading.stop()

        assert (await saw_the_end(provider, reading)).tokens_sent == 0


@pytest.mark.parametrize(
    ("kind", "reply"),
    [
        (ThinkingDelta, Reply("So.", thinking=LONG, tokens_per_second=50)),
        (TextDelta, Reply(LONG, tokens_per_second=50)),
        (TextDelta, Reply(LONG)),
    ],
    ids=["thinking", "text", "a torrent"],
)
async def test_a_stop_reaches_a_provider_in_the_middle_of_its_answer(kind, reply):
    """D2 D12: nothing is forwarded after it, and what had come is kept, with an estimate of what it used."""
    async with Provider(reply) as provider:
        reading = Reading(model_at(provider))
        await reading.until(kind, 3)

        await reading.stop()

        request = await saw_the_end(provider, reading)
        assert request.tokens_sent < 5000
    partial = reading.collector.partial()
    assert LONG.startswith(partial.message.text or partial.message.thinking)
    assert (partial.message.interrupted, partial.message.signature) == (True, "")
    assert partial.usage.estimated
    assert min(partial.usage.input_tokens, partial.usage.output_tokens) > 0


async def test_a_stop_in_the_middle_of_a_tool_call_discards_that_call():
    """D2 D3: half a call is never performed. One that had come whole is kept, to be told that it was not begun."""
    reply = Reply("Looking.", calls=[("search", {"q": "x"}), ("search", {"q": LONG})], tokens_per_second=100)
    async with Provider(reply) as provider:
        reading = Reading(model_at(provider))
        await reading.until(ToolCallDelta, 6)

        await reading.stop()

        await saw_the_end(provider, reading)
    message = reading.collector.partial().message
    assert (message.text, [bytes(call.arguments) for call in message.calls]) == ("Looking.", [b'{"q":"x"}'])


async def test_a_stop_in_the_last_event_ends_what_is_left():
    """D7: all was said, only the end of the response had not come."""
    async with Provider(Reply("Yes.", fault=Fault(stall_before_end=True))) as provider:
        reading = Reading(model_at(provider))
        await reading.until(Finished)

        await reading.stop()

        await saw_the_end(provider, reading)
    assert reading.collector.reply().message.text == "Yes."


async def test_an_answer_that_is_complete_needs_no_end():
    async with Provider(Reply("Yes.", fault=Fault(stall_before_end=True))) as provider:
        got = await asyncio.wait_for(collect(model_at(provider).stream(ASK), ASK), 4 * PATIENCE)

    assert got.message.text == "Yes."


async def test_leaving_a_stream_and_closing_it_ends_it():
    async with Provider(Reply(LONG, tokens_per_second=50)) as provider:
        stream = model_at(provider).stream(ASK)
        async for delta in stream:
            if isinstance(delta, TextDelta):
                break
        await close(stream)

        await provider.until(lambda log: log[0].how == "disconnected", PATIENCE)


async def test_stopping_one_of_many_leaves_the_others_alone():
    async with Provider(Reply("one two three four five six.", tokens_per_second=30)) as provider:
        model = model_at(provider)
        readings = [Reading(model) for _ in range(20)]
        await readings[0].until(TextDelta, 2)

        await readings[0].stop()

        async with asyncio.timeout(4 * PATIENCE):
            await asyncio.gather(*(reading.task for reading in readings[1:]))
        assert sorted(one.how for one in provider.log) == ["completed"] * 19 + ["disconnected"]


async def test_a_cancelled_run_ends_the_stream_and_asks_no_more(tmp_path):
    """D2 D3 D12 D15: the receipt says that it was closed, and the provider that it was."""
    reply = Reply(LONG, tokens_per_second=50)
    async with Provider(reply) as provider, Runtime(f"sqlite:///{tmp_path}/runs.db") as runtime:
        run = await runtime.start(Agent("reader", model=model_at(provider)), "Recite.")
        await provider.until(lambda log: log and log[0].tokens_sent >= 5, PATIENCE)

        receipt = settled(await run.cancel())

        await provider.until(lambda log: log[0].how == "disconnected", PATIENCE)
        assert outcomes(receipt) == {f"anthropic:{MODEL}": Outcome.ABORTED}
        assert receipt.tokens_after_stop == 0
        assert len(provider.log) == 1


async def test_a_paused_answer_is_continued_where_it_broke_off(tmp_path):
    """D20 D23: one answer, in two requests that the provider takes."""
    replies = [Reply(LONG, tokens_per_second=50), Reply("…the rest.")]
    async with Provider(replies) as provider, Runtime(f"sqlite:///{tmp_path}/runs.db") as runtime:
        run = await runtime.start(Agent("reader", model=model_at(provider, "claude-opus-5-5")), "Recite.")
        await provider.until(lambda log: log and log[0].tokens_sent >= 5, PATIENCE)
        settled(await run.pause())

        await run.resume()

        answer = await result(run)
    said = answer.removesuffix("…the rest.")
    assert LONG.startswith(said)
    assert said.startswith("word0 word1"), "five tokens had left the provider"
    assert [one.how for one in provider.log] == ["disconnected", "completed"]
    given_back = provider.log[1].messages
    assert [turn["role"] for turn in given_back] == ["user", "assistant", "user"]
    assert given_back[1]["content"] == [{"type": "text", "text": said}]


@pytest.mark.parametrize("name", ["claude-haiku-4-5", "claude-opus-5-5"])
async def test_what_was_thought_over_half_an_answer_is_not_given_back_as_thought_over_a_whole_one(tmp_path, name):
    """The provider may check that nothing before a thought has changed, and the word to go on is not in the history."""

    async def search(q: str) -> str:
        return "found"

    replies = [
        Reply(LONG, tokens_per_second=50),
        Reply("…and looked.", thinking="Where was I?", calls=[("search", {"q": "x"})]),
        Reply("Done."),
    ]
    async with Provider(replies) as provider, Runtime(f"sqlite:///{tmp_path}/runs.db") as runtime:
        agent = Agent("reader", model=model_at(provider, name), tools=[search], settings=Settings(reasoning="high"))
        run = await runtime.start(agent, "Recite.")
        await provider.until(lambda log: log and log[0].tokens_sent >= 5, PATIENCE)
        settled(await run.pause())
        await run.resume()
        assert await result(run) == "Done."

    assert [one.status for one in provider.log] == [200, 200, 200]
    said = provider.log[2].messages[1]["content"]
    assert [block["type"] for block in said] == ["text", "tool_use"]


# -- failures


async def failure(reply, *, model=MODEL, request=ASK, **options):
    async with Provider(reply) as provider:
        with pytest.raises(Exception) as caught:
            await collect(model_at(provider, model, **options).stream(request), request)
    return caught.value


async def test_a_wrong_key_is_said_to_be_one():
    error = await failure("Yes.", api_key="sk-ant-wrong")

    assert isinstance(error, ModelUnauthorised)
    assert str(error).startswith("anthropic (127.0.0.1) does not take the API key (401)")
    assert not error.may_retry


@pytest.mark.parametrize(
    ("status", "kind", "may_retry"),
    [
        (400, ModelRefusedRequest, False),
        (401, ModelUnauthorised, False),
        (402, ModelRateLimited, False),
        (403, ModelUnauthorised, False),
        (404, ModelNotFound, False),
        (413, ModelRefusedRequest, False),
        (429, ModelRateLimited, True),
        (500, ModelUnavailable, True),
        (503, ModelUnavailable, True),
        (504, ModelUnavailable, True),
        (529, ModelUnavailable, True),
    ],
)
async def test_an_error_has_its_type_and_says_whether_to_try_again(status, kind, may_retry):
    error = await failure(Reply(fault=Fault(status=status)))

    assert type(error) is kind
    assert (error.may_retry, error.status) == (may_retry, status)
    assert str(status) in str(error)


async def test_a_model_that_there_is_not_is_named():
    error = await failure("Yes.", model="claude3")

    assert isinstance(error, ModelNotFound)
    assert "claude3" in str(error)


async def test_a_request_at_fault_is_refused_in_the_providers_words():
    request = Request("", (User("Go."), Note("Now."), Assistant("?"), ToolResult("a", "search", "x")))

    error = await failure("Yes.", request=request)

    assert isinstance(error, ModelRefusedRequest)
    assert error.position == 3, "the place in the request, not that on the wire"
    assert "unexpected `tool_use_id`" in str(error)


async def test_a_rate_limit_says_how_long_to_wait():
    error = await failure(Reply(fault=Fault(status=429, retry_after=7)))

    assert error.retry_after == 7


async def test_an_overload_in_mid_stream_may_pass():
    error = await failure(Reply("one two three.", fault=Fault(error_after_tokens=2, status=529)))

    assert isinstance(error, ModelUnavailable)
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

    assert isinstance(error, ModelUnavailable)
    assert (error.reason, error.may_retry) == (reason, True)
    assert error.partial.message.text == "one two"
    assert error.partial.message.interrupted


async def test_an_answer_that_never_begins_is_given_up():
    error = await failure(Reply(fault=Fault(never_answers=True)), timeouts=Timeouts(first_byte=0.5))

    assert (type(error), error.reason) == (ModelUnavailable, "timeout")


async def test_keep_alives_are_not_silence():
    reply = Reply("one two.", fault=Fault(stall_after_tokens=1, pings_every=0.2, times=1))
    async with Provider(reply) as provider:
        reading = Reading(model_at(provider, timeouts=Timeouts(between_bytes=1.0)))
        await reading.until(TextDelta)
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(reading.task), 2.5)

        assert not reading.task.done()
        await reading.stop()


async def test_a_server_that_is_not_there_is_said_not_to_be():
    model = AnthropicModel(MODEL, api_key="k", base_url="http://127.0.0.1:9")
    with pytest.raises(ModelUnavailable) as caught:
        await collect(model.stream(ASK), ASK)

    assert caught.value.reason == "refused"


async def test_a_page_instead_of_a_stream_is_told_with_the_remedy():
    error = await failure(Reply(fault=Fault(status=200, body="<html>Welcome</html>")))

    assert (type(error), error.reason, error.may_retry) == (ModelUnavailable, "malformed", False)
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
        with pytest.raises(ModelUnauthorised) as caught:
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


@pytest.mark.parametrize("options", [{"base_url": "localhost"}, {"max_tokens": 0}, {"headers": {"x": "a\nb"}}])
async def test_nonsense_is_refused_when_the_model_is_made(options):
    with pytest.raises(MisuseError):
        AnthropicModel(MODEL, **options)


async def test_other_providers_of_this_wire_have_names_of_their_own(monkeypatch):
    async with Provider("Yes.", models=["kimi-k2"]) as provider:
        monkeypatch.setenv("MOONSHOT_API_KEY", provider.key)
        model = AnthropicModel("kimi-k2", provider="moonshot", base_url=provider.anthropic_url)
        await collect(model.stream(ASK), ASK)

    assert model.name == "moonshot:kimi-k2"
