"""A store that is away for a while, and comes back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from checkrein.errors import StoreUnavailable
from checkrein.journal import MemoryJournal


@contextmanager
def store_away(journal: MemoryJournal) -> Iterator[None]:
    """Meanwhile nothing that is asked of `journal` is answered, and whoever follows it looks."""

    def refuse() -> None:
        raise StoreUnavailable("The store is away.")

    journal._check_open = refuse  # type: ignore[method-assign]
    journal._tower.ring_all()
    try:
        yield
    finally:
        del journal._check_open
