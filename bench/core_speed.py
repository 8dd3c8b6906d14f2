"""How fast the pure part is: folding events into a state, and encoding one.

There is no peer to take turns with, so the time of this thread on its processor is counted, and what others use
meanwhile is not.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median
from typing import Final

from bench.harness import MICRO, Benchmark, Measure, Room, Target
from bench.workload import finished, history, new_id, started
from checkrein.core.events import Event
from checkrein.core.evolve import evolve
from checkrein.core.state import State
from checkrein.journal import encoding

EVOLVE_TARGET: Final = Target("at least", 200_000)
ENCODE_TARGET: Final = Target("at most", 2.0)
EVENTS: Final = 20_000
ENCODINGS: Final = 20_000


async def measure(room: Room) -> list[Measure]:
    rounds = room.count(15, 5)
    events = history("folded", EVENTS)
    permit, outcome = started(new_id(), epoch=1), finished(new_id())
    return [
        Measure(
            what="events folded",
            value=median(events_per_second(events) for _ in range(rounds)),
            unit="/s",
            target=EVOLVE_TARGET,
            note="calls of models and tools, effects, steps, verbs",
        ),
        *(
            Measure(
                what=f"encode a {what}",
                value=median(encode_seconds(event) for _ in range(rounds)) * MICRO,
                unit="µs",
                target=ENCODE_TARGET,
                note=f"{len(encoding.encode(event))} bytes",
            )
            for what, event in (("call.started", permit), ("call.finished", outcome))
        ),
    ]


def events_per_second(events: Sequence[Event]) -> float:
    state: State | None = None
    began = time.thread_time()
    for seq, event in enumerate(events, 1):
        state = evolve(state, event, seq)
    return len(events) / (time.thread_time() - began)


def encode_seconds(event: Event) -> float:
    began = time.thread_time()
    for _ in range(ENCODINGS):
        encoding.encode(event)
    return (time.thread_time() - began) / ENCODINGS


BENCHMARK: Final = Benchmark("core_speed", "folding events, and encoding one", measure)
