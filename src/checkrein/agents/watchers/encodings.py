"""Text inside text: base64, hexadecimal and character codes, decoded as they stream.

Every decoder reads everything, because nothing says where an encoded part begins, and turns ordinary prose into rubbish
that matches nothing. It calls `reset` on its reader where no text can be, so that rubbish is cheap.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
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
