"""One line that shows what a person changed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkrein.core import wording
from checkrein.core.wording import LONGEST, one_line_diff


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        ("", "summarise and stop", "+ summarise and stop"),
        ("Score churn risk", "Score churn risk", "Score churn risk"),
        ("Score churn risk", "Score churn risk in Q3", "Score churn risk {+in Q3+}"),
        ("Score churn risk", "In Q3 score churn risk", "[-Score-] {+In Q3 score+} churn risk"),
        ("Score churn risk", "Score risk", "Score [-churn-] risk"),
        ("Join against MRR table", "Join against ARR table", "Join against [-MRR-] {+ARR+} table"),
        ("Write memo", "Stop here", "[-Write memo-] {+Stop here+}"),
        ("a a", "a a a", "a a {+a+}"),
        ("a b a", "a", "a [-b a-]"),
        ("two  spaces\nand a line", "two spaces and a line", "two spaces and a line"),
        ("something", "", "[-something-]"),
    ],
)
def test_the_line_shows_what_was_added_and_what_went(before: str, after: str, line: str) -> None:
    """D23: a one-line diff of what the person added."""
    assert one_line_diff(before, after) == line


def test_a_long_change_is_cut_in_the_middle() -> None:
    line = one_line_diff("", "word " * 500 + "end")

    assert len(line) <= LONGEST
    assert line.startswith("+ word word")
    assert " … " in line
    assert line.endswith("end")


@given(st.text(), st.text())
def test_whatever_was_written_it_is_one_line(before: str, after: str) -> None:
    line = one_line_diff(before, after)

    assert len(line.splitlines()) <= 1
    assert len(line) <= LONGEST
    if len(line) < LONGEST - 1:
        assert all(word in line for word in after.split())


def test_whoever_ends_a_server_is_told_what_it_waits_for_and_how_long() -> None:
    assert wording.shutting_down((), 10).startswith("Pausing what is at work; it goes on by itself at the next start.")
    said = wording.shutting_down(["shell", "fetch", "shell"], 10)

    assert "waiting for shell and fetch, 10 s at most" in said
    assert "you will be asked whether it happened" in said


def test_a_run_that_completed_names_what_was_not_done() -> None:
    calls = [("send_mail", "denied"), ("shell", "killed"), ("fetch", "completed"), ("lookup", "refused")]

    assert wording.not_done(calls) == "Not done: send_mail (denied), shell (stopped) and lookup (refused)."
    assert wording.not_done([("fetch", "completed"), ("parse", "failed")]) == ""
    unknown = [("send_mail", "denied"), ("shell", "in_doubt")]
    assert (
        wording.not_done(unknown) == "Not done: send_mail (denied). Unknown whether it was done: shell (interrupted)."
    )
