"""What the tests of the gateway share: a run with a gateway, a provider behind it, and the vendors' own clients."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from checkrein import Context, Run, Runtime, agent
from checkrein.gateway import Gateway
from checkrein.testing.provider import Provider
from checkrein.testing.provider.scenario import Script

_NUMBERS = itertools.count()


class Scene:
    """A run whose program does nothing but keep a gateway open, and what stands on both sides of it."""

    def __init__(self, provider: Provider, run: Run[Any], gateway: Gateway, clients: AsyncExitStack) -> None:
        self.provider = provider
        self.run = run
        self.gateway = gateway
        self._clients = clients

    def openai(self, **options: Any) -> AsyncOpenAI:
        made = AsyncOpenAI(
            **{"base_url": self.gateway.urls["openai"], "api_key": self.provider.key, "max_retries": 0, **options}
        )
        self._clients.push_async_callback(made.close)
        return made

    def anthropic(self, **options: Any) -> AsyncAnthropic:
        made = AsyncAnthropic(
            **{"base_url": self.gateway.urls["anthropic"], "api_key": self.provider.key, "max_retries": 0, **options}
        )
        self._clients.push_async_callback(made.close)
        return made

    def gemini(self) -> Any:
        from google import genai
        from google.genai import types

        options = types.HttpOptions(base_url=self.gateway.urls["gemini"])
        return genai.Client(api_key=self.provider.key, http_options=options).aio

    async def tokens(self, count: int, request: int = -1) -> None:
        """Until the provider has sent so many tokens."""
        await self.provider.until(lambda log: bool(log) and log[request].tokens_sent >= count, timeout=90)


@asynccontextmanager
async def scene(script: Script, **options: Any) -> AsyncIterator[Scene]:
    made: asyncio.Future[Gateway] = asyncio.get_running_loop().create_future()
    async with Provider(script) as provider, Runtime("memory:") as runtime, AsyncExitStack() as clients:
        upstreams = {"openai": provider.openai_url, "anthropic": provider.anthropic_url, "gemini": provider.gemini_url}

        @agent(name=f"gateway_{next(_NUMBERS)}", **options)
        async def program(ctx: Context, goal: str) -> None:
            async with Gateway(ctx, upstreams=upstreams) as gateway:
                made.set_result(gateway)
                await asyncio.Event().wait()

        run = await runtime.start(program, "Serve.")
        ended = asyncio.ensure_future(run.result())
        ended.add_done_callback(lambda _: made.done() or made.cancel())
        try:
            await asyncio.shield(made)
        except asyncio.CancelledError:
            await ended  # it says why
            raise
        yield Scene(provider, run, made.result(), clients)
        ended.cancel()


@pytest.fixture
def begin() -> Callable[..., Any]:
    return scene
