"""Doubt: calls of which nobody knows whether they happened, and effects that somebody may still bring about."""

from __future__ import annotations

import pytest

from checkrein.core.enums import Answer, OnPause, Outcome, Undo
from tests.core.story import Story, accepted, events_of, refusal_of
from tests.core.test_effects import listed, states, undos


def test_an_effect_whose_owner_may_still_act_is_not_undone() -> None:
    """A frozen driver may wake with a permit in its hand: undo first and effect after must not happen."""
    story = Story()
    story.crashes_in("send", owner_dead=False)
    cancel = accepted(story.cancel())

    assert story.orders == ()
    assert refusal_of(story.undo("send")).code == "not_due"
    assert refusal_of(story.settle(cancel)).message == (
        "Run r-1 is cancelling: cancel waits for word whether send may still happen."
    )


@pytest.mark.parametrize("freed_by", ["its answer", "its known death", "a later proof of its death", "a person"])
def test_an_effect_in_doubt_is_undone_once_nobody_can_act_any_more(freed_by: str) -> None:
    story = Story()
    story.crashes_in("send", owner_dead=freed_by == "its known death")
    cancel = accepted(story.cancel())

    if freed_by == "its answer":
        story.answers("send", Outcome.COMPLETED, epoch=1)
    elif freed_by == "a later proof of its death":
        story.answers("send", Outcome.IN_DOUBT, epoch=1)
    elif freed_by == "a person":
        events_of(story.resolve("send", Answer.UNDO))
    story.drive()

    assert states(story) == {"send": "undone"}
    assert listed(story, cancel) == {"send": "undone"}


def test_an_effect_that_did_not_happen_is_not_undone() -> None:
    story = Story()
    story.crashes_in("send", owner_dead=False)
    events_of(story.cancel())

    story.answers("send", Outcome.IN_DOUBT, epoch=1, began=False)
    story.drive()

    assert undos(story) == []
    assert states(story) == {"send": "settled"}


def test_an_older_effect_does_not_wait_for_one_that_is_in_doubt() -> None:
    story = Story()
    story.did("draft")
    story.crashes_in("send", owner_dead=False)
    events_of(story.cancel())

    story.drive()

    assert states(story) == {"draft": "undone", "send": "in_doubt"}
    assert story.status == "cancelling"


def test_a_detached_tool_may_still_act_until_it_answers() -> None:
    story = Story()
    events_of(story.tool("upload", effect=True))
    events_of(story.cancel())
    events_of(story.finish("upload", Outcome.DETACHED))

    assert refusal_of(story.undo("upload")).code == "not_due"
    story.answers("upload", Outcome.COMPLETED, epoch=1)
    story.drive()

    assert states(story) == {"upload": "undone"}


@pytest.mark.parametrize("answer", [Answer.HAPPENED, Answer.UNDO])
def test_a_persons_word_does_not_have_a_detached_tool_undone_while_it_goes_on(answer: Answer) -> None:
    story = Story()
    events_of(story.tool("upload", effect=True))
    events_of(story.cancel())
    events_of(story.finish("upload", Outcome.DETACHED, left=("task upload",)))

    events_of(story.resolve("upload", answer))

    assert refusal_of(story.undo("upload")).code == "not_due"
    story.answers("upload", Outcome.DETACHED, epoch=1)
    story.drive()
    assert states(story) == {"upload": "undone"}


def test_a_person_may_have_one_effect_undone_while_the_run_goes_on() -> None:
    story = Story()
    story.did("draft")
    story.crashes_in("send")

    events_of(story.resolve("send", Answer.UNDO))
    story.drive()

    assert states(story) == {"draft": "open", "send": "undone"}
    assert story.status == "running"


def test_what_is_to_be_undone_waits_while_the_run_is_paused() -> None:
    """D20"""
    story = Story()
    story.crashes_in("send")
    events_of(story.pause())
    story.drive()

    events_of(story.resolve("send", Answer.UNDO))
    assert refusal_of(story.undo("send")).code == "not_due"
    events_of(story.resume())
    story.drive()

    assert states(story) == {"send": "undone"}


@pytest.mark.parametrize("answer", Answer)
def test_a_person_may_end_the_doubt_after_the_end(answer: Answer) -> None:
    story = Story()
    story.crashes_in("send", owner_dead=False)
    events_of(story.cancel())
    story.later(30)
    story.drive()
    assert states(story) == {"send": "in_doubt"}

    events_of(story.resolve("send", answer))
    story.drive()

    expected = {Answer.HAPPENED: "left", Answer.DID_NOT_HAPPEN: "settled", Answer.UNDO: "undone"}
    assert states(story) == {"send": expected[answer]}


# -- a call that was stopped half-way


@pytest.mark.parametrize("outcome", [Outcome.ABORTED, Outcome.KILLED, Outcome.DETACHED, Outcome.IN_DOUBT])
@pytest.mark.parametrize("answer", Answer)
def test_a_person_may_say_what_became_of_a_call_that_was_stopped_half_way(outcome: Outcome, answer: Answer) -> None:
    """D5 D34: what a stop leaves unknown does not stay so for ever."""
    story = Story()
    events_of(story.tool("upload", effect=True))
    events_of(story.cancel(Undo.NONE))
    events_of(story.finish("upload", outcome))
    story.drive()
    assert story.status == "cancelled"
    assert states(story) == {"upload": "in_doubt"}

    events_of(story.resolve("upload", answer))
    story.drive()

    expected = {Answer.HAPPENED: "left", Answer.DID_NOT_HAPPEN: "settled", Answer.UNDO: "undone"}
    assert states(story) == {"upload": expected[answer]}
    assert refusal_of(story.resolve("upload", answer)).code == "not_in_doubt"


def test_a_call_that_is_done_again_needs_nobodys_word() -> None:
    story = Story()
    events_of(story.tool("look", effect=True, idempotent=True, on_pause=OnPause.ABORT))
    events_of(story.pause())
    story.drive()

    assert states(story) == {"look": "in_doubt"}
    assert refusal_of(story.resolve("look", Answer.HAPPENED)).code == "not_in_doubt"


def test_a_person_is_told_when_there_is_no_undo() -> None:
    """D34: an action that has no compensating one is named as having none."""
    story = Story()
    story.crashes_in("send", undo=False)

    assert refusal_of(story.resolve("send", Answer.UNDO)).code == "nothing_to_undo"
    assert story.state.waiting() != ()


def test_what_did_not_happen_is_not_undone_even_by_a_cancel_of_the_whole_saga() -> None:
    story = Story()
    story.crashes_in("send")
    events_of(story.resolve("send", Answer.DID_NOT_HAPPEN))

    events_of(story.cancel(Undo.ALL))
    story.drive()

    assert undos(story) == []
