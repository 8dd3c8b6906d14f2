"""A wrong value in any cell of the verb table is noticed: by the table itself when it is loaded, or by its tests.

Each wrong table is given to the real core; then the tests of `test_transitions` that walk this row are run on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, Final

import pytest
from msgspec.structs import replace

from checkrein.core import transitions
from checkrein.core.enums import Status, Verb
from checkrein.core.transitions import VERBS, Move
from tests.core import test_transitions as walk

Pair = tuple[Status, Verb]

STATUSES: Final[dict[str, tuple[Status | None, ...]]] = {
    "to": tuple(Status),
    "settled": (None, *Status),
    "undriven": (None, *Status),
}


def wrong(move: Move) -> Iterator[tuple[str, Move]]:
    """Every move that differs from this one in a single column."""
    for column, values in STATUSES.items():
        for value in values:
            if value is not getattr(move, column):
                yield f"{column}={value}", replace(move, **{column: value})
    yield f"joins={not move.joins}", replace(move, joins=not move.joins)


def plant(patch: pytest.MonkeyPatch, table: dict[Pair, Move]) -> None:
    """Give the core another table. ValueError when the table contradicts itself."""
    patch.setattr(transitions, "VERBS", table)
    patch.setattr(transitions, "SETTLES", transitions.settles(table))


def walk_row(status: Status, verb: Verb) -> None:
    """Run every test of the table that is about this row."""
    for pairs, check in WALKED:
        if (status, verb) in pairs:
            check(status, verb)
    for also in OF_ROW.get((status, verb), ()):
        also()


WALKED: Final[list[tuple[list[Pair], Callable[[Status, Verb], None]]]] = [
    (walk.ACCEPTED, walk.test_an_accepted_verb_brings_the_run_where_the_design_says),
    (walk.REFUSED, walk.test_a_refused_verb_says_why_and_changes_nothing),
    (walk.SAME, walk.test_a_verb_that_is_in_force_answers_with_its_own_receipt),
    (walk.SETTLING, walk.test_an_accepted_verb_settles_where_the_design_says),
    (
        [pair for pair in walk.ACCEPTED if pair[1] in (Verb.RESUME, Verb.REDIRECT)],
        walk.test_a_run_without_a_driver_is_queued_when_it_is_to_go_on,
    ),
]

OF_ROW: Final[dict[Pair, list[Callable[[], Any]]]] = {
    (Status.PAUSING, Verb.PAUSE): [lambda: walk.test_a_persons_pause_takes_the_place_of_one_that_resumes_itself(False)],
    (Status.PAUSED, Verb.PAUSE): [lambda: walk.test_a_persons_pause_takes_the_place_of_one_that_resumes_itself(True)],
    (Status.CANCELLING, Verb.CANCEL): [walk.test_a_cancel_that_undoes_less_takes_the_place_of_the_one_in_force],
}


def is_noticed(patch: pytest.MonkeyPatch, table: dict[Pair, Move], pair: Pair) -> bool:
    with patch.context() as planted:
        try:
            plant(planted, table)
            walk_row(*pair)
        except Exception:  # whatever it is that breaks, somebody has noticed
            return True
    return False


@pytest.mark.parametrize("pair", VERBS, ids=lambda pair: f"{pair[1]} in {pair[0]}")
def test_a_wrong_value_in_any_column_of_a_row_is_noticed(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    walk_row(*pair)

    unnoticed = [cell for cell, move in wrong(VERBS[pair]) if not is_noticed(monkeypatch, {**VERBS, pair: move}, pair)]

    assert unnoticed == []


@pytest.mark.parametrize("pair", VERBS, ids=lambda pair: f"{pair[1]} in {pair[0]}")
def test_a_row_that_is_missing_is_noticed(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_noticed(monkeypatch, {key: move for key, move in VERBS.items() if key != pair}, pair)


@pytest.mark.parametrize(
    "pair", [pair for pair in product(Status, Verb) if pair not in VERBS], ids=lambda pair: f"{pair[1]} in {pair[0]}"
)
def test_a_row_too_many_is_noticed(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(is_noticed(monkeypatch, {**VERBS, pair: Move(to)}, pair) for to in Status)
    assert is_noticed(monkeypatch, {**VERBS, pair: Move(pair[0], joins=True)}, pair)
