"""Redirect: what is in flight is interrupted and undone, finished work is kept, and the instruction arrives or the
receipt says that it did not."""

from __future__ import annotations

import pytest

from checkrein.core.enums import Outcome, Verb, When
from checkrein.core.events import CallStarted, InstructionDelivered, RunFinished, VerbAccepted, VerbSettled
from checkrein.core.orders import Abort, UndoEffect
from tests.core.story import Story, accepted, events_of, only, refusal_of


def test_a_redirect_now_stops_everything_in_flight_before_anything_else_begins() -> None:
    story = Story()
    events_of(story.model("m1"))
    events_of(story.tool("score"))

    events_of(story.redirect(when=When.NOW))

    assert story.orders == (Abort("m1", Verb.REDIRECT), Abort("score", Verb.REDIRECT))
    assert refusal_of(story.model("m2", delivers=True)).code == "not_now"
    story.drive()
    assert not any(isinstance(order, Abort) for order in story.orders)
    events_of(story.model("m2", delivers=True))


def test_a_call_that_was_asked_for_before_a_redirect_does_not_begin_without_its_instruction() -> None:
    """Nothing was in flight, so nothing is stopped: the agent would go on as if nobody had said anything."""
    story = Story()
    events_of(story.redirect(when=When.NOW))

    assert refusal_of(story.model("m1", carries=True)).code == "not_now"
    events_of(story.model("m1", carries=True, delivers=True))
    events_of(story.model("m2", carries=True))


def test_a_redirect_at_the_next_step_lets_the_calls_in_flight_finish() -> None:
    story = Story()
    events_of(story.tool("score"))

    redirect = accepted(story.redirect(when=When.NEXT_STEP))

    assert story.state.live["score"].stop is None
    events_of(story.finish("score"))
    events_of(story.model("m2", delivers=True))
    assert story.receipt(redirect).calls == ()


def test_a_redirect_undoes_what_it_interrupted_and_keeps_finished_work() -> None:
    """D38: a new message does not clobber what is done."""
    story = Story()
    story.did("draft")
    events_of(story.tool("lock", effect=True))
    redirect = accepted(story.redirect())

    story.drive()
    events_of(story.model("m2", delivers=True))

    assert story.ledger["lock"].state == "undone"
    assert story.ledger["draft"].state == "open"
    receipt = story.receipt(redirect)
    assert [(call.name, call.now) for call in receipt.calls] == [("lock", "aborted")]
    assert [(effect.what, effect.now) for effect in receipt.effects] == [("lock", "undone")]


def test_a_tool_that_finishes_although_it_was_redirected_is_kept() -> None:
    story = Story()
    events_of(story.tool("lock", effect=True))
    events_of(story.redirect())

    events_of(story.finish("lock", Outcome.COMPLETED))

    assert story.orders == ()
    assert story.ledger["lock"].state == "open"


def test_the_instruction_is_given_only_when_what_was_interrupted_is_undone() -> None:
    story = Story()
    events_of(story.tool("lock", effect=True))
    events_of(story.redirect())
    events_of(story.finish("lock", Outcome.ABORTED))

    assert [type(order) for order in story.orders] == [UndoEffect]
    assert refusal_of(story.model("m1", delivers=True)).code == "not_now"
    story.drive()
    events_of(story.model("m1", delivers=True))


def test_an_instruction_and_the_call_that_carries_it_are_one_append() -> None:
    """P5: an instruction is never marked as given without the call that gives it."""
    story = Story()
    story.plan("Join against MRR table")
    redirect = accepted(story.redirect("Join against ARR table"))

    events = events_of(story.model("m1", delivers=True))

    assert [type(event) for event in events] == [InstructionDelivered, VerbSettled, CallStarted]
    delivered = only(InstructionDelivered, events)
    assert (delivered.accepted, delivered.call) == (redirect, "m1")
    assert delivered.diff == "Join against [-MRR-] {+ARR+} table"
    assert story.status == "running"
    assert story.receipt(redirect).delivered is True


def test_a_call_that_cannot_carry_the_instruction_leaves_it_pending() -> None:
    story = Story()
    events_of(story.redirect())

    events_of(story.tool("score"))

    assert story.state.instruction is not None
    assert story.status == "redirecting"


def test_an_instruction_is_given_once() -> None:
    story = Story()
    events_of(story.redirect())
    events_of(story.model("m1", delivers=True))
    events_of(story.finish("m1"))

    assert [type(event) for event in events_of(story.model("m2", delivers=True))] == [CallStarted]


def test_the_newer_of_two_redirects_wins_and_both_are_logged() -> None:
    story = Story()
    events_of(story.tool("score"))
    older = accepted(story.redirect("only Q3"))
    newer = accepted(story.redirect("only Q4"))
    story.drive()

    delivered = only(InstructionDelivered, events_of(story.model("m1", delivers=True)))

    assert delivered.diff == "+ only Q4"
    assert [event.instruction for event in story.all(VerbAccepted)] == ["only Q3", "only Q4"]
    assert (story.receipt(older).superseded_by, story.receipt(older).delivered) == (newer, False)
    assert (story.receipt(newer).superseded_by, story.receipt(newer).delivered) == (None, True)


def test_a_second_redirect_still_undoes_what_the_first_one_interrupted() -> None:
    story = Story()
    events_of(story.tool("lock", effect=True))
    events_of(story.redirect("only Q3"))
    events_of(story.finish("lock", Outcome.ABORTED))

    events_of(story.redirect("only Q4"))
    story.drive()

    assert story.ledger["lock"].state == "undone"


def test_a_pause_between_puts_off_the_undo_of_what_a_redirect_interrupted() -> None:
    """D20: nothing happens while it is paused; D33: it is not forgotten."""
    story = Story()
    events_of(story.tool("lock", effect=True))
    events_of(story.redirect("only Q3"))
    events_of(story.pause())
    story.drive()
    assert story.status == "paused"
    assert story.ledger["lock"].state == "in_doubt"

    events_of(story.resume("only Q4"))
    story.drive()

    assert story.ledger["lock"].state == "undone"


def test_a_program_that_is_about_to_end_must_take_the_instruction_first() -> None:
    story = Story()
    events_of(story.redirect())

    assert refusal_of(story.complete()).code == "instruction_pending"
    events_of(story.model("m1", delivers=True))
    events_of(story.finish("m1"))
    events_of(story.complete())


@pytest.mark.parametrize("end", ["complete", "fail"])
def test_a_program_that_ends_first_says_that_the_instruction_was_not_delivered(end: str) -> None:
    story = Story()
    events_of(story.tool("lock", effect=True))
    redirect = accepted(story.redirect())
    story.drive()

    events = events_of(getattr(story, end)(undelivered_ok=True))

    assert [type(event) for event in events] == [VerbSettled, RunFinished]
    assert story.receipt(redirect).delivered is False
    assert [(effect.what, effect.now) for effect in story.receipt(redirect).effects] == [("lock", "undone")]


def test_a_cancel_of_a_redirected_run_says_that_the_instruction_was_not_delivered() -> None:
    story = Story()
    events_of(story.tool("score"))
    redirect = accepted(story.redirect())
    cancel = accepted(story.cancel())

    story.drive()

    assert story.receipt(redirect).delivered is False
    assert story.receipt(redirect).superseded_by == cancel


def test_a_redirect_answers_only_for_the_calls_that_it_stopped() -> None:
    story = Story()
    events_of(story.tool("score"))
    redirect = accepted(story.redirect())
    events_of(story.finish("score", Outcome.ABORTED))

    story.did("unrelated", effect=False)
    events_of(story.model("m1", delivers=True))

    assert [call.name for call in story.receipt(redirect).calls] == ["score"]


def test_a_call_in_doubt_that_a_redirect_passed_over_no_longer_holds_up_the_run() -> None:
    """It is still put to a person, but the agent goes on with its new instruction."""
    story = Story()
    story.crashes_in("send")
    assert story.state.waiting() != ()

    events_of(story.redirect())

    assert story.state.waiting() == ()
    assert story.state.doubts["send"].person
    events_of(story.model("m1", delivers=True))
    events_of(story.finish("m1"))
    events_of(story.complete())
    assert story.ledger["send"].state == "in_doubt"
