"""What a server asks about keys, wherever they are kept: in a file beside the store, or in the store itself.

A server over a file asks the file each time: that takes some 10 µs. Every other store is asked without holding up the
event loop, and what it says is remembered for a moment (`postgres_keys`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol, Unpack

from anyio import to_thread

from checkrein.errors import MisuseError
from checkrein.journal import driver_needed
from checkrein.journal.address import file_of, is_postgres, shown
from checkrein.journal.base import Journal
from checkrein.server.auth.principals import Principal
from checkrein.server.auth.token_store import Keys, Token, TokenFields, access_folder


class KeyStore(Protocol):
    """Every key to one store. All of it may raise `StoreUnavailable`, but for the server's own token."""

    def now(self) -> float:
        """Unix seconds, by the clock that decides when a key ends."""
        ...

    def trust(self, secret: str, principal: Principal) -> None:
        """Let the bearer of `secret` in as `principal`. It is known to this process only, and needs no store."""
        ...

    async def find(self, token: str) -> Principal | None:
        """Whoever bears this token now; None for one that is unknown, expired or revoked, and for a session."""
        ...

    async def find_session(self, session: str) -> Principal | None:
        """Whoever has this session now; None also where the token it was opened with has ended since."""
        ...

    async def valid(self, keys: Collection[str]) -> frozenset[str]:
        """Those of these keys, as `Principal.key` names them, that would still be found."""
        ...

    async def tokens(self) -> list[Token]:
        """Every token that is kept, the newest first."""
        ...

    async def allows_origin(self, origin: str) -> bool:
        """Whether some token may be used by pages of this origin, or lately might: they are told that it ended."""
        ...

    async def create(self, *, parent: str = "", **fields: Unpack[TokenFields]) -> tuple[Token, str]:
        """A new token, and the secret that is its only copy. On return it is kept durably.

        `parent` is the `Principal.key` of whoever gives it out: it ends with the token that they came in with.
        """
        ...

    async def revoke(self, token_id: str) -> Token | None:
        """End a token, with every session that was opened and every token that was given out with it.

        None when there is no such token.
        """
        ...

    async def new_code(self, secret: str) -> str:
        """A code that opens one session for the bearer of `secret`, once, within minutes."""
        ...

    async def redeem(self, code: str) -> tuple[str, float] | None:
        """A session for a one-time code, and when it ends; None for a code that is unknown, expired or used.

        Of two that redeem the same code at the same time, at whichever servers, one gets a session.
        """
        ...

    async def begin_session(self, secret: str) -> tuple[str, float] | None:
        """A new session for the bearer of a token, and when it ends; None for a token that lets nobody in."""
        ...

    async def end_session(self, session: str) -> None: ...


def key_store(store: str, journal: Callable[[], Journal]) -> KeyStore:
    """Where the keys to a store are kept: `journal` gives its journal, once that is open.

    Raises `WrongInput` for a file that others may read.
    """
    if not is_postgres(store):
        return FileKeyStore(Keys(access_folder(store) if file_of(store) is not None else None))
    with driver_needed(shown(store)):
        from checkrein.journal.postgres import PostgresJournal
        from checkrein.server.auth.postgres_keys import PostgresKeyStore

    def opened() -> PostgresJournal:
        found = journal()
        if not isinstance(found, PostgresJournal):
            raise MisuseError("The keys to a store in PostgreSQL are kept there, and this journal is another one.")
        return found

    return PostgresKeyStore(opened)


class FileKeyStore:
    """The keys in a file, or in memory. What is written waits for a disk, so a thread does it."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    def now(self) -> float:
        return self._keys.now()

    def trust(self, secret: str, principal: Principal) -> None:
        self._keys.trust(secret, principal)

    async def find(self, token: str) -> Principal | None:
        return self._keys.find(token)

    async def find_session(self, session: str) -> Principal | None:
        return self._keys.find_session(session)

    async def valid(self, keys: Collection[str]) -> frozenset[str]:
        return frozenset(key for key in keys if self._keys.is_valid(key))

    async def tokens(self) -> list[Token]:
        return await to_thread.run_sync(self._keys.tokens)

    async def allows_origin(self, origin: str) -> bool:
        return self._keys.allows_origin(origin)

    async def create(self, *, parent: str = "", **fields: Unpack[TokenFields]) -> tuple[Token, str]:
        return await to_thread.run_sync(lambda: self._keys.create(parent=parent, **fields))

    async def revoke(self, token_id: str) -> Token | None:
        return await to_thread.run_sync(self._keys.revoke, token_id)

    async def new_code(self, secret: str) -> str:
        return await to_thread.run_sync(self._keys.new_code, secret)

    async def redeem(self, code: str) -> tuple[str, float] | None:
        return await to_thread.run_sync(self._keys.redeem, code)

    async def begin_session(self, secret: str) -> tuple[str, float] | None:
        return await to_thread.run_sync(self._keys.begin_session, secret)

    async def end_session(self, session: str) -> None:
        await to_thread.run_sync(self._keys.end_session, session)
