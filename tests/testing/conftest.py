"""What the tests of the provider share: asyncio, and the real clients of both wires."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from hypothesis import settings

from checkrein.testing.provider import Provider

if TYPE_CHECKING:  # they take seconds to import, and pytest reads this file also for tests of other folders
    from anthropic import AsyncAnthropic
    from openai import AsyncOpenAI

settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if "CI" in os.environ else "here")


Client = TypeVar("Client", "AsyncOpenAI", "AsyncAnthropic")


@asynccontextmanager
async def clients(kind: type[Client], url: str) -> AsyncGenerator[Callable[..., Client], None]:
    """Makes clients for a provider, at that `url` of it; all are closed at the end."""
    async with AsyncExitStack() as open_clients:

        def client(provider: Provider, **options: Any) -> Client:
            made = kind(**{"base_url": getattr(provider, url), "api_key": provider.key, "max_retries": 0, **options})
            open_clients.push_async_callback(made.close)
            return made

        yield client


@pytest.fixture
async def openai() -> AsyncIterator[Callable[..., AsyncOpenAI]]:
    """The real client for a provider, with the right key and without retries of its own, unless told otherwise."""
    from openai import AsyncOpenAI

    async with clients(AsyncOpenAI, "openai_url") as client:
        yield client


@pytest.fixture
async def anthropic() -> AsyncIterator[Callable[..., AsyncAnthropic]]:
    """The same for the other wire."""
    from anthropic import AsyncAnthropic

    async with clients(AsyncAnthropic, "anthropic_url") as client:
        yield client
