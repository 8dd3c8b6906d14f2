"""The roster of workers: who drives runs, of which agents, and who is known to be dead. Times are the server's own."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec

from checkrein.journal import refusals
from checkrein.journal.base import LISTED_SECONDS, Owner, Worker
from checkrein.journal.postgres.connection import Session
from checkrein.journal.postgres.leases import Clocks
from checkrein.journal.postgres.writes.job import Context, Job
from checkrein.journal.stored import WORKER_COLUMNS, worker_of_row

LISTED: Final = f"""
SELECT {WORKER_COLUMNS} FROM {{s}}.workers WHERE NOT replaced AND NOT discharged
AND greatest(seen_until, buried_at) > coalesce(%s::double precision, extract(epoch FROM clock_timestamp()))
    - %s::double precision
ORDER BY key DESC
"""
BY_KEY: Final = f"SELECT {WORKER_COLUMNS} FROM {{s}}.workers WHERE key = %s"
ENLIST: Final = """
SELECT outcome, answer, (SELECT since FROM {s}.workers WHERE key = answer),
    coalesce(%(now)s::double precision, extract(epoch FROM clock_timestamp())) + %(seconds)s::double precision
FROM {s}.enlist(
    %(name)s::text, %(process)s::text, %(host)s::text, %(boot_id)s::text, %(pid)s::bigint,
    %(started)s::double precision, %(version)s::text, %(cards)s::bytea, %(agents)s::bytea, %(slots)s::bigint,
    %(free)s::bigint, %(engine)s::text, %(seconds)s::double precision, %(now)s::double precision, %(instead_of)s::text[]
)
"""
DISCHARGE: Final = "SELECT {s}.discharge(%s::text)"
BURY: Final = "SELECT {s}.bury(%s::text, %s::bytea, %s::bytea, %s::double precision)"
DEPARTED: Final = (
    "SELECT process FROM {s}.workers WHERE process = ANY (%s::text[]) AND (replaced OR buried_by IS NOT NULL)"
)


def read(session: Session, clocks: Clocks) -> tuple[Worker, ...]:
    return tuple(worker_of_row(*row) for row in session.rows(LISTED, (clocks.told(), LISTED_SECONDS)))


def departed(session: Session, processes: Collection[str]) -> frozenset[str]:
    asked = [process for process in processes if "\0" not in process]
    return frozenset(process for (process,) in session.rows(DEPARTED, (asked,)))


def enlist(
    session: Session, worker: Worker, seconds: float, instead_of: Collection[str], clocks: Clocks
) -> tuple[str, Worker]:
    """What became of it, and who has the name."""
    values = {
        **msgspec.structs.asdict(worker.owner),
        "name": worker.name,
        "version": worker.version,
        "cards": worker.cards,
        "agents": msgspec.json.encode(worker.agents),
        "slots": worker.slots,
        "free": worker.free,
        "engine": worker.engine,
        "seconds": float(seconds),
        "now": clocks.told(),
        "instead_of": list(instead_of),
    }
    (outcome, key, since, until), *_ = session.rows(ENLIST, values)
    if outcome == "enlisted" and since is not None:
        # Another sign of life, as it is said again and again: what it would read is known, in one statement.
        return outcome, msgspec.structs.replace(worker, since=since, seen_until=until)
    return outcome, _by_key(session, key)


def _by_key(session: Session, key: int) -> Worker:
    (row,) = session.rows(BY_KEY, (key,))
    return worker_of_row(*row)


class Discharge(Job[None]):
    def __init__(self, owner: Owner) -> None:
        self._owner = owner

    def perform(self, at: Context) -> None:
        at.session.rows(DISCHARGE, (self._owner.process,))


class Bury(Job[Worker]):
    def __init__(self, name: str, by: str, reason: str, clocks: Clocks) -> None:
        self._name = name
        self._word = (by.encode(), reason.encode())
        self._clocks = clocks

    def perform(self, at: Context) -> Worker:
        row = at.session.row(BURY, (self._name, *self._word, self._clocks.told())) if "\0" not in self._name else None
        if row is None or row[0] is None:
            raise refusals.worker_not_found(self._name)
        return _by_key(at.session, row[0])
