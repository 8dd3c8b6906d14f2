"""An agent of Google ADK whose model leaves the ids of calls out, also where ADK has put some in."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm

from checkrein.adapters.bridge import AdaptedAgent, Rules
from checkrein.adapters.google_adk import interruptible
from tests.adapters.frameworks.google_adk import model
from tests.adapters.tools import call_off, draw, order


class WithoutIds(BaseLlm):
    inner: BaseLlm

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncGenerator[Any, None]:
        async for answer in self.inner.generate_content_async(llm_request, stream=stream):
            for part in (answer.content.parts if answer.content else None) or ():
                if part.function_call:
                    part.function_call.id = None
            yield answer


def adapted(url: str, key: str, log: str) -> AdaptedAgent:
    asked = WithoutIds(model="gemini-2.5-flash", inner=model(url, key))
    agent = LlmAgent(name="cards", model=asked, tools=[draw, order])
    return interruptible(agent, tools={"order": Rules(undo=call_off)})
