"""Which variables of the environment hold secrets."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

LEAST: Final = 8
"""A shorter value would be found in places that have nothing to do with it."""

_ENDINGS: Final = ("_KEY", "_TOKEN", "_SECRET", "PASSWORD")
_WORD: Final = 16
"""A word has fewer letters than this."""


def in_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The secrets by the names of their variables: the values of those whose name says so, and the passwords inside
    addresses, such as that of a database."""
    found = {}
    for name, value in sorted((os.environ if environ is None else environ).items()):
        secret = value.strip() if _is_name_of_secret(name) else _password_in(value)
        if len(secret) >= LEAST and not _is_word(secret) and not _is_path(secret):
            found[name] = secret
    return found


def _is_name_of_secret(name: str) -> bool:
    upper = name.upper()
    return upper.endswith(_ENDINGS) or "API_KEY" in upper


def _password_in(value: str) -> str:
    if "://" not in value or "@" not in value:
        return ""
    try:
        return unquote(urlsplit(value.strip()).password or "")
    except ValueError:
        return ""


def _is_word(value: str) -> bool:
    """`disabled`, `postgres`: redacted wherever it stands, it would take more away than it protects."""
    return len(value) < _WORD and value.isalpha() and value in (value.lower(), value.upper(), value.title())


def _is_path(value: str) -> bool:
    """`TLS_KEY=/etc/tls/server.key` says where the key is, which a tool may have to know."""
    if not value.startswith(("/", "~", ".")):
        return False
    try:
        return os.path.exists(os.path.expanduser(value))
    except (OSError, ValueError):
        return False
