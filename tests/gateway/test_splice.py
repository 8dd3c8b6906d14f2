"""An answer that is interrupted goes on in the same stream, whatever the wire and the moment. Real clients judge it.

Each wire × each moment × each verb. What the client makes of the spliced stream is what it would make of one that was
never interrupted; what the provider was asked is in its own log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

import anthropic as anthropic_sdk
import pytest

from checkrein.errors import CheckreinError
from checkrein.testing.provider import Fault, Reply
from checkrein.testing.provider.log import Request
from tests.gateway.conftest import Scene, scene

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession"),
]


class Heard(NamedTuple):
    """What a client has made of an answer."""

    text: str
    calls: tuple[str, ...]
    finish: str


TOOL: Final = {"type": "object", "properties": {"at": {"type": "string"}}}
USER: Final[Any] = [{"role": "user", "content": "Hello?"}]


async def ask_chat(here: Scene) -> Heard:
    tools: Any = [{"type": "function", "function": {"name": "look", "parameters": TOOL}}]
    async with here.openai().chat.completions.stream(model="gpt-5", messages=USER, tools=tools) as stream:
        async for _ in stream:
            pass
        (choice,) = (await stream.get_final_completion()).choices
    assert choice.message.role == "assistant"
    calls = tuple(call.function.arguments for call in choice.message.tool_calls or ())
    return Heard(choice.message.content or "", calls, choice.finish_reason)


async def ask_responses(here: Scene) -> Heard:
    tools: Any = [{"type": "function", "name": "look", "parameters": TOOL}]
    numbers, kinds = [], []
    async with here.openai().responses.stream(model="gpt-5", input="Hello?", tools=tools) as stream:
        async for event in stream:
            numbers.append(event.sequence_number)
            kinds.append(event.type)
            if event.type == "response.failed":
                raise InStream(str(event.response.error))
        answer = await stream.get_final_response()
    assert numbers == sorted(set(numbers))
    assert kinds.count("response.created") == kinds.count("response.completed") == 1
    assert kinds.count("response.output_item.added") == kinds.count("response.output_item.done") == len(answer.output)
    calls = tuple(item.arguments for item in answer.output if item.type == "function_call")
    return Heard(answer.output_text, calls, str(answer.status))


async def ask_messages(here: Scene) -> Heard:
    tools = [{"name": "look", "input_schema": TOOL}]
    ask: dict[str, Any] = {"model": "claude-haiku-4-5", "max_tokens": 5000, "messages": USER, "tools": tools}
    async with here.anthropic().messages.stream(**ask) as stream:
        async for _ in stream:
            pass
        message = await stream.get_final_message()
    text = "".join(block.text for block in message.content if block.type == "text")
    calls = tuple(str(block.input) for block in message.content if block.type == "tool_use")
    return Heard(text, calls, str(message.stop_reason))


async def ask_gemini(here: Scene) -> Heard:
    texts, calls, finish = [], [], ""
    async with here.gemini() as gemini:
        async for chunk in await gemini.models.generate_content_stream(model="gemini-2.5-flash", contents="Hello?"):
            candidate = chunk.candidates[0]
            for part in candidate.content.parts:
                if part.function_call:
                    calls.append(str(part.function_call.args))
                elif not part.thought:
                    texts.append(part.text or "")
            finish = candidate.finish_reason.value if candidate.finish_reason else finish
    return Heard("".join(texts), tuple(calls), finish)


class InStream(Exception):
    """An error that a stream ended with, where the client does not raise it."""


class WireCase(NamedTuple):
    name: str
    ask: Callable[[Scene], Awaitable[Heard]]
    stopped: str
    calls: str
    seals: bool
    arguments: str


# fmt: off
WIRES: Final = [
    WireCase("openai",           ask_chat,      "stop",      "tool_calls", False, '{"at": "%s"}'),
    WireCase("openai-responses", ask_responses, "completed", "completed",  True,  '{"at": "%s"}'),
    WireCase("anthropic",        ask_messages,  "end_turn",  "tool_use",   True,  "{'at': '%s'}"),
    WireCase("gemini",           ask_gemini,    "STOP",      "STOP",       False, "{'at': '%s'}"),
]
# fmt: on

PLACE: Final = "a place with a long name that takes many tokens"
IN_THE_CALL: Final = Fault(stall_after_tokens=5)

# fmt: off
MOMENTS: Final = {
    "before the head":         (Reply("Never sent.", first_byte_after=60), 0),
    "in text":                 (Reply("one two three four five six", fault=Fault(stall_after_tokens=3)), 3),
    "in a call's arguments":   (Reply("one two three", calls=[("look", {"at": PLACE})], fault=IN_THE_CALL), 5),
    "before the last event":   (Reply("one two three", fault=Fault(stall_before_end=True)), 3),
}
# fmt: on

THINKING: Final = (Reply("one", thinking="hm hm hm hm", fault=Fault(stall_after_tokens=2)), 2)

REST: Final = Reply(" and the rest.", calls=[("look", {"at": "once"})])
each_wire = pytest.mark.parametrize("wire", WIRES, ids=[wire.name for wire in WIRES])
each_moment = pytest.mark.parametrize("moment", list(MOMENTS))
each_moment_and_thinking = pytest.mark.parametrize("moment", [*MOMENTS, "in thinking"])


def at(moment: str) -> tuple[Reply, int]:
    """The first answer, which stops at the moment, and how many tokens of it are sent by then."""
    return MOMENTS.get(moment, THINKING)


def said_to(request: Request) -> list[tuple[str, str]]:
    """Who said what, as the provider was told it, on whichever wire."""
    found = []
    for message in request.messages:
        content = message.get("content", message.get("parts"))
        text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content or ())
        found.append(("assistant" if message.get("role") == "model" else str(message.get("role")), text))
    return found


def was_whole(wire: WireCase, moment: str) -> bool:
    """Whether nothing was missing of the answer by then but an event that says so."""
    return moment == "before the last event" and wire.name in ("openai", "anthropic")


async def interrupted(here: Scene, tokens: int) -> None:
    """The provider has sent so much, and it has passed the gateway."""
    await here.tokens(tokens, 0)
    await here.has_passed(min(tokens, 3))


@each_wire
@each_moment
async def test_paused_and_resumed_it_is_one_answer(wire: WireCase, moment: str):
    """D6 D20: the stream is closed at the provider, the client's is not, and the rest is spliced in."""
    first, tokens = MOMENTS[moment]
    async with scene([first, REST]) as here:
        asking = asyncio.ensure_future(wire.ask(here))
        await interrupted(here, tokens)
        await here.run.pause()
        await here.provider.until(lambda log: log[0].how == "disconnected")
        assert not asking.done()
        assert len(here.provider.log) == 1

        await here.run.resume()
        heard = await asyncio.wait_for(asking, 60)
        log = list(here.provider.log)

    if was_whole(wire, moment):
        assert heard == Heard("one two three", (), wire.stopped)
        assert len(log) == 1  # it was whole
        return
    before = {"before the head": "", "in text": "one two three", "in a call's arguments": "one two three"}
    half = before.get(moment, "one two three")
    assert heard == Heard(f"{half} and the rest.", (wire.arguments % "once",), wire.calls)
    assert len(log) == 2
    if half:
        assert [role for role, _ in said_to(log[1])] == ["user", "assistant", "user"]
        assert said_to(log[1])[1][1] == half
    else:
        assert log[1].body == log[0].body


@each_wire
@each_moment
async def test_redirected_the_instruction_goes_with_what_was_said(wire: WireCase, moment: str):
    first, tokens = MOMENTS[moment]
    async with scene([first, REST]) as here:
        asking = asyncio.ensure_future(wire.ask(here))
        await interrupted(here, tokens)

        await here.run.redirect("Only cows, please.")
        heard = await asyncio.wait_for(asking, 60)
        log = list(here.provider.log)

    if was_whole(wire, moment):
        assert heard == Heard("one two three", (), wire.stopped)
        assert len(log) == 1
        return
    assert heard.calls == (wire.arguments % "once",)
    assert heard.text.endswith(" and the rest.")
    assert log[0].how == "disconnected"
    assert said_to(log[1])[-1] == ("user", "Only cows, please.")
    if moment != "before the head":
        assert said_to(log[1])[1] == ("assistant", "one two three")
        assert heard.text == "one two three\n\n and the rest."


@each_wire
@each_moment_and_thinking
async def test_cancelled_the_client_hears_at_once_and_the_provider_sends_nothing_more(wire: WireCase, moment: str):
    first, tokens = at(moment)
    async with scene([first, REST]) as here:
        asking = asyncio.ensure_future(wire.ask(here))
        await interrupted(here, tokens)

        receipt = await here.run.cancel()
        with pytest.raises(Exception):  # noqa: B017 - each client has its own word for it
            await asyncio.wait_for(asking, 60)
        await here.provider.until(lambda log: log[0].how == "disconnected")

        assert [call.now for call in receipt.calls] == ["aborted"]
        assert receipt.tokens_after_stop == 0
        assert len(here.provider.log) == 1


@each_wire
@pytest.mark.parametrize("verb", ["pause", "redirect"])
async def test_stopped_while_thinking_it_goes_on_or_ends_with_the_wires_own_error(wire: WireCase, verb: str):
    """Thinking that is sealed cannot be continued; elsewhere it is thought again. What was said is not lost."""
    first, tokens = THINKING
    async with scene([first, REST]) as here:
        asking = asyncio.ensure_future(wire.ask(here))
        await interrupted(here, tokens)
        if verb == "pause":
            await here.run.pause()
            await here.provider.until(lambda log: log[0].how == "disconnected")
            await here.run.resume("Only cows, please.")
        else:
            await here.run.redirect("Only cows, please.", wait=0)

        if not wire.seals:
            heard = await asyncio.wait_for(asking, 60)
            assert heard == Heard(" and the rest.", (wire.arguments % "once",), wire.calls)
        else:
            with pytest.raises((anthropic_sdk.APIStatusError, InStream), match="thinking"):
                await asyncio.wait_for(asking, 60)
            assert len(here.provider.log) == 1
            await wire.ask(here)

        assert here.provider.log[0].how == "disconnected"
        assert said_to(here.provider.log[1])[-1] == ("user", "Only cows, please.")


@each_wire
async def test_a_call_that_was_whole_is_not_asked_for_again(wire: WireCase):
    first = Reply("one", calls=[("look", {"at": "it"}), ("look", {"at": PLACE})], fault=Fault(stall_after_tokens=6))
    async with scene([first, REST]) as here:
        asking = asyncio.ensure_future(wire.ask(here))
        await here.has_passed(1, calls=1 if wire.name == "gemini" else 2)
        await here.run.pause()
        await here.run.resume()

        assert await asyncio.wait_for(asking, 60) == Heard("one", (wire.arguments % "it",), wire.calls)
        assert len(here.provider.log) == 1


@each_wire
async def test_paused_twice_it_is_still_one_answer(wire: WireCase):
    halves = [
        Reply("one two three", fault=Fault(stall_after_tokens=2)),
        Reply(" four five", fault=Fault(stall_after_tokens=1)),
    ]
    async with scene([*halves, Reply(" six.")]) as here:
        asking = asyncio.ensure_future(wire.ask(here))
        await interrupted(here, 2)
        await here.run.pause()
        await here.run.resume()
        await here.has_passed(3)
        await here.run.pause()
        await here.run.resume()

        assert await asyncio.wait_for(asking, 60) == Heard("one two four six.", (), wire.stopped)
        assert [role for role, _ in said_to(here.provider.log[2])] == ["user", "assistant", "user", "assistant", "user"]


# -- a provider that refuses, or breaks off

STATUSES: Final = (401, 429, 503)
each_refusal = pytest.mark.parametrize(
    "fault",
    [*(Fault(status=status) for status in STATUSES), Fault(cut_after_tokens=1)],
    ids=[*map(str, STATUSES), "cut"],
)
CUTS: Final = {
    "before the head": Reply("one two", fault=Fault(cut_after_tokens=0)),
    "in text": Reply("one two three", fault=Fault(cut_after_tokens=2)),
    "in thinking": Reply("one", thinking="hm hm hm hm", fault=Fault(cut_after_tokens=2)),
    "in a call's arguments": Reply("one", calls=[("look", {"at": PLACE})], fault=Fault(cut_after_tokens=3)),
    "before the last event": Reply("one two three", fault=Fault(cut_after_tokens=3)),
}


async def hears_an_error(asking: asyncio.Future[Heard]) -> None:
    """A client's own error, and not a whole answer or silence."""
    with pytest.raises(Exception) as caught:
        await asyncio.wait_for(asking, 60)
    assert not isinstance(caught.value, TimeoutError | CheckreinError | AssertionError)


@each_wire
@pytest.mark.parametrize("moment", list(CUTS))
async def test_a_provider_that_breaks_off_is_never_taken_for_whole(wire: WireCase, moment: str):
    async with scene(CUTS[moment]) as here:
        await hears_an_error(asyncio.ensure_future(wire.ask(here)))

        assert [request.how for request in here.provider.log] == ["fault"]
        assert str((await here.run.view()).status) == "running"


@each_wire
@pytest.mark.parametrize("status", STATUSES)
async def test_what_the_provider_refuses_the_client_hears_and_the_run_goes_on(wire: WireCase, status: int):
    async with scene([Reply(fault=Fault(status=status)), REST]) as here:
        await hears_an_error(asyncio.ensure_future(wire.ask(here)))

        assert (await wire.ask(here)).text == " and the rest."
        assert [request.status for request in here.provider.log] == [status, 200]


@each_wire
@each_moment_and_thinking
@each_refusal
async def test_the_rest_that_cannot_be_had_ends_the_answer_with_an_error(wire: WireCase, moment: str, fault: Fault):
    """Once more after a pause: what was whole needs no rest, and what is sealed is not asked for."""
    first, tokens = at(moment)
    async with scene([first, Reply("never", fault=fault)]) as here:
        asking = asyncio.ensure_future(wire.ask(here))
        await interrupted(here, tokens)
        await here.run.pause()
        await here.provider.until(lambda log: log[0].how == "disconnected")
        await here.run.resume()

        if was_whole(wire, moment):
            assert (await asyncio.wait_for(asking, 60)).text == "one two three"
        else:
            await hears_an_error(asking)
        is_asked = not (moment == "in thinking" and wire.seals) and not was_whole(wire, moment)
        assert len(here.provider.log) == 1 + is_asked
