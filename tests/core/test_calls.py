"""Permits and outcomes: when a call may begin, when it may begin again, and that what happened is always taken."""

from __future__ import annotations

import pytest

from checkrein.core.conditions import Usage
from checkrein.core.enums import Answer, CallKind, Outcome, Status, Verb
from checkrein.core.events import CallFinished, CallStarted, EffectInDoubt, RunStarted
from checkrein.core.orders import TakeAnswer
from tests.core.story import Story, events_of, only, refusal_of
from tests.core.test_transitions import run_in

PERMITTED = {Status.RUNNING, Status.REDIRECTING}
ASKED_AGAIN = [CallKind.MODEL, CallKind.RUN]


# -- permits


@pytest.mark.parametrize("kind", [CallKind.MODEL, CallKind.TOOL, CallKind.RUN])
@pytest.mark.parametrize("status", Status)
def test_a_call_is_permitted_only_while_the_run_is_at_work(status: Status, kind: CallKind) -> None:
    """D3 D26 P1: once a stop is accepted nothing new is issued."""
    story = run_in(status)

    verdict = story.tool("next", kind=kind)

    if status in PERMITTED:
        assert only(CallStarted, events_of(verdict)).call == "next"
    else:
        assert refusal_of(verdict).code == "not_now"


@pytest.mark.parametrize("epoch", [0, 1, 3])
def test_only_the_owner_of_the_run_gets_a_permit(epoch: int) -> None:
    story = Story()
    events_of(story.take_over())
    assert story.state.epoch == 2

    assert refusal_of(story.tool("score", epoch=epoch)).code == "stale_epoch"


@pytest.mark.parametrize("epoch", [1, 2])
def test_an_epoch_only_goes_up(epoch: int) -> None:
    story = Story()
    events_of(story.take_over())

    assert refusal_of(story.take_over(epoch=epoch)).code == "stale_epoch"


def test_a_call_in_flight_is_not_begun_a_second_time() -> None:
    story = Story()
    events_of(story.tool("score"))

    assert refusal_of(story.tool("score")).code == "already_begun"


def test_a_permit_is_named_after_its_call_and_attempt_so_that_a_journal_takes_it_once() -> None:
    """P2: the same attempt can never be in a journal twice."""
    story = Story()

    assert only(CallStarted, events_of(story.model("m1"))).id == "m1#1"
    events_of(story.take_over())
    assert only(CallStarted, events_of(story.model("m1", attempt=2))).id == "m1#2"


# -- again: P2


@pytest.mark.parametrize("owner_dead", [True, False])
def test_a_tool_in_doubt_is_not_tried_again_until_a_person_says_it_did_not_happen(owner_dead: bool) -> None:
    """D30 P2: resume never re-does the call that was in flight."""
    story = Story()
    story.crashes_in("send", owner_dead=owner_dead)
    for attempt in (1, 2):
        assert refusal_of(story.tool("send", attempt=attempt)).code == "in_doubt"
    assert [(wait.kind, wait.call) for wait in story.state.waiting()] == [("in_doubt", "send")]

    events_of(story.resolve("send", Answer.DID_NOT_HAPPEN))

    assert story.state.waiting() == ()
    assert refusal_of(story.tool("send", attempt=1)).code == "not_again"
    assert only(CallStarted, events_of(story.tool("send", attempt=2))).attempt == 2


@pytest.mark.parametrize("answer", [Answer.HAPPENED, Answer.UNDO])
def test_a_tool_that_happened_is_not_tried_again(answer: Answer) -> None:
    """D30"""
    story = Story()
    story.crashes_in("send")

    events_of(story.resolve("send", answer))

    assert story.state.waiting() == ()
    assert refusal_of(story.tool("send", attempt=2)).code == "not_again"


@pytest.mark.parametrize("kind", ASKED_AGAIN)
def test_what_only_spends_is_asked_again_as_the_next_attempt(kind: CallKind) -> None:
    story = Story()
    for attempt in (1, 2, 3):
        assert refusal_of(story.tool("m1", kind=kind, attempt=attempt + 1)).code == "not_again"
        events_of(story.tool("m1", kind=kind, attempt=attempt))
        events_of(story.take_over(owner_dead=False))
        assert story.state.waiting() == ()

    events_of(story.tool("m1", kind=kind, attempt=4))


def test_an_idempotent_tool_is_tried_again_with_the_same_effect() -> None:
    """P2"""
    story = Story()
    story.crashes_in("charge", idempotent=True, owner_dead=False)

    assert story.state.waiting() == ()
    events_of(story.tool("charge", effect=True, idempotent=True, attempt=2))
    events_of(story.finish("charge"))

    assert [(effect.id, effect.state) for effect in story.effects] == [("charge", "open")]
    assert story.state.usage.effects == 1


def test_every_attempt_counts_as_cost() -> None:
    """D25 P2"""
    story = Story()
    events_of(story.model("m1"))
    events_of(story.pause())
    events_of(story.finish("m1", Outcome.ABORTED, usage=Usage(output_tokens=7, cost_usd=0.5)))
    story.drive()
    events_of(story.resume())
    events_of(story.model("m1", attempt=2))
    events_of(story.finish("m1", usage=Usage(output_tokens=9, cost_usd=0.25)))

    usage = story.state.usage
    assert (usage.turns, usage.model_calls, usage.output_tokens, usage.cost_usd) == (1, 2, 16, 0.75)


@pytest.mark.parametrize("stop", [Verb.REDIRECT, Verb.ABORT])
def test_what_a_person_stopped_for_good_is_not_asked_again(stop: Verb) -> None:
    story = Story()
    events_of(story.model("m1"))
    events_of(story.redirect() if stop is Verb.REDIRECT else story.abort("m1"))
    events_of(story.finish("m1", Outcome.ABORTED))

    assert story.state.again == {}
    assert refusal_of(story.model("m1", attempt=2)).code == "not_again"


# -- outcomes


def test_the_outcome_of_a_call_is_taken_once() -> None:
    story = Story()
    events_of(story.tool("score"))
    events_of(story.finish("score"))

    assert refusal_of(story.finish("score", Outcome.FAILED)).code == "not_in_flight"


@pytest.mark.parametrize("outcome", Outcome)
@pytest.mark.parametrize("verb", ["pause", "redirect", "cancel", "abort"])
def test_an_outcome_is_never_refused_because_of_a_verb(verb: str, outcome: Outcome) -> None:
    """A thing that happened is a fact, whatever was asked for meanwhile."""
    story = Story()
    events_of(story.tool("score", effect=True))
    events_of(story.abort("score") if verb == "abort" else getattr(story, verb)())

    events = events_of(story.finish("score", outcome))

    assert only(CallFinished, events).outcome is outcome
    assert "score" not in story.state.live


@pytest.mark.parametrize("outcome", Outcome)
def test_an_interrupted_call_may_have_partly_happened(outcome: Outcome) -> None:
    """D5: what was interrupted is not reported as done, nor as not done."""
    story = Story()
    events_of(story.tool("score", effect=True))

    events_of(story.finish("score", outcome))

    came_back = outcome in (Outcome.COMPLETED, Outcome.FAILED)
    assert story.ledger["score"].state == ("open" if came_back else "in_doubt")


# -- taking over


def test_a_new_driver_marks_what_it_finds_in_flight_as_in_doubt_before_it_begins() -> None:
    """D29: the host may crash; facts come first, so that they are taken whatever becomes of the rest."""
    story = Story()
    events_of(story.model("m1"))
    events_of(story.tool("send", effect=True))

    events = events_of(story.take_over(owner_dead=True))

    assert [type(event) for event in events] == [CallFinished, CallFinished, EffectInDoubt, RunStarted]
    assert all(event.outcome is Outcome.IN_DOUBT for event in story.all(CallFinished))
    assert story.state.live == {}
    assert (story.status, story.state.epoch) == ("running", 2)


def test_whoever_claims_a_run_only_to_settle_it_does_not_start_it() -> None:
    story = Story()
    events_of(story.tool("send"))

    events = events_of(story.take_over(drives=False))

    assert [type(event) for event in events] == [CallFinished]
    assert story.state.epoch == 1


@pytest.mark.parametrize("status", [Status.PAUSING, Status.PAUSED, Status.REDIRECTING, Status.CANCELLING])
def test_a_new_driver_finds_the_run_in_the_status_it_was_in(status: Status) -> None:
    """D29: a stop survives the crash of the process that was to carry it out."""
    story = run_in(status)

    events_of(story.take_over())

    assert story.status == status


def test_a_former_owner_cannot_finish_a_call_that_is_in_doubt() -> None:
    story = Story()
    story.crashes_in("send", owner_dead=False)

    assert refusal_of(story.finish("send")).code == "not_in_flight"


@pytest.mark.parametrize(
    ("outcome", "began", "answer"),
    [
        (Outcome.COMPLETED, True, Answer.HAPPENED),
        (Outcome.IN_DOUBT, False, Answer.DID_NOT_HAPPEN),
        (Outcome.FAILED, True, None),
        (Outcome.ABORTED, True, None),
        (Outcome.IN_DOUBT, True, None),
    ],
)
def test_the_answer_of_a_former_owner_ends_the_doubt_where_it_leaves_none(
    outcome: Outcome, began: bool, answer: Answer | None
) -> None:
    story = Story()
    story.crashes_in("send", owner_dead=False)

    story.answers("send", outcome, epoch=1, began=began)

    assert story.state.doubts["send"].unanswered == ()
    assert story.orders == (() if answer is None else (TakeAnswer("send", answer),))
    assert bool(story.state.waiting()), "the answer decides nothing by itself"
    story.drive()
    assert bool(story.state.waiting()) is (answer is None)


def test_an_answer_of_a_wrong_epoch_says_nothing() -> None:
    story = Story()
    story.crashes_in("send", owner_dead=False)

    story.answers("send", Outcome.COMPLETED, epoch=2)

    assert story.state.doubts["send"].unanswered == (1,)
    assert story.orders == ()


def test_only_a_call_in_doubt_can_be_resolved() -> None:
    story = Story()
    events_of(story.tool("score"))

    assert refusal_of(story.resolve("score", Answer.HAPPENED)).code == "not_in_doubt"
    assert refusal_of(story.resolve("nothing", Answer.HAPPENED)).code == "not_in_doubt"


def test_a_call_without_an_effect_cannot_be_resolved_by_undoing_it() -> None:
    story = Story()
    story.crashes_in("look", effect=False)

    assert refusal_of(story.resolve("look", Answer.UNDO)).code == "nothing_to_undo"


def test_a_program_does_not_end_while_a_call_has_no_outcome() -> None:
    story = Story()
    events_of(story.tool("score"))

    refusal = refusal_of(story.complete())

    assert refusal.code == "calls_in_flight"
    assert "score" in refusal.message


@pytest.mark.parametrize("status", [s for s in Status if s not in (Status.COMPLETED, Status.FAILED)])
def test_a_program_can_only_complete_or_fail(status: Status) -> None:
    """P4: only a cancel cancels."""
    story = Story()

    assert refusal_of(story.complete(status=status)).code == "not_an_end"
    assert story.status == "running"


# -- failures that may pass


def test_a_model_that_failed_and_may_be_asked_again_gets_the_next_attempt_and_no_new_turn() -> None:
    story = Story()
    events_of(story.model("m1"))

    events_of(story.finish("m1", Outcome.FAILED, retry=True))

    assert story.state.attempt_due("m1") == 2
    events_of(story.model("m1", attempt=2))
    assert story.state.usage.turns == 1
    assert story.state.usage.model_calls == 2


def test_a_tool_that_failed_is_never_tried_again_by_itself() -> None:
    """P2"""
    story = Story()
    events_of(story.tool("send"))

    events_of(story.finish("send", Outcome.FAILED, retry=True))

    assert story.state.again == {}


def test_a_redirect_while_a_retry_is_waited_for_ends_the_retry() -> None:
    story = Story()
    events_of(story.model("m1"))
    events_of(story.finish("m1", Outcome.FAILED, retry=True))

    events_of(story.redirect("only Q3"))

    assert story.state.again == {}
