"""The keys to a store's runs: tokens, sessions of browsers and one-time codes, in a small SQLite file of their own.

Only hashes are kept. Whoever reads the file learns who has keys, not the keys. Every look-up asks the file, so that
what another process revokes is revoked at once; a read takes some 10 µs and waits for no writer.

The file lies in a folder `NAME.access` beside the journal `NAME`: the folder is 0700, the file 0600, and neither is
used when it is open to others.

Secrets that are handed out once and kept only as hashes.

Each has 256 bits of chance, so a plain SHA-256 is enough: there is nothing to guess and no word to try. The prefix
tells a person, or a scanner of logs, what they have found.

The server's own token: whoever started the server is its first operator.

It is given, or is made once and kept in a 0600 file beside the keys, so that it outlives the server.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, Required, TypedDict, Unpack

import msgspec

from checkrein.errors import StoreNotOurs, StoreUnavailable, WrongInput
from checkrein.journal.address import SQLITE, file_of, shown
from checkrein.server.auth.principals import Principal, Role
from checkrein.server.auth.private_files import make_private_file, make_private_folder, read_private, write_private

_log = logging.getLogger(__name__)

TOKEN: Final = "ckr_"
"""Lets its bearer in until it expires or is revoked."""
SESSION: Final = "cks_"
"""The same, in a browser's cookie."""
CODE: Final = "ckc_"
"""Good for one session, once, for minutes."""


def new_secret(prefix: str) -> str:
    return prefix + secrets.token_urlsafe(32)


def digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def is_equal(one: bytes, other: bytes) -> bool:
    """Compares in a time that does not tell where they differ."""
    return hmac.compare_digest(one, other)


SESSION_SECONDS: Final = 7 * 86400.0
CODE_SECONDS: Final = 300.0
USED_SECONDS: Final = 600.0
"""How coarse *last used* is: a look-up writes at most once in this time."""
TOLD_SECONDS: Final = 86400.0
"""For how long pages of an origin may still read that their token has expired."""
KEEP_SECONDS: Final = 30 * 86400.0
"""For how long a token that is no longer good stays in the list."""
FILE: Final = "keys.db"

_APPLICATION: Final = 0x434B5259
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS tokens (
    id TEXT PRIMARY KEY, hash BLOB NOT NULL UNIQUE, name TEXT NOT NULL, role TEXT NOT NULL, owner TEXT NOT NULL,
    run TEXT, origins TEXT NOT NULL, created_at REAL NOT NULL, created_by TEXT NOT NULL, expires_at REAL,
    used_at REAL, revoked_at REAL, parent BLOB
) STRICT;
CREATE TABLE IF NOT EXISTS sessions (
    hash BLOB PRIMARY KEY, token BLOB NOT NULL, created_at REAL NOT NULL, expires_at REAL NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS codes (hash BLOB PRIMARY KEY, token BLOB NOT NULL, expires_at REAL NOT NULL) STRICT;
"""
_COLUMNS: Final = "id, name, role, owner, run, origins, created_at, created_by, expires_at, used_at, revoked_at"


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a token. The token itself is known to its bearer only."""

    id: str
    name: str
    role: Role
    owner: str
    run: str | None
    origins: tuple[str, ...]
    created_at: float
    created_by: str
    expires_at: float | None
    used_at: float | None
    """Within ten minutes; None when never."""
    revoked_at: float | None

    def is_good(self, now: float) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


class TokenFields(TypedDict, total=False):
    """What a token is made from."""

    role: Required[Role]
    name: str
    owner: str
    run: str | None
    origins: tuple[str, ...]
    expires_at: float | None
    created_by: str


def new_token(now: float, **fields: Unpack[TokenFields]) -> tuple[Token, str]:
    """What is to be kept of a token that is made now, and its secret."""
    secret = new_secret(TOKEN)
    role, owner = fields["role"], fields.get("owner", "")
    token = Token(
        id=f"t-{digest(secret).hex()[:12]}",
        name=fields.get("name") or owner or role.value,
        role=role,
        owner=owner,
        run=fields.get("run"),
        origins=fields.get("origins", ()),
        created_at=now,
        created_by=fields.get("created_by", ""),
        expires_at=fields.get("expires_at"),
        used_at=None,
        revoked_at=None,
    )
    return token, secret


def bearer(token: Token, key: bytes) -> Principal:
    """Whoever bears a token that is good, and came in with the token or session of this hash."""
    return Principal(
        name=token.name,
        role=token.role,
        owner=token.owner,
        run=token.run,
        origins=token.origins,
        expires_at=token.expires_at,
        key=key.hex(),
    )


def access_folder(store: str) -> Path:
    """Where the keys to a store are kept that is a file, and whatever else a server over any store keeps for itself."""
    path = store.removeprefix(SQLITE)
    return Path(f"{path}.access") if path != store and path else Path(".checkrein/access")


class Keys:
    """Every key to one store. May be used from any thread, and by several processes at once."""

    def __init__(self, folder: Path | None = None, *, now: Callable[[], float] = time.time) -> None:
        """Open the keys in `folder`, which is made where there is none; without a folder they live in memory only.

        Raises `WrongInput` where the folder or the file is open to other users.
        """
        self.now = now
        self._lock = threading.Lock()
        self._master: tuple[bytes, Principal] | None = None
        self._path = None if folder is None else folder / FILE
        if folder is not None and self._path is not None:
            make_private_folder(folder)
            make_private_file(self._path)
        with _said(self._path):
            self._db = self._connect()
            self._prepare()

    def close(self) -> None:
        self._db.close()

    # -- asking

    def trust(self, secret: str, principal: Principal) -> None:
        """Let the bearer of `secret` in as `principal`. It is known to this process only, and needs no file."""
        hashed = digest(secret)
        self._master = hashed, msgspec.structs.replace(principal, key=hashed.hex())

    def find(self, token: str) -> Principal | None:
        """Whoever bears this token now; None for one that is unknown, expired or revoked, and for a session."""
        return self._of_token(digest(token), is_use=True)

    def find_session(self, session: str) -> Principal | None:
        """Whoever has this session now; None also where the token it was opened with has ended since."""
        return self._of_session(digest(session))

    def is_valid(self, key: str) -> bool:
        """Whether what `Principal.key` names would still be found."""
        hashed = bytes.fromhex(key)
        return (self._of_token(hashed) or self._of_session(hashed)) is not None

    def tokens(self) -> list[Token]:
        """Every token that is kept, the newest first."""
        with _said(self._path):
            rows = self._db.execute(f"SELECT {_COLUMNS} FROM tokens ORDER BY created_at DESC, id").fetchall()
        return [_token(row) for row in rows]

    def allows_origin(self, origin: str) -> bool:
        """Whether some token may be used by pages of this origin, or lately might: they are told that it ended."""
        with _said(self._path):
            found = self._db.execute(
                "SELECT 1 FROM tokens, json_each(tokens.origins) AS one WHERE one.value = ? AND revoked_at IS NULL"
                " AND (expires_at IS NULL OR expires_at > ?) LIMIT 1",
                (origin, self.now() - TOLD_SECONDS),
            ).fetchone()
        return found is not None

    # -- tokens

    def create(self, *, parent: str = "", **fields: Unpack[TokenFields]) -> tuple[Token, str]:
        """A new token, and the secret that is its only copy. On return it is kept durably.

        `parent` is the `Principal.key` of whoever gives it out: it ends with the token that they came in with.
        """
        token, secret = new_token(self.now(), **fields)
        origins = msgspec.json.encode(token.origins).decode()
        row = msgspec.structs.asdict(token) | {"hash": digest(secret), "origins": origins}
        with self._writing() as db:
            self._sweep(db)
            row["parent"] = _token_behind(db, bytes.fromhex(parent)) if parent else None
            names = ", ".join(row)
            db.execute(f"INSERT INTO tokens ({names}) VALUES ({', '.join(f':{name}' for name in row)})", row)
        return token, secret

    def revoke(self, token_id: str) -> Token | None:
        """End a token, with every session that was opened and every token that was given out with it.

        None when there is no such token.
        """
        with self._writing() as db:
            db.execute("UPDATE tokens SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL", (self.now(), token_id))
            row = db.execute(f"SELECT {_COLUMNS} FROM tokens WHERE id = ?", (token_id,)).fetchone()
        return _token(row) if row else None

    # -- sessions and codes

    def new_code(self, secret: str, *, seconds: float = CODE_SECONDS) -> str:
        """A code that opens one session for the bearer of `secret`, once, within `seconds`."""
        code = new_secret(CODE)
        with self._writing() as db:
            self._sweep(db)
            db.execute("INSERT INTO codes VALUES (?, ?, ?)", (digest(code), digest(secret), self.now() + seconds))
        return code

    def redeem(self, code: str) -> tuple[str, float] | None:
        """A session for a one-time code, and when it ends; None for a code that is unknown, expired or used.

        Of two that redeem the same code at the same time, one gets a session. A wrong code writes nothing.
        """
        hashed = digest(code)
        with _said(self._path):
            found = self._db.execute("SELECT hash FROM codes WHERE hash = ?", (hashed,)).fetchone()
        if found is None or not is_equal(found[0], hashed):
            return None
        with self._writing() as db:
            row = db.execute("DELETE FROM codes WHERE hash = ? RETURNING token, expires_at", (hashed,)).fetchone()
            if row is None or row[1] <= self.now():
                return None
            return self._begin(db, row[0])

    def begin_session(self, secret: str) -> tuple[str, float] | None:
        """A new session for the bearer of a token, and when it ends; None for a token that lets nobody in."""
        hashed = digest(secret)
        principal = self._of_token(hashed)
        if principal is None or not opens_sessions(principal):
            return None
        with self._writing() as db:
            return self._begin(db, hashed)

    def end_session(self, session: str) -> None:
        with self._writing() as db:
            db.execute("DELETE FROM sessions WHERE hash = ?", (digest(session),))

    def _begin(self, db: sqlite3.Connection, token: bytes) -> tuple[str, float] | None:
        principal = self._of_token(token)
        if principal is None or not opens_sessions(principal):
            return None
        now = self.now()
        ends = min(now + SESSION_SECONDS, principal.expires_at or float("inf"))
        session = new_secret(SESSION)  # always a new one: whatever name the browser came with is not taken over
        db.execute("INSERT INTO sessions VALUES (?, ?, ?, ?)", (digest(session), token, now, ends))
        return session, ends

    # -- inside

    def _of_token(self, hashed: bytes, *, is_use: bool = False) -> Principal | None:
        # First, and without the file: with a full or broken disk the server's own token still stops runs.
        if self._master is not None and is_equal(self._master[0], hashed):
            return self._master[1]
        with _said(self._path):
            row = self._db.execute(f"SELECT hash, parent, {_COLUMNS} FROM tokens WHERE hash = ?", (hashed,)).fetchone()
        if row is None or not is_equal(row[0], hashed):
            return None
        # A token that was given out is never one that gives out others: this goes up one step.
        if row[1] is not None and self._of_token(row[1]) is None:
            return None
        return self._bearer(_token(row[2:]), hashed, is_use)

    def _of_session(self, hashed: bytes) -> Principal | None:
        with _said(self._path):
            row = self._db.execute("SELECT hash, token, expires_at FROM sessions WHERE hash = ?", (hashed,)).fetchone()
        if row is None or not is_equal(row[0], hashed) or row[2] <= self.now():
            return None
        principal = self._of_token(row[1], is_use=True)
        if principal is None or not opens_sessions(principal):
            return None
        return msgspec.structs.replace(principal, key=hashed.hex(), expires_at=row[2])

    def _bearer(self, token: Token, hashed: bytes, is_use: bool) -> Principal | None:
        now = self.now()
        if not token.is_good(now):
            return None
        if is_use and (token.used_at is None or not 0 <= now - token.used_at < USED_SECONDS):
            self._note_use(token.id, now)
        return bearer(token, hashed)

    def _note_use(self, token_id: str, now: float) -> None:
        """Never waits and never fails: that somebody may come in does not depend on writing it down."""
        try:
            with self._writing(timeout=0.0, is_durable=False) as db:
                db.execute("UPDATE tokens SET used_at = ? WHERE id = ?", (now, token_id))
        except StoreUnavailable as error:
            _log.debug("the use of token %s was not noted: %s", token_id, error)

    def _sweep(self, db: sqlite3.Connection) -> None:
        now = self.now()
        db.execute("DELETE FROM codes WHERE expires_at <= ?", (now,))
        db.execute("DELETE FROM sessions WHERE expires_at <= ?", (now,))
        db.execute(
            "DELETE FROM tokens WHERE min(ifnull(expires_at, 9e15), ifnull(revoked_at, 9e15)) <= ?",
            (now - KEEP_SECONDS,),
        )

    def _connect(self, timeout: float = 5.0) -> sqlite3.Connection:
        target = ":memory:" if self._path is None else f"{self._path.absolute().as_uri()}?mode=rw"
        return sqlite3.connect(target, uri=True, timeout=timeout, isolation_level=None, check_same_thread=False)

    def _prepare(self) -> None:
        (application,) = self._db.execute("PRAGMA application_id").fetchone()
        (tables,) = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if application != _APPLICATION and tables:
            raise StoreNotOurs(f"{self._path} is not a file of keys; it was left as it is. Move it away.")
        self._db.execute(f"PRAGMA application_id = {_APPLICATION}")
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.executescript(_SCHEMA)
        if "parent" not in {row[1] for row in self._db.execute("PRAGMA table_info(tokens)")}:
            try:
                self._db.execute("ALTER TABLE tokens ADD COLUMN parent BLOB")
            except sqlite3.OperationalError as error:
                if "duplicate column" not in str(error):  # another process was faster
                    raise

    @contextmanager
    def _writing(self, *, timeout: float = 5.0, is_durable: bool = True) -> Iterator[sqlite3.Connection]:
        """One transaction, on a connection of its own, so that look-ups go on meanwhile."""
        with _said(self._path), self._lock:
            if self._path is None:
                with _transaction(self._db):
                    yield self._db
                return
            with closing(self._connect(timeout)) as db:
                db.execute(f"PRAGMA synchronous = {'FULL' if is_durable else 'OFF'}")
                with _transaction(db):
                    yield db


def opens_sessions(principal: Principal) -> bool:
    """Whether this token may be exchanged for a browser's session: not one for a single run, for other pages, or with
    rights of its own."""
    return principal.run is None and not principal.origins and principal.rights is None


def _token_behind(db: sqlite3.Connection, hashed: bytes) -> bytes:
    """The token that a session was opened with; the token itself, where it is one."""
    row = db.execute("SELECT token FROM sessions WHERE hash = ?", (hashed,)).fetchone()
    return bytes(row[0]) if row else hashed


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


@contextmanager
def _said(path: Path | None) -> Iterator[None]:
    """What SQLite complains about, as a sentence."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise StoreUnavailable(f"The keys of this server cannot be used just now: {error}.", path=path) from error


def _token(row: Any) -> Token:
    id_, name, role, owner, run, origins, created_at, created_by, expires_at, used_at, revoked_at = row
    return Token(
        id=id_,
        name=name,
        role=Role(role),
        owner=owner,
        run=run,
        origins=tuple(msgspec.json.decode(origins)),
        created_at=created_at,
        created_by=created_by,
        expires_at=expires_at,
        used_at=used_at,
        revoked_at=revoked_at,
    )


VARIABLE: Final = "CHECKREIN_TOKEN"
TOKEN_FILE: Final = "server-token"
LONGEST: Final = 4096
SHORTEST: Final = 32
"""Characters. A token that somebody thought up can be guessed; one this long was hopefully drawn."""

DRAW: Final = f"`python -c 'import secrets; print(\"{TOKEN}\" + secrets.token_urlsafe(32))'`"
"""How a token is drawn. By its prefix it is known for a secret wherever it is found."""

OPERATOR: Final = Principal(name="operator", role=Role.OPERATOR)


def server_token(store: str, file: Path | None = None, environment: Mapping[str, str] = os.environ) -> str:
    """The token of the servers over a store: from `file`, from the environment, or made and kept beside a store that is
    a file. All servers over another store have the same one, so it is given to each of them.

    Raises `WrongInput` for one that is too short, that was not given, or in a file that others may read.
    """
    if file is not None:
        return _checked(_given_in(file), str(file))
    if given := environment.get(VARIABLE, ""):
        return _checked(given, VARIABLE)
    if file_of(store) is None:
        raise WrongInput(
            f"Servers over {shown(store)} need one token for all of them: set {VARIABLE}, or name its file with "
            f"--token-file. Draw one with {DRAW}.",
            code="token_missing",
        )
    folder = access_folder(store)
    make_private_folder(folder)
    path = folder / TOKEN_FILE
    kept = read_private(path)
    if kept is None:
        write_private(path, f"{new_secret(TOKEN)}\n")
        kept = read_private(path) or ""
    return _checked(kept.strip(), str(path))


def _given_in(file: Path) -> str:
    """Unlike a file of our own it may be a link, and belong to a group: that is how secrets are mounted."""
    try:
        with file.open() as opened:
            if os.fstat(opened.fileno()).st_mode & 0o007:
                raise WrongInput(
                    f"{file} is open to every user of this machine, and it holds what lets people stop runs. Close it "
                    f"with `chmod o= {file}`, and have a new token drawn if somebody may have read it.",
                    code="not_private",
                )
            return opened.read(LONGEST).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise WrongInput(f"The token cannot be read from {file}: {error}.", code="token_missing") from None


def _checked(token: str, where: str) -> str:
    if len(token) < SHORTEST or not token.isascii() or not token.isprintable() or " " in token:
        raise WrongInput(
            f"The token in {where} must be {SHORTEST} or more characters of ASCII without spaces; draw one with "
            f"{DRAW}, or leave it out to have one made.",
            code="weak_token",
        )
    return token
