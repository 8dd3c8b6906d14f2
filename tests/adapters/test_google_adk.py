"""What only Google ADK has: transfers, agents side by side, callbacks, and a session that tools write to."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent, ParallelAgent
from google.adk.models.llm_response import LlmResponse
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.function_tool import FunctionTool
from google.genai import types

from checkrein import Runtime
from checkrein.adapters.google_adk import interruptible
from checkrein.errors import MisuseError
from checkrein.testing.provider import Provider, Reply, Request
from tests.adapters.conftest import OF_THE_LIBRARY
from tests.adapters.contract.test_drills import SLOW, conversation, driven_elsewhere, kill, use
from tests.adapters.frameworks import google_adk_without_ids
from tests.adapters.frameworks.google_adk import model, with_context
from tests.adapters.tools import note_down, tick
from tests.support.witness import Witness

pytestmark = [pytest.mark.anyio, OF_THE_LIBRARY]


async def test_a_transfer_goes_on_in_the_same_run_also_in_a_new_process(
    provider: Provider, witness: Witness, store: str
) -> None:
    """D30: the agent that it was handed to is recorded like the first; no call has an id of the provider's."""

    def family() -> Any:
        url, key = provider.openai_url, str(provider.key)
        billing = LlmAgent(name="billing", model=model(url, key), description="Pays.", tools=[note_down])
        return interruptible(LlmAgent(name="triage", model=model(url, key), sub_agents=[billing]))

    provider.play(
        [
            use(("transfer_to_agent", {"agent_name": "billing"})),
            use(("note_down", {"log": witness.log, "word": "paid"})),
            SLOW,
            Reply("Paid."),
        ]
    )
    agent = family()
    async with Runtime(store, agents=[agent]) as runtime:
        run = await runtime.start(agent, "Pay.")
        await provider.until(lambda log: len(log) == 3 and log[2].tokens_sent >= 3, timeout=120)
        await run.pause()
    agent = family()
    async with Runtime(store, agents=[agent]) as runtime:
        run = await runtime.get(run.id)
        await run.resume()
        assert await run.result() == "Paid."

    assert witness.words() == ["paid"]
    assert len(provider.log) == 4


async def test_what_a_tool_wrote_to_the_state_is_there_in_a_new_process(
    provider: Provider, witness: Witness, store: str
) -> None:
    """D29 D30: the tool is not used again, and the instruction has what it left."""

    def made() -> Any:
        agent = LlmAgent(
            name="notes",
            model=model(provider.openai_url, str(provider.key)),
            instruction="Seen: {seen?}.",
            tools=[with_context],
        )
        return interruptible(agent, deps={"log": witness.log})

    provider.play([use(("with_context", {"word": "moss"})), SLOW, Reply("Done.")])
    agent = made()
    async with Runtime(store, agents=[agent]) as runtime:
        run = await runtime.start(agent, "Go.")
        await provider.until(lambda log: len(log) == 2 and log[1].tokens_sent >= 3, timeout=120)
        await run.pause()
    agent = made()
    async with Runtime(store, agents=[agent]) as runtime:
        run = await runtime.get(run.id)
        await run.resume()
        assert await run.result() == "Done."

    assert witness.words() == ["context moss"]
    assert "Seen: moss." in str(provider.log[2].body["systemInstruction"])


@pytest.mark.filterwarnings("ignore:ParallelAgent is deprecated")
async def test_agents_side_by_side_get_their_own_answers_back_in_a_new_process(provider: Provider, store: str) -> None:
    """D29 D30"""

    def made() -> Any:
        url, key = provider.openai_url, str(provider.key)
        sides: list[Any] = [
            LlmAgent(name=one, model=model(url, key), instruction=f"You are {one}.") for one in ("left", "right")
        ]
        return interruptible(ParallelAgent(name="both", sub_agents=sides))

    def who(request: Request) -> str:
        return "left" if "You are left." in str(request.body["systemInstruction"]) else "right"

    async def first(request: Request) -> Reply:
        return SLOW if who(request) == "left" else Reply("Right.")

    provider.play(first)
    agent = made()
    async with Runtime(store, agents=[agent]) as runtime:
        run = await runtime.start(agent, "Go.")
        await provider.until(
            lambda log: (
                {who(one): one.how or one.tokens_sent >= 3 for one in log} == {"left": True, "right": "completed"}
            ),
            timeout=120,
        )
        await run.pause()
    provider.play([Reply("Left.")])
    agent = made()
    async with Runtime(store, agents=[agent]) as runtime:
        run = await runtime.get(run.id)
        await run.resume()
        await run.result()

    assert [who(one) for one in provider.log[2:]] == ["left"], "what was answered is not asked again"


async def test_their_callbacks_run_where_they_did(provider: Provider, witness: Witness) -> None:
    """A guard before a model or a tool answers in its place; what follows an answer may change it."""
    asked: list[str] = []

    def before_tool(tool: Any, args: dict[str, Any], tool_context: Any) -> dict[str, Any] | None:
        asked.append(tool.name)
        return {"result": "not allowed"} if tool.name == "tick" else None

    async def after_model(callback_context: Any, llm_response: LlmResponse) -> LlmResponse | None:
        parts = llm_response.content.parts if llm_response.content and llm_response.content.parts else []
        if "".join(part.text or "" for part in parts) != "Done.":
            return None
        return LlmResponse(content=types.Content(role="model", parts=[types.Part(text="Done, and checked.")]))

    agent = interruptible(
        LlmAgent(
            name="guarded",
            model=model(provider.openai_url, str(provider.key)),
            tools=[note_down, tick],
            before_tool_callback=before_tool,
            after_model_callback=after_model,
        )
    )
    provider.play(
        [use(("tick", {"log": witness.log}), ("note_down", {"log": witness.log, "word": "x"})), Reply("Done.")]
    )
    async with Runtime("memory:", agents=[agent]) as runtime:
        assert await (await runtime.start(agent, "Go.")).result() == "Done, and checked."

    assert sorted(asked) == ["note_down", "tick"]
    assert witness.words() == ["x"]
    assert [one["content"] for one in conversation(provider.log[1]) if one["role"] == "tool"] == [
        "not allowed",
        "noted x",
    ]


def test_an_agent_as_a_tool_that_shuts_plugins_out_is_refused() -> None:
    below = LlmAgent(name="below", model="gemini-2.5-flash")
    with pytest.raises(MisuseError, match=r"below as a tool that shuts plugins out.*leave include_plugins=False out"):
        interruptible(LlmAgent(name="above", tools=[AgentTool(below, include_plugins=False)]))


async def test_an_undo_is_given_what_the_tool_returned(provider: Provider, witness: Witness) -> None:
    """D33: also of a tool that runs in this process, where what it did to the session is recorded beside it."""
    Path(f"{witness.log}.go").touch()
    provider.play([use(("order", {"log": witness.log, "what": "moss"})), SLOW])
    agent = google_adk_without_ids.adapted(provider.openai_url, str(provider.key), witness.log)
    async with Runtime("memory:", agents=[agent]) as runtime:
        run = await runtime.start(agent, "Go.")
        await provider.until(lambda log: len(log) == 2 and log[1].tokens_sent >= 3, timeout=120)
        await run.cancel()

    assert witness.words() == ["order moss", "called off {'number': 7, 'what': 'moss'}"]


async def test_what_a_person_says_that_a_call_came_to_reaches_the_model_as_it_is(
    provider: Provider, witness: Witness, store: str
) -> None:
    """D30"""
    provider.play([use(("order", {"log": witness.log, "what": "moss"})), Reply("Done.")])
    async with driven_elsewhere(google_adk_without_ids, store, provider, witness.log) as (process, id):
        await witness.saw("order moss")
        await kill(process)

    agent = google_adk_without_ids.adapted(provider.openai_url, str(provider.key), witness.log)
    async with asyncio.timeout(120), Runtime(store, agents=[agent]) as runtime:
        run = await runtime.get(id)
        while not (view := await run.view()).doubts:
            await asyncio.sleep(0.05)
        await run.resolve(view.doubts[0].call, "happened", result={"number": 9})
        assert await run.result() == "Done."

    assert witness.words() == ["order moss"]
    assert responses(provider.log[1]) == [{"number": 9}]


def responses(request: Request) -> list[Any]:
    """What a request says that tools have returned."""
    parts = [part for message in request.messages for part in message["parts"]]
    return [part["functionResponse"]["response"] for part in parts if "functionResponse" in part]


async def test_calls_without_ids_get_the_results_back_that_they_had_in_a_new_process(
    provider: Provider, witness: Witness, store: str
) -> None:
    """D28 D30: one tool three times at once with the same arguments, ended in another order than begun."""
    provider.play([use(*[("draw", {"log": witness.log})] * 3), SLOW, Reply("Done.")])
    async with driven_elsewhere(google_adk_without_ids, store, provider, witness.log) as (process, id):
        await witness.saw("card 0", "card 1", "card 2")
        for times, card in enumerate((2, 0, 1), start=1):
            Path(f"{witness.log}.{card}.go").touch()
            await witness.saw("drawn", times=times)
        await provider.until(lambda log: len(log) == 2 and log[1].tokens_sent >= 3, timeout=120)
        await kill(process)

    agent = google_adk_without_ids.adapted(provider.openai_url, str(provider.key), witness.log)
    async with asyncio.timeout(120), Runtime(store, agents=[agent]) as runtime:
        assert await (await runtime.get(id)).result() == "Done."

    assert sorted(witness.words()) == ["card 0", "card 1", "card 2", "drawn", "drawn", "drawn"]
    before, after = (responses(request) for request in provider.log[1:3])
    assert sorted(one["result"] for one in before) == ["card 0", "card 1", "card 2"]
    assert before == after


class Guarded(FunctionTool):
    async def run_async(self, *, args: dict[str, Any], tool_context: Any) -> Any:
        if args["word"] == "secret":
            return {"error": "not that word"}
        return await super().run_async(args=args, tool_context=tool_context)


async def test_a_guard_in_the_class_of_a_tool_stands_before_its_function(provider: Provider, witness: Witness) -> None:
    guarded = LlmAgent(name="guarded", model=model(provider.openai_url, str(provider.key)), tools=[Guarded(note_down)])
    agent = interruptible(guarded)
    words = ("secret", "open")
    provider.play([use(*(("note_down", {"log": witness.log, "word": word}) for word in words)), Reply("Done.")])
    async with Runtime("memory:", agents=[agent]) as runtime:
        assert await (await runtime.start(agent, "Go.")).result() == "Done."

    assert witness.words() == ["open"]
    assert responses(provider.log[1]) == [{"error": "not that word"}, {"result": "noted open"}]
    assert any("Guarded has a way of its own to call it" in one.why for one in agent.tools["note_down"].warnings())


async def test_arguments_that_a_tool_does_not_take_are_told_to_the_model(provider: Provider, witness: Witness) -> None:
    """As without Checkrein: the model may mend them."""
    agent = interruptible(
        LlmAgent(name="notes", model=model(provider.openai_url, str(provider.key)), tools=[note_down])
    )
    provider.play(
        [
            use(("note_down", {"log": witness.log})),
            use(("note_down", {"log": witness.log, "word": "mended"})),
            Reply("Done."),
        ]
    )
    async with Runtime("memory:", agents=[agent]) as runtime:
        assert await (await runtime.start(agent, "Go.")).result() == "Done."

    assert witness.words() == ["mended"]
    (told,) = responses(provider.log[1])
    assert told["error"].startswith("Invoking `note_down()` failed: ")
    assert "word" in told["error"]


@pytest.mark.parametrize("where", ["before", "after"])
async def test_calls_that_a_callback_makes_are_not_made_again_in_a_new_process(
    provider: Provider, witness: Witness, store: str, where: str
) -> None:
    """D30: they have no id, and are known by their place."""

    def calls() -> LlmResponse:
        given = {"log": witness.log, "word": "once"}
        parts = [types.Part(function_call=types.FunctionCall(name="note_down", args=given)) for _ in range(2)]
        return LlmResponse(content=types.Content(role="model", parts=parts))

    def before(callback_context: Any, llm_request: Any) -> LlmResponse | None:
        return calls() if len(llm_request.contents) == 1 else None

    def after(callback_context: Any, llm_response: LlmResponse) -> LlmResponse | None:
        parts = llm_response.content.parts if llm_response.content and llm_response.content.parts else []
        return calls() if any(part.text == "Note it." for part in parts) else None

    def made() -> Any:
        callback: Any = {"before_model_callback": before} if where == "before" else {"after_model_callback": after}
        asked = model(provider.openai_url, str(provider.key))
        return interruptible(LlmAgent(name="notes", model=asked, tools=[note_down], **callback))

    provider.play([*([Reply("Note it.")] if where == "after" else []), SLOW, Reply("Done.")])
    asked = 2 if where == "after" else 1
    agent = made()
    async with Runtime(store, agents=[agent]) as runtime:
        run = await runtime.start(agent, "Go.")
        await provider.until(lambda log: len(log) == asked and log[-1].tokens_sent >= 3, timeout=120)
        await run.pause()
    agent = made()
    async with asyncio.timeout(120), Runtime(store, agents=[agent]) as runtime:
        run = await runtime.get(run.id)
        await run.resume()
        assert await run.result() == "Done."

    assert witness.words() == ["once", "once"]
