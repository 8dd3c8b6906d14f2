"""A process that does nothing but sleep, and knows by how much it was woken late: how busy the machine is with others.

python -m bench.sleeper, which ends, and says what it knows, when its standard input is closed
"""

from __future__ import annotations

import select
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import anyio
import msgspec

from bench.report import ROOT

SLEEP_SECONDS: Final = 0.005


@asynccontextmanager
async def sleeper() -> AsyncIterator[list[float]]:
    """By how many seconds another process was woken late meanwhile; filled in at the end."""
    late: list[float] = []
    command = [sys.executable, "-m", "bench.sleeper"]
    async with await anyio.open_process(command, stdout=subprocess.PIPE, stderr=None, cwd=ROOT) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        yield late
        await child.stdin.aclose()
        said = b"".join([part async for part in child.stdout])
        late += msgspec.json.decode(said, type=list[float])


def main() -> None:
    late: list[float] = []
    is_over = False
    while not is_over:
        awake = time.monotonic() + SLEEP_SECONDS
        is_over = bool(select.select([sys.stdin], [], [], SLEEP_SECONDS)[0])
        late.append(time.monotonic() - awake)
    sys.stdout.buffer.write(msgspec.json.encode(late[:-1]))


if __name__ == "__main__":
    main()
