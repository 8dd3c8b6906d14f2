"""The vendor's clients that a test's agents use: closed with the test, on its own event loop."""

from __future__ import annotations

from openai import AsyncOpenAI

made: list[AsyncOpenAI] = []


def client(url: str, key: str) -> AsyncOpenAI:
    made.append(AsyncOpenAI(base_url=url, api_key=key, max_retries=0))
    return made[-1]


async def close() -> None:
    while made:
        await made.pop().close()
