"""A runtime is killed with SIGKILL at random moments, and started again each time until its runs are finished.

The witness is the tools' own diary: nothing is done twice, nothing acts after its undo, nothing outlives its runtime,
and whatever nobody can know is shown as in doubt.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from functools import reduce
from itertools import count
from operator import add
from pathlib import Path

import pytest

from tests.torture.crash.runtime.saga import Toll, play

KILLS_A_SAGA = 10
SIDE_BY_SIDE = 2


def kill(hands: ProcessPoolExecutor, where: Path, kills: int, seed: int) -> Toll:
    """So many kills, spread over as many stores as it takes, two at a time."""
    total, seeds = Toll(), count(seed)
    while total.kills < kills and not total.wrong:
        wanted = min(KILLS_A_SAGA, -(-(kills - total.kills) // SIDE_BY_SIDE))
        some = [next(seeds) for _ in range(SIDE_BY_SIDE)]
        playing = [hands.submit(play, where / str(one), one, wanted) for one in some]
        total = reduce(add, (saga.result() for saga in playing), total)
    return total


def test_nothing_is_done_twice_and_nothing_survives_a_kill(hands, scratch, seed, tell):
    """D2 D4 D26 D29 D30 D33"""
    toll = kill(hands, scratch / "few", 10, seed)

    tell(str(toll))
    assert toll.wrong == []
    assert toll.in_doubt == toll.unknown


@pytest.mark.torture
def test_nothing_is_done_twice_and_nothing_survives_five_hundred_kills(hands, scratch, seed, tell):
    """D2 D4 D26 D29 D30 D33"""
    toll = kill(hands, scratch / "many", 500, seed)

    tell(str(toll))
    assert toll.wrong == []
    assert toll.in_doubt == toll.unknown
    assert toll.unknown > 100, "the kills hit calls in flight"
