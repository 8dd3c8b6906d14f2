"""The control bar, at every size and in every status."""

from __future__ import annotations

import pytest

from checkrein.cli.screen.bar import Situation, bar
from checkrein.cli.screen.style import KEY, LOOKS, QUIET, STATUSES
from checkrein.control.view import SettlingView, Shown
from checkrein.core.consequences import VerbControl
from checkrein.core.enums import TERMINAL, Status, Verb
from checkrein.core.state import Waiting
from tests.cli.screen.sample import NOW, call, controls, said, step, view
from tests.cli.screen.seeing import drawn, style_of

SIZES = [(200, 60), (100, 30), (80, 24), (60, 15), (40, 10)]


@pytest.mark.parametrize(("columns", "rows"), SIZES)
def test_the_three_controls_the_time_and_the_steps_are_there_at_every_size(columns: int, rows: int):
    """D11 D17 D19"""
    lines = drawn(bar(view(), Situation(now=NOW, rows=rows)), columns - 2)

    assert len(lines) <= rows // 2
    assert [line.split()[:2] for line in lines if line.lstrip()[:2] in ("p ", "r ", "c ")] == [
        ["p", "Pause"],
        ["r", "Redirect"],
        ["c", "Cancel"],
    ]
    assert any("▶ Running  00:12  step 3 of 4" in line for line in lines)
    assert max(map(len, lines)) <= columns - 2


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (60, 15)])
def test_what_is_used_is_shown_against_its_caps(columns: int, rows: int):
    """D25"""
    text = " ".join(" ".join(drawn(bar(view(), Situation(now=NOW, rows=rows)), columns - 2)).split())

    assert "turn 7 of 50 · 6.1k of 50k tokens · $0.04 of $1.00" in text


def test_without_a_plan_calls_are_counted_and_never_steps_of_so_many():
    calls = (call("c1", "fetch", Shown.DONE, "completed"), call("c2", "score"), said("Hm.", Shown.DONE))

    facts = drawn(bar(view(planned=False, calls=calls), Situation(now=NOW)))[0]

    assert "2 calls" in facts
    assert "step" not in facts


def test_a_run_that_has_ended_says_how_many_steps_are_done():
    steps = tuple(step(n, f"Step {n}", Shown.DONE if n < 3 else Shown.NOT_STARTED) for n in range(1, 6))

    facts = drawn(bar(view(status=Status.CANCELLED, steps=steps), Situation(now=NOW)))[0]

    assert "2 of 5 steps done" in facts


def test_a_command_in_a_hint_is_never_cut():
    command = f"checkrein resume r-ed2b70cad777 --store sqlite:////tmp/{'a-long-folder-' * 12}/runs.db"

    lines = drawn(bar(view(), Situation(now=NOW, notice=f"From another terminal:\n{command}")), 78)

    assert command.replace(" ", "") in "".join("".join(lines).split())


def test_what_is_not_kept_is_not_said_to_stay():
    done = view(status=Status.COMPLETED)

    assert "everything stays in the journal" in " ".join(drawn(bar(done, Situation(now=NOW))))
    assert "stays" not in " ".join(drawn(bar(done, Situation(now=NOW, is_kept=False))))


def test_what_has_no_cap_is_shown_too():
    text = "\n".join(drawn(bar(view(caps=()), Situation(now=NOW))))

    assert "7 turns · 6.1k tokens · $0.04" in text


def test_each_control_names_its_consequence():
    """D18"""
    lines = drawn(bar(view(), Situation(now=NOW, rows=30)), 120)

    assert any(line.strip().startswith("p  Pause     waits for score_churn, then holds") for line in lines)
    assert any("stops score_churn, keeps 2 finished steps" in line for line in lines)
    assert any("stops now · takes back draft and lock · keeps the text" in line for line in lines)


def test_a_control_that_is_not_possible_looks_so_and_says_why():
    cancelling = view(
        status=Status.CANCELLING,
        controls=controls(
            pause=VerbControl(False, "it is being cancelled"), redirect=VerbControl(False, "it is being cancelled")
        ),
    )

    lines = bar(cancelling, Situation(now=NOW))

    assert any("Pause" in line and "not now: it is being cancelled" in line for line in drawn(lines))
    assert style_of(lines, " p ") == QUIET
    assert style_of(bar(view(), Situation(now=NOW)), " p ") == KEY


def test_pausing_says_what_it_waits_for_and_for_how_long_and_offers_not_to_wait():
    pausing = view(
        status=Status.PAUSING,
        settling=(SettlingView(verb=Verb.PAUSE, by="me", at=NOW - 3.4, waiting_for="score_churn to finish"),),
        calls=(call("c1", "score_churn"),),
    )

    lines = drawn(bar(pausing, Situation(now=NOW)))

    assert any("◐ Pausing…" in line for line in lines)
    assert any("Pausing…" in line and "waits for score_churn to finish, 3 s" in line for line in lines)
    assert any("x  Don't wait  abort score_churn" in line for line in lines)
    assert not any("Paused" in line for line in lines)


def test_cancelling_says_what_it_waits_for():
    cancelling = view(
        status=Status.CANCELLING,
        settling=(SettlingView(verb=Verb.CANCEL, by="me", at=NOW - 5, waiting_for="the undo of draft memo"),),
    )

    lines = drawn(bar(cancelling, Situation(now=NOW)))

    assert any("Cancelling…" in line and "waits for the undo of draft memo, 5 s" in line for line in lines)


def test_when_paused_p_resumes_and_an_instruction_is_offered():
    """D32"""
    paused = view(status=Status.PAUSED, controls=controls(resume=VerbControl(True, "goes on exactly there")))

    lines = drawn(bar(paused, Situation(now=NOW)))

    assert any("p  Resume    goes on exactly there; i resumes with an instruction" in line for line in lines)


def test_a_store_that_cannot_be_read_makes_the_bar_look_inoperative_and_says_so():
    situation = Situation(now=NOW, away="runs.db could not be used (disk I/O error).", away_seconds=4.2)

    lines = bar(view(), situation)

    assert "✗ The store cannot be read, 4 s: what you see may be old." in " ".join(drawn(lines, 200))
    assert any("Running when last seen" in line for line in drawn(lines))
    assert {style_of(lines, f" {key} ") for key in "prc"} == {QUIET}


def test_a_run_that_nobody_drives_does_not_look_as_if_it_were_at_work():
    assert any("no process drives it now" in line for line in drawn(bar(view(), Situation(now=NOW, is_driven=False))))
    assert not any("no process" in line for line in drawn(bar(view(), Situation(now=NOW))))


def test_a_finished_run_has_no_controls_left_but_the_way_out():
    lines = drawn(bar(view(status=Status.CANCELLED), Situation(now=NOW)))

    assert any("■ Cancelled" in line for line in lines)
    assert any("q  Leave" in line for line in lines)
    assert not any(word in "\n".join(lines) for word in ("Pause", "Redirect", "Cancel "))


def test_what_is_shown_of_a_status_differs_in_shape_or_word_and_not_only_in_colour():
    """D24"""
    assert len({(look.shape, look.word) for look in LOOKS.values()}) == len(Shown)
    assert len({look.shape for look in LOOKS.values()}) == len(Shown)
    assert len({look.word for look in STATUSES.values()}) == len(Status)
    for status in set(Status) - TERMINAL:
        waits = view(status=status, waiting=(Waiting(kind="approval", what="approve send", call="c1"),))
        assert STATUSES[status].word.rstrip("…") in "\n".join(drawn(bar(waits, Situation(now=NOW))))


def test_a_run_that_waits_for_a_person_says_so():
    waits = view(waiting=(Waiting(kind="approval", what="approve send", call="c1"),))

    assert any("◆ Running, needs you" in line for line in drawn(bar(waits, Situation(now=NOW))))


def test_nothing_from_outside_acts_on_the_terminal():
    nasty = controls(pause=VerbControl(True, "waits for \x1b[2Jtool, then holds"))

    lines = drawn(bar(view(controls=nasty), Situation(now=NOW, notice="no \x1b]0;title\x07")))

    assert "\x1b" not in "\n".join(lines)
    assert any("\\x1b[2Jtool" in line for line in lines)
