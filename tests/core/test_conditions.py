"""Conditions: what each kind looks at, how they compose, what they say of themselves, and what a grant is worth."""

from __future__ import annotations

from typing import Final

import msgspec
import pytest

from checkrein.core.conditions import (
    DEFAULT,
    RECENT_CALLS,
    AllOf,
    AnyOf,
    Condition,
    Cost,
    Effects,
    Elapsed,
    Repeats,
    Spent,
    Tokens,
    ToolCalls,
    Trip,
    Turns,
    Usage,
    caps,
    strongest,
    tokens_left,
)
from checkrein.core.enums import Then

# fmt: off
AT_THE_CAP: Final[list[tuple[Condition, str, Spent, Spent]]] = [
    (Turns(3),           "Turns(3)",         Spent(Usage(turns=2), 0),            Spent(Usage(turns=3), 0)),
    (ToolCalls(100),     "ToolCalls(100)",   Spent(Usage(tool_calls=99), 0),      Spent(Usage(tool_calls=100), 0)),
    (Tokens(50_000),     "Tokens(50000)",    Spent(Usage(input_tokens=49_999), 0),
                                             Spent(Usage(input_tokens=40_000, output_tokens=10_000), 0)),
    (Tokens(1_234_567),  "Tokens(1234567)",  Spent(Usage(input_tokens=1_234_566), 0),
                                             Spent(Usage(input_tokens=1_234_567), 0)),
    (Cost(usd=0.5),      "Cost(0.5)",        Spent(Usage(cost_usd=0.49), 0),      Spent(Usage(cost_usd=0.5), 0)),
    (Elapsed(minutes=10), "Elapsed(600)",    Spent(Usage(), 599.9),               Spent(Usage(), 600.0)),
    (Elapsed(seconds=30, minutes=1), "Elapsed(90)", Spent(Usage(), 89.9),         Spent(Usage(), 90.0)),
    (Effects(20),        "Effects(20)",      Spent(Usage(effects=19), 0),         Spent(Usage(effects=20), 0)),
    (Repeats(3),         "Repeats(3)",       Spent(Usage(), 0, ("a", "a")),       Spent(Usage(), 0, ("a", "a", "a"))),
]
# fmt: on


@pytest.mark.parametrize(("condition", "label", "before", "at"), AT_THE_CAP)
def test_a_condition_trips_at_its_allowance_and_not_before(
    condition: Condition, label: str, before: Spent, at: Spent
) -> None:
    """D9 D25: turns, calls, tokens, money, time and effects are capped."""
    assert condition.trips(before, {}) == ()

    (trip,) = condition.trips(at, {})

    assert (trip.condition, trip.then) == (label, Then.PAUSE)
    assert trip.observed == trip.allowed


@pytest.mark.parametrize(
    ("condition", "label", "before", "at"), [case for case in AT_THE_CAP if not isinstance(case[0], Repeats)]
)
def test_a_grant_gives_the_same_allowance_again(condition: Condition, label: str, before: Spent, at: Spent) -> None:
    assert condition.trips(at, {label: 1}) == ()
    assert condition.trips(at, {"another": 1}) != ()


@pytest.mark.parametrize(
    "condition",
    [case[0] for case in AT_THE_CAP]
    + [
        DEFAULT,
        Turns(5, then=Then.CANCEL),
        Cost(usd=1, then=Then.FINISH),
        (Turns(1) | Cost(usd=1)) & Elapsed(minutes=1),
    ],
)
def test_a_condition_is_data_that_survives_being_stored(condition: Condition) -> None:
    stored = msgspec.json.encode(condition)

    decoded: Condition = msgspec.json.decode(stored, type=Condition)

    assert decoded == condition
    assert decoded.label == condition.label


def test_without_a_word_an_agent_is_capped() -> None:
    """D25"""
    assert DEFAULT.label == "Turns(50) | Elapsed(1800)"


# -- composition


def spent(turns: int = 0, tool_calls: int = 0) -> Spent:
    return Spent(Usage(turns=turns, tool_calls=tool_calls), 0)


def test_either_of_two_trips_as_soon_as_one_does() -> None:
    """D36"""
    either = Turns(2) | ToolCalls(3)

    assert either.trips(spent(1, 2), {}) == ()
    assert [trip.condition for trip in either.trips(spent(2, 0), {})] == ["Turns(2)"]
    assert [trip.condition for trip in either.trips(spent(0, 3), {})] == ["ToolCalls(3)"]
    assert [trip.condition for trip in either.trips(spent(2, 3), {})] == ["Turns(2)", "ToolCalls(3)"]


def test_both_of_two_trip_only_together() -> None:
    """D36"""
    both = Turns(2) & ToolCalls(3)

    assert both.trips(spent(9, 2), {}) == ()
    assert both.trips(spent(1, 9), {}) == ()
    assert [trip.condition for trip in both.trips(spent(2, 3), {})] == ["Turns(2)", "ToolCalls(3)"]
    assert both.trips(spent(2, 3), {"Turns(2)": 1}) == ()


def test_conditions_compose_into_one_contract_that_reads_like_it_was_written() -> None:
    """D36"""
    one = Turns(1) | ToolCalls(2) | Tokens(3) & Effects(4)
    other = (Turns(1) | ToolCalls(2)) & Tokens(3)

    assert one == AnyOf((Turns(1), ToolCalls(2), AllOf((Tokens(3), Effects(4)))))
    assert one.label == "Turns(1) | ToolCalls(2) | Tokens(3) & Effects(4)"
    assert other.label == "(Turns(1) | ToolCalls(2)) & Tokens(3)"
    assert [cap.label for cap in caps(one)] == ["Turns(1)", "ToolCalls(2)", "Tokens(3)", "Effects(4)"]
    assert list(caps(None)) == []


def test_of_several_that_trip_at_once_the_strongest_is_done() -> None:
    pause, finish, cancel = (Trip(then.value, 1, 1, then) for then in (Then.PAUSE, Then.FINISH, Then.CANCEL))

    assert strongest((pause, cancel, finish)) is cancel
    assert strongest((pause, finish)) is finish
    assert strongest((pause, Trip("second", 1, 1, Then.PAUSE))) is pause
    assert strongest(()) is None


# -- going round in circles


@pytest.mark.parametrize(
    ("recent", "rounds"),
    [
        ("", 0),
        ("aa", 2),
        ("aaa", 3),
        ("baaa", 3),
        ("aaab", 1),
        ("abab", 2),
        ("ababab", 3),
        ("bababab", 3),  # the odd one at the beginning belongs to no whole round
        ("cababab", 3),
        ("abcabc", 1),  # three that take turns are not two that go back and forth
        ("abba", 1),
        ("aabb", 2),
        ("a" * RECENT_CALLS, RECENT_CALLS),
        ("ab" * (RECENT_CALLS // 2), RECENT_CALLS // 2),
    ],
)
def test_repeats_counts_the_same_call_in_a_row_and_rounds_of_going_back_and_forth(recent: str, rounds: int) -> None:
    """D10: an agent that does not converge is noticed."""
    seen = Spent(Usage(), 0, tuple(recent))

    at_most = RECENT_CALLS // 2
    assert Repeats(min(rounds, at_most)).trips(seen, {})
    assert rounds >= at_most or not Repeats(rounds + 1).trips(seen, {})


def test_a_number_of_repeats_that_would_never_be_noticed_is_refused() -> None:
    """D10: only so many of the latest calls are remembered, and going back and forth takes two for a round."""
    with pytest.raises(ValueError, match="never trip"):
        Repeats(RECENT_CALLS // 2 + 1)


# -- a price that is not known


def test_a_price_that_is_not_known_trips_a_cost_cap() -> None:
    """D25: better to ask than never to trip."""
    unknown = Usage(cost_usd=0.01) + Usage(cost_usd=None)

    (trip,) = Cost(usd=1000).trips(Spent(unknown, 0), {})

    assert unknown.cost_usd is None
    assert trip.observed is None


def test_usage_adds_up_and_stays_estimated() -> None:
    total = Usage(turns=1, input_tokens=10, cost_usd=0.25) + Usage(tool_calls=2, output_tokens=5, estimated=True)

    assert total == Usage(turns=1, tool_calls=2, input_tokens=10, output_tokens=5, cost_usd=0.25, estimated=True)
    assert total.tokens == 15


@pytest.mark.parametrize(
    ("condition", "left"),
    [
        (Tokens(200), 150),
        (Tokens(200) | Tokens(100), 50),
        (Tokens(200) & Tokens(100), 150),
        (Tokens(200) | Turns(5), 150),
        (Tokens(200) & Turns(5), None),
        (Tokens(200) & Turns(1), 150),
        (Turns(5), None),
        (None, None),
    ],
)
def test_what_is_left_of_a_cap_on_tokens_is_known_where_they_alone_trip_it(
    condition: Condition | None, left: int | None
) -> None:
    """C5"""
    spent = Spent(Usage(turns=1, input_tokens=30, output_tokens=20), 0)

    assert tokens_left(condition, spent, {}) == left
    if left is not None and isinstance(condition, Tokens):
        assert tokens_left(condition, spent, {condition.label: 1}) == left + 200
