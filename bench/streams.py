"""One side of `streamed_tokens`, in a process of its own: two hundred streams, and what a token costs while they flow.

python -m bench.streams SIDE URL KEY SECONDS STORE

It prints what it measured as JSON. A side imports what it needs and nothing else. Every token begins with a blank and
holds no other, so tokens are counted by their blanks, however they are put together on the way.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from typing import Final

import msgspec
import psutil

STREAMS: Final = 200
MODEL: Final = "gpt-4o"
QUESTION: Final = "Talk for a while."
PATIENCE_SECONDS: Final = 60.0
SETTLING_SECONDS: Final = 1.0
LOOK_SECONDS: Final = 0.05
OWN: Final = "own"
ROLES: Final = ("driver_main", "supervisor_main", "workers.main", "cli")
"""The modules of a server's processes; the front is the one of the command line."""


class Cost(msgspec.Struct, frozen=True):
    tokens: int
    seconds: float
    processor: float
    """Seconds of all threads of what is measured: this process, or the whole tree of a server it has started."""
    late: float
    """By how much a short sleep was too long, as a rule. Tokens that come meanwhile are read together, and cheaper."""
    reader: float = 0.0
    """Seconds of whoever reads what a server sends, which are not the server's."""
    front: float = 0.0
    """Seconds of the front of a server."""
    driver: float = 0.0
    """Seconds of its driver."""

    @property
    def per_token(self) -> float:
        return self.processor / self.tokens


class Tally:
    """What the streams have brought so far."""

    def __init__(self) -> None:
        self.tokens = 0
        self.begun: set[int] = set()
        self.tasks: list[asyncio.Task[None]] = []

    async def all_flow(self) -> None:
        """Return when every stream has begun. Raises what broke one of them."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(self.begun) < STREAMS:
                for task in self.tasks:
                    if task.done():
                        task.result()
                await asyncio.sleep(0.05)
        await asyncio.sleep(SETTLING_SECONDS)


Side = Callable[[AsyncExitStack, Tally, str, str, str], Awaitable[None]]
"""Begins all streams; what has to be ended is left to the stack."""


async def runtime(stack: AsyncExitStack, tally: Tally, url: str, key: str, store: str) -> None:
    """Everything: durable runs, their text kept in the journal, and one subscriber for each."""
    from checkrein import Agent, Runtime
    from checkrein.journal.base import Chunk
    from checkrein.models.http.selector import coalesce_reads
    from checkrein.models.openai import OpenAIModel

    coalesce_reads(asyncio.get_running_loop())  # as a driver of a server does
    agent = Agent("talker", model=OpenAIModel(MODEL, base_url=url, api_key=key), loops=False)
    opened = await stack.enter_async_context(Runtime(store))

    def subscribe(number: int, run: str) -> None:
        def told(chunk: Chunk) -> None:
            tally.tokens += chunk.text.count(" ")
            tally.begun.add(number)

        opened.listen(run, told)

    for number in range(STREAMS):
        subscribe(number, (await opened.start(agent, QUESTION)).id)


async def model(stack: AsyncExitStack, tally: Tally, url: str, key: str, store: str) -> None:
    """The model port alone, without a run around it."""
    from checkrein.models.base import TextDelta
    from checkrein.models.http.selector import coalesce_reads
    from checkrein.models.messages import Request, User
    from checkrein.models.openai import OpenAIModel

    coalesce_reads(asyncio.get_running_loop())
    asked = OpenAIModel(MODEL, base_url=url, api_key=key)

    async def read(number: int) -> None:
        async for delta in asked.stream(Request("", (User(QUESTION),))):
            if isinstance(delta, TextDelta):
                tally.tokens += delta.text.count(" ")
                tally.begun.add(number)

    _begin(stack, tally, read)


async def received(stack: AsyncExitStack, tally: Tally, url: str, key: str, store: str) -> None:
    """The HTTP library alone: bytes that nobody looks into, except to count them."""
    import aiohttp

    session = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
    body = msgspec.json.encode({"model": MODEL, "stream": True, "messages": [{"role": "user", "content": QUESTION}]})
    headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}
    timeout = aiohttp.ClientTimeout(total=None)

    async def read(number: int) -> None:
        async with session.post(f"{url}/chat/completions", data=body, headers=headers, timeout=timeout) as response:
            while data := await response.content.readany():
                tally.tokens += data.count(b'"content":" ')
                tally.begun.add(number)

    _begin(stack, tally, read)


async def openai(stack: AsyncExitStack, tally: Tally, url: str, key: str, store: str) -> None:
    """The plain loop of the `openai` package, that prints."""
    from openai import AsyncOpenAI

    client = await stack.enter_async_context(AsyncOpenAI(base_url=url, api_key=key))
    nowhere = stack.enter_context(Path(os.devnull).open("w"))  # noqa: ASYNC230, SIM115 - the stack closes it

    async def read(number: int) -> None:
        stream = await client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": QUESTION}], stream=True
        )
        async for chunk in stream:
            if chunk.choices and (text := chunk.choices[0].delta.content):
                print(text, end="", file=nowhere)
                tally.tokens += text.count(" ")
                tally.begun.add(number)

    _begin(stack, tally, read)


async def served(stack: AsyncExitStack, tally: Tally, url: str, key: str, store: str) -> None:
    """`checkrein serve` with one driver process: durable runs, and for each a connection that reads its events."""
    from bench.sse_reader import read_events, start_run
    from bench.verbs_under_load import TOKEN, server_port

    program = "from checkrein.cli import main; main()"
    arguments = ["serve", str(Path(__file__).with_name("talker.py")), "--port", "0", "--store", store]
    server = stack.enter_context(
        subprocess.Popen(  # noqa: ASYNC220 - nothing else goes on yet
            [sys.executable, "-c", program, *arguments],
            env={**os.environ, "CHECKREIN_TOKEN": TOKEN, "OPENAI_API_KEY": key, "OPENAI_BASE_URL": url},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
    )
    stack.callback(server.terminate)
    port = await asyncio.to_thread(server_port, server)

    async def read(number: int) -> None:
        def told(tokens: int) -> None:
            tally.tokens += tokens
            tally.begun.add(number)

        await read_events(port, TOKEN, await start_run(port, TOKEN, "talker", QUESTION), told)

    _begin(stack, tally, read)


SIDES: Final[dict[str, Side]] = {
    "served": served,
    "runtime": runtime,
    "model": model,
    "received": received,
    "openai": openai,
}


def _begin(stack: AsyncExitStack, tally: Tally, read: Callable[[int], Awaitable[None]]) -> None:
    """Read all streams, and stop that at the end."""

    async def one(number: int) -> None:
        await read(number)

    tally.tasks += [asyncio.create_task(one(number)) for number in range(STREAMS)]

    async def end() -> None:
        for task in tally.tasks:
            task.cancel()
        await asyncio.gather(*tally.tasks, return_exceptions=True)

    stack.push_async_callback(end)


async def measure(side: str, url: str, key: str, seconds: float, store: str) -> Cost:
    async with AsyncExitStack() as stack:
        tally = Tally()
        await SIDES[side](stack, tally, url, key, store)
        await tally.all_flow()
        late: list[float] = []
        sleeping = asyncio.create_task(_sleep(late))
        tokens, took, used = await asyncio.to_thread(_watch, tally, seconds)
        sleeping.cancel()
        # Beside a server this process only reads what is sent.
        reader = used.pop(OWN) if side == "served" else 0.0
        lateness = median(late or [seconds])
        return Cost(tokens, took, used.total(), lateness, reader, used["cli"], used["driver_main"])


def _watch(tally: Tally, seconds: float) -> tuple[int, float, Counter[str]]:
    """What happens in so many seconds. In a thread: the loop of a side that cannot keep up comes to its timers late."""
    began, before, had = time.perf_counter(), _processor(), tally.tokens
    time.sleep(seconds)
    tokens, took, used = tally.tokens - had, time.perf_counter() - began, _processor()
    used.subtract(before)
    return tokens, took, used


async def _sleep(late: list[float]) -> None:
    while True:
        now = time.perf_counter()
        await asyncio.sleep(LOOK_SECONDS)
        late.append(time.perf_counter() - now - LOOK_SECONDS)


def _processor() -> Counter[str]:
    """Seconds of this process, of those it has started, and of theirs: by which module of ours each of them runs."""
    used: Counter[str] = Counter()
    used[OWN] = time.process_time()  # type: ignore[assignment]
    for child in psutil.Process().children(recursive=True):
        role = next((role for role in ROLES if role in " ".join(child.cmdline())), "")
        times = child.cpu_times()
        used[role] += times.user + times.system  # type: ignore[assignment]
    return used


def main(side: str, url: str, key: str, seconds: str, store: str) -> None:
    cost = asyncio.run(measure(side, url, key, float(seconds), store))
    sys.stdout.buffer.write(msgspec.json.encode(cost))


if __name__ == "__main__":
    main(*sys.argv[1:])
