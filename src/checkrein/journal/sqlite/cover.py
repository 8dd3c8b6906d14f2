"""Which fence, if any, stands over a run: one look into a small table."""

from __future__ import annotations

import sqlite3
from typing import Final

from checkrein.journal.rules import Cover


def cover_of(run: str, root: str, agent: str, owner: str) -> str:
    """SQL for the `Cover` over a run of which these are columns or parameters."""
    return f"""(
        SELECT ifnull(max(halt) + 1, 0) FROM fences WHERE (scope, name) IN (
            VALUES ('run', {run}), ('root', {root}), ('agent', {agent}), ('owner', {owner}), ('all', '')
        )
    )"""


COVER: Final = f"SELECT {cover_of('?1', '?2', '?3', '?4')}"


def cover(cursor: sqlite3.Cursor, run: str, root: str, agent: str, owner: str) -> Cover:
    """The cover over a run that may not exist yet."""
    return Cover(cursor.execute(COVER, (run, root, agent, owner)).fetchone()[0])
