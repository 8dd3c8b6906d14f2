"""What the writer of a file is asked to do, and what it works with.

A job is performed inside a transaction that it shares with others. It raises a `CheckreinError` only before it has
written anything, so that a refused job leaves its neighbours alone.

Where each run stands, as its next append must know it. What was read, or written, by this connection is remembered as
long as nobody else writes: SQLite tells (`data_version`) whether somebody has. So a process that is alone with its runs
reads each head once.
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from typing import Final, Generic, NamedTuple, TypeVar

from checkrein.core.enums import Status
from checkrein.journal import admission, refusals
from checkrein.journal.admission import FenceLevel
from checkrein.journal.base import Recorded
from checkrein.journal.queue import Queued


def cover_of(run: str, root: str, agent: str, owner: str) -> str:
    """SQL for the `FenceLevel` over a run of which these are columns or parameters."""
    return f"""(
        SELECT ifnull(max(halt) + 1, 0) FROM fences WHERE (scope, name) IN (
            VALUES ('run', {run}), ('root', {root}), ('agent', {agent}), ('owner', {owner}), ('all', '')
        )
    )"""


COVER: Final = f"SELECT {cover_of('?1', '?2', '?3', '?4')}"


def cover(cursor: sqlite3.Cursor, run: str, root: str, agent: str, owner: str) -> FenceLevel:
    """The cover over a run that may not exist yet."""
    return FenceLevel(cursor.execute(COVER, (run, root, agent, owner)).fetchone()[0])


MOST_HEADS: Final = 4096
"""How many heads are remembered."""

HEAD: Final = f"""
SELECT r.key, {cover_of("r.id", "ifnull(r.root, r.id)", "r.agent", "r.owner")}, e.hash, e.seq, h.decided, h.epoch,
       r.status
FROM runs r JOIN heads h ON h.run = r.key JOIN events e ON e.run = r.key
WHERE r.id = ?1 ORDER BY e.seq DESC LIMIT 1
"""


class CachedHead(NamedTuple):
    key: int
    cover: admission.FenceLevel
    hash: bytes
    head: admission.Head


class Heads:
    """Used inside transactions of one connection only."""

    def __init__(self) -> None:
        self._known: dict[str, CachedHead] = {}
        self._version = 0

    def begin(self, db: sqlite3.Connection) -> None:
        """Call this first in every transaction."""
        (version,) = db.execute("PRAGMA data_version").fetchone()
        if version != self._version or len(self._known) > MOST_HEADS:
            self._known.clear()
            self._version = version

    def get(self, cursor: sqlite3.Cursor, run: str) -> CachedHead:
        """Raises `RunNotFound`."""
        return self._known.get(run) or self._read(cursor, run)

    def put(self, run: str, known: CachedHead) -> None:
        """This connection has just written it."""
        self._known[run] = known

    def forget(self, run: str | None = None) -> None:
        """Something else was written that a head depends on, or what was written was taken back."""
        if run is None:
            self._known.clear()
        else:
            self._known.pop(run, None)

    def _read(self, cursor: sqlite3.Cursor, run: str) -> CachedHead:
        row = cursor.execute(HEAD, (run,)).fetchone()
        if row is None:
            raise refusals.not_found(run)
        key, cover, hash, seq, decided, epoch, status = row
        known = CachedHead(key, admission.FenceLevel(cover), hash, admission.Head(seq, decided, epoch, Status(status)))
        self._known[run] = known
        return known


T_co = TypeVar("T_co", covariant=True)


class Transaction:
    """What a job works with. `news` is told to followers after the commit: the new events of each run."""

    def __init__(
        self, cursor: sqlite3.Cursor, heads: Heads, *, is_full: bool = False, is_careful: bool = False
    ) -> None:
        self.cursor = cursor
        self.heads = heads
        self.is_full = is_full
        """There is no room: whatever can be refused should be."""
        self.is_careful = is_careful
        """Something went wrong before: look first, and only then write."""
        self.news: dict[str, list[Recorded]] = {}
        self.has_operation = False
        """Something was recorded that an operator did."""
        self.first = 0
        self.last = 0
        """The positions of the events in this transaction; 0 when there are none."""


class Job(Queued, ABC, Generic[T_co]):
    """One thing to write."""

    is_dispensable: bool = False
    """It, or part of it, is refused when the disk is full."""

    @abstractmethod
    def perform(self, tx: Transaction) -> T_co: ...

    def recall(self, tx: Transaction) -> T_co | None:
        """The answer, if this job was done before; None when it was not, or when doing it again does no harm."""
        return None
