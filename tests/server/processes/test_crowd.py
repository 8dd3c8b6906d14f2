"""A crowd of readers does not stand between a person and a stop. The full measure is `bench/verbs_under_load.py`."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

import anyio
import pytest

from bench.crowd import SETTLE_SECONDS
from bench.harness import Room
from bench.verbs_under_load import cancel_all, check, crowd, serving, start
from checkrein.server.streaming.rate_limit import BURST, LEAST_PER_SECOND, MOST_PER_SECOND, Admission, asks_for_stream
from tests.support.patience import within


@pytest.mark.anyio
async def test_cancels_are_taken_while_hundreds_reconnect_and_others_hardly_read(tmp_path: Path) -> None:
    """D16 P6"""
    room = Room(tmp_path, is_quick=True)
    async with serving(room) as server:
        port = server.port
        runs = [await anyio.to_thread.run_sync(start, port, "waiter") for _ in range(15)]
        talker = await anyio.to_thread.run_sync(start, port, "talker")
        async with crowd(port, talker, seconds=5, rate=400, slow=20) as finished:
            await anyio.sleep(SETTLE_SECONDS + 0.5)
            took, _ = await cancel_all(port, runs)
            done = await finished()

    assert median(took) < within(2.0), took
    await check(room, runs)
    assert done.answers.keys() <= {"200", "503"}, "whoever is not let in is told so"
    assert done.answers["200"] > BURST, "they go on being let in"


def test_streams_are_let_in_as_fast_as_the_event_loop_keeps_up() -> None:
    admission = Admission()

    for _ in range(50):
        admission.adapt(0.1)
    slow = admission.per_second
    for _ in range(500):
        admission.adapt(0.0)

    assert slow == LEAST_PER_SECOND, "it never comes down to nothing"
    assert admission.per_second == MOST_PER_SECOND


@pytest.mark.anyio
async def test_an_event_loop_that_is_late_lowers_the_rate_and_one_that_is_not_raises_it_again() -> None:
    admission = Admission()
    admission.look()

    while admission.per_second == MOST_PER_SECOND:
        await anyio.sleep(0.001)
        time.sleep(0.1)  # noqa: ASYNC251 - to keep the event loop busy is the point
    lowered = admission.per_second
    with anyio.fail_after(within(30.0)):
        while admission.per_second <= lowered:
            lowered = min(lowered, admission.per_second)
            await anyio.sleep(0.01)

    assert LEAST_PER_SECOND <= lowered < MOST_PER_SECOND


def test_a_page_with_its_sub_runs_is_let_in_at_once_and_a_crowd_is_not() -> None:
    admission = Admission()

    answers = [admission.take() for _ in range(1000)]

    assert all(answers[: int(BURST)])
    assert admission.refused > 900


@pytest.mark.parametrize(
    ("method", "path", "is_stream"),
    [
        ("GET", "/api/runs/r-1/live", True),
        ("GET", "/api/runs/r-1/events", True),
        ("GET", "/mounted/here/api/runs/r-1/events", True),
        ("GET", "/api/runs/r-1", False),
        ("POST", "/api/runs/r-1/cancel", False),
        ("POST", "/api/runs/live/events", False),
        ("GET", "/ui/live", False),
        ("GET", "/api/runs/", False),
        ("GET", "", False),
    ],
)
def test_nothing_but_a_request_for_a_stream_is_taken_for_one(method: str, path: str, is_stream: bool) -> None:
    """A limit never touches a verb."""
    assert asks_for_stream({"type": "http", "method": method, "path": path}) is is_stream
