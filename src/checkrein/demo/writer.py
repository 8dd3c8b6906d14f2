"""The agent of `checkrein demo --real`: a small model that writes, and can use no tools."""

from __future__ import annotations

import os

from checkrein.agents.agent import Agent
from checkrein.core.conditions import Elapsed, Tokens, Turns
from checkrein.models.messages import Settings
from checkrein.models.openai import OpenAIModel

writer = Agent(
    "writer",
    model=OpenAIModel("smollm2", base_url=os.environ["CHECKREIN_DEMO_ENGINE"], api_key="none"),
    instructions="You are a writer. You write long stories in plain words.",
    stop_when=Turns(20) | Tokens(20_000) | Elapsed(minutes=20),
    settings=Settings(max_tokens=1_500, temperature=0.7),
)
