"""A process that commits a row now and then, and knows how long that took: how busy the disk is with others.

python -m bench.committer PATH, which ends, and says what it knows, when its standard input is closed
"""

from __future__ import annotations

import select
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
import msgspec

from bench.plain import PlainTable
from bench.report import ROOT

PAUSE_SECONDS: Final = 0.05
BODY: Final = bytes(500)


@asynccontextmanager
async def committer(folder: Path) -> AsyncIterator[list[float]]:
    """How many seconds the commits of another process took meanwhile; filled in at the end."""
    took: list[float] = []
    command = [sys.executable, "-m", "bench.committer", str(folder / "commits.db")]
    async with await anyio.open_process(command, stdout=subprocess.PIPE, stderr=None, cwd=ROOT) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        yield took
        await child.stdin.aclose()
        said = b"".join([part async for part in child.stdout])
        took += msgspec.json.decode(said, type=list[float])


def main(path: str) -> None:
    table = PlainTable(Path(path))
    took: list[float] = []
    while not select.select([sys.stdin], [], [], PAUSE_SECONDS)[0]:
        took.append(table.insert_timed(BODY))
    table.close()
    sys.stdout.buffer.write(msgspec.json.encode(took))


if __name__ == "__main__":
    main(*sys.argv[1:])
