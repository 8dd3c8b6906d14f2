"""What may be lost: streamed text, copies of files, snapshots of states. The first to be refused when a disk is full.

The index of effects: kept in the transaction of the events that change it.

The short key of a run, by which every table refers to it.

Fences: which runs may not begin anything; and what operators did (`halts`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from checkrein.core.effects import Effect, fold_effects
from checkrein.core.enums import TERMINAL, EffectState
from checkrein.core.state import State
from checkrein.errors import RunNotFound
from checkrein.journal import encoding, operations, refusals
from checkrein.journal.admission import halt_request
from checkrein.journal.base import Chunk, Fence, Recorded, RecordedOperation, Scope
from checkrein.journal.queue import Lane
from checkrein.journal.sqlite import halts
from checkrein.journal.sqlite.job import Job, Transaction

KEY: Final = "SELECT key FROM runs WHERE id = ?1"


def key_of(db: sqlite3.Connection | sqlite3.Cursor, run: str) -> int:
    """Raises `RunNotFound`."""
    row = db.execute(KEY, (run,)).fetchone()
    if row is None:
        raise refusals.not_found(run)
    return int(row[0])


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


class WriteChunks(Job[None]):
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


PUT_FILE: Final = """
INSERT INTO files (run, call, number, body) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (run, call, number) DO UPDATE SET body = excluded.body
"""
FILE: Final = "SELECT body FROM files WHERE run = ?1 AND call = ?2 AND number = ?3"


class WriteFile(Job[None]):
    is_dispensable = True

    def __init__(self, run: str, call: str, number: int, body: bytes, path: str) -> None:
        self._run = run
        self._row = (call, number, body)
        self._path = path

    def perform(self, tx: Transaction) -> None:
        if tx.is_full:
            raise refusals.full(self._path)
        with suppress(RunNotFound):
            tx.cursor.execute(PUT_FILE, (key_of(tx.cursor, self._run), *self._row))


def read_file(db: sqlite3.Connection, run: str, call: str, number: int) -> bytes | None:
    row = db.execute(FILE, (key_of(db, run), call, number)).fetchone()
    return None if row is None else row[0]


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
        tx.cursor.execute(PUT_SNAPSHOT, (key, state.seq, encoding.STATE_VERSION, encoding.encode_state(state)))


def read_chunks(db: sqlite3.Connection, run: str, call: str, after: int) -> tuple[Chunk, ...]:
    return tuple(Chunk(*row) for row in db.execute(CHUNKS, (key_of(db, run), call, after)).fetchall())


def read_chunks_of(
    db: sqlite3.Connection, after: Mapping[tuple[str, str], int]
) -> dict[tuple[str, str], tuple[Chunk, ...]]:
    found: dict[tuple[str, str], tuple[Chunk, ...]] = {}
    for (run, call), offset in after.items():
        with suppress(RunNotFound):
            if chunks := read_chunks(db, run, call, offset):
                found[run, call] = chunks
    return found


def read_snapshot(db: sqlite3.Connection, run: str) -> State | None:
    """The latest snapshot that fits; one that cannot be read is as good as none."""
    row = db.execute(SNAPSHOT, (key_of(db, run), encoding.STATE_VERSION)).fetchone()
    return None if row is None else encoding.decode_state(row[0])


ONE: Final = "SELECT opened, state, body FROM effects WHERE run = ?1 AND id = ?2"
PUT: Final = "INSERT OR REPLACE INTO effects (run, id, state, opened, body) VALUES (?1, ?2, ?3, ?4, ?5)"
CHANGE: Final = "UPDATE effects SET state = ?3, body = ?4 WHERE run = ?1 AND id = ?2"
END: Final = "UPDATE effects SET state = ?2 WHERE run = ?1 AND state = ?3"
ALL: Final = "SELECT opened, state, body FROM effects WHERE run = ?1 ORDER BY opened"

OPEN: Final = """
SELECT r.id, e.opened, e.state, e.body FROM effects e JOIN runs r ON r.key = e.run
WHERE e.state = ?1 AND r.status IN (SELECT value FROM json_each(?2)) ORDER BY r.key
"""

_EFFECT_ENCODER: Final = msgspec.json.Encoder()
_EFFECT_DECODER: Final = msgspec.json.Decoder(Effect)


class _EffectRows(NamedTuple):
    """The ledger of one run, as rows. `seq` is that of the event that changes it."""

    cursor: sqlite3.Cursor
    run: int
    seq: int

    def get(self, effect: str, /) -> Effect | None:
        row = self.cursor.execute(ONE, (self.run, effect)).fetchone()
        return None if row is None else _effect(row)

    def put(self, effect: Effect, *, opens: bool) -> None:
        body = _EFFECT_ENCODER.encode(effect)
        if opens:
            self.cursor.execute(PUT, (self.run, effect.id, effect.state, self.seq, body))
        else:
            self.cursor.execute(CHANGE, (self.run, effect.id, effect.state, body))

    def close_open(self, now: EffectState) -> None:
        self.cursor.execute(END, (self.run, now, EffectState.OPEN))


def keep(cursor: sqlite3.Cursor, run: int, records: Sequence[Recorded]) -> None:
    """Bring the index up to date with events that were just written."""
    for record in records:
        fold_effects(_EffectRows(cursor, run, record.seq), record.event)


def read_effects(db: sqlite3.Connection, run: str, states: Collection[EffectState]) -> tuple[Effect, ...]:
    """The effects of a run in one of `states`, or in any, oldest first."""
    rows = db.execute(ALL, (key_of(db, run),)).fetchall()
    return tuple(_effect(row) for row in rows if not states or row[1] in states)


def wanting_undo(db: sqlite3.Connection) -> tuple[str, ...]:
    """The finished runs with an open effect whose undo was asked for."""
    found = db.execute(OPEN, (EffectState.OPEN, _EFFECT_ENCODER.encode(sorted(TERMINAL)).decode())).fetchall()
    return tuple(dict.fromkeys(run for run, *row in found if _effect((row[0], row[1], row[2])).wanted))


def _effect(row: tuple[int, str, bytes]) -> Effect:
    return replace(_EFFECT_DECODER.decode(row[2]), state=EffectState(row[1]))


HALTS: Final = (
    "SELECT scope, name, by, reason, at FROM fences WHERE halt = 1 AND name = source ORDER BY at, scope, name"
)


def read_fences(db: sqlite3.Connection) -> tuple[Fence, ...]:
    """Every halt that is latched."""
    return tuple(
        Fence(scope=Scope(scope), name=name, by=by, reason=reason, at=at)
        for scope, name, by, reason, at in db.execute(HALTS).fetchall()
    )


class PutFence(Job[bool]):
    """Answers whether it was latched before."""

    lane = Lane.VERB

    def __init__(self, fence: Fence, host: str, clock: Callable[[], float]) -> None:
        self._fence = fence
        self._asked = halt_request(fence, host)
        self._clock = clock

    def perform(self, tx: Transaction) -> bool:
        tx.heads.forget()
        if self._fence.halt:
            tx.has_operation = True
            return halts.latch(tx.cursor, self._asked, self._clock())
        return not insert_fence(tx.cursor, self._fence)


class LiftFence(Job[bool]):
    lane = Lane.VERB

    def __init__(self, asked: operations.Request, runs: Collection[str], clock: Callable[[], float]) -> None:
        self._asked = asked
        self._runs = runs
        self._clock = clock

    def perform(self, tx: Transaction) -> bool:
        tx.heads.forget()
        tx.has_operation = True
        return halts.lift(tx.cursor, self._asked, self._runs, self._clock())


def insert_fence(cursor: sqlite3.Cursor, fence: Fence) -> bool:
    """Whether it is new."""
    return halts.insert_fence(
        cursor, fence.scope, fence.name, halt=fence.halt, by=fence.by, reason=fence.reason, at=fence.at
    )


OPERATIONS: Final = "SELECT seq, hash, body FROM operations WHERE seq > ? ORDER BY seq LIMIT ?"


def read_operations(db: sqlite3.Connection, after: int, limit: int | None) -> tuple[RecordedOperation, ...]:
    rows = db.execute(OPERATIONS, (after, -1 if limit is None else limit)).fetchall()
    return tuple(encoding.decode_operation(seq, hash, body) for seq, hash, body in rows)
