"""What a decision comes to: events, a refusal, or the receipt of a verb that is in force already."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from checkrein.core.conditions import Trip
from checkrein.core.effects import Effect
from checkrein.core.enums import FENCING, STOPPED, CallKind, EffectState, Outcome, Status, Undo
from checkrein.core.events import Event
from checkrein.core.receipts import ChangedEffect, Partial, Receipt, StoppedCall, Timing
from checkrein.core.state import PendingVerb, State
from checkrein.core.wording import NO_UNDO, NOT_WANTED_UNDONE, UNSETTLED


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


_KNOWN: Final = ("verb", "seq", "by", "reason", "calls", "tokens_after_stop")
_UNFINISHED = frozenset({EffectState.OPEN, EffectState.IN_DOUBT, EffectState.LEFT})


def receipt_of(
    state: State,
    verb: PendingVerb,
    *,
    at: float,
    status: Status,
    effects: Sequence[Effect] = (),
    held: frozenset[str] = frozenset(),
    below: Sequence[str] = (),
    answer: str | None = None,
    delivered: bool | None = None,
) -> Receipt:
    """The receipt of `verb` when it settles at the time `at` and leaves the run in `status`."""
    is_kept = state.is_undelivered(verb.id)
    if delivered is None and verb.instructs and not (is_kept and verb.superseded_by is not None):
        # The call that carries an instruction settles its verb with it. Settled in any other way, it was not given.
        # (What a resume brought is kept when a pause supersedes it, and may still be given.)
        delivered = False
    calls = (*verb.calls, *_held_calls(state, held), *_unsettled_calls(below))
    return Receipt(
        **known_of(verb) | {"calls": calls},
        run=state.run,
        status=status,
        timing_ms=Timing(
            accepted=_ms(verb.asked_at, verb.accepted_at),
            calls_stopped=None if verb.stopped_at is None or verb.unstopped else _ms(verb.asked_at, verb.stopped_at),
            settled=_ms(verb.asked_at, at),
        ),
        effects=tuple(_changed(state, effect, status) for effect in effects if _belongs(effect, verb)),
        partial=Partial(chars=verb.chars, thread=state.thread) if verb.chars else Partial(),
        superseded_by=verb.superseded_by,
        delivered=delivered,
        answer=answer,
    )


def known_of(verb: PendingVerb) -> dict[str, Any]:
    """What every answer to `verb` says, settled or not."""
    return {name: getattr(verb, name) for name in _KNOWN}


def _belongs(effect: Effect, verb: PendingVerb) -> bool:
    """A verb accounts for the effects it changed; a cancel also for all that is not settled or undone."""
    return effect.id in verb.touched or (verb.verb in FENCING and effect.state in _UNFINISHED)


def _changed(state: State, effect: Effect, status: Status) -> ChangedEffect:
    # What is still open when a run is cancelled is left behind, and its receipt must not call it open.
    is_left = status in STOPPED and effect.state is EffectState.OPEN
    why = effect.why
    if state.is_blocked(effect.id):
        why = "its former owner may still be at it, so it was not undone"
    elif is_left and effect.undo is None:
        why = NO_UNDO
    elif is_left and state.undo is Undo.NONE:
        why = NOT_WANTED_UNDONE
    return ChangedEffect(id=effect.id, what=effect.what, now=EffectState.LEFT if is_left else effect.state, why=why)


def _unsettled_calls(below: Sequence[str]) -> tuple[StoppedCall, ...]:
    return tuple(
        StoppedCall(id=run, kind=CallKind.RUN, name=run, now=Outcome.DETACHED, left=(UNSETTLED,)) for run in below
    )


def _held_calls(state: State, held: frozenset[str]) -> tuple[StoppedCall, ...]:
    return tuple(
        StoppedCall(id=call, kind=live.kind, name=live.name, now="held")
        for call, live in state.live.items()
        if call in held and live.hold
    )


def _ms(since: float, until: float) -> float:
    return round(max(0.0, until - since) * 1000, 3)
