"""The readers of `fleet_text`: one connection for each run at each front, and how old each token was when it came.

python -m bench.text_reader SECONDS PORT,… RUN,…

Tokens are the times at which they were said, by the clock that all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import random
import re
import sys
import time
from typing import Final

import msgspec

from bench.sse_reader import AGAIN_SECONDS
from bench.verbs_under_load import TOKEN

TOKEN_OF_TIME: Final = re.compile(rb" (\d+\.\d{3})")
KEPT: Final = 20_000
"""How many ages are kept at most: a sample of all."""
PATIENCE_SECONDS: Final = 120.0


class Heard(msgspec.Struct):
    tokens: int
    seconds: float
    ages: list[float]
    streams: int
    late: float
    """By how much a short sleep of this process was too long, at worst of a hundred."""


class Reader(asyncio.Protocol):
    def __init__(self, request: bytes, tally: Tally) -> None:
        self._request = request
        self._tally = tally
        self._rest = b""
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        whole, end, self._rest = (self._rest + data).rpartition(b"\n\n")
        if end and b"event: call.chunk" in whole:
            self._tally.heard(self, now, TOKEN_OF_TIME.findall(whole))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


class Tally:
    def __init__(self) -> None:
        self.is_counting = False
        self.tokens = 0
        self.ages: list[float] = []
        self.flowing: set[Reader] = set()

    def heard(self, reader: Reader, now: float, tokens: list[bytes]) -> None:
        self.flowing.add(reader)
        if self.is_counting and tokens:
            self.tokens += len(tokens)
            self.ages += [now - float(token) for token in tokens]


async def read(port: int, run: str, tally: Tally) -> None:
    request = f"GET /api/runs/{run}/events HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    while True:
        reader = Reader(request.encode(), tally)
        transport, _ = await asyncio.get_running_loop().create_connection(lambda: reader, "127.0.0.1", port)  # noqa: B023
        try:
            await reader.ended
        finally:
            tally.flowing.discard(reader)
            transport.abort()
        await asyncio.sleep(AGAIN_SECONDS)  # it was turned away: so many a second are let in


async def main(seconds: float, ports: list[int], runs: list[str]) -> Heard:
    tally = Tally()
    tasks = [asyncio.create_task(read(port, run, tally)) for port in ports for run in runs]
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(tally.flowing) < len(tasks):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.1)
    print(flush=True)  # all of them flow: whoever measures may begin
    await asyncio.sleep(1)
    tally.is_counting, began, late = True, time.perf_counter(), []
    while (now := time.perf_counter()) < began + seconds:
        await asyncio.sleep(0.05)
        late.append(time.perf_counter() - now - 0.05)
    took, streams = time.perf_counter() - began, len(tally.flowing)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    ages = random.Random(1).sample(tally.ages, min(KEPT, len(tally.ages)))
    return Heard(tally.tokens, took, ages, streams, sorted(late)[int(len(late) * 0.99)])


if __name__ == "__main__":
    _, seconds, ports, runs = sys.argv
    heard = asyncio.run(main(float(seconds), [int(port) for port in ports.split(",")], runs.split(",")))
    sys.stdout.buffer.write(msgspec.json.encode(heard))
