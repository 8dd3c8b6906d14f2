"""A mark that no clean environment takes off: a number among the resource limits of a process.

Limits are inherited through `fork` and `exec`, and neither `env -i`, `setsid`, `nohup` nor a double fork changes them.
The one used here, for how long a real-time process may compute without a pause, concerns nobody: the number is that of
some hundred thousand years. It names a runtime and a call of it, both as check sums.

Linux only; elsewhere, and where the limit may not be raised so far, nothing is marked and only the environment tells
(`env_marks`). Standard library only: workers and the supervisor's child start with it.
"""

from __future__ import annotations

import os
import threading
from binascii import crc32
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from checkrein.processes import table

try:
    import resource
except ImportError:  # Windows
    _LIMIT: int | None = None
else:
    _LIMIT = getattr(resource, "RLIMIT_RTTIME", None) if table.LINUX else None

_OURS: Final = 1 << 62
"""In every such number, and in no limit that anybody else would set."""
_RUNTIME_BITS: Final = (1 << 30) - 1
_CALL_BITS: Final = (1 << 32) - 1


def number(runtime: str, call: str | None = None) -> int:
    """What the processes of a call wear; without a call, those that a runtime has started otherwise."""
    return _OURS | _runtime_part(runtime) << 32 | (0 if call is None else crc32(call.encode()))


def is_ours(found: int) -> bool:
    """Whether this is the mark of any runtime."""
    return bool(found & _OURS)


def is_of_runtime(found: int, runtime: str) -> bool:
    return bool(found & _OURS) and found >> 32 & _RUNTIME_BITS == _runtime_part(runtime)


def is_of_call(found: int, call: str) -> bool:
    return bool(found & _OURS) and found & _CALL_BITS == crc32(call.encode())


def _runtime_part(runtime: str) -> int:
    return crc32(runtime.encode()) & _RUNTIME_BITS


def wear(mark: int) -> int | None:
    """Put `mark` on this process, for all that it starts from now on. Returns what it wore before; None when it may
    not."""
    if _LIMIT is None:
        return None
    try:
        before, most = resource.getrlimit(_LIMIT)
        resource.setrlimit(_LIMIT, (mark, most))
    except (OSError, ValueError):
        return None
    return before


@contextmanager
def worn_by_self() -> Iterator[bool]:
    """Inside, this process wears a mark: its own, else one of no runtime and no call. Gives whether it does.

    What it starts wears one from its first moment, between `fork` and `exec` too.
    """
    before = None if (is_marked := is_ours(table.limit_mark(os.getpid()))) else wear(_OURS)
    try:
        yield is_marked or before is not None
    finally:
        if before is not None:
            wear(before)


_starting = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _starting._at_fork_reinit())  # type: ignore[attr-defined]


@contextmanager
def worn(mark: int | None) -> Iterator[None]:
    """What this process starts inside wears `mark`; with None, what it itself wears. One thread at a time: the limits
    of a process are those of all its threads, and a process of another call must not be started meanwhile."""
    with _starting:
        before = None if mark is None else wear(mark)
        try:
            yield
        finally:
            if before is not None:
                wear(before)
