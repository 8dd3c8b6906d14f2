"""The control: plain SQLite instead of the journal, whose losses and survivals are known in advance.

With `synchronous=NORMAL` in WAL mode a power cut may lose what was committed; with FULL it may not. A harness that
cannot tell the two apart proves nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from tests.torture.crash.shim import Folder
from tests.torture.crash.witness import Promise, Witness

ROWS = 120


def run_plain(folder: Folder, synchronous: str) -> int:
    """Insert rows one by one, and acknowledge each once it is committed. Checkpoints happen on the way."""
    with (
        Witness(folder.witness) as witness,
        closing(sqlite3.connect(folder.database, isolation_level=None)) as connection,
    ):
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"PRAGMA synchronous={synchronous}")
        connection.execute("PRAGMA wal_autocheckpoint=40")
        connection.execute("CREATE TABLE IF NOT EXISTS row (id TEXT PRIMARY KEY, seq INTEGER, padding BLOB)")
        for seq in range(ROWS):
            connection.execute("INSERT INTO row VALUES (?, ?, zeroblob(300))", (f"e{seq}", seq))
            witness.saw(Promise("plain", seq, f"e{seq}"))
    return 0


def examine_plain(database: Path, promises: Sequence[Promise]) -> list[str]:
    """The acknowledged rows that are gone."""
    with closing(sqlite3.connect(database)) as connection:
        try:
            there = set(connection.execute("SELECT id, seq FROM row"))
        except sqlite3.OperationalError as error:
            if "no such table" not in str(error):
                raise
            there = set()
    return [f"{promise.id} is gone" for promise in promises if (promise.id, promise.number) not in there]
