"""Opening a journal by its address: `memory:`, `sqlite:///relative/path`, `sqlite:////absolute/path`, a plain path, or
`postgresql://user@host:port/database?schema=checkrein`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from anyio import to_thread

from checkrein.asyncutil import run_to_completion
from checkrein.errors import MisuseError, StoreUnavailable
from checkrein.journal.address import address_of, file_of, is_postgres, shown
from checkrein.journal.base import Journal
from checkrein.journal.memory import MemoryJournal
from checkrein.journal.sqlite import SqliteJournal


async def open_journal(address: str, *, listen: str | None = None) -> Journal:
    """The journal at `address`. A file that does not exist is made, and so are the tables in an empty database.

    `listen` is for a database behind a pooler in transaction mode: the address of the same database without it.

    Raises `MisuseError` for an address of no known kind, and for one to listen on that leads elsewhere; and what the
    store says about itself: `StoreNotOurs`, `StoreTooNew`, `StoreDamaged`, `StoreUnavailable`.
    """
    path = file_of(address)
    if listen is not None and not is_postgres(address):
        raise MisuseError(
            f"An address to listen on is for a store in PostgreSQL, and this store is {shown(address_of(address))}; "
            "leave it out.",
            code="listen_store_refused",
            address=shown(listen),
        )
    if path is not None:
        return await run_to_completion(to_thread.run_sync(SqliteJournal, path), take_back=SqliteJournal.close)
    if not is_postgres(address):
        return MemoryJournal()
    open_postgres = _postgres(shown(address))
    return await run_to_completion(to_thread.run_sync(open_postgres, address, listen), take_back=lambda j: j.close())


def _postgres(name: str) -> Callable[[str, str | None], Journal]:
    """Imported only by whoever has such a store: the driver takes a while to be imported, and may not be there."""
    with driver_needed(name):
        from checkrein.journal.postgres import PostgresJournal
    return lambda address, listen: PostgresJournal(address, listen=listen)


@contextmanager
def driver_needed(name: str) -> Iterator[None]:
    """Around an import: where the driver of PostgreSQL is missing, that is what the store `name` needs."""
    try:
        yield
    except ImportError as error:
        if "psycopg" not in (error.name or "") and "pq wrapper" not in str(error):
            raise
        raise StoreUnavailable(
            f"{name} needs the driver of PostgreSQL, which is not installed: pip install 'checkrein[postgres]'.",
            code="store_driver_missing",
            path=name,
        ) from error
