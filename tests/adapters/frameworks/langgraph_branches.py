"""Graphs of one's own: three branches by `Send`, and a loop of a model and a `ToolNode`."""

from __future__ import annotations

import asyncio
import operator
from pathlib import Path
from typing import Annotated, Any

from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Send

from checkrein.adapters.bridge import AdaptedAgent
from checkrein.adapters.langgraph import interruptible, reined
from tests.adapters.frameworks.langgraph import model
from tests.adapters.tools import note_down

WORDS = ("one", "two", "three")


class State(MessagesState):
    answers: Annotated[list[str], operator.add]


def adapted(url: str, key: str, log: str) -> AdaptedAgent:
    """Each branch asks about its word and writes it down. With the file `<log>.reversed` the last asks first."""
    asked, noted = reined(model(url, key)), reined(note_down)
    turns = {word: asyncio.Event() for word in WORDS}
    order = WORDS[::-1] if Path(f"{log}.reversed").exists() else WORDS

    def split(state: State) -> list[Send]:
        return [Send("branch", {"word": word}) for word in WORDS]

    async def branch(state: dict[str, str]) -> Any:
        word, place = state["word"], order.index(state["word"])
        if place > 0:
            await turns[order[place - 1]].wait()
        asking = asyncio.ensure_future(asked.ainvoke(f"What of {word}?"))
        await asyncio.sleep(0)  # it begins, and then it is the next one's turn
        turns[word].set()
        said = await asking
        done = await noted.ainvoke({"log": log, "word": word})
        return {"answers": [f"{done}: {said.text}"]}

    def join(state: State) -> Any:
        return {"messages": [AIMessage(", ".join(state["answers"]))]}

    graph: Any = StateGraph(State)
    graph.add_node("branch", branch)
    graph.add_node("join", join)
    graph.add_conditional_edges(START, split, ["branch"])
    graph.add_edge("branch", "join")
    return interruptible(graph.compile(), name="branches")


def loop(url: str, key: str) -> Any:
    """A model and a node of tools, as one writes an agent by hand."""
    noted = reined(note_down)
    asked = reined(model(url, key)).bind_tools([noted])

    async def answer(state: MessagesState) -> Any:
        return {"messages": [await asked.ainvoke(state["messages"])]}

    graph: Any = StateGraph(MessagesState)
    graph.add_node("answer", answer)
    graph.add_node("tools", ToolNode([noted]))
    graph.add_edge(START, "answer")
    graph.add_conditional_edges("answer", tools_condition)
    graph.add_edge("tools", "answer")
    return graph.compile(name="by_hand")
