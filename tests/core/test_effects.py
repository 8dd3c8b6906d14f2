"""The ledger: what a run did to the world, and how a stop takes it back."""

from __future__ import annotations

import pytest

from checkrein.core.enums import EffectState, Outcome, Undo
from checkrein.core.events import (
    CallFinished,
    CallStarted,
    EffectInDoubt,
    EffectLeft,
    EffectReopened,
    EffectSettled,
    EffectUndone,
    Event,
)
from checkrein.core.orders import Settle, UndoEffect
from tests.core.story import Story, accepted, events_of, only, refusal_of

DONE = ("session", "lock", "draft")


def states(story: Story) -> dict[str, str]:
    return {effect.id: effect.state.value for effect in story.effects}


def listed(story: Story, verb: str) -> dict[str, str]:
    """What the receipt of a verb says about effects."""
    return {effect.id: effect.now.value for effect in story.receipt(verb).effects}


def undos(story: Story) -> list[str]:
    return [event.call for event in story.all(CallStarted) if event.kind == "undo"]


# -- what a cancel undoes


def test_a_cancel_undoes_open_effects_newest_first_and_one_at_a_time() -> None:
    """D4 D33 P3: drafts are discarded, locks released, sessions ended, also those of calls that finished long ago."""
    story = Story()
    story.did(*DONE)
    cancel = accepted(story.cancel())

    for effect in reversed(DONE):
        assert [order.effect.id for order in story.orders if isinstance(order, UndoEffect)] == [effect]
        others = [other for other in DONE if other != effect]
        assert {refusal_of(story.undo(other)).code for other in others} == {"not_due"}
        events_of(story.undo(effect))
        assert {refusal_of(story.undo(other)).code for other in DONE} == {"not_due"}
        assert refusal_of(story.settle(cancel)).message == (
            f"Run r-1 is cancelling: cancel waits for the undo of {effect}."
        )
        events_of(story.undone(effect))
    story.drive()

    assert story.status == "cancelled"
    assert listed(story, cancel) == dict.fromkeys(DONE, "undone")


def test_nothing_is_undone_before_the_calls_in_flight_have_stopped() -> None:
    story = Story()
    story.did("draft")
    events_of(story.tool("score"))
    events_of(story.cancel())

    assert refusal_of(story.undo("draft")).code == "not_due"
    events_of(story.finish("score", Outcome.KILLED))

    events_of(story.undo("draft"))


def test_an_undo_always_has_the_key_of_its_effect() -> None:
    """P3: a crash in the middle of an undo is resumed, with the same key."""
    story = Story()
    story.did("draft")
    events_of(story.cancel())
    first = only(CallStarted, events_of(story.undo("draft")))
    events_of(story.take_over())

    second = only(CallStarted, events_of(story.undo("draft", attempt=2)))

    assert first.key == second.key == "key of draft"
    events_of(story.undone("draft"))
    story.drive()
    assert len(story.all(EffectUndone)) == 1
    assert states(story) == {"draft": "undone"}


@pytest.mark.parametrize("late", [EffectSettled, EffectInDoubt, EffectLeft, EffectReopened, EffectUndone])
def test_an_effect_that_is_undone_stays_undone(late: type[Event]) -> None:
    """P3: recorded as undone exactly once, whatever comes late."""
    story = Story()
    story.did("draft")
    events_of(story.cancel())
    story.drive()

    story.append(late(id="late", at=story.at, effect="draft"))  # type: ignore[call-arg]

    assert states(story) == {"draft": "undone"}
    assert refusal_of(story.retry_undo("draft")).code == "nothing_to_undo"
    assert refusal_of(story.leave("draft")).code == "nothing_to_undo"


@pytest.mark.parametrize(
    ("undo", "after"),
    [
        (Undo.OPEN, {"kept": "settled", "draft": "undone", "lock": "undone"}),
        (Undo.ALL, {"kept": "undone", "draft": "undone", "lock": "undone"}),
        (Undo.NONE, {"kept": "settled", "draft": "left", "lock": "in_doubt"}),
    ],
)
def test_a_cancel_undoes_what_it_was_asked_to(undo: Undo, after: dict[str, str]) -> None:
    """D33"""
    story = Story()
    story.did("kept", "draft")
    story.keeps("kept")
    events_of(story.tool("lock", effect=True))

    cancel = accepted(story.cancel(undo))
    story.drive()

    assert states(story) == after
    assert listed(story, cancel) == {e: state for e, state in after.items() if state != "settled"}


def test_an_effect_without_an_undo_is_named_as_left() -> None:
    """D34"""
    story = Story()
    story.did("sent", undo=False)
    cancel = accepted(story.cancel())

    story.drive()

    assert listed(story, cancel) == {"sent": "left"}
    assert refusal_of(story.retry_undo("sent")).code == "nothing_to_undo"


# -- what could not be undone


def test_an_undo_that_failed_is_left_and_the_others_go_on() -> None:
    """D5: what could not be undone is listed as such."""
    story = Story()
    story.did("lock", "draft")
    cancel = accepted(story.cancel())

    events_of(story.undo("draft"))
    events_of(story.undone("draft", Outcome.FAILED))
    assert [order.effect.id for order in story.orders if isinstance(order, UndoEffect)] == ["draft"]
    events_of(story.leave("draft", why="the mailbox is gone"))
    story.drive()

    assert listed(story, cancel) == {"lock": "undone", "draft": "left"}
    (left,) = [effect for effect in story.receipt(cancel).effects if effect.id == "draft"]
    assert left.why == "the mailbox is gone"


@pytest.mark.parametrize("undo", [Undo.OPEN, Undo.NONE])
def test_a_left_undo_can_be_tried_again_after_the_end(undo: Undo) -> None:
    story = Story()
    story.did("draft")
    events_of(story.cancel(undo))
    if undo is Undo.OPEN:
        events_of(story.leave("draft"))
    story.drive()
    assert states(story) == {"draft": "left"}

    events_of(story.retry_undo("draft"))
    assert refusal_of(story.retry_undo("draft")).code == "nothing_to_undo"
    story.drive()

    assert states(story) == {"draft": "undone"}
    assert story.status == "cancelled"


def test_a_late_cancel_settles_and_lists_what_is_in_doubt_or_left() -> None:
    """D5 D15: it settles after at most 30 seconds, and says what it does not know."""
    story = Story()
    story.did("draft")
    story.crashes_in("send", owner_dead=False)
    cancel = accepted(story.cancel())
    story.later(29.9)
    assert not any(isinstance(order, Settle) for order in story.orders)
    assert refusal_of(story.settle(cancel)).code == "not_settled"
    events_of(story.undo("draft"))

    story.later(0.1)
    assert [type(order) for order in story.orders] == [Settle]
    events_of(story.settle(cancel))

    assert story.status == "cancelled"
    assert listed(story, cancel) == {"draft": "left", "send": "in_doubt"}
    events_of(story.undone("draft"))
    assert states(story) == {"draft": "undone", "send": "in_doubt"}


def test_a_late_cancel_still_waits_for_the_calls_in_flight() -> None:
    """D2: a stopped-looking run over running work must not exist."""
    story = Story()
    events_of(story.tool("score"))
    cancel = accepted(story.cancel())

    story.later(3600)

    assert refusal_of(story.settle(cancel)).message == "Run r-1 is cancelling: cancel waits for score to stop."


# -- at the end


@pytest.mark.parametrize(
    ("end", "left"), [("complete", "settled"), ("fail", "left"), ("halt", "left"), ("cancel", "left")]
)
def test_what_is_open_at_the_end_is_settled_by_completion_and_left_by_anything_else(end: str, left: str) -> None:
    """D5 D35: a halt undoes nothing."""
    story = Story()
    story.did("draft")

    events_of(story.cancel(Undo.NONE) if end == "cancel" else getattr(story, end)())
    story.drive()

    assert states(story) == {"draft": left}
    assert undos(story) == []


@pytest.mark.parametrize("owner_dead", [True, False])
def test_a_halt_leaves_what_was_in_flight_in_doubt(owner_dead: bool) -> None:
    """D35"""
    story = Story()
    events_of(story.tool("send", effect=True))

    events_of(story.halt(over=story.epochs_in_flight() if owner_dead else frozenset()))

    assert story.status == "killed"
    assert only(CallFinished, tuple(story.journal)).owner_dead is owner_dead
    assert states(story) == {"send": EffectState.IN_DOUBT}
    assert story.orders == ()
