"""The index of effects: kept in the transaction of the events that change it."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from checkrein.core.effects import AT_THE_END, EFFECT_EVENTS, Effect, evolve_effect
from checkrein.core.events import EffectOpened, RunFinished
from checkrein.core.words import TERMINAL, EffectState
from checkrein.journal.contract import Recorded
from checkrein.journal.sqlite.keys import key_of

ONE: Final = "SELECT opened, state, body FROM effects WHERE run = ?1 AND id = ?2"
PUT: Final = "INSERT OR REPLACE INTO effects (run, id, state, opened, body) VALUES (?1, ?2, ?3, ?4, ?5)"
END: Final = "UPDATE effects SET state = ?2 WHERE run = ?1 AND state = ?3"
ALL: Final = "SELECT opened, state, body FROM effects WHERE run = ?1 ORDER BY opened"

OPEN: Final = """
SELECT r.id, e.opened, e.state, e.body FROM effects e JOIN runs r ON r.key = e.run
WHERE e.state = ?1 AND r.status IN (SELECT value FROM json_each(?2)) ORDER BY r.key
"""

_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(Effect)


def keep(cursor: sqlite3.Cursor, run: int, records: Sequence[Recorded]) -> None:
    """Bring the index up to date with events that were just written."""
    for record in records:
        event = record.event
        if isinstance(event, RunFinished):
            cursor.execute(END, (run, AT_THE_END[event.status], EffectState.OPEN))
        elif type(event) in EFFECT_EVENTS:
            name: str = event.effect  # type: ignore[attr-defined]
            row = cursor.execute(ONE, (run, name)).fetchone()
            after = evolve_effect(None if row is None else _effect(row), event)
            if after is not None:
                opened = record.seq if row is None or isinstance(event, EffectOpened) else row[0]
                cursor.execute(PUT, (run, name, after.state, opened, _ENCODER.encode(after)))


def read(db: sqlite3.Connection, run: str, states: Collection[EffectState]) -> tuple[Effect, ...]:
    """The effects of a run in one of `states`, or in any, oldest first."""
    rows = db.execute(ALL, (key_of(db, run),)).fetchall()
    return tuple(_effect(row) for row in rows if not states or row[1] in states)


def wanting_undo(db: sqlite3.Connection) -> tuple[str, ...]:
    """The finished runs with an open effect whose undo was asked for."""
    found = db.execute(OPEN, (EffectState.OPEN, _ENCODER.encode(sorted(TERMINAL)).decode())).fetchall()
    return tuple(dict.fromkeys(run for run, *row in found if _effect((row[0], row[1], row[2])).wanted))


def _effect(row: tuple[int, str, bytes]) -> Effect:
    return replace(_DECODER.decode(row[2]), state=EffectState(row[1]))
