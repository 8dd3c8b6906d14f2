"""Orphans: processes whose parent has died, and which come to this process instead of process 1.

They come to one that adopts them (a subreaper), and to one that is the first of its pid namespace, as in a container.
Adopted, whatever a tool has started can be found that carries no mark any more: it has taken off its environment and
its limits, and left its session and its parent (`strays`). And nobody else can wait for an orphan, so each would stay
in the process table as a zombie until this process ends.

Standard library only: workers start with it.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from typing import Final

from checkrein.processes import limit_marks, table
from checkrein.processes.table import ProcessInfo

LOOK_SECONDS: Final = 2.0
_STALE_LOOKS: Final = 15
"""A zombie that nobody here has started is reaped after so many looks: somebody may have begun it in a way that is not
known here, and be about to ask for its status."""
_SET_CHILD_SUBREAPER: Final = 36
_MARKS: Final = frozenset({"CHECKREIN_RUNTIME", "CHECKREIN_CALL", "CHECKREIN_WORKER", "CHECKREIN_SERVER"})

_adopting: int | None = None
"""The number of the process that adopts: a fork of it does not."""
_own: Final[set[int]] = set()
_can_tell = False
"""Whether this process wears a mark itself: then a child without one has taken it off, and none that was only just
started, or that code outside of any call has left behind, is taken for a stray."""


def adopt(wanted: bool = True) -> None:
    """Let descendants whose parent dies become children of this process. Linux only; elsewhere nothing happens."""
    global _adopting
    if not table.LINUX:
        return
    import ctypes

    with suppress(OSError, AttributeError):
        if ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0) == 0:
            _adopting = os.getpid() if wanted else None


def note_own(pid: int | None) -> None:
    """A child that this process has started itself."""
    if pid and _adopting is not None:
        _own.add(pid)


def strays(since: float) -> list[ProcessInfo]:
    """Children that were adopted and carry no mark, and began at `since` (`table.now`) or later."""
    if _adopting != os.getpid() or not _can_tell:
        return []
    children = table.children(os.getpid())
    return [one for one in children if one.lives and one.started >= since and _is_stray(one)]


def _is_stray(one: ProcessInfo) -> bool:
    is_marked = limit_marks.is_ours(table.limit_mark(one.pid)) or table.marks(one.pid, _MARKS)
    # Asked last: one that has ended meanwhile shows no marks.
    return one.pid not in _own and not is_marked and table.is_alive(one)


def _forget_gone() -> None:
    """One by one: a child that another thread starts meanwhile is not among children that were listed before."""
    for pid in tuple(_own):
        found = table.row(pid)
        if found is None or found.parent != os.getpid():
            _own.discard(pid)


def is_first() -> bool:
    """Whether orphans come to this process."""
    return os.getpid() == 1


def reap(except_for: Collection[int]) -> list[int]:
    """Take zombies that are children of this process from the process table, but for those that somebody here waits
    for. Returns which."""
    dead = [row.pid for row in table.children(os.getpid()) if not row.lives and row.pid not in except_for]
    for pid in dead:
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    return dead


async def reap_for_ever(own: Collection[int]) -> None:
    """`own` are the children of whoever calls, as they are at each moment."""
    import asyncio

    while True:
        await asyncio.sleep(LOOK_SECONDS)
        reap(own)


@asynccontextmanager
async def adopting() -> AsyncIterator[None]:
    """Inside, orphans below this process come to it, and are reaped when they have ended."""
    import asyncio

    global _can_tell
    with limit_marks.worn_by_self() as _can_tell:
        adopt()
        reaping = asyncio.ensure_future(_reap_adopted_for_ever())
        try:
            yield
        finally:
            reaping.cancel()
            adopt(False)
            _can_tell = False


async def _reap_adopted_for_ever() -> None:
    """Take adopted zombies from the process table; not at once, and none that this process has started itself."""
    import asyncio

    seen: dict[tuple[int, float], int] = {}
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        _forget_gone()
        children = table.children(os.getpid())
        dead = [one for one in children if not one.lives and one.pid not in _own]
        seen = {one.key: seen.get(one.key, 0) + 1 for one in dead}
        stale = {pid for (pid, _), looks in seen.items() if looks >= _STALE_LOOKS}
        reap([one.pid for one in children if one.pid not in stale])
