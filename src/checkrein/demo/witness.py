"""The log that the demo's tools keep for themselves: the witness of what was really done, and when.

Nothing of Checkrein writes to it or reads it. Each line is on the disk before the work goes on.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

NAME = "witness.log"


class Entry(NamedTuple):
    at: float
    """Seconds since the epoch, by the clock of whoever wrote it."""
    pid: int
    what: str


def note(data: str | Path, what: str) -> None:
    """Add a line to the log in the folder `data`. On return it is on the disk."""
    line = f"{time.time():.6f} {os.getpid()} {what}\n"
    descriptor = os.open(Path(data) / NAME, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.write(descriptor, line.encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def entries(data: str | Path) -> list[Entry]:
    """Everything in the log so far, in the order of its clock. A line that is just being written is left out."""
    try:
        text = (Path(data) / NAME).read_text()
    except FileNotFoundError:
        return []
    lines = [line for line in text.splitlines(keepends=True) if line.endswith("\n")]
    return sorted(_entry(line) for line in lines)


def _entry(line: str) -> Entry:
    at, pid, what = line.rstrip("\n").split(" ", 2)
    return Entry(float(at), int(pid), what)
