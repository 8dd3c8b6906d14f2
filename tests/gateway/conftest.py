"""What the tests of the gateway share: a run with a gateway, a provider behind it, and the vendors' own clients."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from unittest.mock import patch

import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from checkrein import Context, Run, Runtime, agent
from checkrein.control.view import RunView
from checkrein.gateway import Gateway, exchange
from checkrein.models.base import Delta, TextDelta, ThinkingDelta, ToolCallDelta
from checkrein.testing.provider import Provider
from checkrein.testing.provider.scenario import Script

_NUMBERS = itertools.count()


class Scene:
    """A run whose program does nothing but keep a gateway open, and what stands on both sides of it."""

    def __init__(
        self, provider: Provider, run: Run[Any], gateway: Gateway, clients: AsyncExitStack, passed: Passed
    ) -> None:
        self._passed = passed
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

    async def has_passed(self, pieces: int, calls: int = 0) -> None:
        """Until so many pieces of text and thinking, and so many calls, of all answers together, have come to the
        gateway: what a client is to have of them is written in the same turn of the event loop."""
        async with asyncio.timeout(90):
            while self._passed.pieces < pieces or len(self._passed.calls) < calls:
                await asyncio.sleep(0.005)

    async def recorded(self, calls: int) -> RunView:
        """The run, once so many calls of it are over: a client has its answer a moment before that is recorded."""
        async with asyncio.timeout(90):
            while True:
                view = await self.run.view()
                if sum(call.now != "running" for call in view.calls) >= calls:
                    return view
                await asyncio.sleep(0.02)


class Passed:
    """Counts what the gateway reads of answers."""

    def __init__(self) -> None:
        self.pieces = 0
        self.calls: set[int] = set()
        self._read = exchange._deltas

    def __call__(self, reader: Any, frame: Any) -> list[Delta]:
        deltas = self._read(reader, frame)
        self.pieces += sum(isinstance(delta, TextDelta | ThinkingDelta) and bool(delta.text) for delta in deltas)
        self.calls |= {delta.index for delta in deltas if isinstance(delta, ToolCallDelta)}
        return deltas


@asynccontextmanager
async def scene(script: Script, **options: Any) -> AsyncIterator[Scene]:
    made: asyncio.Future[Gateway] = asyncio.get_running_loop().create_future()
    passed = Passed()
    async with Provider(script) as provider, Runtime("memory:") as runtime, AsyncExitStack() as clients:
        clients.enter_context(patch.object(exchange, "_deltas", passed))
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
        yield Scene(provider, run, made.result(), clients, passed)
        ended.cancel()


@pytest.fixture
def begin() -> Callable[..., Any]:
    return scene
