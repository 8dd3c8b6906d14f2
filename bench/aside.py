"""A process beside what is measured, which says what it has seen when its standard input is closed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import msgspec

from bench.report import ROOT


@asynccontextmanager
async def aside(module: str, *arguments: str) -> AsyncIterator[list[float]]:
    """The numbers that `python -m module` says; filled in at the end."""
    numbers: list[float] = []
    command = [sys.executable, "-m", module, *arguments]
    async with await anyio.open_process(command, stdout=subprocess.PIPE, stderr=None, cwd=ROOT) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        yield numbers
        await child.stdin.aclose()
        said = b"".join([part async for part in child.stdout])
        numbers += msgspec.json.decode(said, type=list[float])
