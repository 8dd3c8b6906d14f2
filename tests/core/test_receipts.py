"""Receipts: what was stopped, what was undone, what is unknown or left, and how long it took."""

from __future__ import annotations

import json

import msgspec
import pytest

from checkrein.core.conditions import Usage
from checkrein.core.enums import CallKind, OnPause, Outcome, Undo, Verb
from checkrein.core.events import VerbAccepted, VerbSettled
from checkrein.core.receipts import Receipt
from tests.core.story import Story, accepted, events_of, refusal_of


def test_a_receipt_tells_how_long_it_took_to_accept_to_stop_and_to_settle() -> None:
    """D2: measured from the moment somebody asked."""
    story = Story()
    story.did("draft")
    events_of(story.model("m1"))
    events_of(story.tool("score"))
    cancel = accepted(story.cancel(asked_at=story.at - 0.004))
    story.later(0.002)
    events_of(story.finish("m1", Outcome.ABORTED))
    story.later(2)
    events_of(story.finish("score", Outcome.KILLED))
    story.later(0.5)
    story.drive()

    timing = story.receipt(cancel).timing_ms

    assert (timing.accepted, timing.calls_stopped, timing.settled) == (4.0, 2006.0, 2506.0)
    assert [(call.name, call.now, call.ms) for call in story.receipt(cancel).calls] == [
        ("gpt", "aborted", 6.0),
        ("score", "killed", 2006.0),
    ]


def test_a_clock_that_runs_backwards_makes_no_negative_times() -> None:
    story = Story()
    pause = accepted(story.pause(asked_at=story.at + 5))
    story.drive()

    timing = story.receipt(pause).timing_ms

    assert (timing.accepted, timing.calls_stopped, timing.settled) == (0.0, None, 0.0)


def test_a_receipt_names_who_asked_why_and_where_in_the_journal() -> None:
    """D14"""
    story = Story()
    cancel = accepted(story.cancel(by="ann", reason="wrong path"))
    story.drive()

    receipt = story.receipt(cancel)

    assert (receipt.verb, receipt.run, receipt.by, receipt.reason) == (Verb.CANCEL, "r-1", "ann", "wrong path")
    assert story.journal[receipt.seq - 1].id == cancel


@pytest.mark.parametrize("verb", ["pause", "redirect", "cancel", "halt"])
def test_the_seq_of_a_receipt_is_that_of_its_verb(verb: str) -> None:
    story = Story()
    events_of(story.tool("score", effect=True, on_pause=OnPause.HOLD))
    asked = accepted(getattr(story, verb)())
    story.drive()
    if verb == "redirect":
        events_of(story.model("m1", delivers=True))

    assert story.journal[story.receipt(asked).seq - 1].id == asked


def test_partial_work_is_counted_and_the_thread_that_keeps_it_is_named() -> None:
    """D6 D22: partial output is kept and can be taken up later."""
    story = Story()
    events_of(story.model("m1"))
    cancel = accepted(story.cancel())
    events_of(story.finish("m1", Outcome.ABORTED, chars=420, chunks=17, tokens_after_stop=3))
    story.drive()

    receipt = story.receipt(cancel)

    assert (receipt.partial.chars, receipt.partial.thread) == (420, "t-1")
    assert receipt.tokens_after_stop == 3, "measured, never assumed (D12)"


def test_a_stop_with_nothing_to_stop_says_so() -> None:
    story = Story()
    cancel = accepted(story.cancel())
    story.drive()

    receipt = story.receipt(cancel)

    assert (receipt.calls, receipt.effects, receipt.partial.chars) == ((), (), 0)
    assert receipt.timing_ms.calls_stopped is None


def test_the_receipt_of_a_halt_lists_what_was_in_flight() -> None:
    """D35 D5"""
    story = Story()
    events_of(story.model("m1"))
    events_of(story.tool("send", effect=True))

    halt = accepted(story.halt(by="operator"))

    receipt = story.receipt(halt)
    assert receipt.status == "killed"
    assert [(call.name, call.now) for call in receipt.calls] == [("gpt", "in_doubt"), ("send", "in_doubt")]


def test_a_detached_call_is_said_to_be_one() -> None:
    """D15: where something could not be ended cleanly, that is said."""
    story = Story()
    events_of(story.tool("upload", effect=True))
    cancel = accepted(story.cancel())
    events_of(story.finish("upload", Outcome.DETACHED))
    story.later(30)
    story.drive()

    receipt = story.receipt(cancel)

    assert [(call.name, call.now) for call in receipt.calls] == [("upload", "detached")]
    (effect,) = receipt.effects
    assert (effect.what, effect.now) == ("upload", "in_doubt")
    assert effect.why, "in words"


def test_a_cancel_accounts_for_what_was_settled_neither_before_nor_by_it() -> None:
    story = Story()
    story.did("kept", "draft")
    story.did("sent", undo=False)
    events_of(story.leave("kept"))
    cancel = accepted(story.cancel())
    story.drive()

    listed = {effect.what: (effect.now.value, effect.why) for effect in story.receipt(cancel).effects}

    assert listed == {
        "kept": ("left", "the mailbox is gone"),
        "draft": ("undone", ""),
        "sent": ("left", "there is no undo for it"),
    }


def test_a_cancel_without_undo_says_what_it_left() -> None:
    story = Story()
    story.did("draft")
    cancel = accepted(story.cancel(Undo.NONE))
    story.drive()

    assert [(effect.what, effect.now) for effect in story.receipt(cancel).effects] == [("draft", "left")]


def test_the_answer_to_a_question_is_in_its_receipt() -> None:
    story = Story()
    ask = accepted(story.ask())
    events_of(story.model(f"ask:{ask}", kind=CallKind.ASK))
    events_of(story.finish(f"ask:{ask}"))

    events_of(story.settle(ask, answer="about half"))

    assert story.receipt(ask).answer == "about half"
    assert refusal_of(story.settle(ask)).code == "already_settled"


def test_every_verb_that_is_pending_at_the_end_is_settled_with_it() -> None:
    """P4: completion settles what it overtook."""
    story = Story()
    redirect = accepted(story.redirect())

    events_of(story.complete(undelivered_ok=True))

    assert story.receipt(redirect).status == "completed"
    assert {e.id for e in story.all(VerbAccepted)} == {e.accepted for e in story.all(VerbSettled)}
    assert story.state.verbs == ()


def test_a_run_does_not_end_before_the_question_it_was_asked_has_its_answer() -> None:
    story = Story()
    ask = accepted(story.ask())
    assert refusal_of(story.complete()).code == "question_pending"
    events_of(story.model(f"ask:{ask}", kind=CallKind.ASK))
    events_of(story.finish(f"ask:{ask}"))
    assert refusal_of(story.complete()).code == "question_pending"

    events_of(story.settle(ask, answer="about half"))
    events_of(story.complete())

    assert story.receipt(ask).answer == "about half"


def test_a_model_that_had_said_nothing_is_closed_at_our_end_and_no_more_is_known() -> None:
    """D2: only what had begun to answer, or was never asked, is known to be over."""
    story = Story()
    events_of(story.model("m1"))
    events_of(story.model("m2"))
    events_of(story.model("m3"))
    cancel = accepted(story.cancel())
    events_of(story.finish("m1", Outcome.ABORTED, usage=Usage(input_tokens=900, estimated=True)))
    events_of(story.finish("m2", Outcome.ABORTED, usage=Usage(input_tokens=900, output_tokens=3, estimated=True)))
    events_of(story.finish("m3", Outcome.ABORTED))

    events_of(story.settle(cancel))

    said = {call.id: call.before_first_token for call in story.receipt(cancel).calls}
    assert said == {"m1": True, "m2": False, "m3": False}


def test_a_receipt_has_the_fields_that_the_design_names() -> None:
    story = Story()
    story.did("draft")
    events_of(story.model("m1"))
    events_of(story.tool("train", on_pause=OnPause.HOLD))
    cancel = accepted(story.cancel(reason="wrong path"))
    events_of(story.finish("m1", Outcome.ABORTED, chars=1, tokens_after_stop=1))
    story.drive()

    receipt = story.receipt(cancel)
    wire = json.loads(msgspec.json.encode(receipt))

    assert wire.keys() == {
        "verb", "run", "status", "seq", "by", "reason", "timing_ms", "calls", "effects", "tokens_after_stop", "partial"
    }  # fmt: skip
    assert wire["timing_ms"].keys() == {"accepted", "calls_stopped", "settled"}
    assert wire["effects"] == [{"id": "draft", "what": "draft", "now": "undone"}]
    assert msgspec.json.decode(msgspec.json.encode(receipt), type=Receipt) == receipt


def test_the_receipt_of_a_halt_lists_what_it_left() -> None:
    """D5 D35"""
    story = Story()
    story.did("draft")

    halt = accepted(story.halt())

    assert [(effect.what, effect.now) for effect in story.receipt(halt).effects] == [("draft", "left")]


def test_the_receipt_of_a_halt_says_that_what_was_in_flight_is_in_doubt() -> None:
    """D15 D35"""
    story = Story()
    events_of(story.tool("send", effect=True))

    halt = accepted(story.halt())

    assert [(effect.what, effect.now) for effect in story.receipt(halt).effects] == [("send", "in_doubt")]


def test_a_receipt_does_not_say_when_calls_stopped_that_may_go_on() -> None:
    """D15: a frozen owner may still perform the call, so nobody can name the moment it stopped."""
    story = Story()
    events_of(story.tool("send", effect=True))
    cancel = accepted(story.cancel())
    events_of(story.take_over(owner_dead=False))
    story.at += 60

    story.drive()

    receipt = story.receipt(cancel)
    assert [call.now for call in receipt.calls] == ["in_doubt"]
    assert receipt.timing_ms.calls_stopped is None


def test_the_receipt_of_a_resume_says_whether_its_instruction_was_given() -> None:
    """D32"""
    story = Story()
    events_of(story.pause())
    story.drive()
    resume = accepted(story.resume("summarise and stop"))
    story.drive()
    assert story.state.verb(resume) is not None, "it waits for the call that carries the instruction"

    events_of(story.model("m1", delivers=True))

    assert story.receipt(resume).delivered is True
