"""A crowd of readers does not stand between a person and a stop. The full measure is `bench/verbs_under_load.py`."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import anyio
import pytest

from bench.crowd import SETTLE_SECONDS
from bench.harness import Room
from bench.verbs_under_load import cancel_all, check, crowd, serving, start
from checkrein.server.front.admission import BURST, LEAST_PER_SECOND, MOST_PER_SECOND, Admission, asks_for_stream

PATIENT_SECONDS = 2.0
"""Some ten milliseconds, on a machine that is busy with other things."""


@pytest.mark.anyio
async def test_cancels_are_taken_while_hundreds_reconnect_and_others_hardly_read(tmp_path: Path) -> None:
    """D16 P6"""
    room = Room(tmp_path, is_quick=True)
    async with serving(room) as port:
        runs = [await anyio.to_thread.run_sync(start, port, "waiter") for _ in range(15)]
        talker = await anyio.to_thread.run_sync(start, port, "talker")
        async with crowd(port, talker, seconds=5, rate=400, slow=20) as finished:
            await anyio.sleep(SETTLE_SECONDS + 0.5)
            took, _ = await cancel_all(port, runs)
            done = await finished()

    assert median(took) < PATIENT_SECONDS, took
    await check(room, runs)
    assert done.answers.keys() <= {"200", "503"}, "whoever is not let in is told so"
    assert done.answers["200"] >= 3 * LEAST_PER_SECOND, done


def test_streams_are_let_in_as_fast_as_the_event_loop_keeps_up() -> None:
    admission = Admission()

    for _ in range(50):
        admission.adapt(0.1)
    slow = admission.per_second
    for _ in range(500):
        admission.adapt(0.0)

    assert slow == LEAST_PER_SECOND, "it never comes down to nothing"
    assert admission.per_second == MOST_PER_SECOND


def test_a_page_with_its_sub_runs_is_let_in_at_once_and_a_crowd_is_not() -> None:
    admission = Admission()

    answers = [admission.take() for _ in range(1000)]

    assert all(answers[: int(BURST)])
    assert admission.refused > 900


@pytest.mark.parametrize(
    ("head", "is_stream"),
    [
        (b"GET /api/runs/r-1/live HTTP/1.1\r\n", True),
        (b"GET /api/runs/r-1/events?after=3 HTTP/1.1\r\n", True),
        (b"GET /api/runs/r-1 HTTP/1.1\r\n", False),
        (b"POST /api/runs/r-1/cancel HTTP/1.1\r\n", False),
        (b"POST /api/runs/live/events HTTP/1.1\r\n", False),
        (b"GET /ui/live HTTP/1.1\r\n", False),
        (b"GET /api/runs/", False),
        (b"", False),
    ],
)
def test_nothing_but_a_request_for_a_stream_is_taken_for_one(head: bytes, is_stream: bool) -> None:
    """A limit never touches a verb."""
    assert asks_for_stream(head) is is_stream
