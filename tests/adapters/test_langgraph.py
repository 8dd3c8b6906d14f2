"""What only LangGraph has: graphs without reins, and interrupts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.tools import tool
from langchain_core.outputs import ChatGenerationChunk
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

from checkrein import Run, RunFailed, Runtime
from checkrein.adapters.langgraph import Reins, Rules, interruptible, reined
from checkrein.core.enums import Status
from checkrein.errors import MisuseError
from checkrein.testing.provider import Provider, Reply, Request
from tests.adapters.contract.test_drills import SLOW, driven_elsewhere, kill, use
from tests.adapters.frameworks import langgraph_branches
from tests.adapters.frameworks.langgraph import model
from tests.adapters.tools import call_off, note_down, order
from tests.support.runs import until_status
from tests.support.witness import Witness

pytestmark = pytest.mark.anyio


def test_a_compiled_graph_without_reins_is_refused_with_the_line_to_write() -> None:
    graph = create_agent(model("http://127.0.0.1:1/v1", "key"), [note_down], name="support")

    with pytest.raises(MisuseError, match=r"has no reins.*create_agent\(…, middleware=\[Reins\(\)\]\)") as refused:
        interruptible(graph)

    assert refused.value.message.count(". ") == 0, "one sentence"


def questions(provider: Provider) -> Any:
    """An agent with a tool that puts questions to a person, by the framework's own `interrupt`."""

    @tool
    async def ask_for(what: str) -> str:
        """Ask a person."""
        return f"{what}: {interrupt({'which': what})}"

    asked = model(provider.openai_url, str(provider.key))
    graph = create_agent(asked, [ask_for, note_down], name="asks", middleware=[Reins()])
    return interruptible(graph, inline=["ask_for"])


async def question_of(run: Run[Any]) -> str:
    await until_status(run, Status.PAUSED)
    (need,) = (await run.view()).waiting
    assert need.kind == "question"
    return need.what


async def test_an_interrupt_is_needs_you_and_its_answer_survives_restarts(
    provider: Provider, witness: Witness, store: str
) -> None:
    """D29 D37: each of two questions at once gets its own answer; nothing before them is done again."""
    provider.play(
        [
            use(("note_down", {"log": witness.log, "word": "first"})),
            use(("ask_for", {"what": "colour"}), ("ask_for", {"what": "size"})),
            Reply("Blue it is."),
        ]
    )
    agent = questions(provider)
    async with Runtime(store, agents=[agent]) as runtime:
        run = await runtime.start(agent, "Paint.")
        assert "colour" in await question_of(run)
    agent = questions(provider)
    async with Runtime(store, agents=[agent]) as runtime:
        run = await runtime.get(run.id)
        assert "colour" in await question_of(run)
        await run.resume("blue")
        assert "size" in await question_of(run)
    agent = questions(provider)
    async with Runtime(store, agents=[agent]) as runtime:
        run = await runtime.get(run.id)
        await run.resume("large")
        assert await run.result() == "Blue it is."

    assert witness.words() == ["first"]
    assert len(provider.log) == 3
    told = [one["content"] for one in provider.log[2].messages if one["role"] == "tool"]
    assert told == ["noted first", "colour: blue", "size: large"]


def test_a_graph_of_ones_own_without_reins_is_refused() -> None:
    asked = model("http://127.0.0.1:1/v1", "key")

    async def answer(state: MessagesState) -> Any:
        return {"messages": [await asked.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState).add_node(answer).add_edge(START, "answer").compile()
    with pytest.raises(MisuseError, match=r"reined\(model\) and reined\(tool\)"):
        interruptible(graph, name="own")
    with pytest.raises(MisuseError, match="takes a chat model or a tool"):
        reined(7)  # type: ignore[call-overload]


@pytest.mark.parametrize("what", ["model", "tool"])
async def test_a_node_that_waits_for_its_work_in_a_thread_is_refused_with_the_line_to_write(
    what: str, provider: Provider, witness: Witness
) -> None:
    used: Any = reined(note_down) if what == "tool" else reined(model(provider.openai_url, str(provider.key)))
    given: Any = {"log": witness.log, "word": "x"} if what == "tool" else "Hello?"

    def blocks(state: MessagesState) -> Any:
        return {"messages": [used.invoke(given)]}

    graph = StateGraph(MessagesState).add_node(blocks).add_edge(START, "blocks").compile()
    agent = interruptible(graph, name="blocks")
    async with Runtime("memory:", agents=[agent]) as runtime:
        run = await runtime.start(agent, "Go.")
        with pytest.raises(RunFailed, match=rf"a reined {what} in a thread: write async def and await {what}\.ainvoke"):
            await run.result()

    assert (provider.log, witness.words()) == ([], [])


async def test_branches_by_send_get_their_own_answers_back_in_a_new_process(
    provider: Provider, witness: Witness, store: str
) -> None:
    """D28 D29 D30: two of three branches are answered before pause and kill. In the new process they ask in another
    order, as branches may: a plain counter would give each the answer of another."""
    answered, backwards = asyncio.Event(), Path(f"{witness.log}.reversed")
    backwards.touch()

    async def first(request: Request) -> Reply:
        word = str(request.messages[-1]["content"]).removeprefix("What of ").removesuffix("?")
        if word == "one":
            return SLOW
        if word == "two":
            await answered.wait()
        answered.set()
        return Reply(f"Of {word}.")

    provider.play(first)
    async with (
        driven_elsewhere(langgraph_branches, store, provider, witness.log) as (process, id),
        Runtime(store) as other,
    ):
        await provider.until(lambda log: any(not one.how and one.tokens_sent >= 5 for one in log), timeout=120)
        run = await other.get(id)
        while [one.now for one in (await run.view()).calls if one.name == "openai:gpt-5"].count("completed") < 2:
            await asyncio.sleep(0.05)
        await run.pause()
        await kill(process)

    backwards.unlink()
    provider.play([Reply("Of one.")])
    agent = langgraph_branches.adapted(provider.openai_url, str(provider.key), witness.log)
    async with Runtime(store, agents=[agent]) as runtime:
        run = await runtime.get(id)
        await run.resume()
        assert await run.result() == ", ".join(f"noted {word}: Of {word}." for word in langgraph_branches.WORDS)

    assert sorted(witness.words()) == sorted(langgraph_branches.WORDS)
    assert len(provider.log) == 4, "what was answered is not asked again"
    assert provider.log[3].messages[-1]["content"] == "What of one?"


async def test_a_graph_of_ones_own_is_redirected_and_does_what_it_did_without_checkrein(
    provider: Provider, witness: Witness
) -> None:
    """D21 D38: what a person said stays where it was said, in all later requests."""
    noting = use(("note_down", {"log": witness.log, "word": "un"}))
    provider.play([SLOW, noting, Reply("Fini.")])
    graph = langgraph_branches.loop(provider.openai_url, str(provider.key))
    agent = interruptible(graph)
    async with Runtime("memory:", agents=[agent]) as runtime:
        run = await runtime.start(agent, "Talk.")
        await provider.until(lambda log: bool(log) and log[0].tokens_sent >= 5, timeout=120)
        await run.redirect("In French.")
        assert await run.result() == "Fini."

    for request in provider.log[1:]:
        said = [(one["role"], str(one.get("content"))) for one in request.messages[:3]]
        assert [role for role, _ in said] == ["user", "assistant", "user"]
        assert said[1][1].startswith("word0")
        assert said[2][1] == "In French."
    provider.play([noting, Reply("Fini.")])
    state = await graph.ainvoke({"messages": [("user", "Talk.")]})
    assert state["messages"][-1].text == "Fini."
    assert witness.words() == ["un", "un"]


class Forgetful(ChatOpenAI):
    """Its fifth piece comes together with a cancellation, which is forgotten, as `asyncio.wait_for` of Python 3.11 does
    it. `hears` ends one that forgets every cancellation."""

    always: bool
    hears: Any

    async def _astream(self, *given: Any, **options: Any) -> AsyncIterator[ChatGenerationChunk]:
        pieces = 0
        async for piece in super()._astream(*given, **options):
            pieces += 1
            while pieces == 5 and not self.hears.is_set():
                try:
                    await self.hears.wait()
                except asyncio.CancelledError:
                    if not self.always:
                        self.hears.set()
            yield piece


@asynccontextmanager
async def cancelled_with_a_piece(provider: Provider, *, always: bool) -> AsyncIterator[Any]:
    provider.play([SLOW])
    usual, hears = model(provider.openai_url, str(provider.key)), asyncio.Event()
    said = {field: getattr(usual, field) for field in ("async_client", "root_async_client", "max_retries")}
    made = Forgetful(model="gpt-5", api_key="unused", always=always, hears=hears, **said)  # type: ignore[arg-type]
    agent = interruptible(create_agent(made, [], name="forgets", middleware=[Reins()]))
    async with Runtime("memory:", agents=[agent]) as runtime:
        run = await runtime.start(agent, "Talk.")
        await provider.until(lambda log: bool(log) and log[0].tokens_sent >= 10, timeout=120)
        yield await run.cancel()
        hears.set()


async def test_a_cancel_that_comes_together_with_a_token_closes_the_stream_all_the_same(provider: Provider) -> None:
    """D2 D3 D12: the client forgets it, goes on reading, and is told again."""
    async with cancelled_with_a_piece(provider, always=False) as receipt:
        await provider.until(lambda log: bool(log[0].how), timeout=120)

        assert provider.log[0].how == "disconnected"
        assert [call.now for call in receipt.calls] == ["aborted"]
        assert receipt.tokens_after_stop == 0


async def test_a_client_that_hears_no_cancel_is_not_said_to_be_stopped(provider: Provider) -> None:
    """D2: *detached*, since the provider may go on."""
    async with cancelled_with_a_piece(provider, always=True) as receipt:
        assert [call.now for call in receipt.calls] == ["detached"]


async def test_an_undo_is_given_what_the_tool_returned(provider: Provider, witness: Witness) -> None:
    """D33: also of a tool that runs in this process, where the message that LangChain made of it is recorded."""
    Path(f"{witness.log}.go").touch()
    provider.play([use(("order", {"log": witness.log, "what": "moss"})), SLOW])
    graph = create_agent(model(provider.openai_url, str(provider.key)), [order], name="orders", middleware=[Reins()])
    agent = interruptible(graph, tools={"order": Rules(undo=call_off)})
    async with Runtime("memory:", agents=[agent]) as runtime:
        run = await runtime.start(agent, "Go.")
        await provider.until(lambda log: len(log) == 2 and log[1].tokens_sent >= 3, timeout=120)
        await run.cancel()

    assert witness.words() == ["order moss", "called off {'number': 7, 'what': 'moss'}"]


async def test_arguments_that_a_tool_does_not_take_are_told_to_the_model(provider: Provider, witness: Witness) -> None:
    """As without Checkrein: the model may mend them."""
    graph = create_agent(model(provider.openai_url, str(provider.key)), [note_down], name="notes", middleware=[Reins()])
    agent = interruptible(graph)
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
    assert "Error invoking tool 'note_down'" in str(provider.log[1].messages[-1])
