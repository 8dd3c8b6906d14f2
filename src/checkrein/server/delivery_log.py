"""What receivers elsewhere were told, durably, and which server is about to tell them what.

Beside the keys of the store: in a file, which the servers of one host share, or in the database, which all do. Of any
number of servers one has a thing at a time; what one has for too long without a word, the next one takes.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from pathlib import Path
from typing import Any, Final, Protocol

from checkrein.errors import MisuseError
from checkrein.journal import driver_needed
from checkrein.journal.address import is_postgres, shown
from checkrein.journal.base import Journal
from checkrein.server.auth.private_files import make_private_file, make_private_folder
from checkrein.server.auth.token_store import access_folder

KEPT_SECONDS: Final = 60 * 86_400.0


class DeliveryLog(Protocol):
    """Used from one event loop. `receiver` and `id` name a thing, `by` a server; times are in Unix seconds."""

    async def claim(self, receiver: str, id: str, by: str, *, until: float, now: float) -> float | None:
        """Whether `by` may tell this until then: 0. Else until when another server may, or None if it was told."""
        ...

    async def note(self, receiver: str, id: str, *, now: float) -> None:
        """It was told."""
        ...

    async def release(self, by: str) -> None:
        """Whatever `by` has not told, another server may."""
        ...

    async def time(self, name: str, otherwise: float) -> float:
        """A time that was written down; `otherwise`, which is written down then, if there is none."""
        ...

    async def set_time(self, name: str, at: float) -> None: ...

    async def close(self) -> None: ...


async def open_delivery_log(store: str, journal: Journal) -> DeliveryLog:
    """That of a store. Raises `WrongInput` for a file that others may read."""
    if not is_postgres(store):
        return await asyncio.to_thread(FileDeliveryLog, access_folder(store), now=journal.now())
    with driver_needed(shown(store)):
        from checkrein.journal.postgres import PostgresJournal
        from checkrein.journal.postgres.deliveries import DeliveryTables
    if not isinstance(journal, PostgresJournal):
        raise MisuseError("What is told of a store in PostgreSQL is kept there, and this journal is another one.")
    log = DeliveryTables(journal)
    await log.forget(before=journal.now() - KEPT_SECONDS)
    return log


class FileDeliveryLog:
    """In a file of its own. What is written waits for a disk, so a thread does it."""

    def __init__(self, folder: Path, *, now: float) -> None:
        make_private_folder(folder)
        path = folder / "notifications.db"
        make_private_file(path)
        self._lock = threading.Lock()
        self._db = sqlite3.connect(path, timeout=10, isolation_level=None, check_same_thread=False)
        for made in (
            "told (receiver TEXT, id TEXT, at REAL, PRIMARY KEY (receiver, id))",
            "claims (receiver TEXT, id TEXT, by TEXT, until REAL, PRIMARY KEY (receiver, id))",
            "times (name TEXT PRIMARY KEY, at REAL)",
        ):
            self._db.execute(f"CREATE TABLE IF NOT EXISTS {made}")
        self._db.execute("DELETE FROM told WHERE at < ?", (now - KEPT_SECONDS,))
        self._db.execute("DELETE FROM claims WHERE until < ?", (now - KEPT_SECONDS,))

    async def claim(self, receiver: str, id: str, by: str, *, until: float, now: float) -> float | None:
        return await asyncio.to_thread(self._claim, (receiver, id), by, until, now)

    def _claim(self, thing: tuple[str, str], by: str, until: float, now: float) -> float | None:
        with self._lock, self._db:
            self._db.execute("BEGIN IMMEDIATE")
            if self._db.execute("SELECT 1 FROM told WHERE receiver = ? AND id = ?", thing).fetchone():
                return None
            theirs = "SELECT until FROM claims WHERE receiver = ? AND id = ? AND by <> ? AND until > ?"
            if (held := self._db.execute(theirs, (*thing, by, now)).fetchone()) is not None:
                return float(held[0])
            self._db.execute("INSERT OR REPLACE INTO claims VALUES (?, ?, ?, ?)", (*thing, by, until))
            return 0.0

    async def note(self, receiver: str, id: str, *, now: float) -> None:
        await self._do("INSERT OR IGNORE INTO told VALUES (?, ?, ?)", receiver, id, now)
        await self._do("DELETE FROM claims WHERE receiver = ? AND id = ?", receiver, id)

    async def release(self, by: str) -> None:
        await self._do("DELETE FROM claims WHERE by = ?", by)

    async def time(self, name: str, otherwise: float) -> float:
        await self._do("INSERT OR IGNORE INTO times VALUES (?, ?)", name, otherwise)
        (found,) = await self._do("SELECT at FROM times WHERE name = ?", name)
        return float(found[0])

    async def set_time(self, name: str, at: float) -> None:
        await self._do("INSERT OR REPLACE INTO times VALUES (?, ?)", name, at)

    async def close(self) -> None:
        await asyncio.to_thread(self._db.close)

    async def _do(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        def done() -> list[tuple[Any, ...]]:
            with self._lock:
                return self._db.execute(statement, values).fetchall()

        return await asyncio.to_thread(done)
