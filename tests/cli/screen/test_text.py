"""The live text: what is said, done, told and flagged, and the receipt at its end."""

from __future__ import annotations

from checkrein.cli.screen.text import CALLS, TAIL_CHARS, live_text
from checkrein.control.view import FlagView, InstructionView, Shown
from checkrein.core.enums import CallKind, EffectState, Outcome, Status, Verb
from checkrein.core.receipts import ChangedEffect, Partial, Receipt, StoppedCall, Timing
from tests.cli.screen.sample import NOW, call, said, view
from tests.cli.screen.seeing import drawn, style_of


def test_text_that_streams_ends_with_a_cursor_and_every_line_is_marked_as_the_models():
    lines = drawn(live_text(view(calls=(said("412 customers.\n✓ wire_money completed"),)), NOW))

    assert lines == ["┊ 412 customers.", "┊ ✓ wire_money completed▌"]


def test_a_long_line_of_the_model_is_marked_on_each_line_it_takes():
    lines = drawn(live_text(view(calls=(said("word " * 30, Shown.DONE),)), NOW), 40)

    assert len(lines) > 3
    assert all(line.startswith("┊ word") for line in lines)


def test_text_is_never_read_as_markup_and_control_characters_are_shown():
    lines = drawn(live_text(view(calls=(said("[bold]x[/bold] \x1b[31m\x07 [/nonsense]", Shown.DONE),)), NOW))

    assert lines == ["┊ [bold]x[/bold] \\x1b[31m\\x07 [/nonsense]"]


def test_only_the_tail_of_a_long_text_is_kept_on_the_screen():
    lines = drawn(live_text(view(calls=(said("x " * 50_000 + "the end"),)), NOW))

    assert sum(map(len, lines)) < 2 * TAIL_CHARS
    assert "characters before this are in the journal" in lines[0]
    assert lines[-1].endswith("the end▌")


def test_only_the_latest_calls_are_shown():
    calls = tuple(call(f"c{n}", f"tool{n}", started_at=float(n)) for n in range(500))

    lines = drawn(live_text(view(calls=calls), NOW))

    assert len(lines) == CALLS + 1
    assert "tool499" in lines[-1]


def test_a_tool_call_shows_its_arguments_its_time_and_what_it_brought():
    running = call("c1", "score", arguments={"limit": 3})
    done = call("c2", "fetch", Shown.DONE, "completed", started_at=NOW - 9, finished_at=NOW - 6.1, result=412)
    failed = call("c3", "send", Shown.FAILED, "failed", started_at=NOW - 1, finished_at=NOW, error="no \x1broute")

    lines = drawn(live_text(view(calls=(done, running, failed)), NOW))

    assert lines == [
        "✓ fetch() done 2.9 s → 412",
        "▶ score(limit=3) running 3 s",
        "✗ send() failed 1.0 s → no \\x1broute",
    ]


def test_an_instruction_shows_its_one_line_diff_and_whether_the_agent_has_it():
    """D23"""
    told = InstructionView(
        verb=Verb.REDIRECT, by="ann", text="only Q3", at=NOW - 2, diff="Score {+only Q3+}", delivered=True
    )
    waits = InstructionView(verb=Verb.RESUME, by="ann", text="and stop", at=NOW)
    lost = InstructionView(verb=Verb.REDIRECT, by="ann", text="too late", at=NOW - 1, delivered=False)

    lines = drawn(live_text(view(calls=(), instructions=(told, lost, waits)), NOW))

    assert lines == [
        "ann (redirect) Score {+only Q3+} · the agent has it",
        "ann (redirect) + too late · the agent did not get it",
        "ann (resume) + and stop · on its way to the agent",
    ]


def test_an_instruction_that_was_overtaken_is_not_said_to_be_on_its_way():
    first = InstructionView(verb=Verb.REDIRECT, by="ann", text="only Q3", at=NOW - 2)
    second = InstructionView(verb=Verb.REDIRECT, by="ann", text="only Q4", at=NOW - 1)

    running = drawn(live_text(view(calls=(), instructions=(first, second)), NOW))
    cancelled = drawn(live_text(view(status=Status.CANCELLED, calls=(), instructions=(first, second)), NOW))

    assert [line.rpartition(" · ")[2] for line in running] == ["the agent did not get it", "on its way to the agent"]
    assert [line.rpartition(" · ")[2] for line in cancelled[:2]] == ["the agent did not get it"] * 2


def test_things_stand_in_the_order_they_happened():
    calls = (
        call("c1", "first", Shown.DONE, "completed", started_at=NOW - 9, finished_at=NOW - 8),
        call("c2", "second", started_at=NOW - 3),
    )
    told = InstructionView(verb=Verb.REDIRECT, by="ann", text="between", at=NOW - 5)
    flag = FlagView(watcher="Loops", what="the same call again", at=NOW - 2)

    lines = drawn(live_text(view(calls=calls, instructions=(told,), flags=(flag,)), NOW))

    assert [line.split()[1].strip("():,") for line in lines] == ["first", "redirect", "second", "Loops"]


def test_a_side_question_shows_the_question_and_its_answer():
    asked = call(
        "ask:1", "ask", Shown.DONE, "completed", kind=CallKind.ASK, arguments="How far are you?", text="Half way."
    )

    lines = drawn(live_text(view(calls=(asked,)), NOW))

    assert lines == ["? How far are you?", "┊ Half way."]


def test_a_stop_says_where_the_text_was_cut():
    lines = drawn(live_text(view(calls=(said("Half a sent", Shown.CANCELLED, stopped_by=Verb.CANCEL),)), NOW))

    assert lines == ["┊ Half a sent", "■ stopped there by a cancel"]


RECEIPT = Receipt(
    verb=Verb.CANCEL,
    run="r-7f3",
    status=Status.CANCELLED,
    seq=9,
    by="ann",
    reason="wrong direction",
    timing_ms=Timing(1.0, 9.0, 12.0),
    calls=(
        StoppedCall(id="m1", kind=CallKind.MODEL, name="scripted", now=Outcome.ABORTED, ms=4.0),
        StoppedCall(id="c1", kind=CallKind.TOOL, name="score_churn", now=Outcome.KILLED, ms=9.0),
    ),
    effects=(
        ChangedEffect(id="e1", what="draft memo", now=EffectState.UNDONE),
        ChangedEffect(id="e2", what="send", now=EffectState.IN_DOUBT, why="its process died"),
        ChangedEffect(id="e3", what="export", now=EffectState.LEFT, why="there is no undo for it"),
    ),
    partial=Partial(812, "Q4 retention"),
)


def test_after_a_cancel_the_receipt_says_what_was_stopped_undone_and_left_and_how_to_go_on():
    """D5 D6"""
    lines = drawn(live_text(view(status=Status.CANCELLED, calls=(), receipts=(RECEIPT,)), NOW), 100)
    text = " ".join(lines)

    assert lines[1].startswith("■ Cancelled. Stopped in 9 ms. 0 tokens after the stop. By ann: wrong direction")
    for fact in ("closed after 4 ms", "killed after 9 ms", "Undone: draft memo", "Unknown: send", "Left: export"):
        assert fact in text
    assert "Kept: what it had written so far." in text
    assert "To go on from here: checkrein run" in text


def test_the_receipt_of_an_earlier_pause_is_not_shown_once_it_runs_again():
    pause = Receipt(verb=Verb.PAUSE, run="r-7f3", status=Status.PAUSED, seq=3, by="ann")

    paused = drawn(live_text(view(status=Status.PAUSED, calls=(), receipts=(pause,)), NOW))
    running = drawn(live_text(view(calls=(), receipts=(pause,)), NOW))

    assert any("‖ Paused." in line for line in paused)
    assert running == []


def test_a_pause_that_froze_a_tool_does_not_say_that_something_may_go_on():
    frozen = StoppedCall(id="c1", kind=CallKind.TOOL, name="score_churn", now="held")
    pause = Receipt(verb=Verb.PAUSE, run="r-7f3", status=Status.PAUSED, seq=3, by="ann", calls=(frozen,))

    text = " ".join(drawn(live_text(view(status=Status.PAUSED, calls=(), receipts=(pause,)), NOW)))

    assert "score_churn (frozen where it is)" in text
    assert "Not everything" not in text


def test_a_line_with_long_arguments_is_not_broken_before_the_name_of_the_tool():
    long = call("c1", "make_draft", arguments={"log": "/a/very/long/path/that/does/not/fit/on/any/line/at/all"})

    lines = drawn(live_text(view(calls=(long,)), NOW), 40)

    assert lines[0] == "▶ make_draft(log=/a/very/long/path/that/"
    assert lines[1] == "  does/not/fit/on/any/line/at/all)"


def test_each_argument_is_shortened_by_itself_so_that_none_hides_another():
    given = {"note": "x" * 5_000, "to": "mallory@example.com", "body": "y" * 61}

    text = " ".join(drawn(live_text(view(calls=(call("c1", "send", arguments=given),)), NOW), 400))

    assert "… (4940 more characters), to=mallory@example.com, body=" in text
    assert "… (1 more character))" in text


def test_a_call_in_doubt_is_called_so():
    doubt = call("c1", "send", Shown.NEEDS_YOU, "in_doubt")

    assert drawn(live_text(view(calls=(doubt,)), NOW)) == ["◆ send() in doubt"]


def test_a_denied_call_stands_where_it_was_asked_for():
    denied = call("c1", "send_mail", Shown.CANCELLED, "denied", started_at=None)
    later = said("I do not send it, then.", Shown.DONE, started_at=NOW - 1)

    lines = drawn(live_text(view(calls=(said("I ask.", Shown.DONE, started_at=NOW - 9), denied, later)), NOW))

    assert lines == ["┊ I ask.", "■ send_mail() denied", "┊ I do not send it, then."]


def test_of_a_run_that_is_not_kept_nobody_is_told_how_to_go_on():
    done = view(status=Status.COMPLETED, calls=(), result="Done.")

    assert any("To go on from here" in line for line in drawn(live_text(done, NOW)))
    assert not any("To go on" in line for line in drawn(live_text(done, NOW, is_kept=False)))


def test_a_result_that_was_just_said_is_not_said_twice():
    done = view(status=Status.COMPLETED, calls=(said("Three will churn.", Shown.DONE),), result="Three will churn.")
    typed = view(status=Status.COMPLETED, calls=(said("{}", Shown.DONE),), result={"customers": ["Ann"]})

    assert "\n".join(drawn(live_text(done, NOW))).count("Three will churn.") == 1
    assert '{"customers":["Ann"]}' in "\n".join(drawn(live_text(typed, NOW)))


def test_a_failure_says_why():
    failed = live_text(view(status=Status.FAILED, calls=(), error="ValueError: no such table"), NOW)

    assert any("✗ Failed. ValueError: no such table" in line for line in drawn(failed))
    assert "red" in style_of(failed, "Failed")
