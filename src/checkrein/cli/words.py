"""Small things in words: times, values, lists of names."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import msgspec

from checkrein.cli.clean import one_line


def milliseconds(ms: float) -> str:
    """`9 ms`, `3.2 s`, `2 min 5 s`."""
    if ms < 1000:
        return f"{ms:.0f} ms" if ms >= 1 or ms == 0 else "under 1 ms"
    seconds = ms / 1000
    return f"{seconds:.1f} s" if seconds < 60 else f"{int(seconds // 60)} min {int(seconds % 60)} s"


def clock(seconds: float) -> str:
    """`0:03`, `12:40`, `1:02:05`."""
    minutes, rest = divmod(int(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def moment(at: float) -> str:
    """A time of day with its date, as it is here."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def names(several: Iterable[str]) -> str:
    return ", ".join(one_line(name, 80) for name in several)


def arguments(value: Any, longest: int = 120) -> str:
    """Arguments as a call would have them; everything else as JSON."""
    if isinstance(value, dict):
        return one_line(", ".join(f"{name}={value_of(item)}" for name, item in value.items()), longest)
    return "" if value is None else one_line(value_of(value), longest)


def value_of(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def result(value: Any, longest: int = 120) -> str:
    """What a call has brought, on one line."""
    if value is None:
        return ""
    return one_line(value if isinstance(value, str) else value_of(value), longest)
