"""Agents of the OpenAI Agents SDK for the contract."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from agents import Agent, OpenAIChatCompletionsModel, RunConfig, RunContextWrapper, Runner, function_tool
from pydantic import BaseModel

from checkrein.adapters.bridge import AdaptedAgent, Rules
from checkrein.adapters.openai_agents import interruptible
from checkrein.testing.provider import Reply
from tests.adapters.clients import client
from tests.adapters.tools import fails, note_down, publish, quickly, slowly, take_back, tick
from tests.support.witness import note

PACKAGES = ("agents", "openai")
TASK = {"input": "Note it."}
MODEL = "openai:gpt-5"
TELLS_FAILURES = True
"""Whether a tool that fails is told to the model; else the run fails."""


class City(BaseModel):
    city: str
    people: int


@dataclass
class Deps:
    log: str


def model(url: str, key: str) -> OpenAIChatCompletionsModel:
    return OpenAIChatCompletionsModel("gpt-5", client(url, key))


@function_tool
def with_context(ctx: RunContextWrapper[Deps], word: str) -> str:
    """Write a word down where the context says."""
    note(ctx.context.log, f"context {word}")
    return "seen"


def plain(url: str, key: str, *, instructions: str = "Help.") -> Agent[Deps]:
    """The agent as its author has it, without a word of Checkrein."""
    tools = [function_tool(one) for one in (note_down, tick, slowly, quickly)]
    told = function_tool(fails, failure_error_function=lambda context, error: f"Sorry: {error}")
    asks = function_tool(publish, needs_approval=True)
    return Agent(
        name="support", model=model(url, key), instructions=instructions, tools=[*tools, told, asks, with_context]
    )


def adapted(url: str, key: str, log: str, *, instructions: str = "Help.") -> AdaptedAgent:
    return wrapped(plain(url, key, instructions=instructions), log)


def wrapped(agent: Agent[Deps], log: str) -> AdaptedAgent:
    rules = {"note_down": Rules(undo=take_back, changes="the note {word}"), "quickly": Rules(effect="none")}
    return interruptible(agent, deps=Deps(log), tools=rules)


async def run_plain(agent: Agent[Deps], goal: str, log: str) -> str:
    return str(
        (await Runner.run(agent, goal, context=Deps(log), run_config=RunConfig(tracing_disabled=True))).final_output
    )


def looks(agent: Agent[Deps]) -> dict[str, str]:
    """Everything that the agent's object holds, as far as it can be told apart."""
    return {name: repr(value) for name, value in vars(agent).items()} | {
        f"tool {tool.name}": repr(vars(tool)) for tool in agent.tools
    }


def nameless() -> Agent[None]:
    return Agent(name=" ")


def typed_replies(fields: dict[str, Any]) -> list[Reply]:
    """How a model gives a typed output: as JSON."""
    return [Reply([json.dumps(fields)])]


def typed(url: str, key: str) -> tuple[AdaptedAgent, Any]:
    """An agent with a typed output, and the value it is to give."""
    return interruptible(Agent(name="typed", model=model(url, key), output_type=City)), City(
        city="Bern", people=144_000
    )


def nested(url: str, key: str, log: str) -> list[AdaptedAgent]:
    """An agent that has another one as a tool: a sub-run."""
    below = Agent(name="below", model=model(url, key), tools=[function_tool(note_down)])
    hand = below.as_tool("delegate", "Hand a task over.")
    return [interruptible(Agent(name="above", model=model(url, key), tools=[hand]))]
