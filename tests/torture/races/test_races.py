"""Completion against verbs, thousands of times, in one process.

The moments are chosen so that both sides win: most verbs come within a few rounds of the event loop of the run's end,
the others just before or after something that the driver asks of the journal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from checkrein.core.enums import When
from tests.torture.races.meeting import KINDS, Meeting, Score, opened
from tests.torture.races.moments import Turn
from tests.torture.races.race import Move, race

pytestmark = pytest.mark.anyio

SOME: Final = {"memory": 200, "sqlite": 60}
MANY: Final = {
    ("memory", "cancel"): 9000,
    ("sqlite", "cancel"): 3000,
    ("memory", "two cancels"): 6000,
    ("sqlite", "two cancels"): 2000,
}
"""20,000 with a cancel. The other verbs have 500 each, on either kind of journal."""


@pytest.mark.parametrize("store", SOME)
@pytest.mark.parametrize("kind", KINDS)
async def test_completion_and_a_verb_have_one_winner_and_both_learn_which(
    store: str, kind: str, seed: int, tell: Callable[..., None]
) -> None:
    """D7 D3 D26 D33: also what was undone, what the model heard and what the receipts say is as it was told."""
    score = await hold(store, kind, SOME[store], seed, tell)

    assert score.verb_won, f"no race: {score}"
    assert score.end_won, f"no race: {score}"


@pytest.mark.parametrize("store", SOME)
async def test_a_redirect_while_a_paused_run_gets_its_driver_is_heard_by_it(store: str) -> None:
    """D3: nobody drove the run when the redirect was asked for, and somebody did when it was accepted."""
    just_claiming = Turn(1, after=True)
    pause = Move(verb="pause", moment=just_claiming)
    redirect = Move(verb="redirect", moment=just_claiming, when=When.NEXT_STEP)

    async with opened(store) as (runtime, gates):
        raced = await race(runtime, gates, "talker", (pause, redirect))

    assert raced.result == "done"


@pytest.mark.torture
@pytest.mark.parametrize("store", SOME)
@pytest.mark.parametrize("kind", KINDS)
async def test_the_same_twenty_thousand_times(store: str, kind: str, seed: int, tell: Callable[..., None]) -> None:
    """D7 D3 D26 D33"""
    races = MANY.get((store, kind), 500)

    score = await hold(store, kind, races, seed, tell)

    assert min(score.verb_won, score.end_won) >= races / 20, f"no race: {score}"


async def hold(store: str, kind: str, races: int, seed: int, tell: Callable[..., None]) -> Score:
    score = await Meeting(store, kind, seed).hold(races)
    tell(f"{kind} against completion, in process, on {store}: {score}", **score.counts())

    assert not score.fouls, f"{score}\n\n{score.fouls[0]}"
    assert score.races == races
    return score
