"""What a decision comes to: events, a refusal, or the receipt of a verb that is in force already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from checkrein.core.conditions import Trip
from checkrein.core.effects import Effect
from checkrein.core.events import Event
from checkrein.core.state import State
from checkrein.core.words import Status

OUTCOME_IN_WORDS: Final[Mapping[Status, str]] = {
    Status.COMPLETED: "it had completed before this; there was nothing left to stop",
    Status.FAILED: "it had failed before this",
    Status.CANCELLED: "it was cancelled before this",
    Status.KILLED: "an operator halted it",
}


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing happens. `code` is for programs and stable, `message` for people."""

    code: str
    message: str
    run: str
    status: Status
    trip: Trip | None = None
    """With `cap_reached`: the condition that stands in the way."""


class Joined(msgspec.Struct, frozen=True):
    """Nothing new happens: the answer is the receipt of the verb `accepted`, which is settling or settled."""

    accepted: str


Verdict = tuple[Event, ...] | Refusal | Joined


def refuse(state: State, code: str, why: str, trip: Trip | None = None) -> Refusal:
    message = f"Run {state.run} is {state.status.value}: {why}."
    return Refusal(code=code, message=message, run=state.run, status=state.status, trip=trip)


def find_effect(effects: Sequence[Effect], effect_id: str) -> Effect | None:
    return next((effect for effect in effects if effect.id == effect_id), None)
