"""What a coroutine may leave behind, seen from outside it: processes, tasks, threads, open files, folders."""

from __future__ import annotations

import asyncio
import gc
import os
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from tests.support.patience import PATIENCE_SECONDS


class Traces:
    """Made before; afterwards `gone` waits until nothing is left that was not there before."""

    def __init__(self, *folders: Path) -> None:
        self._folders = [str(folder) for folder in folders]
        self._loop = asyncio.get_running_loop()
        self._errors: list[str] = []
        self._loop.set_exception_handler(self._complain)
        self._before = self._now()

    def _complain(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._errors.append(f"{context.get('message')}: {context.get('exception')!r}")

    async def gone(self) -> None:
        """Return when no trace is left; fail with what there is."""
        give_up = time.monotonic() + PATIENCE_SECONDS
        while (left := self._now() - self._before) and time.monotonic() < give_up:
            await asyncio.sleep(0.01)
        gc.collect()  # what nobody holds any more complains now
        await asyncio.sleep(0)
        self._loop.set_exception_handler(None)
        assert not left, f"left behind: {sorted(left)}"
        assert not self._errors, f"nobody has heard: {self._errors}"

    def _now(self) -> set[str]:
        return {*_processes(), *self._tasks(), *_threads(), *self._files(), *_folders()}

    def _tasks(self) -> list[str]:
        current = asyncio.current_task(self._loop)
        tasks = (task for task in asyncio.all_tasks(self._loop) if task is not current)
        return [f"task {task.get_name()} {task.get_coro().__qualname__}" for task in tasks]  # type: ignore[union-attr]

    def _files(self) -> list[str]:
        """Files that are open below the folders."""
        found = []
        for number in os.listdir("/proc/self/fd"):
            try:
                path = os.readlink(f"/proc/self/fd/{number}")
            except OSError:
                continue
            if any(path.startswith(folder) for folder in self._folders):
                found.append(f"open file {path}")
        return found


Look = Callable[[], Traces]
"""What tests are given: look at what there is now."""


def _processes() -> list[str]:
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            found.append(f"process {child.pid} {child.status()} {' '.join(child.cmdline())[-80:]}")
        except psutil.Error:
            continue
    return found


def _threads() -> list[str]:
    return [f"thread {thread.name} {thread.ident}" for thread in threading.enumerate() if "checkrein" in thread.name]


def _folders() -> list[str]:
    return [f"folder {path}" for path in Path(tempfile.gettempdir()).glob("checkrein-*")]
