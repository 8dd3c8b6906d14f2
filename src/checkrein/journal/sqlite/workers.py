"""The roster of workers: who drives runs, of which agents, and who is known to be dead."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from typing import Final

import msgspec

from checkrein.journal import refusals
from checkrein.journal.base import LISTED_SECONDS, Owner, Worker
from checkrein.journal.sqlite.job import Job, Transaction
from checkrein.journal.sqlite.leases import Clocks
from checkrein.journal.stored import WORKER_COLUMNS, worker_of_row

LISTED: Final = f"""
SELECT {WORKER_COLUMNS} FROM workers WHERE NOT replaced AND NOT discharged
AND max(seen_until, ifnull(buried_at, 0)) > ?1 ORDER BY key DESC
"""
HOLDER: Final = f"SELECT key, discharged, {WORKER_COLUMNS} FROM workers WHERE name = ?1 AND NOT replaced"
OWN: Final = f"SELECT {WORKER_COLUMNS} FROM workers WHERE name = ?1 AND process = ?2"
REPLACE: Final = "UPDATE workers SET replaced = 1, cards = x'' WHERE key = ?1"
PUT: Final = """
INSERT INTO workers (name, process, host, boot_id, pid, started, version, cards, agents, slots, free, engine, since,
    seen_until)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)
ON CONFLICT (name, process) DO UPDATE SET version = excluded.version, cards = excluded.cards, agents = excluded.agents,
    slots = excluded.slots, free = excluded.free, engine = excluded.engine, seen_until = excluded.seen_until,
    discharged = 0
"""
DISCHARGE: Final = "UPDATE workers SET discharged = 1 WHERE process = ?1"
BURY: Final = """
UPDATE workers SET discharged = 0, buried_by = coalesce(buried_by, ?2), buried_at = coalesce(buried_at, ?4),
    reason = coalesce(reason, ?3)
WHERE name = ?1 AND NOT replaced
"""
DEPARTED: Final = """
SELECT process FROM workers WHERE process IN (SELECT value FROM json_each(?1)) AND (replaced OR buried_by IS NOT NULL)
"""


def read(db: sqlite3.Connection, clocks: Clocks) -> tuple[Worker, ...]:
    rows = db.execute(LISTED, (clocks.wall() - LISTED_SECONDS,)).fetchall()
    return tuple(worker_of_row(*row) for row in rows)


def departed(db: sqlite3.Connection, processes: Collection[str]) -> frozenset[str]:
    asked = msgspec.json.encode(list(processes)).decode()
    return frozenset(process for (process,) in db.execute(DEPARTED, (asked,)).fetchall())


class Enlist(Job[Worker]):
    def __init__(self, worker: Worker, seconds: float, instead_of: Collection[str], clocks: Clocks) -> None:
        self._worker = worker
        self._seconds = seconds
        self._instead_of = instead_of
        self._clocks = clocks

    def perform(self, tx: Transaction) -> Worker:
        worker, now = self._worker, self._clocks.wall()
        own = self._own(tx)
        if own is not None and own.burial is not None:
            raise refusals.buried(own)
        found = tx.cursor.execute(HOLDER, (worker.name,)).fetchone()
        if found is not None:
            key, is_discharged, *row = found
            holder = worker_of_row(*row)
            process = holder.owner.process
            if process != worker.owner.process:
                is_seen = not is_discharged and holder.burial is None and holder.seen_until > now
                if own is not None or (is_seen and process not in self._instead_of):
                    raise refusals.name_taken(holder)
                tx.cursor.execute(REPLACE, (key,))
        self._put(tx, now)
        enlisted = self._own(tx)
        assert enlisted is not None
        return enlisted

    def _own(self, tx: Transaction) -> Worker | None:
        row = tx.cursor.execute(OWN, (self._worker.name, self._worker.owner.process)).fetchone()
        return None if row is None else worker_of_row(*row)

    def _put(self, tx: Transaction, now: float) -> None:
        worker, owner = self._worker, self._worker.owner
        who = (worker.name, owner.process, owner.host, owner.boot_id, owner.pid, owner.started)
        what = (worker.version, worker.cards, msgspec.json.encode(worker.agents).decode())
        room = (worker.slots, worker.free, worker.engine)
        tx.cursor.execute(PUT, (*who, *what, *room, now, now + self._seconds))


class Discharge(Job[None]):
    def __init__(self, owner: Owner) -> None:
        self._owner = owner

    def perform(self, tx: Transaction) -> None:
        tx.cursor.execute(DISCHARGE, (self._owner.process,))


class Bury(Job[Worker]):
    def __init__(self, name: str, by: str, reason: str, clocks: Clocks) -> None:
        self._name = name
        self._word = (by, reason)
        self._clocks = clocks

    def perform(self, tx: Transaction) -> Worker:
        tx.cursor.execute(BURY, (self._name, *self._word, self._clocks.wall()))
        found = tx.cursor.execute(HOLDER, (self._name,)).fetchone()
        if found is None:
            raise refusals.worker_not_found(self._name)
        return worker_of_row(*found[2:])
