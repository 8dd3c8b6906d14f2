"""How each event changes the state of a run: one small function per event, found by the event's type.

How the events of calls change the state of a run: what is in flight, what is to be asked again, what is in doubt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from checkrein.core.conditions import RECENT_CALLS, Usage
from checkrein.core.enums import (
    ACTING,
    FINAL_STOPS,
    STOPS_OF_RUNS,
    Answer,
    CallKind,
    Decision,
    OnPause,
    Outcome,
    Then,
    Verb,
    When,
)
from checkrein.core.events import (
    ASK_PREFIX,
    DECIDING,
    UNOWNED,
    WITHDRAWS_APPROVALS,
    ApprovalDecided,
    ApprovalRequested,
    CallAnswered,
    CallFinished,
    CallResolved,
    CallStarted,
    ClockSet,
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
    StopDelayed,
    VerbAccepted,
    VerbJoined,
    VerbSettled,
)
from checkrein.core.receipts import StoppedCall
from checkrein.core.state import Again, Approval, Doubt, Instruction, LiveCall, PendingVerb, State
from checkrein.core.transitions import STOP_OF, SUPERSEDES, Fate, Stop
from checkrein.core.transitions import fate as fate_of
from checkrein.timings import DETACH_SECONDS

V = TypeVar("V")


def call_started(state: State, event: CallStarted) -> dict[str, Any]:
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
        changes["again"] = without(state.again, event.call)
    if event.call in state.approvals:
        changes["approvals"] = without(state.approvals, event.call)
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


def call_finished(state: State, event: CallFinished) -> dict[str, Any]:
    call = state.live.get(event.call)
    if call is None:
        return {}
    changes: dict[str, Any] = {"live": without(state.live, event.call)}
    if event.abandoned:
        changes |= nobodys_work(state, event.worked_until)
    elif state.deaths:
        changes["deaths"] = 0
    if event.usage is not None:
        changes["usage"] = state.usage + _spending(event.usage)
    if event.unasked and call.kind is CallKind.MODEL and call.attempt == 1:
        usage = changes.get("usage", state.usage)
        changes["usage"] = replace(usage, turns=max(0, usage.turns - 1))
    if state.verbs:
        changes["verbs"] = _noted(state.verbs, call, event)
    attempt = _attempt_again(call, event.outcome, retry=event.retry)
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
        done = _attempt_again(call, event.outcome, retry=event.retry) is None
        return tuple(
            replace(verb, answered=True) if done and verb.verb is Verb.ASK and verb.call == event.call else verb
            for verb in verbs
        )
    if call.kind is CallKind.UNDO:
        return verbs
    return tuple(
        _with_call(verb, call, event) if verb.superseded_by is None and _answers_for(verb, call, event.call) else verb
        for verb in verbs
    )


def _answers_for(verb: PendingVerb, call: LiveCall, call_id: str) -> bool:
    """A redirect may be pending for long while other calls come and go: it answers for those it stopped. An abort
    answers for its one call."""
    if verb.verb is Verb.ABORT:
        return verb.call == call_id
    return verb.verb in STOPS_OF_RUNS and (verb.verb is not Verb.REDIRECT or call.stop is Verb.REDIRECT)


def _with_call(verb: PendingVerb, call: LiveCall, event: CallFinished) -> PendingVerb:
    stopped = StoppedCall(
        id=event.call,
        kind=call.kind,
        name=call.name,
        now=event.outcome,
        ms=round(max(0.0, event.at - verb.asked_at) * 1000, 3),
        left=event.left,
        waited_for=call.waits_for,
        before_first_token=_is_before_first_token(call, event),
    )
    may_still_act = event.outcome is Outcome.DETACHED or (event.outcome is Outcome.IN_DOUBT and not event.owner_dead)
    return replace(
        verb,
        calls=(*verb.calls, stopped),
        stopped_at=event.at,
        unstopped=verb.unstopped or may_still_act,
        tokens_after_stop=verb.tokens_after_stop + event.tokens_after_stop,
        chars=verb.chars + (event.chars if call.kind not in ACTING else 0),  # a tool's progress is no work
    )


def _is_before_first_token(call: LiveCall, event: CallFinished) -> bool:
    """Whether a model was asked and stopped before anything came of it. One that was never asked has used nothing."""
    if call.kind not in (CallKind.MODEL, CallKind.ASK) or event.outcome is not Outcome.ABORTED:
        return False
    return event.usage is not None and event.usage.output_tokens == 0


def _attempt_again(call: LiveCall, outcome: Outcome, *, retry: bool) -> int | None:
    """The attempt with which an interrupted call is to be asked again, if it is.

    A model call or a side question only spends, a sub-run is found again by its id, an idempotent tool says so. A tool
    that does not, and a program, is never tried again by itself. `retry`: a model's failure may pass.
    """
    if call.kind is CallKind.UNDO or call.stop in FINAL_STOPS:
        return None
    if call.kind in ACTING and not call.idempotent:
        return None
    if outcome is Outcome.FAILED and retry and call.kind is CallKind.MODEL:
        return call.attempt + 1
    if outcome is Outcome.IN_DOUBT or (outcome in (Outcome.ABORTED, Outcome.KILLED) and call.stop is Verb.PAUSE):
        return call.attempt + 1
    return None


def _doubt_about(call: LiveCall, event: CallFinished) -> Doubt | None:
    """What stays unknown after a call ended, if anything does."""
    if call.kind not in ACTING or event.outcome not in (Outcome.IN_DOUBT, Outcome.DETACHED):
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
        goes_on=event.outcome is Outcome.DETACHED and bool(event.left),
        person=person,
        blocks=person and call.stop not in FINAL_STOPS,
    )


def stop_delayed(state: State, event: StopDelayed) -> dict[str, Any]:
    live = state.live.get(event.call)
    if live is None or live.stop is None:
        return {}
    waits_for = f"{event.what}, at most {event.seconds:g} s"
    return {"live": {**state.live, event.call: replace(live, waits_for=waits_for)}}


def call_answered(state: State, event: CallAnswered) -> dict[str, Any]:
    """A former owner's word decides nothing by itself: it only ends the danger that the owner still acts."""
    doubt = state.doubts.get(event.call)
    if doubt is None or event.epoch not in doubt.unanswered:
        return {}
    unanswered = tuple(epoch for epoch in doubt.unanswered if epoch != event.epoch)
    if not unanswered and not doubt.person:
        return {"doubts": without(state.doubts, event.call)}
    answered = replace(doubt, unanswered=unanswered, answer=event.outcome, began=event.began)
    return {"doubts": {**state.doubts, event.call: answered}}


def call_resolved(state: State, event: CallResolved) -> dict[str, Any]:
    doubt = state.doubts.get(event.call)
    if doubt is None or (doubt.unanswered and doubt.goes_on):
        return {}
    changes: dict[str, Any] = {"doubts": without(state.doubts, event.call)}
    if event.answer is Answer.DID_NOT_HAPPEN and doubt.blocks:
        again = Again(attempt=doubt.attempt + 1, fingerprint=doubt.fingerprint)
        changes["again"] = {**state.again, event.call: again}
    return changes


def nobodys_work(state: State, worked_until: float | None) -> dict[str, Any]:
    """A driver died some time after it was last heard of. What lies between does not count as elapsed.

    Others may have said something since, by a clock that may have been set: that is no sign of the driver.
    """
    if state.active_since is None:
        return {}
    worked = max(0.0, state.left_at(worked_until) - state.active_since)
    return {"elapsed_seconds": state.elapsed_seconds + worked, "active_since": None}


def without(entries: dict[str, V], key: str) -> dict[str, V]:
    return {k: v for k, v in entries.items() if k != key}


FOLD_VERSION: Final = 5
"""To be raised with every change that makes the same events fold into another state: old snapshots are then ignored."""


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
    driven_at = state.driven_at if kind in _NOT_OF_A_DRIVER else event.at
    after = replace(state, seq=seq, at=event.at, driven_at=driven_at, **changes)
    return _keep_time(after, event) if changes else after


def fold(state: State, events: Iterable[Event]) -> State:
    """The state after `events`, as if they were recorded next."""
    for event in events:
        state = evolve(state, event, state.seq + 1)
    return state


_NOT_OF_A_DRIVER: Final = UNOWNED | {CallAnswered}
"""Events that say nothing about whether somebody drives the run, nor about what time it is for that one."""


def _keep_time(after: State, event: Event) -> State:
    """Start or stop the clock of time at work: paused, queued and waiting time does not count."""
    if after.active_since is None:
        begins = after.is_at_work and _is_of_a_driver(event)
        return replace(after, active_since=after.at) if begins else after
    if after.is_at_work or (isinstance(event, VerbAccepted) and event.verb is Verb.HALT):
        return after  # the end of a halt says, with its receipt, until when somebody was at work
    worked = max(0.0, after.at - after.active_since)
    return replace(after, active_since=None, elapsed_seconds=after.elapsed_seconds + worked)


def _is_of_a_driver(event: Event) -> bool:
    """Whether its maker drives the run, and goes on to."""
    if isinstance(event, CallFinished):
        return not event.abandoned
    if isinstance(event, VerbSettled):
        return event.worked_until is None
    return type(event) not in _NOT_OF_A_DRIVER


# -- the run itself


def _created(event: RunCreated, seq: int) -> State:
    words = None if event.forked_from is None else event.forked_from.words
    return State(
        run=event.run,
        agent=event.agent,
        goal=event.goal,
        thread=event.thread,
        owner=event.owner,
        parent=event.parent,
        root=event.root,
        forked_from=event.forked_from,
        instruction=None if words is None else Instruction(accepted=event.id, text=words),
        stop_when=event.stop_when,
        seq=seq,
        decided=seq,
        status_seq=seq,
        at=event.at,
    )


def _started(state: State, event: RunStarted) -> dict[str, Any]:
    changes = {"epoch": event.epoch, "status": event.status, "ahead": event.ahead}
    changes |= nobodys_work(state, event.worked_until)
    if event.after_death:
        changes |= {"deaths": state.deaths + 1, "started_at": event.at}
    if state.verbs:
        changes["verbs"] = tuple(_attended(verb, event.at) for verb in state.verbs)
    return changes


def _attended(verb: PendingVerb, at: float) -> PendingVerb:
    """A driver comes to a pending verb. One that nobody was there for gets its time from now on: an undo that nobody
    could do is not late. But only once, or what ends every driver would never be given up."""
    if verb.accepted_at > at:  # the clock was set back while nobody drove the run
        return replace(verb, accepted_at=at)
    if not verb.attended_from and at - verb.accepted_at >= DETACH_SECONDS:
        return replace(verb, attended_from=at)
    return verb


def _finished(state: State, event: RunFinished) -> dict[str, Any]:
    return {
        "status": event.status,
        "again": {},
        "approvals": {},
        "always": (),
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
        call=ASK_PREFIX + event.id if event.verb is Verb.ASK else event.call,
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
    if event.verb in WITHDRAWS_APPROVALS:
        changes |= {"approvals": {}, "always": ()}
    return {**changes, "status": event.status, "verbs": (*earlier, pending)}


def _paused(state: State, event: VerbAccepted) -> dict[str, Any]:
    return {
        "live": _stopped(state.live, event),
        "needs": event.needs or state.needs,
        "paused_by": event.id,
        "resumes_itself": event.resumes_itself,
    }


def _stopped(live: dict[str, LiveCall], event: VerbAccepted) -> dict[str, LiveCall]:
    """What is in flight, each with what the verb wants of it."""
    stop = STOP_OF[event.verb, event.when]
    return {call: _treated(one, event.verb, one.fate(stop)) for call, one in live.items()}


def _treated(call: LiveCall, verb: Verb, fate: Fate) -> LiveCall:
    if fate is Fate.STOP and _OUTRANKS[verb] >= _OUTRANKS[call.stop]:
        return replace(call, stop=verb, hold=False)
    if fate is Fate.HOLD and call.stop is None:
        return replace(call, hold=True)
    return call


_OUTRANKS: Final[Mapping[Verb | None, int]] = {
    stop: rank for rank, stop in enumerate((None, Verb.PAUSE, Verb.ABORT, Verb.REDIRECT, Verb.CANCEL, Verb.HALT))
}
"""A call that is being stopped by one verb is being stopped by a later one only if that decides more."""


def _resumed(state: State, event: VerbAccepted) -> dict[str, Any]:
    changes: dict[str, Any] = {
        "live": {call: replace(live, hold=False) for call, live in state.live.items()},
        "needs": None,
        "resumes_itself": False,
    }
    goes_on_by_itself = state.resumes_itself and event.verb is Verb.RESUME
    if state.deaths and not goes_on_by_itself:
        changes["deaths"] = 0
    if state.tripped and not goes_on_by_itself:  # only a person grants anything
        grants = dict(state.grants)
        for label in state.tripped:
            grants[label] = grants.get(label, 0) + 1
        changes |= {"grants": grants, "tripped": (), "last_calls": None, "recent": ()}
    if event.instruction is not None:
        changes["instruction"] = Instruction(
            accepted=event.id, text=event.instruction, before=state.next_step, earlier=_not_given_yet(state, event)
        )
    return changes


def _not_given_yet(state: State, event: VerbAccepted) -> tuple[Instruction, ...]:
    """What was told before and still holds: a newer redirect puts an older one out of force, and nothing else does."""
    return tuple(
        one
        for one in (() if state.instruction is None else state.instruction.each)
        if event.verb is not Verb.REDIRECT
        or (verb := state.verb(one.accepted)) is None
        or verb.verb is not Verb.REDIRECT
    )


def _redirected(state: State, event: VerbAccepted) -> dict[str, Any]:
    changes = _resumed(state, event)
    changes["live"] = _stopped(changes["live"], event)
    return changes if event.when is When.NEXT_STEP else {**changes, **_given_up(state, Stop.REDIRECT_NOW)}


def _cancelled(state: State, event: VerbAccepted) -> dict[str, Any]:
    return {
        **_given_up(state, Stop.CANCEL),
        "live": _stopped(state.live, event),
        "needs": None,
        "instruction": None,
        "resumes_itself": False,
        "cancelled_by": event.id,
        "undo": event.undo,
    }


def _given_up(state: State, stop: Stop) -> dict[str, Any]:
    """Nothing interrupted is asked again, except a question that is not stopped; no doubt holds anything up."""
    keeps_questions = fate_of(CallKind.ASK, OnPause.FINISH, stop) is not Fate.STOP
    return {
        "again": {call: n for call, n in state.again.items() if keeps_questions and call.startswith(ASK_PREFIX)},
        "doubts": {call: replace(doubt, blocks=False) for call, doubt in state.doubts.items()},
    }


def _aborted(state: State, event: VerbAccepted) -> dict[str, Any]:
    named = {call: one for call, one in state.live.items() if call == event.call}
    return {"live": {**state.live, **_stopped(named, event)}}


_EFFECT_OF_VERB: Final[Mapping[Verb, Callable[[State, VerbAccepted], dict[str, Any]]]] = {
    Verb.PAUSE: _paused,
    Verb.RESUME: _resumed,
    Verb.REDIRECT: _redirected,
    Verb.CANCEL: _cancelled,
    Verb.ABORT: _aborted,
}


def _verb_joined(state: State, event: VerbJoined) -> dict[str, Any]:
    """Whoever asks for a cancel a second time does not want to wait for an atomic section."""
    if event.verb is not Verb.CANCEL or not any(live.stop is Verb.CANCEL for live in state.live.values()):
        return {}
    return {
        "live": {
            call: replace(live, hurried=True) if live.stop is Verb.CANCEL else live for call, live in state.live.items()
        }
    }


def _verb_settled(state: State, event: VerbSettled) -> dict[str, Any]:
    changes = {"status": event.status, "verbs": tuple(verb for verb in state.verbs if verb.id != event.accepted)}
    return changes | nobodys_work(state, event.worked_until) if event.worked_until is not None else changes


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
    if event.decision is not Decision.APPROVED:
        always = tuple(name for name in state.always if event.decision is not Decision.DENIED or name != approval.name)
        return {"approvals": without(state.approvals, event.call), "always": always}
    approved = replace(approval, decision=event.decision)
    if event.arguments is not None:
        approved = replace(approved, arguments=event.arguments, fingerprint=event.fingerprint)
    changes: dict[str, Any] = {"approvals": {**state.approvals, event.call: approved}}
    if event.always and approval.name not in state.always:
        changes["always"] = (*state.always, approval.name)
    return changes


def _condition_tripped(state: State, event: ConditionTripped) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if event.condition not in state.tripped:
        changes["tripped"] = (*state.tripped, event.condition)
    if event.then is Then.FINISH and state.last_calls is None:
        changes["last_calls"] = 1
    return changes


def _clock_set(state: State, event: ClockSet) -> dict[str, Any]:
    """What still lasts is counted as if it had begun by the clock as it goes now. Nothing begins in the future."""

    def moved(at: float) -> float:
        is_after = event.at - event.within <= at <= event.at  # others have said so by the clock as it goes now
        return at if is_after else min(at + event.seconds, event.at)

    changes: dict[str, Any] = {
        "verbs": tuple(
            replace(
                verb,
                asked_at=moved(verb.asked_at),
                accepted_at=moved(verb.accepted_at),
                attended_from=moved(verb.attended_from) if verb.attended_from else 0.0,
                stopped_at=None if verb.stopped_at is None else moved(verb.stopped_at),
            )
            for verb in state.verbs
        )
    }
    if state.active_since is not None:
        changes["active_since"] = min(state.active_since + event.seconds, event.at)
    if state.ahead is not None:
        changes["ahead"] = state.ahead + event.seconds
    return changes


_CHANGES: Final[Mapping[type[Event], Callable[[State, Any], dict[str, Any]]]] = {
    RunStarted: _started,
    RunFinished: _finished,
    PlanPublished: _plan_published,
    StepStarted: _step_started,
    StepFinished: _step_finished,
    CallStarted: call_started,
    CallFinished: call_finished,
    StopDelayed: stop_delayed,
    CallAnswered: call_answered,
    CallResolved: call_resolved,
    EffectUndone: _effect_undone,
    EffectLeft: _effect_touched,
    VerbAccepted: _verb_accepted,
    VerbJoined: _verb_joined,
    VerbSettled: _verb_settled,
    InstructionDelivered: _instruction_delivered,
    ApprovalRequested: _approval_requested,
    ApprovalDecided: _approval_decided,
    ConditionTripped: _condition_tripped,
    ClockSet: _clock_set,
}
