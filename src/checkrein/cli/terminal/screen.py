"""What a program writes to its terminal, kept off the last line of ours.

The program believes that its terminal is one line shorter, and what it writes is passed on as it is. Only what would
reach the last line is changed: where it wants to scroll, and where it moves the cursor to. So a full-screen program
looks as always.
"""

from __future__ import annotations

import re
from typing import Final

_CSI: Final = re.compile(rb"\x1b\[([0-9;:<=>?]*)([ -/]*)([@-~])|\x1b([78c])")
_UNFINISHED: Final = re.compile(
    rb"\x1b(\[[0-9;:<=>?]*[ -/]*)?\Z"  # a control sequence
    rb"|\x1b[\]PX^_](?:(?!\x07|\x1b\\).)*\Z"  # a string, such as the title of the window
    rb"|[\xc2-\xdf]\Z|[\xe0-\xef][\x80-\xbf]?\Z|[\xf0-\xf4][\x80-\xbf]{0,2}\Z",  # a character
    re.DOTALL,
)
_LONGEST: Final = 1 << 16
"""An unfinished sequence longer than this is none."""
_PLAIN: Final = b"\x1b[0m\x1b[?25h\x1b[?1000;1002;1003;1004;1006;2004;1l\x1b>"
"""No colours, the cursor seen, and neither mice nor pastes nor keys reported in a special way."""
_ALTERNATE: Final = frozenset({b"?1049", b"?1047", b"?47"})


class Screen:
    """The screen of the program, `rows` high, above our line."""

    def __init__(self, rows: int, columns: int) -> None:
        self.rows, self.columns = rows, columns
        self.is_dirty = True
        """The program may have wiped our line out, or nobody has drawn it yet."""
        self._rest = b""
        self._has_saved = False
        self._is_alternate = False

    @property
    def can_draw(self) -> bool:
        """Whether our line may be drawn now: not in the middle of a sequence, nor while the program has the cursor
        saved, since a terminal remembers one position only."""
        return not self._rest and not self._has_saved

    def feed(self, data: bytes) -> bytes:
        """What is to be written to the terminal for what the program has written."""
        data = self._rest + data
        unfinished = _UNFINISHED.search(data)
        cut = len(data) if unfinished is None or len(data) - unfinished.start() > _LONGEST else unfinished.start()
        self._rest = data[cut:]
        return _CSI.sub(self._kept_off, data[:cut])

    def _kept_off(self, found: re.Match[bytes]) -> bytes:
        parameters, between, final, single = found.groups()
        if single is not None:
            return self._single(found[0], single)
        if between or parameters[:1] in (b"<", b"=", b">", b"?"):
            return self._private(found[0], parameters, between, final)
        match final:
            case b"r":
                return self._region(parameters)
            case b"H" | b"f" | b"d":
                return self._moved(parameters, final)
            case b"J":
                self.is_dirty = True
            case b"s" | b"u":
                self._has_saved = final == b"s"
        return found[0]

    def _single(self, whole: bytes, final: bytes) -> bytes:
        self._has_saved = final == b"7"
        if final != b"c":
            return whole
        self.is_dirty = True  # all is reset, the region too
        return whole + self._whole_region()

    def _private(self, whole: bytes, parameters: bytes, between: bytes, final: bytes) -> bytes:
        if parameters in _ALTERNATE:
            self.is_dirty = True
            self._is_alternate = final == b"h"
        if (between, final) == (b"!", b"p"):
            self.is_dirty = True
            return whole + self.begin_region()
        return whole

    def _region(self, parameters: bytes) -> bytes:
        top, _, bottom = parameters.partition(b";")
        last = min(_number(bottom) or self.rows, self.rows)
        return b"\x1b[%d;%dr" % (_number(top) or 1, last)

    def _moved(self, parameters: bytes, final: bytes) -> bytes:
        row, semicolon, column = parameters.partition(b";")
        if _number(row) <= self.rows:
            return b"\x1b[" + parameters + final
        return b"\x1b[%d%b%b%b" % (self.rows, semicolon, column, final)

    def _whole_region(self) -> bytes:
        return b"\x1b[1;%dr" % self.rows

    def begin_region(self) -> bytes:
        """Have only the part above our line scroll; the cursor stays where it is."""
        return b"\x1b7" + self._whole_region() + b"\x1b8"

    def end(self, *, lives: bool = False) -> bytes:
        """Give the whole terminal back, without our line, as a program that ends by itself leaves it.

        One that `lives` on may have the cursor anywhere: what comes next is for the last line.
        """
        last = b"\x1b[%d;1H" % (self.rows + 1)
        wiped = b"\x1b7\x1b[r%b\x1b[0m\x1b[2K\x1b8" % last
        if self._is_alternate:
            return wiped + b"\x1b[?1049l" + _PLAIN
        return wiped + _PLAIN + (last if lives else b"")

    def line(self, text: str) -> bytes:
        """What draws our line."""
        self.is_dirty = False
        shown = text[: self.columns - 1].ljust(self.columns - 1)
        return b"\x1b7\x1b[%d;1H\x1b[0;7m%b\x1b[0m\x1b8" % (self.rows + 1, shown.encode())


def _number(digits: bytes) -> int:
    return int(digits) if digits.isdigit() else 0
