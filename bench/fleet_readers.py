"""What a front pays for streams that are open while nothing happens in them: that they are alive, and still allowed.

A thousand connections read the events of some runs that wait. Counted is the processor time of the front, less that
of the same front without readers: the checks of everybody's rights, and the keep-alives with them.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from itertools import cycle, islice
from typing import Final

import anyio

from bench.fleet import Process, fleet
from bench.harness import Benchmark, Measure, Room, Target
from bench.sse_reader import AGAIN_SECONDS
from bench.verbs_under_load import TOKEN

TARGET: Final = Target("at most", 5.0)
STREAMS: Final = 1000
RUNS: Final = 50
SETTLE_SECONDS: Final = 3.0


async def measure(room: Room) -> list[Measure]:
    streams = room.count(STREAMS, 300)
    names = [f"run-{number}" for number in range(RUNS)]
    async with fleet(room) as machines, AsyncExitStack() as stack:
        front, _ = await machines.front(), await machines.worker("--slots", str(RUNS))
        runs = await machines.begin(front, "waiter", [json.dumps({"name": name}) for name in names])
        await machines.until_noted("began", names)
        without, memory = await _share(room, front), front.memory()
        for run in islice(cycle(runs), streams):
            stack.callback((await _opened(front.port, run)).abort)
        heavier = front.memory() - memory
        server = machines.server()
        with_them = await _share(room, front)
        by_server = server.seconds() / room.count(20, 8)
    return [
        Measure(
            what=f"{streams:,} open streams, of the front's processor",
            value=(with_them - without) * 100,
            unit="%",
            target=TARGET,
            note=f"without them {without:.2%}; of the server's {by_server:.2%}",
        ),
        Measure(what="memory of an open stream", value=heavier / streams / 1024, unit="KiB"),
    ]


async def _share(room: Room, front: Process) -> float:
    await anyio.sleep(SETTLE_SECONDS)
    used, began = front.used(), anyio.current_time()
    await anyio.sleep(room.count(20, 8))
    return used.seconds() / (anyio.current_time() - began)


async def _opened(port: int, run: str) -> asyncio.Transport:
    """A connection that was let in. What it is sent is thrown away."""
    request = f"GET /api/runs/{run}/events HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    while True:
        answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        transport, _ = await asyncio.get_running_loop().create_connection(lambda: _Reader(answered), "127.0.0.1", port)  # noqa: B023
        transport.write(request.encode())
        if (await answered).startswith(b"HTTP/1.1 200"):
            return transport
        transport.abort()
        await asyncio.sleep(AGAIN_SECONDS)


class _Reader(asyncio.Protocol):
    def __init__(self, answered: asyncio.Future[bytes]) -> None:
        self._answered = answered

    def data_received(self, data: bytes) -> None:
        if not self._answered.done():
            self._answered.set_result(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._answered.done():
            self._answered.set_result(b"")


BENCHMARK: Final = Benchmark("fleet_readers", "what open streams cost a front while nothing happens", measure)
