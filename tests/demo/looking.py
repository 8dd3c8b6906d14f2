"""What the tests of the demo look at: the tools' own log, the folder, the process table."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from checkrein.demo import data
from checkrein.demo.tools import MEMO, OUTBOX, SENT
from tests.support.patience import PATIENCE_SECONDS


def log(folder: Path) -> list[str]:
    return [entry.what for entry in data.entries(folder)]


def times(folder: Path, what: str) -> int:
    return sum(line.startswith(what) for line in log(folder))


def drafts(folder: Path) -> list[Path]:
    return list((folder / OUTBOX).glob("*"))


def sent(folder: Path) -> list[str]:
    return [path.read_text() for path in (folder / SENT).glob("*")]


def memo(folder: Path) -> str:
    return (folder / MEMO).read_text()


async def until(condition: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)
