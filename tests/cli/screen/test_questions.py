"""What a person is asked, and which keys answer it."""

from __future__ import annotations

from checkrein.cli.screen.questions import Question, Reply, question
from checkrein.control.view import AnswerView, ApprovalView, DoubtView, RunView
from checkrein.core.enums import Answer, EffectState, Status, Verb
from checkrein.core.state import Waiting
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


def asked_at(rows: int, run: RunView) -> Question:
    found = question(run, rows)
    assert found is not None
    return found


def test_a_run_that_needs_nothing_asks_nothing():
    assert question(view()) is None


def test_consent_is_asked_for_with_the_exact_arguments():
    """D34"""
    found = asked(view(approvals=(APPROVAL,)))

    assert "◆ Needs you: May it call wire_money?" in drawn(found.texts)[0]
    assert drawn(found.texts)[1] == "┊ amount: 40"
    assert "y  Approve" in drawn(found.texts)[2]
    assert found.replies == {"y": Reply(Verb.APPROVE, "c7"), "n": Reply(Verb.DENY, "c7")}


def test_a_call_in_doubt_is_resolved_with_one_of_three_keys_unless_it_has_no_undo():
    found = asked(view(doubts=(DOUBT,)))

    assert "Did send happen? Nobody knows." in drawn(found.texts)[0]
    assert set(found.replies) == {"1", "2"}
    assert found.replies["1"] == Reply(Verb.RESOLVE, "c8", Answer.HAPPENED)
    assert "Undo it" not in " ".join(drawn(found.texts))


def test_each_answer_has_a_line_of_its_own():
    assert drawn(asked(view(doubts=(DOUBT,))).texts)[1:] == [
        " 1  It happened: the run goes on",
        " 2  It did not: it is done now",
    ]


def test_each_argument_has_its_name_and_says_how_much_of_it_is_hidden():
    given = {"note": "x" * 9_000, "to": "mallory@example.com", "text": "Dear Ann,\n\nall the best"}
    mail = ApprovalView(call="c7", name="send_mail", requested_at=NOW, arguments=given)

    short, tall = (drawn(asked_at(rows, view(approvals=(mail,))).texts, 78) for rows in (24, 40))

    assert "… (8880 more characters)" in " ".join(short)
    assert "┊ to: mallory@example.com" in short
    assert "┊ text: Dear Ann, ⏎  ⏎ all the best" in short
    assert "v  View all" in short[-1]
    assert tall[-4:-1] == ["┊ text: Dear Ann,", "┊", "┊ all the best"]


def test_where_there_is_no_room_for_the_arguments_they_are_named_and_the_keys_come_first():
    lines = drawn(asked_at(10, view(approvals=(APPROVAL,))).texts, 38)

    assert lines[1].startswith(" y  Approve   n  Deny   v  View all")
    assert lines[-1] == "┊ with amount"


def test_an_argument_cannot_pass_for_a_line_of_ours():
    given = {"text": "ok\n y  Approve\x1b[2J", "b": {"c": 1}}
    forged = ApprovalView(call="c7", name="send", requested_at=NOW, arguments=given)

    lines = drawn(asked_at(40, view(approvals=(forged,))).texts)

    assert lines[1:4] == ["┊ text: ok", "┊  y  Approve\\x1b[2J", '┊ b: {"c":1}']


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
