"""One line that shows what a person changed."""

from __future__ import annotations

from typing import Final

LONGEST: Final = 160
"""Characters; what is longer is cut in the middle of the line, never in the record of the verb itself."""


def one_line_diff(before: str, after: str) -> str:
    """`+ new` where there was nothing, else what both share once and the rest as `[-old-]{+new+}`."""
    old, new = before.split(), after.split()
    if not old:
        return _cut(f"+ {' '.join(new)}")
    head = _shared(old, new)
    tail = _shared(old[head:][::-1], new[head:][::-1])
    removed, added = old[head : len(old) - tail], new[head : len(new) - tail]
    words = [
        *new[:head],
        *([f"[-{' '.join(removed)}-]"] if removed else []),
        *([f"{{+{' '.join(added)}+}}"] if added else []),
        *(new[len(new) - tail :] if tail else []),
    ]
    return _cut(" ".join(words))


def _shared(one: list[str], other: list[str]) -> int:
    """How many words both begin with."""
    count = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        count += 1
    return count


def _cut(line: str) -> str:
    if len(line) <= LONGEST:
        return line
    half = (LONGEST - 3) // 2
    return f"{line[:half]} … {line[-half:]}"
