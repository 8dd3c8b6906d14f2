"""Approvals: bound to one call and its exact arguments, consumed once, and never left hanging."""

from __future__ import annotations

import pytest

from checkrein.core.events import ApprovalDecided, CallStarted
from checkrein.core.words import Answer, Decision, When
from tests.core.story import Story, events_of, only, refusal_of


def asked_to(call: str, *, blocks: bool = True) -> Story:
    """A run whose agent wants to make a call that a person must allow."""
    story = Story()
    events_of(story.request(call, blocks=blocks))
    return story


def test_a_call_that_needs_an_approval_does_not_begin_without_one() -> None:
    """D34: what cannot be undone asks first."""
    story = Story()

    assert refusal_of(story.tool("pay", needs_approval=True)).code == "not_approved"
    events_of(story.request("pay"))
    assert refusal_of(story.tool("pay", needs_approval=True)).code == "not_approved"
    assert [(wait.kind, wait.what, wait.call) for wait in story.state.waiting()] == [("approval", "approve pay", "pay")]


def test_an_approved_call_begins_and_the_approval_is_consumed() -> None:
    story = asked_to("pay")
    events_of(story.approve("pay"))
    assert story.state.waiting() == ()

    events_of(story.tool("pay", needs_approval=True))

    assert story.state.approvals == {}
    events_of(story.finish("pay"))
    assert refusal_of(story.tool("pay", needs_approval=True)).code == "not_approved"


def test_an_approval_holds_for_the_arguments_that_were_shown() -> None:
    story = asked_to("pay")
    events_of(story.approve("pay"))

    refusal = refusal_of(story.tool("pay", needs_approval=True, fingerprint="hash of another sum"))

    assert refusal.code == "not_approved"
    assert "other arguments" in refusal.message


def test_an_approval_holds_for_no_other_call() -> None:
    story = asked_to("pay")
    events_of(story.approve("pay"))

    other = story.tool("pay-2", needs_approval=True, fingerprint="hash of pay")

    assert refusal_of(other).code == "not_approved"


def test_an_approval_is_decided_once() -> None:
    story = asked_to("pay")
    events_of(story.approve("pay"))

    assert refusal_of(story.approve("pay")).code == "not_waiting"
    assert refusal_of(story.deny("pay")).code == "not_waiting"
    assert refusal_of(story.approve("nothing")).code == "not_waiting"


def test_a_denied_call_does_not_begin() -> None:
    story = asked_to("pay")

    events_of(story.deny("pay", reason="too much"))

    assert story.state.waiting() == ()
    assert refusal_of(story.tool("pay", needs_approval=True)).code == "not_approved"
    (decided,) = story.all(ApprovalDecided)
    assert (decided.decision, decided.by, decided.note) == (Decision.DENIED, "ann", "too much")


@pytest.mark.parametrize("decided", [False, True])
@pytest.mark.parametrize("verb", ["redirect", "redirect at the next step", "cancel"])
def test_a_redirect_and_a_cancel_withdraw_every_approval(verb: str, decided: bool) -> None:
    """D26: no surprise action happens after a stop, not even one that was approved before it."""
    story = asked_to("pay")
    events_of(story.request("post", blocks=False))
    if decided:
        events_of(story.approve("pay"))

    events = events_of(
        story.cancel() if verb == "cancel" else story.redirect(when=When.NOW if verb == "redirect" else When.NEXT_STEP)
    )

    withdrawn = {e.call: e.decision for e in events if isinstance(e, ApprovalDecided)}
    assert withdrawn == {"pay": Decision.WITHDRAWN, "post": Decision.WITHDRAWN}
    assert story.state.approvals == {}
    refusal_of(story.tool("pay", needs_approval=True))


def test_an_approval_that_is_taken_while_paused_is_performed_after_the_resume() -> None:
    """D20: a paused run takes decisions and does nothing."""
    story = asked_to("pay")
    events_of(story.pause())
    story.drive()

    events_of(story.approve("pay"))
    assert refusal_of(story.tool("pay", needs_approval=True)).code == "not_now"
    events_of(story.resume())

    assert only(CallStarted, events_of(story.tool("pay", needs_approval=True))).call == "pay"


def test_an_approval_is_asked_for_once_and_only_while_the_run_is_at_work() -> None:
    story = asked_to("pay")

    assert refusal_of(story.request("pay")).code == "already_waiting"
    events_of(story.pause())
    assert refusal_of(story.request("post")).code == "not_now"


def test_a_queued_proposal_does_not_make_the_run_wait() -> None:
    """D37: the agent goes on with other work."""
    story = asked_to("post", blocks=False)

    assert story.state.waiting() == ()
    story.did("look")


@pytest.mark.parametrize("blocks", [True, False])
def test_a_run_does_not_complete_while_a_proposal_is_open(blocks: bool) -> None:
    """D37"""
    story = asked_to("post", blocks=blocks)

    assert refusal_of(story.complete()).code == "waiting"
    events_of(story.approve("post"))
    assert refusal_of(story.complete()).code == "waiting"
    events_of(story.tool("post", needs_approval=True))
    events_of(story.finish("post"))
    events_of(story.complete())


def test_a_run_does_not_complete_while_a_call_is_in_doubt() -> None:
    story = Story()
    story.crashes_in("send")

    assert refusal_of(story.complete()).code == "waiting"
    events_of(story.resolve("send", Answer.HAPPENED))
    events_of(story.complete())


def test_a_call_that_a_person_says_did_not_happen_keeps_its_approval() -> None:
    """The same recorded call with the same arguments: nothing new is asked for."""
    story = asked_to("pay")
    events_of(story.approve("pay"))
    events_of(story.tool("pay", needs_approval=True))
    events_of(story.take_over())

    events_of(story.resolve("pay", Answer.DID_NOT_HAPPEN))

    events_of(story.tool("pay", needs_approval=True, attempt=2))


def test_a_call_that_is_tried_again_has_the_arguments_that_were_approved() -> None:
    story = asked_to("pay")
    events_of(story.approve("pay"))
    events_of(story.tool("pay", needs_approval=True))
    events_of(story.take_over())
    events_of(story.resolve("pay", Answer.DID_NOT_HAPPEN))

    refusal_of(story.tool("pay", needs_approval=True, attempt=2, fingerprint="hash of another sum"))
