"""How verbs settle and runs end. No verb outlives its run without an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from checkrein.core.calls import left_in_doubt
from checkrein.core.commands import CancelRun, Command, FinishRun, HaltRun, PauseRun, SettleVerb, TripCondition
from checkrein.core.effects import Effect
from checkrein.core.events import ConditionTripped, Event, Need, RunFinished, VerbSettled
from checkrein.core.evolve import fold
from checkrein.core.orders import interrupted_effects, is_late, obstacle
from checkrein.core.settling import receipt_of
from checkrein.core.state import State
from checkrein.core.verbs import accept, cancel, not_allowed, pause
from checkrein.core.verdict import OUTCOME_IN_WORDS, Verdict, refuse
from checkrein.core.words import EffectState, Status, Then, Verb

RUNTIME: Final = "checkrein"
"""Who asks when the runtime itself pauses or cancels a run."""

_SETTLED_STATUS: Final[Mapping[Verb, Mapping[Status, Status]]] = {
    Verb.PAUSE: {Status.PAUSING: Status.PAUSED},
}


def settle_verb(state: State, command: SettleVerb) -> Verdict:
    verb = state.verb(command.accepted)
    if verb is None:
        return refuse(state, "already_settled", f"{command.accepted} is not a verb that waits to be settled")
    late = is_late(verb, command.at, command.settle_seconds)
    waits_for = obstacle(state, verb, command.effects, held=command.held, late=late)
    if waits_for is not None:
        return refuse(state, "not_settled", f"{verb.verb.value} waits for {waits_for}")
    if verb.verb is Verb.CANCEL and verb.superseded_by is None:
        return _end(state, command, Status.CANCELLED, effects=command.effects)
    status = state.status
    if verb.superseded_by is None:
        status = _SETTLED_STATUS.get(verb.verb, {}).get(state.status, state.status)
    receipt = receipt_of(
        state,
        verb,
        at=command.at,
        status=status,
        effects=command.effects,
        held=command.held,
        answer=command.answer,
    )
    return (
        VerbSettled(id=command.id, at=command.at, accepted=verb.id, verb=verb.verb, status=status, receipt=receipt),
    )


def finish_run(state: State, command: FinishRun) -> Verdict:
    if state.status not in (Status.RUNNING, Status.REDIRECTING):
        why = OUTCOME_IN_WORDS.get(state.status, "it cannot finish now")
        return refuse(state, "finished" if state.is_finished else "not_now", why)
    if command.status not in (Status.COMPLETED, Status.FAILED):
        return refuse(state, "not_an_end", "a program can only complete or fail")
    if state.live:
        names = ", ".join(live.name for live in state.live.values())
        return refuse(state, "calls_in_flight", f"{names} has no outcome yet")
    if interrupted_effects(state, command.effects):
        return refuse(state, "undo_pending", "what a redirect interrupted is still to be undone")
    if any(effect.wanted and effect.state is EffectState.OPEN for effect in command.effects):
        return refuse(state, "undo_pending", "what a person wanted undone is still to be")
    if state.instruction is not None and not command.undelivered_ok:
        return refuse(state, "instruction_pending", "the agent has not been given its latest instruction")
    if command.status is Status.COMPLETED and (state.approvals or any(d.blocks for d in state.doubts.values())):
        return refuse(state, "waiting", "an approval or a call in doubt is still open")
    return _end(state, command, command.status, effects=command.effects, result=command.result, error=command.error)


def halt(state: State, command: HaltRun) -> Verdict:
    """No undo, no waiting: what was in flight is in doubt, what was pending is superseded, the run is over."""
    if refusal := not_allowed(state, command):
        return refusal
    effects = tuple(replace(e, state=EffectState.IN_DOUBT) if e.id in state.live else e for e in command.effects)
    facts, accepted = left_in_doubt(state, command, owner_dead=command.owner_dead), accept(state, command)
    halted = fold(state, (*facts, accepted))
    # In the journal what was in flight ended before the halt, because facts come first; in its receipt because of it.
    stopped = replace(fold(state, (accepted, *facts)).verbs[-1], seq=halted.verbs[-1].seq)
    halted = replace(halted, verbs=(*halted.verbs[:-1], stopped))
    return (*facts, accepted, *_end(halted, command, Status.KILLED, effects=effects))


def trip_condition(state: State, command: TripCondition) -> Verdict:
    """A condition has tripped: say so, and do what it asks for."""
    trip = command.trip
    if state.status not in (Status.RUNNING, Status.REDIRECTING):
        return refuse(state, "not_now", "it is stopping already")
    tripped = ConditionTripped(
        id=command.id,
        at=command.at,
        condition=trip.condition,
        observed=trip.observed,
        allowed=trip.allowed,
        then=trip.then,
    )
    verdict = _asked_by_condition(state, command)
    return (tripped, *verdict) if isinstance(verdict, tuple) else verdict


def _asked_by_condition(state: State, command: TripCondition) -> Verdict:
    condition = command.trip.condition
    verb_id, reason = f"{command.id}.verb", f"{condition} is reached"
    if command.trip.then is Then.CANCEL:
        return cancel(state, CancelRun(id=verb_id, at=command.at, by=RUNTIME, reason=reason))
    if command.trip.then is Then.PAUSE:
        need = Need(code="cap", what=reason, remedy=f"Resume grants {condition} again.")
        return pause(state, PauseRun(id=verb_id, at=command.at, by=RUNTIME, reason=reason, needs=need))
    return ()


def _end(
    state: State, command: Command, status: Status, effects: Sequence[Effect] = (), **fields: Any
) -> tuple[Event, ...]:
    """Settle every verb that is pending, and finish."""
    settled = tuple(
        VerbSettled(
            id=f"{command.id}.settled.{verb.id}",
            at=command.at,
            accepted=verb.id,
            verb=verb.verb,
            status=state.status,
            receipt=receipt_of(state, verb, at=command.at, status=status, effects=effects),
        )
        for verb in state.verbs
    )
    return (*settled, RunFinished(id=f"{command.id}.finished", at=command.at, status=status, **fields))
