"""Graphs of one's own: three branches by `Send`, and a loop of a model and a `ToolNode`."""

from __future__ import annotations

import operator
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
    """Each branch writes its word down and asks about it."""
    asked, noted = reined(model(url, key)), reined(note_down)

    def split(state: State) -> list[Send]:
        return [Send("branch", {"word": word}) for word in WORDS]

    async def branch(state: dict[str, str]) -> Any:
        done = await noted.ainvoke({"log": log, "word": state["word"]})
        said = await asked.ainvoke(f"What of {state['word']}?")
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
