"""What the gateway of `checkrein exec` costs a program, against none: processor time, lag, and how soon a stop arrives.

The provider, the gateway and the program that reads are processes of their own; the witness of when a token left and
when a stream was closed is the provider, by its own clock. *Only reading* is a program that counts the bytes of the
same streams, which is the least that anybody between the two can do; the gateway reads them too, and writes them again.
In each round every side has its turn, and what counts is the ratio within a round.

On a busy machine a process gets its turn late and finds several tokens at once, which are cheaper together and later. A
permit and a stop are on disk before they are carried out, so what a commit of another process takes stands beside.
"""

from __future__ import annotations

import asyncio
import importlib.util
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from statistics import median
from typing import Any, Final

import msgspec

from bench.committer import committer
from bench.gateway_roles import question
from bench.harness import MICRO, MILLI, Benchmark, Measure, Room, Rounds, Target, latencies, left_out, quantile
from bench.report import ROOT
from checkrein.testing.provider.scenario import Reply
from checkrein.testing.provider.server import ProviderProcess

STREAMS: Final = 50
FEW: Final = 5
STOPPED: Final = 100
TOKENS_PER_SECOND: Final = 20.0
REPLY: Final = Reply([" word"] * 2_000, tokens_per_second=TOKENS_PER_SECOND)
"""Longer than anybody reads: no stream ends by itself."""
OVER_READING: Final = Target("at most", 1.5)
OVER_OPENAI: Final = Target("at most", 0.4)
LAG_P50: Final = Target("at most", 4.0)
LAG_P99: Final = Target("at most", 10.0)
FIRST_BYTE: Final = Target("at most", 5.0)
STOP_P99: Final = Target("at most", 50.0)
SETTLING_SECONDS: Final = 1.0


class Role:
    """A process that plays one of the roles."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def ask(self, what: str) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what}\n".encode())
        return await self.line()

    async def line(self) -> Any:
        assert self._process.stdout is not None
        return msgspec.json.decode(await self._process.stdout.readline())


@asynccontextmanager
async def role(*arguments: str) -> AsyncIterator[Role]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.gateway_roles", *arguments),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        limit=1 << 26,
    )
    try:
        yield Role(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(30):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


class Bench:
    """One provider, and what every side found."""

    def __init__(self, room: Room, provider: ProviderProcess) -> None:
        self._room, self._provider = room, provider
        self._numbers = count()
        self.lags: dict[str, list[float]] = {"direct": [], "gateway": []}
        self.stops: list[float] = []
        self.spreads: list[float] = []
        self.after: list[int] = []

    @asynccontextmanager
    async def gateway(self) -> AsyncIterator[tuple[Role, str]]:
        store = self._room.address(f"runs-{next(self._numbers)}")
        async with role("gateway", self._provider.openai_url, store) as found:
            yield found, await found.line()

    @asynccontextmanager
    async def reader(self, url: str, streams: int, who: str = "read") -> AsyncIterator[Role]:
        await self._provider.clear()
        async with role(who, url, self._provider.key, str(streams)) as found:
            await found.line()
            yield found

    async def cost(self, measured: Role) -> float:
        """Processor seconds a token of one process while its streams flow."""
        await asyncio.sleep(SETTLING_SECONDS)
        before = await measured.ask("cpu")
        await asyncio.sleep(self._room.count(5, 2))
        after = await measured.ask("cpu")
        log = await self._provider.log(bodies=False)
        tokens = len([1 for request in log for sent in request.token_times if before["at"] < sent <= after["at"]])
        return (float(after["cpu"]) - float(before["cpu"])) / tokens

    async def lag(self, reader: Role) -> list[float]:
        """How much later each token came than it had left."""
        heard = await reader.ask("heard")
        sent = {request.messages[-1]["content"]: request.token_times for request in await self._provider.log()}
        return [
            came - left
            for number, one in enumerate(heard)
            for left, came in zip(sent[question(number)], one["tokens"], strict=False)
        ]

    # -- turns

    async def reading(self) -> Sequence[float]:
        async with self.reader(self._provider.openai_url, STREAMS) as reader:
            cost = await self.cost(reader)
            self.lags["direct"] += await self.lag(reader)
        return [cost]

    async def through(self) -> Sequence[float]:
        async with self.gateway() as (gateway, url), self.reader(url, STREAMS) as reader:
            cost = await self.cost(gateway)
            self.lags["gateway"] += await self.lag(reader)
        return [cost]

    async def openai(self) -> Sequence[float]:
        async with self.reader(self._provider.openai_url, STREAMS, "openai") as reader:
            return [await self.cost(reader)]

    async def first_byte(self, url: str) -> Sequence[float]:
        async with self.reader(url, FEW) as reader:
            return [one["first_at"] - one["asked_at"] for one in await reader.ask("heard")]

    async def stop(self) -> None:
        async with self.gateway() as (gateway, url), self.reader(url, STOPPED):
            await asyncio.sleep(SETTLING_SECONDS)
            asked = (await gateway.ask("cancel"))["at"]
            log = await self._provider.until(lambda log: all(request.how for request in log))
            assert {request.how for request in log} == {"disconnected"}, "no stream ended by itself"
            gone = [max(0.0, (request.disconnected_at or 0.0) - asked) for request in log]
            self.stops += gone
            self.spreads.append(max(gone) - min(gone))
            self.after += [request.tokens_since(asked) for request in log]


async def measure(room: Room) -> list[Measure]:
    async with ProviderProcess(REPLY) as provider:
        bench = Bench(room, provider)
        sides = {"gateway": bench.through, "reading": bench.reading}
        if importlib.util.find_spec("openai") is not None:
            sides["openai"] = bench.openai
        costs = Rounds(**sides)
        await costs.run(room.count(7, 2))
        firsts = await _firsts(bench, provider, room)
        async with committer(room.folder) as commits:
            for _ in range(room.count(5, 2)):
                await bench.stop()
    return [
        *_costs(costs),
        *_lags(bench),
        _first_byte(firsts),
        *_stops(bench),
        *latencies("meanwhile: a commit of another process", commits, unit="ms"),
    ]


async def _firsts(bench: Bench, provider: ProviderProcess, room: Room) -> Rounds:
    async with bench.gateway() as (_, url):
        firsts = Rounds(gateway=partial(bench.first_byte, url), direct=partial(bench.first_byte, provider.openai_url))
        await firsts.warm_up(1)
        await firsts.run(room.count(9, 3))
    return firsts


def _costs(costs: Rounds) -> list[Measure]:
    over = f"processor time a token of {STREAMS} streams, against"
    compared = left_out(f"{over} the openai package's loop", "×", "the openai package is not installed")
    if "openai" in costs.samples:
        compared = costs.ratio(f"{over} the openai package's loop", "gateway", "openai", OVER_OPENAI)
    return [
        costs.ratio(f"{over} only reading them", "gateway", "reading", OVER_READING),
        compared,
        *(Measure(what=f"a token, {side}", value=costs.median(side) * MICRO, unit="µs") for side in costs.samples),
    ]


def _lags(bench: Bench) -> list[Measure]:
    ours, direct = bench.lags["gateway"], bench.lags["direct"]
    usual = quantile(ours, 0.5) / quantile(direct, 0.5)
    times = f"{quantile(ours, 0.5) * MILLI:.2f} ms against {quantile(direct, 0.5) * MILLI:.2f} ms"
    worst = f"direct {quantile(direct, 0.99) * MILLI:.1f} ms"
    return [
        Measure(what="a token is late, p50, against direct", value=usual, unit="×", target=LAG_P50, note=times),
        Measure(
            what="a token is late, p99",
            value=quantile(ours, 0.99) * MILLI,
            unit="ms",
            target=LAG_P99,
            note=worst,
        ),
    ]


def _first_byte(firsts: Rounds) -> Measure:
    later = median(firsts.samples["gateway"]) - median(firsts.samples["direct"])
    note = f"direct {median(firsts.samples['direct']) * MILLI:.1f} ms"
    what = f"the first byte of {FEW} streams comes later by, p50"
    return Measure(what=what, value=later * MILLI, unit="ms", target=FIRST_BYTE, note=note)


def _stops(bench: Bench) -> list[Measure]:
    what = f"cancel to the provider's disconnect, {STOPPED} streams"
    note = f"{len(bench.stops)} streams, worst {max(bench.stops) * MILLI:.1f} ms"
    return [
        Measure(what=f"{what}, p50", value=quantile(bench.stops, 0.5) * MILLI, unit="ms"),
        Measure(what=f"{what}, p99", value=quantile(bench.stops, 0.99) * MILLI, unit="ms", target=STOP_P99, note=note),
        Measure(what="of that from the first stream to the last, p50", value=median(bench.spreads) * MILLI, unit="ms"),
        Measure(what="tokens of a stream after cancel() was called, most", value=max(bench.after), unit=""),
    ]


BENCHMARK: Final = Benchmark("gateway", "a program's streams through the gateway of `checkrein exec`", measure)
