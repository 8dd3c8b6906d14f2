"""The process table: which processes there are, what marks they carry, and a signal that cannot hit the wrong one.

This module knows nothing of calls or workers. It imports only the standard library (psutil where there is no `/proc`),
because the supervisor's child and the workers start with it.

A process is named by its pid *and* its start time: a pid alone may have been given to somebody else by now.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

LINUX: Final = sys.platform.startswith("linux")
GONE: Final = frozenset("ZXx")
"""States of a process that does nothing any more: a zombie, or one about to vanish."""
STOPPED: Final = frozenset("Tt")

_CHUNK: Final = 1 << 16
_MANY: Final = 1000
"""So many numbers are not tried one by one: to list the processes is quicker."""
_STORM_SECONDS: Final = 1.0
"""Where processes are started without a pause, looking for the newest ends all the same."""
_EXEC_SECONDS: Final = 0.5
"""How long a process may be about to become another program, with no environment to be read."""


_WORN_LIMIT: Final = b"Max realtime timeout"


class ProcessInfo(NamedTuple):
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


def row(pid: int) -> ProcessInfo | None:
    """The process with this pid, zombies included; None when there is none, or it cannot be looked at."""
    return _row_from_proc(pid) if LINUX else _row_from_psutil(pid)


def is_alive(one: ProcessInfo) -> bool:
    """Whether this very process still lives."""
    found = row(one.pid)
    return found is not None and found.key == one.key and found.lives


def row_of_self() -> ProcessInfo:
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


def now() -> float:
    """This moment, as `started` counts it: whoever is started from now on has that, or more."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK") // 1 if LINUX else time.time()


def looks() -> Iterator[dict[int, ProcessInfo]]:
    """Every process that can be looked at, and then those that were started meanwhile, until there are none.

    On Linux nobody slips through between two looks. Numbers are given in rising order, and the newest one is read only
    after the caller has dealt with the look before: whoever was gone by then has left its children among the numbers
    up to that one, and they are what is yielded next. Elsewhere a process that forks meanwhile may hide its child.
    """
    newest = _newest_pid()
    yield _rows_of(_pids())
    give_up = time.monotonic() + _STORM_SECONDS
    while (now := _newest_pid()) != newest and time.monotonic() < give_up:
        # After the highest number the low ones are given again: then everybody has to be looked at once more.
        is_short = newest is not None and now is not None and 0 < now - newest <= _MANY
        born: Iterable[int] = range(newest + 1, now + 1) if is_short else _pids()  # type: ignore[operator]
        newest = now
        yield _rows_of(born)


def children(pid: int) -> list[ProcessInfo]:
    """The children of a process that can be looked at. One that is started meanwhile may be missing."""
    try:
        pids = _children_from_proc(pid)
    except OSError:  # the kernel does not tell, or this is no Linux
        return [found for found in _rows_of(_pids()).values() if found.parent == pid]
    return [found for found in _rows_of(pids).values() if found.parent == pid]


class ThreadTimes(NamedTuple):
    """What one thread has had of the processors by now."""

    is_ready: bool
    """It runs, or would if a processor were free."""
    ran_ns: int
    waited_ns: int
    """How long it was ready and no processor was free, up to when it ran last."""


def thread_times(pid: int) -> dict[int, ThreadTimes]:
    """The threads of a process, by their numbers; empty where the system does not tell (all but Linux)."""
    found: dict[int, ThreadTimes] = {}
    folder = f"/proc/{pid}/task"
    try:
        threads = os.listdir(folder)
    except OSError:
        return found
    for thread in threads:
        try:
            ran, waited, _ = _read(f"{folder}/{thread}/schedstat").split()
            state = _stat(f"{pid}/task/{thread}")[0]
        except (OSError, ValueError, IndexError):  # it has just ended, or the kernel does not count
            continue
        found[int(thread)] = ThreadTimes(state == b"R", int(ran), int(waited))
    return found


def _rows_of(pids: Iterable[int]) -> dict[int, ProcessInfo]:
    return {pid: found for pid in pids if (found := row(pid)) is not None}


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()] if LINUX else _pids_from_psutil()


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


def limit_mark(pid: int) -> int:
    """The number that a process wears (`limit_marks`); 0 when none, or it is gone."""
    if not LINUX:
        return 0
    try:
        words = _read(f"/proc/{pid}/limits").partition(_WORN_LIMIT)[2].split(None, 1)
    except OSError:
        return 0
    return int(words[0]) if words and words[0].isdigit() else 0


def send(to: ProcessInfo, number: int) -> bool:
    """Signal exactly this process. False when it is gone (or the pid is somebody else's by now), or is not ours to
    signal. Never signals this process itself, or process 1."""
    if to.pid <= 1 or to.pid == os.getpid():
        return False
    try:
        return _send_by_handle(to, number) if hasattr(signal, "pidfd_send_signal") else _send_by_number(to, number)
    except (ProcessLookupError, PermissionError):
        return False


def _send_by_handle(to: ProcessInfo, number: int) -> bool:
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


def _send_by_number(to: ProcessInfo, number: int) -> bool:
    now = row(to.pid)
    if now is None or now.key != to.key:
        return False
    os.kill(to.pid, number)
    return True


# -- Linux


def _row_from_proc(pid: int) -> ProcessInfo | None:
    try:
        rest = _stat(pid)
    except OSError:
        return None
    if len(rest) < 36 or rest[35] == b"-1":  # nobody is told when it ends: a thread, found by its own number
        return None
    state = rest[0].decode()
    if state == "Z" and int(rest[17]) > 1:
        state = "S"  # only its first thread has ended
    return ProcessInfo(pid, int(rest[1]), int(rest[2]), int(rest[3]), state, float(rest[19]))


def _stat(pid: int | str) -> list[bytes]:
    """The fields of `/proc/PID/stat` from the state on. `PID/task/NUMBER` names a thread."""
    line = _read(f"/proc/{pid}/stat")
    # The name stands in brackets and may itself hold brackets and spaces: what follows the last one is regular.
    return line[line.rfind(b")") + 2 :].split()


def _children_from_proc(pid: int) -> list[int]:
    threads = f"/proc/{pid}/task"
    return [int(one) for thread in os.listdir(threads) for one in _read(f"{threads}/{thread}/children").split()]


def _newest_pid() -> int | None:
    """The number that was given last, to a process or a thread; None where the system does not tell."""
    if not LINUX:
        return None
    try:
        return int(_read("/proc/loadavg").split()[4])
    except (OSError, ValueError, IndexError):
        return None


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
        found = _read(f"/proc/{pid}/environ") or _environment_after_exec(pid)
    except OSError:
        return []
    return found.decode("utf-8", "surrogateescape").split("\0")


def _environment_after_exec(pid: int) -> bytes:
    """What was empty a moment ago, because there is none or because the process was about to get a new one."""
    give_up = time.monotonic() + _EXEC_SECONDS
    while _is_in_exec(pid) and time.monotonic() < give_up:
        time.sleep(0.001)
    return _read(f"/proc/{pid}/environ")


def _is_in_exec(pid: int) -> bool:
    """Whether it has memory of its own, and in it no place for an environment yet."""
    rest = _stat(pid)
    return len(rest) > 48 and rest[0] not in (b"Z", b"X") and rest[20] != b"0" and rest[48] == b"0"


# -- elsewhere


def _pids_from_psutil() -> list[int]:
    import psutil

    return psutil.pids()


def _row_from_psutil(pid: int) -> ProcessInfo | None:
    import psutil

    # fmt: off
    letters = {
        psutil.STATUS_ZOMBIE: "Z", psutil.STATUS_DEAD: "X", psutil.STATUS_STOPPED: "T", psutil.STATUS_TRACING_STOP: "t",
    }
    # fmt: on
    try:
        process = psutil.Process(pid)
        state = letters.get(process.status(), "S")
        return ProcessInfo(pid, process.ppid(), os.getpgid(pid), os.getsid(pid), state, process.create_time())
    except psutil.ZombieProcess:
        return ProcessInfo(pid, 0, 0, 0, "Z", 0.0)
    except (psutil.Error, OSError):
        return None


def _environment_from_psutil(pid: int) -> list[str]:
    import psutil

    try:
        return [f"{name}={value}" for name, value in psutil.Process(pid).environ().items()]
    except (psutil.Error, OSError):
        return []
