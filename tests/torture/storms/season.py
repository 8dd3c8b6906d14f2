"""Many storms on one server, several at a time, and what is left when it has ended."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.patience import PATIENCE_SECONDS
from tests.torture.storms.house import House
from tests.torture.storms.storm import Storm


@dataclass
class Season:
    storms: list[Storm] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    """What was found, each with the seed of its storm."""
    seconds: float = 0.0

    def __str__(self) -> str:
        steps = Counter(line.split()[0] for storm in self.storms for line in storm.story)
        lines = [
            f"{len(self.storms)} storms in {self.seconds:.0f} s, {sum(steps.values())} deeds, "
            f"{sum(len(storm.stopped) for storm in self.storms)} stopped calls that wrote nothing afterwards, "
            f"{sum(storm.set_aside for storm in self.storms)} innocent runs set aside and resumed, "
            f"{len(self.wrong)} wrong",
            *self.wrong,
        ]
        return "\n".join(lines)


def play(
    folder: Path, seed: int, many: int, *, side_by_side: int, with_clock: bool = False, aloud: bool = False
) -> Season:
    """So many storms, with this seed and those after it."""
    began = time.monotonic()
    house = House(folder, with_clock=with_clock)
    season = Season([Storm(house, one, aloud=aloud) for one in range(seed, seed + many)])
    try:
        with ThreadPoolExecutor(side_by_side) as pool:
            list(pool.map(Storm.play, season.storms))
        for storm in season.storms:
            storm.look_back()
        _end(house, season)
    finally:
        house.close()
    season.wrong += house.wrong
    season.wrong += [f"storm {storm.seed}: {what}" for storm in season.storms for what in storm.wrong]
    season.seconds = time.monotonic() - began
    return season


def _end(house: House, season: Season) -> None:
    """Shut the server down: then nothing of it is left, and nothing is written any more."""
    if (code := house.end()) != 0:
        season.wrong.append(f"the server ended with {code}: {house.said()}")
    give_up = time.monotonic() + PATIENCE_SECONDS / 3
    while house.left() and time.monotonic() < give_up:
        time.sleep(0.2)
    season.wrong += [f"left after the server has ended: {one}" for one in house.left()]
    for storm in season.storms:
        storm.look_back()
