"""A cancel settles within its time, whatever does not answer: calls, undos, sub-runs."""

from __future__ import annotations

import itertools

from msgspec.structs import replace

from checkrein.core.enums import CallKind, EffectState, Outcome, Status, Undo
from checkrein.core.events import EffectLeft, StopDelayed
from checkrein.core.orders import Abort, Detach, Settle, UndoEffect, next_late, settle_seconds_of, undo_seconds
from checkrein.core.wording import NOT_WANTED_UNDONE, OUT_OF_TIME, UNSETTLED
from checkrein.timings import DETACH_SECONDS, SETTLE_SECONDS, UNDO_LEAST_SECONDS, UNDO_SECONDS
from tests.core.story import Story, accepted, events_of, refusal_of


def undo_orders(story: Story) -> list[str]:
    return [order.effect.id for order in story.orders if isinstance(order, UndoEffect)]


def test_a_call_that_does_not_answer_a_cancel_is_detached_in_time_to_undo_the_others():
    story = Story()
    story.did("draft")
    events_of(story.tool("stuck", effect=True))
    cancel = accepted(story.cancel())

    story.later(DETACH_SECONDS - 0.1)
    assert [type(order) for order in story.orders] == [Abort]
    assert next_late(story.state, story.at) is not None
    assert abs((next_late(story.state, story.at) or 0.0) - 0.1) < 1e-6
    story.later(0.1)
    (detach,) = (order for order in story.orders if isinstance(order, Detach))
    story.carry_out(detach)

    assert undo_orders(story) == ["draft"]
    story.drive()
    assert story.status == Status.CANCELLING, "nobody has said yet that the other one is over"
    story.later(SETTLE_SECONDS)
    story.drive()
    receipt = story.receipt(cancel)
    assert {effect.id: effect.now for effect in receipt.effects} == {
        "draft": EffectState.UNDONE,
        "stuck": EffectState.IN_DOUBT,
    }
    assert [call.now for call in receipt.calls] == [Outcome.DETACHED]
    assert receipt.timing_ms.calls_stopped is None, "it is not known that everything stopped"


def test_a_detached_call_that_ends_after_all_is_undone():
    story = Story()
    events_of(story.tool("stuck", effect=True))
    events_of(story.cancel())
    story.later(DETACH_SECONDS)
    story.carry_out(next(order for order in story.orders if isinstance(order, Detach)))
    assert undo_orders(story) == []

    story.answers("stuck", Outcome.DETACHED, epoch=story.state.epoch)

    assert undo_orders(story) == ["stuck"]
    story.drive()
    assert story.status == Status.CANCELLED
    assert story.ledger["stuck"].state is EffectState.UNDONE


def test_a_call_in_an_atomic_section_and_a_sub_run_have_all_the_time_of_the_cancel():
    story = Story()
    events_of(story.tool("shielded", effect=True))
    events_of(story.tool("sub", kind=CallKind.RUN))
    events_of(story.cancel())
    story.append(StopDelayed(id="waits", at=story.at, call="shielded", what="a transfer", seconds=60.0))

    story.later(SETTLE_SECONDS - 0.1)
    assert [type(order) for order in story.orders] == [Abort, Abort]
    story.later(0.1)

    assert [order.call for order in story.orders if isinstance(order, Detach)] == ["shielded", "sub"]


def test_only_a_cancel_detaches():
    story = Story()
    events_of(story.model("stuck"))
    events_of(story.pause())

    story.later(10 * SETTLE_SECONDS)

    assert [type(order) for order in story.orders] == [Abort]
    assert next_late(story.state, story.at) is None


# -- undos that take long


def test_the_time_of_a_cancel_is_shared_out_among_the_undos_that_wait():
    story = Story()
    story.did("a", "b", "c")
    events_of(story.cancel())
    shares = []

    for effect in ("c", "b", "a"):
        shares.append(undo_seconds(story.state, story.effects, at=story.at))
        events_of(story.undo(effect))
        story.later(shares[-1] if effect == "c" else 0.0)
        events_of(story.undone(effect, Outcome.FAILED if effect == "c" else Outcome.COMPLETED))
        if effect == "c":
            events_of(story.leave(effect))

    assert shares == [SETTLE_SECONDS / 3, SETTLE_SECONDS / 3, UNDO_SECONDS], "one that hangs takes its own share alone"


def test_an_undo_has_some_time_however_many_wait_and_all_of_it_where_no_cancel_does():
    story = Story()
    story.did(*(f"c{n}" for n in range(200)))
    events_of(story.cancel())

    assert undo_seconds(story.state, story.effects, at=story.at) == UNDO_LEAST_SECONDS
    assert undo_seconds(Story().state, (), at=0.0) == UNDO_SECONDS


def test_a_cancel_that_is_late_says_of_every_effect_why_it_was_left():
    story = Story()
    story.did("a", "b")
    cancel = accepted(story.cancel())
    events_of(story.undo("b"))

    story.later(SETTLE_SECONDS)
    story.drive()

    assert {effect.id: (effect.now, effect.why) for effect in story.receipt(cancel).effects} == {
        "a": (EffectState.LEFT, OUT_OF_TIME),
        "b": (EffectState.LEFT, OUT_OF_TIME),
    }
    assert {effect.id: effect.why for effect in story.effects} == {"a": OUT_OF_TIME, "b": OUT_OF_TIME}
    assert len(story.all(EffectLeft)) == 2
    events_of(story.undone("b"))
    assert story.ledger["b"].state is EffectState.UNDONE, "its undo has gone on, and counts"


def test_what_was_not_to_be_undone_is_left_for_that_reason():
    story = Story()
    story.did("a")
    cancel = accepted(story.cancel(undo=Undo.NONE))

    story.drive()

    assert [(effect.now, effect.why) for effect in story.receipt(cancel).effects] == [
        (EffectState.LEFT, NOT_WANTED_UNDONE)
    ]


# -- sub-runs from before a crash


def test_nothing_of_a_parent_is_undone_and_its_cancel_does_not_settle_before_its_sub_runs_are_over():
    story = Story()
    story.did("a")
    events_of(story.tool("sub", kind=CallKind.RUN))
    events_of(story.cancel())
    events_of(story.take_over())
    story.below = ("r-1.sub",)

    assert story.orders == ()
    assert refusal_of(story.undo("a")).code == "not_due"
    assert "sub-run r-1.sub to settle" in refusal_of(story.settle()).message

    story.below = ()
    story.drive()
    assert story.ledger["a"].state is EffectState.UNDONE


def test_a_sub_run_that_never_settles_is_reported():
    story = Story()
    story.did("a")
    cancel = accepted(story.cancel())
    story.below = ("r-1.sub",)

    story.later(SETTLE_SECONDS)
    assert [type(order) for order in story.orders] == [Settle]
    story.drive()

    receipt = story.receipt(cancel)
    assert [(call.id, call.now, call.left) for call in receipt.calls] == [("r-1.sub", Outcome.DETACHED, (UNSETTLED,))]
    assert [(effect.now, effect.why) for effect in receipt.effects] == [(EffectState.LEFT, OUT_OF_TIME)]


def test_a_sub_run_has_less_time_to_settle_than_its_parent():
    top = Story().state
    child = replace(top, run="r-2", parent="r-1", root="r-1")
    grandchild = replace(top, run="r-3", parent="r-2", root="r-1")

    times = [settle_seconds_of(state) for state in (top, child, grandchild)]

    assert times == sorted(times, reverse=True)
    assert times[0] == SETTLE_SECONDS
    assert times[2] > DETACH_SECONDS, "also there some time is left to undo in after a call was detached"
    assert all(above - below >= UNDO_LEAST_SECONDS for above, below in itertools.pairwise(times))
