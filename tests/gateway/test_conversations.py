"""What a person says goes to the main conversation and stays where it was said; tools are steps; caps hold."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from checkrein import Turns
from checkrein.gateway.conversations import MainConversation
from checkrein.gateway.wires.base import Wire
from checkrein.gateway.wires.chat import ChatWire
from checkrein.gateway.wires.gemini import GeminiWire
from checkrein.gateway.wires.messages import MessagesWire
from checkrein.gateway.wires.responses import ResponsesWire
from checkrein.testing.provider import Fault, Reply
from tests.gateway.conftest import Scene, scene

pytestmark = pytest.mark.anyio

TOOLS: Any = [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object", "properties": {}}}}]
GOAL = {"role": "user", "content": "Count the cows."}


async def say(here: Scene, *messages: Any, tools: Any = TOOLS) -> Any:
    given = {"tools": tools} if tools else {}
    answer = await here.openai().chat.completions.create(model="gpt-5", messages=list(messages), **given)
    return answer.choices[0].message


async def test_an_instruction_waits_for_the_main_conversation_and_stays_at_its_place():
    replies: list[Reply | str] = [
        Reply("I look.", calls=[("bash", {"command": "ls"})], call_ids=["c1"]),
        "A title.",
        "Sub.",
        "Four.",
        "Five.",
    ]
    async with scene(replies) as here:
        asked = await say(here, GOAL)
        await here.run.redirect("Only brown ones.")
        await say(here, {"role": "user", "content": "Give this a title."}, tools=None)
        await say(here, {"role": "user", "content": "You are a sub-agent: look."})
        result = {"role": "tool", "tool_call_id": "c1", "content": "a b"}
        history = [GOAL, asked.model_dump(exclude_none=True), result]
        fourth = await say(here, *history)
        await say(here, *history, fourth.model_dump(exclude_none=True), {"role": "user", "content": "And now?"})
        log = [[(one["role"], one["content"]) for one in request.messages] for request in here.provider.log]

    told = ("user", "Only brown ones.")
    assert [told in messages for messages in log] == [False, False, False, True, True]
    assert log[3] == [("user", "Count the cows."), ("assistant", "I look."), ("tool", "a b"), told]
    assert log[4] == [*log[3], ("assistant", "Four."), ("user", "And now?")]


async def test_what_was_said_in_the_middle_of_an_answer_stays_in_its_middle():
    async with scene(
        [Reply("one two three", fault=Fault(stall_after_tokens=2)), Reply("brown."), Reply("Fine.")]
    ) as here:
        client = here.openai()

        async def stream() -> str:
            ask: Any = client.chat.completions.create
            chunks = await ask(model="gpt-5", messages=[GOAL], stream=True, tools=TOOLS)
            return "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])

        asking = asyncio.ensure_future(stream())
        await here.has_passed(2)
        await here.run.redirect("Only brown ones.")
        said = await asking
        await say(here, GOAL, {"role": "assistant", "content": said}, {"role": "user", "content": "And now?"})
        log = [[(one["role"], one["content"]) for one in request.messages] for request in here.provider.log]

    assert said == "one two\n\nbrown."
    assert log[2] == [
        ("user", "Count the cows."),
        ("assistant", "one two"),
        ("user", "Only brown ones."),
        ("assistant", "brown."),
        ("user", "And now?"),
    ]


async def steps_of(here: Scene, state: str) -> list[str]:
    """The titles of the steps, once one is in that state."""
    async with asyncio.timeout(60):
        while True:
            steps = (await here.run.view()).steps
            if any(str(step.shown) == state for step in steps):
                return [step.title for step in steps]
            await asyncio.sleep(0.02)


async def test_a_tool_call_is_a_step_until_its_result_comes():
    async with scene([Reply("", calls=[("bash", {"command": "ls"})], call_ids=["c1"]), "Done."]) as here:
        asked = await say(here, GOAL)
        assert await steps_of(here, "running") == ['bash {"command": "ls"}']

        result = {"role": "tool", "tool_call_id": "c1", "content": "a b"}
        await say(here, GOAL, asked.model_dump(exclude_none=True), result)
        await steps_of(here, "done")


async def test_a_cap_holds_the_request_and_asks():
    """D25: the request waits for a person, and nothing reaches the provider meanwhile."""
    async with scene("Fine.", stop_when=Turns(1)) as here:
        await say(here, GOAL)
        asking = asyncio.ensure_future(say(here, GOAL, {"role": "assistant", "content": "Fine."}, GOAL))
        async with asyncio.timeout(60):
            while (await here.run.view()).status != "paused":
                await asyncio.sleep(0.02)
        assert len(here.provider.log) == 1
        assert not asking.done()

        await here.run.resume()
        assert (await asking).content == "Fine."


# -- which conversation is the main one, as real programs have it

PROMPT = "You are a coding agent.\nUse the tools.\nBe brief.\nToday is Monday."


def request(*messages: tuple[str, str], system: str = PROMPT, tools: str = "bash edit") -> dict[str, Any]:
    said = [{"role": role, "content": text} for role, text in (("system", system), *messages)]
    return {"messages": said, "tools": [{"function": {"name": name}} for name in tools.split()]}


CONTEXT, TASK, ANSWER = ("user", "<environment/>"), ("user", "Count the cows."), ("assistant", "I look.")


def main_conversation(**options: Any) -> Callable[[dict[str, Any]], bool]:
    """One that has begun and is at work with tools."""
    main = MainConversation(**options)

    def has(body: dict[str, Any]) -> bool:
        if found := main.has(ChatWire(), body):
            main.asked()
        return found

    assert has(request(CONTEXT, TASK))
    main.answered(at_work_since=1.0)
    return has


def test_more_tools_and_another_date_make_no_other_conversation():
    """claude offers tools as it needs them, and drops them."""
    has = main_conversation()

    assert has(request(CONTEXT, TASK, ANSWER, system=PROMPT.replace("Monday", "Tuesday"), tools="bash edit web plan"))
    assert has(request(CONTEXT, TASK, ANSWER, ("user", "More."), tools="bash"))


def test_a_sub_agent_that_is_told_the_same_and_begins_the_same_is_told_apart_by_its_task():
    """codex begins every conversation with the same context."""
    has = main_conversation()
    sub = request(CONTEXT, ("user", "Look behind the barn."))

    assert not has(sub)
    assert has(request(CONTEXT, TASK, ANSWER))
    assert not has(sub), "also when nothing is at work any more"


def test_titles_and_summaries_are_not_the_main_conversation():
    has = main_conversation(offers_tools=True)

    assert not has(request(("user", "Give it a title: Count the cows."), system="You write titles.", tools=""))
    assert not has(request(CONTEXT, TASK, ANSWER, ("user", "Sum it up."), system="You write summaries."))
    assert not has(request(CONTEXT, TASK, ANSWER, tools=""))
    assert has(request(CONTEXT, TASK, ANSWER))


def test_a_title_that_is_asked_for_first_is_not_taken_for_the_main_conversation():
    """opencode asks for it before anything else."""
    main = MainConversation(offers_tools=True)

    assert not main.has(ChatWire(), request(("user", "Give it a title."), tools=""))
    assert main.has(ChatWire(), request(CONTEXT, TASK))


def test_a_history_that_was_shortened_while_nothing_was_at_work_is_still_the_main_conversation():
    has = main_conversation()

    assert has(request(CONTEXT, TASK, ANSWER))
    assert has(request(("user", "Before: cows were counted. Now sheep.")))
    assert has(request(("user", "Before: cows were counted. Now sheep."), ANSWER))


# -- every wire


WIRES: list[Wire] = [ChatWire(), ResponsesWire(), MessagesWire(), GeminiWire()]


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: type(wire).__name__)
def test_on_every_wire_what_was_said_is_put_back_where_it_was_said(wire: Wire):
    main = MainConversation()
    before = [wire.user("Count.")]
    main.say(wire, before, "one two", "Only brown.")
    history = [*before, wire.assistant("one two\n\nthree"), wire.user("Go on.")]

    made = main.with_said(wire, history)

    texts = [wire.text_of(message) for message in made]
    assert texts == ["Count.", "one two", "Only brown.", "three", "Go on."]
    assert [wire.is_answer(message) for message in made] == [False, True, False, True, False]
    assert main.with_said(wire, [wire.user("Something else.")]) == [wire.user("Something else.")]
