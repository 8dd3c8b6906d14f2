"""Rows in columns, as wide as they need and as the terminal allows."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from typing import Final

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
