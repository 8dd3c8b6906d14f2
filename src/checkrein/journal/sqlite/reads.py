"""What can be asked of a journal's file. Each function gets the reader's connection."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from checkrein.core.enums import Status
from checkrein.core.evolve import evolve
from checkrein.core.state import State
from checkrein.errors import RunNotFound
from checkrein.journal import encoding
from checkrein.journal.base import Recorded, RunFilter, RunRow, is_found
from checkrein.journal.sqlite.tables import key_of, read_snapshot
from checkrein.journal.stored import PAGE as PAGE
from checkrein.journal.stored import walk_chain

STATES: Final = 100
"""How many states are read in one go."""
SCANNED: Final = 4000
"""How many runs are looked at in one go, where no index says which: some milliseconds."""

EVENTS: Final = "SELECT seq, body, hash FROM events WHERE run = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3"
HEADS: Final = """
SELECT r.id, (SELECT max(seq) FROM events WHERE run = r.key)
FROM json_each(?1) wanted CROSS JOIN runs r ON r.id = wanted.value
"""
DECIDED: Final = "SELECT decided FROM heads WHERE run = ?1"
CHAIN: Final = "SELECT seq, body, hash, id FROM events WHERE run = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3"
# Which runs is decided on their own table, and only of those the last event is looked for: whatever order SQLite
# chooses to find them in, it does not look for the last events of all.
RUNS: Final = """
SELECT r.id, r.agent, r.owner, r.thread, r.parent, r.root, r.goal, r.status, e.seq, r.created_at, e.at
FROM (SELECT r.key FROM runs r {where} ORDER BY r.key DESC LIMIT ?) k
CROSS JOIN runs r ON r.key = k.key
CROSS JOIN events e ON e.run = r.key AND e.seq = (SELECT max(seq) FROM events WHERE run = r.key)
ORDER BY k.key DESC
"""
TREE: Final = "(r.id = ? OR r.root = ? OR (r.id > ? AND r.id < ?))"
FOUND: Final = r"(r.id GLOB ? OR r.id GLOB ? OR r.goal LIKE ? ESCAPE '\')"
RECENT: Final = "SELECT position, run, at FROM events WHERE position < ?1 ORDER BY position DESC LIMIT ?2"
CHANGED: Final = """(
    r.key IN (SELECT value FROM json_each(?))
    AND (SELECT at FROM events WHERE run = r.key ORDER BY seq DESC LIMIT 1) > ?
)"""
ASKED: Final = "r.key IN (SELECT run FROM asked)"
TALLY: Final = "SELECT agent, status, count(*) FROM runs GROUP BY agent, status"
FOUND_IN_ANY_SCRIPT: Final = "is_found(?, r.id, r.goal)"
"""SQLite knows the small letters of ASCII only, and is a few times as fast."""


def read(db: sqlite3.Connection, run: str, after: int, limit: int) -> tuple[Recorded, ...]:
    rows = db.execute(EVENTS, (key_of(db, run), after, limit)).fetchall()
    return tuple(Recorded(run, seq, encoding.decode(body), body, hash) for seq, body, hash in rows)


def heads(db: sqlite3.Connection, runs: Sequence[str]) -> dict[str, int]:
    """How many events each of these runs has."""
    return dict(db.execute(HEADS, (msgspec.json.encode(runs).decode(),)).fetchall())


def fold(db: sqlite3.Connection, run: str, state: State | None, most: int = PAGE) -> tuple[State | None, int]:
    """`state` and up to `most` of the events after it; also how many those were."""
    rows = db.execute(EVENTS, (key_of(db, run), state.seq if state else 0, most)).fetchall()
    for seq, body, _ in rows:
        state = evolve(state, encoding.decode(body), seq)
    return state, len(rows)


Begun = tuple[State, int]
"""A state that is not folded to its end yet, and how many events it has taken so far."""


def states(
    db: sqlite3.Connection, names: Sequence[str], begun: Begun | None
) -> tuple[list[tuple[State, int] | None], Begun | None]:
    """Of as many of `names` as a page of events allows: the state, and how many events it took; None: no such run.

    `begun` is what an earlier answer had begun of the first one; the answer ends with what was begun of the next.
    """
    found: list[tuple[State, int] | None] = []
    left = PAGE
    for name in names[:STATES]:
        state, folded = begun or (None, 0)
        begun = None
        try:
            state, count = fold(db, name, state or read_snapshot(db, name), left)
        except RunNotFound:
            found.append(None)
            continue
        assert state is not None, "a run has at least its run.created"
        left, folded = left - count, folded + count
        if not left:
            return found, (state, folded)
        found.append((state, folded))
    return found, None


def tally(db: sqlite3.Connection) -> dict[tuple[str, Status], int]:
    return {(agent, Status(status)): count for agent, status, count in db.execute(TALLY).fetchall()}


def check_chain(db: sqlite3.Connection, run: str, seq: int, hash: bytes) -> tuple[int, bytes, bool]:
    """Walk up to a page of events after `seq`, which has `hash`. Returns where that led and whether it is the end."""
    key = key_of(db, run)
    (decided,) = db.execute(DECIDED, (key,)).fetchone()
    rows = db.execute(CHAIN, (key, seq, PAGE)).fetchall()
    return walk_chain(run, seq, hash, rows, decided)


class Changed(NamedTuple):
    """Runs whose last event bears a time after this one; they are among those with these keys."""

    after: float
    keys: frozenset[int]


def recent(db: sqlite3.Connection, before: int, after: float) -> tuple[frozenset[int], int]:
    """Of the page of events that were committed last before the position `before`: the keys of those that bear a time
    after `after`, and the position of the first; 0 where there are no older ones, or none of these is as young.

    There is no index of times: it would be written with every event. They are nearly in the order of commits, so that a
    whole page of older ones is the end.
    """
    rows = db.execute(RECENT, (before, PAGE)).fetchall()
    keys = frozenset(run for _, run, at in rows if at > after)
    return keys, rows[-1][0] if keys and len(rows) == PAGE else 0


class Narrowed(NamedTuple):
    """Which runs are asked for."""

    wanted: RunFilter
    changed: Changed | None
    before: str | None

    @property
    def has_no_index(self) -> bool:
        """Whether run after run has to be looked at."""
        return any(self.wanted.get(name) is not None for name in ("since", "until", "search"))


def newest(db: sqlite3.Connection, before: str | None) -> int:
    """From which key on downwards runs are looked for."""
    if before is not None:
        return key_of(db, before) - 1
    (key,) = db.execute("SELECT max(key) FROM runs").fetchone()
    return int(key or 0)


def runs(
    db: sqlite3.Connection, narrowed: Narrowed, limit: int, keys: tuple[int, int] | None = None
) -> tuple[RunRow, ...]:
    """Runs that fit all that is given, newest first; of those with one of `keys`, both included."""
    conditions, values = _conditions(db, narrowed)
    if keys is not None:
        conditions.append("r.key BETWEEN ? AND ?")
        values += keys
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    rows = db.execute(RUNS.format(where=where), (*values, limit)).fetchall()
    return tuple(_run_row(row) for row in rows)


def _conditions(db: sqlite3.Connection, narrowed: Narrowed) -> tuple[list[str], list[Any]]:
    wanted = narrowed.wanted
    named = {field: wanted.get(field) for field in ("thread", "owner", "agent", "root")}
    conditions = [f"r.{field} = ?" for field, value in named.items() if value is not None]
    values: list[Any] = [value for value in named.values() if value is not None]
    if status := wanted.get("status"):
        # Completed runs are nearly all there are: to collect them by their index and to sort them takes longer than to
        # walk back from the newest. `+` keeps the index out of it.
        plus = "+" if Status.COMPLETED in status else ""
        conditions.append(f"{plus}r.status IN ({', '.join('?' * len(status))})")
        values += status
    if (tree := wanted.get("tree")) is not None:
        conditions.append(TREE)
        values += [tree, tree, f"{tree}.", f"{tree}/"]
    for bound, condition in (("since", "r.created_at >= ?"), ("until", "r.created_at < ?")):
        if (at := wanted.get(bound)) is not None:
            conditions.append(condition)
            values.append(at)
    if narrowed.changed is not None:
        conditions.append(CHANGED)
        values += [msgspec.json.encode(list(narrowed.changed.keys)).decode(), narrowed.changed.after]
    if wanted.get("asked"):
        conditions.append(ASKED)
    if narrowed.before is not None:
        conditions.append("r.key < ?")
        values.append(key_of(db, narrowed.before))
    if (search := wanted.get("search")) is not None:
        condition, sought = _sought(db, search)
        conditions.append(condition)
        values += sought
    return conditions, values


def _sought(db: sqlite3.Connection, search: str) -> tuple[str, list[str]]:
    if search.isascii():
        name = "".join(f"[{letter}]" if letter in "*?[" else letter for letter in search)
        text = "".join(f"\\{letter}" if letter in "\\%_" else letter for letter in search)
        return FOUND, [f"{name}*", f"r-{name}*", f"%{text}%"]
    db.create_function("is_found", 3, is_found, deterministic=True)
    return FOUND_IN_ANY_SCRIPT, [search]


def _run_row(row: tuple[Any, ...]) -> RunRow:
    id, agent, owner, thread, parent, root, goal, status, seq, created_at, changed_at = row
    return RunRow(
        id=id,
        agent=agent,
        owner=owner,
        thread=thread,
        parent=parent,
        root=root,
        goal=goal,
        status=Status(status),
        seq=seq,
        created_at=created_at,
        changed_at=changed_at,
    )
