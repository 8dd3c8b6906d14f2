"""The process table: which processes there are, what marks they carry, and a signal that cannot hit the wrong one.

This module knows nothing of calls or workers. It imports only the standard library (psutil where there is no `/proc`),
because the supervisor's child and the workers start with it.

A process is named by its pid *and* its start time: a pid alone may have been given to somebody else by now.
"""

from __future__ import annotations

import os
import signal
import sys
from functools import lru_cache
from typing import Final, NamedTuple

LINUX: Final = sys.platform.startswith("linux")
GONE: Final = frozenset("ZXx")
"""States of a process that does nothing any more: a zombie, or one about to vanish."""
STOPPED: Final = frozenset("Tt")

_CHUNK: Final = 1 << 16


class Row(NamedTuple):
    """One process at the moment it was looked at.

    `started` only serves to tell two processes apart that had the same pid: on Linux it counts clock ticks since the
    host booted (setting the clock does not change it), elsewhere Unix seconds.
    """

    pid: int
    parent: int
    group: int
    session: int
    state: str
    started: float

    @property
    def key(self) -> tuple[int, float]:
        return self.pid, self.started

    @property
    def lives(self) -> bool:
        return self.state not in GONE


def row(pid: int) -> Row | None:
    """The process with this pid, zombies included; None when there is none, or it cannot be looked at."""
    return _row_from_proc(pid) if LINUX else _row_from_psutil(pid)


def row_of_self() -> Row:
    """This process."""
    found = row(os.getpid())
    assert found is not None, "a process can look at itself"
    return found


def birth_of_self() -> float:
    """When this process started: part of what names it among all that ever had its pid."""
    return _birth(os.getpid())


@lru_cache(maxsize=1)
def _birth(pid: int) -> float:
    return row_of_self().started


def rows() -> dict[int, Row]:
    """Every process that can be looked at. Not a snapshot: one that forks meanwhile may show its child or not."""
    pids = (int(name) for name in os.listdir("/proc") if name.isdigit()) if LINUX else _pids_from_psutil()
    return {pid: found for pid in pids if (found := row(pid)) is not None}


def marks(pid: int, names: frozenset[str]) -> dict[str, str]:
    """Those of the environment variables `names` that the process was started with.

    Empty for a process of somebody else, or one that has overwritten its own environment.
    """
    found: dict[str, str] = {}
    for item in _environment(pid):
        name, _, value = item.partition("=")
        if name in names:
            found[name] = value
    return found


def send(to: Row, number: int) -> bool:
    """Signal exactly this process. False when it is gone (or the pid is somebody else's by now), or is not ours to
    signal. Never signals this process itself, or process 1."""
    if to.pid <= 1 or to.pid == os.getpid():
        return False
    try:
        return _send_by_handle(to, number) if hasattr(signal, "pidfd_send_signal") else _send_by_number(to, number)
    except (ProcessLookupError, PermissionError):
        return False


def _send_by_handle(to: Row, number: int) -> bool:
    try:
        handle = os.pidfd_open(to.pid)
    except ProcessLookupError:
        return False
    except OSError:  # a kernel before 5.3, a sandbox, or no descriptor left
        return _send_by_number(to, number)
    try:
        # The handle was taken before this look: if the start time fits now, the handle is of that very process.
        now = row(to.pid)
        if now is None or now.key != to.key:
            return False
        signal.pidfd_send_signal(handle, number)
        return True
    finally:
        os.close(handle)


def _send_by_number(to: Row, number: int) -> bool:
    now = row(to.pid)
    if now is None or now.key != to.key:
        return False
    os.kill(to.pid, number)
    return True


# -- Linux


def _row_from_proc(pid: int) -> Row | None:
    try:
        line = _read(f"/proc/{pid}/stat")
    except OSError:
        return None
    # The name stands in brackets and may itself hold brackets and spaces: what follows the last one is regular.
    rest = line[line.rfind(b")") + 2 :].split()
    if len(rest) < 20:
        return None
    state = rest[0].decode()
    if state == "Z" and int(rest[17]) > 1:
        state = "S"  # only its first thread has ended
    return Row(pid, int(rest[1]), int(rest[2]), int(rest[3]), state, float(rest[19]))


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        pieces = []
        while piece := os.read(descriptor, _CHUNK):
            pieces.append(piece)
            if len(piece) < _CHUNK:
                break
        return b"".join(pieces)
    finally:
        os.close(descriptor)


def _environment(pid: int) -> list[str]:
    if not LINUX:
        return _environment_from_psutil(pid)
    try:
        found = _read(f"/proc/{pid}/environ")
    except OSError:
        return []
    return found.decode("utf-8", "surrogateescape").split("\0")


# -- elsewhere


def _pids_from_psutil() -> list[int]:
    import psutil

    return psutil.pids()


def _row_from_psutil(pid: int) -> Row | None:
    import psutil

    # fmt: off
    letters = {
        psutil.STATUS_ZOMBIE: "Z", psutil.STATUS_DEAD: "X", psutil.STATUS_STOPPED: "T", psutil.STATUS_TRACING_STOP: "t",
    }
    # fmt: on
    try:
        process = psutil.Process(pid)
        state = letters.get(process.status(), "S")
        return Row(pid, process.ppid(), os.getpgid(pid), os.getsid(pid), state, process.create_time())
    except psutil.ZombieProcess:
        return Row(pid, 0, 0, 0, "Z", 0.0)
    except (psutil.Error, OSError):
        return None


def _environment_from_psutil(pid: int) -> list[str]:
    import psutil

    try:
        return [f"{name}={value}" for name, value in psutil.Process(pid).environ().items()]
    except (psutil.Error, OSError):
        return []
