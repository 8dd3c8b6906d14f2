"""Breadth-first search over every interleaving, to the last new world."""

from __future__ import annotations

import gc
import time
from array import array
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from checkrein.core.enums import Status
from tests.torture.explore.moves import moves
from tests.torture.explore.world import Bounds, Violation, World, canonical, first_world, key


class Found(NamedTuple):
    worlds: int
    edges: int
    finished: int
    depth: int
    seconds: float
    statuses: frozenset[Status]

    def __str__(self) -> str:
        rate = self.worlds / max(self.seconds, 1e-9)
        return (
            f"{self.worlds:,} worlds, {self.edges:,} moves, {self.finished:,} finished, depth {self.depth}, "
            f"{self.seconds:.1f} s ({rate:,.0f}/s)"
        )


class CounterExample(AssertionError):
    """A promise is broken; the message is the shortest way there."""

    def __init__(self, violation: str, trace: list[str]) -> None:
        super().__init__(f"{violation}\n  " + "\n  ".join(trace))
        self.violation = violation
        self.trace = trace


def explore(bounds: Bounds, *, most: int = 20_000_000, progress: Callable[[str], None] | None = None) -> Found:
    """Visit every world within `bounds`; raise `CounterExample` where a promise is broken.

    Besides the promises that are watched at each move, every world must still be able to reach a finished one.
    """
    was_enabled = gc.isenabled()
    gc.disable()  # nothing here is cyclic, and looking for cycles costs almost as much as the search
    try:
        return _Search(bounds, most, progress).run()
    finally:
        if was_enabled:
            gc.enable()


class _Search:
    def __init__(self, bounds: Bounds, most: int, progress: Callable[[str], None] | None) -> None:
        self.bounds, self.most, self.progress = bounds, most, progress
        self.number: dict[bytes, int] = {}
        self.parent = array("l")
        self.label: list[str] = []
        self.source, self.target = array("l"), array("l")
        self.finished = array("b")
        self.depth = array("h")
        self.statuses: set[Status] = set()
        self.queue: deque[World] = deque()

    def run(self) -> Found:
        started = time.perf_counter()
        self._add(first_world(self.bounds), -1, "begin")
        at = -1
        while self.queue:
            world = self.queue.popleft()
            at += 1
            self._expand(at, world)
            if self.progress and at % 100_000 == 0 and at:
                self.progress(f"{at:,} of {len(self.parent):,} worlds, depth {self.depth[at]}")
        self._check_every_world_can_finish()
        seconds = time.perf_counter() - started
        return Found(
            worlds=len(self.parent),
            edges=len(self.source),
            finished=sum(self.finished),
            depth=max(self.depth),
            seconds=seconds,
            statuses=frozenset(self.statuses),
        )

    def _expand(self, at: int, world: World) -> None:
        try:
            for label, after in moves(world, self.bounds):
                number = self._add(after, at, label)
                self.source.append(at)
                self.target.append(number)
        except Violation as violation:
            raise CounterExample(str(violation), self._trace(at)) from None

    def _add(self, world: World, parent: int, label: str) -> int:
        world = canonical(world)
        identity = key(world)
        number = self.number.get(identity)
        if number is None:
            number = self.number[identity] = len(self.parent)
            if number >= self.most:
                raise RuntimeError(f"more than {self.most:,} worlds; tighten the bounds")
            self.parent.append(parent)
            self.label.append(label)
            self.finished.append(world.state.is_finished)
            self.statuses.add(world.state.status)
            self.depth.append(0 if parent < 0 else self.depth[parent] + 1)
            self.queue.append(world)
        return number

    def _trace(self, number: int) -> list[str]:
        labels = []
        while number >= 0:
            labels.append(self.label[number])
            number = self.parent[number]
        return labels[::-1]

    def _check_every_world_can_finish(self) -> None:
        before: dict[int, list[int]] = {}
        for source, target in zip(self.source, self.target, strict=True):
            before.setdefault(target, []).append(source)
        can = bytearray(self.finished)
        todo = [number for number, done in enumerate(can) if done]
        while todo:
            for source in before.get(todo.pop(), ()):
                if not can[source]:
                    can[source] = 1
                    todo.append(source)
        stuck = can.find(0)
        if stuck >= 0:
            raise CounterExample("stuck: no finished world can be reached from here", self._trace(stuck))
