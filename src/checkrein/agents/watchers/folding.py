"""One spelling for what reads the same: letters without case, accents, look-alikes, digits for letters and spacing.

`fold` and `Reading` do the same to a whole text and to a stream. What is left is a row of plain letters, and two texts
that a person would read alike give the same row. It does not have to be pretty, only the same for both: `l` becomes
`i`, because somewhere a `1` stands for either.

Ideographs count for three letters and kana for two, so that lengths mean about the same in every script.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import Final

DIGITS: Final = {
    "0": "o",
    "1": "i",
    "2": "z",
    "3": "e",
    "4": "a",
    "5": "s",
    "6": "g",
    "7": "t",
    "8": "b",
    "9": "g",
    "@": "a",
    "$": "s",
}
"""What a digit in the middle of a word may stand for. Digits that stand alone are dropped: they number things."""

# fmt: off
_ALIKE: Final = {
    # Cyrillic
    "а": "a", "в": "b", "с": "c", "е": "e", "ё": "e", "н": "h", "і": "i", "ї": "i", "ј": "j", "к": "k", "м": "m",
    "о": "o", "п": "n", "р": "p", "ѕ": "s", "т": "t", "у": "y", "х": "x", "ԁ": "d", "ԛ": "q", "ԝ": "w", "ѡ": "w",
    "г": "r", "һ": "h", "ӏ": "i", "ь": "b", "ѵ": "v", "ғ": "f", "ԍ": "g", "ɡ": "g", "ո": "n", "ս": "u", "ց": "g",
    # Greek
    "α": "a", "β": "b", "γ": "y", "ε": "e", "η": "n", "ι": "i", "κ": "k", "μ": "m", "ν": "v", "ο": "o", "ρ": "p",
    "σ": "o", "ς": "s", "τ": "t", "υ": "u", "χ": "x", "ω": "w", "ϲ": "c", "ϳ": "j", "ζ": "z",
    "Η": "h", "Ν": "n", "Υ": "y",
    # small capitals and other letters that have no decomposition
    "ᴀ": "a", "ʙ": "b", "ᴄ": "c", "ᴅ": "d", "ᴇ": "e", "ꜰ": "f", "ɢ": "g", "ʜ": "h", "ɪ": "i", "ᴊ": "j", "ᴋ": "k",
    "ʟ": "i", "ᴍ": "m", "ɴ": "n", "ᴏ": "o", "ᴘ": "p", "ǫ": "q", "ʀ": "r", "ꜱ": "s", "ᴛ": "t", "ᴜ": "u", "ᴠ": "v",
    "ᴡ": "w", "ʏ": "y", "ᴢ": "z", "ı": "i", "ø": "o", "đ": "d", "ħ": "h", "ŧ": "t", "ƒ": "f", "æ": "ae", "œ": "oe",
    # upside down
    "ɐ": "a", "ɔ": "c", "ǝ": "e", "ɟ": "f", "ƃ": "g", "ɥ": "h", "ᴉ": "i", "ɾ": "j", "ʞ": "k", "ꞁ": "i", "ɯ": "m",
    "ɹ": "r", "ʇ": "t", "ʌ": "v", "ʍ": "w", "ʎ": "y",
}
# fmt: on

_HEX: Final = frozenset("0123456789abcdefABCDEF")
_CACHED: Final = 4096


class _Letters(dict[str, str | None]):
    """The letters of each character: "" for what separates words, such as a comma; None for what is not even seen."""

    def __missing__(self, char: str) -> str | None:
        letters = _letters(char)
        if len(self) < _CACHED:
            self[char] = letters
        return letters


def _letters(char: str) -> str | None:
    code = ord(char)
    if 0xE0000 <= code <= 0xE007F:  # tags: an invisible copy of ASCII
        return LETTERS[chr(code - 0xE0000)]
    found = []
    seen = False
    for part in unicodedata.normalize("NFKD", char):
        category = unicodedata.category(part)
        if category in {"Mn", "Me", "Cf"}:
            continue
        seen = True
        for lower in _ALIKE.get(part, part.casefold()):
            if lower in _ALIKE:
                found.append(_ALIKE[lower])
            elif unicodedata.category(lower)[0] == "L":
                found.append(lower * _width(ord(lower)))
    return "".join(found).replace("l", "i") if seen else None


def _width(code: int) -> int:
    if 0x3041 <= code <= 0x30FF:
        return 2
    return 3 if 0x3400 <= code <= 0x9FFF or 0x20000 <= code <= 0x3FFFF else 1


LETTERS: Final = _Letters()
"""Look characters up here; the table fills itself, up to a limit."""


class Reading:
    """Folds a stream, one character at a time, and hands each letter to `letter`, each lone number to `number`."""

    __slots__ = ("_digits", "_escape", "_in_word", "_letter", "_number")

    def __init__(self, letter: Callable[[str], None], number: Callable[[str], None] | None = None) -> None:
        self._letter = letter
        self._number = number
        self._digits = ""
        self._in_word = False
        self._escape = 0
        """How many characters of an escape such as `%2C` are still to come. It is not read, it stands between words."""

    def read(self, char: str) -> None:
        if self._escape:
            self._escape -= 1
            if char in _HEX:
                return
            self._escape = 0
        letters = LETTERS[char]
        if letters:
            if self._digits:
                self._spell()
            self._in_word = True
            for letter in letters:
                self._letter(letter)
        elif char in DIGITS:
            if self._in_word:
                self._letter(DIGITS[char])
            elif len(self._digits) < 16:
                self._digits += char
        elif letters is not None:
            self.gap()
            if char == "%":
                self._escape = 2

    def gap(self) -> None:
        """A word is over."""
        self._in_word = False
        if self._digits:
            if self._number:
                self._number(self._digits)
            self._digits = ""

    def _spell(self) -> None:
        for digit in self._digits:
            self._letter(DIGITS[digit])
        self._digits = ""


def fold(text: str) -> str:
    """The letters of `text`."""
    letters: list[str] = []
    reading = Reading(letters.append)
    for char in text:
        reading.read(char)
    return "".join(letters)
