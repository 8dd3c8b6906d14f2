"""Noticing what other processes commit.

SQLite says cheaply whether anybody else has committed (`data_version`); only then are the new events looked at. Commits
of this process were announced already and are stepped over.
"""

from __future__ import annotations

import sqlite3
import time
from collections import deque
from contextlib import suppress
from typing import Final

from checkrein.journal.bells import PAGE, Tower
from checkrein.journal.contract import Recorded
from checkrein.journal.sqlite import queries
from checkrein.journal.sqlite.jobs import Transaction

POLL_SECONDS: Final = 0.005

LAST: Final = "SELECT ifnull(max(position), 0) FROM events"
NEWS: Final = """
SELECT r.id, min(e.seq), max(e.position)
FROM events e NOT INDEXED  -- or SQLite would group by walking an index over all events there ever were
JOIN runs r ON r.key = e.run WHERE e.position > ?1 GROUP BY e.run
"""


class Lookout:
    """Lives in the reader's thread; only `committed` is called from another."""

    def __init__(self, db: sqlite3.Connection, tower: Tower) -> None:
        self._db = db
        self._tower = tower
        self._is_active = False
        self._next = 0.0
        self._version = 0
        self._seen = 0
        self._own: deque[tuple[int, int]] = deque()

    def begin(self) -> None:
        """Announce everything that is committed from now on, until nobody listens any more."""
        if not self._is_active:
            self._own.clear()
            self._version = self._data_version()
            (self._seen,) = self._db.execute(LAST).fetchone()
            self._is_active = True

    def committed(self, tx: Transaction) -> None:
        """This process has committed the positions of `tx`."""
        if self._is_active:
            self._own.append((tx.first, tx.last))

    def wait_seconds(self) -> float | None:
        """How long there is nothing to do; None: for ever."""
        return max(0.0, self._next - time.monotonic()) if self._is_active else None

    def look(self) -> None:
        """Announce what is new, unless that was done a moment ago."""
        now = time.monotonic()
        if not self._is_active or now < self._next:
            return
        self._next = now + POLL_SECONDS
        self._is_active = self._tower.is_listened_to
        with suppress(Exception):  # whoever reads will be told; here it is only tried again, and must never end
            version = self._data_version()
            if version != self._version:
                self._announce()
                self._version = version

    def _announce(self) -> None:
        while self._own and self._own[0][0] <= self._seen + 1:
            self._seen = max(self._seen, self._own.popleft()[1])
        rows = self._db.execute(NEWS, (self._seen,)).fetchall()
        if rows:
            followed = self._tower.followed()
            news = {run: self._read(run, first) if run in followed else () for run, first, _ in rows}
            self._tower.announce(news)
            self._seen = max(position for _, _, position in rows)

    def _read(self, run: str, first: int) -> tuple[Recorded, ...]:
        """The new events of a run, or nothing when there are many."""
        records = queries.read(self._db, run, first - 1, PAGE)
        return records if len(records) < PAGE else ()

    def _data_version(self) -> int:
        return int(self._db.execute("PRAGMA data_version").fetchone()[0])
