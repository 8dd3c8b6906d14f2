"""Keys that are for us, among those that are for the program: a prefix, and one letter after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

PREFIX: Final = 0x1D
"""Ctrl-], which hardly any program has a use for. Pressed twice, the program gets it."""
PREFIX_NAME: Final = "Ctrl-]"

_ENTER: Final = frozenset(b"\r\n")
_LEAVE: Final = frozenset({0x1B, 0x03, PREFIX})
_BACK: Final = frozenset({0x7F, 0x08})


class Keys:
    """Takes what is typed; gives back what is for the program, and tells `press` of each letter after the prefix.

    While a line is being typed for us, nothing is for the program.
    """

    def __init__(self, press: Callable[[str], None], told: Callable[[str], None]) -> None:
        self._press, self._told = press, told
        self._after_prefix = False
        self._line: bytearray | None = None

    @property
    def is_chosen(self) -> bool:
        """The prefix was pressed, and the next key is for us."""
        return self._after_prefix

    @property
    def typed(self) -> str | None:
        """The line that is being typed for us, if one is."""
        return None if self._line is None else self._line.decode(errors="replace")

    def ask(self) -> None:
        """Take a line from now on: `told` gets it. Escape gives it up."""
        self._line = bytearray()

    def feed(self, data: bytes) -> bytes:
        passed = bytearray()
        for key in data:
            if self._line is not None:
                self._edit(self._line, key)
            elif self._after_prefix:
                self._after_prefix = False
                if key == PREFIX:
                    passed.append(key)
                else:
                    self._press(chr(key).lower())
            elif key == PREFIX:
                self._after_prefix = True
            else:
                passed.append(key)
        return bytes(passed)

    def _edit(self, line: bytearray, key: int) -> None:
        if key in _ENTER:
            self._line = None
            if text := line.decode(errors="replace").strip():
                self._told(text)
        elif key in _LEAVE:
            self._line = None
        elif key in _BACK:
            kept = line.decode(errors="replace")[:-1].encode()
            line[:] = kept
        elif key >= 0x20:
            line.append(key)
