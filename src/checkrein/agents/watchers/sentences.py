"""Sentences of a stream, as soon as they are over, and what is left of them to compare.

A sentence ends with its punctuation and a space, with a line break, or after `LONGEST` characters: a text without full
stops is looked at too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

LONGEST: Final = 400

FEWEST_WORDS: Final = 3
"""With fewer words of its own than this a sentence may well be said again: "Let me look at the next one."."""

_END: Final = re.compile(r"(?<=[.!?…:])\s|\n|(?<=[。！？])")
_TOKEN: Final = re.compile(r"[㐀-鿿぀-ヿ]|[^\W㐀-鿿぀-ヿ]+|[^\w\s]")
_FULL_STOP: Final = re.compile(r"""[.!?…。！？][\s"'*_)”’»]*\Z""")
_SYMBOL: Final = re.compile(r"[^\w\s.,!?'’…–—。、，！？-]|_|[.,](?=\w)")
_CODE: Final = 0.1
"""With more symbols than this it is not prose."""

# fmt: off
_FILLER_WORDS: Final = """
    a about above actually after again all alright also alternatively although am an and any are as at back be because
    been before being better both but by can come could d did do does doesn doing don done each either else even ever
    every few for from further get give go going gonna good had has have having he her here hers him his hmm how
    however i if in instead into is isn it its itself just keep know let like ll look m make maybe me might more most
    much must my need needs next no nope not now of off oh ok okay on once one only or original other our out over own
    perhaps please probably quite rather re really right same say see shall she should since so some still such
    sure take than that the their them then there these they thing think this those though thought through time to
    too try under until up us use very ve wait want was way we well were what when where whether which while who whom
    why will with would yeah yes yet you your
"""
_FILLERS: Final = frozenset(_FILLER_WORDS.split())
"""Words that come and go while a thought stays the same."""

_REVERSALS: Final = re.compile(
    r"""\W*(?:(?:but|hmm|ok|okay|oh|and|so|well)\b\W*)*
    (?:wait|actually|no(?=\s?[,.;:!—–-])|hmm|on\ second\ thoughts?|then\ again|scratch\ that|alternatively|instead
    |let\ me\ (?:reconsider|rethink)|(?:going|go)\ back\ to|back\ to|let's\ go\ back|i\ changed\ my\ mind
    |never\ ?mind|hold\ on)\b""",
    re.IGNORECASE | re.VERBOSE,
)
# fmt: on


class Sentence(msgspec.Struct, frozen=True):
    """A sentence, and where it ended."""

    end: int
    tokens: tuple[str, ...]
    """Its words and its punctuation; every ideograph is a word."""
    own: frozenset[str]
    """The words that carry what it says."""
    letters: int
    code: bool
    """Inside a code block, or with so many symbols that it is a table, code or data."""
    whole: bool
    """It ended like a sentence, not like a line."""
    turns_back: bool
    """It takes back what was said before: "Actually, …"."""

    @property
    def says(self) -> frozenset[str] | None:
        """What it says, the same for two sentences that say the same. None if it says too little to tell."""
        return self.own if self.whole and not self.code and len(self.own) >= FEWEST_WORDS else None


class Sentences:
    """Cuts a stream into sentences. `rest` is the one that has begun and is not over."""

    def __init__(self) -> None:
        self._open = ""
        self._end = 0
        self._in_code_block = False

    def read(self, text: str) -> Iterator[Sentence]:
        seen = len(self._open)
        self._open += text
        while (length := self._ends(seen)) is not None:
            piece, self._open = self._open[:length], self._open[length:]
            seen = 0
            self._end += length
            yield self._sentence(piece)

    def rest(self) -> Sentence:
        piece, self._open = self._open, ""
        self._end += len(piece)
        return self._sentence(piece)

    def _ends(self, seen: int) -> int | None:
        """How long the sentence is that comes first, if it is over. None of the first `seen` characters ended it."""
        found = _END.search(self._open, seen)
        if found and found.end() <= LONGEST:
            return found.end()
        if len(self._open) < LONGEST:
            return None
        space = self._open.rfind(" ", 1, LONGEST)
        return LONGEST if space < 0 else space

    def _sentence(self, piece: str) -> Sentence:
        if piece.lstrip().startswith("```"):
            self._in_code_block = not self._in_code_block
        tokens = tuple(_TOKEN.findall(piece.lower()))
        words = frozenset(filter(str.isalnum, tokens))
        return Sentence(
            end=self._end,
            tokens=tokens,
            own=words - _FILLERS,
            letters=sum(map(str.isalpha, piece)),
            code=self._in_code_block or len(_SYMBOL.findall(piece)) > _CODE * len(piece),
            whole=_FULL_STOP.search(piece) is not None,
            turns_back=_REVERSALS.match(piece) is not None,
        )
