"""Opening a journal by its address."""

from __future__ import annotations

from typing import Final

from anyio import to_thread

from checkrein.errors import MisuseError
from checkrein.journal.contract import Journal
from checkrein.journal.memory import MemoryJournal
from checkrein.journal.sqlite import SqliteJournal
from checkrein.journal.surely import surely

MEMORY: Final = "memory:"
SQLITE: Final = "sqlite:///"


async def open_journal(address: str) -> Journal:
    """The journal at `address`: `memory:`, `sqlite:///relative/path` or `sqlite:////absolute/path`.

    A file that does not exist is made. Raises `MisuseError` for an address of no known kind, and what the store says
    about itself: `StoreNotOurs`, `StoreTooNew`, `StoreDamaged`, `StoreUnavailable`.
    """
    if address == MEMORY:
        return MemoryJournal()
    path = address.removeprefix(SQLITE)
    if path == address or not path or path == ":memory:":
        raise MisuseError(
            f"{address!r} is not the address of a journal; use memory:, sqlite:///relative/path or "
            "sqlite:////absolute/path.",
            address=address,
        )
    return await surely(to_thread.run_sync(SqliteJournal, path), take_back=SqliteJournal.close)
