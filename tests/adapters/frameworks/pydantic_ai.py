"""Agents of Pydantic AI for the contract."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic_ai import Agent, RunContext
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from checkrein.adapters.bridge import AdaptedAgent, Rules
from checkrein.adapters.pydantic_ai import interruptible, reins
from checkrein.testing.provider import Reply
from tests.adapters.clients import client
from tests.adapters.tools import fails, note_down, publish, quickly, slowly, take_back, tick
from tests.support.witness import note

PACKAGES = ("pydantic_ai", "openai")
TASK = {"task": "Note it."}
MODEL = "openai:gpt-5"
TELLS_FAILURES = False
"""Whether a tool that fails is told to the model; else the run fails."""


class City(BaseModel):
    city: str
    people: int


@dataclass
class Deps:
    log: str


def model(url: str, key: str) -> OpenAIChatModel:
    return OpenAIChatModel("gpt-5", provider=OpenAIProvider(openai_client=client(url, key)))


def plain(url: str, key: str, *, instructions: str = "Help.") -> Agent[Deps, Any]:
    """The agent as its author has it, without a word of Checkrein."""
    agent = Agent(
        model(url, key),
        name="support",
        deps_type=Deps,
        instructions=instructions,
        tools=[note_down, tick, slowly, quickly, fails],
    )
    agent.tool_plain(requires_approval=True)(publish)

    @agent.tool
    def with_context(ctx: RunContext[Deps], word: str) -> str:
        """Write a word down where the dependencies say."""
        note(ctx.deps.log, f"context {word}")
        return "seen"

    return agent


def adapted(url: str, key: str, log: str, *, instructions: str = "Help.") -> AdaptedAgent:
    return wrapped(plain(url, key, instructions=instructions), log)


def wrapped(agent: Agent[Deps, Any], log: str) -> AdaptedAgent:
    rules = {"note_down": Rules(undo=take_back, changes="the note {word}"), "quickly": Rules(effect="none")}
    return interruptible(agent, deps=Deps(log), tools=rules)


async def run_plain(agent: Agent[Deps, Any], goal: str, log: str) -> str:
    return str((await agent.run(goal, deps=Deps(log))).output)


def looks(agent: Agent[Deps, Any]) -> dict[str, str]:
    """Everything that the agent's object holds, as far as it can be told apart."""
    return {name: repr(value) for name, value in vars(agent).items()} | {
        f"tool {name}": repr(vars(tool)) for one in agent.toolsets for name, tool in getattr(one, "tools", {}).items()
    }


def nameless() -> Agent[None, str]:
    return Agent("test")


def typed_replies(fields: dict[str, Any]) -> list[Reply]:
    """How a model gives a typed output: it calls a tool for it."""
    return [Reply("", calls=[("final_result", fields)])]


def typed(url: str, key: str) -> tuple[AdaptedAgent, Any]:
    """An agent with a typed output, and the value it is to give."""
    agent = Agent(model(url, key), name="typed", output_type=City)
    return interruptible(agent), City(city="Bern", people=144_000)


def nested(url: str, key: str, log: str) -> list[AdaptedAgent]:
    """An agent one of whose tools runs another one."""
    below = Agent(model(url, key), name="below", tools=[note_down])
    above: Agent[None, str] = Agent(model(url, key), name="above")

    @above.tool_plain
    async def delegate(task: str) -> str:
        """Hand a task over."""
        return (await below.run(task, capabilities=[reins()])).output

    return [interruptible(above, inline=["delegate"])]
