"""Caps at work: checked before every permit, and what happens when one is reached."""

from __future__ import annotations

import msgspec
import pytest

from checkrein.core.conditions import Condition, Cost, Effects, Elapsed, Repeats, Tokens, ToolCalls, Turns, Usage
from checkrein.core.enums import OnPause, Then, Verb, When
from checkrein.core.events import ConditionTripped, VerbAccepted
from tests.core.story import Story, events_of, only, refusal_of


def turns(story: Story, count: int, *, first: int = 1) -> None:
    for number in range(first, first + count):
        events_of(story.model(f"m{number}"))
        events_of(story.finish(f"m{number}"))


# -- before every permit


@pytest.mark.parametrize(
    ("condition", "observed"),
    [(Turns(2), 2), (ToolCalls(2), 2), (Tokens(20), 20), (Cost(usd=0.5), 0.5), (Effects(2), 2), (Repeats(2), 2)],
)
def test_no_call_begins_once_a_cap_is_reached(condition: Condition, observed: float) -> None:
    """D9 D25: a run cannot loop, spend or edit past its owner's intent."""
    story = Story(stop_when=condition)
    for number in (1, 2):
        turns(story, 1, first=number)
        events_of(story.tool(f"t{number}", effect=True, fingerprint="hash of the same call"))
        events_of(story.finish(f"t{number}", usage=Usage(input_tokens=8, output_tokens=2, cost_usd=0.25)))

    refusal = refusal_of(story.model("m3"))

    assert refusal.code == "cap_reached"
    assert refusal.trip is not None
    assert (refusal.trip.condition, refusal.trip.observed) == (condition.label, observed)
    assert condition.label in refusal.message


def test_calls_already_permitted_may_overshoot() -> None:
    story = Story(stop_when=ToolCalls(2))

    for call in ("a", "b"):
        events_of(story.tool(call))

    assert refusal_of(story.tool("c")).code == "cap_reached"
    assert len(story.state.live) == 2


def test_a_turn_is_a_model_call_and_the_tool_calls_it_asked_for() -> None:
    """The cap on turns ends before the next round, not in the middle of one."""
    story = Story(stop_when=Turns(1))
    turns(story, 1)

    story.did("score")

    assert refusal_of(story.model("m2")).code == "cap_reached"


def test_a_model_call_that_is_asked_again_is_not_another_turn() -> None:
    """D23: resume goes on exactly there, also in the last turn."""
    story = Story(stop_when=Turns(1))
    events_of(story.model("m1"))
    events_of(story.pause())
    story.drive()
    events_of(story.resume())

    events_of(story.model("m1", attempt=2))

    assert story.state.usage.turns == 1


def test_a_call_that_is_done_again_after_a_pause_is_not_the_agent_repeating_itself() -> None:
    """D10 looks at what the agent does, not at how often it was paused."""
    story = Story(stop_when=Repeats(2))
    events_of(story.tool("look", on_pause=OnPause.ABORT, idempotent=True))
    events_of(story.pause())
    story.drive()
    events_of(story.resume())
    events_of(story.tool("look", on_pause=OnPause.ABORT, idempotent=True, attempt=2))
    events_of(story.finish("look"))

    events_of(story.tool("another"))


def test_an_agent_that_goes_back_and_forth_is_noticed_again_after_every_grant() -> None:
    """D10"""
    story = Story(stop_when=Repeats(3))
    for grant in range(10):
        for number, call in enumerate("ababab"):
            events_of(story.tool(f"{call}{grant}{number}", fingerprint=call))
            events_of(story.finish(f"{call}{grant}{number}"))

        events_of(story.trip(refusal_of(story.tool("next"))))
        story.drive()
        events_of(story.resume())


def test_undoing_and_questions_are_not_capped() -> None:
    """D33: a cap never keeps a stop from cleaning up."""
    story = Story(stop_when=ToolCalls(1))
    story.did("draft")
    assert refusal_of(story.tool("next")).code == "cap_reached"
    events_of(story.ask())
    story.drive()

    events_of(story.cancel())
    story.drive()

    assert story.ledger["draft"].state == "undone"


# -- what a cap does


def test_a_cap_pauses_the_run_and_says_what_would_help() -> None:
    story = Story(stop_when=Turns(1))
    turns(story, 1)

    events = events_of(story.trip(refusal_of(story.model("m2"))))

    assert [type(event) for event in events] == [ConditionTripped, VerbAccepted]
    assert only(VerbAccepted, events).by == "checkrein"
    (wait,) = story.state.waiting()
    assert (wait.kind, wait.what, wait.remedy) == ("cap", "Turns(1) is reached", "Resume grants Turns(1) again.")
    story.drive()
    assert story.status == "paused"


@pytest.mark.parametrize("given", ["resume", "redirect"])
def test_going_on_after_a_cap_grants_it_once_more(given: str) -> None:
    story = Story(stop_when=Turns(2) | ToolCalls(50))
    for grant in range(3):
        turns(story, 2, first=1 + 2 * grant)
        events_of(story.trip(refusal_of(story.model(f"m{3 + 2 * grant}"))))
        story.drive()

        events_of(story.resume() if given == "resume" else story.redirect(when=When.NEXT_STEP))

        assert story.state.grants == {"Turns(2)": grant + 1}
        assert not story.state.tripped
        assert not story.state.waiting()


def test_a_cap_that_says_cancel_cancels() -> None:
    story = Story(stop_when=Turns(1, then=Then.CANCEL))
    turns(story, 1)
    story.did("draft")

    events_of(story.trip(refusal_of(story.model("m2"))))
    story.drive()

    assert story.status == "cancelled"
    assert story.ledger["draft"].state == "undone"


def test_a_cap_that_says_finish_allows_one_last_model_call_without_tools() -> None:
    story = Story(stop_when=Turns(1, then=Then.FINISH))
    turns(story, 1)
    events_of(story.trip(refusal_of(story.model("m2"))))
    assert story.status == "running"

    assert refusal_of(story.tool("t1")).code == "cap_reached"
    events_of(story.model("m2"))
    events_of(story.finish("m2"))

    assert refusal_of(story.model("m3")).code == "cap_reached"
    assert refusal_of(story.tool("t1")).code == "cap_reached"
    events_of(story.complete())


def test_the_last_call_may_be_asked_again_after_a_crash() -> None:
    """P2: the same call, not another one."""
    story = Story(stop_when=Turns(1, then=Then.FINISH))
    turns(story, 1)
    events_of(story.trip(refusal_of(story.model("m2"))))
    events_of(story.model("m2"))
    events_of(story.take_over())

    events_of(story.model("m2", attempt=2))

    assert refusal_of(story.model("m3")).code == "cap_reached"


def test_a_second_cap_that_says_finish_grants_no_second_last_call() -> None:
    story = Story(stop_when=Turns(1, then=Then.FINISH) | Elapsed(seconds=9, then=Then.FINISH))
    turns(story, 1)
    first = refusal_of(story.model("m2"))
    events_of(story.trip(first))
    events_of(story.model("m2"))

    story.trip(first)  # a timer, say, that goes off meanwhile

    assert refusal_of(story.model("m3")).code == "cap_reached"


def test_what_the_button_grants_after_a_last_call_is_granted() -> None:
    """D18: the consequence that a control names is what happens."""
    story = Story(stop_when=Turns(1, then=Then.FINISH))
    turns(story, 1)
    events_of(story.trip(refusal_of(story.model("m2"))))
    turns(story, 1, first=2)
    events_of(story.pause())
    story.drive()
    assert story.consequence(Verb.RESUME) == "goes on, and grants Turns(1) again"

    events_of(story.resume())

    assert story.state.grants == {"Turns(1)": 1}
    assert refusal_of(story.model("m3")).trip is not None, "two turns are spent, and two were allowed"


@pytest.mark.parametrize("status", ["pausing", "cancelling", "completed"])
def test_a_cap_does_nothing_to_a_run_that_stops_already(status: str) -> None:
    story = Story(stop_when=Turns(1))
    turns(story, 1)
    refusal = refusal_of(story.model("m2"))
    events_of({"pausing": story.pause, "cancelling": story.cancel, "completed": story.complete}[status]())

    assert refusal_of(story.trip(refusal)).code == "not_now"


def test_a_price_that_is_not_known_can_be_told_and_stored() -> None:
    story = Story(stop_when=Cost(usd=1))
    events_of(story.model("m1"))
    events_of(story.finish("m1", usage=Usage(output_tokens=5, cost_usd=None)))

    refusal = refusal_of(story.model("m2"))
    (tripped, _) = events_of(story.trip(refusal))

    assert refusal.message == "Run r-1 is running: Cost(1) cannot hold."
    assert msgspec.json.decode(msgspec.json.encode(tripped), type=ConditionTripped) == tripped


def test_a_call_whose_price_nobody_knows_has_no_permit_under_a_cap_on_cost() -> None:
    """C6: not even the first. Whoever resumes goes on without the cap."""
    story = Story(stop_when=Cost(usd=1))

    refusal = refusal_of(story.model("m1", priced=False))
    assert refusal.trip is not None
    assert refusal.trip.observed is None
    (_, accepted) = events_of(story.trip(refusal))
    assert isinstance(accepted, VerbAccepted)
    assert accepted.needs is not None
    assert "price of the model is not known" in accepted.needs.what
    assert "Resume goes on without this cap." in accepted.needs.remedy
    story.drive()
    events_of(story.resume())

    events_of(story.model("m1", priced=False))


def test_going_on_after_a_price_that_is_not_known_is_of_use() -> None:
    """D25: resume says that it grants Cost(1) again; the run must not stop at its very next call."""
    story = Story(stop_when=Cost(usd=1))
    events_of(story.model("m1"))
    events_of(story.finish("m1", usage=Usage(cost_usd=None)))
    events_of(story.trip(refusal_of(story.model("m2"))))
    story.drive()

    events_of(story.resume())

    events_of(story.model("m2"))
