"""How old text is when it reaches a reader at a front of another machine, and what a token costs each part.

Two hundred runs of one worker say fifty tokens a second each, and three fronts show all of them, to one reader each:
a token is the time at which it was said. The processor time is that of each part alone; what the readers use is not
counted. On a machine with few processors the parts compete with each other: by how much a reader's sleep was late
stands beside.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Final

import anyio
import msgspec

from bench.fleet import fleet
from bench.fleet_agents import TOKENS_PER_SECOND
from bench.harness import MICRO, MILLI, Benchmark, Measure, Room, Target, quantile
from bench.report import ROOT
from bench.text_reader import Heard

AGE: Final = Target("at most", 250.0)
SERVER: Final = Target("at most", 15.0)
STREAMS: Final = 200
FRONTS: Final = 3


async def measure(room: Room) -> list[Measure]:
    async with fleet(room) as machines:
        worker = await machines.worker("--slots", str(STREAMS))
        fronts = [await machines.front() for _ in range(FRONTS)]
        runs = await machines.begin(fronts[0], "talker", ["Say what time it is."] * STREAMS)
        ports = ",".join(str(front.port) for front in fronts)
        command = [sys.executable, "-m", "bench.text_reader", str(room.count(10, 4)), ports, ",".join(runs)]
        async with await anyio.open_process(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=None) as reader:
            assert reader.stdout is not None
            await reader.stdout.receive()
            used = [machine.used() for machine in (worker, *fronts)]
            server, began = machines.server(), anyio.current_time()
            told = b"".join([part async for part in reader.stdout])
            seconds = anyio.current_time() - began
            by_server = server.seconds()
            by_worker, *by_fronts = (one.seconds() for one in used)
    heard = msgspec.json.decode(told, type=Heard)
    said = heard.tokens / FRONTS * seconds / heard.seconds
    pace = said / seconds / (STREAMS * TOKENS_PER_SECOND)
    return [
        Measure(
            what=f"text of {STREAMS} runs at {FRONTS} fronts, p99",
            value=quantile(heard.ages, 0.99) * MILLI,
            unit="ms",
            target=AGE,
            note=f"{heard.streams} readers, {pace:.0%} of the pace, a sleep late by {heard.late * MILLI:.0f} ms",
        ),
        Measure(what="the same, p50", value=quantile(heard.ages, 0.5) * MILLI, unit="ms"),
        Measure(what="the server, of one processor", value=by_server / seconds * 100, unit="%", target=SERVER),
        Measure(what="worker: a token", value=by_worker / said * MICRO, unit="µs"),
        Measure(what="front: a token to one reader", value=sum(by_fronts) / said / FRONTS * MICRO, unit="µs"),
        Measure(what="server: a token", value=by_server / said * MICRO, unit="µs"),
    ]


BENCHMARK: Final = Benchmark("fleet_text", "text of a worker's runs, at fronts of other machines", measure)
