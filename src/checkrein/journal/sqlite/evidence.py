"""Withheld text and the signed log in the file; a run deleted as a whole."""

from __future__ import annotations

import sqlite3
import sys
import time
from contextlib import closing, suppress
from typing import Final

from anyio import to_thread

from checkrein.core.enums import TERMINAL, Status
from checkrein.errors import RunNotFound
from checkrein.journal import refusals
from checkrein.journal.evidence import EvidenceTables, SignedEntry, Withheld
from checkrein.journal.queue import Lane
from checkrein.journal.sqlite import database
from checkrein.journal.sqlite.change_poller import Reader
from checkrein.journal.sqlite.job import Job, Transaction
from checkrein.journal.sqlite.tables import key_of
from checkrein.journal.sqlite.writer import Writer

PUT_WITHHELD: Final = """
INSERT OR IGNORE INTO withheld (run, flag, call, "offset", text) VALUES (?1, ?2, ?3, ?4, ?5)
"""
WITHHELD: Final = 'SELECT call, flag, "offset", text FROM withheld WHERE run = ?1 ORDER BY call, "offset"'

LAST: Final = "SELECT number, run, body, key, signature, leaves FROM signed ORDER BY number DESC LIMIT 1"
SIGNED: Final = """
SELECT number, run, body, key, signature, leaves FROM signed
WHERE number > ?1 AND (?2 IS NULL OR run = ?2) ORDER BY number LIMIT ?3
"""
PUT_SIGNED: Final = """
INSERT INTO signed (number, run, body, key, signature, leaves)
SELECT ?1, ?2, ?3, ?4, ?5, ?6 WHERE ?1 = 1 + (SELECT ifnull(max(number), 0) FROM signed)
"""
IS_SIGNED: Final = "SELECT 1 FROM signed WHERE number = ?1 AND body = ?2"

IN_THE_WAY: Final = """
SELECT r.status, EXISTS (SELECT 1 FROM leases WHERE run = r.key), EXISTS (SELECT 1 FROM runs WHERE parent = r.id),
       r.key = (SELECT max(key) FROM runs)
       OR EXISTS (SELECT 1 FROM events WHERE run = r.key AND position = (SELECT max(position) FROM events))
FROM runs r WHERE r.key = ?1
"""
OF_A_RUN: Final = (
    "events", "chunks", "files", "withheld", "effects", "snapshots", "asked", "heads",
)  # fmt: skip

SCRUB_SECONDS: Final = 5.0
SCRUB_PAUSE_SECONDS: Final = 0.02


class WriteWithheld(Job[None]):
    is_dispensable = True

    def __init__(self, run: str, withheld: Withheld, path: str) -> None:
        self._run = run
        self._withheld = withheld
        self._path = path

    def perform(self, tx: Transaction) -> None:
        if tx.is_full:
            raise refusals.full(self._path)
        one = self._withheld
        with suppress(RunNotFound):
            key = key_of(tx.cursor, self._run)
            tx.cursor.execute(PUT_WITHHELD, (key, one.flag, one.call, one.offset, one.text))


class AddSigned(Job[bool]):
    def __init__(self, entry: SignedEntry) -> None:
        self._entry = entry

    def perform(self, tx: Transaction) -> bool:
        one = self._entry
        row = (one.number, one.run, one.body, one.key, one.signature, one.leaves)
        if tx.cursor.execute(PUT_SIGNED, row).rowcount > 0:
            return True
        return self.is_done(tx)

    def is_done(self, tx: Transaction) -> bool:
        """Whether it was done before."""
        return tx.cursor.execute(IS_SIGNED, (self._entry.number, self._entry.body)).fetchone() is not None


class DeleteRun(Job[bool]):
    """What is deleted is overwritten; file and log keep copies until `scrub` moves the one over into the other."""

    lane = Lane.IDLE

    def __init__(self, run: str, tombstone: SignedEntry) -> None:
        self._run = run
        self._tombstone = AddSigned(tombstone)

    def recall(self, tx: Transaction) -> bool | None:
        return self._tombstone.is_done(tx) or None

    def perform(self, tx: Transaction) -> bool:
        key = key_of(tx.cursor, self._run)
        status, is_held, is_parent, is_newest = tx.cursor.execute(IN_THE_WAY, (key,)).fetchone()
        if Status(status) not in TERMINAL or is_held:
            raise refusals.live(self._run, status)
        if is_parent:
            raise refusals.has_sub_runs(self._run)
        if is_newest:  # its place in the order of runs, or of events, would be given to another
            raise refusals.newest(self._run)
        if not self._tombstone.perform(tx):
            return False
        tx.cursor.execute("PRAGMA secure_delete=ON")
        for table in OF_A_RUN:
            tx.cursor.execute(f"DELETE FROM {table} WHERE run = ?1", (key,))
        tx.cursor.execute("DELETE FROM fences WHERE scope = 'run' AND name = ?1", (self._run,))
        tx.cursor.execute("DELETE FROM runs WHERE key = ?1", (key,))
        tx.cursor.execute("PRAGMA secure_delete=OFF")
        tx.heads.forget()
        return True


class SqliteEvidence(EvidenceTables):
    def __init__(self, writer: Writer, reader: Reader, path: str) -> None:
        self._writer = writer
        self._reader = reader
        self._path = path

    async def write_withheld(self, run: str, withheld: Withheld) -> None:
        await self._writer.submit(WriteWithheld(run, withheld, self._path))

    async def withheld(self, run: str) -> tuple[Withheld, ...]:
        return await self._reader.ask(_withheld, run)

    async def add_signed(self, entry: SignedEntry) -> bool:
        return await self._writer.submit(AddSigned(entry))

    async def signed(
        self, *, run: str | None = None, after: int = 0, limit: int | None = None
    ) -> tuple[SignedEntry, ...]:
        return await self._reader.ask(_signed, run, after, sys.maxsize if limit is None else limit)

    async def last_signed(self) -> SignedEntry | None:
        return await self._reader.ask(_last_signed)

    async def delete_run(self, run: str, tombstone: SignedEntry) -> bool:
        return await self._writer.submit(DeleteRun(run, tombstone))

    async def scrub(self) -> str:
        return await to_thread.run_sync(_scrub, self._path)


def _scrub(path: str) -> str:
    """Move all of the log over into the file, and cut it off. For a moment at a time: meanwhile nobody can write."""
    give_up = time.monotonic() + SCRUB_SECONDS
    with closing(database.connect(path)) as db:
        while True:
            is_busy, _, _ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if not is_busy:
                return ""
            if time.monotonic() > give_up:
                return f"{path} and {path}-wal, until nobody reads or writes there for a moment"
            time.sleep(SCRUB_PAUSE_SECONDS)


def _withheld(db: sqlite3.Connection, run: str) -> tuple[Withheld, ...]:
    return tuple(Withheld(*row) for row in db.execute(WITHHELD, (key_of(db, run),)).fetchall())


def _signed(db: sqlite3.Connection, run: str | None, after: int, limit: int) -> tuple[SignedEntry, ...]:
    return tuple(_entry(row) for row in db.execute(SIGNED, (after, run, limit)).fetchall())


def _last_signed(db: sqlite3.Connection) -> SignedEntry | None:
    row = db.execute(LAST).fetchone()
    return None if row is None else _entry(row)


def _entry(row: tuple[int, str, bytes, bytes, bytes, bytes]) -> SignedEntry:
    number, run, body, key, signature, leaves = row
    return SignedEntry(number=number, run=run, body=body, key=key, signature=signature, leaves=leaves)
