"""Looking on: the tools' log as it grows, and the process table."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

from checkrein.demo.churn_score import CHILD
from checkrein.demo.data import Entry, entries

PATIENCE_SECONDS: Final = 120.0
UNDO: Final = "undo:"

Out = Callable[[str], None]


class Live:
    """Shows a log line by line, and lets one wait for what it says."""

    def __init__(self, folder: Path, out: Out) -> None:
        self._folder = folder
        self._out = out
        self._began = time.time()
        self._shown = 0
        self._clicked_at: float | None = None
        self._stopped_at = 0.0
        self.is_brief = False
        """Show only a part of what the long tool says."""

    def show(self) -> list[Entry]:
        """Show what is new; return everything so far."""
        log = entries(self._folder)
        for entry in log[self._shown :]:
            if not (self.is_brief and _is_tick_to_hide(entry)):
                self._out(self._line(entry))
        self._shown = len(log)
        return log

    def say(self, text: str) -> None:
        self._out(f"   === {text}")

    def stop(self, clicked_at: float, stopped_at: float, text: str) -> None:
        """Stop was pressed, and then everything was said to have stopped: work after that is marked."""
        self._clicked_at, self._stopped_at = clicked_at, stopped_at
        self.say(text)
        self.show()

    def mark(self, text: str, *, is_late: bool = False) -> None:
        """A line that is not from the log."""
        self._out(self._at(time.time(), text, is_late=is_late))

    async def until(self, what: str) -> None:
        """Wait until the log has such a line."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not any(entry.what == what for entry in self.show()):  # noqa: ASYNC110 - a file tells nobody
                await asyncio.sleep(0.01)

    async def watch(self, seconds: float, *, nothing: str = "") -> None:
        """Look on for so long. `nothing` is said about every second in which nothing came."""
        ends, second, seen = time.monotonic() + seconds, time.monotonic() + 1, len(self.show())
        while time.monotonic() < ends:
            await asyncio.sleep(0.02)
            now_seen = len(self.show())
            if nothing and time.monotonic() >= second:
                if now_seen == seen:
                    self.mark(nothing)
                second, seen = second + 1, now_seen

    def _line(self, entry: Entry) -> str:
        is_late = self._clicked_at is not None and entry.at > self._stopped_at and not entry.what.startswith(UNDO)
        return self._at(entry.at, entry.what, is_late=is_late)

    def _at(self, at: float, text: str, *, is_late: bool) -> str:
        """A line with its time: since Stop, or since the beginning as long as there was none."""
        if self._clicked_at is None:
            return f"     {at - self._began:5.1f} s  {text}"
        return f"   {'!' if is_late else ' '} {at - self._clicked_at:+5.1f} s  {text}"


def _is_tick_to_hide(entry: Entry) -> bool:
    if entry.what.startswith("scored "):
        return int(entry.what.split()[1]) % 80 != 0
    return entry.what.startswith("child:")


def children(folder: Path) -> list[psutil.Process]:
    """The child processes of the long tool that the log names and that are in the process table."""
    found = []
    for entry in entries(folder):
        if " child pid " in entry.what:
            with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                child = psutil.Process(int(entry.what.rpartition(" ")[2]))
                if CHILD in child.cmdline():  # and not another process that got its number
                    found.append(child)
    return found
