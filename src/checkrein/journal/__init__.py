"""What did happen to runs: the journal, its contract and its stores."""

from checkrein.journal.address import open_journal
from checkrein.journal.contract import (
    Appended,
    Chunk,
    Fence,
    Journal,
    Lease,
    Owner,
    Recorded,
    RunRow,
    Scope,
)
from checkrein.journal.memory import MemoryJournal
from checkrein.journal.rules import answer_id
from checkrein.journal.sqlite import SqliteJournal

__all__ = [
    "open_journal",
    "Journal",
    "MemoryJournal",
    "SqliteJournal",
    "Appended",
    "Chunk",
    "Fence",
    "Lease",
    "Owner",
    "Recorded",
    "RunRow",
    "Scope",
    "answer_id",
]
