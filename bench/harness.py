"""What benchmarks share: a room to work in, measures with targets, and comparisons that are fair on a busy machine."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Final, Literal, NamedTuple

import msgspec

MICRO: Final = 1e6
MILLI: Final = 1e3


class Target(msgspec.Struct, frozen=True):
    bound: Literal["at most", "at least"]
    limit: float

    def is_met_by(self, value: float) -> bool:
        return value <= self.limit if self.bound == "at most" else value >= self.limit


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the report. Without a target it is there to explain another."""

    what: str
    value: float
    unit: str
    target: Target | None = None
    note: str = ""

    @property
    def is_met(self) -> bool | None:
        return None if self.target is None else self.target.is_met_by(self.value)


def left_out(what: str, unit: str, why: str) -> Measure:
    """A line for what could not be measured here."""
    return Measure(what=what, value=math.nan, unit=unit, note=f"left out: {why}")


class Room(msgspec.Struct, frozen=True):
    """Where a benchmark works: an empty folder on a real disk, and whether it should hurry."""

    folder: Path
    is_quick: bool

    def count(self, full: int, quick: int) -> int:
        return quick if self.is_quick else full

    def address(self, name: str) -> str:
        return f"sqlite:///{self.folder / name}.db"


class Benchmark(NamedTuple):
    name: str
    what: str
    measure: Callable[[Room], Awaitable[list[Measure]]]


Turn = Callable[[], Awaitable[Sequence[float]]]
"""One side's turn: does the same work every time and returns what it took, as one sample or several."""


class Rounds:
    """Sides that take turns, compared round by round.

    The median of the rounds' ratios is what counts: a disturbance that lasts for a while slows every side of its rounds
    and leaves their ratios nearly alone, which the ratio of two overall medians would not survive.
    """

    def __init__(self, **sides: Turn) -> None:
        self._sides = sides
        self._medians: dict[str, list[float]] = {name: [] for name in sides}
        self.samples: dict[str, list[float]] = {name: [] for name in sides}

    async def warm_up(self, rounds: int) -> None:
        """What comes before is not counted: growing files, cold caches."""
        for _ in range(rounds):
            for turn in self._sides.values():
                await turn()

    async def run(self, rounds: int) -> None:
        """Every side once in each round, another one first each time."""
        names = list(self._sides)
        for n in range(rounds):
            for name in names[n % len(names) :] + names[: n % len(names)]:
                samples = await self._sides[name]()
                self.samples[name] += samples
                self._medians[name].append(median(samples))

    def ratio(self, what: str, ours: str, theirs: str, target: Target | None = None, *, together: int = 1) -> Measure:
        """With `together`, so many rounds count as one: work that is done piece by piece, to be compared as a whole."""
        pairs = zip(self._sums(ours, together), self._sums(theirs, together), strict=True)
        low, middle, high = quantiles([a / b for a, b in pairs], n=4)
        note = f"half of the rounds between {low:.3g} and {high:.3g}"
        return Measure(what=what, value=middle, unit="×", target=target, note=note)

    def _sums(self, name: str, together: int) -> list[float]:
        medians = self._medians[name]
        return [sum(medians[at : at + together]) for at in range(0, len(medians), together)]

    def median(self, name: str) -> float:
        return median(self.samples[name])


def quantile(samples: Sequence[float], part: float) -> float:
    """The smallest sample that is not below `part` of all."""
    return sorted(samples)[max(0, math.ceil(part * len(samples)) - 1)]


def latencies(what: str, seconds: Sequence[float], *, unit: Literal["µs", "ms"] = "µs") -> list[Measure]:
    """The usual and the worst of some times."""
    factor = MICRO if unit == "µs" else MILLI
    return [
        Measure(what=f"{what}, p50", value=quantile(seconds, 0.50) * factor, unit=unit),
        Measure(what=f"{what}, p99", value=quantile(seconds, 0.99) * factor, unit=unit),
    ]
