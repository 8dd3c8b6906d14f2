"""Hosts for tests, as far as a process can tell: each has a host name and a pid namespace of its own.

So nobody on one of them can tell that a process on another is dead. All share one network and one disk.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
from contextlib import suppress
from functools import cache
from typing import Final

import psutil
import pytest

from tests.cli.shell import Shell

ALONE: Final = ("unshare", "--uts", "--pid", "--fork", "--mount-proc", "--kill-child")
_STILL: Final = frozenset({psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD})


@cache
def _is_allowed() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*ALONE, "hostname", "elsewhere"], capture_output=True).returncode == 0


def need_hosts() -> None:
    """Skip what cannot be shown here."""
    if not _is_allowed():
        pytest.skip("a process with a host name and a pid namespace of its own cannot be started here (unshare)")


class Host:
    """One host, on which one command of `checkrein` is the first process."""

    def __init__(self, shell: Shell, name: str, *arguments: str, **variables: str) -> None:
        self.name = name
        before = (*ALONE, "sh", "-c", 'hostname "$0" && exec "$@"', name)
        self.started = shell.start(*arguments, before=before, **variables)

    @property
    def is_up(self) -> bool:
        return self.started.process.poll() is None

    @property
    def _first(self) -> psutil.Process:
        (first,) = psutil.Process(self.started.process.pid).children()
        return first

    def _processes(self) -> list[psutil.Process]:
        return [self._first, *self._first.children(recursive=True)]

    def count(self, words: str) -> int:
        """How many processes on it have these words in their command line."""
        return sum(words in " ".join(command_line(process)) for process in self._processes())

    def kill(self) -> None:
        """As when the power fails: all that is on it ends, and says nothing."""
        self._first.kill()
        self.started.wait()

    def freeze(self) -> None:
        """All that is on it stands still, until it thaws."""
        while moving := [process for process in self._processes() if _moves(process)]:
            _signal(moving, signal.SIGSTOP)

    def thaw(self) -> None:
        _signal(self._processes(), signal.SIGCONT)

    def end(self) -> int:
        """Tell it to end; its exit code."""
        self._first.terminate()
        return self.started.wait()


def _signal(processes: list[psutil.Process], number: int) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def _moves(process: psutil.Process) -> bool:
    try:
        return process.status() not in _STILL
    except psutil.NoSuchProcess:
        return False


def command_line(process: psutil.Process) -> list[str]:
    """Empty for one that has ended by now."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []
