"""How each event changes the state of a run: one small function per event, found by the event's type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from checkrein.core.conditions import RECENT_CALLS, Usage
from checkrein.core.events import (
    DECIDING,
    ApprovalDecided,
    ApprovalRequested,
    CallAnswered,
    CallFinished,
    CallResolved,
    CallStarted,
    ConditionTripped,
    EffectLeft,
    EffectUndone,
    Event,
    InstructionDelivered,
    PlanPublished,
    RunCreated,
    RunFinished,
    RunStarted,
    StepFinished,
    StepStarted,
    VerbAccepted,
    VerbSettled,
)
from checkrein.core.receipts import StoppedCall
from checkrein.core.state import AT_WORK, Again, Approval, Doubt, Instruction, LiveCall, PendingVerb, State
from checkrein.core.table import SUPERSEDES
from checkrein.core.words import Answer, CallKind, Decision, OnPause, Outcome, Then, Verb, When

V = TypeVar("V")

FOLD_VERSION: Final = 1
"""To be raised with every change that makes the same events fold into another state: old snapshots are then ignored."""

_ASK: Final = "ask:"
"""The id of the call that answers a side question is this and the id of its verb."""


def evolve(state: State | None, event: Event, seq: int) -> State:
    """The state after `event`, which the journal recorded as number `seq`. The first event must be `run.created`."""
    if state is None:
        if not isinstance(event, RunCreated):
            raise ValueError(f"a journal begins with run.created, not with {type(event).__name__}")
        return _created(event, seq)
    kind = type(event)
    change = _CHANGES.get(kind)
    changes: dict[str, Any] = {} if change is None else change(state, event)
    if kind in DECIDING:
        changes["decided"] = seq
    if "status" in changes and changes["status"] is not state.status:
        changes["status_seq"] = seq
    after = replace(state, seq=seq, at=event.at, **changes)
    return _keep_time(after) if changes else after


def _keep_time(after: State) -> State:
    """Start or stop the clock of time at work: paused, queued and waiting time does not count."""
    is_active = after.status in AT_WORK and not ((after.approvals or after.doubts or after.needs) and after.waiting())
    if after.active_since is None:
        return replace(after, active_since=after.at) if is_active else after
    if is_active:
        return after
    worked = max(0.0, after.at - after.active_since)
    return replace(after, active_since=None, elapsed_seconds=after.elapsed_seconds + worked)


def _nobodys_work(state: State, at: float) -> dict[str, Any]:
    """A driver died some time after the last thing that was said. What lies between does not count as elapsed."""
    if state.active_since is None:
        return {}
    worked = max(0.0, state.at - state.active_since)
    return {"elapsed_seconds": state.elapsed_seconds + worked, "active_since": at}


# -- the run itself


def _created(event: RunCreated, seq: int) -> State:
    return State(
        run=event.run,
        agent=event.agent,
        goal=event.goal,
        thread=event.thread,
        owner=event.owner,
        parent=event.parent,
        root=event.root,
        stop_when=event.stop_when,
        seq=seq,
        decided=seq,
        status_seq=seq,
        at=event.at,
    )


def _started(state: State, event: RunStarted) -> dict[str, Any]:
    return {"epoch": event.epoch, "status": event.status, **_nobodys_work(state, event.at)}


def _finished(state: State, event: RunFinished) -> dict[str, Any]:
    return {
        "status": event.status,
        "again": {},
        "approvals": {},
        "instruction": None,
        "needs": None,
        "step": None,
        "doubts": {call: replace(doubt, blocks=False) for call, doubt in state.doubts.items()},
    }


# -- what a person sees of the work


def _plan_published(state: State, event: PlanPublished) -> dict[str, Any]:
    return {"plan": event.steps, "steps_begun": 0, "steps_finished": 0, "step": None}


def _step_started(state: State, event: StepStarted) -> dict[str, Any]:
    return {"step": event.title, "steps_begun": state.steps_begun + 1}


def _step_finished(state: State, event: StepFinished) -> dict[str, Any]:
    return {"step": None, "steps_finished": state.steps_finished + 1}


# -- calls


def _call_started(state: State, event: CallStarted) -> dict[str, Any]:
    live = LiveCall(
        kind=event.kind,
        name=event.name,
        epoch=event.epoch,
        started_at=event.at,
        attempt=event.attempt,
        on_pause=event.on_pause,
        idempotent=event.idempotent,
        effect=event.effect,
        fingerprint=event.fingerprint if event.kind is CallKind.TOOL else "",
    )
    changes: dict[str, Any] = {"live": {**state.live, event.call: live}}
    if event.call in state.again:
        changes["again"] = _without(state.again, event.call)
    if event.call in state.approvals:
        changes["approvals"] = _without(state.approvals, event.call)
    if event.kind is CallKind.MODEL:
        first = event.attempt == 1
        usage = state.usage
        changes["usage"] = replace(usage, model_calls=usage.model_calls + 1, turns=usage.turns + first)
        if state.last_calls and first:
            changes["last_calls"] = state.last_calls - 1
    elif event.kind is CallKind.TOOL:
        usage = state.usage
        opens = event.effect is not None and event.attempt == 1
        changes["usage"] = replace(usage, tool_calls=usage.tool_calls + 1, effects=usage.effects + opens)
        if event.attempt == 1:
            changes["recent"] = (*state.recent[-RECENT_CALLS + 1 :], event.fingerprint)
    return changes


def _call_finished(state: State, event: CallFinished) -> dict[str, Any]:
    call = state.live.get(event.call)
    if call is None:
        return {}
    changes: dict[str, Any] = {"live": _without(state.live, event.call)}
    if event.abandoned:
        changes |= _nobodys_work(state, event.at)
    if event.usage is not None:
        changes["usage"] = state.usage + _spending(event.usage)
    if state.verbs:
        changes["verbs"] = _noted(state.verbs, call, event)
    attempt = _attempt_again(call, event.outcome)
    if attempt is not None:
        changes["again"] = {**state.again, event.call: Again(attempt=attempt, fingerprint=call.fingerprint)}
    doubt = _doubt_about(call, event)
    if doubt is not None:
        earlier = state.doubts.get(event.call)
        if earlier is not None:
            doubt = replace(doubt, unanswered=(*earlier.unanswered, *doubt.unanswered))
        changes["doubts"] = {**state.doubts, event.call: doubt}
    return changes


def _spending(usage: Usage) -> Usage:
    """What a call spent. Its calls and turns were counted when it began."""
    return replace(usage, turns=0, model_calls=0, tool_calls=0, effects=0)


def _noted(verbs: tuple[PendingVerb, ...], call: LiveCall, event: CallFinished) -> tuple[PendingVerb, ...]:
    """The pending verbs, with what became of a call written down for the receipt of the one in force."""
    if call.kind is CallKind.ASK:
        done = _attempt_again(call, event.outcome) is None
        return tuple(
            replace(verb, answered=True) if done and verb.verb is Verb.ASK and verb.call == event.call else verb
            for verb in verbs
        )
    if call.kind is CallKind.UNDO:
        return verbs
    return tuple(
        _with_call(verb, call, event) if verb.superseded_by is None and _answers_for(verb, call) else verb
        for verb in verbs
    )


def _answers_for(verb: PendingVerb, call: LiveCall) -> bool:
    """A redirect may be pending for long while other calls come and go: it answers for those it stopped."""
    return verb.verb in _STOPPING and (verb.verb is not Verb.REDIRECT or call.stop is Verb.REDIRECT)


_STOPPING: Final = frozenset({Verb.PAUSE, Verb.REDIRECT, Verb.CANCEL, Verb.HALT})


def _with_call(verb: PendingVerb, call: LiveCall, event: CallFinished) -> PendingVerb:
    stopped = StoppedCall(
        id=event.call,
        kind=call.kind,
        name=call.name,
        now=event.outcome,
        ms=round(max(0.0, event.at - verb.asked_at) * 1000, 3),
    )
    may_still_act = event.outcome is Outcome.DETACHED or (event.outcome is Outcome.IN_DOUBT and not event.owner_dead)
    return replace(
        verb,
        calls=(*verb.calls, stopped),
        stopped_at=event.at,
        unstopped=verb.unstopped or may_still_act,
        tokens_after_stop=verb.tokens_after_stop + event.tokens_after_stop,
        chars=verb.chars + event.chars,
    )


_STOPPED_FOR_GOOD: Final = frozenset({Verb.REDIRECT, Verb.CANCEL, Verb.ABORT, Verb.HALT})


def _attempt_again(call: LiveCall, outcome: Outcome) -> int | None:
    """The attempt with which an interrupted call is to be asked again, if it is.

    A model call or a side question only spends, a sub-run is found again by its id, an idempotent tool says so. A tool
    that does not is never tried again by itself.
    """
    if call.kind is CallKind.UNDO or call.stop in _STOPPED_FOR_GOOD:
        return None
    if call.kind is CallKind.TOOL and not call.idempotent:
        return None
    if outcome is Outcome.IN_DOUBT or (outcome in (Outcome.ABORTED, Outcome.KILLED) and call.stop is Verb.PAUSE):
        return call.attempt + 1
    return None


def _doubt_about(call: LiveCall, event: CallFinished) -> Doubt | None:
    """What stays unknown after a call ended, if anything does."""
    if call.kind is not CallKind.TOOL or event.outcome not in (Outcome.IN_DOUBT, Outcome.DETACHED):
        return None
    may_still_act = event.outcome is Outcome.DETACHED or not event.owner_dead
    person = event.outcome is Outcome.IN_DOUBT and not call.idempotent
    if not person and not may_still_act:
        return None
    return Doubt(
        name=call.name,
        attempt=call.attempt,
        fingerprint=call.fingerprint,
        effect=call.effect,
        unanswered=(call.epoch,) if may_still_act else (),
        person=person,
        blocks=person and call.stop not in _STOPPED_FOR_GOOD,
    )


def _call_answered(state: State, event: CallAnswered) -> dict[str, Any]:
    """A former owner's word decides nothing by itself: it only ends the danger that the owner still acts."""
    doubt = state.doubts.get(event.call)
    if doubt is None or event.epoch not in doubt.unanswered:
        return {}
    unanswered = tuple(epoch for epoch in doubt.unanswered if epoch != event.epoch)
    if not unanswered and not doubt.person:
        return {"doubts": _without(state.doubts, event.call)}
    answered = replace(doubt, unanswered=unanswered, answer=event.outcome, began=event.began)
    return {"doubts": {**state.doubts, event.call: answered}}


def _call_resolved(state: State, event: CallResolved) -> dict[str, Any]:
    doubt = state.doubts.get(event.call)
    if doubt is None:
        return {}
    changes: dict[str, Any] = {"doubts": _without(state.doubts, event.call)}
    if event.answer is Answer.DID_NOT_HAPPEN and doubt.blocks:
        again = Again(attempt=doubt.attempt + 1, fingerprint=doubt.fingerprint)
        changes["again"] = {**state.again, event.call: again}
    return changes


# -- effects


def _effect_undone(state: State, event: EffectUndone) -> dict[str, Any]:
    changes = _effect_touched(state, event)
    if event.effect in state.doubts:
        changes["doubts"] = _without(state.doubts, event.effect)
    return changes


def _effect_touched(state: State, event: EffectUndone | EffectLeft) -> dict[str, Any]:
    verb = state.pending(Verb.CANCEL, Verb.REDIRECT)
    if verb is None:
        return {}
    touched = replace(verb, touched=(*verb.touched, event.effect))
    return {"verbs": tuple(touched if other is verb else other for other in state.verbs)}


# -- verbs


def _verb_accepted(state: State, event: VerbAccepted) -> dict[str, Any]:
    changes = _EFFECT_OF_VERB[event.verb](state, event) if event.verb in _EFFECT_OF_VERB else {}
    superseded = SUPERSEDES.get(event.verb, frozenset())
    earlier = tuple(
        replace(verb, superseded_by=event.id) if verb.verb in superseded and verb.superseded_by is None else verb
        for verb in state.verbs
    )
    pending = PendingVerb(
        id=event.id,
        verb=event.verb,
        seq=state.seq + 1,
        by=event.by,
        reason=event.reason,
        asked_at=event.at if event.asked_at is None else event.asked_at,
        accepted_at=event.at,
        question=event.question,
        when=event.when,
        undo=event.undo,
        call=_ASK + event.id if event.verb is Verb.ASK else event.call,
        instructs=event.instruction is not None,
    )
    replaced = state.pending(event.verb) if event.verb in (Verb.REDIRECT, Verb.CANCEL) else None
    if replaced is not None:
        # What the earlier one stopped is still to be undone, and only the one in force answers for it.
        pending = replace(
            pending,
            calls=replaced.calls,
            touched=replaced.touched,
            stopped_at=replaced.stopped_at,
            unstopped=replaced.unstopped,
            tokens_after_stop=replaced.tokens_after_stop,
            chars=replaced.chars,
        )
    return {**changes, "status": event.status, "verbs": (*earlier, pending)}


def _paused(state: State, event: VerbAccepted) -> dict[str, Any]:
    return {
        "live": {call: _stopped_by_pause(live) for call, live in state.live.items()},
        "needs": event.needs or state.needs,
        "paused_by": event.id,
        "resumes_itself": event.resumes_itself,
    }


def _stopped_by_pause(call: LiveCall) -> LiveCall:
    """A pause stops the spending at once; tools follow their own rule; a sub-run is paused with its parent."""
    if call.stop is not None or call.kind in (CallKind.ASK, CallKind.UNDO):
        return call
    if call.kind is CallKind.MODEL or (call.kind is CallKind.TOOL and call.on_pause is OnPause.ABORT):
        return replace(call, stop=Verb.PAUSE)
    if call.kind is CallKind.RUN or call.on_pause is OnPause.HOLD:
        return replace(call, hold=True)
    return call


def _resumed(state: State, event: VerbAccepted) -> dict[str, Any]:
    changes: dict[str, Any] = {
        "live": {call: replace(live, hold=False) for call, live in state.live.items()},
        "needs": None,
        "resumes_itself": False,
    }
    if state.tripped:
        grants = dict(state.grants)
        for label in state.tripped:
            grants[label] = grants.get(label, 0) + 1
        changes |= {"grants": grants, "tripped": (), "last_calls": None, "recent": ()}
    if event.instruction is not None:
        changes["instruction"] = Instruction(accepted=event.id, text=event.instruction, before=state.next_step)
    return changes


def _redirected(state: State, event: VerbAccepted) -> dict[str, Any]:
    changes = _resumed(state, event)
    if event.when is When.NOW:
        changes |= _everything_stopped(changes["live"], state, Verb.REDIRECT)
    return changes


def _cancelled(state: State, event: VerbAccepted) -> dict[str, Any]:
    return {
        **_everything_stopped(state.live, state, Verb.CANCEL),
        "needs": None,
        "instruction": None,
        "resumes_itself": False,
        "cancelled_by": event.id,
        "undo": event.undo,
    }


def _everything_stopped(live: dict[str, LiveCall], state: State, verb: Verb) -> dict[str, Any]:
    """Every call in flight is to be stopped and nothing is asked again. Undos go on; questions end with a cancel."""
    spared = {CallKind.UNDO} if verb is Verb.CANCEL else {CallKind.UNDO, CallKind.ASK}
    return {
        "live": {
            call: one if one.kind in spared else replace(one, stop=verb, hold=False) for call, one in live.items()
        },
        "again": {call: n for call, n in state.again.items() if verb is not Verb.CANCEL and call.startswith(_ASK)},
        "doubts": {call: replace(doubt, blocks=False) for call, doubt in state.doubts.items()},
    }


def _aborted(state: State, event: VerbAccepted) -> dict[str, Any]:
    call = state.live.get(event.call or "")
    if call is None or call.stop is not None:
        return {}
    return {"live": {**state.live, event.call: replace(call, stop=Verb.ABORT, hold=False)}}


_EFFECT_OF_VERB: Final[Mapping[Verb, Callable[[State, VerbAccepted], dict[str, Any]]]] = {
    Verb.PAUSE: _paused,
    Verb.RESUME: _resumed,
    Verb.REDIRECT: _redirected,
    Verb.CANCEL: _cancelled,
    Verb.ABORT: _aborted,
}


def _verb_settled(state: State, event: VerbSettled) -> dict[str, Any]:
    return {
        "status": event.status,
        "verbs": tuple(verb for verb in state.verbs if verb.id != event.accepted),
    }


def _instruction_delivered(state: State, event: InstructionDelivered) -> dict[str, Any]:
    return {"instruction": None}


# -- approvals and conditions


def _approval_requested(state: State, event: ApprovalRequested) -> dict[str, Any]:
    approval = Approval(name=event.name, fingerprint=event.fingerprint, blocks=event.blocks)
    return {"approvals": {**state.approvals, event.call: approval}}


def _approval_decided(state: State, event: ApprovalDecided) -> dict[str, Any]:
    approval = state.approvals.get(event.call)
    if approval is None:
        return {}
    if event.decision is Decision.APPROVED:
        return {"approvals": {**state.approvals, event.call: replace(approval, decision=event.decision)}}
    return {"approvals": _without(state.approvals, event.call)}


def _condition_tripped(state: State, event: ConditionTripped) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if event.condition not in state.tripped:
        changes["tripped"] = (*state.tripped, event.condition)
    if event.then is Then.FINISH and state.last_calls is None:
        changes["last_calls"] = 1
    return changes


def _without(entries: dict[str, V], key: str) -> dict[str, V]:
    return {k: v for k, v in entries.items() if k != key}


_CHANGES: Final[Mapping[type[Event], Callable[[State, Any], dict[str, Any]]]] = {
    RunStarted: _started,
    RunFinished: _finished,
    PlanPublished: _plan_published,
    StepStarted: _step_started,
    StepFinished: _step_finished,
    CallStarted: _call_started,
    CallFinished: _call_finished,
    CallAnswered: _call_answered,
    CallResolved: _call_resolved,
    EffectUndone: _effect_undone,
    EffectLeft: _effect_touched,
    VerbAccepted: _verb_accepted,
    VerbSettled: _verb_settled,
    InstructionDelivered: _instruction_delivered,
    ApprovalRequested: _approval_requested,
    ApprovalDecided: _approval_decided,
    ConditionTripped: _condition_tripped,
}
