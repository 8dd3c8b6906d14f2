"""The process of `paused_runs`: starts runs, pauses each in the middle of a model call, and says what they weigh.

python -m bench.pauser ADDRESS RUNS
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from typing import Final

import msgspec
import psutil

from bench.actors import CAPS, Talker
from bench.workload import begin, call_events
from checkrein import Agent, Run, Runtime
from checkrein.core.enums import Status
from checkrein.core.events import CallStarted
from checkrein.journal import Journal

AT_ONCE: Final = 16
WARM_UP: Final = 400
"""Runs that come first and are not counted: pools and caches fill up once."""
FILLING: Final = 400
CALLS_AT_A_TIME: Final = 100
"""Calls that are written and read first, so that SQLite's own caches, which no run is to blame for, are full as well.
A few at a time: memory that was used for something else before would make the runs look lighter than they are."""
REST_SECONDS: Final = 6.0
COME_BACK: Final = 20


class Weighed(msgspec.Struct, frozen=True):
    """What `runs` paused and evicted runs have added to a process."""

    runs: int
    bytes: int
    seconds: float
    """What it took to start, pause and evict them all."""
    busy: float
    """The share of a processor that the process takes while all of them are paused and nothing happens."""
    come_back_seconds: list[float]
    """From the resume of some of them to their next live call."""


async def weigh(address: str, runs: int) -> Weighed:
    agent = Agent("talker", model=Talker(0.001), stop_when=CAPS, loops=False)
    async with Runtime(address, agents=[agent], evict_seconds=0.0) as runtime:
        await _fill_caches(runtime.journal)
        await _pause_many(runtime, agent, WARM_UP)
        before, began = _memory(), time.perf_counter()
        last = await _pause_many(runtime, agent, runs)
        seconds = time.perf_counter() - began
        weight = _memory() - before
        busy = await _busy()
        come_back = [await _come_back(runtime, run) for run in last[:COME_BACK]]
    return Weighed(runs, weight, seconds, busy, come_back)


async def _fill_caches(journal: Journal) -> None:
    run = await begin(journal, "filling")
    for _ in range(FILLING):
        before = run.seen
        await run.append(*call_events(CALLS_AT_A_TIME, run.epoch))
        await journal.read(run.id, after=before)


async def _pause_many(runtime: Runtime, agent: Agent, runs: int) -> list[str]:
    """Returns the ids of the last of them."""
    left, last = iter(range(runs)), list[str]()

    async def work() -> None:
        for n in left:
            run = await _pause_one(runtime, agent)
            if n >= runs - COME_BACK:
                last.append(run)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(AT_ONCE):
            tasks.create_task(work())
    return last


async def _pause_one(runtime: Runtime, agent: Agent) -> str:
    run = await runtime.start(agent, "Think for long.")
    await _until_it_calls(run)
    await run.pause(wait=60)
    while await runtime.journal.lease(run.id) is not None:  # noqa: ASYNC110 - nobody tells when it is evicted
        await asyncio.sleep(0.005)
    assert (await run.state()).status is Status.PAUSED
    return run.id


async def _come_back(runtime: Runtime, id: str) -> float:
    run = await runtime.get(id)
    after, began = (await run.state()).seq, time.perf_counter()
    await run.resume(wait=60)
    await _until_it_calls(run, after)
    seconds = time.perf_counter() - began
    await run.pause(wait=60)
    return seconds


async def _until_it_calls(run: Run, after: int = 0) -> None:
    events = run.events(after=after)
    async for record in events:
        if isinstance(record.event, CallStarted):
            break
    await events.aclose()  # type: ignore[attr-defined]


async def _busy() -> float:
    used, began = time.process_time(), time.perf_counter()
    await asyncio.sleep(REST_SECONDS)
    return (time.process_time() - used) / (time.perf_counter() - began)


def _memory() -> int:
    gc.collect()
    return int(psutil.Process().memory_info().rss)


if __name__ == "__main__":
    _, address, runs = sys.argv
    sys.stdout.buffer.write(msgspec.json.encode(asyncio.run(weigh(address, int(runs)))))
