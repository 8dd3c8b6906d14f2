"""Saving a snapshot at once; a journal saves one by itself when it had to fold many events."""

from __future__ import annotations

from checkrein.core.state import State
from checkrein.journal.base import Journal
from checkrein.journal.sqlite.journal import SqliteJournal
from checkrein.journal.sqlite.tables import SaveSnapshot


async def save_snapshot(journal: Journal, state: State) -> None:
    """Keep `state` so that `load` need not fold what came before. One that is older than what is kept is ignored."""
    assert isinstance(journal, SqliteJournal), "no other journal keeps snapshots"
    await journal._writer.submit(SaveSnapshot(state, journal._path))
