"""The tables of keys: tokens, sessions and one-time codes, by their hashes. What they are good for, nobody here knows.

Whatever takes a right away tells every process that uses the store, in the transaction that does it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from checkrein.journal.postgres.connection import Session
from checkrein.journal.postgres.writes.job import KEYS_MARK, Context

_TOKEN: Final = """
t.id, t.name, t.role, t.owner, t.run, t.origins, t.created_at, t.created_by, t.expires_at, t.used_at, t.revoked_at
"""

# -- asking

FIND: Final = f"""
SELECT a.hash, s.expires_at, coalesce(s.token, a.hash), p.hash, p.expires_at, p.revoked_at, t.parent, {_TOKEN}
FROM unnest(%s::bytea[]) AS a (hash) LEFT JOIN {{s}}.sessions s ON s.hash = a.hash
LEFT JOIN {{s}}.tokens t ON t.hash = coalesce(s.token, a.hash) LEFT JOIN {{s}}.tokens p ON p.hash = t.parent
WHERE s.hash IS NOT NULL OR t.hash IS NOT NULL
"""
LIST: Final = f"SELECT {_TOKEN} FROM {{s}}.tokens t ORDER BY t.created_at DESC, t.id"
HAS_ORIGIN: Final = """
SELECT 1 FROM {s}.tokens WHERE %s = ANY (origins) AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > %s)
LIMIT 1
"""


def find(session: Session, hashes: Sequence[bytes]) -> list[tuple[Any, ...]]:
    """Of each hash that is a session's or a token's: when the session ends, the token, and the one above that."""
    return session.rows(FIND, (list(hashes),))


def tokens(session: Session) -> list[tuple[Any, ...]]:
    """Every token, the newest first."""
    return session.rows(LIST)


def has_origin(session: Session, origin: str, after: float) -> bool:
    """Whether a token that was not revoked, and ends after this time, names this origin."""
    return session.row(HAS_ORIGIN, (origin, after)) is not None


# -- writing: each may be done twice

SWEEP: Final = """
WITH old_codes AS (DELETE FROM {s}.codes WHERE expires_at <= %(now)s),
old_sessions AS (DELETE FROM {s}.sessions WHERE expires_at <= %(now)s)
DELETE FROM {s}.tokens WHERE least(expires_at, revoked_at) <= %(kept_since)s
"""
ADD_TOKEN: Final = """
INSERT INTO {s}.tokens (id, hash, name, role, owner, run, origins, created_at, created_by, expires_at, parent)
VALUES (%(id)s, %(hash)s, %(name)s, %(role)s, %(owner)s, %(run)s, %(origins)s, %(created_at)s, %(created_by)s,
    %(expires_at)s, coalesce((SELECT token FROM {s}.sessions WHERE hash = %(parent)s), %(parent)s))
ON CONFLICT DO NOTHING
"""
REVOKE: Final = f"""
WITH t AS (
    UPDATE {{s}}.tokens SET revoked_at = coalesce(revoked_at, %s) WHERE id = %s RETURNING *
) SELECT {_TOKEN}, pg_notify(%s::text, %s::text)::text FROM t
"""
NOTE_USE: Final = "UPDATE {s}.tokens SET used_at = %s WHERE hash = %s"
ADD_CODE: Final = "INSERT INTO {s}.codes (hash, token, expires_at) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING"
BEGIN_SESSION: Final = """
WITH code AS (DELETE FROM {s}.codes WHERE hash = %(code)s RETURNING token, expires_at),
asked AS (
    SELECT token FROM code WHERE expires_at > %(now)s
    UNION ALL SELECT %(token)s::bytea WHERE %(token)s::bytea IS NOT NULL
)
INSERT INTO {s}.sessions (hash, token, created_at, expires_at)
SELECT %(hash)s, a.token, %(now)s, least(%(ends)s, t.expires_at) FROM asked a LEFT JOIN {s}.tokens t ON t.hash = a.token
WHERE a.token = %(trusted)s
    OR (t.hash IS NOT NULL AND t.revoked_at IS NULL AND coalesce(t.expires_at > %(now)s, true) AND t.run IS NULL
        AND t.origins = '{{}}')
ON CONFLICT DO NOTHING
"""
SESSION: Final = "SELECT expires_at FROM {s}.sessions WHERE hash = %s"
END_SESSION: Final = """
WITH ended AS (DELETE FROM {s}.sessions WHERE hash = %s RETURNING 1)
SELECT pg_notify(%s::text, %s::text)::text FROM ended
"""


def _note(at: Context) -> str:
    return KEYS_MARK + at.sender


def sweep(at: Context, now: float, kept_since: float) -> None:
    """Forget codes and sessions that are over, and tokens that ended before `kept_since`."""
    at.session.run(SWEEP, {"now": now, "kept_since": kept_since})


def add_token(at: Context, row: Mapping[str, Any]) -> None:
    at.session.run(ADD_TOKEN, row)


def revoke(at: Context, token: str, now: float) -> tuple[Any, ...] | None:
    """End a token, and tell everybody; None where there is none of this id."""
    row = at.session.row(REVOKE, (now, token, at.target.channel, _note(at)))
    return None if row is None else row[:-1]


def note_use(at: Context, hashed: bytes, now: float) -> None:
    at.session.run(NOTE_USE, (now, hashed))


def add_code(at: Context, hashed: bytes, token: bytes, expires_at: float) -> None:
    at.session.run(ADD_CODE, (hashed, token, expires_at))


def begin_session(at: Context, values: Mapping[str, Any]) -> float | None:
    """Open the session `hash` for a token, or for a code, which is gone then; when it ends, None where none is opened.

    It ends with the token. Only one that is good, and is for no single run and for no other pages, opens one.
    """
    # First: the answer to an earlier try may have been lost, and its code is used up.
    row = at.session.row(SESSION, (values["hash"],))
    if row is None:
        at.session.run(BEGIN_SESSION, values)
        row = at.session.row(SESSION, (values["hash"],))
    return None if row is None else float(row[0])


def end_session(at: Context, hashed: bytes) -> None:
    """End a session, and tell everybody."""
    at.session.rows(END_SESSION, (hashed, at.target.channel, _note(at)))
