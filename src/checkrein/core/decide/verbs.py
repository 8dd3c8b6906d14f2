"""What people may ask of a run, and what is accepted: the rules beside the table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from checkrein.core import transitions
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
from checkrein.core.decide.verdict import Joined, Refusal, Verdict, find_effect, refuse
from checkrein.core.effects import Effect
from checkrein.core.enums import NEVER_STALE, RUNTIME, Answer, Decision, EffectState, Undo, Verb
from checkrein.core.events import (
    HELD_PREFIX,
    ApprovalDecided,
    CallResolved,
    EffectLeft,
    EffectReopened,
    EffectSettled,
    Event,
    VerbAccepted,
)
from checkrein.core.state import State
from checkrein.core.wording import TO_GO_ON, TOO_LATE

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


def not_accepted(state: State, command: VerbCommand, *, replaces: bool = False) -> Refusal | Joined | None:
    """Why nothing new is accepted; None when the verb may be. `replaces`: also where it would join the one in force."""
    verb = _NAMES[type(command)]
    move = transitions.VERBS.get((state.status, verb))
    if move is None:
        return refuse(state, "finished" if state.is_finished else "not_now", _why_not(state, verb))
    expected = command.expected_seq
    if expected is not None and expected != state.status_seq and verb not in NEVER_STALE:
        return refuse(state, "stale", f"that changed after you looked, so {verb.value} was not taken")
    if move.joins and not replaces:
        return Joined((state.paused_by if verb is Verb.PAUSE else state.cancelled_by) or "")
    return None


_GOES_ON: Final = frozenset({Verb.RESUME, Verb.REDIRECT, Verb.ASK, Verb.APPROVE, Verb.DENY})
"""Verbs of somebody who wants more of a run, not less."""


def _why_not(state: State, verb: Verb) -> str:
    if not state.is_finished:
        return f"{verb.value} is not possible now"
    if verb not in _GOES_ON:
        return TOO_LATE[state.status]
    return f"{TOO_LATE[state.status].partition(';')[0]}; {TO_GO_ON.format(run=state.run)}"


def accept(state: State, command: VerbCommand, *, driven: bool = True, **fields: Any) -> VerbAccepted:
    verb = _NAMES[type(command)]
    move = transitions.VERBS[state.status, verb]
    return VerbAccepted(
        id=command.id,
        at=command.at,
        verb=verb,
        status=move.to if driven or move.undriven is None else move.undriven,
        by=command.by,
        reason=command.reason,
        asked_at=command.asked_at,
        store_at=command.store_at,
        **fields,
    )


def pause(state: State, command: PauseRun) -> Verdict:
    # A person's pause outlives a shutdown's and a parent's: it must not resume by itself, nor with the parent.
    is_own = command.by != RUNTIME and not command.id.startswith(HELD_PREFIX)
    takes_over = (state.resumes_itself and not command.resumes_itself) or (state.is_held and is_own)
    if answer := not_accepted(state, command, replaces=takes_over):
        return answer
    return (accept(state, command, needs=command.needs, resumes_itself=command.resumes_itself),)


def resume(state: State, command: ResumeRun) -> Verdict:
    if answer := not_accepted(state, command):
        return answer
    if command.instruction is not None and not command.instruction.strip():
        return refuse(state, "empty_instruction", "an empty instruction says nothing; leave it out to just resume")
    return (accept(state, command, driven=command.driven, instruction=command.instruction),)


def redirect(state: State, command: RedirectRun) -> Verdict:
    if answer := not_accepted(state, command):
        return answer
    if not command.instruction.strip():
        return refuse(state, "empty_instruction", "a redirect needs an instruction; nothing was changed")
    said = {"instruction": command.instruction, "when": command.when}
    return (accept(state, command, driven=command.driven, **said),)


_STRENGTH: Final = {Undo.NONE: 0, Undo.OPEN: 1, Undo.ALL: 2}


def cancel(state: State, command: CancelRun) -> Verdict:
    is_weaker = _STRENGTH[command.undo] < _STRENGTH[state.undo]
    if answer := not_accepted(state, command, replaces=is_weaker and not state.is_finished):
        return answer
    return (accept(state, command, undo=command.undo),)


def ask(state: State, command: AskRun) -> Verdict:
    if answer := not_accepted(state, command):
        return answer
    if not command.question.strip():
        return refuse(state, "empty_question", "there is no question")
    return (accept(state, command, question=command.question),)


def abort(state: State, command: AbortCall) -> Verdict:
    if answer := not_accepted(state, command):
        return answer
    live = state.live.get(command.call)
    if live is None or live.fate(transitions.Stop.ABORT) is not transitions.Fate.STOP:
        return refuse(state, "not_in_flight", f"there is no call {command.call} in flight")
    return (accept(state, command, call=command.call),)


def approve(state: State, command: ApproveCall) -> Verdict:
    edited: dict[str, Any] = {}
    if command.arguments is not None:
        edited = {"arguments": command.arguments, "fingerprint": command.edited}
    return _decide_approval(state, command, Decision.APPROVED, always=command.always, **edited)


def deny(state: State, command: DenyCall) -> Verdict:
    return _decide_approval(state, command, Decision.DENIED)


def _decide_approval(state: State, command: ApproveCall | DenyCall, decision: Decision, **fields: Any) -> Verdict:
    if answer := not_accepted(state, command):
        return answer
    call, approval = command.call, state.approvals.get(command.call)
    if approval is None or approval.decision is not None:
        return refuse(state, "not_waiting", f"call {call} does not wait for an approval")
    if isinstance(command, ApproveCall) and command.fingerprint not in ("", approval.fingerprint):
        return refuse(state, "not_as_shown", f"call {call} is not as it was shown, so it was not approved; look again")
    decided = ApprovalDecided(
        id=command.id,
        at=command.at,
        call=call,
        decision=decision,
        by=command.by,
        note=command.reason,
        store_at=command.store_at,
        **fields,
    )
    return (decided,)


def resolve(state: State, command: ResolveCall) -> Verdict:
    if answer := not_accepted(state, command):
        return answer
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
        store_at=command.store_at,
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
    if answer := not_accepted(state, command):
        return answer
    effect = find_effect(command.effects, command.effect)
    if effect is None or effect.undo is None or effect.state is not EffectState.LEFT:
        return refuse(state, "nothing_to_undo", f"{command.effect} is not an effect whose undo could be tried again")
    return (EffectReopened(id=command.id, at=command.at, effect=effect.id, undo=True, by=command.by),)
