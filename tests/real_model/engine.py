"""The engine of a real model as a process, and the one witness of what it does: the CPU time of its threads."""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from checkrein.demo import engine_main
from tests.support.patience import PATIENCE_SECONDS

_TICKS: Final = os.sysconf("SC_CLK_TCK")
IDLE_SHARE: Final = 0.05
"""An engine that computes takes a whole core; its threads that only wait take less than this."""


class Engine:
    """One that is up. Times are CPU seconds, which do not depend on what else the machine does."""

    def __init__(self, pid: int, url: str) -> None:
        self.pid = pid
        self.url = url

    def threads(self) -> dict[str, float]:
        """The CPU seconds of each of its threads so far."""
        used = {}
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            try:
                fields = (task / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has just ended
                continue
            used[task.name] = (int(fields[11]) + int(fields[12])) / _TICKS
        return used

    def cpu(self) -> float:
        return sum(self.threads().values())

    def until_busy(self) -> None:
        """Wait until it has computed for a tenth of a second since this was asked, however long it waits for a core."""
        began = self.cpu()
        self._until(lambda _: self.cpu() - began >= 0.1)

    def until_idle(self) -> float:
        """Wait until none of its threads computes; the CPU seconds it took until then."""
        began = self.cpu()
        self._until(lambda used: used <= IDLE_SHARE)
        return self.cpu() - began

    def used_in(self, seconds: float) -> float:
        """The CPU seconds it takes in the next `seconds`."""
        before = self.cpu()
        time.sleep(seconds)
        return self.cpu() - before

    def _until(self, holds: Callable[[float], bool]) -> None:
        give_up = time.monotonic() + PATIENCE_SECONDS
        while not holds(self.used_in(0.5)):
            assert time.monotonic() < give_up, f"after {PATIENCE_SECONDS} s: {self.threads()}"


@contextmanager
def engine(python: str, *options: str) -> Iterator[Engine]:
    """An engine under the interpreter `python`, which has its two packages; it is gone afterwards."""
    program = [python, str(Path(engine_main.__file__)), *options]
    process = subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    try:
        ready, _, _ = select.select([process.stdout], [], [], PATIENCE_SECONDS)
        url = process.stdout.readline().strip() if ready else ""
        assert url.startswith("http://"), f"the engine did not come up: {process.poll()}"
        yield Engine(process.pid, url)
    finally:
        process.kill()
        process.communicate()
