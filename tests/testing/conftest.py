"""What the tests of the provider share: asyncio, and the real clients of both wires."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from anthropic import AsyncAnthropic
from hypothesis import settings
from openai import AsyncOpenAI

from checkrein.testing.provider import Provider

settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if "CI" in os.environ else "here")


@pytest.fixture
async def openai() -> AsyncIterator[Callable[..., AsyncOpenAI]]:
    """The real client for a provider, with the right key and without retries of its own, unless told otherwise."""
    async with AsyncExitStack() as open_clients:

        def client(provider: Provider, **options: Any) -> AsyncOpenAI:
            chosen = {"base_url": provider.openai_url, "api_key": provider.key, "max_retries": 0, **options}
            made = AsyncOpenAI(**chosen)
            open_clients.push_async_callback(made.close)
            return made

        yield client


@pytest.fixture
async def anthropic() -> AsyncIterator[Callable[..., AsyncAnthropic]]:
    """The same for the other wire."""
    async with AsyncExitStack() as open_clients:

        def client(provider: Provider, **options: Any) -> AsyncAnthropic:
            chosen = {"base_url": provider.anthropic_url, "api_key": provider.key, "max_retries": 0, **options}
            made = AsyncAnthropic(**chosen)
            open_clients.push_async_callback(made.close)
            return made

        yield client
