"""The tables of deliveries: what receivers elsewhere were told, and which server is about to tell them what.

What is told, and why, nobody here knows. Each statement may be made twice.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from checkrein.journal.postgres.journal import PostgresJournal
from checkrein.journal.postgres.writes.job import Context

CLAIM: Final = """
INSERT INTO {s}.deliveries AS d (receiver, id, server, until) VALUES (%(receiver)s, %(id)s, %(by)s, %(until)s)
ON CONFLICT (receiver, id) DO UPDATE SET server = excluded.server, until = excluded.until
WHERE d.told_at IS NULL AND (d.until <= %(now)s OR d.server = excluded.server)
"""
STANDING: Final = "SELECT server, until, told_at FROM {s}.deliveries WHERE receiver = %(receiver)s AND id = %(id)s"
NOTE: Final = """
INSERT INTO {s}.deliveries AS d (receiver, id, server, until, told_at) VALUES (%s, %s, '', 0, %s)
ON CONFLICT (receiver, id) DO UPDATE SET told_at = coalesce(d.told_at, excluded.told_at)
"""
RELEASE: Final = "UPDATE {s}.deliveries SET until = 0 WHERE server = %s AND told_at IS NULL"
FORGET: Final = "DELETE FROM {s}.deliveries WHERE greatest(until, told_at) < %s"
FIRST_TIME: Final = "INSERT INTO {s}.delivery_times (name, at) VALUES (%s, %s) ON CONFLICT DO NOTHING"
TIME: Final = "SELECT at FROM {s}.delivery_times WHERE name = %s"
SET_TIME: Final = """
INSERT INTO {s}.delivery_times (name, at) VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET at = excluded.at
"""


class DeliveryTables:
    """As `server.delivery_log` describes it, for any number of servers over one database."""

    def __init__(self, journal: PostgresJournal) -> None:
        self._journal = journal

    async def claim(self, receiver: str, id: str, by: str, *, until: float, now: float) -> float | None:
        values = {"receiver": receiver, "id": id, "by": by, "until": until, "now": now}
        return await self._journal.do(partial(_claim, values=values))

    async def note(self, receiver: str, id: str, *, now: float) -> None:
        await self._run(NOTE, receiver, id, now)

    async def release(self, by: str) -> None:
        await self._run(RELEASE, by)

    async def forget(self, *, before: float) -> None:
        await self._run(FORGET, before)

    async def time(self, name: str, otherwise: float) -> float:
        return await self._journal.do(partial(_time, name=name, otherwise=otherwise))

    async def set_time(self, name: str, at: float) -> None:
        await self._run(SET_TIME, name, at)

    async def close(self) -> None:
        """The journal is somebody else's to close."""

    async def _run(self, statement: str, *values: object) -> None:
        await self._journal.do(lambda at: at.session.run(statement, values))


def _claim(at: Context, values: dict[str, Any]) -> float | None:
    at.session.run(CLAIM, values)
    row = at.session.row(STANDING, values)
    if row is None or row[2] is not None:
        return None
    return 0.0 if row[0] == values["by"] else float(row[1])


def _time(at: Context, name: str, otherwise: float) -> float:
    at.session.run(FIRST_TIME, (name, otherwise))
    row = at.session.row(TIME, (name,))
    return otherwise if row is None else float(row[0])
