"""Where each run stands, as its next append must know it.

What was read, or written, by this connection is remembered as long as nobody else writes: SQLite tells (`data_version`)
whether somebody has. So a process that is alone with its runs reads each head once.
"""

from __future__ import annotations

import sqlite3
from typing import Final, NamedTuple

from checkrein.core.words import Status
from checkrein.journal import refusals, rules
from checkrein.journal.sqlite.cover import cover_of

MOST: Final = 4096
"""How many heads are remembered."""

HEAD: Final = f"""
SELECT r.key, {cover_of("r.id", "ifnull(r.root, r.id)", "r.agent", "r.owner")}, e.hash, e.seq, h.decided, h.epoch,
       r.status
FROM runs r JOIN heads h ON h.run = r.key JOIN events e ON e.run = r.key
WHERE r.id = ?1 ORDER BY e.seq DESC LIMIT 1
"""


class Known(NamedTuple):
    key: int
    cover: rules.Cover
    hash: bytes
    head: rules.Head


class Heads:
    """Used inside transactions of one connection only."""

    def __init__(self) -> None:
        self._known: dict[str, Known] = {}
        self._version = 0

    def begin(self, db: sqlite3.Connection) -> None:
        """Call this first in every transaction."""
        (version,) = db.execute("PRAGMA data_version").fetchone()
        if version != self._version or len(self._known) > MOST:
            self._known.clear()
            self._version = version

    def get(self, cursor: sqlite3.Cursor, run: str) -> Known:
        """Raises `RunNotFound`."""
        return self._known.get(run) or self._read(cursor, run)

    def put(self, run: str, known: Known) -> None:
        """This connection has just written it."""
        self._known[run] = known

    def forget(self, run: str | None = None) -> None:
        """Something else was written that a head depends on, or what was written was taken back."""
        if run is None:
            self._known.clear()
        else:
            self._known.pop(run, None)

    def _read(self, cursor: sqlite3.Cursor, run: str) -> Known:
        row = cursor.execute(HEAD, (run,)).fetchone()
        if row is None:
            raise refusals.not_found(run)
        key, cover, hash, seq, decided, epoch, status = row
        known = Known(key, rules.Cover(cover), hash, rules.Head(seq, decided, epoch, Status(status)))
        self._known[run] = known
        return known
