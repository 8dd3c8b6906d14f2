"""Secrets that are handed out once and kept only as hashes.

Each has 256 bits of chance, so a plain SHA-256 is enough: there is nothing to guess and no word to try. The prefix
tells a person, or a scanner of logs, what they have found.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Final

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
