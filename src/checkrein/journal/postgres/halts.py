"""Halts in a database: the fence and its record in one transaction of the server, and the way there that needs no
journal to be open.

`checkrein halt` imports this, the driver of PostgreSQL, and little else.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Final

import psycopg

from checkrein.errors import RunNotFound, StoreUnavailable
from checkrein.journal import operations
from checkrein.journal.postgres.connection import (
    Session,
    Target,
    explain,
    is_login_refused,
    is_lost,
    refuse,
    target_of,
)

VERSION: Final = 7
"""The first schema with a journal of operations."""
HALT_MARK: Final = "^"
"""Before what is told: an operator did something."""

LATCH: Final = (
    "SELECT {s}.latch_halt(%s::bytea, %s::bytea, %s::text, %s::bytea, %s::bytea, %s::bytea, %s::double precision, "
    "%s::boolean, %s::text, %s::text)"
)
LIFT: Final = (
    "SELECT {s}.lift_halt(%s::bytea, %s::bytea, %s::text, %s::bytea, %s::bytea, %s::bytea, %s::bytea[], %s::text, "
    "%s::text)"
)
_FOUND_VERSION: Final = "SELECT version FROM {s}.version"
_AGENT: Final = "SELECT 1 FROM {s}.runs WHERE agent = %s::text LIMIT 1"
_OWNER: Final = "SELECT 1 FROM {s}.runs WHERE owner = %s::bytea LIMIT 1"
_PAUSE_SECONDS: Final = 0.2


def latch(session: Session, target: Target, asked: operations.Request, *, must_exist: bool) -> bool:
    """Put the fence of a halt up and record it. Returns whether it was up before; then the first one's words stay.

    Raises `RunNotFound` where a run must exist and does not.
    """
    values = (*_words(asked), asked.at, must_exist, target.channel, HALT_MARK)
    found = session.row(LATCH, values)
    assert found is not None
    if found[0] is None:
        raise RunNotFound(f"There is no run {asked.name}.", run=asked.name)
    return bool(found[0])


def lift(session: Session, target: Target, asked: operations.Request, runs: Collection[str]) -> bool:
    """Take the fence of a halt down, and those of `runs`, which it ended, and record it. Returns whether it was up."""
    names = [run.encode() for run in runs]
    found = session.row(LIFT, (*_words(asked), names, target.channel, HALT_MARK))
    return bool(found and found[0])


def _words(asked: operations.Request) -> tuple[bytes, bytes, str, bytes, bytes, bytes]:
    return (
        asked.id.encode(),
        asked.body(),
        asked.scope,
        asked.name.encode(),
        asked.by.encode(),
        asked.reason.encode(),
    )


# -- without an open journal


def latch_at(address: str, asked: operations.Request, *, patience: float) -> bool:
    """Put the fence of a halt up in the journal at `address`, durably, and say whether it was up before.

    Raises `StoreUnavailable` after `patience` seconds, `StoreForbidden` where this user may not halt, and `RunNotFound`
    for a halt of a run that there is not. Then nothing was latched, except where the answer of a server got lost:
    asking again tells.
    """
    target = target_of(address)
    deadline = time.monotonic() + patience
    while True:
        try:
            session = Session(target)
        except psycopg.Error as error:
            if is_login_refused(error) or time.monotonic() > deadline:
                refuse(error, target)
            time.sleep(_PAUSE_SECONDS)
            continue
        try:
            _check_version(session, target)
            return latch(session, target, asked, must_exist=True)
        except psycopg.Error as error:
            if not is_lost(error) or time.monotonic() > deadline:
                raise explain(error, target.shown) from None
            time.sleep(_PAUSE_SECONDS)
        finally:
            session.close()


def is_known_at(address: str, scope: str, name: str) -> bool:
    """Whether there ever was a run of this agent or owner."""
    target = target_of(address)
    session = Session(target)
    try:
        if scope == "agent":
            return session.row(_AGENT, (name,)) is not None
        return session.row(_OWNER, (name.encode(),)) is not None
    finally:
        session.close()


def _check_version(session: Session, target: Target) -> None:
    try:
        found = session.row(_FOUND_VERSION)
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
        found = None
    if found is None:
        raise StoreUnavailable(
            f"{target.shown} has no tables of a journal in schema {target.schema}.",
            code="store_not_initialised",
            path=target.shown,
        )
    if found[0] < VERSION:
        raise StoreUnavailable(
            f"{target.shown} has schema {found[0]}, and this version needs {VERSION}. Run `checkrein store migrate` "
            "with this address, as the owner of the schema.",
            code="store_too_old",
            path=target.shown,
        )
