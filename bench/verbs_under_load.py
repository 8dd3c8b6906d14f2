"""How quickly a stop is taken by a server that a crowd of readers is at.

`checkrein serve` with one driver. A thousand times a second somebody connects, asks for a stream, reads its beginning
and leaves; a hundred others read a few bytes a second of a run that talks without end. Meanwhile runs are cancelled
over HTTP, one after the other, each on a connection of its own. Counted is the time from before the connection is made
until the answer has been read that the cancel is in the journal, by the clock of whoever asks; afterwards the journal
itself is asked whether it has every one of them.

All of it shares one machine: the crowd and whoever cancels compete with the server for its processors. How late the
asking process wakes from a sleep is shown beside: on a machine that is busy with other things nothing can be faster.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import anyio
import msgspec

from bench.crowd import SETTLE_SECONDS, Done
from bench.harness import MILLI, Benchmark, Measure, Room, Target, latencies, quantile
from checkrein.asyncutil import kill
from checkrein.core.events import VerbAccepted
from checkrein.journal import open_journal

TARGET: Final = Target("at most", 250.0)
RATE: Final = 1000
SLOW: Final = 100
BETWEEN_SECONDS: Final = 0.05
TOKEN: Final = "ckr_benchmark-0123456789abcdefghijklmnopqrstuv"
ROOT: Final = Path(__file__).parents[1]
_PATIENCE_SECONDS: Final = 60.0


async def measure(room: Room) -> list[Measure]:
    count = room.count(200, 30)
    async with serving(room) as server:
        port = server.port
        runs = [await anyio.to_thread.run_sync(start, port, "waiter") for _ in range(2 * count)]
        talker = await anyio.to_thread.run_sync(start, port, "talker")
        alone, _ = await cancel_all(port, runs[:count])
        async with crowd(port, talker, seconds=count * 2 * BETWEEN_SECONDS + 5) as finished:
            await anyio.sleep(SETTLE_SECONDS + 1)
            pressed, overslept = await cancel_all(port, runs[count:])
            done = await finished()
    await check(room, runs)
    return _measures(alone, pressed, overslept, done)


def _measures(alone: list[float], pressed: list[float], overslept: list[float], done: Done) -> list[Measure]:
    let_in = done.answers.get("200", 0) / done.seconds
    worst = f"{len(pressed)} cancels, worst {max(pressed) * MILLI:.0f} ms"
    p99 = quantile(pressed, 0.99) * MILLI
    return [
        Measure(what="a cancel in the journal, p99", value=p99, unit="ms", target=TARGET, note=worst),
        latencies("a cancel in the journal", pressed, unit="ms")[0],
        *latencies("the same without a crowd", alone, unit="ms"),
        *latencies("meanwhile: a sleep is late by", overslept, unit="ms"),
        Measure(what="meanwhile: streams asked for", value=done.connected / done.seconds, unit="/s"),
        Measure(what="of those let in", value=let_in, unit="/s", note="the others are told when to come again"),
        Measure(what="of those neither", value=done.failed / done.seconds, unit="/s"),
        Measure(what="meanwhile: slow readers", value=done.slow, unit="", note=f"let go {done.let_go} times"),
    ]


# -- the server


class Server(NamedTuple):
    pid: int
    port: int


@asynccontextmanager
async def serving(room: Room) -> AsyncIterator[Server]:
    """A server that nobody has asked anything yet."""
    with _server(room) as process:
        try:
            yield Server(process.pid, await anyio.to_thread.run_sync(server_port, process))
        finally:
            process.terminate()


def server_port(process: subprocess.Popen[str]) -> int:
    """Where the server says it is."""
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"http://127\.0\.0\.1:(\d+)/", line):
            return int(found[1])
    raise RuntimeError("the server did not start; what it said is above")


def _server(room: Room) -> subprocess.Popen[str]:
    program = "from checkrein.cli import main; main()"
    arguments = ["serve", str(ROOT / "bench" / "served.py"), "--port", "0", "--store", room.address("served")]
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, "CHECKREIN_TOKEN": TOKEN},
        stdout=subprocess.PIPE,
        text=True,
    )


def ask(port: int, path: str, body: Any) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE_SECONDS)
    try:
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        connection.request("POST", path, json.dumps(body), headers)
        response = connection.getresponse()
        answer = json.loads(response.read())
    finally:
        connection.close()
    if response.status >= 300:
        raise RuntimeError(f"{path}: {response.status} {answer}")
    return answer


def start(port: int, agent: str) -> str:
    return str(ask(port, "/api/runs", {"agent": agent, "goal": "Go on."})["id"])


def cancel(port: int, run: str) -> float:
    began = time.perf_counter()
    ask(port, f"/api/runs/{run}/cancel", {"wait": 0})
    return time.perf_counter() - began


def cancel_timed(port: int, run: str) -> float:
    """When it was asked for."""
    began = time.perf_counter()
    cancel(port, run)
    return began


async def cancel_all(port: int, runs: list[str]) -> tuple[list[float], list[float]]:
    """How long each took, and how late this process woke up from the pauses between them."""
    took, overslept = [], []
    for run in runs:
        took.append(await anyio.to_thread.run_sync(cancel, port, run))
        began = time.perf_counter()
        await anyio.sleep(BETWEEN_SECONDS)
        overslept.append(time.perf_counter() - began - BETWEEN_SECONDS)
    return took, overslept


async def check(room: Room, runs: list[str]) -> None:
    """Every cancel that was answered is in the journal."""
    async with await open_journal(room.address("served")) as journal:
        for run in runs:
            verbs = [one.event.verb for one in await journal.read(run) if isinstance(one.event, VerbAccepted)]
            if "cancel" not in verbs:
                raise RuntimeError(f"the cancel of {run} was answered and is not in the journal")


# -- the crowd


@asynccontextmanager
async def crowd(port: int, run: str, *, seconds: float, rate: int = RATE, slow: int = SLOW) -> AsyncIterator[Any]:
    """Readers for so many seconds; gives a function that waits for their end and says what they did."""
    command = [sys.executable, "-m", "bench.crowd", *map(str, (port, TOKEN, run, seconds, rate, slow))]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, cwd=ROOT)

    async def finished() -> Done:
        told, _ = await process.communicate()
        return msgspec.json.decode(told, type=Done)

    try:
        yield finished
    finally:
        await kill(process)


BENCHMARK: Final = Benchmark("verbs_under_load", "a cancel over HTTP, while a crowd of readers reconnects", measure)
