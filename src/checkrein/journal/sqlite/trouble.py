"""What SQLite's errors mean for a journal, in words that help."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from checkrein.errors import CheckreinError, MisuseError, StoreDamaged, StoreUnavailable
from checkrein.journal import refusals

_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_TRANSIENT: Final = _BUSY | {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_INTERRUPT}


def code(error: BaseException) -> int:
    """SQLite's primary result code; 0 for an error of another kind."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def is_busy(error: BaseException) -> bool:
    return code(error) in _BUSY


def is_full(error: BaseException) -> bool:
    return code(error) == sqlite3.SQLITE_FULL


def is_damage(error: BaseException) -> bool:
    return code(error) in _DAMAGED


def is_transient(error: BaseException) -> bool:
    """Whether the same thing may well succeed when it is tried again."""
    return code(error) in _TRANSIENT


@contextmanager
def explained(path: str) -> Iterator[None]:
    """What the system or SQLite raises inside becomes an error of the journal."""
    try:
        yield
    except sqlite3.Error as error:
        raise explain(error, path) from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise refusals.full(path) from error
        raise StoreUnavailable(f"{path} could not be opened ({error.strerror or error}).", path=path) from error


def explain(error: sqlite3.Error, path: str) -> CheckreinError:
    """The journal's error for one of SQLite's."""
    if isinstance(error, sqlite3.IntegrityError):
        return MisuseError("An event of this append has the id of another event of the run; ids must be unique.")
    if is_full(error):
        return refusals.full(path)
    if is_damage(error):
        return StoreDamaged(
            f"{path} is damaged ({error}). Nothing was changed; restore it from a backup, "
            f"together with {path}-wal if there is one.",
            path=path,
        )
    return StoreUnavailable(f"{path} could not be used ({error}); whether that took effect is not known.", path=path)
