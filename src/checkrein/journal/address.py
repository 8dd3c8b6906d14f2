"""Addresses of stores: which kind each is, and how one is shown to people without its secret.

    memory:                                            nothing survives the process
    sqlite:///relative/path, sqlite:////absolute/path  one file; a plain path means this
    postgresql://user@host:port/database?schema=name   a schema of a database; also postgres://

Everything that prints the address of a store prints `shown(address)`.
"""

from __future__ import annotations

import os
import re
from typing import Final
from urllib.parse import parse_qsl, unquote, urlencode

from checkrein.errors import MisuseError

MEMORY: Final = "memory:"
SQLITE: Final = "sqlite:///"
POSTGRES: Final = ("postgresql://", "postgres://")

_LONGEST_NAME: Final = 200
"""In bytes: a file system allows 255, and beside the store stand files with longer names."""
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_SECRET: Final = re.compile("password|secret|token|client_key|server_key", re.IGNORECASE)


def address_of(said: str | os.PathLike[str]) -> str:
    """The address of the journal that is meant. A plain path (`orders.db`, `~/runs.db`) is one of SQLite.

    Raises `MisuseError` for what is neither a path nor an address of a known kind.
    """
    address = os.fspath(said)
    if address == MEMORY or is_postgres(address):
        return address
    path = address.removeprefix(SQLITE)
    is_path = path == address and not _SCHEME.match(address) and address.strip() and address != MEMORY.rstrip(":")
    if "\0" in address or len(os.path.basename(os.fsencode(path))) > _LONGEST_NAME:
        raise MisuseError(
            f"{address[:40]!r}… cannot be the name of a file, so it is not the address of a journal.", address=address
        )
    if is_path:
        return SQLITE + os.path.expanduser(address)
    if path == address or not path or path == ":memory:":
        raise MisuseError(
            f"{shown(address)!r} is not the address of a journal; use a path, memory:, sqlite:///relative/path, "
            "sqlite:////absolute/path or postgresql://user@host/database.",
            address=shown(address),
        )
    return address


def is_postgres(address: str) -> bool:
    return address.startswith(POSTGRES)


def file_of(address: str) -> str | None:
    """The path of the file that a journal is kept in; None where there is none."""
    address = address_of(address)
    return None if address == MEMORY or is_postgres(address) else address.removeprefix(SQLITE)


def password_of(address: str) -> str:
    """The password in an address; empty where there is none."""
    place, _, query = address.partition("?")
    who = place.partition("://")[2].rpartition("@")[0]
    return unquote(who.partition(":")[2]) or dict(parse_qsl(query)).get("password", "")


def shown(address: str) -> str:
    """The address as people may see it, in any sentence, log or page: without a password.

    An address that is written wrongly is shown too, so this does not rely on where a password should end: all before
    the last `@` is taken for it, but for the name in front of the first colon.
    """
    scheme, mark, rest = address.partition("://")
    if not mark or scheme.lower() == "sqlite":
        return address
    before, at, where = rest.rpartition("@")
    user, colon, _ = re.split("[/?]", before, maxsplit=1)[0].partition(":")
    has_password = bool(colon) or user != before
    where, question, query = where.partition("?")
    kept = [(name, "***" if _SECRET.search(name) else value) for name, value in parse_qsl(query, True)]
    who = f"{user}:***@" if has_password else f"{user}{at}"
    return f"{scheme}://{who}{where}{question and '?'}{urlencode(kept, safe='*/,:')}"
