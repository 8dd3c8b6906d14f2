"""Streamed text put together: whatever order its pieces come in, each character is handed on once and in its place.

Pieces come from whoever drives the run, the moment they stream, and from the journal, a little later; often from both.
"""

from __future__ import annotations

from checkrein.journal.contract import Chunk


class Texts:
    """The texts of one run that are still being written."""

    def __init__(self) -> None:
        self._given: dict[str, int] = {}
        """How much of each text was handed on."""
        self._early: dict[str, list[Chunk]] = {}
        """Pieces that wait for what lies before them."""

    def fresh(self, chunk: Chunk) -> list[Chunk]:
        """What is new in a piece, and in those that have waited for it."""
        stream, fresh = chunk.call, list[Chunk]()
        for piece in sorted([*self._early.pop(stream, ()), chunk], key=lambda piece: piece.offset):
            given = self._given.get(stream, 0)
            if piece.offset > given:
                self._early.setdefault(stream, []).append(piece)
            elif text := piece.text[given - piece.offset :]:
                self._given[stream] = given + len(text)
                fresh.append(Chunk(stream, given, text))
        return fresh

    def rest(self, stream: str, told: str) -> list[Chunk]:
        """The text is over, and this is all of it: what was not handed on yet."""
        self._early.pop(stream, None)
        given = self._given.get(stream, 0)
        self._given[stream] = max(given, len(told))
        return [Chunk(stream, given, told[given:])] if len(told) > given else []

    def has_gap(self, stream: str) -> bool:
        return stream in self._early
