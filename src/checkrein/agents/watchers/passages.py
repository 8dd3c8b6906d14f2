"""What `Confession` looks for: every run of `GRAM` letters of some instructions, in several disguises.

A disguise that turns letters into letters needs no decoder: the instructions are disguised in the same way, once, and
the output is compared with that too. It costs memory per agent, and nothing per character.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from typing import Final, NamedTuple

from checkrein.agents.watchers.folding import fold
from checkrein.agents.watchers.phrases import COMMON

GRAM: Final = 12
"""So many letters in a row, equal to the instructions, wake the watcher: about two or three words."""

QUOTE: Final = 20
"""So many are a quote, and count. Fewer are words that the two happen to share."""

ALLOWANCE: Final = 64
"""So many letters of the instructions, in quotes, are enough. With their spaces they are fewer than 80 characters."""

FEWEST: Final = 32
"""Instructions with fewer letters of their own than this cannot be told from ordinary talk."""

_OWN_SHARE: Final = 0.75
"""Of short instructions, so much is enough."""

_VOWELS: Final = re.compile("[aeiou]", re.IGNORECASE)


class Passages(NamedTuple):
    """The letters to look for. `places` has the place of each gram; a run of letters has consecutive places."""

    places: dict[str, int]
    starts: tuple[tuple[int, str, float], ...]
    """Where each disguise begins: the first place, its name, and how many letters of plain text a letter is worth."""
    allowance: float
    ascii: bool
    """All of it is ASCII. Then an encoded byte that is not may be skipped without looking."""

    def disguise(self, place: int) -> tuple[str, float]:
        """The name of the disguise at a place, and what a letter of it is worth."""
        return next((name, worth) for start, name, worth in reversed(self.starts) if start <= place)


def _reversed_order(text: str) -> str:
    return " ".join(reversed(text.split()))


def _reversed_words(text: str) -> str:
    return " ".join(word[::-1] for word in text.split())


_ALL_DIGITS: Final = re.compile(r"\b[aeiost]+\b", re.IGNORECASE)
"""Words that are nothing but a number when digits stand for letters, and numbers are not read."""

_TURNED: Final = str.maketrans("bdnpquBDNPQU", "qpudbnqpudbn")
"""Letters that are other letters when they stand on their head. The rest turn into characters that fold back."""

DISGUISES: Final[dict[str, Callable[[str], str]]] = {
    "plain": lambda text: text,
    "backwards": lambda text: text[::-1],
    "backwards word by word": _reversed_words,
    "words in reverse order": _reversed_order,
    "upside down": lambda text: text.translate(_TURNED)[::-1],
    "rot13": lambda text: codecs.encode(text, "rot13"),
    "digits for letters": lambda text: _ALL_DIGITS.sub("", text),
    "without vowels": lambda text: _VOWELS.sub("", text),
}


def _grams(letters: str) -> Iterator[str]:
    return (letters[at : at + GRAM] for at in range(len(letters) - GRAM + 1))


@lru_cache(maxsize=32)
def passages(instructions: str, quotable: tuple[str, ...] = ()) -> Passages:
    """What to look for in the output of an agent with these instructions, which may quote `quotable` as it likes.

    Kept for the agents used last, because every model call needs it again.
    """
    plain = fold(instructions)
    own = len(plain) - _shared(plain, "plain", quotable).count(1)
    if own < FEWEST:
        return Passages({}, (), 0, instructions.isascii())
    places: dict[str, int] = {}
    starts = []
    start = 0
    for name, disguise in DISGUISES.items():
        letters = fold(disguise(instructions))
        starts.append((start, name, len(plain) / len(letters) if letters else 1.0))
        shared = _shared(letters, name, quotable)
        for at, gram in enumerate(_grams(letters)):
            if not all(shared[at : at + GRAM]):
                places.setdefault(gram, start + at)
        start += len(letters)
    return Passages(places, tuple(starts), min(ALLOWANCE, _OWN_SHARE * own), instructions.isascii())


def _shared(letters: str, disguise: str, quotable: tuple[str, ...]) -> bytearray:
    """For each letter 1 if it stands in a phrase that anybody uses, or that may be quoted."""
    known = _anybodys(disguise) | {gram for phrase in quotable for gram in _grams(fold(DISGUISES[disguise](phrase)))}
    shared = bytearray(len(letters))
    for at, gram in enumerate(_grams(letters)):
        if gram in known:
            shared[at : at + GRAM] = b"\1" * GRAM
    return shared


@cache
def _anybodys(disguise: str) -> frozenset[str]:
    return frozenset(gram for phrase in COMMON for gram in _grams(fold(DISGUISES[disguise](phrase))))
