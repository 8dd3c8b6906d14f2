"""When nothing more happens to a run before a person decides: then nobody need have it in memory."""

from __future__ import annotations

import pytest

from checkrein.core.enums import Answer
from tests.core.story import Story, events_of


def asking() -> Story:
    story = Story()
    events_of(story.request("pay"))
    return story


def doubting() -> Story:
    story = Story()
    story.crashes_in("send")
    return story


@pytest.mark.parametrize("story", [asking(), doubting()], ids=["an approval", "a call in doubt"])
def test_a_run_that_waits_for_nothing_else_waits_for_a_person(story: Story) -> None:
    assert story.state.waits_for_person


def test_a_run_that_is_at_work_does_not() -> None:
    story = Story()
    assert not story.state.waits_for_person

    events_of(story.model("think"))

    assert not story.state.waits_for_person


def test_a_run_with_another_call_in_flight_does_not_yet() -> None:
    story = asking()
    events_of(story.tool("score"))
    assert not story.state.waits_for_person

    events_of(story.finish("score"))

    assert story.state.waits_for_person


def test_a_run_of_which_something_is_asked_does_not() -> None:
    story = asking()
    events_of(story.ask())

    assert not story.state.waits_for_person


def test_what_a_person_has_decided_is_to_be_done() -> None:
    story = asking()
    events_of(story.request("tell"))
    events_of(story.approve("pay"))

    assert story.state.waiting(), "for the other one"
    assert not story.state.waits_for_person


def test_a_call_that_is_to_be_tried_again_is_to_be_done() -> None:
    story = doubting()
    events_of(story.request("pay"))
    events_of(story.resolve("send", Answer.DID_NOT_HAPPEN))

    assert story.state.waiting(), "for the other one"
    assert not story.state.waits_for_person


def test_a_run_that_is_paused_or_finished_is_not_meant() -> None:
    story = asking()
    events_of(story.pause())
    assert not story.state.waits_for_person
    story.drive()
    assert not story.state.waits_for_person

    events_of(story.cancel())
    story.drive()

    assert story.state.is_finished
    assert not story.state.waits_for_person
