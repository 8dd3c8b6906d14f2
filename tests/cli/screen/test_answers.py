"""What a person is asked, and which keys answer it."""

from __future__ import annotations

from checkrein.cli.screen.answers import Question, Reply, question
from checkrein.control.view import AnswerView, ApprovalView, DoubtView, RunView
from checkrein.core.state import Waiting
from checkrein.core.words import Answer, EffectState, Status, Verb
from tests.cli.screen.sample import NOW, effect, view
from tests.cli.screen.seeing import drawn

APPROVAL = ApprovalView(call="c7", name="wire_money", requested_at=NOW, arguments={"amount": 40})
DOUBT = DoubtView(
    call="c8",
    name="send",
    answers=(
        AnswerView(answer=Answer.HAPPENED, enabled=True, consequence="the run goes on"),
        AnswerView(answer=Answer.DID_NOT_HAPPEN, enabled=True, consequence="it is done now"),
        AnswerView(answer=Answer.UNDO, enabled=False, consequence="it has no undo"),
    ),
)


def asked(run: RunView) -> Question:
    found = question(run)
    assert found is not None
    return found


def test_a_run_that_needs_nothing_asks_nothing():
    assert question(view()) is None


def test_consent_is_asked_for_with_the_exact_arguments():
    """D34"""
    found = asked(view(approvals=(APPROVAL,)))

    assert "◆ Needs you: May it call wire_money(amount=40)?" in drawn(found.texts)[0]
    assert "y  Approve" in drawn(found.texts)[1]
    assert found.replies == {"y": Reply(Verb.APPROVE, "c7"), "n": Reply(Verb.DENY, "c7")}


def test_a_call_in_doubt_is_resolved_with_one_of_three_keys_unless_it_has_no_undo():
    found = asked(view(doubts=(DOUBT,)))

    assert "Did send happen? Nobody knows." in drawn(found.texts)[0]
    assert set(found.replies) == {"1", "2"}
    assert found.replies["1"] == Reply(Verb.RESOLVE, "c8", Answer.HAPPENED)
    assert "3 Undo it: it has no undo" in " ".join(drawn(found.texts))


def test_several_questions_come_one_after_the_other():
    found = asked(view(approvals=(APPROVAL,), doubts=(DOUBT,)))

    assert "(1 more after this)" in drawn(found.texts)[0]
    assert "y" in found.replies


def test_what_a_person_can_mend_names_the_remedy():
    need = Waiting(kind="model_unauthorised", what="The key was refused.", remedy="Set a valid key, then resume.")

    lines = drawn(asked(view(status=Status.PAUSED, waiting=(need,))).texts)

    assert lines[0] == "◆ Needs you: The key was refused."
    assert "Set a valid key, then resume." in lines[1]
    assert "p  Resume" in lines[1]


def test_an_undo_that_was_left_can_be_tried_again_after_the_end():
    left = effect("draft memo", EffectState.LEFT, why="it failed three times", can_undo=True)

    found = asked(view(status=Status.CANCELLED, effects=(left,)))

    assert "Not undone: draft memo (it failed three times)" in drawn(found.texts)[0]
    assert found.replies == {"u": Reply(Verb.RETRY_UNDO, "e-draft memo")}
    assert question(view(effects=(left,))) is None
