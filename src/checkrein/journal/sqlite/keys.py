"""The short key of a run, by which every table refers to it."""

from __future__ import annotations

import sqlite3
from typing import Final

from checkrein.journal import refusals

KEY: Final = "SELECT key FROM runs WHERE id = ?1"


def key_of(db: sqlite3.Connection | sqlite3.Cursor, run: str) -> int:
    """Raises `RunNotFound`."""
    row = db.execute(KEY, (run,)).fetchone()
    if row is None:
        raise refusals.not_found(run)
    return int(row[0])
