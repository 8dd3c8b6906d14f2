"""What people may ask of a run, and what is accepted: the rules beside the table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from checkrein.core.commands import (
    AbortCall,
    ApproveCall,
    AskRun,
    CancelRun,
    Command,
    DenyCall,
    HaltRun,
    PauseRun,
    RedirectRun,
    ResolveCall,
    ResumeRun,
    RetryUndo,
    VerbCommand,
)
from checkrein.core.effects import Effect
from checkrein.core.events import (
    ApprovalDecided,
    CallResolved,
    EffectLeft,
    EffectReopened,
    EffectSettled,
    Event,
    VerbAccepted,
)
from checkrein.core.state import State
from checkrein.core.table import VERBS
from checkrein.core.verdict import OUTCOME_IN_WORDS, Joined, Refusal, Verdict, find_effect, refuse
from checkrein.core.words import Answer, CallKind, Decision, EffectState, Status, Undo, Verb

_NAMES: Final[Mapping[type[Command], Verb]] = {
    PauseRun: Verb.PAUSE,
    ResumeRun: Verb.RESUME,
    RedirectRun: Verb.REDIRECT,
    CancelRun: Verb.CANCEL,
    AskRun: Verb.ASK,
    AbortCall: Verb.ABORT,
    ApproveCall: Verb.APPROVE,
    DenyCall: Verb.DENY,
    ResolveCall: Verb.RESOLVE,
    RetryUndo: Verb.RETRY_UNDO,
    HaltRun: Verb.HALT,
}

_NEVER_STALE: Final = frozenset({Verb.PAUSE, Verb.CANCEL, Verb.HALT})
"""Stops are taken whatever the person was looking at."""


def not_allowed(state: State, command: VerbCommand) -> Refusal | None:
    verb = _NAMES[type(command)]
    if (state.status, verb) not in VERBS:
        why = OUTCOME_IN_WORDS.get(state.status, f"{verb.value} is not possible now")
        return refuse(state, "finished" if state.is_finished else "not_now", why)
    expected = command.expected_seq
    if expected is not None and expected != state.status_seq and verb not in _NEVER_STALE:
        return refuse(state, "stale", f"that changed after you looked, so {verb.value} was not taken")
    return None


def accept(state: State, command: VerbCommand, *, status: Status | None = None, **fields: Any) -> VerbAccepted:
    verb = _NAMES[type(command)]
    return VerbAccepted(
        id=command.id,
        at=command.at,
        verb=verb,
        status=status or VERBS[state.status, verb].to,
        by=command.by,
        reason=command.reason,
        asked_at=command.asked_at,
        **fields,
    )


def _withdrawals(state: State, command: VerbCommand) -> tuple[Event, ...]:
    """A redirect and a cancel leave no approval hanging."""
    return tuple(
        ApprovalDecided(id=f"{command.id}.{call}", at=command.at, call=call, decision=Decision.WITHDRAWN, by=command.by)
        for call in state.approvals
    )


def pause(state: State, command: PauseRun) -> Verdict:
    if refusal := not_allowed(state, command):
        return refusal
    # A person's pause outlives a shutdown's: it must not resume by itself.
    takes_over = state.resumes_itself and not command.resumes_itself
    if VERBS[state.status, Verb.PAUSE].joins and not takes_over:
        return Joined(state.paused_by or "")
    return (accept(state, command, needs=command.needs, resumes_itself=command.resumes_itself),)


def resume(state: State, command: ResumeRun) -> Verdict:
    if refusal := not_allowed(state, command):
        return refusal
    if command.instruction is not None and not command.instruction.strip():
        return refuse(state, "empty_instruction", "an empty instruction says nothing; leave it out to just resume")
    return (accept(state, command, status=_driven(state, command), instruction=command.instruction),)


def redirect(state: State, command: RedirectRun) -> Verdict:
    if refusal := not_allowed(state, command):
        return refusal
    if not command.instruction.strip():
        return refuse(state, "empty_instruction", "a redirect needs an instruction; nothing was changed")
    status = _driven(state, command)
    accepted = accept(state, command, status=status, instruction=command.instruction, when=command.when)
    return (accepted, *_withdrawals(state, command))


def _driven(state: State, command: ResumeRun | RedirectRun) -> Status:
    move = VERBS[state.status, _NAMES[type(command)]]
    return move.to if command.driven or move.undriven is None else move.undriven


_STRENGTH: Final = {Undo.NONE: 0, Undo.OPEN: 1, Undo.ALL: 2}


def cancel(state: State, command: CancelRun) -> Verdict:
    if refusal := not_allowed(state, command):
        return refusal
    is_weaker = _STRENGTH[command.undo] < _STRENGTH[state.undo]
    if VERBS[state.status, Verb.CANCEL].joins and not (is_weaker and state.status is Status.CANCELLING):
        return Joined(state.cancelled_by or "")
    return (accept(state, command, undo=command.undo), *_withdrawals(state, command))


def ask(state: State, command: AskRun) -> Verdict:
    if refusal := not_allowed(state, command):
        return refusal
    if not command.question.strip():
        return refuse(state, "empty_question", "there is no question")
    return (accept(state, command, question=command.question),)


def abort(state: State, command: AbortCall) -> Verdict:
    if refusal := not_allowed(state, command):
        return refusal
    live = state.live.get(command.call)
    if live is None or live.kind is CallKind.UNDO:
        return refuse(state, "not_in_flight", f"there is no call {command.call} in flight")
    return (accept(state, command, call=command.call),)


def approve(state: State, command: ApproveCall) -> Verdict:
    return _decide_approval(state, command, command.call, Decision.APPROVED)


def deny(state: State, command: DenyCall) -> Verdict:
    return _decide_approval(state, command, command.call, Decision.DENIED)


def _decide_approval(state: State, command: VerbCommand, call: str, decision: Decision) -> Verdict:
    if refusal := not_allowed(state, command):
        return refusal
    approval = state.approvals.get(call)
    if approval is None or approval.decision is not None:
        return refuse(state, "not_waiting", f"call {call} does not wait for an approval")
    return (
        ApprovalDecided(id=command.id, at=command.at, call=call, decision=decision, by=command.by, note=command.reason),
    )


def resolve(state: State, command: ResolveCall) -> Verdict:
    if refusal := not_allowed(state, command):
        return refusal
    doubt, effect = state.doubts.get(command.call), find_effect(command.effects, command.call)
    if not (doubt is not None and doubt.person) and not _is_unknown(state, effect):
        return refuse(state, "not_in_doubt", f"call {command.call} is not in doubt")
    effect_id = command.call if doubt is None else doubt.effect
    if command.answer is Answer.UNDO and (effect_id is None or (effect is not None and effect.undo is None)):
        return refuse(state, "nothing_to_undo", f"call {command.call} has no effect that could be undone")
    resolved = CallResolved(
        id=command.id,
        at=command.at,
        call=command.call,
        answer=command.answer,
        by=command.by,
        result=command.result,
        note=command.reason,
    )
    return (resolved, *_effect_after_answer(state, command, effect_id))


def _is_unknown(state: State, effect: Effect | None) -> bool:
    """Whether an effect stays in doubt although its call is over: stopped half-way, and not to be tried again."""
    if effect is None or effect.state is not EffectState.IN_DOUBT:
        return False
    return effect.id not in state.live and effect.id not in state.again


def _effect_after_answer(state: State, command: ResolveCall, effect: str | None) -> tuple[Event, ...]:
    if effect is None:
        return ()
    event_id, at = f"{command.id}.effect", command.at
    match command.answer:
        case Answer.DID_NOT_HAPPEN:
            return (EffectSettled(id=event_id, at=at, effect=effect, why="it did not happen", happened=False),)
        case Answer.UNDO:
            return (EffectReopened(id=event_id, at=at, effect=effect, undo=True, by=command.by),)
        case Answer.HAPPENED if state.is_finished:
            return (EffectLeft(id=event_id, at=at, effect=effect, why="it happened and was not undone"),)
        case Answer.HAPPENED:
            return (EffectReopened(id=event_id, at=at, effect=effect, by=command.by),)


def retry_undo(state: State, command: RetryUndo) -> Verdict:
    if refusal := not_allowed(state, command):
        return refusal
    effect = find_effect(command.effects, command.effect)
    if effect is None or effect.undo is None or effect.state is not EffectState.LEFT:
        return refuse(state, "nothing_to_undo", f"{command.effect} is not an effect whose undo could be tried again")
    return (EffectReopened(id=command.id, at=command.at, effect=effect.id, undo=True, by=command.by),)
