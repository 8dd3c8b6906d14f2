"""Agents of Google ADK for the contract. They ask Gemini, whose provider leaves the ids of calls out."""

from __future__ import annotations

import json
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.models import Gemini
from google.adk.runners import InMemoryRunner
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types
from pydantic import BaseModel

from checkrein.adapters.bridge import AdaptedAgent, Rules
from checkrein.adapters.google_adk import interruptible
from checkrein.testing.provider import Reply
from tests.adapters.clients import closed_with_the_test
from tests.adapters.tools import fails, note_down, publish, quickly, slowly, take_back, tick
from tests.support.witness import note

PACKAGES = ("google",)
MODEL = "google:gemini-2.5-flash"
TASK = {"request": "Note it."}
TELLS_FAILURES = False
"""Whether a tool that fails is told to the model; else the run fails."""


class City(BaseModel):
    city: str
    people: int


def with_context(word: str, tool_context: ToolContext) -> str:
    """Write a word down where the state says."""
    note(tool_context.state["log"], f"context {word}")
    tool_context.state["seen"] = word
    return "seen"


def model(url: str, key: str) -> Gemini:
    made = Gemini(model="gemini-2.5-flash", base_url=url.removesuffix("/v1"), client_kwargs={"api_key": str(key)})

    async def close() -> None:
        if "api_client" in vars(made):
            await made.api_client.aio.aclose()

    closed_with_the_test(close)
    return made


def plain(url: str, key: str, *, instructions: str = "Help.") -> LlmAgent:
    """The agent as its author has it, without a word of Checkrein."""
    return LlmAgent(
        name="support",
        model=model(url, key),
        instruction=instructions,
        tools=[
            note_down,
            tick,
            slowly,
            quickly,
            fails,
            FunctionTool(publish, require_confirmation=True),
            with_context,
        ],
    )


def adapted(url: str, key: str, log: str, *, instructions: str = "Help.") -> AdaptedAgent:
    return wrapped(plain(url, key, instructions=instructions), log)


def wrapped(agent: LlmAgent, log: str) -> AdaptedAgent:
    rules = {"note_down": Rules(undo=take_back, changes="the note {word}"), "quickly": Rules(effect="none")}
    return interruptible(agent, deps={"log": log}, tools=rules)


async def run_plain(agent: LlmAgent, goal: str, log: str) -> str:
    runner = InMemoryRunner(app=App(name="plain", root_agent=agent))
    session = await runner.session_service.create_session(app_name="plain", user_id="u", state={"log": log})
    asked = types.Content(role="user", parts=[types.Part(text=goal)])
    said = ""
    async for event in runner.run_async(user_id="u", session_id=session.id, new_message=asked):
        if event.content:
            said = "".join(part.text or "" for part in event.content.parts or ())
    return said


def looks(agent: LlmAgent) -> dict[str, str]:
    """Everything that the agent's object holds, as far as it can be told apart."""
    return {name: repr(value) for name, value in vars(agent).items()} | {
        f"tool {n}": repr(getattr(tool, "__dict__", tool)) for n, tool in enumerate(agent.tools)
    }


def nameless() -> LlmAgent:
    agent = LlmAgent(name="x")
    agent.name = ""
    return agent


def typed_replies(fields: dict[str, Any]) -> list[Reply]:
    """How a model gives a typed output: as JSON."""
    return [Reply([json.dumps(fields)])]


def typed(url: str, key: str) -> tuple[AdaptedAgent, Any]:
    """An agent with a typed output, and the value it is to give."""
    agent = LlmAgent(name="typed", model=model(url, key), output_schema=City)
    return interruptible(agent), City(city="Bern", people=144_000)


def nested(url: str, key: str, log: str) -> list[AdaptedAgent]:
    """An agent that has another one as a tool."""
    below = LlmAgent(name="delegate", model=model(url, key), tools=[note_down])
    return [interruptible(LlmAgent(name="above", model=model(url, key), tools=[AgentTool(below)]))]
