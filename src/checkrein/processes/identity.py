"""Who this process is, and whether another one is known to be dead.

*Known dead* is never a guess: it takes the same host, and there either another boot or a process table in which that
process is missing. About a process of another host nothing can be known from here.
"""

from __future__ import annotations

import os
import socket
import subprocess
import uuid
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import Final, Literal

import msgspec

from checkrein.journal.base import Owner
from checkrein.processes import table

_FIRST_NAMESPACE: Final = "pid:[4026531836]"
"""The pid namespace of the host itself: its number is fixed in the kernel."""


def this_process() -> Owner:
    """This process: the same for as long as it lives, and never the same as any other, a fork of it included."""
    return _owner(os.getpid())


@lru_cache(maxsize=1)
def _owner(pid: int) -> Owner:
    found = table.row(pid)
    return Owner(
        process=str(uuid.uuid4()),
        host=_host(),
        boot_id=_boot_id(),
        pid=pid,
        started=0.0 if found is None else found.started,
    )


@cache
def program_version() -> str:
    """The version of Checkrein in this process; empty where it was not installed."""
    try:
        return version("checkrein")
    except PackageNotFoundError:
        return ""


def in_role(owner: Owner, role: Literal["control", "halt"]) -> Owner:
    """Another owner that lives and dies with the process of `owner`: it must claim a run from `owner` like anybody.

    All of one process that control its runs are the same owner. Each halt is one of its own: two must not share a run.
    """
    name = f"{role}-{uuid.uuid4().hex[:8]}" if role == "halt" else role
    return msgspec.structs.replace(owner, process=f"{owner.process}-{name}")


def is_passing(owner: Owner) -> bool:
    """Whether this owner does not drive runs: it has one for a moment, settles something, and lets it go."""
    return owner.process.endswith("-control") or "-halt-" in owner.process


def is_known_dead(owner: Owner) -> bool:
    """Whether nothing that `owner` ever began can still be going on in it.

    True only when it lived on this host, and the host has booted since, or its (pid, start time) is gone or a zombie.
    False whenever that cannot be told: another host or container, an owner that did not say who it is, a process that
    may not be looked at.
    """
    if not owner.host or owner.host != _host():
        return False
    if owner.boot_id and _boot_id() and owner.boot_id != _boot_id():
        return True
    if owner.pid <= 0 or (owner.pid == os.getpid() and owner.started == this_process().started):
        return False
    found = table.row(owner.pid)
    if found is None:
        return not _exists(owner.pid)
    if not found.lives:
        return True
    return bool(owner.started) and found.started != owner.started


def lives_here(owner: Owner) -> bool:
    """Whether `owner` is known to live, because it does on this host. Frozen it lives: it may go on at any moment."""
    return bool(owner.host) and owner.host == _host() and owner.pid > 0 and not is_known_dead(owner)


def _exists(pid: int) -> bool:
    """Whether there is such a process, also where it may not be looked at."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


@cache
def _host() -> str:
    """The host's name; in a container also its pid namespace, since a pid means nothing in another one.

    Containers may share a name and a boot id. Taking one's processes for dead in the other would be a guess.
    """
    name = socket.gethostname()
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        return name
    return name if namespace == _FIRST_NAMESPACE else f"{name}/{namespace}"


@cache
def _boot_id() -> str:
    """What changes when the host restarts and never otherwise; empty where the system tells nothing of the kind.

    The time of the boot will not do: it moves when the clock is set.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        pass
    try:
        asked = subprocess.run(["sysctl", "-n", "kern.bootsessionuuid"], capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.SubprocessError):
        return ""
    return asked.stdout.strip() if asked.returncode == 0 else ""
