"""What a streamed token costs, from the wire to the journal and whoever reads it, against a loop that only prints it.

Two hundred streams of 20 tokens a second come from one provider in a process of its own. Each side is a process too, so
what is measured is its processor time and nothing else's. The side that counts is `checkrein serve`: the processor time
of its front, its driver, and whatever else they start, while one connection for each stream reads the run's events over
HTTP. What those readers use is not the server's, and stands beside. What the runtime alone takes, the model port, and
the HTTP library below that, is shown by reading the same streams with these alone.

On a busy machine a process gets its turn late and finds several tokens at once, which are cheaper together: that
flatters every side, and most the one that cannot keep up. By how much each was late stands beside.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from itertools import count
from statistics import median
from typing import Final

import anyio
import msgspec

from bench.harness import MICRO, MILLI, Benchmark, Measure, Room, Rounds, Target, left_out
from bench.report import ROOT
from bench.streams import STREAMS, Cost
from checkrein.testing.provider.scenario import Reply
from checkrein.testing.provider.server import ProviderProcess

TARGET: Final = Target("at most", 0.4)
TOKENS_PER_SECOND: Final = 20.0
WORDS: Final = " the report on customer churn says that most of them left within a month of the first invoice and"
REPLY: Final = Reply([f" {word}" for word in (WORDS * 60).split()], tokens_per_second=TOKENS_PER_SECOND)
SIDES: Final = {
    "served": "from the wire to the journal and a reader's frames over HTTP",
    "runtime": "of that the runtime: to the journal and a subscriber",
    "model": "of that the model port: to typed deltas",
    "received": "of that the HTTP library: to bytes",
    "openai": "the openai package, printing",
}
PARTS: Final = {
    "driver": "of what is served, the driver",
    "front": "of what is served, the front",
    "reader": "besides: whoever reads those frames",
}
COMPARED: Final = f"a token of {STREAMS} streams that are served, against the openai package"


async def measure(room: Room) -> list[Measure]:
    has_peer = importlib.util.find_spec("openai") is not None
    costs: dict[str, list[Cost]] = {side: [] for side in SIDES if has_peer or side != "openai"}
    numbers = count()
    async with ProviderProcess(REPLY) as provider:

        async def turn(side: str) -> Sequence[float]:
            await provider.clear()
            store = room.address(f"runs-{next(numbers)}")
            arguments = [side, provider.openai_url, provider.key, str(room.count(6, 3)), store]
            done = await anyio.run_process(
                [sys.executable, "-m", "bench.streams", *arguments], cwd=ROOT, stderr=subprocess.PIPE
            )
            cost = msgspec.json.decode(done.stdout, type=Cost)
            costs[side].append(cost)
            return [cost.per_token]

        rounds = Rounds(**{side: partial(turn, side) for side in costs})
        await rounds.run(room.count(5, 2))
    served = costs["served"]
    compared = left_out(COMPARED, "×", "the openai package is not installed")
    if has_peer:
        compared = rounds.ratio(COMPARED, "served", "openai", TARGET)
    return [
        compared,
        *(
            Measure(what=SIDES[side], value=rounds.median(side) * MICRO, unit="µs", note=_circumstances(costs[side]))
            for side in costs
        ),
        *(
            Measure(what=what, value=median(getattr(cost, part) / cost.tokens for cost in served) * MICRO, unit="µs")
            for part, what in PARTS.items()
        ),
    ]


def _circumstances(costs: Sequence[Cost]) -> str:
    late = median(cost.late for cost in costs) * MILLI
    seen = median(cost.tokens / cost.seconds for cost in costs) / (STREAMS * TOKENS_PER_SECOND)
    return f"late by {late:.0f} ms, {seen:.0%} of the pace"


BENCHMARK: Final = Benchmark("streamed_tokens", "a streamed token, from the wire to the journal", measure)
