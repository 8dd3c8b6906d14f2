"""Receipts: what a verb has come to, put together from what the state wrote down while it was pending."""

from __future__ import annotations

from collections.abc import Sequence

from checkrein.core.effects import Effect
from checkrein.core.receipts import ChangedEffect, Partial, Receipt, StoppedCall, Timing
from checkrein.core.state import PendingVerb, State
from checkrein.core.words import EffectState, Status, Verb

_UNFINISHED = frozenset({EffectState.OPEN, EffectState.IN_DOUBT, EffectState.LEFT})


def receipt_of(
    state: State,
    verb: PendingVerb,
    *,
    at: float,
    status: Status,
    effects: Sequence[Effect] = (),
    held: frozenset[str] = frozenset(),
    answer: str | None = None,
    delivered: bool | None = None,
) -> Receipt:
    """The receipt of `verb` when it settles at the time `at` and leaves the run in `status`."""
    is_kept = state.instruction is not None and state.instruction.accepted == verb.id
    if delivered is None and verb.instructs and not (is_kept and verb.superseded_by is not None):
        # The call that carries an instruction settles its verb with it. Settled in any other way, it was not given.
        # (What a resume brought is kept when a pause supersedes it, and may still be given.)
        delivered = False
    return Receipt(
        verb=verb.verb,
        run=state.run,
        status=status,
        seq=verb.seq,
        by=verb.by,
        reason=verb.reason,
        timing_ms=Timing(
            accepted=_ms(verb.asked_at, verb.accepted_at),
            calls_stopped=None if verb.stopped_at is None or verb.unstopped else _ms(verb.asked_at, verb.stopped_at),
            settled=_ms(verb.asked_at, at),
        ),
        calls=(*verb.calls, *_held_calls(state, held)),
        effects=tuple(_changed(state, effect, status) for effect in effects if _belongs(effect, verb)),
        tokens_after_stop=verb.tokens_after_stop,
        partial=Partial(chars=verb.chars, thread=state.thread) if verb.chars else Partial(),
        superseded_by=verb.superseded_by,
        delivered=delivered,
        answer=answer,
    )


def _belongs(effect: Effect, verb: PendingVerb) -> bool:
    """A verb accounts for the effects it changed; a cancel also for all that is not settled or undone."""
    return effect.id in verb.touched or (verb.verb in (Verb.CANCEL, Verb.HALT) and effect.state in _UNFINISHED)


def _changed(state: State, effect: Effect, status: Status) -> ChangedEffect:
    # What is still open when a run is cancelled is left behind, and its receipt must not call it open.
    is_left = status in (Status.CANCELLED, Status.KILLED) and effect.state is EffectState.OPEN
    why = effect.why
    if state.is_blocked(effect.id):
        why = "its former owner may still be at it, so it was not undone"
    elif is_left and effect.undo is None:
        why = "there is no undo for it"
    return ChangedEffect(id=effect.id, what=effect.what, now=EffectState.LEFT if is_left else effect.state, why=why)


def _held_calls(state: State, held: frozenset[str]) -> tuple[StoppedCall, ...]:
    return tuple(
        StoppedCall(id=call, kind=live.kind, name=live.name, now="held")
        for call, live in state.live.items()
        if call in held and live.hold
    )


def _ms(since: float, until: float) -> float:
    return round(max(0.0, until - since) * 1000, 3)
