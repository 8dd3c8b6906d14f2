"""Halts in a file: the fence and its record in one transaction, and the way there that needs no journal to be open.

Standard library only: `checkrein halt` imports this and little else.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Collection
from contextlib import closing
from typing import Final

from checkrein.errors import RunNotFound, StoreUnavailable
from checkrein.journal import operations
from checkrein.journal.sqlite import database
from checkrein.journal.sqlite.disk_reserve import Reserve
from checkrein.journal.sqlite.write_lock import WriteLock

INSERT_FENCE: Final = """
INSERT OR IGNORE INTO fences (scope, name, halt, source, by, reason, at) VALUES (?1, ?2, ?3, ?2, ?4, ?5, ?6)
"""
INSERT_FENCES_BELOW: Final = """
WITH RECURSIVE below (id) AS (
    SELECT id FROM runs WHERE parent = ?1
    UNION
    SELECT runs.id FROM runs JOIN below ON runs.parent = below.id
)
INSERT OR IGNORE INTO fences (scope, name, halt, source, by, reason, at) SELECT 'run', id, ?2, ?1, ?3, ?4, ?5 FROM below
"""
LIFT_FENCE: Final = "DELETE FROM fences WHERE scope = ?1 AND source = ?2 AND halt = 1"

_FOUND: Final = "SELECT was_latched FROM operations WHERE id = ?"
_HEAD: Final = "SELECT seq, hash FROM operations ORDER BY seq DESC LIMIT 1"
_PUT: Final = "INSERT INTO operations (seq, id, was_latched, hash, body) VALUES (?, ?, ?, ?, ?)"


def insert_fence(cursor: sqlite3.Cursor, scope: str, name: str, *, halt: bool, by: str, reason: str, at: float) -> bool:
    """Whether it is new.

    A fence over a run is written for its descendants too, each row naming the run it was made for. A sub-run
    cannot be created below a fenced run, so no descendant is ever missed.
    """
    words = (halt, by, reason, at)
    is_new = cursor.execute(INSERT_FENCE, (scope, name, *words)).rowcount > 0
    if scope == "run":
        cursor.execute(INSERT_FENCES_BELOW, (name, *words))
    return is_new


def latch(cursor: sqlite3.Cursor, asked: operations.Request, now: float) -> bool:
    """Put the fence of a halt up and record it. Returns whether it was up before; then the first one's words stay."""
    if (was_latched := _recorded(cursor, asked)) is not None:
        return was_latched
    was_latched = not insert_fence(
        cursor, asked.scope, asked.name, halt=True, by=asked.by, reason=asked.reason, at=asked.at
    )
    _record(cursor, asked, now, was_latched)
    return was_latched


def lift(cursor: sqlite3.Cursor, asked: operations.Request, runs: Collection[str], now: float) -> bool:
    """Take the fence of a halt down, and those of `runs`, which it ended, and record it. Returns whether it was up."""
    if (was_latched := _recorded(cursor, asked)) is not None:
        return was_latched
    was_latched = cursor.execute(LIFT_FENCE, (asked.scope, asked.name)).rowcount > 0
    cursor.executemany(LIFT_FENCE, [("run", run) for run in runs])
    _record(cursor, asked, now, was_latched)
    return was_latched


def _recorded(cursor: sqlite3.Cursor, asked: operations.Request) -> bool | None:
    found = cursor.execute(_FOUND, (asked.id,)).fetchone()
    return None if found is None else bool(found[0])


def _record(cursor: sqlite3.Cursor, asked: operations.Request, now: float, was_latched: bool) -> None:
    seq, previous = cursor.execute(_HEAD).fetchone() or (0, operations.GENESIS)
    body = operations.stamped(asked.body(), store_at=now, was_latched=was_latched)
    cursor.execute(_PUT, (seq + 1, asked.id, was_latched, operations.link(previous, seq + 1, body), body))


# -- without an open journal


def latch_at(path: str, asked: operations.Request, *, patience: float) -> bool:
    """Put the fence of a halt up in the journal at `path`, durably, and say whether it was up before.

    Raises `StoreUnavailable` after `patience` seconds, what opening a journal raises, and `RunNotFound` for a halt of a
    run that there is not. Then nothing was latched.
    """
    if not os.path.exists(path):
        raise StoreUnavailable(f"There is no store {path}.", code="store_not_found", path=path)
    path = database.ensure(path)
    try:
        return _latch_at(path, asked, patience)
    except sqlite3.OperationalError as error:
        if not database.is_full(error):
            raise database.explain(error, path) from error
    Reserve(path).spend()
    with database.explained(path):
        return _latch_at(path, asked, patience)


def _latch_at(path: str, asked: operations.Request, patience: float) -> bool:
    with closing(database.connect(path)) as db, closing(WriteLock(path, patience)) as lock:
        lock.begin(db, lambda: True)
        _check_run(db, asked)
        was_latched = latch(db.cursor(), asked, time.time())
        db.execute("COMMIT")  # what is not committed is rolled back when the connection closes
        return was_latched


def _check_run(db: sqlite3.Connection, asked: operations.Request) -> None:
    if asked.scope == "run" and db.execute("SELECT 1 FROM runs WHERE id = ?", (asked.name,)).fetchone() is None:
        raise RunNotFound(f"There is no run {asked.name}.", run=asked.name)


_KNOWN: Final = {
    "agent": "SELECT 1 FROM runs WHERE agent = ? LIMIT 1",
    "owner": "SELECT 1 FROM runs WHERE owner = ? LIMIT 1",
}


def is_known_at(path: str, scope: str, name: str) -> bool:
    """Whether there ever was a run of this agent or owner."""
    with database.explained(path), closing(database.connect(path, is_writer=False)) as db:
        return db.execute(_KNOWN[scope], (name,)).fetchone() is not None
