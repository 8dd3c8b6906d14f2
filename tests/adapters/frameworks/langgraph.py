"""Agents of LangGraph for the contract."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from langchain.agents import create_agent
from langchain.agents.structured_output import ToolStrategy
from langchain.tools import ToolRuntime, tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

from checkrein.adapters.bridge import AdaptedAgent, Rules
from checkrein.adapters.langgraph import Reins, interruptible
from checkrein.testing.provider import Reply
from tests.adapters.clients import client
from tests.adapters.tools import fails, note_down, publish, quickly, slowly, take_back, tick
from tests.support.witness import note

TASK = {"task": "Note it."}
PACKAGES = ("langgraph", "langchain", "langchain_core", "openai")
MODEL = "openai:gpt-5"
TELLS_FAILURES = False
"""Whether a tool that fails is told to the model; else the run fails."""


class City(BaseModel):
    """The city."""

    city: str
    people: int


@dataclass
class Deps:
    log: str


@tool
def with_context(word: str, runtime: ToolRuntime[Deps]) -> str:
    """Write a word down where the context says."""
    note(runtime.context.log, f"context {word}")
    return "seen"


def model(url: str, key: str) -> ChatOpenAI:
    made = client(url, key)
    return ChatOpenAI(
        model="gpt-5",
        base_url=url,
        api_key=key,  # type: ignore[arg-type]
        max_retries=0,
        async_client=made.chat.completions,
        root_async_client=made,
    )


def plain(url: str, key: str, *, instructions: str = "Help.") -> Any:
    """The agent as its author has it, with reins."""
    return create_agent(
        model(url, key),
        [note_down, tick, slowly, quickly, fails, publish, with_context],
        system_prompt=instructions,
        context_schema=Deps,
        name="support",
        middleware=[Reins()],
    )


def adapted(url: str, key: str, log: str, *, instructions: str = "Help.") -> AdaptedAgent:
    return wrapped(plain(url, key, instructions=instructions), log)


def wrapped(graph: Any, log: str) -> AdaptedAgent:
    rules = {
        "note_down": Rules(undo=take_back, changes="the note {word}"),
        "quickly": Rules(effect="none"),
        "publish": Rules(approval="block"),
    }
    return interruptible(graph, deps=Deps(log), tools=rules)


async def run_plain(graph: Any, goal: str, log: str) -> str:
    state = await graph.ainvoke({"messages": [("user", goal)]}, context=Deps(log))
    return str(state["messages"][-1].text)


def looks(graph: Any) -> dict[str, str]:
    """Everything that the graph's object holds, as far as it can be told apart."""
    return {name: repr(value) for name, value in vars(graph).items()} | {
        f"node {name}": repr(vars(node)) for name, node in graph.nodes.items()
    }


def nameless() -> Any:
    return create_agent(model("http://127.0.0.1:1/v1", "key"), [], middleware=[Reins()])


def typed_replies(fields: dict[str, Any]) -> list[Reply]:
    """How a model gives a typed output: it calls a tool for it."""
    return [Reply("", calls=[("City", fields)])]


def typed(url: str, key: str) -> tuple[AdaptedAgent, Any]:
    """An agent with a typed output, and the value it is to give."""
    graph = create_agent(model(url, key), [], name="typed", response_format=ToolStrategy(City), middleware=[Reins()])
    return interruptible(graph, output=City), City(city="Bern", people=144_000)


def nested(url: str, key: str, log: str) -> list[AdaptedAgent]:
    """An agent one of whose tools runs another one."""
    below: Any = create_agent(model(url, key), [note_down], name="below", middleware=[Reins()])

    @tool
    async def delegate(task: str) -> str:
        """Hand a task over."""
        state = await below.ainvoke({"messages": [("user", task)]})
        return str(state["messages"][-1].text)

    above = create_agent(model(url, key), [delegate], name="above", middleware=[Reins()])
    return [interruptible(above, inline=["delegate"])]
