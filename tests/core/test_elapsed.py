"""Elapsed time: only what was somebody's work counts."""

from __future__ import annotations

import pytest

from checkrein.core.conditions import Elapsed
from checkrein.core.events import CallStarted
from checkrein.core.words import Answer, Outcome
from tests.core.story import Story, events_of, refusal_of


def elapsed(story: Story) -> float:
    return story.state.spent(story.at).elapsed_seconds


def test_only_time_at_work_counts() -> None:
    """Paused, queued and waiting time does not."""
    story = Story(driven=False)
    story.later(100)  # queued
    events_of(story.take_over())
    story.later(1)
    events_of(story.model("m1"))
    story.later(2)
    events_of(story.pause())
    story.later(4)  # pausing is work
    story.drive()
    story.later(100)  # paused
    events_of(story.resume())
    story.later(8)
    events_of(story.request("pay"))
    story.later(100)  # waits for a person
    events_of(story.approve("pay"))
    story.later(16)
    events_of(story.cancel())
    story.drive()
    story.later(100)  # over

    assert elapsed(story) == 1 + 2 + 4 + 8 + 16


@pytest.mark.parametrize("calls", [(), ("m1",), ("m1", "m2"), ("send",), ("m1", "send"), ("send", "m1")])
@pytest.mark.parametrize("drives", [True, False])
def test_the_time_between_a_crash_and_the_next_driver_does_not_count(calls: tuple[str, ...], drives: bool) -> None:
    story = Story()
    story.later(5)
    events_of(story.model("m0"))
    events_of(story.finish("m0"))
    for call in calls:
        events_of(story.tool(call) if call == "send" else story.model(call))

    story.later(3600)  # nobody lives
    events_of(story.take_over(drives=drives))
    if "send" in calls:
        assert elapsed(story) == 5
        story.later(100)
        events_of(story.resolve("send", Answer.DID_NOT_HAPPEN))
    if not drives:
        story.later(100)
        events_of(story.take_over())
    story.later(7)

    assert elapsed(story) == 5 + 7


def test_time_counts_while_a_call_that_its_driver_gives_up_on_was_running() -> None:
    story = Story()
    events_of(story.tool("told", effect=True))
    story.later(60)

    events_of(story.finish("told", Outcome.IN_DOUBT))

    assert elapsed(story) == 60


def test_a_cap_on_time_is_seen_at_the_next_permit() -> None:
    story = Story(stop_when=Elapsed(minutes=1))
    story.later(59)
    events_of(story.model("m1"))
    events_of(story.finish("m1"))
    story.later(1)

    assert refusal_of(story.model("m2")).message == "Run r-1 is running: Elapsed(60) is reached (60)."
    assert len(story.all(CallStarted)) == 1
