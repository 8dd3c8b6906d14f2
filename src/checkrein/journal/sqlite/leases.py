"""Leases: who drives a run, and until when. The epoch is kept with the run's head and only ever rises."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from checkrein.core.enums import UNFINISHED, Status
from checkrein.journal import refusals
from checkrein.journal.base import (
    ANY_VERSION,
    STOP_VERSION_SECONDS,
    ClaimOptions,
    ClaimTerms,
    Lease,
    LeftToOthers,
    Owner,
    claimable,
    keeps_out,
)
from checkrein.journal.sqlite.job import Job, Transaction
from checkrein.journal.stored import lease_of_row

HELD: Final = """
SELECT h.epoch, l.deadline, l.until, l.process, l.host, l.boot_id, l.pid, l.started, r.key
FROM runs r JOIN heads h ON h.run = r.key LEFT JOIN leases l ON l.run = r.key WHERE r.id = ?1
"""
HELD_OF: Final = """
SELECT r.id, h.epoch, l.deadline, l.until, l.process, l.host, l.boot_id, l.pid, l.started
FROM json_each(?1) j JOIN runs r ON r.id = j.value JOIN heads h ON h.run = r.key JOIN leases l ON l.run = r.key
"""
IN_FORCE: Final = """
    iif({lease}.until <> 0 AND :boot_id <> '' AND {lease}.boot_id = :boot_id,
        {lease}.until > :steady, {lease}.deadline > :now)
"""
"""`has_not_run_out`, of the row of a lease."""
LEFT_TO_OTHERS: Final = """
    h.version IN (SELECT value FROM json_each(:versions)) AND iif(
        r.status IN (SELECT value FROM json_each(:any_version)),
        min(:version_seconds, :stop_seconds) + (SELECT at FROM events WHERE run = h.run ORDER BY seq DESC LIMIT 1),
        :version_seconds + max(
            (SELECT at FROM events WHERE run = h.run ORDER BY seq DESC LIMIT 1), ifnull(l.deadline, 0))) > :now
"""
FREE: Final = f"""
SELECT r.id FROM (
    SELECT r.key FROM runs r JOIN heads h ON h.run = r.key
    WHERE r.agent IN (SELECT value FROM json_each(:agents)) AND r.status IN (SELECT value FROM json_each(:wanted))
    AND (h.rests = 0 OR h.rests <> (SELECT max(seq) FROM events WHERE run = r.key))
    UNION
    SELECT r.key FROM leases l JOIN runs r ON r.key = l.run
    WHERE r.agent IN (SELECT value FROM json_each(:agents)) AND r.status IN (SELECT value FROM json_each(:if_left))
) c JOIN runs r ON r.key = c.key JOIN heads h ON h.run = r.key LEFT JOIN leases l ON l.run = r.key
WHERE r.id NOT IN (SELECT value FROM json_each(:except_for))
AND (l.run IS NULL OR NOT {IN_FORCE.format(lease="l")} AND l.process NOT IN (SELECT value FROM json_each(:not_of)))
AND NOT EXISTS (
    SELECT 1 FROM runs p JOIN leases m ON m.run = p.key
    WHERE p.id = r.parent AND m.process <> :process AND {IN_FORCE.format(lease="m")}
)
AND (r.status <> :queued OR NOT EXISTS (
    SELECT 1 FROM runs b WHERE b.thread = r.thread AND b.owner = r.owner AND b.parent IS NULL AND b.key < r.key
    AND b.status IN (SELECT value FROM json_each(:unfinished))
))
AND NOT ({LEFT_TO_OTHERS})
ORDER BY r.key LIMIT :most
"""
LEASES_OF: Final = f"""
SELECT r.id, h.epoch, l.deadline, l.until, l.process, l.host, l.boot_id, l.pid, l.started
FROM leases l JOIN runs r ON r.key = l.run JOIN heads h ON h.run = l.run
WHERE l.process IN (SELECT value FROM json_each(:processes)) AND r.agent IN (SELECT value FROM json_each(:agents))
AND NOT ({LEFT_TO_OTHERS}) ORDER BY r.key
"""
OWNERS: Final = "SELECT DISTINCT process, host, boot_id, pid, started FROM leases"
RAISE_EPOCH: Final = "UPDATE heads SET epoch = ?2 WHERE run = ?1"
PUT: Final = """
INSERT OR REPLACE INTO leases (run, deadline, until, process, host, boot_id, pid, started)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
"""
OF_PROCESS: Final = """
SELECT r.id, r.key FROM leases l JOIN runs r ON r.key = l.run WHERE l.process = ?1 AND l.deadline <> 0
"""
PROLONG: Final = "UPDATE leases SET deadline = ?2, until = ?3 WHERE run = ?1"
DROP: Final = "DELETE FROM leases WHERE run = ?1"
LEAVE: Final = "UPDATE leases SET deadline = 0, until = 0 WHERE run = ?1"
REST: Final = "UPDATE heads SET rests = ?2 WHERE run = ?1"
NAME_VERSION: Final = """
UPDATE heads SET version = ?2 WHERE run = ?1
AND (SELECT status FROM runs WHERE key = ?1) NOT IN (SELECT value FROM json_each(?3))
"""
VERSIONS: Final = """
SELECT r.id, h.version FROM json_each(?1) j JOIN runs r ON r.id = j.value JOIN heads h ON h.run = r.key
WHERE h.version <> ''
"""


def read(db: sqlite3.Connection | sqlite3.Cursor, run: str) -> tuple[int, int, Lease | None]:
    """The run's key, its epoch, and its lease if somebody holds it, also one that has run out."""
    row = db.execute(HELD, (run,)).fetchone()
    if row is None:
        raise refusals.not_found(run)
    epoch, *held, key = row
    return key, epoch, None if held[2] is None else lease_of_row(run, epoch, *held)


def read_all(db: sqlite3.Connection, runs: Collection[str]) -> dict[str, Lease]:
    """The leases of those of `runs` that have one, also those that have run out."""
    return {row[0]: lease_of_row(*row) for row in db.execute(HELD_OF, (_json(runs),)).fetchall()}


def _json(names: Collection[str]) -> str:
    return msgspec.json.encode(list(names)).decode()


_STOPS: Final = {"any_version": _json(ANY_VERSION), "stop_seconds": STOP_VERSION_SECONDS}


def versions(db: sqlite3.Connection, runs: Collection[str]) -> dict[str, str]:
    return dict(db.execute(VERSIONS, (_json(runs),)).fetchall())


def _who(owner: Owner) -> tuple[str, str, int, float]:
    return owner.host, owner.boot_id, owner.pid, owner.started


class Clocks(NamedTuple):
    wall: Callable[[], float]
    steady: Callable[[], float]


class Wanted(NamedTuple):
    """Which runs are to be claimed if they are free, by whom."""

    agents: Collection[str]
    owner: Owner
    most: int
    options: ClaimOptions


def free(db: sqlite3.Connection | sqlite3.Cursor, wanted: Wanted, clocks: Clocks) -> list[str]:
    """The runs that want a driver and have none, the oldest first: what `Journal.claim_free` means by that."""
    options = wanted.options
    statuses, if_left = claimable(options.get("stops_only", False))
    given: dict[str, Any] = {
        "agents": _json(wanted.agents),
        "wanted": _json(statuses),
        "if_left": _json(if_left),
        "not_of": _json(options.get("not_of", ())),
        "versions": _json(options.get("versions_elsewhere", ())),
        "version_seconds": options.get("version_seconds", 0.0),
        **_STOPS,
        "unfinished": _json(UNFINISHED),
        "queued": Status.QUEUED,
        "except_for": _json(options.get("except_for", ())),
        "process": wanted.owner.process,
        "boot_id": wanted.owner.boot_id,
        "now": clocks.wall(),
        "steady": clocks.steady(),
        "most": max(0, wanted.most),
    }
    return [run for (run,) in db.execute(FREE, given).fetchall()]


def leases_of(
    db: sqlite3.Connection, processes: Collection[str], agents: Collection[str], left: LeftToOthers, now: float
) -> tuple[Lease, ...]:
    versions, seconds = left.get("versions_elsewhere", ()), left.get("version_seconds", 0.0)
    given = {"processes": _json(processes), "agents": _json(agents), "versions": _json(versions), **_STOPS}
    rows = db.execute(LEASES_OF, {**given, "version_seconds": seconds, "now": now}).fetchall()
    return tuple(lease_of_row(*row) for row in rows)


def owners(db: sqlite3.Connection) -> tuple[Owner, ...]:
    rows = db.execute(OWNERS).fetchall()
    return tuple(Owner(process=row[0], host=row[1], boot_id=row[2], pid=row[3], started=row[4]) for row in rows)


class _Claimed(NamedTuple):
    """Who claims, and for how long."""

    owner: Owner
    seconds: float
    version: str
    clocks: Clocks


def _put(tx: Transaction, run: str, key: int, epoch: int, current: Lease | None, by: _Claimed) -> Lease:
    owner, seconds, version, clocks = by
    deadline, until = clocks.wall() + seconds, clocks.steady() + seconds
    tx.cursor.execute(RAISE_EPOCH, (key, epoch))
    tx.heads.forget(run)
    tx.cursor.execute(PUT, (key, deadline, until, owner.process, *_who(owner)))
    if version:
        tx.cursor.execute(NAME_VERSION, (key, version, _json(ANY_VERSION)))
    lease = Lease(run=run, epoch=epoch, owner=owner, deadline=deadline, until=until)
    return lease if current is None else replace(lease, previous=current.owner, previous_until=current.until)


class Claim(Job[Lease]):
    def __init__(self, run: str, owner: Owner, seconds: float, terms: ClaimTerms, clocks: Clocks) -> None:
        self._run = run
        self._owner = owner
        self._by = _Claimed(owner, seconds, terms.get("version", ""), clocks)
        self._force = terms.get("force", False)
        self._epoch = terms.get("epoch")
        self._clocks = clocks

    def perform(self, tx: Transaction) -> Lease:
        owner, now, steady = self._owner, self._clocks.wall(), self._clocks.steady()
        key, epoch, current = read(tx.cursor, self._run)
        if self._epoch is not None and self._epoch <= epoch:
            raise refusals.stale_claim(self._run, self._epoch, epoch)
        if current and not self._force and keeps_out(current, owner, at=now, steady_at=steady):
            raise refusals.held(self._run, current.owner, current.deadline)
        epoch = epoch + 1 if self._epoch is None else self._epoch
        return _put(tx, self._run, key, epoch, current, self._by)

    def recall(self, tx: Transaction) -> Lease | None:
        # Without a given epoch a second claim does no harm: it only raises the epoch once more.
        _, epoch, current = read(tx.cursor, self._run)
        is_ours = current is not None and current.owner == self._owner and epoch == self._epoch
        return current if is_ours else None


class ClaimFree(Job[tuple[Lease, ...]]):
    def __init__(self, wanted: Wanted, seconds: float, clocks: Clocks) -> None:
        self._wanted = wanted
        self._by = _Claimed(wanted.owner, seconds, wanted.options.get("version", ""), clocks)
        self._clocks = clocks
        self._claimed: tuple[Lease, ...] = ()

    def perform(self, tx: Transaction) -> tuple[Lease, ...]:
        claimed: list[Lease] = []
        for run in free(tx.cursor, self._wanted, self._clocks):
            key, epoch, current = read(tx.cursor, run)
            claimed.append(_put(tx, run, key, epoch + 1, current, self._by))
        self._claimed = tuple(claimed)
        return self._claimed

    def recall(self, tx: Transaction) -> tuple[Lease, ...] | None:
        # Done again it would find its own leases in force, and leave them out.
        is_done = bool(self._claimed) and all(self._stands(tx, lease) for lease in self._claimed)
        return self._claimed if is_done else None

    def _stands(self, tx: Transaction, lease: Lease) -> bool:
        _, epoch, current = read(tx.cursor, lease.run)
        return current is not None and (current.owner.process, epoch) == (lease.owner.process, lease.epoch)


class Renew(Job[frozenset[str]]):
    def __init__(self, owner: Owner, seconds: float, runs: Collection[str] | None, clocks: Clocks) -> None:
        self._owner = owner
        self._seconds = seconds
        self._runs = runs
        self._clocks = clocks

    def perform(self, tx: Transaction) -> frozenset[str]:
        deadline, until = self._clocks.wall() + self._seconds, self._clocks.steady() + self._seconds
        held = tx.cursor.execute(OF_PROCESS, (self._owner.process,)).fetchall()
        renewed = {run: key for run, key in held if self._runs is None or run in self._runs}
        tx.cursor.executemany(PROLONG, [(key, deadline, until) for key in renewed.values()])
        return frozenset(renewed)


class Release(Job[None]):
    def __init__(self, lease: Lease, rests_at: int, hands_over: bool) -> None:
        self._lease = lease
        self._rests_at = rests_at
        self._hands_over = hands_over

    def perform(self, tx: Transaction) -> None:
        lease = self._lease
        key, epoch, current = read(tx.cursor, lease.run)
        if current is not None and current.owner.process == lease.owner.process and epoch == lease.epoch:
            tx.cursor.execute(LEAVE if self._hands_over else DROP, (key,))
            if self._rests_at:
                tx.cursor.execute(REST, (key, self._rests_at))
