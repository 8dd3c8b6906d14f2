"""Text inside text: base64, hexadecimal and character codes, decoded as they stream.

Every decoder reads everything, because nothing says where an encoded part begins, and turns ordinary prose into rubbish
that matches nothing. It calls `reset` on its reader where no text can be, so that rubbish is cheap.

One spelling for what reads the same: letters without case, accents, look-alikes, digits for letters and spacing.

`fold` and `Reading` do the same to a whole text and to a stream. What is left is a row of plain letters, and two texts
that a person would read alike give the same row. It does not have to be pretty, only the same for both: `l` becomes
`i`, because somewhere a `1` stands for either.

Ideographs count for three letters and kana for two, so that lengths mean about the same in every script.
"""

from __future__ import annotations

import codecs
import unicodedata
from collections.abc import Callable, Sequence
from typing import Final, Protocol


class Reader(Protocol):
    """Where decoded text goes."""

    def read(self, char: str) -> None: ...

    def reset(self) -> None:
        """What follows has nothing to do with what came before."""
        ...


class Bytes:
    """UTF-8, a few bytes at a time."""

    __slots__ = ("_decoder", "_pending", "reader")

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pending = False

    def read(self, data: bytes) -> None:
        if data.isascii() and not self._pending:
            text = data.decode("ascii")
        else:
            text = self._decoder.decode(data)
            self._pending = bool(self._decoder.getstate()[0])
        for char in text:
            if char == "\ufffd":
                self.reader.reset()
            else:
                self.reader.read(char)

    def reset(self) -> None:
        if self._pending:
            self._decoder.reset()
            self._pending = False
        self.reader.reset()


_SIX: Final = {
    char: at
    for alphabet in ("+/", "-_")
    for at, char in enumerate("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789" + alphabet)
}


class Base64:
    """Base64 in either alphabet, with or without padding, however it is broken into lines or groups.

    A byte of it may begin at any of four characters, so four decodings are read side by side. Where all that is looked
    for is `ascii`, most rubbish is recognised without decoding it.
    """

    __slots__ = ("_bits", "_decodings", "_foreign", "_phase", "_reading")

    def __init__(self, readers: Sequence[Reader], *, ascii: bool) -> None:
        self._decodings = tuple(Bytes(reader) for reader in readers)
        self._foreign = 0x808080 if ascii else 0
        self._reading = [False] * 4
        self._bits = 0
        self._phase = 0

    def read(self, char: str) -> None:
        six = _SIX.get(char)
        if six is None:
            return
        self._bits = bits = (self._bits << 6 | six) & 0xFFFFFF
        self._phase = phase = (self._phase + 1) & 3
        if not bits & self._foreign:
            self._reading[phase] = True
            self._decodings[phase].read(bits.to_bytes(3, "big"))
        elif self._reading[phase]:
            self._reading[phase] = False
            self._decodings[phase].reset()


class Hex:
    """Pairs of hexadecimal digits, with anything between them but letters and digits.

    Also as `0x59`, `\\x59` and `%59`, and the four digits of `\\u0059`.
    """

    __slots__ = ("_bytes", "_digits", "_in_word", "_reading", "_size")

    def __init__(self, reader: Reader) -> None:
        self._bytes = Bytes(reader)
        self._digits = ""
        self._size = 2
        self._in_word = False
        """In a word that is not hexadecimal: the rest of it is not read."""
        self._reading = False

    def read(self, char: str) -> None:
        if char in _HEX:
            if not self._in_word:
                self._digits += char
                if len(self._digits) == self._size:
                    self._emit()
        elif not char.isalnum():
            self._in_word = False
            self._digits = ""
            self._size = 2
        elif char in _PREFIX and self._digits in _PREFIXED and not self._in_word:
            self._digits = ""
            self._size = _PREFIX[char]
        else:
            self._in_word = True
            self._digits = ""
            if self._reading:
                self._bytes.reset()
                self._reading = False

    def _emit(self) -> None:
        if self._size == 2:
            self._bytes.read(bytes.fromhex(self._digits))
        else:
            self._bytes.reader.read(chr(int(self._digits, 16)))
        self._digits = ""
        self._reading = True


_HEX: Final = frozenset("0123456789abcdefABCDEF")
_PREFIX: Final = {"x": 2, "X": 2, "u": 4}
_PREFIXED: Final = frozenset(("", "0"))


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
