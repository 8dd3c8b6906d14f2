"""How many runs a server carries: the simulation says the same as the arithmetic, and the page says what they say."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from bench.capacity import (
    BEYOND,
    BUSY,
    CLOSE,
    COSTS,
    LAYOUT,
    Costs,
    Layout,
    demand,
    full_at,
    knee,
    needs,
    simulate,
    table_of_needs,
)

PAGE = Path(__file__).parents[2] / "docs" / "design" / "capacity.md"
SMALL = Layout(slots=20)
SLOW = replace(COSTS, commit_serial=10 * COSTS.commit_serial)
"""A slow disk has its knee early, so that it takes few runs to show it."""


@pytest.mark.parametrize("costs", [SLOW, replace(SLOW, commit_serial=2 * SLOW.commit_serial)])
def test_commits_wait_for_each_other_from_where_the_arithmetic_says(costs: Costs) -> None:
    expected = full_at("commits", SMALL, costs)

    below, beyond = (simulate(round(expected * part), SMALL, costs, seconds=5) for part in (0.5, BEYOND))

    assert below.together < 1.1
    assert 1 / CLOSE < knee(beyond) / expected < CLOSE


def test_beyond_the_knee_a_permit_takes_longer_the_more_workers_there_are() -> None:
    expected = full_at("commits", SMALL, SLOW)

    half, twice, more = (simulate(round(expected * part), SMALL, SLOW, seconds=5) for part in (0.5, 2, 3))

    assert half.permit_p50 < twice.permit_p50 / 4
    assert 1.2 < more.permit_p50 / twice.permit_p50 < 2.0
    assert more.steps > 0.8  # and little less is done for it, as runs mostly wait for models


def test_the_processors_of_a_server_are_full_where_the_arithmetic_says() -> None:
    small = Layout(slots=50, server_processors=1)
    quick = replace(COSTS, commit_serial=1e-5, flush_serial=1e-5)
    expected = full_at("server", small, quick)

    half, twice = (simulate(round(expected * part), small, quick, seconds=5) for part in (0.5, 2))

    assert half.server == pytest.approx(demand(half.runs, small, quick).server, rel=0.15)
    assert twice.server > 0.95
    assert twice.text_p99 > 1.5 * half.text_p99


def test_a_worker_is_full_where_the_arithmetic_says() -> None:
    expected = full_at("worker", Layout(slots=1_000_000))

    half, beyond = (
        simulate(runs, Layout(slots=runs), seconds=5) for runs in (round(expected / 2), round(expected * 1.1))
    )

    assert half.permit_p50 < 0.05
    assert beyond.permit_p50 > 10 * half.permit_p50


def test_the_same_numbers_come_out_every_time() -> None:
    assert simulate(200, SMALL, seconds=3) == simulate(200, SMALL, seconds=3)


@pytest.mark.parametrize("runs", [10_000, 100_000, 1_000_000])
def test_no_station_is_busier_than_it_should_be(runs: int) -> None:
    needed = needs(runs)

    asked = demand(-(-runs // needed.servers))

    assert all(getattr(asked, station) <= most for station, most in BUSY.items())


def test_the_page_says_what_comes_out() -> None:
    table = table_of_needs([needs(runs) for runs in (10_000, 100_000, 1_000_000)])

    page = PAGE.read_text()

    assert table in page
    assert f"{LAYOUT.slots} runs" in page
    assert f"{full_at('commits'):,}" in page
