"""How a command speaks: sentences for people, one JSON object per line for programs, complaints on standard error.

Also tables, the exit codes, and commands that are worth typing next: those work as they stand, also where a store was
named on the command line.
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Sequence
from typing import Any, Final

from checkrein.core.enums import Status
from checkrein.core.escape import printable


def out(text: str = "") -> None:
    """A line on standard output."""
    print(printable(text), file=sys.stdout, flush=True)


def note(text: str) -> None:
    """A line for whoever sits at the terminal, on standard error: never part of what a program reads."""
    print(printable(text), file=sys.stderr, flush=True)


def line_of(value: Any) -> str:
    """A value as one line of JSON, in plain ASCII: nothing in it can act on a terminal either."""
    import msgspec

    return json.dumps(msgspec.to_builtins(value), ensure_ascii=True).replace("\x7f", "\\u007f")


def out_json(value: Any) -> None:
    print(line_of(value), file=sys.stdout, flush=True)


def complain(code: str, message: str, *, as_json: bool = False) -> None:
    """One sentence about what went wrong, with its stable code."""
    note(line_of({"code": code, "message": message}) if as_json else f"error[{code}]: {message}")


def is_terminal() -> bool:
    """Whether a person sits at both ends."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


_GAP: Final = 2


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, widest: Sequence[int]) -> None:
    """Print a table. In a terminal it fits the width, the last column giving way first; elsewhere nothing is cut."""
    columns = list(zip(heads, *rows, strict=True))
    if sys.stdout.isatty():
        widths = _fitted([_width(cells, most) for cells, most in zip(columns, widest, strict=True)])
    else:
        widths = [max(map(_cells, cells)) for cells in columns]
    for row in (heads, *rows):
        padded = [_padded(cell, width) for cell, width in zip(row, widths, strict=True) if width]
        print((" " * _GAP).join(padded).rstrip(), flush=True)


def _width(cells: Sequence[str], most: int) -> int:
    return min(most, max(map(_cells, cells)))


def _fitted(widths: list[int]) -> list[int]:
    room = shutil.get_terminal_size().columns
    while (over := sum(widths) + _GAP * (len(widths) - 1) - room) > 0:
        widest = max(range(len(widths)), key=lambda n: (widths[n], n))
        if widths[widest] <= 4:
            break
        widths[widest] = max(4, widths[widest] - over)
    return widths


def _padded(cell: str, width: int) -> str:
    if _cells(cell) > width:
        while cell and _cells(cell) > width - 1:
            cell = cell[:-1]
        cell += "…"
    return cell + " " * (width - _cells(cell))


def _cells(text: str) -> int:
    """How many columns a text takes in a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


_options: list[str] = []
_file = ["FILE"]


def remember_option(name: str, value: str) -> None:
    """A store, or a server, that was named on the command line has to be named again."""
    _options[:] = [name, shlex.quote(value)]


def remember_file(file: str) -> None:
    """The file that this command has its agents from; nothing where it is configured, and need not be said."""
    _file[:] = [shlex.quote(file)] if file else []


def command(words: str) -> str:
    """`checkrein` and `words`, as it can be typed here."""
    return " ".join(["checkrein", words, *_options])


def take_up(run: str) -> str:
    """How a run goes on whose process has ended."""
    return command(" ".join(["run", *_file, "--resume", run]))


def go_on_from(run: str) -> str:
    """How another run goes on from where one has ended."""
    return command(" ".join(["run", *_file, '"…"', "--continue", run]))


DONE: Final = 0
FAILED: Final = 1
WRONG_INPUT: Final = 2
CANCELLED: Final = 3
PAUSED: Final = 4
"""The run was left paused, or unfinished in another way: it can be taken up again."""
INTERNAL: Final = 70
INTERRUPTED: Final = 130

OF_STATUS: Final = {
    Status.COMPLETED: DONE,
    Status.FAILED: FAILED,
    Status.CANCELLED: CANCELLED,
    Status.KILLED: CANCELLED,
}


def of_status(status: Status) -> int:
    """The exit code of a command that saw a run to its end, or left it in this status."""
    return OF_STATUS.get(status, PAUSED)
