"""Stops over the Anthropic wire, in every phase of a request. The witness is the provider, by its own clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from checkrein import Agent, Runtime
from checkrein.core.enums import Outcome
from checkrein.models import Finished, Settings, TextDelta, ThinkingDelta, ToolCallDelta, close, collect
from checkrein.models.http.client import client
from checkrein.testing.provider import Fault, Provider, Reply
from tests.models.anthropic_scene import ASK, LONG, MODEL, Reading, model_at
from tests.support.patience import PATIENCE_SECONDS, within
from tests.support.runs import outcomes, result, settled
from tests.support.witness import until

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
async def closed() -> AsyncIterator[None]:
    """No connection outlives its test."""
    yield
    await client().close()


async def saw_the_end(provider, reading):
    """The provider has seen the only request there was break off, at once."""
    await provider.until(lambda log: log[0].how == "disconnected", PATIENCE_SECONDS)
    (request,) = provider.log
    assert request.disconnected_at - reading.stopped_at < within(2.5)
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
        await provider.until(lambda log: log, PATIENCE_SECONDS)

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
        got = await asyncio.wait_for(collect(model_at(provider).stream(ASK), ASK), PATIENCE_SECONDS)

    assert got.message.text == "Yes."


async def test_leaving_a_stream_and_closing_it_ends_it():
    async with Provider(Reply(LONG, tokens_per_second=50)) as provider:
        stream = model_at(provider).stream(ASK)
        async for delta in stream:
            if isinstance(delta, TextDelta):
                break
        await close(stream)

        await provider.until(lambda log: log[0].how == "disconnected", PATIENCE_SECONDS)


async def test_stopping_one_of_many_leaves_the_others_alone():
    async with Provider(Reply("word " * 90, tokens_per_second=30)) as provider:
        model = model_at(provider)
        readings = [Reading(model) for _ in range(20)]
        await readings[0].until(TextDelta, 2)

        await readings[0].stop()

        async with asyncio.timeout(PATIENCE_SECONDS):
            await asyncio.gather(*(reading.task for reading in readings[1:]))
        assert sorted(one.how for one in provider.log) == ["completed"] * 19 + ["disconnected"]


async def test_a_cancelled_run_ends_the_stream_and_asks_no_more(tmp_path):
    """D2 D3 D12 D15: the receipt says that it was closed, and the provider that it was."""
    reply = Reply(LONG, tokens_per_second=50)
    async with Provider(reply) as provider, Runtime(f"sqlite:///{tmp_path}/runs.db") as runtime:
        run = await runtime.start(Agent("reader", model=model_at(provider)), "Recite.")
        await provider.until(lambda log: log and log[0].tokens_sent >= 5, PATIENCE_SECONDS)

        receipt = settled(await run.cancel())

        await provider.until(lambda log: log[0].how == "disconnected", PATIENCE_SECONDS)
        assert outcomes(receipt) == {f"anthropic:{MODEL}": Outcome.ABORTED}
        assert receipt.tokens_after_stop == 0
        assert len(provider.log) == 1


@pytest.mark.parametrize(("name", "continues"), [("claude-haiku-4-5", True), ("claude-opus-5-5", False)])
async def test_a_paused_answer_goes_on_where_it_broke_off_or_is_replaced(tmp_path, name, continues):
    """D20 D23 C2: one answer, in two requests that the provider takes: newer models refuse to go on with a half one."""
    replies = [Reply(LONG, tokens_per_second=50), Reply("…the rest.")]
    async with Provider(replies) as provider, Runtime(f"sqlite:///{tmp_path}/runs.db") as runtime:
        run = await runtime.start(Agent("reader", model=model_at(provider, name)), "Recite.")
        await provider.until(lambda log: log and log[0].tokens_sent >= 5, PATIENCE_SECONDS)
        settled(await run.pause())

        await run.resume()

        answer = await result(run)
    assert [(one.status, one.how) for one in provider.log] == [(200, "disconnected"), (200, "completed")]
    assert answer.endswith("…the rest.")
    if not continues:
        assert answer == "…the rest."
        assert provider.log[1].messages == provider.log[0].messages
        return
    said = answer.removesuffix("…the rest.")
    assert LONG.startswith(said)
    assert said.startswith("word0 word1"), "five tokens had left the provider"
    given_back = provider.log[1].messages
    assert [turn["role"] for turn in given_back] == ["user", "assistant"]
    assert given_back[1]["content"] == [{"type": "text", "text": said}]


@pytest.mark.parametrize("name", ["claude-haiku-4-5", "claude-opus-5-5"])
async def test_what_was_thought_over_an_answer_that_replaces_a_half_one_is_given_back(tmp_path, name):
    """C2: nothing before the thought has changed, which the provider may check."""

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
        await provider.until(lambda log: log and log[0].tokens_sent >= 5, PATIENCE_SECONDS)
        settled(await run.pause())
        await run.resume()
        assert await result(run) == "Done."

    assert [one.status for one in provider.log] == [200, 200, 200]
    said = provider.log[2].messages[1]["content"]
    assert [block["type"] for block in said] == ["thinking", "text", "tool_use"]
