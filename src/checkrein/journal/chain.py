"""The hash chain of a run: whoever changes, drops, adds or reorders an event changes every hash after it.

hash(0) = SHA-256("checkrein run " ‖ run id)
hash(n) = SHA-256(hash(n - 1) ‖ n as 8 bytes, big endian ‖ body of event n)
"""

from __future__ import annotations

from hashlib import sha256


def genesis(run: str) -> bytes:
    """What the first event follows. It binds the chain to its run: a chain cannot be passed off as another run's."""
    return sha256(b"checkrein run " + run.encode()).digest()


def link(previous: bytes, seq: int, body: bytes) -> bytes:
    """The hash of event `seq`."""
    return sha256(previous + seq.to_bytes(8, "big") + body).digest()
