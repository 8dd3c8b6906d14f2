"""The text of calls, put together: whatever order its pieces come in, each character is there once and in its place.

Pieces come from whoever drives the run, the moment they stream, and from the journal, a little later; often from both.
This is the only place where pieces become a text.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from checkrein.journal.base import Chunk


class _Text:
    """One text. Its length without gaps is `length`; of that, what is in `fresh` was not taken yet."""

    __slots__ = ("early", "fresh", "is_over", "length", "old", "taken")

    def __init__(self) -> None:
        self.length = 0
        self.taken = 0
        """Invariant: `old` adds up to `taken` while it is kept, and `taken` and `fresh` to `length`."""
        self.old: list[str] = []
        self.fresh: list[str] = []
        self.early: list[tuple[int, str]] = []
        """A heap of pieces that wait for what lies before them."""
        self.is_over = False

    def add(self, offset: int, text: str) -> bool:
        if offset > self.length:
            heappush(self.early, (offset, text))
            return False
        before = self.length
        self._append(offset, text)
        while self.early and self.early[0][0] <= self.length:
            self._append(*heappop(self.early))
        return self.length > before

    def _append(self, offset: int, text: str) -> None:
        if offset < self.length:
            text = text[self.length - offset :]
        if text:
            self.fresh.append(text)
            self.length += len(text)

    def take(self) -> tuple[int, str]:
        at, piece = self.taken, "".join(self.fresh)
        self.taken = self.length
        self.fresh.clear()
        if not self.is_over:
            self.old.append(piece)
        return at, piece

    def whole(self) -> str:
        self.old = ["".join(self.old)]
        return self.old[0] + "".join(self.fresh)


class TextAssembler:
    """The texts of one run. To add a piece costs the same however long its text is."""

    def __init__(self) -> None:
        self._texts: dict[str, _Text] = {}

    def add(self, chunk: Chunk) -> bool:
        """Take in a piece; whether there is more to `take` now. What was there already, or is over, changes nothing."""
        text = self._texts.get(chunk.call)
        if text is None:
            text = self._texts[chunk.call] = _Text()
        return not text.is_over and text.add(chunk.offset, chunk.text)

    def take(self, stream: str) -> Chunk | None:
        """What has come of a text, without gaps, since it was taken last; None if nothing has."""
        text = self._texts.get(stream)
        if text is None or not text.fresh:
            return None
        return Chunk(stream, *text.take())

    def end(self, stream: str, told: str = "") -> None:
        """The text is over, and `told` is all of it as far as that is known: no piece is taken in any more.

        What was not taken yet still can be. The text itself is not kept here from now on.
        """
        text = self._texts.setdefault(stream, _Text())
        if not text.is_over:
            text._append(0, told)
            text.is_over = True
            text.old.clear()
            text.early.clear()

    def text(self, stream: str) -> str:
        """All of a text that has come without gaps, taken or not; empty once it is over."""
        text = self._texts.get(stream)
        return "" if text is None or text.is_over else text.whole()

    def length(self, stream: str) -> int:
        """How much of a text has come without gaps."""
        text = self._texts.get(stream)
        return 0 if text is None else text.length

    def has_gap(self, stream: str) -> bool:
        text = self._texts.get(stream)
        return text is not None and bool(text.early)


def joined(chunks: Iterable[Chunk]) -> list[Chunk]:
    """The same text in as few chunks as possible."""
    whole: list[Chunk] = []
    texts: list[str] = []
    call, start, end = "", 0, -1
    for chunk in chunks:
        if chunk.call != call or chunk.offset != end:
            if texts:
                whole.append(Chunk(call, start, "".join(texts)))
            call, start, texts = chunk.call, chunk.offset, []
        texts.append(chunk.text)
        end = chunk.offset + len(chunk.text)
    if texts:
        whole.append(Chunk(call, start, "".join(texts)))
    return whole
