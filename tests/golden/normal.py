"""Recorded runs without what differs from one time to the next: ids renumbered, times and processes masked."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from checkrein.journal import Recorded

_ID: Final = re.compile(
    r"(?<![0-9a-f])(?:r-[0-9a-f]{12}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{32})(?![0-9a-f])"
)
"""An id of a run, a UUID, or a UUID without its dashes; a hash is longer or shorter, and stays."""
_TIMES: Final = frozenset(
    {
        "at",
        "asked_at",
        "ms",
        "wait_seconds",
        "created_at",
        "changed_at",
        "started_at",
        "ended_at",
        "ahead",
        "worked_until",
        "store_at",
        "shown_at",
    }
)
_HIDDEN: Final = {"host": "HOST", "pid": "PID", "traceback": "TRACEBACK", "shown": "TIMES"}
_HIDDEN_OF_STARTED: Final = {"process": "PROCESS", "boot_id": "BOOT", "started": "TIME", "version": "VERSION"}
"""In `run.started`: these words mean something else elsewhere."""


class Names:
    """Ids, named in the order in which they appear."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def plain(self, value: Any, key: str = "") -> Any:
        """`value`, read from JSON, with every id renamed and every time masked."""
        if key in _HIDDEN:
            return _HIDDEN[key]
        if key == "timing_ms":
            return {name: None if one is None else "MS" for name, one in value.items()}
        if key in _TIMES and isinstance(value, int | float) and not isinstance(value, bool):
            return "TIME"
        if isinstance(value, dict) and value.get("type") == "run.started":
            value = {name: _HIDDEN_OF_STARTED.get(name, one) for name, one in value.items()}
        if isinstance(value, dict):
            return {self.text(name): self.plain(one, name) for name, one in value.items()}
        if isinstance(value, list):
            return [self.plain(one) for one in value]
        if isinstance(value, str):
            return self.text(value)
        return value

    def text(self, text: str) -> str:
        return _ID.sub(self._name, text)

    def _name(self, found: re.Match[str]) -> str:
        given = found.group()
        prefix = "r-" if given.startswith("r-") else "id-"
        count = sum(name.startswith(prefix) for name in self._names.values())
        return self._names.setdefault(given, f"{prefix}{count + 1}")


def journal_lines(records: Iterable[Recorded], names: Names) -> list[str]:
    """One line for each event: its seq, and its JSON in the order in which its fields were encoded."""
    return [
        f"{record.seq} {msgspec.json.encode(names.plain(msgspec.json.decode(record.body))).decode()}"
        for record in records
    ]
