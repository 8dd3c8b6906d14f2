"""Text that is shown while a call goes on: handed on piece by piece, counted, and hashed for the record."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

Forward = Callable[[int, str], None]
"""Told each piece of text that may be shown, with its offset."""


class Shown:
    """What has been shown of one call."""

    def __init__(self, forward: Forward) -> None:
        self._forward = forward
        self._hash = hashlib.sha256()
        self._chunks = 0
        self.chars = 0

    def send(self, text: str) -> None:
        self._forward(self.chars, text)
        self._chunks += 1
        self.chars += len(text)
        self._hash.update(text.encode("utf-8", "surrogatepass"))

    def record(self) -> dict[str, Any]:
        """The fields of an `Ended` that tell of it."""
        return {
            "chunks": self._chunks,
            "chars": self.chars,
            "chunk_hash": self._hash.hexdigest() if self._chunks else "",
        }
