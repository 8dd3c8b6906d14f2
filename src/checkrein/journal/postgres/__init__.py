"""A journal in a schema of a PostgreSQL database, for any number of processes on any number of hosts.

journal        the contract, in a few lines each
connection     connecting; what the errors of the server and of the network mean
schema         making, migrating, checking and refusing schemas; settings of a server that would lose what it took

writer         the thread that writes: one statement for all appends that wait
append         what an append writes, and who is told what; beside it leases and tables (text, snapshots, fences)
job            what it is asked to write, and where each run stands, remembered until a compare-and-set says otherwise

reads          the thread that reads, and what it is asked
listener       the thread that hears what other processes commit, and renews leases
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from checkrein.journal.postgres.journal import PostgresJournal

__all__ = ["PostgresJournal"]


def __getattr__(name: str) -> Any:
    """Imported when it is used: the kill switch needs less."""
    if name != "PostgresJournal":
        raise AttributeError(f"module 'checkrein.journal.postgres' has no attribute {name!r}")
    from checkrein.journal.postgres.journal import PostgresJournal

    return PostgresJournal
