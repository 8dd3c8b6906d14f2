"""Deleting runs whole, after a while: what is left of each is a tombstone, which says what was there and who took it.

What is live is refused, and a family of runs goes together, the sub-runs first: half a family explains nothing.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import msgspec

from checkrein.control.evidence.keys import SigningKey
from checkrein.control.evidence.log import Leaf, sign
from checkrein.control.stops import stops_of
from checkrein.core.enums import TERMINAL
from checkrein.errors import Refused
from checkrein.journal.base import Journal, RunRow

_PAGE: Final = 500


class Pruned(msgspec.Struct, frozen=True):
    """What came of it: the runs that are gone, and those that had to stay, with the reason."""

    deleted: list[str]
    kept: dict[str, str]
    copies: str = ""
    """Where the store may still have copies of what is gone; empty: nowhere."""


async def prune(
    journal: Journal, key: SigningKey, *, before: float, keep_stopped: bool, by: str, at: float, dry: bool = False
) -> Pruned:
    """Delete every run, with those below it, of which nothing has changed since `before`."""
    deleted: list[str] = []
    kept: dict[str, str] = {}
    for root in await _old(journal, before):
        family = [root, *await _below(journal, root.id)]
        if (why := await _why_kept(journal, family, before, keep_stopped)) is not None:
            kept[root.id] = why
            continue
        try:
            for row in reversed(family):  # a parent is older than its children
                if not dry:
                    await _delete(journal, key, row, by=by, at=at)
                deleted.append(row.id)
        except Refused as refused:
            kept[root.id] = refused.message
    copies = await journal.evidence.scrub() if deleted and not dry else ""
    return Pruned(deleted, kept, copies)


async def _old(journal: Journal, before: float) -> list[RunRow]:
    """All of them, before any is deleted: a page of runs is found by the last one of the page before."""
    found: list[RunRow] = []
    last: str | None = None
    while rows := await journal.runs(until=before, limit=_PAGE, before=last):
        found += [row for row in rows if row.parent is None and row.changed_at < before]
        last = rows[-1].id
    return found


async def _below(journal: Journal, root: str) -> list[RunRow]:
    found: list[RunRow] = []
    last: str | None = None
    while rows := await journal.runs(root=root, limit=_PAGE, before=last):
        found += rows
        last = rows[-1].id
    return found[::-1]


async def _why_kept(journal: Journal, family: list[RunRow], before: float, keep_stopped: bool) -> str | None:
    for row in family:
        if row.status not in TERMINAL:
            return f"run {row.id} is {row.status.value}"
        if row.changed_at >= before:
            return f"something of run {row.id} has changed since"
        if keep_stopped and await stops_of(journal, await journal.read(row.id)):
            return f"run {row.id} was stopped"
    return None


async def _delete(journal: Journal, key: SigningKey, row: RunRow, *, by: str, at: float) -> None:
    """With its tombstone: a run that is gone without one would look like one that somebody made away with."""
    (record,) = await journal.read(row.id, after=row.seq - 1, limit=1)
    leaf = Leaf(row.id, record.seq, record.hash.hex())
    delete = partial(journal.evidence.delete_run, row.id)
    await sign(journal, key, "tombstone", at=at, leaf=leaf, what="pruned", by=by, add=delete)
