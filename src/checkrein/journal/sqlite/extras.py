"""What may be lost: streamed text, and snapshots of states. The first to be refused when the disk is full."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Final

import msgspec

from checkrein.core.evolve import FOLD_VERSION
from checkrein.core.state import State
from checkrein.errors import RunNotFound
from checkrein.journal import refusals
from checkrein.journal.contract import Chunk
from checkrein.journal.sqlite.jobs import Job, Lane, Transaction
from checkrein.journal.sqlite.keys import key_of

_SHAPE: Final = msgspec.json.encode(msgspec.json.schema(State), order="sorted")
VERSION: Final = f"{FOLD_VERSION}-{sha256(_SHAPE).hexdigest()[:16]}"
"""Which shape of state this code reads. A snapshot of another shape is as good as none."""

PUT_CHUNK: Final = 'INSERT OR IGNORE INTO chunks (run, call, "offset", text) VALUES (?1, ?2, ?3, ?4)'
CHUNKS: Final = """
SELECT call, "offset", text FROM chunks WHERE run = ?1 AND call = ?2 AND "offset" > ?3 ORDER BY "offset"
"""
SNAPSHOT: Final = "SELECT state FROM snapshots WHERE run = ?1 AND version = ?2"
PUT_SNAPSHOT: Final = """
INSERT INTO snapshots (run, seq, version, state)
SELECT run, ?2, ?3, ?4 FROM events WHERE run = ?1 AND seq = ?2
ON CONFLICT (run) DO UPDATE SET seq = excluded.seq, version = excluded.version, state = excluded.state
WHERE excluded.seq > snapshots.seq OR excluded.version <> snapshots.version
"""

_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(State)


class WriteChunks(Job[None]):
    is_dispensable = True

    def __init__(self, run: str, chunks: Sequence[Chunk], path: str) -> None:
        self._run = run
        self._chunks = chunks
        self._path = path

    def perform(self, tx: Transaction) -> None:
        key = key_of(tx.cursor, self._run)
        if tx.is_full:
            raise refusals.full(self._path)
        tx.cursor.executemany(PUT_CHUNK, [(key, chunk.call, chunk.offset, chunk.text) for chunk in self._chunks])


class WriteAllChunks(Job[None]):
    is_dispensable = True

    def __init__(self, chunks: Mapping[str, Sequence[Chunk]], path: str) -> None:
        self._chunks = chunks
        self._path = path

    def perform(self, tx: Transaction) -> None:
        if tx.is_full:
            raise refusals.full(self._path)
        rows: list[tuple[int, str, int, str]] = []
        for run, chunks in self._chunks.items():
            with suppress(RunNotFound):
                key = key_of(tx.cursor, run)
                rows += [(key, chunk.call, chunk.offset, chunk.text) for chunk in chunks]
        tx.cursor.executemany(PUT_CHUNK, rows)


class SaveSnapshot(Job[None]):
    is_dispensable = True

    def __init__(self, state: State, path: str, lane: Lane = Lane.ORDINARY) -> None:
        self.lane = lane
        self._state = state
        self._path = path

    def perform(self, tx: Transaction) -> None:
        state = self._state
        key = key_of(tx.cursor, state.run)
        if tx.is_full:
            raise refusals.full(self._path)
        tx.cursor.execute(PUT_SNAPSHOT, (key, state.seq, VERSION, _ENCODER.encode(state)))


def read_chunks(db: sqlite3.Connection, run: str, call: str, after: int) -> tuple[Chunk, ...]:
    return tuple(Chunk(*row) for row in db.execute(CHUNKS, (key_of(db, run), call, after)).fetchall())


def read_snapshot(db: sqlite3.Connection, run: str) -> State | None:
    """The latest snapshot that fits; one that cannot be read is as good as none."""
    row = db.execute(SNAPSHOT, (key_of(db, run), VERSION)).fetchone()
    try:
        return None if row is None else _DECODER.decode(row[0])
    except msgspec.DecodeError:
        return None
