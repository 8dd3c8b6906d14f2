"""The state holds what still matters, so it does not grow with the run."""

from __future__ import annotations

from typing import Final

import msgspec

from checkrein.core.conditions import RECENT_CALLS, Usage
from checkrein.core.enums import Outcome
from tests.core.story import Story, events_of

SAME: Final = 64
"""Bytes by which counts and times may grow."""

FINGERPRINTS: Final = len(msgspec.json.encode(["hash of t00000"] * RECENT_CALLS))
"""What the memory of the latest calls takes once it is full."""


def size(story: Story) -> int:
    return len(msgspec.json.encode(story.state))


def work(story: Story, *, first: int, calls: int) -> int:
    """Half of the calls are of a model, half of a tool with an effect. How big the state is after them."""
    for number in range(first, first + calls // 2):
        events_of(story.model(f"m{number:05}"))
        events_of(story.finish(f"m{number:05}", usage=Usage(input_tokens=100, output_tokens=10, cost_usd=0.125)))
        events_of(story.tool(f"t{number:05}", effect=True, effects=()))
        events_of(story.finish(f"t{number:05}"))
    return size(story)


def test_the_state_is_as_small_after_twenty_thousand_calls_as_after_ten() -> None:
    """D29: a snapshot stays cheap however long the run."""
    story = Story()

    ten = work(story, first=0, calls=10)
    thousand = work(story, first=5, calls=990)
    twenty_thousand = work(story, first=500, calls=19_000)

    assert len(story.ledger) == 10_000
    assert ten <= thousand <= ten + FINGERPRINTS + SAME
    assert abs(twenty_thousand - thousand) <= SAME


def test_the_state_does_not_grow_while_an_instruction_waits_for_a_call_that_can_carry_it() -> None:
    story = Story()
    work(story, first=0, calls=100)
    events_of(story.redirect())
    before = size(story)

    after = work(story, first=50, calls=1_000)

    assert abs(after - before) <= SAME


def test_the_state_does_not_grow_with_the_verbs_a_run_has_seen() -> None:
    """D38"""
    story = Story()
    work(story, first=0, calls=100)
    sizes = []
    for number in range(100):
        events_of(story.tool(f"t{number + 100:05}", effect=True))
        events_of(story.redirect("only Q3"))
        events_of(story.pause())
        story.drive()
        events_of(story.resume("only Q4"))
        story.drive()
        events_of(story.model(f"n{number:05}", delivers=True))
        events_of(story.ask())
        story.drive()
        events_of(story.finish(f"n{number:05}", Outcome.COMPLETED))
        sizes.append(size(story))

    assert story.state.verbs == ()
    assert max(sizes) - min(sizes) <= SAME
