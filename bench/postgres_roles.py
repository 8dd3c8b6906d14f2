"""The append of a role of a store in PostgreSQL, through functions, against the statement of the owner of the tables.

The statements alone, without the threads of a journal around them, on one server and in turns.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from bench.harness import Benchmark, Measure, Room, Rounds, Target
from bench.postgres_journal import WRITERS, pair
from bench.workload import DrivenRun, begin
from checkrein.journal import admission, encoding, open_journal
from checkrein.journal.admission import Taken
from checkrein.journal.postgres import roles
from checkrein.journal.postgres.connection import Session, target_of
from checkrein.journal.postgres.writes.append import Append
from checkrein.journal.postgres.writes.batch import append_all
from checkrein.journal.postgres.writes.job import Context, Heads
from tests.support.postgres import running

SCHEMA: Final = "checkrein"


class Appends:
    """Two events to each of its runs, all in one statement."""

    def __init__(self, at: Context, runs: Sequence[DrivenRun]) -> None:
        self._at = at
        self._runs = runs

    def timed(self) -> float:
        jobs = []
        for run in self._runs:
            events = pair()
            proposal = admission.propose(events, after=1, epoch=run.epoch)
            jobs.append(Append(run.id, proposal, [encoding.encode(event) for event in events]))
        began = time.perf_counter()
        answers = [answer for some in append_all(self._at, jobs) for answer in some]
        took = time.perf_counter() - began
        assert all(isinstance(answer, Taken) and answer.refusal is None for _, answer in answers)
        return took


def _context(address: str) -> Context:
    target = target_of(address)
    session = Session(target, may_prepare=True)
    fitted = roles.fitted(session, target, roles.rights(session, target))
    session.say_instead(fitted.instead)
    return Context(session, Heads(), fitted, "bench")


async def measure(room: Room) -> list[Measure]:
    with running(within=room.folder) as cluster:
        role = _context(cluster.with_roles(SCHEMA))
        owner = _context(cluster.address(SCHEMA))
        assert role.target.instead
        assert not owner.target.instead
        async with await open_journal(cluster.address(SCHEMA)) as journal:
            lone = [await begin(journal, f"lone-{who}") for who in ("owner", "role")]
            many = [[await begin(journal, f"{who}-{n}") for n in range(WRITERS)] for who in ("owner", "role")]
        measures = [
            *await _compared(
                room, "an append of two events", Appends(owner, lone[:1]), Appends(role, lone[1:]), 20, 2.5
            ),
            *await _compared(
                room, f"{WRITERS} of them at once", Appends(owner, many[0]), Appends(role, many[1]), 3, 4.0
            ),
        ]
        owner.session.close()
        role.session.close()
        return measures


async def _compared(
    room: Room, what: str, owner: Appends, role: Appends, per_turn: int, at_most: float
) -> list[Measure]:
    async def of_owner() -> Sequence[float]:
        return [owner.timed() for _ in range(per_turn)]

    async def of_role() -> Sequence[float]:
        return [role.timed() for _ in range(per_turn)]

    rounds = Rounds(owner=of_owner, role=of_role)
    await rounds.warm_up(3)
    await rounds.run(room.count(40, 8))
    return [rounds.ratio(f"{what}, through functions", "role", "owner", Target("at most", at_most))]


BENCHMARK: Final = Benchmark("postgres_roles", "appends of a role, against those of the owner of the tables", measure)
