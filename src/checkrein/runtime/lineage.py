"""Whose processes: everything that a call, a worker or a runtime has started, and how it is ended or frozen for good.

A `Family` is found again and again by what cannot be shaken off all at once: the marks in the environment, descent
from a known member, and the process group or session that a member leads. Whoever was once seen stays known, also when
its parent dies and it moves to process 1.

How to end or freeze a family is written here once, as steps that yield how long to wait before the next one; the
runtime walks them on its event loop (`processes`), the supervisor's child with `time.sleep`. Standard library only.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from typing import Final, TypeVar

from checkrein.runtime import table
from checkrein.runtime.table import Row

T = TypeVar("T")
Steps = Generator[float, None, T]
"""Each value is the number of seconds to wait before the next step; the return value is the result."""

_SHORTEST: Final = 0.003
_LONGEST: Final = 0.1
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
        self, *, marks: Collection[tuple[str, str]] = (), roots: Iterable[Row] = (), since: float = 0.0
    ) -> None:
        self._marks = tuple(marks)
        self._names = frozenset(name for name, _ in self._marks)
        self._since = since - _AGE_MARGIN
        self._known: set[tuple[int, float]] = {root.key for root in roots}

    def add(self, root: Row) -> None:
        """From now on `root` and whatever descends from it belong to the family."""
        self._known.add(root.key)

    def members(self) -> list[Row]:
        """Whoever of the family lives at this moment, as far as one look at the process table can tell."""
        rows = table.rows()
        ours = self._ours(rows)
        # Only who is still in the table can lead to others; forgetting the rest keeps this small.
        self._known = {member.key for member in ours.values()}
        return [member for member in ours.values() if member.lives]

    def _ours(self, rows: dict[int, Row]) -> dict[int, Row]:
        protected = _protected(rows)
        others = [found for pid, found in rows.items() if pid not in protected]
        ours = {found.pid: found for found in others if found.key in self._known or self._is_marked(found)}
        newest = list(ours.values())
        by_link = _by_link(others) if newest else {}
        while newest:
            newest = [child for member in newest for child in _led_by(member, by_link) if child.pid not in ours]
            ours.update((child.pid, child) for child in newest)
        return ours

    def _is_marked(self, found: Row) -> bool:
        if not self._marks or found.started < self._since or not found.lives:
            return False
        carried = table.marks(found.pid, self._names)
        return bool(carried) and any(value in carried.get(name, "").split(",") for name, value in self._marks)


def _protected(rows: dict[int, Row]) -> set[int]:
    """This process and its ancestors."""
    line = {0, 1}
    pid = os.getpid()
    while pid not in line:
        line.add(pid)
        pid = rows[pid].parent if pid in rows else 0
    return line


def _by_link(rows: Iterable[Row]) -> dict[tuple[str, int], list[Row]]:
    found: dict[tuple[str, int], list[Row]] = {}
    for one in rows:
        for link in (("parent", one.parent), ("group", one.group), ("session", one.session)):
            found.setdefault(link, []).append(one)
    return found


def _led_by(member: Row, by_link: dict[tuple[str, int], list[Row]]) -> Iterator[Row]:
    """The children of a member, and the group and session it leads: as long as it is in the table, if only as a zombie,
    its number is nobody else's."""
    yield from (child for child in by_link.get(("parent", member.pid), ()) if child.started >= member.started)
    if member.group == member.pid:
        yield from by_link.get(("group", member.pid), ())
    if member.session == member.pid:
        yield from by_link.get(("session", member.pid), ())


def ending(family: Family, *, until: Callable[[], float], limit_seconds: float = 5.0) -> Steps[list[Row]]:
    """End every member: SIGTERM first, and once `until()` (on the monotonic clock) has passed, SIGKILL.

    Before the SIGKILL all members are frozen, round after round, until a look finds nobody new: what cannot run cannot
    fork, so nobody slips out between the look and the kill. Returns who could not be ended within the limit: processes
    of another user, or stuck in the kernel. An empty list means that nobody is left.
    """
    yield from _asking(family, until)
    give_up = time.monotonic() + limit_seconds
    waits = _growing()
    while members := family.members():
        if time.monotonic() > give_up:
            return members
        yield from freezing(family, limit_seconds=0.5)
        for member in family.members():
            table.send(member, signal.SIGKILL)
        yield next(waits)
    return []


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


def freezing(family: Family, *, limit_seconds: float = 2.0) -> Steps[list[Row]]:
    """Stop every member until a look finds all of them stopped. Returns those that were running before."""
    frozen: dict[tuple[int, float], Row] = {}
    give_up = time.monotonic() + limit_seconds
    waits = _growing()
    while running := [member for member in family.members() if member.state not in table.STOPPED]:
        for member in running:
            if table.send(member, signal.SIGSTOP):
                frozen[member.key] = member
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
