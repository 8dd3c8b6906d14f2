"""Pause and resume: the spending stops, tools follow their own rule, and the run goes on exactly there."""

from __future__ import annotations

import pytest

from checkrein.core.enums import CallKind, OnPause, Outcome, Verb
from checkrein.core.events import CallFinished, CallStarted, InstructionDelivered
from checkrein.core.orders import Abort, Hold, LetGoOn, Settle, orders
from tests.core.story import Story, accepted, events_of, only, refusal_of


def test_a_pause_closes_the_model_stream_at_once_and_resume_asks_it_again() -> None:
    """D28 D23: pause reaches the model call; resume goes on exactly there."""
    story = Story()
    events_of(story.model("m1"))

    pause = accepted(story.pause())
    assert story.orders == (Abort("m1", Verb.PAUSE),)
    story.drive()
    assert story.status == "paused"
    events_of(story.resume())

    assert story.receipt(pause).calls[0].now == "aborted"
    assert refusal_of(story.model("m1")).code == "not_again"
    assert only(CallStarted, events_of(story.model("m1", attempt=2))).attempt == 2


def test_a_pause_waits_for_a_tool_that_must_finish_and_takes_its_result() -> None:
    """D20 D30: what finished while pausing is done, and not done again."""
    story = Story()
    events_of(story.tool("score"))
    pause = accepted(story.pause())

    assert story.orders == ()
    assert refusal_of(story.settle(pause)).message == "Run r-1 is pausing: pause waits for score to finish."
    events_of(story.finish("score"))
    story.drive()

    assert story.status == "paused"
    assert [(call.name, call.now) for call in story.receipt(pause).calls] == [("score", "completed")]
    assert story.state.again == {}


def test_a_tool_that_may_be_aborted_is_stopped_by_a_pause_and_done_again_after_it() -> None:
    story = Story()
    events_of(story.tool("look", on_pause=OnPause.ABORT, idempotent=True))
    events_of(story.pause())

    story.drive()
    events_of(story.resume())

    assert story.state.attempt_due("look") == 2
    events_of(story.tool("look", on_pause=OnPause.ABORT, idempotent=True, attempt=2))


@pytest.mark.parametrize("kind", [CallKind.TOOL, CallKind.RUN])
def test_a_call_that_is_held_counts_as_stopped_and_goes_on_after_the_resume(kind: CallKind) -> None:
    """D28: pause does not kill the process; it reaches sub-runs too."""
    story = Story()
    events_of(story.tool("train", kind=kind, on_pause=OnPause.HOLD))
    pause = accepted(story.pause())

    assert story.orders == (Hold("train"),)
    assert refusal_of(story.settle(pause)).code == "not_settled"
    story.drive()
    assert story.status == "paused"
    assert [(call.name, call.now) for call in story.receipt(pause).calls] == [("train", "held")]
    resume = accepted(story.resume())

    assert [type(order) for order in story.orders] == [LetGoOn, Settle]
    story.drive()
    assert story.receipt(resume).status == "running"
    events_of(story.finish("train"))


def test_a_call_that_was_told_to_hold_and_did_not_before_the_resume_is_told_to_go_on() -> None:
    """It would hold when it can, and nobody would let it go on then."""
    story = Story()
    events_of(story.tool("train", kind=CallKind.RUN, on_pause=OnPause.HOLD))
    events_of(story.pause())
    told = frozenset({"train"})
    assert LetGoOn("train") not in orders(story.state, told_to_hold=told)

    events_of(story.resume())

    assert LetGoOn("train") in orders(story.state, told_to_hold=told)


def test_the_crash_of_a_held_call_is_in_doubt() -> None:
    """D29"""
    story = Story()
    events_of(story.tool("train", on_pause=OnPause.HOLD, effect=True))
    events_of(story.pause())
    story.drive()

    events_of(story.take_over())

    assert only(CallFinished, tuple(story.journal)).outcome is Outcome.IN_DOUBT
    assert [wait.kind for wait in story.state.waiting()] == ["in_doubt"]
    assert story.status == "paused"


def test_the_tool_that_a_pause_waits_for_can_be_aborted_on_its_own() -> None:
    """D28: don't wait, abort it."""
    story = Story()
    events_of(story.tool("score"))
    pause = accepted(story.pause())

    abort = accepted(story.abort("score"))
    assert story.orders == (Abort("score", Verb.ABORT),)
    story.drive()

    assert story.status == "paused"
    assert story.receipt(abort).verb is Verb.ABORT
    assert story.receipt(pause).calls[0].now == "aborted"
    assert story.state.again == {}, "what a person aborted is not done again"


def test_a_held_call_can_be_aborted_while_the_run_is_paused() -> None:
    story = Story()
    events_of(story.tool("train", on_pause=OnPause.HOLD))
    events_of(story.pause())
    story.drive()

    events_of(story.abort("train"))
    story.drive()

    assert story.state.live == {}
    assert story.status == "paused"


def test_a_call_that_is_not_in_flight_cannot_be_aborted() -> None:
    story = Story()
    story.did("draft")
    assert refusal_of(story.abort("draft")).code == "not_in_flight"

    events_of(story.cancel())
    events_of(story.undo("draft"))

    assert refusal_of(story.abort("undo:draft")).code == "not_now"


def test_a_resume_while_pausing_takes_the_pause_back() -> None:
    story = Story()
    events_of(story.tool("score"))
    pause = accepted(story.pause())

    resume = accepted(story.resume())
    story.drive()

    assert story.status == "running"
    assert story.receipt(pause).superseded_by == resume
    events_of(story.tool("next"))


def test_resume_carries_an_instruction_to_the_next_call_with_a_one_line_diff() -> None:
    """D23 D32: summarise and stop."""
    story = Story()
    story.plan("Fetch customers", "Score churn risk", finished=1)
    events_of(story.pause())
    story.drive()

    resume = accepted(story.resume("Score churn risk in Q3"))
    delivered = only(InstructionDelivered, events_of(story.model("m1", delivers=True)))

    assert delivered.diff == "Score churn risk {+in Q3+}"
    assert (delivered.accepted, delivered.call) == (resume, "m1")
    assert story.state.instruction is None


def test_the_instruction_of_a_redirect_is_kept_over_a_pause() -> None:
    """D38"""
    story = Story()
    events_of(story.tool("score"))
    redirect = accepted(story.redirect("only Q3"))
    pause = accepted(story.pause())
    assert story.status == "pausing"
    story.drive()
    assert story.status == "paused"
    events_of(story.resume())

    events_of(story.model("m1", delivers=True))

    assert story.receipt(pause).superseded_by is None
    assert story.receipt(redirect).delivered is True


def test_an_instruction_of_a_resume_is_given_after_the_one_that_was_not_given_yet() -> None:
    """What was acknowledged adds up, and each of them learns that the agent got it."""
    story = Story()
    older = accepted(story.redirect("only Q3"))
    events_of(story.pause())
    story.drive()

    newer = accepted(story.resume("only Q4"))
    delivery = events_of(story.model("m1", delivers=True))
    story.drive()

    assert [event.accepted for event in delivery if isinstance(event, InstructionDelivered)] == [older, newer]
    assert story.receipt(older).delivered is True
    assert story.receipt(newer).delivered is True


def test_a_call_that_a_pause_is_stopping_can_be_aborted_for_good() -> None:
    story = Story()
    events_of(story.model("think"))
    events_of(story.pause())

    events_of(story.abort("think"))
    story.drive()

    assert story.state.again == {}, "what a person aborted is not asked again"
