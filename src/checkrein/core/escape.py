"""Text from outside, made safe to print: nothing in it acts on a terminal, hides, or changes the order of what is read.

Everything that comes from a model, a tool, a goal, a reason or a name goes through here before a terminal sees it.
"""

from __future__ import annotations

import unicodedata
from typing import Final

_KEPT: Final = frozenset("\n\t")
_HIDDEN_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Control and format characters, lone surrogates, and line ends that are none to a terminal."""

_HIDDEN: Final = (
    (0x034F, 0x034F),  # joins letters, and shows nothing
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x2065, 0x2065),
    (0x2800, 0x2800),  # looks like a space and is none
    (0x3164, 0x3164),
    (0xFE00, 0xFE0D),  # variation selectors, but for the two that emoji use
    (0xFFA0, 0xFFA0),
    (0xFFF0, 0xFFF8),
    (0xFFFE, 0xFFFF),
    (0xE0000, 0xE0FFF),
)
"""Characters that show nothing although their category does not say so."""


def printable(text: str) -> str:
    """`text` with each character that acts or hides shown as an escape, such as `\\x1b`. Line ends and tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    return text.replace("\r\n", "\n").translate(_TABLE)


def one_line(text: str, longest: int | None = None) -> str:
    """The same on one line; what is longer than `longest` is cut, and says so."""
    line = " ".join(printable(text).split())
    return line if longest is None or len(line) <= longest else f"{line[: longest - 1]}…"


class _Table(dict[int, str]):
    """What each character becomes, found out when it is first seen."""

    def __missing__(self, code: int) -> str:
        shown = self[code] = _escape(code) if _acts_or_hides(code) else chr(code)
        return shown


_TABLE: Final = _Table()


def _acts_or_hides(code: int) -> bool:
    character = chr(code)
    if character in _KEPT:
        return False
    return unicodedata.category(character) in _HIDDEN_CATEGORIES or any(low <= code <= high for low, high in _HIDDEN)


def _escape(code: int) -> str:
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
