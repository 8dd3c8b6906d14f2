"""Elapsed time: only what was somebody's work counts."""

from __future__ import annotations

from typing import Any

import pytest

from checkrein.core.commands import SettleVerb
from checkrein.core.conditions import Elapsed
from checkrein.core.enums import Answer, Outcome, Status
from checkrein.core.events import CallStarted, ClockSet, PlanPublished
from checkrein.core.evolve import fold
from checkrein.core.orders import time_is_up
from checkrein.timings import LEASE_SECONDS
from tests.core.story import Story, accepted, events_of, refusal_of


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
    story.later(100)  # nobody has heard of it yet
    story.drive()
    story.later(8)
    events_of(story.request("pay"))
    story.later(100)  # waits for a person
    events_of(story.approve("pay"))
    events_of(story.tool("pay"))
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
    events_of(story.model("m3"))
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


@pytest.mark.parametrize("set_by", [3_600.0, -3_600.0], ids=["forward", "back"])
def test_time_by_which_the_clock_was_set_is_no_time_at_work(set_by: float) -> None:
    story = Story()
    story.later(60)
    story.later(set_by)
    state = fold(story.state, [ClockSet(id="set", at=story.at, seconds=set_by)])

    assert state.spent(story.at + 7).elapsed_seconds == 67


def test_what_began_since_the_clock_was_set_has_its_time_already() -> None:
    story = driven()
    events_of(story.model("m1"))
    story.later(-3_600)
    events_of(story.cancel())
    story.later(8)
    state = fold(story.state, [ClockSet(id="set", at=story.at, seconds=-3_600.0, within=9.0)])

    assert state.verbs[-1].counts_from == story.at - 8


@pytest.mark.parametrize("set_by", [3_600.0, -3_600.0], ids=["forward", "back"])
def test_by_whatever_clock_a_person_has_a_run_go_on_its_time_counts_from_when_its_driver_says_so(set_by: float) -> None:
    story = driven(stop_when=Elapsed(minutes=30))
    events_of(story.pause())
    story.drive()
    story.later(set_by)
    events_of(story.resume())
    story.later(-set_by)  # and is set back before the driver has looked at it
    story.later(1)
    story.drive()
    story.later(7)

    assert elapsed(story) == 7
    assert time_is_up(story.state, story.at) is None


@pytest.mark.parametrize("set_by", [3_600.0, -3_600.0], ids=["forward", "back"])
def test_a_run_that_goes_on_by_a_clock_that_was_set_and_whose_driver_then_dies_was_not_at_work(set_by: float) -> None:
    story = driven(stop_when=Elapsed(minutes=30))
    story.later(5)
    events_of(story.pause())
    story.drive()
    alive_at = story.at + 2 - AHEAD
    story.later(set_by)
    events_of(story.resume())

    story.later(1)
    events_of(story.take_over(alive_at=alive_at, ahead=AHEAD + set_by))
    story.later(7)

    assert elapsed(story) == 5 + 7


@pytest.mark.parametrize("set_by", [3_600.0, -3_600.0], ids=["forward", "back"])
def test_what_a_former_owner_says_by_its_clock_is_no_time_at_work_of_the_next(set_by: float) -> None:
    story = driven()
    events_of(story.tool("send", effect=True, idempotent=True))
    events_of(story.take_over(owner_dead=False, ahead=AHEAD))
    story.later(5)
    events_of(story.model("m1"))
    alive_at = story.at - AHEAD
    story.later(set_by)
    story.answers("send", Outcome.COMPLETED, epoch=1)

    events_of(story.take_over(alive_at=alive_at, ahead=AHEAD + set_by))

    assert elapsed(story) == 5


@pytest.mark.parametrize("set_by", [3_600.0, -3_600.0, 0.0], ids=["forward", "back", "not"])
@pytest.mark.parametrize("verb", ["cancel", "halt"])
def test_whoever_ends_a_run_that_nobody_drives_adds_no_time_at_work(verb: str, set_by: float) -> None:
    story = driven()
    story.later(5)
    events_of(story.model("m1"))
    events_of(story.finish("m1"))
    alive_at = story.at + 2 - AHEAD
    story.later(100 + set_by)  # nobody lives
    if verb == "halt":
        events_of(story.halt(alive_at=alive_at))
    else:
        cancel = accepted(story.cancel())
        events_of(story.take_over(drives=False, alive_at=alive_at))
        events_of(story.give(SettleVerb, accepted=cancel, alive_at=alive_at))

    assert story.state.is_finished
    assert elapsed(story) == 7


AHEAD = 1_000_000.0
"""By how much the wall clock of these stories is ahead of the clock of leases."""


def driven(**given: Any) -> Story:
    """A run that somebody drives who knows both clocks."""
    story = Story(driven=False, **given)
    story.later(2 * AHEAD)
    events_of(story.take_over(ahead=AHEAD))
    return story


@pytest.mark.parametrize("calls", [(), ("m1",), ("send",)])
def test_the_time_at_work_before_a_crash_counts_up_to_the_last_sign_of_life(calls: tuple[str, ...]) -> None:
    story = driven()
    for call in calls:
        events_of(story.tool(call, idempotent=True) if call == "send" else story.model(call))
    story.later(60)
    alive_at = story.at - AHEAD
    story.later(3600)  # nobody lives

    events_of(story.take_over(alive_at=alive_at, ahead=AHEAD))
    story.later(7)

    assert elapsed(story) == 60 + 7


@pytest.mark.parametrize("set_by", [3_600.0, -3_600.0], ids=["forward", "back"])
@pytest.mark.parametrize("sign", [True, False], ids=["a sign of life", "no sign of life"])
def test_a_clock_that_is_set_around_a_crash_makes_no_time_at_work(set_by: float, sign: bool) -> None:
    """A person asks for something by the new clock, and the driver dies before it has said anything about it."""
    story = driven(stop_when=Elapsed(minutes=30))
    story.later(5)
    events_of(story.model("m1"))
    alive_at = story.at + 2 - AHEAD if sign else 0.0
    story.later(set_by)
    events_of(story.ask())

    story.later(1)
    events_of(story.take_over(alive_at=alive_at, ahead=AHEAD + set_by))
    story.later(7)

    assert elapsed(story) == 5 + (2 if sign else 0) + 7
    assert time_is_up(story.state, story.at) is None


@pytest.mark.parametrize("sign", [True, False], ids=["a sign of life", "no sign of life"])
def test_a_pause_of_a_run_whose_driver_is_long_dead_makes_no_time_at_work(sign: bool) -> None:
    story = driven()
    story.later(5)
    events_of(story.model("m1"))
    events_of(story.finish("m1"))
    alive_at = story.at + 2 - AHEAD if sign else 0.0
    story.later(3600)  # nobody lives
    pause = accepted(story.pause())

    events_of(story.take_over(drives=False, alive_at=alive_at))
    events_of(story.give(SettleVerb, accepted=pause, alive_at=alive_at))

    assert story.status is Status.PAUSED
    assert elapsed(story) == 5 + (2 if sign else 0)


def test_a_clock_that_was_set_and_noticed_does_not_move_the_last_sign_of_life() -> None:
    story = driven()
    story.later(3_600)
    events = [ClockSet(id="set", at=story.at, seconds=3_600.0)]
    state = fold(story.state, events)

    assert state.worked_until(story.at - AHEAD - 3_600 + 10) == story.at + 10


def test_a_time_later_than_the_end_of_the_last_lease_is_that_of_another_clock() -> None:
    """A fact that was made before the clock was set back, and recorded after that."""
    story = driven()
    story.later(60)
    alive_at = story.at - AHEAD
    story.append(PlanPublished(id="plan", at=story.at + 3_600, steps=("look",)))

    events_of(story.take_over(alive_at=alive_at, ahead=AHEAD))

    assert elapsed(story) == 60 + LEASE_SECONDS
