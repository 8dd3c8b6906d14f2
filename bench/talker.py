"""The agent that `streamed_tokens` serves. Address and key of its model are in the environment, as they usually are."""

from __future__ import annotations

from checkrein import Agent

talker = Agent("talker", model="openai:gpt-4o", loops=False)
