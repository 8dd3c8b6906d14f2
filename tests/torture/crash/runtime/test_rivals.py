"""Several runtimes on one store: each run is driven once, and what one leaves by its death another takes up."""

from __future__ import annotations

import pytest

from tests.torture.crash.runtime.rivals import RUNS, compete


@pytest.mark.parametrize("rivals", [2, pytest.param(3, marks=pytest.mark.torture)])
def test_each_run_is_driven_once_and_those_of_a_dead_runtime_are_taken_over_once(hands, scratch, seed, tell, rivals):
    """D29 D30: by the tools' own diary no call is made twice."""
    contest = hands.submit(compete, scratch / f"rivals-{rivals}", seed, rivals).result()

    tell(str(contest))
    assert contest.wrong == []
    assert contest.twice == []
    assert sum(contest.took) == RUNS
    assert contest.taken_over == contest.orphans
