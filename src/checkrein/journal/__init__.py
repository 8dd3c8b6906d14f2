"""What did happen to runs: the journal, its contract and its stores.

Names are imported when they are used: the kill switch reaches into a store without waiting for the rest.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from checkrein.journal.address import MEMORY, SQLITE, address_of, file_of, shown
    from checkrein.journal.admission import answer_id
    from checkrein.journal.base import Appended, Chunk, Fence, Journal, Lease, Owner, Recorded, RunRow, Scope, Worker
    from checkrein.journal.memory import MemoryJournal
    from checkrein.journal.open import driver_needed, open_journal
    from checkrein.journal.sqlite import SqliteJournal

__all__ = [
    "MEMORY",
    "SQLITE",
    "address_of",
    "driver_needed",
    "file_of",
    "shown",
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
    "Worker",
    "answer_id",
]

_HOMES = {
    "address": ("MEMORY", "SQLITE", "address_of", "file_of", "shown"),
    "admission": ("answer_id",),
    "base": ("Appended", "Chunk", "Fence", "Journal", "Lease", "Owner", "Recorded", "RunRow", "Scope", "Worker"),
    "memory": ("MemoryJournal",),
    "open": ("driver_needed", "open_journal"),
    "sqlite": ("SqliteJournal",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'checkrein.journal' has no attribute {name!r}")
    return getattr(import_module(f"checkrein.journal.{_HOME_OF[name]}"), name)
