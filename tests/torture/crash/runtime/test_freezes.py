"""A driver that was frozen beyond its lease wakes: it begins nothing, and commits nothing but what it has to answer."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from functools import reduce
from operator import add
from pathlib import Path

import pytest

from tests.torture.crash.runtime.frozen import (
    AFTER_PERMIT,
    AT_RANDOM,
    CLAIMED_IN_VAIN,
    FOR_LONG,
    THEN_KILLED,
    Thaw,
    freeze,
)


def freeze_many(hands: ProcessPoolExecutor, where: Path, times: int, seed: int, moment: str) -> Thaw:
    playing = [hands.submit(freeze, where / f"{moment[:2]}{n}", seed + n, moment) for n in range(times)]
    return reduce(add, (one.result() for one in playing), Thaw())


@pytest.mark.parametrize("moment", [AT_RANDOM, AFTER_PERMIT])
def test_a_frozen_driver_that_wakes_only_answers(hands, scratch, seed, tell, moment):
    """D3 D26 D30"""
    thaw = freeze_many(hands, scratch, 2, seed, moment)

    tell(f"{moment}: {thaw}")
    assert not thaw.wrong, "\n".join(thaw.wrong)
    assert thaw.taken_over > 0


def test_a_driver_that_was_frozen_for_long_is_not_taken_for_one_that_hangs(hands, scratch, seed, tell):
    """It would end itself, and what it knows would be lost."""
    thaw = freeze_many(hands, scratch, 1, seed, FOR_LONG)

    tell(f"{FOR_LONG}: {thaw}")
    assert not thaw.wrong, "\n".join(thaw.wrong)


def test_what_a_driver_that_died_frozen_was_doing_is_undone_once_it_is_known_to_be_dead(hands, scratch, seed, tell):
    """D33"""
    thaw = freeze_many(hands, scratch, 1, seed, THEN_KILLED)

    tell(f"{THEN_KILLED}: {thaw}")
    assert not thaw.wrong, "\n".join(thaw.wrong)


def test_a_frozen_driver_is_not_taken_for_dead_because_somebody_claimed_its_run_in_vain(hands, scratch, seed, tell):
    """Whoever takes a run over must ask who made its calls, and not who claimed it last. D33"""
    thaw = freeze_many(hands, scratch, 2, seed, CLAIMED_IN_VAIN)

    tell(f"{CLAIMED_IN_VAIN}: {thaw}")
    assert not thaw.wrong, "\n".join(thaw.wrong)
    assert thaw.unknown > 0


@pytest.mark.torture
@pytest.mark.parametrize("moment", [AT_RANDOM, AFTER_PERMIT, CLAIMED_IN_VAIN, THEN_KILLED])
def test_many_frozen_drivers_that_wake_only_answer(hands, scratch, seed, tell, moment):
    """D3 D26 D30"""
    thaw = freeze_many(hands, scratch / "many", 20, seed, moment)

    tell(f"{moment}: {thaw}")
    assert not thaw.wrong, "\n".join(thaw.wrong)
    assert thaw.taken_over > 0
    assert thaw.answered > 0
    assert moment != AFTER_PERMIT or thaw.unused > 0
