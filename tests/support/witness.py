"""What really happened: a log that tools and their children write themselves, synced line by line."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.support.patience import PATIENCE_SECONDS


def note(log: str, word: str) -> None:
    """Write one line, durably, from whatever process this is."""
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{time.time()} {os.getpid()} {word}\n".encode())
    os.fsync(descriptor)
    os.close(descriptor)


class Line(NamedTuple):
    at: float
    pid: int
    word: str


class Witness:
    def __init__(self, path: Path | str) -> None:
        self.log = str(path)

    def lines(self, word: str | None = None) -> list[Line]:
        try:
            with open(self.log) as file:
                parts = [line.split(maxsplit=2) for line in file if line.endswith("\n")]
        except FileNotFoundError:
            return []
        found = [Line(float(at), int(pid), said.strip()) for at, pid, said in parts]
        return [line for line in found if word is None or line.word == word]

    def words(self) -> list[str]:
        return [line.word for line in self.lines()]

    async def saw(self, *words: str, times: int = 1) -> None:
        """Return when each of these has been written so many times."""
        for word in words:
            await until(lambda word=word: len(self.lines(word)) >= times)  # type: ignore[misc]

    async def is_quiet(self, *, seconds: float = 0.25) -> bool:
        """Whether nothing is written from now on, as far as a short wait can tell."""
        before = self.lines()
        await asyncio.sleep(seconds)
        return self.lines() == before


async def until(holds: Callable[[], object], *, seconds: float = PATIENCE_SECONDS) -> None:
    give_up = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < give_up, "it did not happen in time"
        await asyncio.sleep(0.01)


async def none_left_of(runtime: str) -> None:
    """Return when no process lives that this runtime has started."""
    # Here, because tools import this file, in processes that need nothing of the runtime.
    from checkrein.processes import env_marks
    from checkrein.processes.families import Family

    family = Family(marks=((env_marks.RUNTIME, runtime),))
    await until(lambda: not family.members())


def is_alive(pid: int) -> bool:
    """By the process table alone; a zombie is dead."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
