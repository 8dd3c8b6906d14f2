"""Permits and outcomes: what the holder of the lease may begin, and what it reports."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from msgspec.structs import replace

from checkrein.core import transitions
from checkrein.core.commands import (
    Command,
    FinishCall,
    KeptText,
    LeaveEffect,
    RequestApproval,
    StartCall,
    StartUndo,
    TakeOver,
)
from checkrein.core.conditions import strongest
from checkrein.core.decide.verdict import Refusal, Verdict, find_effect, receipt_of, refuse
from checkrein.core.enums import RUNTIME, CallKind, Decision, EffectState, OnPause, Outcome, Status, Verb
from checkrein.core.events import (
    UNDO_PREFIX,
    ApprovalDecided,
    ApprovalRequested,
    CallFinished,
    CallStarted,
    EffectInDoubt,
    EffectLeft,
    EffectOpened,
    EffectUndone,
    Event,
    InstructionDelivered,
    RunStarted,
    VerbSettled,
)
from checkrein.core.orders import may_permit, next_undo
from checkrein.core.state import State
from checkrein.core.wording import one_line_diff

MOST_APPROVALS: Final = 100
"""So many calls of a run may wait for an approval at once: nobody reads more, and every one is part of the state. A
call beyond them is refused, in the record, so that a program that is played again meets the same."""


def take_over(state: State, command: TakeOver) -> Verdict:
    if command.epoch <= state.epoch:
        return refuse(state, "stale_epoch", f"epoch {command.epoch} is not above {state.epoch}")
    worked_until = state.worked_until(command.alive_at)
    facts = left_in_doubt(state, command, over=command.over, kept=command.kept, worked_until=worked_until)
    if not command.drives or state.is_finished:
        return facts
    status = Status.RUNNING if state.status is Status.QUEUED else state.status
    started = RunStarted(
        id=command.id,
        at=command.at,
        epoch=command.epoch,
        status=status,
        host=command.host,
        pid=command.pid,
        process=command.process,
        boot_id=command.boot_id,
        started=command.started,
        version=command.version,
        after_death=command.after_death,
        worked_until=None if facts else worked_until,
        ahead=command.ahead,
    )
    return (*facts, started)


def left_in_doubt(
    state: State,
    command: Command,
    *,
    over: Collection[int],
    kept: Mapping[str, KeptText] | None = None,
    worked_until: float | None = None,
) -> tuple[Event, ...]:
    """The outcome of every call in flight whose maker can no longer be asked in time. Of the epochs in `over` it is
    known that they are gone."""
    events: list[Event] = []
    for call, live in state.live.items():
        event_id, at = f"{command.id}.{call}", command.at
        said = None if kept is None else kept.get(call)
        events.append(
            CallFinished(
                id=event_id,
                at=at,
                call=call,
                outcome=Outcome.IN_DOUBT,
                owner_dead=live.epoch in over,
                abandoned=True,
                worked_until=None if events else worked_until,  # once: the clock may have been set since
                result=None if said is None else said.result,
                chars=0 if said is None else said.chars,
                usage=None if said is None else said.usage,
            )
        )
        if live.kind is CallKind.TOOL and live.effect is not None:
            events.append(
                EffectInDoubt(
                    id=f"{event_id}.effect", at=at, effect=live.effect, why="nobody knows whether it happened"
                )
            )
    return tuple(events)


def start_call(state: State, command: StartCall) -> Verdict:
    refusal = _no_permit(state, command)
    if refusal is not None:
        return refusal
    effect = command.opens
    started = CallStarted(
        id=f"{command.call}#{command.attempt}",
        at=command.at,
        call=command.call,
        kind=command.kind,
        name=command.name,
        epoch=command.epoch,
        attempt=command.attempt,
        key=command.key,
        step=command.step,
        arguments=command.arguments,
        fingerprint=command.fingerprint,
        place=command.place,
        on_pause=command.on_pause,
        idempotent=command.idempotent,
        effect=None if effect is None else command.call,
        timeout_seconds=command.timeout_seconds,
    )
    opened: tuple[Event, ...] = ()
    if effect is not None:
        opened = (
            EffectOpened(
                id=f"{started.id}.effect",
                at=command.at,
                effect=command.call,
                what=effect.what,
                undo=effect.undo,
                key=command.key,
            ),
        )
    return (*_delivery(state, command), started, *opened)


def _no_permit(state: State, command: StartCall) -> Refusal | None:
    """Why the call may not begin; None when it may."""
    # Nobody drives a finished run, so it is not recorded who holds it: the journal knows.
    if command.epoch < state.epoch or (command.epoch > state.epoch and not state.is_finished):
        return refuse(state, "stale_epoch", f"epoch {command.epoch} does not own it, {state.epoch} does")
    if command.call in state.live:
        return refuse(state, "already_begun", f"call {command.call} is in flight")
    if command.on_pause is OnPause.ABORT and command.kind is CallKind.TOOL and not command.idempotent:
        return refuse(state, "not_idempotent", f"a pause may not abort {command.name}, which cannot be tried again")
    if command.kind is CallKind.ASK:
        return None if _is_asked(state, command.call) else refuse(state, "not_now", "nobody waits for this answer")
    if not may_permit(state, command.effects):
        return refuse(state, "not_now", f"{command.name} may not begin")
    if command.carries and not command.delivers and state.instruction is not None:
        return refuse(state, "not_now", f"{command.name} does not carry what the agent was told since")
    doubt = state.doubts.get(command.call)
    if doubt is not None and doubt.person:
        return refuse(state, "in_doubt", f"whether {command.name} happened is not known; a person must say so first")
    again = state.again.get(command.call)
    if again is not None and again.fingerprint and again.fingerprint != command.fingerprint:
        return refuse(state, "not_again", f"{command.name} is to be tried again with the same arguments")
    if command.attempt != state.attempt_due(command.call):
        return refuse(state, "not_again", f"attempt {command.attempt} of {command.name} is not due")
    return _no_consent(state, command) or _cap_reached(state, command)


def _is_asked(state: State, call: str) -> bool:
    return (state.status, Verb.ASK) in transitions.VERBS and any(
        verb.verb is Verb.ASK and verb.call == call and verb.superseded_by is None and not verb.answered
        for verb in state.verbs
    )


def _no_consent(state: State, command: StartCall) -> Refusal | None:
    """An approval holds for one recorded call and its exact arguments, and is consumed by the permit."""
    approval = state.approvals.get(command.call)
    if approval is None:
        missing = command.needs_approval and command.attempt == 1 and command.name not in state.always
        return refuse(state, "not_approved", f"{command.name} needs an approval") if missing else None
    if approval.decision is not Decision.APPROVED:
        return refuse(state, "not_approved", f"{command.name} waits for an approval")
    if approval.fingerprint != command.fingerprint:
        return refuse(state, "not_approved", f"the approval of {command.name} was for other arguments")
    return None


def _cap_reached(state: State, command: StartCall) -> Refusal | None:
    if state.last_calls is not None:
        is_last = command.kind is CallKind.MODEL and (state.last_calls > 0 or command.attempt > 1)
        return None if is_last else refuse(state, "cap_reached", "the last model call it was granted is spent")
    if state.stop_when is None:
        return None
    spent = state.spent(command.at)
    if not command.priced:
        spent = replace(spent, usage=replace(spent.usage, cost_usd=None))
    if command.kind is not CallKind.MODEL or command.attempt > 1:
        # It belongs to the turn that has begun, and a cap on turns does not end one half-way.
        spent = replace(spent, usage=replace(spent.usage, turns=spent.usage.turns - 1))
    trip = strongest(state.stop_when.trips(spent, state.grants))
    if trip is None:
        return None
    seen = "cannot hold" if trip.observed is None else f"is reached ({trip.observed:.15g})"
    return refuse(state, "cap_reached", f"{trip.condition} {seen}", trip)


def _delivery(state: State, command: StartCall) -> tuple[Event, ...]:
    """The pending instructions go to the agent with this call, and the verbs that brought them are settled."""
    instruction = state.instruction
    if not command.delivers or instruction is None:
        return ()
    events: list[Event] = []
    for number, one in enumerate(reversed(instruction.each)):
        which = "" if number == 0 else f".{number}"
        diff = one_line_diff(one.before, one.text)
        delivered = InstructionDelivered(
            id=f"{command.id}.delivered{which}", at=command.at, accepted=one.accepted, call=command.call, diff=diff
        )
        events[:0] = (delivered, *_settled_by_delivery(state, command, one.accepted, f"{command.id}.settled{which}"))
    return tuple(events)


def _settled_by_delivery(state: State, command: StartCall, accepted: str, event_id: str) -> tuple[Event, ...]:
    verb = state.verb(accepted)
    if verb is None or verb.superseded_by is not None:
        return ()
    status = transitions.settled_status(state.status, verb.verb)
    receipt = receipt_of(state, verb, at=command.at, status=status, effects=command.effects, delivered=True)
    return (VerbSettled(id=event_id, at=command.at, accepted=verb.id, verb=verb.verb, status=status, receipt=receipt),)


def start_undo(state: State, command: StartUndo) -> Verdict:
    if command.epoch < state.epoch:
        return refuse(state, "stale_epoch", f"epoch {command.epoch} does not own it, {state.epoch} does")
    effect = next_undo(state, command.effects, command.below)
    if effect is None or effect.id != command.effect:
        return refuse(state, "not_due", f"the undo of {command.effect} is not due")
    return (
        CallStarted(
            id=command.id,
            at=command.at,
            call=UNDO_PREFIX + effect.id,
            kind=CallKind.UNDO,
            name=effect.what,
            epoch=command.epoch,
            attempt=command.attempt,
            key=effect.key,
            effect=effect.id,
            idempotent=True,
        ),
    )


def finish_call(state: State, command: FinishCall) -> Verdict:
    live = state.live.get(command.call)
    if live is None:
        return refuse(state, "not_in_flight", f"call {command.call} has its outcome already")
    finished = CallFinished(
        id=command.id,
        at=command.at,
        call=command.call,
        outcome=command.outcome,
        result=command.result,
        error=command.error,
        refused=command.refused,
        unasked=command.unasked,
        usage=command.usage,
        chunks=command.chunks,
        chars=command.chars,
        chunk_hash=command.chunk_hash,
        tokens_after_stop=command.tokens_after_stop,
        retry=command.retry,
        files=command.files,
        file_hashes=command.file_hashes,
        traceback=command.traceback,
        left=command.left,
        shown_at=command.shown_at,
        shown=command.shown,
        verb=_stopped_by(state, live.stop, command.outcome),
    )
    if live.effect is None:
        return (finished,)
    event_id, at = f"{command.id}.effect", command.at
    if live.kind is CallKind.UNDO:
        undone = command.outcome is Outcome.COMPLETED
        return (finished, EffectUndone(id=event_id, at=at, effect=live.effect)) if undone else (finished,)
    failed = command.outcome is Outcome.FAILED and live.stop is None
    if command.outcome is Outcome.COMPLETED or failed:
        return (finished,)
    why = "interrupted, may have partly happened"
    return (finished, EffectInDoubt(id=event_id, at=at, effect=live.effect, why=why))


def _stopped_by(state: State, verb: Verb | None, outcome: Outcome) -> str | None:
    if verb is None or outcome in (Outcome.COMPLETED, Outcome.FAILED):
        return None
    pending = state.pending(verb)
    return None if pending is None else pending.id


def leave_effect(state: State, command: LeaveEffect) -> Verdict:
    effect = find_effect(command.effects, command.effect)
    if effect is None or effect.state not in (EffectState.OPEN, EffectState.IN_DOUBT, EffectState.SETTLED):
        return refuse(state, "nothing_to_undo", f"{command.effect} is not an effect that can be left")
    return (EffectLeft(id=command.id, at=command.at, effect=effect.id, why=command.why),)


def request_approval(state: State, command: RequestApproval) -> Verdict:
    if not may_permit(state):
        return refuse(state, "not_now", f"{command.name} may not begin")
    if command.call in state.approvals:
        return refuse(state, "already_waiting", f"call {command.call} waits for an approval already")
    refused: tuple[Event, ...] = ()
    if len(state.approvals) >= MOST_APPROVALS:
        why = f"Not done, and nobody was asked: {len(state.approvals)} calls wait for a person's approval already."
        refused = (
            ApprovalDecided(
                id=f"{command.id}.refused",
                at=command.at,
                call=command.call,
                decision=Decision.REFUSED,
                by=RUNTIME,
                note=why,
            ),
        )
    return (
        ApprovalRequested(
            id=command.id,
            at=command.at,
            call=command.call,
            name=command.name,
            fingerprint=command.fingerprint,
            place=command.place,
            arguments=command.arguments,
            blocks=command.blocks,
            what=command.what,
            can_undo=command.can_undo,
            schema=command.schema,
        ),
        *refused,
    )
