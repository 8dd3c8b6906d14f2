"""A journal in one SQLite file.

journal        the contract, in a few lines each
database       making, opening and refusing files; migrations; what SQLite's errors mean

writer         the thread that writes: group commit, and what follows an error
job            what it is asked to do, the transaction it is done in, and where each run stands
write_lock     whose turn it is to write, among processes
disk_reserve   room for the day the disk is full
append         what an append writes; beside it leases and tables (text, snapshots, effects, fences, keys)

change_poller  the thread that reads, and what other processes commit; what it is asked is in reads
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from checkrein.journal.sqlite.journal import SqliteJournal

__all__ = ["SqliteJournal"]


def __getattr__(name: str) -> Any:
    """Imported when it is used: the kill switch needs less."""
    if name != "SqliteJournal":
        raise AttributeError(f"module 'checkrein.journal.sqlite' has no attribute {name!r}")
    from checkrein.journal.sqlite.journal import SqliteJournal

    return SqliteJournal
