"""Whose processes: everything that a call, a worker or a runtime has started, and how it is ended or frozen for good.

A `Family` is found again and again by what cannot be shaken off all at once: the marks in the environment and in the
resource limits, descent from a known member, and the process group or session that a member leads. Whoever was once
seen stays known, also when its parent dies and it moves to process 1.

How to end or freeze a family is written here once, as steps that yield how long to wait before the next one; the
runtime walks them on its event loop (`termination`), the supervisor's child with `time.sleep`. Standard library only.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from typing import Final, TypeVar

from checkrein.processes import limit_marks, table
from checkrein.processes.table import ProcessInfo
from checkrein.timings import KILL_LIMIT_SECONDS

T = TypeVar("T")
Steps = Generator[float, None, T]
"""Each value is the number of seconds to wait before the next step; the return value is the result."""

_SHORTEST: Final = 0.003
_LONGEST: Final = 0.1
_WORN: Final = {"CHECKREIN_RUNTIME": limit_marks.is_of_runtime, "CHECKREIN_CALL": limit_marks.is_of_call}
"""The marks that are also in the limits of a process, by the name of their variable."""
_KILLS: Final = 5
"""Nobody is given up before so many kills, however late it is."""
_AGE_MARGIN: Final = 2.0
"""Start times are counted in ticks of 10 ms, and `since` was read a moment before or after."""


class Family:
    """The processes that carry one of `marks` or descend from one of `roots`, the roots included.

    A mark is a pair of a variable and a value; a variable holds the marks of all runtimes around a process, separated
    by commas, so a runtime within a tool of another runtime takes nothing away from the outer one. `since`, if given,
    is the start time of a process that is older than every mark: older processes are not looked into.

    This process and its ancestors never belong to any family.
    """

    def __init__(
        self, *, marks: Collection[tuple[str, str]] = (), roots: Iterable[ProcessInfo] = (), since: float = 0.0
    ) -> None:
        self._marks = tuple(marks)
        self._names = frozenset(name for name, _ in self._marks)
        self._worn = tuple((_WORN[name], value) for name, value in self._marks if name in _WORN)
        self._since = since - _AGE_MARGIN
        self._known: set[tuple[int, float]] = {root.key for root in roots}

    def add(self, root: ProcessInfo) -> None:
        """From now on `root` and whatever descends from it belong to the family."""
        self._known.add(root.key)

    def members(self, on_sight: Callable[[ProcessInfo], object] | None = None) -> list[ProcessInfo]:
        """Whoever of the family lives. On Linux an empty list is proof, also against a member that forks and dies while
        this looks, as long as its marks are left to it.

        `on_sight` is called with each that carries a mark at the moment it is found: one that lives for a few
        milliseconds is gone by the time everybody has been looked at.
        """
        rows: dict[int, ProcessInfo] = {}
        protected = frozenset[int]() if on_sight is None else _line_of_self()
        for fresh in table.looks():
            rows.update(fresh)
            # Before the next look, and of those in this one: one that dies before its marks are read has its
            # children in the next. The newest first: they are the ones that may be about to go.
            for found in reversed(fresh.values()):
                if self._is_marked(found):
                    self._known.add(found.key)
                    if on_sight is not None and found.pid not in protected:
                        on_sight(found)
        ours = self._ours(rows)
        # Only who is still in the table can lead to others; forgetting the rest keeps this small.
        self._known = {member.key for member in ours.values()}
        return [member for member in ours.values() if member.lives]

    def _ours(self, rows: dict[int, ProcessInfo]) -> dict[int, ProcessInfo]:
        protected = _protected(rows)
        others = [found for pid, found in rows.items() if pid not in protected]
        ours = {found.pid: found for found in others if found.key in self._known}
        newest = list(ours.values())
        by_link = _by_link(others) if newest else {}
        while newest:
            newest = [child for member in newest for child in _led_by(member, by_link) if child.pid not in ours]
            ours.update((child.pid, child) for child in newest)
        return ours

    def _is_marked(self, found: ProcessInfo) -> bool:
        if not self._marks or found.started < self._since or not found.lives:
            return False
        worn = table.limit_mark(found.pid) if self._worn else 0
        if worn and any(is_of(worn, value) for is_of, value in self._worn):
            return True
        carried = table.marks(found.pid, self._names)
        return bool(carried) and any(value in carried.get(name, "").split(",") for name, value in self._marks)


def _protected(rows: dict[int, ProcessInfo]) -> set[int]:
    """This process and its ancestors."""
    line = {0, 1}
    pid = os.getpid()
    while pid not in line:
        line.add(pid)
        pid = rows[pid].parent if pid in rows else 0
    return line


def _line_of_self() -> frozenset[int]:
    """The numbers of this process and its ancestors, without a look at everybody."""
    line = {0, 1}
    pid = os.getpid()
    while pid not in line:
        line.add(pid)
        found = table.row(pid)
        pid = 0 if found is None else found.parent
    return frozenset(line)


def _by_link(rows: Iterable[ProcessInfo]) -> dict[tuple[str, int], list[ProcessInfo]]:
    found: dict[tuple[str, int], list[ProcessInfo]] = {}
    for one in rows:
        for link in (("parent", one.parent), ("group", one.group), ("session", one.session)):
            found.setdefault(link, []).append(one)
    return found


def _led_by(member: ProcessInfo, by_link: dict[tuple[str, int], list[ProcessInfo]]) -> Iterator[ProcessInfo]:
    """The children of a member, and the group and session it leads: as long as it is in the table, if only as a zombie,
    its number is nobody else's."""
    yield from (child for child in by_link.get(("parent", member.pid), ()) if child.started >= member.started)
    if member.group == member.pid:
        yield from by_link.get(("group", member.pid), ())
    if member.session == member.pid:
        yield from by_link.get(("session", member.pid), ())


def ending(
    family: Family, *, until: Callable[[], float], limit_seconds: float = KILL_LIMIT_SECONDS
) -> Steps[list[ProcessInfo]]:
    """End every member: SIGTERM first, and once `until()` (on the monotonic clock) has passed, SIGKILL.

    Before the SIGKILL all members are frozen, round after round, until a look finds nobody new: what cannot run cannot
    fork, so nobody slips out between the look and the kill. Returns who could not be ended within the limit: processes
    of another user, or stuck in the kernel. An empty list means that nobody is left. The time is over only after some
    kills: whoever takes these steps may itself stand still, for longer than the limit, before the first.
    """
    yield from _asking(family, until)
    give_up = time.monotonic() + limit_seconds
    waits = _growing()
    kills = 0
    while members := family.members():
        if time.monotonic() > give_up and kills >= _KILLS:
            return members
        yield from freezing(family, limit_seconds=0.5)
        for member in family.members():
            table.send(member, signal.SIGKILL)
        kills += 1
        yield next(waits)
    return []


def kill_again(family: Family) -> list[ProcessInfo]:
    """Who lives that could not be ended: each is killed once more. One may have stood in the kernel until now, or
    whoever gave it up may have stood still itself."""
    members = family.members()
    for member in members:
        table.send(member, signal.SIGKILL)
    return members


def _asking(family: Family, until: Callable[[], float]) -> Steps[None]:
    asked: set[tuple[int, float]] = set()
    waits = _growing()
    while (left := until() - time.monotonic()) > 0 and (members := family.members()):
        for member in members:
            if member.key not in asked:
                asked.add(member.key)
                table.send(member, signal.SIGTERM)
                table.send(member, signal.SIGCONT)  # one that is stopped would not hear of it
        yield min(next(waits), left)


def freezing(family: Family, *, limit_seconds: float = 2.0) -> Steps[list[ProcessInfo]]:
    """Stop every member until a look finds all of them stopped. Returns those that were running before."""
    frozen: dict[tuple[int, float], ProcessInfo] = {}
    give_up = time.monotonic() + limit_seconds
    waits = _growing()

    def stop(member: ProcessInfo) -> None:
        if member.state not in table.STOPPED and member.key not in frozen and table.send(member, signal.SIGSTOP):
            frozen[member.key] = member

    while running := [member for member in family.members(stop) if member.state not in table.STOPPED]:
        for member in running:
            frozen.pop(member.key, None)  # somebody may have continued it since
            stop(member)
        if time.monotonic() > give_up:
            break
        yield next(waits)
    return list(frozen.values())


def _growing() -> Iterator[float]:
    wait = _SHORTEST
    while True:
        yield wait
        wait = min(wait * 1.5, _LONGEST)


def walk(steps: Steps[T]) -> T:
    """Take the steps in this thread, sleeping in between."""
    while True:
        try:
            time.sleep(next(steps))
        except StopIteration as end:
            result: T = end.value
            return result
