"""What each verb does in each status: every pair, in a run that was brought there by commands alone.

What is expected is written out here once more from the design, not read from the table under test.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Final

import pytest

from checkrein.core.decide.verdict import Verdict
from checkrein.core.enums import Answer, OnPause, Outcome, Status, Undo, Verb, When
from checkrein.core.events import UNOWNED, ApprovalDecided, CallResolved, EffectReopened, VerbAccepted
from checkrein.core.orders import Order, Settle
from tests.core.story import Story, events_of, joined, only, refusal_of

# The columns are the verbs, the rows the statuses. `a>b`: the run is in a once the verb is accepted, in b once it is
# settled; a status alone is both. `taken`: it is accepted and the status stays. `same`: nothing is accepted, the answer
# is the receipt of the verb in force.
EXPECTED: Final = """
             pause           resume   redirect             cancel                ask      abort    approve  deny     resolve  retry_undo halt
queued       paused          refused  taken                cancelling>cancelled  refused  refused  taken    taken    taken    refused    killed
running      pausing>paused  refused  redirecting>running  cancelling>cancelled  taken    taken    taken    taken    taken    refused    killed
pausing      same            running  redirecting>running  cancelling>cancelled  taken    taken    taken    taken    taken    refused    killed
paused       same            running  running              cancelling>cancelled  taken    taken    taken    taken    taken    refused    killed
redirecting  pausing>paused  refused  redirecting>running  cancelling>cancelled  taken    taken    taken    taken    taken    refused    killed
cancelling   refused         refused  refused              same                  refused  refused  refused  refused  taken    refused    killed
completed    refused         refused  refused              refused               taken    refused  refused  refused  taken    taken      refused
failed       refused         refused  refused              refused               taken    refused  refused  refused  taken    taken      refused
cancelled    refused         refused  refused              same                  refused  refused  refused  refused  taken    taken      refused
killed       refused         refused  refused              refused               refused  refused  refused  refused  taken    taken      refused
"""  # noqa: E501

UNDRIVEN: Final = {(Status.PAUSED, Verb.RESUME): Status.QUEUED, (Status.PAUSED, Verb.REDIRECT): Status.QUEUED}
"""Where a verb leads instead when no driver lives."""


def expected() -> dict[tuple[Status, Verb], str]:
    head, *rows = (line.split() for line in EXPECTED.strip().splitlines())
    return {
        (Status(status), Verb(verb)): cell for status, *cells in rows for verb, cell in zip(head, cells, strict=True)
    }


def run_in(status: Status) -> Story:
    """A run in `status` that has something for every verb, as far as the status allows: `send` is in doubt, the undo of
    `draft` is left, `pay` waits for an approval, `score` is in flight."""
    story = Story()
    story.crashes_in("send")
    story.did("draft")
    events_of(story.leave("draft"))
    events_of(story.tool("score", on_pause=OnPause.HOLD))
    if status is Status.REDIRECTING:
        events_of(story.redirect(when=When.NEXT_STEP))
    events_of(story.request("pay"))
    _INTO[status](story)
    assert story.status == status
    return story


def _into_paused(story: Story) -> None:
    events_of(story.pause())
    story.drive()


def _into_queued(story: Story) -> None:
    _into_paused(story)
    events_of(story.resume(driven=False))


def _into_completed(story: Story) -> None:
    events_of(story.redirect())
    events_of(story.finish("score", Outcome.ABORTED))
    events_of(story.model("m1", delivers=True))
    events_of(story.finish("m1"))
    events_of(story.complete())


def _into_failed(story: Story) -> None:
    events_of(story.finish("score", Outcome.FAILED))
    events_of(story.fail())


def _into_cancelled(story: Story) -> None:
    events_of(story.cancel())
    events_of(story.finish("score", Outcome.ABORTED))
    story.later(30)
    events_of(story.settle())


_INTO: Final[dict[Status, Callable[[Story], object]]] = {
    Status.QUEUED: _into_queued,
    Status.RUNNING: lambda story: None,
    Status.PAUSING: lambda story: events_of(story.pause()),
    Status.PAUSED: _into_paused,
    Status.REDIRECTING: lambda story: None,
    Status.CANCELLING: lambda story: events_of(story.cancel()),
    Status.COMPLETED: _into_completed,
    Status.FAILED: _into_failed,
    Status.CANCELLED: _into_cancelled,
    Status.KILLED: lambda story: events_of(story.halt(over=story.epochs_in_flight())),
}

_GIVE: Final[dict[Verb, Callable[[Story], Verdict]]] = {
    Verb.PAUSE: lambda story: story.pause(),
    Verb.RESUME: lambda story: story.resume(),
    Verb.REDIRECT: lambda story: story.redirect(),
    Verb.CANCEL: lambda story: story.cancel(),
    Verb.ASK: lambda story: story.ask(),
    Verb.ABORT: lambda story: story.abort("score"),
    Verb.APPROVE: lambda story: story.approve("pay"),
    Verb.DENY: lambda story: story.deny("pay"),
    Verb.RESOLVE: lambda story: story.resolve("send", Answer.HAPPENED),
    Verb.RETRY_UNDO: lambda story: story.retry_undo("draft"),
    Verb.HALT: lambda story: story.halt(),
}

PAIRS: Final = list(product(Status, Verb))


def goes_to(status: Status, verb: Verb) -> Status:
    cell = expected()[status, verb]
    return status if cell == "taken" else Status(cell.partition(">")[0])


def settles_in(status: Status, verb: Verb) -> Status:
    return (
        Status(expected()[status, verb].rpartition(">")[2])
        if ">" in expected()[status, verb]
        else goes_to(status, verb)
    )


ACCEPTED: Final = [pair for pair in PAIRS if expected()[pair] not in ("refused", "same")]
REFUSED: Final = [pair for pair in PAIRS if expected()[pair] == "refused"]
SAME: Final = [pair for pair in PAIRS if expected()[pair] == "same"]
FINISHED: Final = (Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.KILLED)


def test_the_expectations_speak_of_every_pair() -> None:
    assert set(expected()) == set(PAIRS)
    assert len(PAIRS) == 10 * 11


@pytest.mark.parametrize(("status", "verb"), ACCEPTED)
def test_an_accepted_verb_brings_the_run_where_the_design_says(status: Status, verb: Verb) -> None:
    """D17 D27: pause, redirect and cancel are different things, in every status."""
    story = run_in(status)

    events = events_of(_GIVE[verb](story))

    assert story.status == goes_to(status, verb)
    assert any(isinstance(event, _MAKES.get(verb, VerbAccepted)) for event in events)


_MAKES: Final = {
    Verb.APPROVE: ApprovalDecided,
    Verb.DENY: ApprovalDecided,
    Verb.RESOLVE: CallResolved,
    Verb.RETRY_UNDO: EffectReopened,
}


@pytest.mark.parametrize(("status", "verb"), REFUSED)
def test_a_refused_verb_says_why_and_changes_nothing(status: Status, verb: Verb) -> None:
    story = run_in(status)
    before, ledger, length = story.state, story.effects, len(story.journal)

    refusal = refusal_of(_GIVE[verb](story))

    assert refusal.code == ("finished" if status in FINISHED else "not_now")
    assert refusal.status is status
    assert (story.state, story.effects, len(story.journal)) == (before, ledger, length)


@pytest.mark.parametrize(("status", "verb"), SAME)
def test_a_verb_that_is_in_force_answers_with_its_own_receipt(status: Status, verb: Verb) -> None:
    story = run_in(status)
    (first,) = [event for event in story.all(VerbAccepted) if event.verb is verb]

    again = _GIVE[verb](story)

    assert joined(again) == first.id


SETTLING: Final = [pair for pair in ACCEPTED if pair[1] not in _MAKES]


@pytest.mark.parametrize(("status", "verb"), SETTLING)
def test_an_accepted_verb_settles_where_the_design_says(status: Status, verb: Verb) -> None:
    """D1 D20 D21 D22: a stop is not only asked for, it comes to an end; the next step is rewritten."""
    story = run_in(status)
    asked = next(e for e in events_of(_GIVE[verb](story)) if isinstance(e, VerbAccepted))

    settled = _settle(story, asked)

    assert story.receipt(asked.id).status == story.status == settled
    # A redirect of a run that nobody drives settles when it runs again, with the call that carries its instruction.
    assert settled == (Status.RUNNING if verb is Verb.REDIRECT else settles_in(status, verb))


def _settle(story: Story, asked: VerbAccepted) -> Status:
    """Do everything that is due, but settle no other verb, until this one has its receipt."""
    while due := [order for order in story.orders if not _is_of_another(order, asked)]:
        story.carry_out(due[0])
    if asked.verb is Verb.REDIRECT:
        if story.status is Status.QUEUED:
            events_of(story.take_over())
        events_of(story.model("m1", delivers=True))
        assert story.receipt(asked.id).delivered is True
    return Status(story.status)


def _is_of_another(order: Order, asked: VerbAccepted) -> bool:
    return isinstance(order, Settle) and order.verb.id != asked.id


@pytest.mark.parametrize(("status", "verb"), [p for p in ACCEPTED if p[1] in (Verb.RESUME, Verb.REDIRECT)])
def test_a_run_without_a_driver_is_queued_when_it_is_to_go_on(status: Status, verb: Verb) -> None:
    story = run_in(status)

    events_of(story.resume(driven=False) if verb is Verb.RESUME else story.redirect(driven=False))

    assert story.status == UNDRIVEN.get((status, verb), goes_to(status, verb))
    if Status(story.status) is Status.QUEUED:
        events_of(story.take_over())
        assert Status(story.status) is Status.RUNNING


@pytest.mark.parametrize("paused", [False, True], ids=["pausing", "paused"])
def test_a_persons_pause_takes_the_place_of_one_that_resumes_itself(paused: bool) -> None:
    story = run_in(Status.RUNNING)
    events_of(story.pause(resumes_itself=True))
    if paused:
        story.drive()
    before = story.status

    asked = only(VerbAccepted, events_of(story.pause()))

    assert story.status is asked.status is before
    assert _settle(story, asked) is Status.PAUSED


def test_a_cancel_that_undoes_less_takes_the_place_of_the_one_in_force() -> None:
    story = run_in(Status.CANCELLING)

    asked = only(VerbAccepted, events_of(story.cancel(undo=Undo.NONE)))

    assert asked.status is Status.CANCELLING
    assert _settle(story, asked) is Status.CANCELLED


@pytest.mark.parametrize(("status", "verb"), [p for p in ACCEPTED if p[1] is not Verb.HALT])
def test_what_a_person_asks_for_needs_no_lease(status: Status, verb: Verb) -> None:
    """D16: a stop does not have to wait for the driver. (A halt claims the run by force first.)"""
    story = run_in(status)

    events = events_of(_GIVE[verb](story))

    assert {type(event) for event in events} <= UNOWNED


@pytest.mark.parametrize("status", Status)
def test_a_stale_click_is_refused_unless_it_is_a_stop(status: Status) -> None:
    for verb in Verb:
        story = run_in(status)
        usual = _GIVE[verb](run_in(status))
        stale = story.state.status_seq - 1

        verdict = _given_after(stale, verb, story)

        if not isinstance(usual, tuple) or verb in (Verb.PAUSE, Verb.CANCEL, Verb.HALT):
            assert type(verdict) is type(usual)
        else:
            assert refusal_of(verdict).code == "stale"


@pytest.mark.parametrize(("status", "verb"), ACCEPTED)
def test_a_click_on_what_is_still_so_is_taken(status: Status, verb: Verb) -> None:
    story = run_in(status)
    events_of(story.leave("send"))  # a fact that changes no status makes no click stale

    verdict = _given_after(story.state.status_seq, verb, story)

    assert isinstance(verdict, tuple)


def _given_after(expected_seq: int, verb: Verb, story: Story) -> Verdict:
    give = story.make
    story.make = lambda kind, given: give(  # type: ignore[method-assign]
        kind, {**given, "expected_seq": expected_seq}
    )
    try:
        return _GIVE[verb](story)
    finally:
        story.make = give  # type: ignore[method-assign]


_TOLD: Final = {
    Status.COMPLETED: "completed",
    Status.FAILED: "failed",
    Status.CANCELLED: "cancelled",
    Status.KILLED: "halted",
}


@pytest.mark.parametrize("status", FINISHED)
def test_who_comes_after_the_end_is_told_the_outcome(status: Status) -> None:
    """D7: both sides of a race between the end and a stop learn who won."""
    story = run_in(status)

    refusal = refusal_of(story.pause())

    assert _TOLD[status] in refusal.message
    assert refusal.status is status


def test_a_cancel_that_comes_after_completion_is_told_that_nothing_was_left_to_stop() -> None:
    """D7"""
    story = run_in(Status.COMPLETED)

    refusal = refusal_of(story.cancel())

    assert refusal.message == ("Run r-1 is completed: it had completed before this; there was nothing left to stop.")


def test_a_program_that_ends_after_a_cancel_does_not_complete() -> None:
    """D7: the other side of the same race."""
    story = Story()
    events_of(story.cancel())

    refusal = refusal_of(story.complete())

    assert refusal.status is Status.CANCELLING
    story.drive()
    assert story.status == Status.CANCELLED
