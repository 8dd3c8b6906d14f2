"""What tools really did, written down by themselves: one line, synced, before they go on.

The runtime knows nothing of it. At its beginning a tool looks for its own permit in the journal's file, as anybody
could who does not trust the runtime, and writes down where it stood.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

import msgspec

from tests.support.witness import is_alive

FOLDER: Final = "CHECKREIN_TORTURE_FOLDER"
LIFE: Final = "CHECKREIN_TORTURE_LIFE"
"""In the environment of every process of one life of a runtime, unless a tool hides it."""

_PERMIT: Final = """
SELECT seq FROM (
    SELECT e.seq, CAST(e.body AS TEXT) AS body FROM events e JOIN runs r ON r.key = e.run WHERE r.id = ?1
)
WHERE body ->> 'type' = 'call.started' AND body ->> 'call' = ?2 AND ?3 IN (0, ifnull(body ->> 'attempt', 1))
ORDER BY seq DESC LIMIT 1
"""


class Line(msgspec.Struct, frozen=True, array_like=True):
    """`what` is begin, tick, done; undo, undone for the function that takes it back; child for a process it started."""

    at: float
    pid: int
    what: str
    key: str
    attempt: int = 0
    tool: str = ""
    item: str = ""
    """What the model wanted done, the same however often the runtime tries."""
    permit: int = 0
    """The seq of the permit that the writer found in the journal; 0: none."""

    @property
    def run(self) -> str:
        return self.key.partition("/")[0]

    @property
    def call(self) -> str:
        return self.key.partition("/")[2]


def folder() -> Path:
    return Path(os.environ[FOLDER])


def diary(where: Path) -> Path:
    return where / "diary"


def store(where: Path) -> Path:
    return where / "runs.db"


def write(
    what: str, key: str, attempt: int = 0, tool: str = "", item: str = "", permit: int = 0, pid: int | None = None
) -> None:
    """Durable on return."""
    line = Line(time.time(), pid or os.getpid(), what, key, attempt, tool, item, permit)
    fd = os.open(diary(folder()), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(fd, msgspec.json.encode(line) + b"\n")
        os.fsync(fd)
    finally:
        os.close(fd)


def permit(key: str, call: str, attempt: int = 0) -> int:
    """Where the journal has the permit of this attempt, or of the latest one; 0 when it has none."""
    run = key.partition("/")[0]
    with closing(sqlite3.connect(f"file:{store(folder())}?mode=ro", uri=True, timeout=10)) as db:
        row = db.execute(_PERMIT, (run, call, attempt)).fetchone()
    return 0 if row is None else int(row[0])


def parse(text: bytes) -> list[Line]:
    return [msgspec.json.decode(line, type=Line) for line in text.split(b"\n")[:-1]]


def read(where: Path) -> list[Line]:
    path = diary(where)
    return parse(path.read_bytes()) if path.exists() else []


def processes_of(life: str) -> Iterator[int]:
    """The living processes that carry the mark of a life."""
    mark = f"{LIFE}={life}".encode()
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError), open(f"/proc/{entry}/environ", "rb") as file:
                if mark in file.read().split(b"\0") and is_alive(int(entry)):
                    yield int(entry)
