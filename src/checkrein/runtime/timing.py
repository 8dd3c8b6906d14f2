"""Caps on the time at work: they hold also while a call takes long, so a driver keeps a timer for them."""

from __future__ import annotations

from msgspec.structs import replace

from checkrein.core.conditions import Elapsed, Trip, caps, strongest
from checkrein.core.state import State
from checkrein.core.words import Status

_AT_WORK = (Status.RUNNING, Status.REDIRECTING)


def time_left(state: State, at: float) -> float | None:
    """Seconds until the next cap on time is reached, as far as the run goes on as it does; None when there is none."""
    if state.active_since is None or state.status not in _AT_WORK or state.last_calls is not None:
        return None
    spent = state.spent(at)
    standings = (cap.standing(spent, state.grants) for cap in caps(state.stop_when) if isinstance(cap, Elapsed))
    lefts = [allowed - used for used, allowed in standings if used is not None and used < allowed]
    return min(lefts) + 0.001 if lefts else None


def time_is_up(state: State, at: float) -> Trip | None:
    """The trip of a condition whose time is used up."""
    if state.stop_when is None or state.active_since is None or state.status not in _AT_WORK:
        return None
    if state.last_calls is not None:
        return None
    spent = state.spent(at)
    # Other caps are looked at before each permit, and do not end a turn half-way.
    spent = replace(spent, usage=replace(spent.usage, turns=spent.usage.turns - 1))
    trips = state.stop_when.trips(spent, state.grants)
    return strongest(trips) if any(trip.condition.startswith("Elapsed(") for trip in trips) else None
