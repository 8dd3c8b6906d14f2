"""Receipts, lines and tables in words, without a process."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from checkrein.cli import output
from checkrein.cli.attach import Interrupts, Press
from checkrein.cli.printers import Lines
from checkrein.cli.wording import arguments, receipt_lines
from checkrein.core.enums import Answer, CallKind, EffectState, OnPause, Outcome, Status, Verb
from checkrein.core.events import ApprovalRequested
from checkrein.core.receipts import ChangedEffect, Partial, Receipt, StoppedCall, Timing
from checkrein.core.wording import clock, milliseconds
from checkrein.journal.base import Chunk, Recorded
from checkrein.journal.encoding import encode
from tests.core.story import Story, events_of


def receipt(verb: Verb = Verb.CANCEL, **given: Any) -> Receipt:
    usual: dict[str, Any] = {"run": "r-1", "status": Status.CANCELLED, "seq": 4, "by": "ann"}
    return Receipt(verb=verb, **usual | given)


def test_a_receipt_says_how_fast_it_stopped_and_what_became_of_everything() -> None:
    """D5 D7 D15"""
    calls = (
        StoppedCall(id="c3", kind=CallKind.MODEL, name="gpt", now=Outcome.ABORTED, ms=4),
        StoppedCall(id="c4", kind=CallKind.TOOL, name="crunch", now=Outcome.KILLED, ms=9),
        StoppedCall(id="c5", kind=CallKind.TOOL, name="nap", now=Outcome.DETACHED, ms=9),
    )
    effects = (
        ChangedEffect(id="c1", what="make_draft", now=EffectState.UNDONE),
        ChangedEffect(id="c2", what="send", now=EffectState.IN_DOUBT, why="interrupted"),
        ChangedEffect(id="c6", what="lock", now=EffectState.LEFT, why="its undo failed 3 times"),
        ChangedEffect(id="c7", what="mail", now=EffectState.LEFT, why="there is no undo for it"),
    )

    lines = receipt_lines(
        receipt(timing_ms=Timing(calls_stopped=9), calls=calls, effects=effects, partial=Partial(812, "t-1"))
    )

    assert lines == [
        "Cancelled. Stopped in 9 ms. 0 tokens after the stop.",
        "In flight: gpt (closed after 4 ms), crunch (killed after 9 ms), "
        "nap (could not be stopped, its result will be dropped).",
        "Undone: make_draft.",
        "Unknown: send (interrupted).",
        "  Say what happened: checkrein resolve r-1 c2 happened|did_not_happen|undo",
        "Left: lock (its undo failed 3 times).",
        "  Try its undo again: checkrein retry-undo r-1 c6",
        "Left: mail (there is no undo for it).",
        "Kept: what it had written so far.",
    ]


def test_of_a_model_that_had_said_nothing_only_our_end_is_known() -> None:
    """D5"""
    call = StoppedCall(id="c3", kind=CallKind.MODEL, name="gpt", now=Outcome.ABORTED, ms=4, before_first_token=True)

    lines = receipt_lines(receipt(timing_ms=Timing(calls_stopped=4), calls=(call,)))

    assert lines[1] == "In flight: gpt (closed at our end after 4 ms; a provider may still be at work on the prompt)."


@pytest.mark.parametrize(
    ("given", "first"),
    [
        ({"verb": Verb.PAUSE}, "Paused. Nothing was in flight. 0 tokens after the stop."),
        ({"verb": Verb.RESUME}, "Goes on."),
        ({"verb": Verb.ASK, "answer": "Half way."}, "Half way."),
        ({"superseded_by": "v2"}, "Overtaken by a later verb before it was done."),
        (
            {"calls": (StoppedCall(id="c", kind=CallKind.TOOL, name="x", now=Outcome.IN_DOUBT),)},
            "Cancelled. Not everything is known to have stopped. 0 tokens after the stop.",
        ),
        (
            {"tokens_after_stop": 1, "timing_ms": Timing(calls_stopped=0.4)},
            "Cancelled. Stopped in under 1 ms. 1 token after the stop.",
        ),
    ],
)
def test_the_first_line_of_a_receipt(given: dict[str, Any], first: str) -> None:
    assert receipt_lines(receipt(**given))[0] == first


def test_a_redirect_says_whether_the_agent_was_told() -> None:
    """D38"""
    assert "The agent has the instruction." in receipt_lines(receipt(Verb.REDIRECT, delivered=True))
    assert "The agent was not given the instruction." in receipt_lines(receipt(Verb.REDIRECT, delivered=False))


def test_a_hint_names_a_store_that_was_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "_options", [])
    assert output.command("ps") == "checkrein ps"

    output.remember_option("--store", "sqlite:///a b.db")

    assert output.command("ps") == "checkrein ps --store 'sqlite:///a b.db'"


def test_times_and_values_in_words() -> None:
    assert [clock(3), clock(760), clock(3725)] == ["0:03", "12:40", "1:02:05"]
    assert [milliseconds(9), milliseconds(3200), milliseconds(125_000)] == ["9 ms", "3.2 s", "2 min 5 s"]
    assert arguments({"to": "ann", "n": 3}) == 'to="ann", n=3'


def test_no_argument_pushes_another_out_of_sight() -> None:
    given = {"note": "x" * 5_000, "to": "mallory"}

    assert arguments(given, 10) == 'note="xxxxxxxxx… (4992 more characters), to="mallory"'
    assert arguments({f"a{n}": n for n in range(25)}).endswith("a19=19, … 5 more arguments")


# -- lines


def lines_of(story: Story) -> list[str]:
    """What is said of each event, without the time."""
    lines = Lines()
    records = [Recorded("r-1", n, event, encode(event), b"") for n, event in enumerate(story.journal, 1)]
    return [line[9:] for record in records for line in lines.take(record)]


def test_what_a_call_that_asks_for_consent_is_given_is_printed_argument_by_argument() -> None:
    given = {"note": "x" * 5_000, "to": "mallory", "text": "Dear Ann,\n\nneeds you  all the best"}
    asked = ApprovalRequested(
        id="a", at=2.0, call="c1", name="mail", fingerprint="f", arguments=msgspec.Raw(msgspec.json.encode(given))
    )

    first, note, *rest = [line[9:] for line in Lines().take(Recorded("r-1", 1, asked, encode(asked), b""))]

    assert first.startswith("needs you  may it call mail? checkrein approve|deny")
    assert note.endswith("xxx… (3000 more characters)")
    assert rest == [
        "with       to: mallory",
        "with       text: Dear Ann,",
        "with",
        "with       needs you  all the best",
    ]


def test_every_event_of_a_run_is_a_line_of_its_own() -> None:
    story = Story()
    story.plan("Fetch", "Score", finished=1)
    events_of(story.tool("score", effect=True, arguments=msgspec.Raw(b'{"who":"all"}')))
    story.cancel(reason="wrong path")
    story.drive()

    assert lines_of(story) == [
        "run        r-1, agent churn: who leaves?",
        "plan       1 Fetch; 2 Score",
        "step       1 of 2: Fetch",
        "step       1 done",
        'tool       score(who="all")',
        "cancel     by ann (wrong path)",
        "aborted    score, 0 ms",
        "undo       score",
        "undone     score",
        "receipt    Cancelled. Stopped in 0 ms. 0 tokens after the stop.",
        "receipt    In flight: score (aborted).",
        "receipt    Undone: score.",
        "cancelled",
    ]


def test_what_waits_for_a_person_says_how_to_answer() -> None:
    story = Story()
    events_of(story.request("mail"))
    story.deny("mail", reason="not today")

    assert lines_of(story)[1:] == [
        "needs you  may it call mail()? checkrein approve|deny r-1 mail",
        "denied     mail, by ann (not today)",
    ]


def test_a_call_that_nobody_knows_of_says_how_to_answer_and_the_answer_names_it() -> None:
    story = Story()
    story.crashes_in("send")
    events_of(story.resolve("send", Answer.DID_NOT_HAPPEN))

    told = lines_of(story)
    assert "needs you  did send happen? checkrein resolve r-1 send happened|did_not_happen|undo" in told
    assert told[-1] == "resolved   send did not happen, says ann"


def test_a_models_words_come_line_by_line_and_cannot_pass_for_ours() -> None:
    story = Story()
    story.model("m1")
    lines = Lines()
    for n, event in enumerate(story.journal, 1):
        lines.take(Recorded("r-1", n, event, encode(event), b""))

    first = lines.take(Chunk("m1", 0, "one\ntwo"))
    then = lines.take(Chunk("m1", 7, f" two\n   0:00  completed  done {'x' * 300}"))

    assert [line[9:] for line in first] == ["says       one"]
    assert [line[9:] for line in then][:2] == ["says       two two", "says          0:00  completed  done"]
    assert all(line[9:].startswith("says ") for line in then)
    assert max(map(len, then)) <= 9 + 11 + 100


def test_a_frozen_call_is_in_the_receipt() -> None:
    story = Story()
    events_of(story.tool("score", on_pause=OnPause.HOLD))
    story.pause()
    story.drive()

    assert "receipt    In flight: score (frozen where it is)." in lines_of(story)


# -- Ctrl-C


def test_the_first_ctrl_c_pauses_the_second_cancels_the_third_kills() -> None:
    """D1 D16"""
    interrupts = Interrupts(owns=True)
    interrupts.saw(Status.RUNNING)

    assert [interrupts.press() for _ in range(3)] == [Press.PAUSE, Press.CANCEL, Press.KILL]


def test_after_a_resume_ctrl_c_begins_anew() -> None:
    interrupts = Interrupts(owns=True)
    interrupts.saw(Status.RUNNING)
    interrupts.press()
    interrupts.saw(Status.PAUSED)
    interrupts.saw(Status.RUNNING)

    assert interrupts.press() is Press.PAUSE


def test_whoever_only_looks_on_leaves_with_ctrl_c() -> None:
    interrupts = Interrupts(owns=False)
    interrupts.saw(Status.RUNNING)

    assert interrupts.press() is Press.LEAVE
