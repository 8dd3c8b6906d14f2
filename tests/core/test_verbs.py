"""The rules beside the table: whose receipt counts, who supersedes whom, what a verb must bring along."""

from __future__ import annotations

from typing import Any

import pytest

from checkrein.core.enums import CallKind, Outcome, Undo, Verb, When
from checkrein.core.events import HELD_PREFIX, Need, VerbAccepted
from checkrein.core.orders import AnswerQuestion
from tests.core.story import Story, accepted, events_of, joined, refusal_of


def test_a_second_pause_gets_the_receipt_of_the_first_before_and_after_it_settles() -> None:
    story = Story()
    events_of(story.tool("score"))
    first = accepted(story.pause())

    while_pausing = story.pause()
    events_of(story.finish("score"))
    story.drive()
    while_paused = story.pause()

    assert joined(while_pausing) == joined(while_paused) == first
    assert story.receipt(first).status == "paused"


def test_a_second_cancel_gets_the_receipt_of_the_first_before_and_after_it_settles() -> None:
    story = Story()
    events_of(story.tool("score"))
    first = accepted(story.cancel())

    while_cancelling = story.cancel()
    story.drive()
    when_cancelled = story.cancel()

    assert joined(while_cancelling) == joined(when_cancelled) == first
    assert story.receipt(first).status == "cancelled"


@pytest.mark.parametrize(("first", "second"), [(Undo.ALL, Undo.OPEN), (Undo.ALL, Undo.NONE), (Undo.OPEN, Undo.NONE)])
def test_a_cancel_that_wants_less_undone_replaces_the_earlier_one(first: Undo, second: Undo) -> None:
    story = Story()
    story.did("draft")
    stronger = accepted(story.cancel(first))

    weaker = accepted(story.cancel(second))
    story.drive()

    assert story.state.undo is second
    assert story.receipt(stronger).superseded_by == weaker
    assert story.receipt(weaker).superseded_by is None
    assert story.status == "cancelled"


@pytest.mark.parametrize(
    ("first", "second"), [(Undo.OPEN, Undo.OPEN), (Undo.OPEN, Undo.ALL), (Undo.NONE, Undo.ALL), (Undo.NONE, Undo.OPEN)]
)
def test_a_cancel_that_wants_as_much_or_more_undone_joins_the_earlier_one(first: Undo, second: Undo) -> None:
    story = Story()
    events_of(story.tool("score"))
    earlier = accepted(story.cancel(first))

    assert joined(story.cancel(second)) == earlier
    assert story.state.undo is first


def test_a_weaker_cancel_after_the_end_changes_nothing_any_more() -> None:
    story = Story()
    first = accepted(story.cancel(Undo.ALL))
    story.drive()

    assert joined(story.cancel(Undo.NONE)) == first


@pytest.mark.parametrize("settled", [False, True])
def test_the_pause_of_a_person_takes_over_from_that_of_a_shutdown(settled: bool) -> None:
    """D29: what a person has paused stays paused over restarts."""
    story = Story()
    events_of(story.tool("score"))
    shutdown = accepted(story.pause(by="checkrein", resumes_itself=True))
    if settled:
        events_of(story.finish("score"))
        story.drive()
    assert story.state.resumes_itself

    person = accepted(story.pause(by="ann"))

    assert not story.state.resumes_itself
    assert story.state.paused_by == person
    if not settled:
        events_of(story.finish("score"))
    story.drive()
    assert story.status == "paused"
    assert story.receipt(shutdown).superseded_by == (None if settled else person)
    assert story.receipt(person).by == "ann"


def test_the_pause_of_a_shutdown_does_not_take_over_from_that_of_a_person() -> None:
    story = Story()
    person = accepted(story.pause(by="ann"))

    assert joined(story.pause(by="checkrein", resumes_itself=True)) == person
    assert not story.state.resumes_itself


HELD = f"{HELD_PREFIX}1"
"""The id of a pause that was passed on from a parent."""


@pytest.mark.parametrize("settled", [False, True])
def test_the_pause_of_a_person_takes_over_from_that_of_a_parent(settled: bool) -> None:
    """What was acknowledged is kept: the run is not resumed with its parent any more."""
    story = Story()
    events_of(story.tool("score"))
    assert accepted(story.pause(id=HELD, by="ann")) == HELD
    if settled:
        events_of(story.finish("score"))
        story.drive()
    assert story.state.is_held

    person = accepted(story.pause(by="bob"))

    assert not story.state.is_held
    assert joined(story.pause(by="cyd")) == person, "from then on it is in force as any other"
    if not settled:
        events_of(story.finish("score"))
    story.drive()
    assert story.status == "paused"
    assert story.receipt(HELD).superseded_by == (None if settled else person)
    assert story.receipt(person).by == "bob"


@pytest.mark.parametrize(
    "given",
    [
        {"id": f"{HELD_PREFIX}2", "by": "bob"},
        {"by": "checkrein", "resumes_itself": True},
        {"by": "checkrein", "needs": Need(code="credentials", what="401", remedy="Set the key.")},
    ],
    ids=["another parent's", "a shutdown's", "the runtime's"],
)
def test_no_other_pause_takes_over_from_that_of_a_parent(given: dict[str, Any]) -> None:
    story = Story()
    events_of(story.pause(id=HELD, by="ann"))

    assert joined(story.pause(**given)) == HELD
    assert story.state.is_held


def test_the_pause_of_a_parent_does_not_take_over_from_that_of_a_person() -> None:
    story = Story()
    person = accepted(story.pause(by="bob"))

    assert joined(story.pause(id=HELD, by="ann")) == person
    assert not story.state.is_held


def test_a_run_that_was_resumed_is_not_held_any_more() -> None:
    story = Story()
    events_of(story.pause(id=HELD, by="ann"))
    story.drive()

    events_of(story.resume())

    assert not story.state.is_held


def test_a_pause_with_a_need_makes_the_run_wait_until_it_is_resumed() -> None:
    story = Story()

    events_of(story.pause(by="checkrein", needs=Need(code="credentials", what="401", remedy="Set the key.")))

    assert [(wait.kind, wait.what, wait.remedy) for wait in story.state.waiting()] == [
        ("credentials", "401", "Set the key.")
    ]
    story.drive()
    events_of(story.resume())
    assert story.state.waiting() == ()


def test_every_verb_that_was_put_out_of_force_is_settled_as_superseded() -> None:
    """D5: whoever asked learns what became of it."""
    story = Story()
    events_of(story.tool("score"))
    pause = accepted(story.pause())
    resume = accepted(story.resume())
    redirect = accepted(story.redirect())
    ask = accepted(story.ask())
    abort = accepted(story.abort("score"))

    cancel = accepted(story.cancel())
    story.drive()

    by = {verb: story.receipt(verb).superseded_by for verb in (pause, resume, redirect, ask, abort, cancel)}
    assert by == {pause: resume, resume: redirect, redirect: cancel, ask: cancel, abort: cancel, cancel: None}


def test_a_pause_while_pausing_that_was_resumed_is_a_new_one() -> None:
    story = Story()
    events_of(story.tool("score"))
    first = accepted(story.pause())
    events_of(story.resume())

    second = accepted(story.pause())

    assert second != first
    assert story.state.paused_by == second


@pytest.mark.parametrize("words", ["", "   "])
def test_a_verb_that_says_nothing_is_refused(words: str) -> None:
    story = Story()

    assert refusal_of(story.redirect(words)).code == "empty_instruction"
    assert refusal_of(story.ask(words)).code == "empty_question"
    events_of(story.pause())
    assert refusal_of(story.resume(words)).code == "empty_instruction"


def test_a_run_that_was_never_begun_can_be_cancelled_and_says_so() -> None:
    """D1: a stop during the start is a stop."""
    story = Story(driven=False)
    cancel = accepted(story.cancel(reason="wrong path"))

    story.drive()

    assert story.status == "cancelled"
    assert story.receipt(cancel).reason == "wrong path"
    assert story.receipt(cancel).calls == ()


def test_a_redirect_of_a_queued_run_is_kept_for_its_first_call() -> None:
    story = Story(driven=False)
    redirect = accepted(story.redirect("only Q3"))
    events_of(story.take_over())

    events_of(story.model("m1", delivers=True))

    assert story.status == "running"
    assert story.receipt(redirect).delivered is True


# -- side questions


def test_a_question_is_answered_from_beside_the_run_and_counts_as_cost() -> None:
    """D31: a paused run can be asked."""
    story = Story()
    events_of(story.pause())
    story.drive()
    ask = accepted(story.ask("how far are you?"))

    (order,) = story.orders
    assert order == AnswerQuestion(story.state.verbs[0], 1)
    story.drive(until=AnswerQuestion)
    assert refusal_of(story.model("m1")).code == "not_now"
    story.drive()

    assert story.status == "paused"
    assert story.receipt(ask).verb is Verb.ASK


def test_a_question_nobody_waits_for_gets_no_permit() -> None:
    story = Story()
    ask = accepted(story.ask())
    events_of(story.cancel())

    refusal = refusal_of(story.model(f"ask:{ask}", kind=CallKind.ASK))

    assert refusal.code == "not_now"


def test_a_cancel_aborts_a_question_and_a_redirect_does_not() -> None:
    story = Story()
    ask = accepted(story.ask())
    events_of(story.model(f"ask:{ask}", kind=CallKind.ASK))

    events_of(story.redirect(when=When.NOW))
    assert story.state.live[f"ask:{ask}"].stop is None
    events_of(story.cancel())

    assert story.state.live[f"ask:{ask}"].stop is Verb.CANCEL


def test_a_question_in_flight_does_not_hold_up_a_pause() -> None:
    story = Story()
    ask = accepted(story.ask())
    events_of(story.model(f"ask:{ask}", kind=CallKind.ASK))
    pause = accepted(story.pause())

    events_of(story.settle(pause))

    assert story.status == "paused"
    events_of(story.finish(f"ask:{ask}"))
    story.drive()
    assert story.receipt(ask).superseded_by is None


def test_a_question_in_doubt_is_asked_again_also_after_a_redirect() -> None:
    story = Story()
    ask = accepted(story.ask())
    events_of(story.model(f"ask:{ask}", kind=CallKind.ASK))
    events_of(story.take_over())

    events_of(story.redirect())

    assert [order.attempt for order in story.orders if isinstance(order, AnswerQuestion)] == [2]
    story.drive()
    assert story.receipt(ask).verb is Verb.ASK


@pytest.mark.parametrize("outcome", [Outcome.ABORTED, Outcome.KILLED, Outcome.IN_DOUBT])
def test_a_question_that_a_person_aborts_is_not_asked_again(outcome: Outcome) -> None:
    story = Story()
    ask = accepted(story.ask())
    events_of(story.model(f"ask:{ask}", kind=CallKind.ASK))
    abort = accepted(story.abort(f"ask:{ask}"))
    events_of(story.finish(f"ask:{ask}", outcome))

    story.drive()

    assert {story.receipt(ask).verb, story.receipt(abort).verb} == {Verb.ASK, Verb.ABORT}
    assert story.state.verbs == ()


def test_the_reason_of_a_stop_is_kept_with_it() -> None:
    """D14: stops are logged with who, why and when."""
    story = Story()

    events_of(story.cancel(by="ann", reason="reciting its instructions", asked_at=story.at - 0.5))

    (stop,) = story.all(VerbAccepted)
    assert (stop.by, stop.reason, stop.at, stop.asked_at) == ("ann", "reciting its instructions", 1000.0, 999.5)


@pytest.mark.parametrize("verb", ["resume", "redirect", "approve", "deny"])
def test_who_wants_more_of_a_run_that_is_over_is_told_how_to_go_on(verb: str) -> None:
    story = Story()
    events_of(story.complete())
    ask = {"approve": lambda: story.approve("c1"), "deny": lambda: story.deny("c1")}

    refusal = refusal_of(ask.get(verb, getattr(story, verb))())

    assert refusal.code == "finished"
    assert 'checkrein run FILE "…" --continue r-1' in refusal.message
    assert "to stop" not in refusal.message


def test_a_question_to_a_run_that_was_stopped_is_told_how_to_go_on() -> None:
    story = Story()
    events_of(story.cancel())
    story.drive()

    assert "--continue r-1" in refusal_of(story.ask()).message


def test_who_wants_to_stop_a_run_that_is_over_is_told_that_there_is_nothing_to_stop() -> None:
    story = Story()
    events_of(story.complete())

    assert refusal_of(story.cancel()).message.endswith("there was nothing left to stop.")
