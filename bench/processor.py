"""What processor time some processes have used: of a server and of everything it has started."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psutil

from tests.support.postgres import Cluster


class Used:
    """The processor time of a process and of all below it, counted from the moment this is made.

    A process that has ended counts with what it had used when it was last looked at, so `seconds` is also to be asked
    while they live. What Linux knows of each thread is exact.
    """

    def __init__(self, pid: int) -> None:
        self._root = pid
        self._of: dict[int, float] = {}
        self._look()
        self._before = sum(self._of.values())

    def seconds(self) -> float:
        self._look()
        return sum(self._of.values()) - self._before

    def _look(self) -> None:
        with suppress(psutil.NoSuchProcess):
            root = psutil.Process(self._root)
            for process in (root, *root.children(recursive=True)):
                with suppress(OSError):
                    self._of[process.pid] = processor_seconds(process.pid)


def processor_seconds(pid: int) -> float:
    """Of one process, all its threads."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


def postmaster(cluster: Cluster) -> int:
    """The process of a server that has started all others of it."""
    return int((cluster.data / "postmaster.pid").read_text().split()[0])
