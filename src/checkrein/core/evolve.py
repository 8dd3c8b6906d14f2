"""How each event changes the state of a run: one small function per event, found by the event's type."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from msgspec.structs import replace

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
from checkrein.core.evolve_calls import (
    call_answered,
    call_finished,
    call_resolved,
    call_started,
    nobodys_work,
    without,
)
from checkrein.core.state import AT_WORK, Approval, Instruction, LiveCall, PendingVerb, State
from checkrein.core.table import SUPERSEDES
from checkrein.core.words import CallKind, Decision, OnPause, Then, Verb, When

FOLD_VERSION: Final = 2
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


def fold(state: State, events: Iterable[Event]) -> State:
    """The state after `events`, as if they were recorded next."""
    for event in events:
        state = evolve(state, event, state.seq + 1)
    return state


def _keep_time(after: State) -> State:
    """Start or stop the clock of time at work: paused, queued and waiting time does not count."""
    is_active = after.status in AT_WORK and not ((after.approvals or after.doubts or after.needs) and after.waiting())
    if after.active_since is None:
        return replace(after, active_since=after.at) if is_active else after
    if is_active:
        return after
    worked = max(0.0, after.at - after.active_since)
    return replace(after, active_since=None, elapsed_seconds=after.elapsed_seconds + worked)


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
    return {"epoch": event.epoch, "status": event.status, **nobodys_work(state, event.at)}


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
    return {"plan": event.steps}


def _step_started(state: State, event: StepStarted) -> dict[str, Any]:
    return {"step": event.title, "steps_begun": max(state.steps_begun, event.step)}


def _step_finished(state: State, event: StepFinished) -> dict[str, Any]:
    # Steps of a program may overlap; the latest to begin is the one that is shown as at work.
    step = None if event.step == state.steps_begun else state.step
    return {"step": step, "steps_finished": state.steps_finished + 1}


# -- effects


def _effect_undone(state: State, event: EffectUndone) -> dict[str, Any]:
    changes = _effect_touched(state, event)
    if event.effect in state.doubts:
        changes["doubts"] = without(state.doubts, event.effect)
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
    goes_on_by_itself = state.resumes_itself and event.verb is Verb.RESUME
    if state.tripped and not goes_on_by_itself:  # only a person grants anything
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
    if call is None or call.stop not in (None, Verb.PAUSE):
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
    return {"approvals": without(state.approvals, event.call)}


def _condition_tripped(state: State, event: ConditionTripped) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if event.condition not in state.tripped:
        changes["tripped"] = (*state.tripped, event.condition)
    if event.then is Then.FINISH and state.last_calls is None:
        changes["last_calls"] = 1
    return changes


_CHANGES: Final[Mapping[type[Event], Callable[[State, Any], dict[str, Any]]]] = {
    RunStarted: _started,
    RunFinished: _finished,
    PlanPublished: _plan_published,
    StepStarted: _step_started,
    StepFinished: _step_finished,
    CallStarted: call_started,
    CallFinished: call_finished,
    CallAnswered: call_answered,
    CallResolved: call_resolved,
    EffectUndone: _effect_undone,
    EffectLeft: _effect_touched,
    VerbAccepted: _verb_accepted,
    VerbSettled: _verb_settled,
    InstructionDelivered: _instruction_delivered,
    ApprovalRequested: _approval_requested,
    ApprovalDecided: _approval_decided,
    ConditionTripped: _condition_tripped,
}
