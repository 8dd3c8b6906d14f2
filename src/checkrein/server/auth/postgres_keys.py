"""The keys in the store itself, for any number of servers over one database.

What was found is remembered for some seconds, and forgotten at once when any server, or a command line, ends a token or
a session: the database tells all of them. Where it cannot, behind a pooler that swallows notifications or while it is
away, nothing is remembered for longer than a second. Whether a key has expired is asked of the clock each time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Unpack

import msgspec

from checkrein.journal.postgres import PostgresJournal, keys
from checkrein.journal.postgres.writes.job import Context
from checkrein.server.auth.principals import Principal, Role
from checkrein.server.auth.token_store import (
    CODE,
    CODE_SECONDS,
    KEEP_SECONDS,
    SESSION,
    SESSION_SECONDS,
    TOKEN,
    TOLD_SECONDS,
    USED_SECONDS,
    Token,
    TokenFields,
    bearer,
    digest,
    is_equal,
    new_secret,
    new_token,
    opens_sessions,
)

REMEMBER_SECONDS: Final = 5.0
UNTOLD_SECONDS: Final = 1.0
"""The same, where nobody would be told what is revoked."""
KNOWN: Final = 10_000
"""How many keys and origins are remembered."""


class _Found(NamedTuple):
    """A token or a session, and the token behind it; neither for a key that there is not."""

    token: Token | None = None
    token_hash: bytes = b""
    session_ends: float | None = None
    """Of a session; None for a token."""
    parent: bytes | None = None
    parent_ends: float | None = None
    """When the token ends, or ended, that this one was given out with; None: never."""

    @property
    def is_session(self) -> bool:
        return self.session_ends is not None


class _Remembered(NamedTuple):
    value: Any
    until: float
    """By the monotonic clock."""
    turn: object


class PostgresKeyStore:
    """`journal` gives the journal of the store, which is open by the time that anything is asked."""

    def __init__(self, journal: Callable[[], PostgresJournal]) -> None:
        self._open = journal
        self._listening_to: PostgresJournal | None = None
        self._trusted: tuple[bytes, Principal] | None = None
        self._memory: dict[bytes | str, _Remembered] = {}
        self._used_at: dict[str, float] = {}
        self._turn = object()
        """Another one each time that some key was ended. What was asked for in an earlier turn is not believed."""

    @property
    def _journal(self) -> PostgresJournal:
        journal = self._open()
        if journal is not self._listening_to:
            self._listening_to = journal
            journal.listen_for_keys(self._forget)
            self._forget()
        return journal

    def now(self) -> float:
        return self._journal.now()

    def trust(self, secret: str, principal: Principal) -> None:
        hashed = digest(secret)
        self._trusted = hashed, msgspec.structs.replace(principal, key=hashed.hex())

    # -- asking

    async def find(self, token: str) -> Principal | None:
        hashed = digest(token)
        if self._is_trusted(hashed):  # first, and without the store: while that is away it still says who asks
            return self._trusted[1] if self._trusted else None
        if not token.startswith(TOKEN):
            return None
        found = (await self._find([hashed]))[hashed]
        return None if found.is_session else self._bearer(found, hashed)

    async def find_session(self, session: str) -> Principal | None:
        if not session.startswith(SESSION):
            return None
        hashed = digest(session)
        found = (await self._find([hashed]))[hashed]
        return self._bearer(found, hashed) if found.is_session else None

    async def valid(self, keys: Collection[str]) -> frozenset[str]:
        hashes = {key: bytes.fromhex(key) for key in keys}
        found = await self._find([one for one in hashes.values() if not self._is_trusted(one)])
        return frozenset(
            key for key, one in hashes.items() if self._is_trusted(one) or self._bearer(found[one], one) is not None
        )

    async def tokens(self) -> list[Token]:
        return [_token(row) for row in await self._journal.ask(keys.tokens)]

    async def allows_origin(self, origin: str) -> bool:
        if self._recall(origin):
            return True
        after, turn = self.now() - TOLD_SECONDS, self._turn
        is_allowed = await self._journal.ask(partial(keys.has_origin, origin=origin, after=after))
        if is_allowed:  # a no is not remembered: the next token that is made, wherever, may name it
            self._remember(origin, True, turn)
        return is_allowed

    # -- writing

    async def create(self, *, parent: str = "", **fields: Unpack[TokenFields]) -> tuple[Token, str]:
        token, secret = new_token(self.now(), **fields)
        row = {
            **msgspec.structs.asdict(token),
            "hash": digest(secret),
            "name": token.name.encode(),
            "owner": token.owner.encode(),
            "created_by": token.created_by.encode(),
            "role": token.role.value,
            "origins": list(token.origins),
            "parent": bytes.fromhex(parent) if parent else None,
        }

        def create(at: Context) -> None:
            self._sweep(at, token.created_at)
            keys.add_token(at, row)

        await self._journal.do(create)
        return token, secret

    async def revoke(self, token_id: str) -> Token | None:
        if "\0" in token_id:
            return None
        row = await self._journal.do(partial(keys.revoke, token=token_id, now=self.now()))
        self._forget()
        return None if row is None else _token(row)

    async def new_code(self, secret: str) -> str:
        code, now = new_secret(CODE), self.now()

        def add(at: Context) -> None:
            self._sweep(at, now)
            keys.add_code(at, digest(code), digest(secret), now + CODE_SECONDS)

        await self._journal.do(add)
        return code

    async def redeem(self, code: str) -> tuple[str, float] | None:
        return await self._begin(code=digest(code)) if code.startswith(CODE) else None

    async def begin_session(self, secret: str) -> tuple[str, float] | None:
        principal = await self.find(secret)
        if principal is None or not opens_sessions(principal):
            return None
        return await self._begin(token=digest(secret))

    async def _begin(self, *, code: bytes | None = None, token: bytes | None = None) -> tuple[str, float] | None:
        session, now = new_secret(SESSION), self.now()
        values = {
            "hash": digest(session),
            "code": code,
            "token": token,
            "now": now,
            "ends": now + SESSION_SECONDS,
            "trusted": self._trusted[0] if self._trusted else None,
        }
        ends = await self._journal.do(partial(keys.begin_session, values=values))
        return None if ends is None else (session, ends)

    async def end_session(self, session: str) -> None:
        await self._journal.do(partial(keys.end_session, hashed=digest(session)))
        self._forget()

    def _sweep(self, at: Context, now: float) -> None:
        keys.sweep(at, now, now - KEEP_SECONDS)

    # -- what is remembered

    def _forget(self) -> None:
        """From any thread. Nothing that was asked for before this is believed from now on."""
        self._turn = object()

    def _recall(self, name: bytes | str) -> Any:
        known = self._memory.get(name)
        if known is None or known.turn is not self._turn or time.monotonic() > known.until:
            return None
        return known.value

    def _remember(self, name: bytes | str, value: Any, turn: object) -> None:
        """`turn` is that of the moment before it was asked for."""
        if len(self._memory) >= KNOWN:
            self._memory.clear()
        seconds = REMEMBER_SECONDS if self._journal.is_sure_to_hear else UNTOLD_SECONDS
        self._memory[name] = _Remembered(value, time.monotonic() + seconds, turn)

    async def _find(self, hashes: Sequence[bytes]) -> dict[bytes, _Found]:
        """What is known of each key; of those that are not remembered, in one question."""
        found: dict[bytes, _Found] = {one: known for one in hashes if (known := self._recall(one)) is not None}
        asked = [one for one in hashes if one not in found]
        if asked:
            journal, turn = self._journal, self._turn
            rows = await journal.ask(partial(keys.find, hashes=asked))
            there = {row[0]: _found(row) for row in rows}
            for one in asked:
                found[one] = there.get(one, _Found())
                self._remember(one, found[one], turn)
        return found

    # -- what it means

    def _is_trusted(self, hashed: bytes) -> bool:
        return self._trusted is not None and is_equal(self._trusted[0], hashed)

    def _bearer(self, found: _Found, hashed: bytes) -> Principal | None:
        now = self.now()
        if found.is_session and self._is_trusted(found.token_hash) and self._trusted is not None:
            principal: Principal | None = self._trusted[1]
        elif found.token is None or not self._lets_in(found, found.token, now):
            principal = None
        else:
            self._note_use(found.token, found.token_hash, now)
            principal = bearer(found.token, hashed)
        if principal is None or not found.is_session:
            return principal
        if not opens_sessions(principal) or found.session_ends is None or found.session_ends <= now:
            return None
        return msgspec.structs.replace(principal, key=hashed.hex(), expires_at=found.session_ends)

    def _lets_in(self, found: _Found, token: Token, now: float) -> bool:
        if not token.is_good(now):
            return False
        if found.parent is None or self._is_trusted(found.parent):
            return True
        return found.parent_ends is None or now < found.parent_ends

    def _note_use(self, token: Token, hashed: bytes, now: float) -> None:
        """Never waits and never fails: that somebody may come in does not depend on writing it down."""
        used_at = max(token.used_at or 0.0, self._used_at.get(token.id, 0.0))
        if 0 <= now - used_at < USED_SECONDS:
            return
        if len(self._used_at) >= KNOWN:
            self._used_at.clear()
        self._used_at[token.id] = now
        self._journal.do_quietly(partial(keys.note_use, hashed=hashed, now=now))


def _found(row: Sequence[Any]) -> _Found:
    _, session_ends, token_hash, parent_found, parent_expires, parent_revoked, parent, *token = row
    ends = [at for at in (parent_expires, parent_revoked) if at is not None]
    return _Found(
        token=_token(token) if token[0] is not None else None,
        token_hash=token_hash,
        session_ends=session_ends,
        parent=parent,
        # One that is gone lets nobody in: it was swept, or was the token of a server that has another one now.
        parent_ends=min(ends, default=None) if parent_found is not None else 0.0,
    )


def _token(row: Sequence[Any]) -> Token:
    id_, name, role, owner, run, origins, created_at, created_by, expires_at, used_at, revoked_at = row
    return Token(
        id=id_,
        name=name.decode(),
        role=Role(role),
        owner=owner.decode(),
        run=run,
        origins=tuple(origins),
        created_at=created_at,
        created_by=created_by.decode(),
        expires_at=expires_at,
        used_at=used_at,
        revoked_at=revoked_at,
    )
