"""What can be asked of a journal's file. Each function gets the reader's connection."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping
from typing import Any, Final

from checkrein.core.evolve import evolve
from checkrein.core.state import State
from checkrein.core.words import Status
from checkrein.journal import chain, codec, refusals
from checkrein.journal.contract import Recorded, RunRow
from checkrein.journal.sqlite.keys import key_of

PAGE: Final = 1000
"""How many events are read in one go: others want to read, too."""

EVENTS: Final = "SELECT seq, body, hash FROM events WHERE run = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3"
DECIDED: Final = "SELECT decided FROM heads WHERE run = ?1"
CHAIN: Final = "SELECT seq, body, hash, id FROM events WHERE run = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3"
RUNS: Final = """
SELECT r.id, r.agent, r.owner, r.thread, r.parent, r.root, r.goal, r.status, e.seq, r.created_at, e.at
FROM runs r JOIN events e ON e.run = r.key AND e.seq = (SELECT max(seq) FROM events WHERE run = r.key)
"""


def read(db: sqlite3.Connection, run: str, after: int, limit: int) -> tuple[Recorded, ...]:
    rows = db.execute(EVENTS, (key_of(db, run), after, limit)).fetchall()
    return tuple(Recorded(run, seq, codec.decode(body), body, hash) for seq, body, hash in rows)


def fold(db: sqlite3.Connection, run: str, state: State | None) -> tuple[State | None, int]:
    """`state` and up to a page of the events after it; also how many those were."""
    rows = db.execute(EVENTS, (key_of(db, run), state.seq if state else 0, PAGE)).fetchall()
    for seq, body, _ in rows:
        state = evolve(state, codec.decode(body), seq)
    return state, len(rows)


def check_chain(db: sqlite3.Connection, run: str, seq: int, hash: bytes) -> tuple[int, bytes, bool]:
    """Walk up to a page of events after `seq`, which has `hash`. Returns where that led and whether it is the end."""
    key = key_of(db, run)
    (decided,) = db.execute(DECIDED, (key,)).fetchone()
    rows = db.execute(CHAIN, (key, seq, PAGE)).fetchall()
    for found, body, claimed, event_id in rows:
        hash = chain.link(hash, seq + 1, body)
        if found != seq + 1 or claimed != hash or codec.decode(body).id != event_id:
            raise refusals.broken_chain(run, seq + 1)
        seq = found
    is_end = len(rows) < PAGE
    if is_end and seq < decided:
        raise refusals.broken_chain(run, seq + 1)
    return seq, hash, is_end


def runs(
    db: sqlite3.Connection,
    status: Collection[Status],
    fields: Mapping[str, str | None],
    limit: int,
    before: str | None,
) -> tuple[RunRow, ...]:
    """Runs that have one of `status` and the given `fields`, newest first."""
    given = {field: value for field, value in fields.items() if value is not None}
    conditions = [f"r.{field} = ?" for field in given]
    values: list[str | int] = list(given.values())
    if status:
        conditions.append(f"r.status IN ({', '.join('?' * len(status))})")
        values += status
    if before is not None:
        conditions.append("r.key < ?")
        values.append(key_of(db, before))
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    rows = db.execute(f"{RUNS} {where} ORDER BY r.key DESC LIMIT ?", (*values, limit)).fetchall()
    return tuple(_run_row(row) for row in rows)


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
