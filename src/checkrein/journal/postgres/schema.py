"""The schema of a journal in PostgreSQL: `init`, `migrate` (schema versions) and `check`, and what is refused at open.

Only `init` and `migrate` change the schema, each in one transaction. In an empty database whoever opens a journal there
does what `init` does, if its role may. A schema that was not made by this module is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from typing import Final, NamedTuple, TypeVar

import psycopg
from psycopg import errors

from checkrein.errors import MisuseError, StoreNotOurs, StoreTooNew, StoreUnavailable
from checkrein.journal.postgres.connection import Session, Target, explain, is_lost, refuse, target_of
from checkrein.journal.postgres.roles import Rights, fitted, is_made, make, rights

T = TypeVar("T")

UNSAFE: Final = ("synchronous_commit", "fsync", "full_page_writes")
"""Settings without which a server acknowledges what it may lose. Of the first, any value but `off` waits for a disk."""

_LOCK: Final = "SELECT pg_advisory_xact_lock(7013, 1)"
_TABLES: Final = "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace(%s) AND relkind IN ('r', 'v', 'p')"
_SETTINGS: Final = "SELECT name FROM pg_settings WHERE name = ANY (%s) AND setting = 'off'"
_VERSION: Final = "SELECT version, least_reader, least_writer FROM {s}.version"
_DATABASE: Final = """
SELECT (SELECT system_identifier FROM pg_control_system()), oid FROM pg_database WHERE datname = current_database()
"""
_ISOLATION: Final = "SELECT current_setting('default_transaction_isolation')"


class Found(NamedTuple):
    """What a schema says about itself: its version, and which ones code must know to read and to write there."""

    version: int
    least_reader: int
    least_writer: int


@cache
def scripts() -> tuple[str, ...]:
    """The migrations: the first makes version 1 of nothing, each other the next of the one before."""
    folder = files("checkrein.journal") / "schema" / "postgres"
    return tuple(entry.read_text() for entry in sorted(folder.iterdir(), key=lambda entry: entry.name))


# -- for a command line


def init(address: str) -> Found:
    """Make the tables, unless they are there. Raises `StoreNotOurs` and `StoreUnavailable`."""
    return _at(address, _made)


def migrate(address: str) -> Found:
    """Bring the tables up to the version that this code knows. Raises as `check`, but not for an older version."""
    return _at(address, _migrate)


def check(address: str) -> tuple[Found, Rights, list[str]]:
    """What is there, and what the user may do there, also in words. Raises whatever opening a journal there would."""
    return _at(address, _check)


def make_roles(address: str) -> dict[str, bool]:
    """Make the roles of the store, or grant them anew what they may do. Returns their names, and whether each is new.

    Raises as `check`, and `StoreForbidden` where the user owns neither the tables nor may make roles.
    """
    return _at(address, _make_roles)


def _check(session: Session, target: Target) -> tuple[Found, Rights, list[str]]:
    if _version(session, target) is None:  # looking makes nothing
        raise _not_initialised(target, "nothing was made")
    found = ensure(session, target)
    may = rights(session, target)
    fitted(session, target, may)
    return found, may, may.sentences(target)


def _make_roles(session: Session, target: Target) -> dict[str, bool]:
    ensure(session, target)
    with session.connection.transaction():
        session.run(_LOCK)
        return make(session, target)


def _made(session: Session, target: Target) -> Found:
    found = _version(session, target) or _init(session, target) or _version(session, target)
    if found is None:
        raise _not_ours(target)
    return found


def _at(address: str, act: Callable[[Session, Target], T]) -> T:
    target = target_of(address)
    try:
        session = Session(target)
    except psycopg.Error as error:
        refuse(error, target)
    try:
        with _explained(target):
            return act(session, target)
    finally:
        session.close()


@contextmanager
def _explained(target: Target) -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        if is_lost(error):
            refuse(error, target)
        raise explain(error, target.shown) from None


# -- at open


def ensure(session: Session, target: Target) -> Found:
    """Make sure that there is a journal that this code may use; in an empty place, make it.

    Raises `StoreUnavailable` with a code of its own, `StoreNotOurs` or `StoreTooNew`, and then nothing was changed.
    """
    with _explained(target):
        _check_server(session, target)
        known = len(scripts())
        found = _made(session, target)
        if (too_new := _too_new(found, target)) is not None:
            raise too_new
        if found.version < known:
            raise StoreUnavailable(
                f"{target.shown} has schema {found.version}, and this version needs {known}. Run "
                "`checkrein store migrate` with this address, as the owner of the schema.",
                code="store_too_old",
                path=target.shown,
            )
        return found


def look(session: Session, target: Target) -> StoreTooNew | None:
    """What stands in the way of going on there, if a later version has migrated the schema meanwhile."""
    row = session.row(_VERSION)
    return None if row is None else _too_new(Found(*row), target)


def _too_new(found: Found, target: Target) -> StoreTooNew | None:
    known = len(scripts())
    if max(found.least_reader, found.least_writer) <= known:
        return None
    return StoreTooNew(
        f"{target.shown} was written by a later version (schema {found.version}, this one knows {known}). It "
        "was left as it is; install a version that is at least as new.",
        path=target.shown,
        version=found.version,
    )


def check_listens_to(session: Session, target: Target, listening: Session, listen: Target) -> None:
    """Raises `MisuseError` unless both connections lead to the same database, by whichever names and ways."""
    with _explained(listen):
        _check_server(listening, listen)
        there = listening.row(_DATABASE)
    with _explained(target):
        if session.row(_DATABASE) != there:
            raise MisuseError(
                f"{listen.shown} is another database than that of the store {target.shown}: nothing that is written to "
                "the store would be heard there.",
                code="listen_store_refused",
                address=listen.shown,
            )


def _check_server(session: Session, target: Target) -> None:
    encoding = session.connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise StoreUnavailable(
            f"{target.shown} is a database in {encoding}, which cannot hold what people and models write. Make one "
            "with ENCODING 'UTF8', and name that.",
            code="store_unsafe",
            path=target.shown,
        )
    row = session.row("SELECT pg_is_in_recovery()")
    if row is not None and row[0]:
        raise StoreUnavailable(
            f"{target.shown} is a standby, which takes nothing and may lag behind; name the primary.",
            code="store_is_standby",
            path=target.shown,
        )
    unsafe = sorted(name for (name,) in session.rows(_SETTINGS, (list(UNSAFE),)))
    if unsafe:
        raise StoreUnavailable(
            f"{target.shown} has {' and '.join(unsafe)} off: it would lose what it has acknowledged. Set "
            f"{'it' if len(unsafe) == 1 else 'them'} on.",
            code="store_unsafe",
            path=target.shown,
        )

    isolation = session.row(_ISOLATION)
    if isolation != ("read committed",):
        raise StoreUnavailable(
            f"{target.shown} has default_transaction_isolation set to {isolation and isolation[0]}: a fence could be "
            "overlooked. Have it at read committed for this user and database.",
            code="store_unsafe",
            path=target.shown,
        )


def _version(session: Session, target: Target) -> Found | None:
    """None where there is nothing. Raises `StoreNotOurs` where there is something else."""
    tables = {name for (name,) in session.rows(_TABLES, (target.schema,))}
    if not tables:
        return None
    if not tables >= {"version", "events", "heads", "gate"}:
        raise _not_ours(target)
    row = session.row(_VERSION)
    if row is None:
        raise _not_ours(target)
    return Found(*row)


def _init(session: Session, target: Target) -> Found | None:
    """Make the tables in an empty place; None where somebody else was faster."""
    try:
        with session.connection.transaction():
            session.run(_LOCK)
            if session.rows(_TABLES, (target.schema,)):
                return None
            if session.row("SELECT to_regnamespace(%s) IS NULL", (target.schema,)) == (True,):
                session.run("CREATE SCHEMA {s}")
            for script in scripts():
                _apply(session, target, script)
    except errors.InsufficientPrivilege:
        raise _not_initialised(target, "this user may not make them") from None
    return _version(session, target)


def _migrate(session: Session, target: Target) -> Found:
    _check_server(session, target)
    known = scripts()
    with session.connection.transaction():
        session.run("SET LOCAL lock_timeout = '2s'")
        session.run(_LOCK)
        found = _version(session, target)
        if found is None:
            raise _not_initialised(target, "there is nothing to migrate")
        for script in known[found.version :]:
            _apply(session, target, script)
        if is_made(session, target):
            make(session, target)  # what was made anew has lost what it was granted
    return ensure(session, target)


def _apply(session: Session, target: Target, script: str) -> None:
    # Several statements at once, so without parameters; the name was checked when the address was read.
    session.connection.execute(script.replace("{schema}", f'"{target.schema}"').encode())


def _not_ours(target: Target) -> StoreNotOurs:
    return StoreNotOurs(
        f"The schema {target.schema} of {target.shown} holds tables of something else. They were left as they are; "
        "name another schema with ?schema=.",
        path=target.shown,
    )


def _not_initialised(target: Target, why: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"{target.shown} has no tables of a journal in schema {target.schema}, and {why}. Have its owner run "
        "`checkrein store init` with this address.",
        code="store_not_initialised",
        path=target.shown,
    )
