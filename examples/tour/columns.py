"""Two logs side by side, in 80 columns of plain text, with a line through both where Stop was pressed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Final, NamedTuple

WIDTH: Final = 80
_COLUMN: Final = 38
_BEFORE: Final = 3
"""So many lines from before Stop are shown."""


class Line(NamedTuple):
    seconds: float
    """Since Stop."""
    what: str
    is_work: bool = False
    """Work that was done after everything had been said to be stopped."""


def cell(line: Line) -> str:
    """One line of a log, as wide as a column at most. Work after Stop is marked."""
    return f"{'!' if line.is_work else ' '}{line.seconds:+6.2f} s {line.what}"[:_COLUMN]


class Column(NamedTuple):
    title: str
    log: Sequence[Line]
    ends: str
    """What is said below the last line."""


def side_by_side(left: Column, right: Column) -> Iterator[str]:
    """Both logs, from shortly before Stop to their end."""
    yield _row(left.title, right.title)
    yield _row("-" * _COLUMN, "-" * _COLUMN)
    before = [[cell(line) for line in column.log if line.seconds < 0][-_BEFORE:] for column in (left, right)]
    for pair in zip(*(["" for _ in range(_BEFORE - len(cells))] + cells for cells in before), strict=True):
        yield _row(*pair)
    stop = " Stop ".center(_COLUMN, "=")
    yield _row(stop, stop)
    after = [
        [cell(line) for line in column.log if line.seconds >= 0] + [f"          {column.ends}"]
        for column in (left, right)
    ]
    for pair in zip_longest(*after, fillvalue=""):
        yield _row(*pair)


def _row(left: str, right: str) -> str:
    return f"{left:<{_COLUMN}}  | {right}".rstrip()
