"""Evidence: what signing adds to durable steps, and how long a bundle of a long run takes.

Nothing is signed for a step. Once a minute the heads of all runs that have changed are signed together, and each stop
when it has settled. So what a durable step carries of it is its share of a minute: the time that a signer takes for a
minute in which two hundred runs have changed and twenty were stopped, against the minute of steps that it is about.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Final

from bench.harness import MICRO, MILLI, Benchmark, Measure, Room, Target
from bench.workload import begin, finished, new_id
from checkrein.control.evidence.bundle import gather, pack
from checkrein.control.evidence.keys import KnownKeys, SigningKey
from checkrein.control.evidence.log import Leaf, sign
from checkrein.control.evidence.signer import HEADS_SECONDS, Signer
from checkrein.control.evidence.verify import WHOLE, verify
from checkrein.journal import Journal, open_journal

EVENTS: Final = 10_000
RUNS: Final = 200
STOPS: Final = 20
KEY: Final = SigningKey(bytes(range(32)))


async def measure(room: Room) -> list[Measure]:
    async with await open_journal(room.address("journal")) as journal:
        return [*await _signing(room, journal), *await _bundle(room, journal)]


async def _signing(room: Room, journal: Journal) -> list[Measure]:
    runs = [await begin(journal, f"busy{number}") for number in range(RUNS)]
    steps = [await run.append_timed(finished(new_id())) for run in runs]
    signer = Signer(journal, KEY, time.time)
    await signer.sign()
    minutes: list[float] = []
    statements: list[float] = []
    for _ in range(room.count(5, 2)):
        for run in runs:
            await run.append(finished(new_id()))
        row = (await journal.runs(limit=1))[0]
        (record,) = await journal.read(row.id, after=row.seq - 1, limit=1)
        began = time.perf_counter()
        await signer.sign()
        for _ in range(STOPS):
            asked = time.perf_counter()
            await sign(journal, KEY, "stop", at=1.0, leaf=Leaf(row.id, row.seq, record.hash.hex()), what="cancel")
            statements.append(time.perf_counter() - asked)
        minutes.append(time.perf_counter() - began)
    return [
        Measure(
            what="signing, of a minute of durable steps",
            value=100 * median(minutes) / HEADS_SECONDS,
            unit="%",
            target=Target("at most", 1),
            note=f"{RUNS} runs changed, {STOPS} stopped: {median(minutes) * MILLI:.0f} ms in all",
        ),
        Measure(what="one signed statement, durable", value=median(statements) * MICRO, unit="µs"),
        Measure(what="one durable step", value=median(steps) * MICRO, unit="µs"),
    ]


async def _bundle(room: Room, journal: Journal) -> list[Measure]:
    run = await begin(journal, "long")
    await run.fill([finished(new_id()) for _ in range(EVENTS - 1)])
    bundled: list[float] = []
    verified: list[float] = []
    data = b""
    for _ in range(room.count(3, 1)):
        began = time.perf_counter()
        contents = await gather(journal, "long", with_withheld=True)
        data = pack(contents, key=KEY, made_by="bench", at=1.0, store_at=1.0)
        bundled.append(time.perf_counter() - began)
        began = time.perf_counter()
        finding = verify(data, KnownKeys([KEY.fingerprint]))
        verified.append(time.perf_counter() - began)
        assert finding.code == WHOLE, finding.sentence
    size, most = f"{len(data):,} bytes", Target("at most", 2)
    return [
        Measure(what="a bundle of 10,000 events", value=median(bundled), unit="s", target=most, note=size),
        Measure(what="its verification", value=median(verified), unit="s", target=most),
    ]


BENCHMARK: Final = Benchmark("evidence", "signing, bundles and their verification", measure)
