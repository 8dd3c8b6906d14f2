"""Fences: which runs may not begin anything.

A fence over a run is written for its descendants too, in the same transaction, each row naming the run it was made for.
A sub-run cannot be created below a fenced run, so no descendant is ever missed.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from checkrein.journal.contract import Fence, Scope
from checkrein.journal.sqlite.jobs import Job, Lane, Transaction

INSERT: Final = """
INSERT OR IGNORE INTO fences (scope, name, halt, source, by, reason, at) VALUES (?1, ?2, ?3, ?2, ?4, ?5, ?6)
"""
INSERT_FOR_DESCENDANTS: Final = """
WITH RECURSIVE below (id) AS (
    SELECT id FROM runs WHERE parent = ?1
    UNION
    SELECT runs.id FROM runs JOIN below ON runs.parent = below.id
)
INSERT OR IGNORE INTO fences (scope, name, halt, source, by, reason, at) SELECT 'run', id, ?2, ?1, ?3, ?4, ?5 FROM below
"""
LIFT: Final = "DELETE FROM fences WHERE scope = ?1 AND source = ?2 AND halt = 1"
HALTS: Final = (
    "SELECT scope, name, by, reason, at FROM fences WHERE halt = 1 AND name = source ORDER BY at, scope, name"
)


def insert(cursor: sqlite3.Cursor, fence: Fence) -> None:
    words = (fence.halt, fence.by, fence.reason, fence.at)
    cursor.execute(INSERT, (fence.scope, fence.name, *words))
    if fence.scope is Scope.RUN:
        cursor.execute(INSERT_FOR_DESCENDANTS, (fence.name, *words))


def read(db: sqlite3.Connection) -> tuple[Fence, ...]:
    """Every halt that is latched."""
    return tuple(
        Fence(scope=Scope(scope), name=name, by=by, reason=reason, at=at)
        for scope, name, by, reason, at in db.execute(HALTS).fetchall()
    )


class PutFence(Job[None]):
    lane = Lane.VERB

    def __init__(self, fence: Fence) -> None:
        self._fence = fence

    def perform(self, tx: Transaction) -> None:
        insert(tx.cursor, self._fence)
        tx.heads.forget()


class LiftFence(Job[bool]):
    lane = Lane.VERB

    def __init__(self, scope: Scope, name: str) -> None:
        self._key = (scope, name)

    def perform(self, tx: Transaction) -> bool:
        tx.heads.forget()
        return tx.cursor.execute(LIFT, self._key).rowcount > 0
