"""What the holder of the lease has to do next, read off the state.

Nothing here is remembered: a driver that crashed and one that takes over derive the same orders from the same journal.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from checkrein.core.conditions import Elapsed, Trip, caps, strongest
from checkrein.core.effects import Effect
from checkrein.core.enums import PAUSE_IN_FORCE, PERMITTING, Answer, CallKind, EffectState, Outcome, Status, Undo, Verb
from checkrein.core.state import LiveCall, PendingVerb, State
from checkrein.core.transitions import Fate, Stop
from checkrein.timings import DETACH_SECONDS, SETTLE_SECONDS, UNDO_LEAST_SECONDS, UNDO_SECONDS

SUB_RUN_SHARE: Final = 2 / 3
"""How much of its parent's time for a cancel a sub-run has. Those further down have as much as the second."""


class Abort(msgspec.Struct, frozen=True):
    call: str
    verb: Verb
    hurry: bool = False
    """It waits for no atomic section."""


class Detach(msgspec.Struct, frozen=True):
    """A call has not answered its stop in time: nobody waits for it any more, and what it may still do is in doubt."""

    call: str


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


class Settle(msgspec.Struct, frozen=True):
    verb: PendingVerb


Order = Abort | Detach | Hold | LetGoOn | UndoEffect | TakeAnswer | AnswerQuestion | Settle


def orders(
    state: State,
    effects: Sequence[Effect] = (),
    *,
    at: float = 0.0,
    held: frozenset[str] = frozenset(),
    told_to_hold: frozenset[str] = frozenset(),
    below: Collection[str] = (),
    settle_seconds: float = SETTLE_SECONDS,
) -> tuple[Order, ...]:
    """Everything that is due now, the most urgent first. `held` are the calls that the driver keeps frozen,
    `told_to_hold` those that freeze as soon as they can, `below` the sub-runs that are not over and have no call in
    flight that attends to them."""
    due: list[Order] = [
        Abort(call, live.stop, live.hurried) for call, live in state.live.items() if live.stop is not None
    ]
    due += [Detach(call) for call in late_calls(state, at, settle_seconds)]
    due += [Hold(call) for call, live in state.live.items() if live.hold and call not in held]
    due += [LetGoOn(call) for call in sorted(held | told_to_hold) if call in state.live and _goes_on(state.live[call])]
    due += [TakeAnswer(call, answer) for call in state.doubts if (answer := answer_of_owner(state, call)) is not None]
    effect = next_undo(state, effects, below)
    if effect is not None:
        due.append(UndoEffect(effect))
    due += [
        AnswerQuestion(verb, state.attempt_due(verb.call or ""))
        for verb in state.verbs
        if verb.verb is Verb.ASK and verb.superseded_by is None and not verb.answered and verb.call not in state.live
    ]
    due += [
        Settle(verb)
        for verb in state.verbs
        if obstacle(state, verb, effects, held=held, below=below, late=is_late(verb, at, settle_seconds)) is None
    ]
    return tuple(due)


def _goes_on(live: LiveCall) -> bool:
    """Whether a call that freezes is to go on. One that is to be stopped is not woken for it."""
    return not live.hold and live.stop is None


def may_permit(state: State, effects: Sequence[Effect] = ()) -> bool:
    """Whether the program may begin calls: it is running, and a redirect has stopped all that it wanted stopped."""
    if state.status not in PERMITTING:
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


def next_undo(state: State, effects: Sequence[Effect], below: Collection[str] = ()) -> Effect | None:
    """The one effect to undo now: one at a time, newest first, none that somebody may still perform.

    Nothing is undone while a run is paused, and nothing before the calls that are being stopped have stopped and, with
    a cancel, the sub-runs are over: leaves first.
    """
    if state.status is Status.QUEUED or state.status in PAUSE_IN_FORCE:
        return None
    if below and state.status is Status.CANCELLING:
        return None
    if any(live.kind is CallKind.UNDO or live.stop is not None for live in state.live.values()):
        return None
    return next((e for e in undo_due(state, effects) if not state.is_blocked(e.id)), None)


def undo_seconds(
    state: State, effects: Sequence[Effect], *, at: float, settle_seconds: float = SETTLE_SECONDS
) -> float:
    """How long the undo that is due now may take, all its tries together: one that hangs does not cost others theirs.

    What is left of a cancel's time is shared out evenly among those that wait; whoever is done sooner leaves the more.
    """
    cancel = state.pending(Verb.CANCEL)
    waiting = sum(not state.is_blocked(effect.id) for effect in undo_due(state, effects))
    if cancel is None or waiting < 2:
        return UNDO_SECONDS
    left = cancel.counts_from + settle_seconds - at
    return min(UNDO_SECONDS, max(left / waiting, UNDO_LEAST_SECONDS))


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


def settle_seconds_of(state: State, settle_seconds: float = SETTLE_SECONDS) -> float:
    """How long a cancel of this run may take. A sub-run has less than its parent, to which it leaves some of it."""
    if state.parent is None:
        return settle_seconds
    return settle_seconds * (SUB_RUN_SHARE if state.parent == state.root else SUB_RUN_SHARE**2)


def is_late(verb: PendingVerb, at: float, settle_seconds: float = SETTLE_SECONDS) -> bool:
    """Whether a cancel has waited as long as it may."""
    return at - verb.counts_from >= settle_seconds


def late_calls(state: State, at: float, settle_seconds: float = SETTLE_SECONDS) -> list[str]:
    """The calls that have not answered a cancel for as long as it waits for them."""
    cancel = state.pending(Verb.CANCEL)
    if cancel is None:
        return []
    return [
        call
        for call, live in state.live.items()
        if live.stop is Verb.CANCEL and at - cancel.counts_from >= _patience(live, settle_seconds)
    ]


def _patience(live: LiveCall, settle_seconds: float) -> float:
    """How long a cancel waits for a call. One in an atomic section, and a sub-run that is undone, have all its time."""
    is_expected = live.waits_for or live.kind is CallKind.RUN
    return settle_seconds if is_expected else min(DETACH_SECONDS, settle_seconds)


def next_late(state: State, at: float, settle_seconds: float = SETTLE_SECONDS) -> float | None:
    """In how many seconds the clock alone brings an order: a cancel, or a call that it stops, is late. None: never."""
    cancel = state.pending(Verb.CANCEL)
    if cancel is None:
        return None
    stopping = [_patience(live, settle_seconds) for live in state.live.values() if live.stop is Verb.CANCEL]
    return cancel.counts_from + min(stopping, default=settle_seconds) - at


# -- caps on the time at work: they hold also while a call takes long, so a driver keeps a timer for them


def time_left(state: State, at: float) -> float | None:
    """Seconds until the next cap on time is reached, as far as the run goes on as it does; None when there is none."""
    if not _is_timed(state):
        return None
    spent = state.spent(at)
    standings = (cap.standing(spent, state.grants) for cap in caps(state.stop_when) if isinstance(cap, Elapsed))
    lefts = [allowed - used for used, allowed in standings if used is not None and used < allowed]
    return min(lefts) + 0.001 if lefts else None


def time_is_up(state: State, at: float) -> Trip | None:
    """The trip of a condition whose time is used up."""
    if state.stop_when is None or not _is_timed(state):
        return None
    spent = state.spent(at)
    # Other caps are looked at before each permit, and do not end a turn half-way.
    spent = replace(spent, usage=replace(spent.usage, turns=spent.usage.turns - 1))
    trips = state.stop_when.trips(spent, state.grants)
    return strongest(trips) if any(trip.condition.startswith("Elapsed(") for trip in trips) else None


def _is_timed(state: State) -> bool:
    return state.active_since is not None and state.status in PERMITTING and state.last_calls is None


# -- what a verb waits for


def obstacle(
    state: State,
    verb: PendingVerb,
    effects: Sequence[Effect],
    *,
    held: frozenset[str] = frozenset(),
    below: Collection[str] = (),
    late: bool = False,
) -> str | None:
    """What a pending verb still waits for, in words; None when it can be settled."""
    if verb.superseded_by is not None:
        return None
    match verb.verb:
        case Verb.PAUSE:
            return _calls_in_flight(state, Stop.PAUSE, (Fate.STOP, Fate.HOLD, Fate.FINISH), held)
        case Verb.REDIRECT | Verb.RESUME:
            if state.is_undelivered(verb.id):
                return "the next call of the agent, which will carry the instruction"
            interrupted = [e.what for e in interrupted_effects(state, effects)]
            return f"the undo of {', '.join(interrupted)}" if interrupted else None
        case Verb.CANCEL:
            # A call that does not stop is detached in time, see `late_calls`. What finishes under a cancel are sub-runs
            # and undos, and those it waits for no longer than `settle_seconds`.
            stopping = _calls_in_flight(state, Stop.CANCEL, (Fate.STOP,))
            return stopping or (None if late else _unsettled_below(below) or _undo_unfinished(state, effects))
        case Verb.ASK:
            return None if verb.answered else "the answer of the model"
        case Verb.ABORT:
            return f"{_named(state.live[verb.call])} to stop" if verb.call in state.live else None
        case _:
            return None


def _named(live: LiveCall) -> str:
    return f"{live.name} (in {live.waits_for})" if live.waits_for else live.name


def _calls_in_flight(
    state: State, stop: Stop, fates: Container[Fate], held: frozenset[str] = frozenset()
) -> str | None:
    """The calls that a verb waits for because it wants one of these fates for them, each with what it is waited for to
    do. What is held counts as settled."""
    waited: dict[Fate, list[str]] = {}
    for call, live in state.live.items():
        fate = Fate.STOP if live.stop is not None else live.fate(stop)
        if not (live.hold and call in held) and fate in fates:
            waited.setdefault(fate, []).append(_named(live))
    return " and ".join(f"{', '.join(names)} {_TO[fate]}" for fate, names in waited.items()) or None


_TO: Final = {Fate.STOP: "to stop", Fate.FINISH: "to finish", Fate.HOLD: "to hold"}


def _unsettled_below(below: Collection[str]) -> str | None:
    return f"sub-run {', '.join(sorted(below))} to settle" if below else None


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
