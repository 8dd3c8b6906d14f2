"""What a worker asks of the server while it has nothing to do, with few and with many runs that others drive.

The server writes down every statement that it is given, and the worker is the only one that gives any.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

import anyio
from msgspec.structs import replace

from bench.fleet import Fleet, fleet
from bench.harness import Benchmark, Measure, Room, Target
from bench.workload import LEASE_SECONDS, OWNER, created
from checkrein.journal import open_journal

TARGET: Final = Target("at most", 2.0)
FEW: Final = 10
MANY: Final = 1000
SETTLE_SECONDS: Final = 8.0
"""After its start a worker looks around, and finds out whether it is told what others do."""
STATEMENT: Final = re.compile(r"^\d+ LOG:  (?:statement|execute [^:]*):\s*(\S.*)$", re.MULTILINE)


async def measure(room: Room) -> list[Measure]:
    async with fleet(room, log_statement="all", log_line_prefix="'%p '") as machines:
        few = await _asked(room, machines, FEW)
        many = await _asked(room, machines, room.count(MANY, 200) - FEW)
    return [_rate(f"statements of an idle worker, {FEW} runs elsewhere", few), _rate("the same with many", many)]


class _Asked(Counter[str]):
    seconds = 0.0
    runs = 0


async def _asked(room: Room, machines: Fleet, more: int) -> _Asked:
    """With so many more runs that somebody else drives."""
    async with await open_journal(machines.store) as journal:
        for number in range(more):
            run = f"elsewhere-{more}-{number}"
            await journal.create(replace(created(run), agent="waiter", thread=run))
            await journal.claim(run, OWNER, seconds=LEASE_SECONDS)
    worker = await machines.worker()
    await anyio.sleep(SETTLE_SECONDS)
    log = machines.cluster.folder / "log"
    before, began = log.stat().st_size, anyio.current_time()
    await anyio.sleep(room.count(30, 10))
    asked = _Asked(_kind(found) for found in STATEMENT.findall(log.read_bytes()[before:].decode(errors="replace")))
    asked.seconds = anyio.current_time() - began
    worker.kill()
    return asked


def _kind(statement: str) -> str:
    return " ".join(re.sub(r'"?\w+"?\.', "", statement).split()[:4])[:40]


def _rate(what: str, asked: _Asked) -> Measure:
    note = ", ".join(f"{kind} {count / asked.seconds:.2f}" for kind, count in asked.most_common(6))
    return Measure(what=what, value=asked.total() / asked.seconds, unit="/s", target=TARGET, note=note)


BENCHMARK: Final = Benchmark("fleet_idle", "what a worker asks of the server that has nothing to do", measure)
