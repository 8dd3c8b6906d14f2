"""Withheld text and the signed log in PostgreSQL; a run deleted as a whole."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from checkrein.core.enums import TERMINAL
from checkrein.journal import refusals
from checkrein.journal.evidence import EvidenceTables, SignedEntry, Withheld
from checkrein.journal.postgres.connection import Session
from checkrein.journal.postgres.tables import key_of
from checkrein.journal.postgres.writes.job import Context

T = TypeVar("T")

PUT_WITHHELD: Final = "SELECT {s}.write_withheld(%s::text, %s::bytea, %s::bytea, %s::bigint, %s::bytea)"
WITHHELD: Final = 'SELECT call, flag, "offset", text FROM {s}.withheld WHERE run = %s ORDER BY call, "offset"'
LAST: Final = "SELECT number, run, body, key, signature, leaves FROM {s}.signed ORDER BY number DESC LIMIT 1"
SIGNED: Final = """
SELECT number, run, body, key, signature, leaves FROM {s}.signed
WHERE number > %(after)s::bigint AND (%(run)s::text IS NULL OR run = %(run)s::text)
ORDER BY number LIMIT %(limit)s::bigint
"""
PUT_SIGNED: Final = "SELECT {s}.add_signed(%s::bigint, %s::text, %s::bytea, %s::bytea, %s::bytea, %s::bytea)"
DELETE: Final = """
SELECT {s}.delete_run(
    %s::text, %s::text[], %s::bigint, %s::text, %s::bytea, %s::bytea, %s::bytea, %s::bytea
)
"""

Ask = Callable[[Callable[[Session], Any]], Awaitable[Any]]
Do = Callable[[Callable[[Context], Any]], Awaitable[Any]]


class PostgresEvidence(EvidenceTables):
    """`ask` reads, `do` writes, each in the thread of its connection."""

    def __init__(self, ask: Ask, do: Do) -> None:
        self._ask = ask
        self._do = do

    async def write_withheld(self, run: str, withheld: Withheld) -> None:
        row = (run, withheld.flag.encode(), withheld.call.encode(), withheld.offset, withheld.text.encode())
        if "\0" not in run:
            await self._do(lambda at: at.session.run(PUT_WITHHELD, row))

    async def withheld(self, run: str) -> tuple[Withheld, ...]:
        def read(session: Session) -> tuple[Withheld, ...]:
            rows = session.rows(WITHHELD, (key_of(session, run),))
            return tuple(Withheld(call.decode(), flag.decode(), at, text.decode()) for call, flag, at, text in rows)

        found: tuple[Withheld, ...] = await self._ask(read)
        return found

    async def add_signed(self, entry: SignedEntry) -> bool:
        answer = await self._do(lambda at: at.session.row(PUT_SIGNED, _columns(entry)))
        return bool(answer and answer[0])

    async def signed(
        self, *, run: str | None = None, after: int = 0, limit: int | None = None
    ) -> tuple[SignedEntry, ...]:
        values = {"run": run, "after": after, "limit": limit}
        rows = await self._ask(lambda session: session.rows(SIGNED, values))
        return tuple(_entry(row) for row in rows)

    async def last_signed(self) -> SignedEntry | None:
        row = await self._ask(lambda session: session.row(LAST))
        return None if row is None else _entry(row)

    async def delete_run(self, run: str, tombstone: SignedEntry) -> bool:
        finished = [status.value for status in TERMINAL]

        def delete(at: Context) -> str:
            at.heads.forget(run)
            row = at.session.row(DELETE, (run, finished, *_columns(tombstone))) if "\0" not in run else None
            return "missing" if row is None else str(row[0])

        match outcome := await self._do(delete):
            case "missing":
                raise refusals.not_found(run)
            case "live":
                raise refusals.live(run)
            case "parent":
                raise refusals.has_sub_runs(run)
        return bool(outcome == "deleted")

    async def scrub(self) -> str:
        """Only the owner of a server can: its tables keep what was deleted until they are vacuumed and written over."""
        return "the tables of the server until it has vacuumed them, in its own log, and in its backups"


def _columns(entry: SignedEntry) -> tuple[int, str, bytes, bytes, bytes, bytes]:
    return entry.number, entry.run, entry.body, entry.key, entry.signature, entry.leaves


def _entry(row: tuple[Any, ...]) -> SignedEntry:
    number, run, body, key, signature, leaves = row
    return SignedEntry(number=number, run=run, body=body, key=key, signature=signature, leaves=leaves)
