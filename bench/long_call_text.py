"""Whether a token stays as cheap in a call that has said very much already.

One model call streams 80,000 tokens, each in a turn of the event loop of its own, through the runtime into the journal
and into the frames of one reader of the run's view. Measured is the processor time of all threads for the tokens just
before 5,000, 20,000, 40,000 and 80,000.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, MutableMapping
from statistics import median
from typing import Any, Final

from bench.harness import MICRO, Benchmark, Measure, Room, Target
from checkrein import Agent, Runtime
from checkrein.core.conditions import Usage
from checkrein.models.base import Delta, Finish, Finished, TextDelta, UsageDelta
from checkrein.models.messages import Request
from checkrein.server.backend import RuntimeBackend
from checkrein.server.streaming.hub import Hub

TARGET: Final = Target("at most", 1.5)
PLACES: Final = (5_000, 20_000, 40_000, 80_000)
WINDOW: Final = 4_000


class LongAnswer:
    """A model that says one word again and again, and notes what processor time its listeners have used by then."""

    name = "bench:long"

    def __init__(self) -> None:
        self.per_token: dict[int, float] = {}

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        began = 0.0
        for number in range(1, PLACES[-1] + 1):
            yield TextDelta("word ")
            await asyncio.sleep(0)
            if number + WINDOW in PLACES:
                began = time.process_time()
            elif number in PLACES:
                self.per_token[number] = (time.process_time() - began) / WINDOW
        yield UsageDelta(Usage(input_tokens=1, output_tokens=PLACES[-1]))
        yield Finished(Finish.STOP)


async def measure(room: Room) -> list[Measure]:
    rounds = [await _one(room, number) for number in range(room.count(5, 2))]
    ratio = median(found[PLACES[-1]] / found[PLACES[0]] for found in rounds)
    what = f"a token near {PLACES[-1]:,} of a call, against one near {PLACES[0]:,}"
    return [
        Measure(what=what, value=ratio, unit="×", target=TARGET),
        *(
            Measure(what=f"a token near {place:,}", value=median(found[place] for found in rounds) * MICRO, unit="µs")
            for place in PLACES
        ),
    ]


async def _one(room: Room, number: int) -> dict[int, float]:
    model = LongAnswer()
    async with Runtime(room.address(f"runs-{number}")) as runtime:
        hub = Hub(RuntimeBackend(runtime))
        run = await runtime.start(Agent("talker", model=model, stop_when=None, loops=False), "Talk.")
        reading = asyncio.create_task(_read(hub, run.id))
        await run.result()
        await hub.close()
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    return model.per_token


async def _read(hub: Hub, run: str) -> None:
    async def receive() -> MutableMapping[str, Any]:
        await asyncio.Event().wait()  # it never leaves
        raise AssertionError

    async def send(message: MutableMapping[str, Any]) -> None:
        """Whoever reads it is not measured here."""

    await (await hub.feed(run)).read_live()({"type": "http"}, receive, send)


BENCHMARK: Final = Benchmark("long_call_text", "a token of a call that has said very much already", measure)
