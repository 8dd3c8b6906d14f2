"""Storms on one running server: every verb is answered, every cancel settles, and what was stopped is stopped.

A storm that fails names its seed; `python -m tests.torture.storms SEED` plays it again, and tells its story.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.torture.crash.shim import missing_compiler
from tests.torture.folders import folder_in_memory
from tests.torture.storms import storm
from tests.torture.storms.house import CAST, House
from tests.torture.storms.season import play

SEED = "CHECKREIN_STORM_SEED"


@pytest.fixture
def folder() -> Iterator[Path]:
    with folder_in_memory("checkrein-storms-") as made:
        yield made


@pytest.fixture
def seed() -> int:
    return int(os.environ.get(SEED) or random.SystemRandom().randrange(1, 10**6))


def test_what_is_stopped_in_half_a_dozen_storms_is_stopped_and_nobody_else_is_disturbed(folder: Path) -> None:
    """D2 D4 D16 D29 D30 P6: always the same, so that a change is what makes a difference."""
    season = play(folder, 1, 6, side_by_side=6)

    assert not season.wrong, str(season)


@pytest.mark.torture
def test_what_is_stopped_in_seven_hundred_storms_is_stopped_and_nobody_else_is_disturbed(
    folder: Path, seed: int
) -> None:
    season = play(folder, seed, 700, side_by_side=8)

    print(season)
    assert not season.wrong, f"{season} [{SEED}={seed}]"


@pytest.mark.torture
def test_three_hundred_storms_in_which_the_clock_jumps_by_an_hour_either_way(folder: Path, seed: int) -> None:
    """S19: the clock of every process of the server, and of the tools; monotonic clocks stay as they are."""
    if (reason := missing_compiler()) is not None:
        pytest.skip(reason)
    season = play(folder, seed, 300, side_by_side=8, with_clock=True)

    print(season)
    assert not season.wrong, f"{season} [{SEED}={seed}]"


def test_the_storms_know_every_tool_model_and_deed_of_the_cast() -> None:
    names = CAST.read_text()

    assert all(f" {name}(key: str, n: int)" in names for name in storm.TOOLS)
    assert names.count("(key: str, n: int)") == len(storm.TOOLS) + names.count("def fork_on") + names.count(
        "def daemon"
    )


def test_a_line_after_a_receipt_is_found_and_one_before_it_is_not(tmp_path: Path) -> None:
    house = House.__new__(House)
    house.log = tmp_path / "log"
    house.log.write_text("s1-a.0 tick\ns1-a.1 tick\n")
    played = storm.Storm(house, 1)
    played.stopped = [storm.Stopped("s1-a", n, f"call {n} aborted", house.written()) for n in (0, 1)]

    with house.log.open("a") as log:
        log.write("s1-a.1 tick\ns1-b.0 tick\ns1-a.10 tick\n")
    played.look_back()

    assert played.wrong == ["call 1 aborted, and wrote 1 lines afterwards: ['tick']"]
    assert [one.n for one in played.stopped] == [0]
