"""What the holder of the lease has to do next, read off the state.

Nothing here is remembered: a driver that crashed and one that takes over derive the same orders from the same journal.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from checkrein.core.commands import SETTLE_SECONDS
from checkrein.core.effects import Effect
from checkrein.core.state import Instruction, LiveCall, PendingVerb, State
from checkrein.core.words import Answer, CallKind, EffectState, Outcome, Status, Undo, Verb


class Abort(msgspec.Struct, frozen=True):
    call: str
    verb: Verb


class Hold(msgspec.Struct, frozen=True):
    call: str


class LetGoOn(msgspec.Struct, frozen=True):
    call: str


class UndoEffect(msgspec.Struct, frozen=True):
    effect: Effect


class TakeAnswer(msgspec.Struct, frozen=True):
    """The former owner of a call in doubt has said what happened: resolve it accordingly."""

    call: str
    answer: Answer


class AnswerQuestion(msgspec.Struct, frozen=True):
    verb: PendingVerb
    attempt: int


class Deliver(msgspec.Struct, frozen=True):
    """The next call that can carry the instruction should."""

    instruction: Instruction


class Settle(msgspec.Struct, frozen=True):
    verb: PendingVerb


Order = Abort | Hold | LetGoOn | UndoEffect | TakeAnswer | AnswerQuestion | Deliver | Settle


def orders(
    state: State,
    effects: Sequence[Effect] = (),
    *,
    at: float = 0.0,
    held: frozenset[str] = frozenset(),
    settle_seconds: float = SETTLE_SECONDS,
) -> tuple[Order, ...]:
    """Everything that is due now, the most urgent first. `held` are the calls that the driver keeps frozen."""
    due: list[Order] = [Abort(call, live.stop) for call, live in state.live.items() if live.stop is not None]
    due += [Hold(call) for call, live in state.live.items() if live.hold and call not in held]
    due += [LetGoOn(call) for call in sorted(held) if call in state.live and _goes_on(state.live[call])]
    due += [TakeAnswer(call, answer) for call in state.doubts if (answer := answer_of_owner(state, call)) is not None]
    effect = next_undo(state, effects)
    if effect is not None:
        due.append(UndoEffect(effect))
    due += [
        AnswerQuestion(verb, state.attempt_due(verb.call or ""))
        for verb in state.verbs
        if verb.verb is Verb.ASK and verb.superseded_by is None and not verb.answered and verb.call not in state.live
    ]
    if state.instruction is not None and may_permit(state, effects):
        due.append(Deliver(state.instruction))
    due += [
        Settle(verb)
        for verb in state.verbs
        if obstacle(state, verb, effects, held=held, late=is_late(verb, at, settle_seconds)) is None
    ]
    return tuple(due)


def _goes_on(live: LiveCall) -> bool:
    """Whether a frozen call is to go on. One that is to be stopped is not woken for it."""
    return not live.hold and live.stop is None


def may_permit(state: State, effects: Sequence[Effect] = ()) -> bool:
    """Whether the program may begin calls: it is running, and a redirect has stopped all that it wanted stopped."""
    if state.status not in (Status.RUNNING, Status.REDIRECTING):
        return False
    return not any(live.stop is Verb.REDIRECT for live in state.live.values()) and not interrupted_effects(
        state, effects
    )


# -- undoing


def undo_due(state: State, effects: Sequence[Effect]) -> tuple[Effect, ...]:
    """Every effect that is to be undone, newest first, also those that cannot be yet. `effects` are oldest first."""
    due = [e for e in effects if e.undo is not None and (e.wanted or _cancel_undoes(state, e))]
    ids = {e.id for e in due}
    due += [e for e in interrupted_effects(state, effects) if e.id not in ids]
    order = {e.id: n for n, e in enumerate(effects)}
    return tuple(sorted(due, key=lambda e: order[e.id], reverse=True))


def next_undo(state: State, effects: Sequence[Effect]) -> Effect | None:
    """The one effect to undo now: one at a time, newest first, none that somebody may still perform.

    Nothing is undone while a run is paused, and nothing before the calls that are being stopped have stopped.
    """
    if state.status in (Status.QUEUED, Status.PAUSING, Status.PAUSED):
        return None
    if any(live.kind is CallKind.UNDO or live.stop is not None for live in state.live.values()):
        return None
    return next((e for e in undo_due(state, effects) if not state.is_blocked(e.id)), None)


_UNDONE_BY_CANCEL = {
    Undo.NONE: frozenset[EffectState](),
    Undo.OPEN: frozenset({EffectState.OPEN, EffectState.IN_DOUBT}),
    Undo.ALL: frozenset({EffectState.OPEN, EffectState.IN_DOUBT, EffectState.SETTLED}),
}


def _cancel_undoes(state: State, effect: Effect) -> bool:
    return state.status is Status.CANCELLING and effect.happened and effect.state in _UNDONE_BY_CANCEL[state.undo]


def interrupted_effects(state: State, effects: Sequence[Effect]) -> list[Effect]:
    """The effects of calls that the pending redirect interrupted."""
    redirect = state.pending(Verb.REDIRECT)
    if redirect is None or not redirect.calls:
        return []
    stopped = {call.id for call in redirect.calls if call.now != Outcome.COMPLETED}
    return [
        e
        for e in effects
        if e.id in stopped and e.undo is not None and e.state is EffectState.IN_DOUBT and not state.is_blocked(e.id)
    ]


# -- settling


def is_late(verb: PendingVerb, at: float, settle_seconds: float = SETTLE_SECONDS) -> bool:
    """Whether a cancel has waited as long as it may."""
    return at - verb.accepted_at >= settle_seconds


def obstacle(
    state: State,
    verb: PendingVerb,
    effects: Sequence[Effect],
    *,
    held: frozenset[str] = frozenset(),
    late: bool = False,
) -> str | None:
    """What a pending verb still waits for, in words; None when it can be settled."""
    if verb.superseded_by is not None:
        return None
    match verb.verb:
        case Verb.PAUSE:
            return _calls_in_flight(state, held)
        case Verb.REDIRECT | Verb.RESUME:
            if _undelivered(state, verb):
                return "the next call of the agent, which will carry the instruction"
            interrupted = [e.what for e in interrupted_effects(state, effects)]
            return f"the undo of {', '.join(interrupted)}" if interrupted else None
        case Verb.CANCEL:
            return _calls_in_flight(state, frozenset()) or (None if late else _undo_unfinished(state, effects))
        case Verb.ASK:
            return None if verb.answered else "the answer of the model"
        case Verb.ABORT:
            return f"{state.live[verb.call].name} to stop" if verb.call in state.live else None
        case _:
            return None


def _undelivered(state: State, verb: PendingVerb) -> bool:
    return state.instruction is not None and state.instruction.accepted == verb.id


def _calls_in_flight(state: State, held: frozenset[str]) -> str | None:
    """A pause does not wait for side questions, nor for what is held; a cancel has stopped both."""
    names = [
        live.name
        for call, live in state.live.items()
        if live.kind is not CallKind.UNDO
        and not (live.hold and call in held)
        and not (live.kind is CallKind.ASK and live.stop is None)
    ]
    if state.status is not Status.CANCELLING:
        names += [live.name for live in state.live.values() if live.kind is CallKind.UNDO]
    return f"{', '.join(names)} to stop" if names else None


def _undo_unfinished(state: State, effects: Sequence[Effect]) -> str | None:
    undoing = [live.name for live in state.live.values() if live.kind is CallKind.UNDO]
    if undoing:
        return f"the undo of {', '.join(undoing)}"
    due = undo_due(state, effects)
    blocked = [e.what for e in due if state.is_blocked(e.id)]
    ready = [e.what for e in due if not state.is_blocked(e.id)]
    if ready:
        return f"the undo of {', '.join(ready)}"
    return f"word whether {', '.join(blocked)} may still happen" if blocked else None


def answer_of_owner(state: State, call: str) -> Answer | None:
    """What the answer of a call's former owner amounts to, where it leaves no doubt."""
    doubt = state.doubts[call]
    if not doubt.person or doubt.answer is None or doubt.unanswered:
        return None
    if not doubt.began:
        return Answer.DID_NOT_HAPPEN
    return Answer.HAPPENED if doubt.answer is Outcome.COMPLETED else None
