"""Leases: who drives a run, and until when. The epoch is kept with the run's head and only ever rises."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Final

from checkrein.journal import refusals
from checkrein.journal.contract import Lease, Owner
from checkrein.journal.sqlite.jobs import Job, Transaction

HELD: Final = """
SELECT h.epoch, l.deadline, l.process, l.host, l.boot_id, l.pid, l.started, r.key
FROM runs r JOIN heads h ON h.run = r.key LEFT JOIN leases l ON l.run = r.key WHERE r.id = ?1
"""
RAISE_EPOCH: Final = "UPDATE heads SET epoch = ?2 WHERE run = ?1"
PUT: Final = """
INSERT OR REPLACE INTO leases (run, deadline, process, host, boot_id, pid, started) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
"""
OF_PROCESS: Final = """
SELECT r.id FROM leases l JOIN runs r ON r.key = l.run WHERE l.process = ?1 AND l.deadline > ?2
"""
PROLONG: Final = "UPDATE leases SET deadline = ?3 WHERE process = ?1 AND deadline > ?2"
DROP: Final = "DELETE FROM leases WHERE run = ?1"


def read(db: sqlite3.Connection | sqlite3.Cursor, run: str) -> tuple[int, int, Lease | None]:
    """The run's key, its epoch, and its lease if somebody holds it, also one that has run out."""
    row = db.execute(HELD, (run,)).fetchone()
    if row is None:
        raise refusals.not_found(run)
    epoch, deadline, process, host, boot_id, pid, started, key = row
    if process is None:
        return key, epoch, None
    owner = Owner(process=process, host=host, boot_id=boot_id, pid=pid, started=started)
    return key, epoch, Lease(run=run, epoch=epoch, owner=owner, deadline=deadline)


class Claim(Job[Lease]):
    def __init__(
        self, run: str, owner: Owner, seconds: float, force: bool, epoch: int | None, clock: Callable[[], float]
    ) -> None:
        self._run = run
        self._owner = owner
        self._seconds = seconds
        self._force = force
        self._epoch = epoch
        self._clock = clock

    def perform(self, tx: Transaction) -> Lease:
        owner, now = self._owner, self._clock()
        key, epoch, current = read(tx.cursor, self._run)
        if self._epoch is not None and self._epoch <= epoch:
            raise refusals.stale_claim(self._run, self._epoch, epoch)
        if current and current.owner.process != owner.process and current.deadline > now and not self._force:
            raise refusals.held(self._run, current.owner, current.deadline)
        epoch = epoch + 1 if self._epoch is None else self._epoch
        deadline = now + self._seconds
        tx.cursor.execute(RAISE_EPOCH, (key, epoch))
        tx.heads.forget(self._run)
        tx.cursor.execute(PUT, (key, deadline, owner.process, owner.host, owner.boot_id, owner.pid, owner.started))
        previous = current.owner if current else None
        return Lease(run=self._run, epoch=epoch, owner=owner, deadline=deadline, previous=previous)

    def recall(self, tx: Transaction) -> Lease | None:
        # Without a given epoch a second claim does no harm: it only raises the epoch once more.
        _, epoch, current = read(tx.cursor, self._run)
        is_ours = current is not None and current.owner == self._owner and epoch == self._epoch
        return current if is_ours else None


class Renew(Job[frozenset[str]]):
    def __init__(self, owner: Owner, seconds: float, clock: Callable[[], float]) -> None:
        self._owner = owner
        self._seconds = seconds
        self._clock = clock

    def perform(self, tx: Transaction) -> frozenset[str]:
        now = self._clock()
        held = frozenset(run for (run,) in tx.cursor.execute(OF_PROCESS, (self._owner.process, now)).fetchall())
        if held:
            tx.cursor.execute(PROLONG, (self._owner.process, now, now + self._seconds))
        return held


class Release(Job[None]):
    def __init__(self, lease: Lease) -> None:
        self._lease = lease

    def perform(self, tx: Transaction) -> None:
        lease = self._lease
        key, epoch, current = read(tx.cursor, lease.run)
        if current is not None and current.owner.process == lease.owner.process and epoch == lease.epoch:
            tx.cursor.execute(DROP, (key,))
