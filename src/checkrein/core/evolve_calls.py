"""How the events of calls change the state of a run: what is in flight, what is to be asked again, what is in doubt."""

from __future__ import annotations

from typing import Any, Final, TypeVar

from msgspec.structs import replace

from checkrein.core.conditions import RECENT_CALLS, Usage
from checkrein.core.events import CallAnswered, CallFinished, CallResolved, CallStarted
from checkrein.core.receipts import StoppedCall
from checkrein.core.state import Again, Doubt, LiveCall, PendingVerb, State
from checkrein.core.words import Answer, CallKind, Outcome, Verb

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
        changes |= nobodys_work(state, event.at)
    if event.usage is not None:
        changes["usage"] = state.usage + _spending(event.usage)
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
        chars=verb.chars + (event.chars if call.kind is not CallKind.TOOL else 0),  # a tool's progress is no work
    )


_STOPPED_FOR_GOOD: Final = frozenset({Verb.REDIRECT, Verb.CANCEL, Verb.ABORT, Verb.HALT})


def _attempt_again(call: LiveCall, outcome: Outcome, *, retry: bool) -> int | None:
    """The attempt with which an interrupted call is to be asked again, if it is.

    A model call or a side question only spends, a sub-run is found again by its id, an idempotent tool says so. A tool
    that does not is never tried again by itself. `retry`: a model's failure may pass.
    """
    if call.kind is CallKind.UNDO or call.stop in _STOPPED_FOR_GOOD:
        return None
    if call.kind is CallKind.TOOL and not call.idempotent:
        return None
    if outcome is Outcome.FAILED and retry and call.kind is CallKind.MODEL:
        return call.attempt + 1
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
    if doubt is None:
        return {}
    changes: dict[str, Any] = {"doubts": without(state.doubts, event.call)}
    if event.answer is Answer.DID_NOT_HAPPEN and doubt.blocks:
        again = Again(attempt=doubt.attempt + 1, fingerprint=doubt.fingerprint)
        changes["again"] = {**state.again, event.call: again}
    return changes


def nobodys_work(state: State, at: float) -> dict[str, Any]:
    """A driver died some time after the last thing that was said. What lies between does not count as elapsed."""
    if state.active_since is None:
        return {}
    worked = max(0.0, state.at - state.active_since)
    return {"elapsed_seconds": state.elapsed_seconds + worked, "active_since": at}


def without(entries: dict[str, V], key: str) -> dict[str, V]:
    return {k: v for k, v in entries.items() if k != key}
