"""Approvals: bound to one call and its exact arguments, consumed once, and never left hanging."""

from __future__ import annotations

import msgspec
import pytest

from checkrein.core.commands import CancelRun
from checkrein.core.decide import decide
from checkrein.core.decide.calls import MOST_APPROVALS
from checkrein.core.enums import Answer, Decision, Undo, When
from checkrein.core.events import ApprovalDecided, ApprovalRequested, CallStarted, Json
from checkrein.core.evolve import fold
from checkrein.core.state import State
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

    events_of(
        story.cancel() if verb == "cancel" else story.redirect(when=When.NOW if verb == "redirect" else When.NEXT_STEP)
    )

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


def test_a_person_is_asked_for_a_queued_proposal_all_the_same_until_it_is_decided() -> None:
    """The run does not complete without it, and would stand still unseen."""
    story = asked_to("post", blocks=False)
    assert [one.what for one in story.state.asked()] == ["approve post"]

    events_of(story.approve("post"))
    assert story.state.asked() == ()


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


def approved_and_not_done(call: str) -> Story:
    """It was approved and begun, its driver died, and a person says that it did not happen."""
    story = asked_to(call)
    events_of(story.approve(call))
    events_of(story.tool(call, needs_approval=True))
    events_of(story.take_over())
    events_of(story.resolve(call, Answer.DID_NOT_HAPPEN))
    return story


def test_a_call_that_a_person_says_did_not_happen_keeps_its_approval() -> None:
    """The same recorded call with the same arguments: nothing new is asked for."""
    story = approved_and_not_done("pay")

    events_of(story.tool("pay", needs_approval=True, attempt=2))


def test_a_call_that_is_tried_again_has_the_arguments_that_were_approved() -> None:
    story = approved_and_not_done("pay")

    refusal_of(story.tool("pay", needs_approval=True, attempt=2, fingerprint="hash of another sum"))


# -- consent to what was shown


def test_consent_to_something_else_than_was_shown_is_refused_and_changes_nothing() -> None:
    story = asked_to("pay")
    before = story.state

    refusal = refusal_of(story.approve("pay", fingerprint="hash of a smaller sum"))

    assert refusal.code == "not_as_shown"
    assert story.state == before
    events_of(story.approve("pay", fingerprint="hash of pay"))


def edited(story: Story, call: str) -> None:
    arguments = Json(b'{"sum":5}')
    events_of(story.approve(call, arguments=arguments, edited="hash of five", fingerprint=f"hash of {call}"))


def test_a_call_that_was_approved_with_other_arguments_begins_with_those_alone() -> None:
    story = asked_to("pay")

    edited(story, "pay")

    assert "other arguments" in refusal_of(story.tool("pay", needs_approval=True)).message
    events_of(story.tool("pay", needs_approval=True, fingerprint="hash of five"))


def test_a_call_with_other_arguments_is_tried_again_with_those_alone() -> None:
    story = asked_to("pay")
    edited(story, "pay")
    events_of(story.tool("pay", needs_approval=True, fingerprint="hash of five"))
    events_of(story.take_over())
    events_of(story.resolve("pay", Answer.DID_NOT_HAPPEN))

    assert refusal_of(story.tool("pay", needs_approval=True, attempt=2)).code == "not_again"
    events_of(story.tool("pay", needs_approval=True, attempt=2, fingerprint="hash of five"))


def test_a_snapshot_keeps_what_a_person_wanted_instead() -> None:
    story = asked_to("pay")
    edited(story, "pay")

    read = msgspec.json.decode(msgspec.json.encode(story.state), type=State)

    assert bytes(read.approvals["pay"].arguments or b"") == b'{"sum":5}'
    assert read == story.state


def test_what_a_person_wanted_instead_is_recorded_with_their_name() -> None:
    story = asked_to("pay")

    edited(story, "pay")

    (decided,) = story.all(ApprovalDecided)
    assert (bytes(decided.arguments or b""), decided.fingerprint, decided.by) == (b'{"sum":5}', "hash of five", "ann")


# -- consent for the rest of the run


def always(call: str = "pay") -> Story:
    story = asked_to(call)
    events_of(story.approve(call, always=True))
    events_of(story.tool(call, needs_approval=True))
    events_of(story.finish(call))
    return story


def begins(story: Story, call: str, *, name: str = "pay") -> bool:
    return isinstance(story.tool(call, name=name, needs_approval=True), tuple)


def test_later_calls_of_a_tool_that_was_approved_for_the_run_begin_unasked() -> None:
    story = always()

    assert begins(story, "pay-2")
    assert not begins(story, "post-1", name="post")


def test_consent_for_the_run_outlives_its_driver() -> None:
    """It was given for the run, and the journal knows it."""
    story = always()

    events_of(story.take_over())

    assert begins(story, "pay-2")


@pytest.mark.parametrize("when", list(When))
def test_a_redirect_withdraws_consent_for_the_run(when: When) -> None:
    """It was given for another course."""
    story = always()

    events_of(story.redirect(when=when))
    story.drive()

    assert story.state.always == ()
    assert not begins(story, "pay-2")


def test_a_pause_and_a_resume_keep_consent_for_the_run() -> None:
    story = always()

    events_of(story.pause())
    story.drive()
    events_of(story.resume("and then stop"))

    assert begins(story, "pay-2")


def test_a_denial_takes_consent_for_the_run_back() -> None:
    story = asked_to("pay")
    events_of(story.request("pay-2", name="pay", blocks=False))
    events_of(story.approve("pay", always=True))

    events_of(story.deny("pay-2"))

    assert story.state.always == ()


def test_consent_for_the_run_is_no_consent_to_what_was_asked_before_it() -> None:
    story = asked_to("pay")
    events_of(story.request("pay-2", name="pay", blocks=False))

    events_of(story.approve("pay", always=True))

    assert not begins(story, "pay-2")


# -- many


def test_only_so_many_calls_wait_for_an_approval_and_one_more_is_refused_in_the_record() -> None:
    story = Story()
    for number in range(MOST_APPROVALS):
        events_of(story.request(f"post-{number}", blocks=False))

    asked, refused = events_of(story.request("one too many", blocks=False))

    assert isinstance(asked, ApprovalRequested)
    assert isinstance(refused, ApprovalDecided)
    assert (refused.decision, refused.call) == (Decision.REFUSED, "one too many")
    assert "100 calls wait" in refused.note
    assert len(story.state.approvals) == MOST_APPROVALS
    assert refusal_of(story.tool("one too many", needs_approval=True)).code == "not_approved"


def test_a_cancel_withdraws_thousands_of_approvals_with_one_event() -> None:
    """A run of a store that was written before there was a limit."""
    story = Story()
    asked = [
        ApprovalRequested(id=f"{n}.approval", at=1.0, call=str(n), name="post", fingerprint="", blocks=False)
        for n in range(6_000)
    ]
    state = fold(story.state, asked)

    verdict = decide(state, CancelRun(id="stop", at=2.0, by="ann", undo=Undo.OPEN))

    assert isinstance(verdict, tuple)
    assert len(verdict) == 1
    assert fold(state, verdict).approvals == {}
