"""What may be lost: streamed text, copies of files, snapshots. The index of effects, and the short keys of runs.

Fences: which runs may not begin anything. A fence over a run is also a column of its head and of all below it, and
every append compares that. A fence over more than that is a row; whoever puts it up first waits until no append is
under way that has not seen it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, LiteralString

from checkrein.core.effects import Effect
from checkrein.core.enums import TERMINAL, EffectState
from checkrein.core.state import State
from checkrein.journal import encoding, operations, refusals
from checkrein.journal.admission import halt_request
from checkrein.journal.base import Chunk, Fence, RecordedOperation, Scope
from checkrein.journal.postgres import halts
from checkrein.journal.postgres.connection import Session
from checkrein.journal.postgres.writes.job import EFFECT_DECODER, EFFECTS, TEXT_MARK, Context, Job
from checkrein.journal.queue import Lane

KEY: Final = "SELECT key FROM {s}.runs WHERE id = %s"

PUT_CHUNKS: Final = "SELECT {s}.write_chunks(%b::text[], %b::bytea[], %b::bigint[], %b::bytea[], %s::text, %s::text)"
JOIN_CHUNKS: Final = "SELECT {s}.join_chunks(%s::text, %s::bytea)"
STREAMS: Final = """
SELECT c.call FROM {s}.runs r JOIN {s}.chunks c ON c.run = r.key
WHERE r.id = %(run)s AND c.offsets IS NULL
AND (c.call = %(call)s OR (c.call > %(call)s || '#'::bytea AND c.call < %(call)s || '$'::bytea))
GROUP BY c.call HAVING count(*) > 1
"""
# What has finished is one row, and it is the first of its call. It is looked for by itself: to ask for it among all
# others would read every row of a call each time, of which there are ten for each second that it has streamed.
_AFTER: Final[LiteralString] = """
    SELECT "offset", text, offsets, sizes FROM {s}.chunks WHERE run = {run} AND call = {call} AND "offset" > {after}
    UNION ALL SELECT * FROM (
        SELECT "offset", text, offsets, sizes FROM {s}.chunks WHERE run = {run} AND call = {call}
        ORDER BY "offset" LIMIT 1
    ) AS first WHERE offsets IS NOT NULL AND "offset" <= {after}
"""
CHUNKS: Final = _AFTER.replace("{run}", "%(run)s").replace("{call}", "%(call)s").replace("{after}", "%(after)s")
_OF_EACH: Final = _AFTER.replace("{run}", "r.key").replace("{call}", "w.call").replace("{after}", "w.after")
CHUNKS_OF: Final[LiteralString] = f"""
SELECT r.id, w.call, c.* FROM unnest(%s::text[], %s::bytea[], %s::bigint[]) AS w (run, call, after)
JOIN {{s}}.runs r ON r.id = w.run CROSS JOIN LATERAL ({_OF_EACH}) AS c
"""
PUT_FILE: Final = "SELECT {s}.write_file(%s::text, %s::bytea, %s::bigint, %s::bytea)"
FILE: Final = "SELECT body FROM {s}.files WHERE run = %s AND call = %s AND number = %s"
SNAPSHOT: Final = "SELECT state FROM {s}.snapshots WHERE run = %s AND version = %s"
PUT_SNAPSHOT: Final = """
INSERT INTO {s}.snapshots AS s (run, seq, version, state)
SELECT e.run, e.seq, %(version)s::text, %(state)s::bytea FROM {s}.runs r
JOIN {s}.events e ON e.run = r.key AND e.seq = %(seq)s WHERE r.id = %(run)s::text
ON CONFLICT (run) DO UPDATE SET seq = excluded.seq, version = excluded.version, state = excluded.state
WHERE excluded.seq > s.seq OR excluded.version <> s.version
"""
WANTED: Final = """
SELECT r.id FROM {s}.runs r JOIN {s}.heads h ON h.run = r.key
WHERE h.status = ANY (%s) AND EXISTS (SELECT 1 FROM {s}.effects e WHERE e.run = r.key AND e.wanted) ORDER BY r.key
"""


def key_of(session: Session, run: str) -> int:
    """Raises `RunNotFound`."""
    row = session.row(KEY, (run,)) if "\0" not in run else None
    if row is None:
        raise refusals.not_found(run)
    return int(row[0])


class WriteChunks(Job[None]):
    def __init__(self, chunks: Mapping[str, Sequence[Chunk]]) -> None:
        self._rows = [
            (run, chunk.call.encode(), chunk.offset, chunk.text.encode())
            for run, of_run in chunks.items()
            for chunk in of_run
            if "\0" not in run
        ]

    def perform(self, at: Context) -> None:
        if self._rows:
            columns = [list(column) for column in zip(*self._rows, strict=True)]
            note = TEXT_MARK + at.note(list(dict.fromkeys(columns[0])))
            at.session.run(PUT_CHUNKS, [*columns, at.target.channel, note])


class JoinChunks(Job[None]):
    """The call has finished: the text of each of its attempts becomes one row."""

    lane = Lane.IDLE

    def __init__(self, run: str, call: str) -> None:
        self._run = run
        self._call = call

    def perform(self, at: Context) -> None:
        values = {"run": self._run, "call": self._call.encode()}
        for (stream,) in at.session.rows(STREAMS, values):
            at.session.run(JOIN_CHUNKS, (self._run, stream))


class WriteFile(Job[None]):
    def __init__(self, run: str, call: str, number: int, body: bytes) -> None:
        self._row = (run, call.encode(), number, body)

    def perform(self, at: Context) -> None:
        if "\0" not in self._row[0]:
            at.session.run(PUT_FILE, self._row)


def read_file(session: Session, run: str, call: str, number: int) -> bytes | None:
    row = session.row(FILE, (key_of(session, run), call.encode(), number))
    return None if row is None else bytes(row[0])


class SaveSnapshot(Job[None]):
    lane = Lane.IDLE

    def __init__(self, state: State) -> None:
        self._state = state

    def perform(self, at: Context) -> None:
        state = self._state
        values = {
            "version": encoding.STATE_VERSION,
            "state": encoding.encode_state(state),
            "seq": state.seq,
            "run": state.run,
        }
        at.session.run(PUT_SNAPSHOT, values)


def read_chunks(session: Session, run: str, call: str, after: int) -> tuple[Chunk, ...]:
    values = {"run": key_of(session, run), "call": call.encode(), "after": after}
    return _chunks(call, session.rows(CHUNKS, values), after)


def read_chunks_of(session: Session, after: Mapping[tuple[str, str], int]) -> dict[tuple[str, str], tuple[Chunk, ...]]:
    """What was streamed in these calls after these offsets, of those that have any."""
    asked = [(run, call, offset) for (run, call), offset in after.items() if "\0" not in run]
    runs, calls = [run for run, _, _ in asked], [call.encode() for _, call, _ in asked]
    offsets = [offset for _, _, offset in asked]
    rows: defaultdict[tuple[str, str], list[tuple[Any, ...]]] = defaultdict(list)
    for run, call, *row in session.rows(CHUNKS_OF, (runs, calls, offsets)):
        rows[run, call.decode()].append(tuple(row))
    found = {(run, call): _chunks(call, of_call, after[run, call]) for (run, call), of_call in rows.items()}
    return {call: chunks for call, chunks in found.items() if chunks}


def _chunks(call: str, rows: Iterable[tuple[Any, ...]], after: int) -> tuple[Chunk, ...]:
    found: dict[int, bytes] = {}
    for offset, text, offsets, sizes in rows:
        if offsets is None:
            found.setdefault(offset, text)
            continue
        begin = 0
        for one, size in zip(offsets, sizes, strict=True):
            found[one] = text[begin : begin + size]
            begin += size
    return tuple(Chunk(call, offset, found[offset].decode()) for offset in sorted(found) if offset > after)


def read_snapshot(session: Session, run: str) -> State | None:
    """The latest snapshot that fits; one that cannot be read is as good as none."""
    row = session.row(SNAPSHOT, (key_of(session, run), encoding.STATE_VERSION))
    return None if row is None else encoding.decode_state(row[0])


def read_effects(session: Session, run: str, states: Collection[EffectState]) -> tuple[Effect, ...]:
    """The effects of a run in one of `states`, or in any, oldest first."""
    effects = (EFFECT_DECODER.decode(body) for _, body in session.rows(EFFECTS, (key_of(session, run),)))
    return tuple(effect for effect in effects if not states or effect.state in states)


def wanting_undo(session: Session) -> tuple[str, ...]:
    """The finished runs with an open effect whose undo was asked for."""
    return tuple(run for (run,) in session.rows(WANTED, ([status.value for status in TERMINAL],)))


PUT_FENCE: Final = "SELECT {s}.put_fence(%s::text, %s::bytea, %s::boolean, %s::bytea, %s::bytea, %s::double precision)"
HALTS: Final = "SELECT scope, name, by, reason, at FROM {s}.fences WHERE halt AND name = source"


def read_fences(session: Session) -> tuple[Fence, ...]:
    """Every halt that is latched."""
    found = (
        Fence(scope=Scope(scope), name=name.decode(), by=by.decode(), reason=reason.decode(), at=at)
        for scope, name, by, reason, at in session.rows(HALTS)
    )
    return tuple(sorted(found, key=lambda fence: (fence.at, fence.scope, fence.name)))


class PutFence(Job[bool]):
    """Answers whether it was latched before, as far as a halt's is concerned."""

    lane = Lane.VERB

    def __init__(self, fence: Fence, host: str) -> None:
        self._fence = fence
        self._asked = halt_request(fence, host)

    def perform(self, at: Context) -> bool:
        fence = self._fence
        at.heads.forget()
        if fence.halt:
            return halts.latch(at.session, at.target, self._asked, must_exist=False)
        words = (fence.halt, fence.by.encode(), fence.reason.encode(), fence.at)
        at.session.run(PUT_FENCE, (fence.scope.value, fence.name.encode(), *words))
        return False


class LiftFence(Job[bool]):
    lane = Lane.VERB

    def __init__(self, asked: operations.Request, runs: Collection[str]) -> None:
        self._asked = asked
        self._runs = runs

    def perform(self, at: Context) -> bool:
        at.heads.forget()
        return halts.lift(at.session, at.target, self._asked, self._runs)


OPERATIONS: Final = "SELECT seq, hash, body FROM {s}.operations WHERE seq > %s ORDER BY seq LIMIT %s"


def read_operations(session: Session, after: int, limit: int | None) -> tuple[RecordedOperation, ...]:
    rows = session.rows(OPERATIONS, (after, limit))
    return tuple(encoding.decode_operation(seq, hash, body) for seq, hash, body in rows)
