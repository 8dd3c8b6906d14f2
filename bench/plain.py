"""The peers: rows in an SQLite table, with nothing checked, chained or waited for.

They have the very settings of a journal's connection, so that a commit costs them the same.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from checkrein.journal.sqlite import database

FULL: Final = 2


def _connect(path: Path, schema: str) -> sqlite3.Connection:
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute(schema)
    db = database.connect(str(path))
    assert db.execute("PRAGMA synchronous").fetchone() == (FULL,), "a commit must reach the disk"
    return db


class PlainTable:
    """Bodies and nothing else."""

    def __init__(self, path: Path) -> None:
        self._db = _connect(path, "CREATE TABLE rows (position INTEGER PRIMARY KEY, body BLOB NOT NULL)")

    def insert(self, body: bytes) -> None:
        """One row and its commit."""
        self._db.execute("INSERT INTO rows (body) VALUES (?)", (body,))

    def insert_timed(self, body: bytes) -> float:
        began = time.perf_counter()
        self.insert(body)
        return time.perf_counter() - began

    def insert_many(self, bodies: Sequence[bytes]) -> None:
        """Many rows with one commit."""
        self._db.execute("BEGIN IMMEDIATE")
        self._db.executemany("INSERT INTO rows (body) VALUES (?)", [(body,) for body in bodies])
        self._db.execute("COMMIT")

    def close(self) -> None:
        self._db.close()


class PlainThread:
    """A plain table behind a thread: the least that an event loop needs in order not to stand still meanwhile."""

    def __init__(self, path: Path) -> None:
        self._table = PlainTable(path)
        self._bodies: SimpleQueue[tuple[bytes, asyncio.Future[None]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    async def insert_timed(self, body: bytes) -> float:
        began = time.perf_counter()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._bodies.put((body, done))
        await done
        return time.perf_counter() - began

    def _run(self) -> None:
        while (work := self._bodies.get()) is not None:
            body, done = work
            self._table.insert(body)
            done.get_loop().call_soon_threadsafe(done.set_result, None)

    def close(self) -> None:
        self._bodies.put(None)
        self._thread.join()
        self._table.close()


class IndexedTable:
    """Rows that can be found by run and seq and by run and id, as a journal must be able to."""

    def __init__(self, path: Path) -> None:
        self._db = _connect(
            path,
            """
            CREATE TABLE rows (
                position INTEGER PRIMARY KEY, run INTEGER NOT NULL, seq INTEGER NOT NULL, id TEXT NOT NULL,
                hash BLOB NOT NULL, body BLOB NOT NULL, UNIQUE (run, seq), UNIQUE (run, id)
            )
            """,
        )

    def insert_many(self, rows: Sequence[tuple[int, int, str, bytes, bytes]]) -> None:
        """Many rows with one commit; of each its run, seq, id, hash and body."""
        self._db.execute("BEGIN IMMEDIATE")
        self._db.executemany("INSERT INTO rows (run, seq, id, hash, body) VALUES (?, ?, ?, ?, ?)", rows)
        self._db.execute("COMMIT")

    def close(self) -> None:
        self._db.close()
