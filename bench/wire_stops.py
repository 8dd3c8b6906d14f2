"""How soon a provider sees that a stream was stopped, while two hundred of them flow, and what still came through.

The witness is the provider, a process of its own, by its own clock: from the moment just before `cancel()` to the one
at which it finds its client gone. All runs are in this process, and a run that was cancelled is replaced by another.
What a subscriber was told is written down as it comes, with its time, and held against the provider's log afterwards.

A stop is on disk before it is carried out. So what a single commit takes another process meanwhile is shown beside, and
how late one wakes that only sleeps: as long as these have to wait for the disk or a processor, nothing is faster.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from itertools import count
from typing import Final

from bench.actors import CAPS
from bench.committer import committer
from bench.harness import MILLI, Benchmark, Measure, Room, Target, latencies, quantile
from bench.sleeper import sleeper
from checkrein import Agent, Run, Runtime
from checkrein.journal.base import Chunk
from checkrein.models.openai import OpenAIModel
from checkrein.testing.provider.scenario import Reply
from checkrein.testing.provider.server import ProviderProcess

P50: Final = Target("at most", 5.0)
P99: Final = Target("at most", 50.0)
NONE: Final = Target("at most", 0.0)
STREAMING: Final = 200
TOKENS_PER_SECOND: Final = 20.0
REPLY: Final = Reply([" word"] * 1_200, tokens_per_second=TOKENS_PER_SECOND)
"""A minute's worth: no stream ends by itself before it is stopped."""
PATIENCE_SECONDS: Final = 60.0


class Talk:
    """A run that streams, and when its subscriber was told something."""

    def __init__(self, run: Run, goal: str) -> None:
        self.run = run
        self.goal = goal
        self.told: list[float] = []
        self.cancelled_at = 0.0
        self.receipt_at = 0.0

    def tell(self, chunk: Chunk) -> None:
        self.told.append(time.monotonic())

    def told_after(self, moment: float) -> int:
        return sum(1 for at in self.told if at > moment)

    async def flows(self) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not self.told:  # noqa: ASYNC110 - a subscriber wakes nobody
                await asyncio.sleep(0.01)

    async def cancel(self) -> None:
        self.cancelled_at = time.monotonic()
        await self.run.cancel(wait=PATIENCE_SECONDS)
        self.receipt_at = time.monotonic()


async def measure(room: Room) -> list[Measure]:
    stopped: list[Talk] = []
    async with ProviderProcess(REPLY) as provider, Runtime(room.address("runs")) as runtime:
        model = OpenAIModel("gpt-4o", base_url=provider.openai_url, api_key=provider.key)
        agent = Agent("talker", model=model, stop_when=CAPS, loops=False)
        numbers = count()

        async def talk() -> Talk:
            goal = f"Talk, number {next(numbers)}."
            started = Talk(await runtime.start(agent, goal), goal)
            runtime.listen(started.run.id, started.tell)
            return started

        talking = deque([await talk() for _ in range(STREAMING)])
        await asyncio.gather(*(one.flows() for one in talking))
        async with sleeper() as late_elsewhere, committer(room.folder) as commits:
            began = time.monotonic()
            for _ in range(room.count(300, 40)):
                # At any moment of the others' work, not always at the same one.
                await asyncio.sleep(random.uniform(0.01, 0.06))
                oldest = talking.popleft()
                await oldest.flows()
                await oldest.cancel()
                stopped.append(oldest)
                talking.append(await talk())
            seconds = time.monotonic() - began
        await asyncio.gather(*(one.cancel() for one in talking))
        log = {request.messages[-1]["content"]: request for request in await provider.log()}
    gone = []
    seen = 0
    for one in stopped:
        request = log[one.goal]
        assert request.how == "disconnected", (
            f"{request.how} after {request.tokens_sent} tokens: no stop to be measured"
        )
        assert request.disconnected_at is not None
        gone.append(max(0.0, request.disconnected_at - one.cancelled_at))
        seen += one.told_after(request.disconnected_at)
    usual = quantile(gone, 0.5)
    note = f"{len(stopped)} stops in {seconds:.0f} s, worst {max(gone) * MILLI:.1f} ms"
    return [
        Measure(what="cancel to the provider's disconnect, p50", value=usual * MILLI, unit="ms", target=P50),
        Measure(
            what="cancel to the provider's disconnect, p99",
            value=quantile(gone, 0.99) * MILLI,
            unit="ms",
            target=P99,
            note=note,
        ),
        Measure(what="tokens forwarded after the provider saw it", value=seen, unit="", target=NONE),
        Measure(
            what="tokens forwarded after the receipt",
            value=sum(one.told_after(one.receipt_at) for one in stopped),
            unit="",
            target=NONE,
        ),
        Measure(
            what="tokens forwarded after cancel() was called",
            value=sum(one.told_after(one.cancelled_at) for one in stopped),
            unit="",
            note="until the stop is recorded they still belong to the run",
        ),
        *latencies("cancel to its receipt", [one.receipt_at - one.cancelled_at for one in stopped], unit="ms"),
        *latencies("meanwhile: a commit of another process", commits, unit="ms"),
        *latencies("meanwhile: a sleep of an idle process is late by", late_elsewhere, unit="ms"),
    ]


BENCHMARK: Final = Benchmark("wire_stops", f"cancel until the provider sees it, while {STREAMING} runs stream", measure)
