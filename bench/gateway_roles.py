"""The processes of the benchmark `gateway`, each measured by itself.

python -m bench.gateway_roles gateway URL STORE
python -m bench.gateway_roles read|openai URL KEY STREAMS

The first is a run with a gateway to URL; the others are programs that ask for as many streams as they are told. Each
prints a line when it is ready, and answers lines on its standard input with one line of JSON each:

    cpu      processor seconds of this process so far, and when that was
    cancel   (gateway) cancels the run: when that was asked for
    heard    (read) for each stream when it was asked for, when its first byte came, and when each token did
    end      ends it
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from bench.actors import CAPS

MODEL: Final = "gpt-4o"
TOKEN: Final = b'"content":" '
Answer = Callable[[str], Awaitable[Any]]


def question(number: int) -> str:
    return f"Talk, number {number}."


async def gateway(url: str, store: str) -> None:
    from checkrein import Context, Runtime, agent
    from checkrein.gateway import Gateway

    opened: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @agent(stop_when=CAPS)
    async def program(ctx: Context, goal: str) -> None:
        async with Gateway(ctx, upstreams={"openai": url}) as made:
            opened.set_result(made.urls["openai"])
            await asyncio.Event().wait()

    async with Runtime(store) as runtime:
        run = await runtime.start(program, "Serve.")
        _say(await opened)

        async def answer(asked: str) -> Any:
            at = time.monotonic()
            await run.cancel(wait=60.0)
            return {"at": at, "settled": time.monotonic()}

        await _serve(answer)


class Heard:
    """What one stream brought, and when."""

    def __init__(self) -> None:
        self.asked_at = self.first_at = 0.0
        self.tokens: list[float] = []

    def record(self) -> dict[str, Any]:
        return {"asked_at": self.asked_at, "first_at": self.first_at, "tokens": self.tokens}


async def read(url: str, key: str, streams: str) -> None:
    """Bytes that nobody looks into, except to count them."""
    import aiohttp

    headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}
    heard = [Heard() for _ in range(int(streams))]

    async def one(session: aiohttp.ClientSession, number: int) -> None:
        asked = {"model": MODEL, "stream": True, "messages": [{"role": "user", "content": question(number)}]}
        mine, body = heard[number], json.dumps(asked)
        mine.asked_at = time.monotonic()
        async with session.post(f"{url}/chat/completions", data=body, headers=headers) as response:
            while data := await response.content.readany():
                now = time.monotonic()
                mine.first_at = mine.first_at or now
                mine.tokens += [now] * data.count(TOKEN)

    async def answer(asked: str) -> Any:
        return [one.record() for one in heard]

    connector, forever = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=forever) as session:
        reading = [asyncio.create_task(one(session, number)) for number in range(len(heard))]
        await _all_begun(lambda: all(one.tokens for one in heard))
        await _serve(answer)
        await _ended(reading)


async def openai(url: str, key: str, streams: str) -> None:
    """The plain loop of the `openai` package, that prints."""
    from openai import AsyncOpenAI

    begun: set[int] = set()

    async def one(client: AsyncOpenAI, number: int) -> None:
        asked: Any = {"model": MODEL, "messages": [{"role": "user", "content": question(number)}], "stream": True}
        async for chunk in await client.chat.completions.create(**asked):
            if chunk.choices and (text := chunk.choices[0].delta.content):
                print(text, end="", file=nowhere)
                begun.add(number)

    async def answer(asked: str) -> Any:
        return None

    with Path(os.devnull).open("w") as nowhere:  # noqa: ASYNC230 - it takes no time
        async with AsyncOpenAI(base_url=url, api_key=key) as client:
            reading = [asyncio.create_task(one(client, number)) for number in range(int(streams))]
            await _all_begun(lambda: len(begun) == len(reading))
            await _serve(answer)
            await _ended(reading)


async def _all_begun(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(90):
        while not holds():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.02)
    _say("flows")


async def _ended(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _serve(answer: Answer) -> None:
    while (asked := (await asyncio.to_thread(sys.stdin.readline)).strip()) not in ("", "end"):
        if asked == "cpu":
            _say({"cpu": time.process_time(), "at": time.monotonic()})
        else:
            _say(await answer(asked))


def _say(value: Any) -> None:
    print(json.dumps(value), flush=True)


if __name__ == "__main__":
    ROLES = {"gateway": gateway, "read": read, "openai": openai}
    asyncio.run(ROLES[sys.argv[1]](*sys.argv[2:]))  # type: ignore[operator]
