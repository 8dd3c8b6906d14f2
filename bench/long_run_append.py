"""Whether an append stays as cheap in a run that has become long.

Two journals, each with its own file: one holds a run of 10⁵ events, the other gets a new run of 10² events for every
turn. Permits and outcomes are appended to both, one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from statistics import mean
from typing import Final

from bench.harness import MICRO, Benchmark, Measure, Room, Rounds, Target, latencies
from bench.workload import DrivenRun, call_events, filled
from checkrein.journal import open_journal

TARGET: Final = Target("at most", 1.2)
SHORT: Final = 100
LONG: Final = 100_000
CALLS_PER_TURN: Final = 10


async def measure(room: Room) -> list[Measure]:
    async with await open_journal(room.address("long")) as large, await open_journal(room.address("short")) as small:
        long_run = await filled(large, "long", LONG)
        turns = count()

        async def append_to_long() -> Sequence[float]:
            return await _append_calls(long_run)

        async def append_to_short() -> Sequence[float]:
            return await _append_calls(await filled(small, f"short-{next(turns)}", SHORT))

        rounds = Rounds(long=append_to_long, short=append_to_short)
        await rounds.warm_up(10)
        await rounds.run(room.count(100, 15))
    return [
        rounds.ratio("an append at 10⁵ events, against one at 10²", "long", "short", TARGET),
        *_all("append at 10⁵", rounds.samples["long"]),
        *_all("append at 10²", rounds.samples["short"]),
    ]


async def _append_calls(run: DrivenRun) -> list[float]:
    return [await run.append_timed(event) for event in call_events(CALLS_PER_TURN, run.epoch)]


def _all(what: str, seconds: Sequence[float]) -> list[Measure]:
    """The mean as well: what is put off until later, such as moving the log into the file, shows only there."""
    return [*latencies(what, seconds), Measure(what=f"{what}, mean", value=mean(seconds) * MICRO, unit="µs")]


BENCHMARK: Final = Benchmark("long_run_append", "an append at 10⁵ events of a run, against one at 10²", measure)
