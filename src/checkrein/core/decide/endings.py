"""How verbs settle and runs end. No verb outlives its run without an answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from checkrein.core.commands import CancelRun, Command, FinishRun, HaltRun, PauseRun, SettleVerb, TripCondition
from checkrein.core.decide.calls import left_in_doubt
from checkrein.core.decide.verbs import accept, cancel, not_accepted, pause
from checkrein.core.decide.verdict import Verdict, receipt_of, refuse
from checkrein.core.effects import Effect
from checkrein.core.enums import ENDED_BY_ITSELF, PERMITTING, TERMINAL, EffectState, Status, Then, Verb
from checkrein.core.enums import RUNTIME as RUNTIME
from checkrein.core.events import ConditionTripped, EffectLeft, Event, Need, RunFinished, VerbSettled
from checkrein.core.evolve import fold
from checkrein.core.orders import interrupted_effects, is_late, obstacle, undo_due
from checkrein.core.state import State
from checkrein.core.transitions import Fate, Stop, settled_status
from checkrein.core.wording import OUT_OF_TIME, TOO_LATE


def settle_verb(state: State, command: SettleVerb) -> Verdict:
    verb = state.verb(command.accepted)
    if verb is None:
        return refuse(state, "already_settled", f"{command.accepted} is not a verb that waits to be settled")
    late = is_late(verb, command.at, command.settle_seconds)
    waits_for = obstacle(state, verb, command.effects, held=command.held, below=command.below, late=late)
    if waits_for is not None:
        return refuse(state, "not_settled", f"{verb.verb.value} waits for {waits_for}")
    alive_at = command.alive_at
    worked_until = None if alive_at is None else state.left_at(state.worked_until(alive_at))
    status = state.status if verb.superseded_by is not None else settled_status(state.status, verb.verb)
    if status is not state.status and status in TERMINAL:
        left = _out_of_time(state, command)
        effects = tuple(
            replace(e, state=EffectState.LEFT, why=OUT_OF_TIME) if e.id in left else e for e in command.effects
        )
        ends = _end(state, command, status, effects=effects, below=command.below, worked_until=worked_until)
        return (*left.values(), *ends)
    receipt = receipt_of(
        state, verb, at=command.at, status=status, effects=command.effects, held=command.held, answer=command.answer
    )
    return (
        VerbSettled(
            id=command.id,
            at=command.at,
            accepted=verb.id,
            verb=verb.verb,
            status=status,
            receipt=receipt,
            worked_until=worked_until,
        ),
    )


def _out_of_time(state: State, command: SettleVerb) -> dict[str, EffectLeft]:
    """The effects that a cancel was to undo, and has had no time for; by their ids."""
    due = undo_due(state, command.effects)
    return {
        e.id: EffectLeft(id=f"{command.id}.left.{e.id}", at=command.at, effect=e.id, why=OUT_OF_TIME)
        for e in due
        if e.state is not EffectState.IN_DOUBT and not state.is_blocked(e.id)
    }


def finish_run(state: State, command: FinishRun) -> Verdict:
    if state.status not in PERMITTING:
        why = TOO_LATE.get(state.status, "it cannot finish now")
        return refuse(state, "finished" if state.is_finished else "not_now", why)
    if command.status not in ENDED_BY_ITSELF:
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
    if any(verb.verb is Verb.ASK and verb.superseded_by is None for verb in state.verbs):
        # It has its answer, or gets it in a moment, and must be given it: the end of the run settles what is pending.
        return refuse(state, "question_pending", "a question on the side is being answered")
    if command.status is Status.COMPLETED and (state.approvals or any(d.blocks for d in state.doubts.values())):
        return refuse(state, "waiting", "an approval or a call in doubt is still open")
    return _end(state, command, command.status, effects=command.effects, result=command.result, error=command.error)


def halt(state: State, command: HaltRun) -> Verdict:
    """No undo, no waiting: what was in flight is in doubt, what was pending is superseded, the run is over."""
    if answer := not_accepted(state, command):
        return answer
    effects = tuple(replace(e, state=EffectState.IN_DOUBT) if e.id in state.live else e for e in command.effects)
    ended = {call: live for call, live in state.live.items() if live.fate(Stop.HALT) is Fate.STOP}
    worked_until = state.left_at(state.worked_until(command.alive_at))
    facts = left_in_doubt(replace(state, live=ended), command, over=command.over, worked_until=worked_until)
    accepted = accept(state, command)
    halted = fold(state, (*facts, accepted))
    # In the journal what was in flight ended before the halt, because facts come first; in its receipt because of it.
    stopped = replace(fold(state, (accepted, *facts)).verbs[-1], seq=halted.verbs[-1].seq)
    halted = replace(halted, verbs=(*halted.verbs[:-1], stopped))
    status = settled_status(halted.status, Verb.HALT)
    return (*facts, accepted, *_end(halted, command, status, effects=effects, worked_until=worked_until))


def trip_condition(state: State, command: TripCondition) -> Verdict:
    """A condition has tripped: say so, and do what it asks for."""
    trip = command.trip
    if state.status not in PERMITTING:
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
    remedy = f"Resume grants {condition} again."
    if command.trip.observed is None:
        reason = f"{condition} cannot hold: the price of the model is not known"
        remedy = "Cap it with Tokens(…), or use a model whose price is known. Resume goes on without this cap."
    if command.trip.then is Then.CANCEL:
        return cancel(state, CancelRun(id=verb_id, at=command.at, by=RUNTIME, reason=reason))
    if command.trip.then is Then.PAUSE:
        need = Need(code="cap", what=reason, remedy=remedy)
        return pause(state, PauseRun(id=verb_id, at=command.at, by=RUNTIME, reason=reason, needs=need))
    return ()


def _end(
    state: State,
    command: Command,
    status: Status,
    effects: Sequence[Effect] = (),
    below: Sequence[str] = (),
    worked_until: float | None = None,
    **fields: Any,
) -> tuple[Event, ...]:
    """Settle every verb that is pending, and finish."""
    settled = tuple(
        VerbSettled(
            id=f"{command.id}.settled.{verb.id}",
            at=command.at,
            accepted=verb.id,
            verb=verb.verb,
            status=state.status,
            receipt=receipt_of(state, verb, at=command.at, status=status, effects=effects, below=below),
            worked_until=worked_until,
        )
        for verb in state.verbs
    )
    return (*settled, RunFinished(id=f"{command.id}.finished", at=command.at, status=status, **fields))
