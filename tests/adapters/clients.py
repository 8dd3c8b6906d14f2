"""The vendor's clients that a test's agents use: closed with the test, on its own event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from openai import AsyncOpenAI

_closes: list[Callable[[], Awaitable[Any]]] = []


def client(url: str, key: str) -> AsyncOpenAI:
    made = AsyncOpenAI(base_url=url, api_key=key, max_retries=0)
    closed_with_the_test(made.close)
    return made


def closed_with_the_test(close: Callable[[], Awaitable[Any]]) -> None:
    _closes.append(close)


async def close() -> None:
    while _closes:
        await _closes.pop()()
