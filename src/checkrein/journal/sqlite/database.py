"""The journal's file: making it, opening it, its migrations (schema versions), and refusing what is not one.

A journal file either does not exist or is whole: it is built under another name, made durable, and linked into place,
which fails where something is there already. Nothing that exists is ever overwritten or deleted.

The file is looked at only through SQLite and `stat`. To open and close it in any other way would drop the locks that
this process holds on it through its other connections.

What SQLite's errors mean for a journal, in words that help.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from typing import Final
from urllib.parse import quote

from checkrein.errors import (
    CheckreinError,
    JournalError,
    MisuseError,
    StoreDamaged,
    StoreNotOurs,
    StoreTooNew,
    StoreUnavailable,
)
from checkrein.journal.sqlite.disk_reserve import Reserve

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
            raise _full(path) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise StoreUnavailable(not_writable(path, error), code=NOT_WRITABLE, path=path) from error
        raise StoreUnavailable(f"{path} could not be opened ({error.strerror or error}).", path=path) from error


NOT_WRITABLE: Final = "store_not_writable"


def not_writable(path: str | Path, error: OSError) -> str:
    """What to say about a file or folder of a store that may not be written."""
    return (
        f"{path} may not be written by you ({error.strerror or error}); choose another place with --store "
        "sqlite:////FOLDER/runs.db, or make its folder yours."
    )


def shared_folder(path: str | Path) -> str | None:
    """A sentence about the folder of a store that others may write too; None where nobody may."""
    folder = os.path.dirname(os.path.realpath(os.path.expanduser(path)))
    try:
        found = os.stat(folder)
    except OSError:
        return None
    if not found.st_mode & stat.S_IWOTH and found.st_uid in (0, os.geteuid()):
        return None
    return (
        f"Other users of this machine may write in {folder}, where the store is: they can put files in its place, and "
        f"take it away. Keep it in a folder of your own, or close this one with `chmod go-w {folder}`."
    )


def explain(error: sqlite3.Error, path: str) -> CheckreinError:
    """The journal's error for one of SQLite's."""
    if isinstance(error, sqlite3.IntegrityError):
        return MisuseError("An event of this append has the id of another event of the run; ids must be unique.")
    if is_full(error):
        return _full(path)
    if is_damage(error):
        return StoreDamaged(
            f"{path} is damaged ({error}). Nothing was changed; restore it from a backup, "
            f"together with {path}-wal if there is one.",
            path=path,
        )
    return StoreUnavailable(f"{path} could not be used ({error}); whether that took effect is not known.", path=path)


def _full(path: str) -> CheckreinError:
    from checkrein.journal import refusals  # not for the kill switch, which waits for no import

    return refusals.full(path)


APPLICATION_ID: Final = int.from_bytes(b"CKRN", "big")
SMALLEST: Final = 512
"""No database is smaller than one of SQLite's smallest pages."""

_MAGIC: Final = b"SQLite format 3\0"


def scripts() -> tuple[str, ...]:
    """The schema's migrations: the first makes version 1 of nothing, each other the next of the one before."""
    folder = files("checkrein.journal") / "schema" / "sqlite"
    return tuple(entry.read_text() for entry in sorted(folder.iterdir(), key=lambda entry: entry.name))


def ensure(path: str) -> str:
    """Make sure that there is a journal of this version at `path`, and return its real path.

    Raises `StoreNotOurs`, `StoreTooNew`, `StoreDamaged` or `StoreUnavailable`, and then nothing was changed.
    """
    path = os.path.realpath(os.path.expanduser(path))
    with explained(path):
        if not os.path.exists(path):
            _make(path)
        _check_kind(path)
        _open(path, Reserve(path))
    return path


def _open(path: str, reserve: Reserve) -> None:
    try:
        with closing(connect(path)) as db:
            _bring_up_to_date(db, path, scripts())
    except sqlite3.OperationalError:
        # The first connection needs a little room, for shared memory, and a full disk has none.
        if not reserve.is_needed():
            raise
        if not reserve.is_at_hand():
            raise _full(path) from None
        reserve.spend()
        _open(path, reserve)


def connect(path: str, *, is_writer: bool = True) -> sqlite3.Connection:
    """A connection to a journal that exists; never makes a file."""
    db = _connect(path, "mode=rw")
    try:
        mode = db.execute("PRAGMA journal_mode").fetchone()[0]
        if mode != "wal":
            raise StoreUnavailable(f"{path} is not in WAL mode but in {mode} mode; no other tool may change that.")
        for pragma in ("synchronous=FULL", "fullfsync=ON", "checkpoint_fullfsync=ON", "trusted_schema=OFF"):
            db.execute(f"PRAGMA {pragma}")
        db.execute("PRAGMA temp_store=MEMORY")
        db.execute("PRAGMA cache_size=-16384")
        # The writer waits for its turn in its own way; but not up to here, where another process may be clearing up
        # after a crash.
        db.execute("PRAGMA busy_timeout=0" if is_writer else "PRAGMA query_only=ON")
    except BaseException:
        db.close()
        raise
    return db


def _connect(path: str, parameters: str) -> sqlite3.Connection:
    address = f"file:{quote(path)}?{parameters}"
    return sqlite3.connect(address, uri=True, timeout=10, isolation_level=None, check_same_thread=False)


# -- what is there


def _check_kind(path: str) -> None:
    """Refuse what is not a journal, without touching it."""
    if os.path.isdir(path):
        raise _not_ours(path, "it is a folder")
    size = os.path.getsize(path)
    if size == 0:
        raise _not_ours(path, "it is an empty file")
    if size < SMALLEST:  # too small to be open as a database anywhere, so it may be read
        raise _damaged(path) if Path(path).read_bytes().startswith(_MAGIC) else _not_ours(path, "it is something else")
    try:
        with closing(_connect(path, "mode=ro&immutable=1")) as db:
            application = db.execute("PRAGMA application_id").fetchone()[0]
    except sqlite3.DatabaseError as error:
        if code(error) == sqlite3.SQLITE_NOTADB:
            raise _not_ours(path, "it is not an SQLite database") from error
        if not is_damage(error):
            raise
        return  # perhaps only unfinished, with the rest in its log: a real connection will tell
    if application != APPLICATION_ID:
        raise _not_ours(path, "it is another program's database")


def _bring_up_to_date(db: sqlite3.Connection, path: str, migrations: tuple[str, ...]) -> None:
    """Apply the migrations that are missing, each in a transaction of its own."""
    db.execute("PRAGMA busy_timeout=10000")
    while (version := _version(db, path, len(migrations))) < len(migrations):
        db.execute("BEGIN IMMEDIATE")
        try:
            # Another process may have been faster while this one waited.
            if _version(db, path, len(migrations)) == version:
                _apply(db, migrations[version], version + 1)
            db.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                db.execute("ROLLBACK")
            raise
    db.execute("SELECT max(position) FROM events").fetchone()
    _check_length(db, path)


def _check_length(db: sqlite3.Connection, path: str) -> None:
    """SQLite notices when whole pages are missing at the end, but not when only part of one is."""
    # In this order: what is still in the log may be missing in the file, and others may be moving it over right now.
    length = db.execute("PRAGMA page_count").fetchone()[0] * db.execute("PRAGMA page_size").fetchone()[0]
    is_log_empty = not os.path.exists(f"{path}-wal") or os.path.getsize(f"{path}-wal") == 0
    if is_log_empty and os.path.getsize(path) < length:
        raise _damaged(path)


def _version(db: sqlite3.Connection, path: str, known: int) -> int:
    version = int(db.execute("PRAGMA user_version").fetchone()[0])
    if version > known:
        raise StoreTooNew(
            f"{path} was written by a later version (schema {version}, this one knows {known}). It was left as it is; "
            "install a version that is at least as new.",
            path=path,
            version=version,
        )
    return version


def _apply(db: sqlite3.Connection, script: str, version: int) -> None:
    # Not `executescript`, which would commit first. In a script every statement ends its line.
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            db.execute(statement)
            statement = ""
    db.execute(f"PRAGMA user_version={version}")


def _not_ours(path: str, why: str) -> JournalError:
    return StoreNotOurs(
        f"{path} is not a journal: {why}. It was left as it is; choose another path or move it away.", path=path
    )


def _damaged(path: str) -> JournalError:
    return StoreDamaged(f"{path} is damaged: it ends too early. Restore it from a backup.", path=path)


# -- making a new one


def _make(path: str) -> None:
    """Put a whole, empty journal at `path`, unless something has appeared there in the meantime."""
    _check_no_log_is_left(path)
    folder = os.path.dirname(path)
    make_folders(folder)
    handle, draft = tempfile.mkstemp(prefix=os.path.basename(path) + ".new-", dir=folder)  # readable by its owner only
    try:
        os.close(handle)
        with closing(_connect(draft, "mode=rw")) as db:
            db.execute("PRAGMA synchronous=OFF")  # it is made durable as a whole, below
            db.execute(f"PRAGMA application_id={APPLICATION_ID}")
            db.execute("BEGIN")
            for version, script in enumerate(scripts(), 1):
                _apply(db, script, version)
            db.execute("COMMIT")
            # A disk that fails here is not an error to SQLite: it just stays in the mode it was in.
            (mode,) = db.execute("PRAGMA journal_mode=WAL").fetchone()
            if mode != "wal":
                raise StoreUnavailable(f"{path} could not be made: its disk does not take it.", path=path)
        sync(draft)
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        os.unlink(draft)
    sync(folder)


def _check_no_log_is_left(path: str) -> None:
    """A log without its journal would be taken for the log of a new one, and ruin it."""
    log = f"{path}-wal"
    if os.path.exists(log) and os.path.getsize(log) > 0 and not os.path.exists(path):
        raise StoreDamaged(
            f"{path} is gone but its log {log} is still there. Put the journal back, or move the log away.", path=path
        )


OWN_FOLDER: Final = ".checkrein"
"""Where stores are kept unless something else is said."""


def make_folders(folder: str) -> None:
    """Make a folder for a store, and those above it, for nobody else. What is in our own is kept out of repositories:
    it holds what people and agents said, and a token."""
    if os.path.isdir(folder):
        return
    above = os.path.dirname(os.path.abspath(folder))
    make_folders(above)
    with suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    if os.path.basename(folder) == OWN_FOLDER:
        with suppress(FileExistsError), open(os.path.join(folder, ".gitignore"), "x") as file:
            file.write("*\n")
    sync(above)


def sync(path: str) -> None:
    """Make a file, or the names in a folder, survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
