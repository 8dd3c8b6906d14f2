"""The chained journal of operations: what operators did to a store, as bytes. Halts and resets leave a trace here.

A record is a JSON object. Whoever asks says what, on whose behalf, why and when by the clock of their host; the store
adds what only it knows: its own clock, whether the halt was latched before, and the user it let in. Like the events of
a run the records are chained, so whoever changes, drops, adds or reorders one changes every hash after it:

hash(0) = SHA-256("checkrein operations")
hash(n) = SHA-256(hash(n - 1) ‖ n as 8 bytes, big endian ‖ body of record n)

Standard library only: the kill switch must not wait for imports.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Final, NamedTuple
from uuid import uuid4

HALTED: Final = "halt.latched"
RESET: Final = "halt.lifted"

GENESIS: Final = sha256(b"checkrein operations").digest()


class Request(NamedTuple):
    """A halt or a reset as it is asked of a store. Asked again under the same `id` it is recorded once."""

    type: str
    scope: str
    name: str
    by: str
    reason: str
    at: float
    """By the clock of the host that asks."""
    host: str
    id: str

    def body(self) -> bytes:
        """What whoever asks says. Raises `UnicodeEncodeError` for what is no text."""
        return json.dumps(self._asdict(), ensure_ascii=False, separators=(",", ":")).encode()


def request(type: str, scope: str, name: str, *, by: str, reason: str, at: float, host: str = "") -> Request:
    return Request(type, scope, name, by, reason, at, host, uuid4().hex)


def stamped(body: bytes, *, store_at: float, was_latched: bool) -> bytes:
    """The record of a request whose store has no users of its own."""
    added = {"store_at": store_at, "was_latched": was_latched, "store_user": ""}
    return body[:-1] + b"," + json.dumps(added, separators=(",", ":")).encode()[1:]


def link(previous: bytes, seq: int, body: bytes) -> bytes:
    """The hash of record `seq`."""
    return sha256(previous + seq.to_bytes(8, "big") + body).digest()
