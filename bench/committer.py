"""A process that commits a row now and then, and knows how long that took: how busy the disk is with others.

python -m bench.committer PATH, which ends, and says what it knows, when its standard input is closed
"""

from __future__ import annotations

import select
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final

import msgspec

from bench.aside import aside
from bench.plain import PlainTable

PAUSE_SECONDS: Final = 0.05
BODY: Final = bytes(500)


def committer(folder: Path) -> AbstractAsyncContextManager[list[float]]:
    """How many seconds the commits of another process took meanwhile; filled in at the end."""
    return aside("bench.committer", str(folder / "commits.db"))


def main(path: str) -> None:
    table = PlainTable(Path(path))
    took: list[float] = []
    while not select.select([sys.stdin], [], [], PAUSE_SECONDS)[0]:
        took.append(table.insert_timed(BODY))
    table.close()
    sys.stdout.buffer.write(msgspec.json.encode(took))


if __name__ == "__main__":
    main(*sys.argv[1:])
