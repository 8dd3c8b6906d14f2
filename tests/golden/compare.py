"""Recorded text, and what is said when it is no longer the same."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Final

import msgspec

DATA: Final = Path(__file__).parent / "data"
STORES: Final = Path(__file__).parent / "stores"
MOST_LINES: Final = 60
"""How much of a difference is shown."""


def assert_as_recorded(name: str, made: str) -> None:
    """Fail with a readable difference unless `made` is what the file `name` holds, to the letter."""
    path = DATA / name
    recorded = path.read_text(encoding="utf-8") if path.exists() else ""
    if made != recorded:
        raise AssertionError(f"{_difference(name, recorded, made)}\n\n{_remedy(name)}")


def _difference(name: str, recorded: str, made: str) -> str:
    was, now = _fields(recorded), _fields(made)
    lines = list(difflib.unified_diff(was, now, f"recorded {name}", "now", lineterm="", n=3))
    more = [f"... and {len(lines) - MOST_LINES} more lines"] if len(lines) > MOST_LINES else []
    return "\n".join([f"{name} is not what was recorded.", *lines[:MOST_LINES], *more])


def _fields(text: str) -> list[str]:
    """Lines, and long ones field by field, so that a difference shows what is different."""
    return [part for line in text.splitlines() for part in (line.replace(',"', ',\n    "').splitlines() or [""])]


def _remedy(name: str) -> str:
    part = name.partition("/")[0].partition(".")[0]
    return (
        "If this difference is intended, record it again and commit what changes, with a reason:\n"
        f"    python -m tests.golden.record {part}"
    )


def pretty(value: object) -> str:
    """JSON with sorted keys, one field on each line."""
    encoded = msgspec.json.encode(value, order="sorted")
    return msgspec.json.format(encoded, indent=2).decode() + "\n"


def record(name: str, made: str) -> None:
    path = DATA / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(made, encoding="utf-8")
