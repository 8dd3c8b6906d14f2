"""The task list and what the run has changed."""

from __future__ import annotations

import pytest

from checkrein.cli.screen.tasks import task_list
from checkrein.control.view import FlagView, InstructionView, Shown
from checkrein.core.enums import CallKind, EffectState, Verb
from tests.cli.screen.sample import NOW, call, effect, step, view
from tests.cli.screen.seeing import drawn


def test_every_step_has_a_shape_and_a_word():
    """D24"""
    steps = tuple(step(n, f"Step {n}", shown) for n, shown in enumerate(Shown, start=1))

    lines = drawn(task_list(view(steps=steps, effects=()), 60, NOW))

    assert [line.rstrip() for line in lines[1:]] == [
        "○ Queued      Step 1",
        "▶ Running     Step 2",
        "‖ Paused      Step 3",
        "✓ Done        Step 4",
        "■ Cancelled   Step 5",
        "↶ Undone      Step 6",
        "✗ Failed      Step 7",
        "◆ Needs you   Step 8",
        "– Not started Step 9",
    ]


def test_the_calls_of_the_step_at_work_stand_below_it_with_their_time():
    calls = (
        call("c1", "score_churn", step=3),
        call("m2", "scripted", Shown.DONE, "completed", kind=CallKind.MODEL, started_at=NOW - 2, finished_at=NOW - 1.6),
    )
    steps = (step(3, "Score churn risk", Shown.RUNNING, started_at=NOW - 3, calls=("c1", "m2")),)

    lines = drawn(task_list(view(steps=steps, calls=calls, effects=()), 60, NOW))

    assert lines[1].startswith("▶ Running Score churn risk")
    assert lines[1].endswith("3 s")
    assert lines[2].startswith("  ▶ score_churn, running")
    assert lines[2].endswith("3 s")
    assert lines[3].startswith("  ✓ model, done")
    assert lines[3].endswith("400 ms")


def test_where_there_is_little_room_only_calls_at_work_are_listed():
    calls = (call("c1", "fetch", Shown.DONE, "completed", finished_at=NOW), call("c2", "score_churn"))
    steps = (step(3, "Score churn risk", Shown.RUNNING, started_at=NOW - 3, calls=("c1", "c2")),)

    lines = drawn(task_list(view(steps=steps, calls=calls, effects=()), 60, NOW, is_compact=True))

    assert [line.split()[:2] for line in lines] == [["▶", "Running"], ["▶", "score_churn,"]]


@pytest.mark.parametrize("rows", range(1, 12))
def test_in_little_room_no_heading_stands_above_nothing_and_the_work_and_a_change_are_shown(rows: int):
    changed = (effect("draft", EffectState.OPEN), effect("lock", EffectState.OPEN, can_undo=True))

    lines = drawn(task_list(view(effects=changed), 78, NOW, rows=rows), 78)

    assert len(lines) <= rows
    assert any("Score churn risk" in line for line in lines)
    assert lines[-1] not in ("STEPS", "CHANGED", "TOLD", "FLAGGED", "")
    if rows > 1:
        assert "lock open, cancel undoes it" in lines[-1]


def test_a_step_that_is_one_call_is_not_said_twice():
    steps = (step(1, "score_churn", Shown.RUNNING, started_at=NOW - 3, calls=("c1",)),)

    lines = drawn(task_list(view(steps=steps, effects=()), 60, NOW))

    assert len(lines) == 2


def test_time_does_not_run_on_for_what_was_stopped():
    stopped = step(1, "Score", Shown.CANCELLED, started_at=NOW - 30)
    paused = step(2, "Write", Shown.PAUSED, started_at=NOW - 30)

    lines = drawn(task_list(view(steps=(stopped, paused), effects=()), 60, NOW))

    assert not any(line.endswith("s") for line in lines[1:])


def test_what_it_changed_is_said_in_plain_words():
    """D34"""
    changed = (
        effect("draft memo", EffectState.OPEN, can_undo=True),
        effect("wire_money", EffectState.OPEN),
        effect("export", EffectState.SETTLED),
        effect("lock", EffectState.UNDONE),
        effect("send", EffectState.IN_DOUBT, why="its process died"),
        effect("session", EffectState.LEFT, why="the undo failed three times"),
    )

    lines = drawn(task_list(view(steps=(), effects=changed), 60, NOW))

    assert lines[-6:] == [
        "○ draft memo open, cancel undoes it",
        "○ wire_money open, cannot be undone",
        "✓ export kept",
        "↶ lock undone",
        "◆ send unknown, its process died",
        "✗ session left as it is, the undo failed three times",
    ]


def test_what_it_was_told_and_what_was_flagged_stay_in_view():
    """D23"""
    told = InstructionView(
        verb=Verb.REDIRECT, by="ann", text="only Q3", at=NOW, diff="Score {+only Q3+}", delivered=True
    )
    lost = InstructionView(verb=Verb.REDIRECT, by="ann", text="too late", at=NOW, delivered=False)
    flag = FlagView(watcher="Confession", what="it recites its instructions", at=NOW)

    lines = drawn(task_list(view(steps=(), effects=(), instructions=(told, lost), flags=(flag,)), 60, NOW))

    assert "Score {+only Q3+} ann" in lines
    assert "+ too late ann · not delivered" in lines
    assert "⚑ Confession: it recites its instructions" in lines


@pytest.mark.parametrize("width", [20, 36, 58])
def test_a_long_title_is_cut_and_leaves_every_line_within_the_width(width: int):
    steps = (
        step(
            1,
            "Ein sehr langer Schritt 模型模型模型模型模型模型 und so weiter",
            Shown.DONE,
            started_at=0.0,
            finished_at=9.0,
        ),
    )

    lines = drawn(task_list(view(steps=steps, effects=()), width, NOW), width)

    assert len(lines) == 2
    assert lines[1].startswith("✓ Done")
    assert "…" in lines[1]


def test_a_title_cannot_act_on_the_terminal():
    lines = drawn(task_list(view(steps=(step(1, "\x1b[2J[bold]x", Shown.DONE),), effects=()), 60, NOW))

    assert "\\x1b[2J[bold]x" in lines[1]


def test_of_very_many_steps_those_around_the_work_are_listed():
    steps = tuple(
        step(n, f"Step {n}", Shown.DONE if n < 500 else Shown.RUNNING if n == 500 else Shown.QUEUED)
        for n in range(1, 1001)
    )

    lines = drawn(task_list(view(steps=steps, effects=()), 60, NOW))

    assert len(lines) < 50
    assert any("Step 500" in line for line in lines)
    assert "… 479 steps before" in lines
    assert "… 481 steps after" in lines
