"""Planted bugs: single rules, each broken in the way a tired person would break it. The search must find every one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from checkrein.core import commands, effects, evolve, orders, transitions
from checkrein.core.decide import _DECISIONS, calls, endings
from checkrein.core.enums import CallKind, Decision, EffectState, Outcome, Status, Verb
from checkrein.core.events import (
    ApprovalDecided,
    CallFinished,
    CallResolved,
    EffectInDoubt,
    EffectSettled,
    EffectUndone,
)
from checkrein.core.state import Again, State
from checkrein.core.transitions import Fate, Stop
from checkrein.journal import admission
from tests.torture.explore import world
from tests.torture.explore.world import Bounds, Kind

Move = transitions.Move
RUNNING, PAUSED, CANCELLING = Status.RUNNING, Status.PAUSED, Status.CANCELLING

Patch = Callable[[pytest.MonkeyPatch], None]

TOOL = Kind()
IDEMPOTENT = Kind(idempotent=True)
NO_UNDO = Kind(undo=False)

CALM = Bounds(calls=(TOOL,), verbs=2, crashes=0, freezes=0)
CRASH = Bounds(calls=(TOOL,), verbs=1, crashes=1, freezes=0)
FREEZE = Bounds(calls=(TOOL,), verbs=1, crashes=0, freezes=1)
RASH = Bounds(calls=(TOOL,), verbs=1, crashes=0, freezes=1, rash=True)


class Bug(NamedTuple):
    name: str
    breaks: str
    """The promise that must be found broken; `any` where several are and which is found first does not matter."""
    bounds: Bounds
    plant: Patch


def _after_unchecked(patch: pytest.MonkeyPatch) -> None:
    admit = admission.admit
    patch.setattr(admission, "admit", lambda proposal, head, **kw: admit(proposal, head._replace(decided=0), **kw))


def _epoch_unchecked(patch: pytest.MonkeyPatch) -> None:
    admit = admission.admit

    def lax(proposal: admission.Proposal, head: admission.Head, **kw: Any) -> admission.Admission:
        epoch = head.epoch if proposal.epoch is None else proposal.epoch
        return admit(proposal, head._replace(epoch=epoch), **kw)

    patch.setattr(admission, "admit", lax)


def _fence_unchecked(patch: pytest.MonkeyPatch) -> None:
    admit = admission.admit
    patch.setattr(admission, "admit", lambda proposal, head, **kw: admit(proposal, head))


def _permits_while(status: Status) -> Patch:
    def plant(patch: pytest.MonkeyPatch) -> None:
        may_permit = orders.may_permit
        patch.setattr(calls, "may_permit", lambda state, *rest: state.status is status or may_permit(state, *rest))

    return plant


def _owner_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(State, "is_blocked", lambda state, effect: effect in state.live)


def _every_tool_again(patch: pytest.MonkeyPatch) -> None:
    again = evolve._attempt_again
    patch.setattr(
        evolve,
        "_attempt_again",
        lambda call, outcome, *, retry: again(replace(call, idempotent=True), outcome, retry=retry),
    )


def _takeover_marks_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(calls, "left_in_doubt", lambda state, command, **given: ())


def _halt_marks_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(endings, "left_in_doubt", lambda state, command, **given: ())


def _owner_presumed_dead(patch: pytest.MonkeyPatch) -> None:
    marked = calls.left_in_doubt
    everybody = range(1_000)
    patch.setattr(
        calls, "left_in_doubt", lambda state, command, **given: marked(state, command, **{**given, "over": everybody})
    )


def _last_claimant_taken_for_the_maker(patch: pytest.MonkeyPatch) -> None:
    marked = calls.left_in_doubt

    def by_the_last(state: State, command: Any, **given: Any) -> Any:
        is_last_dead = command.epoch - 1 in given["over"]
        return marked(state, command, **{**given, "over": range(command.epoch if is_last_dead else 0)})

    patch.setattr(calls, "left_in_doubt", by_the_last)


def _undo_in_doubt_taken_for_done(patch: pytest.MonkeyPatch) -> None:
    marked = calls.left_in_doubt

    def and_undone(state: State, command: Any, **given: Any) -> Any:
        undone = tuple(
            EffectUndone(id=f"x{call}", at=0.0, effect=live.effect or "")
            for call, live in state.live.items()
            if live.kind is CallKind.UNDO
        )
        return (*marked(state, command, **given), *undone)

    patch.setattr(calls, "left_in_doubt", and_undone)


def _superseded_never_settled(patch: pytest.MonkeyPatch) -> None:
    end = endings._end

    def forgetful(state: State, command: Any, *rest: Any, **fields: Any) -> Any:
        in_force = tuple(verb for verb in state.verbs if verb.superseded_by is None)
        return end(replace(state, verbs=in_force), command, *rest, **fields)

    patch.setattr(endings, "_end", forgetful)


def _cancel_does_not_wait_for_undo(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(orders, "_undo_unfinished", lambda state, effects: None)


def _cancel_is_always_late(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(endings, "is_late", lambda verb, at, settle_seconds: True)
    patch.setattr(orders, "is_late", lambda verb, at, settle_seconds: True)


def _completes_while_cancelling(patch: pytest.MonkeyPatch) -> None:
    finish = endings.finish_run

    def eager(state: State, command: Any) -> Any:
        is_cancelling = state.status is Status.CANCELLING
        return finish(replace(state, status=Status.RUNNING) if is_cancelling else state, command)

    _swap(patch, _DECISIONS, commands.FinishRun, eager)


def _left_called_settled(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(world, "AT_THE_END", {**effects.AT_THE_END, Status.CANCELLED: EffectState.SETTLED})


def _oldest_first(patch: pytest.MonkeyPatch) -> None:
    due = orders.undo_due
    patch.setattr(orders, "undo_due", lambda state, effects: due(state, effects)[::-1])


def _pause_does_not_wait(patch: pytest.MonkeyPatch) -> None:
    in_flight = orders._calls_in_flight
    patch.setattr(
        orders,
        "_calls_in_flight",
        lambda state, *rest: None if state.status is Status.PAUSING else in_flight(state, *rest),
    )


def _happened_is_done_again(patch: pytest.MonkeyPatch) -> None:
    resolved = evolve._CHANGES[CallResolved]

    def again(state: State, event: Any) -> dict[str, Any]:
        doubt = state.doubts.get(event.call)
        changes = resolved(state, event)
        return (
            changes
            if doubt is None
            else {**changes, "again": {**state.again, event.call: Again(attempt=doubt.attempt + 1)}}
        )

    _swap(patch, evolve._CHANGES, CallResolved, again)


def _second_reply_taken(patch: pytest.MonkeyPatch) -> None:
    def lax(state: State, command: Any) -> Any:
        finished = CallFinished(id=command.id, at=0.0, call=command.call, outcome=command.outcome)
        if command.call.startswith("undo:"):
            return (finished, EffectUndone(id="x", at=0.0, effect=command.call.removeprefix("undo:")))
        return (finished,)

    _swap(patch, _DECISIONS, commands.FinishCall, lax)


def _nobody_is_detached(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(orders, "late_calls", lambda state, at, settle_seconds: [])


def _detached_leaves_no_doubt(patch: pytest.MonkeyPatch) -> None:
    doubt = evolve._doubt_about
    patch.setattr(
        evolve, "_doubt_about", lambda call, event: None if event.outcome is Outcome.DETACHED else doubt(call, event)
    )


def _detached_taken_for_stopped(patch: pytest.MonkeyPatch) -> None:
    finish = calls.finish_call

    def lax(state: State, command: Any) -> Any:
        is_let_go = command.outcome is Outcome.DETACHED
        return finish(state, replace(command, outcome=Outcome.ABORTED) if is_let_go else command)

    _swap(patch, _DECISIONS, commands.FinishCall, lax)


def _fails_while_cancelling(patch: pytest.MonkeyPatch) -> None:
    finish = endings.finish_run

    def eager(state: State, command: Any) -> Any:
        is_overtaken = state.status is Status.CANCELLING and command.status is Status.FAILED
        return finish(replace(state, status=Status.RUNNING) if is_overtaken else state, command)

    _swap(patch, _DECISIONS, commands.FinishRun, eager)


def _broken_off_taken_for_nothing(patch: pytest.MonkeyPatch) -> None:
    finish = calls.finish_call

    def lax(state: State, command: Any) -> Any:
        verdict = finish(state, command)
        live = state.live.get(command.call)
        if not isinstance(verdict, tuple) or live is None or live.stop is not None:
            return verdict
        return tuple(
            EffectSettled(id=event.id, at=0.0, effect=event.effect, happened=False)
            if isinstance(event, EffectInDoubt)
            else event
            for event in verdict
        )

    _swap(patch, _DECISIONS, commands.FinishCall, lax)


def _leaves_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    next_undo = orders.next_undo
    for module in (orders, calls):
        patch.setattr(module, "next_undo", lambda state, effects, below=(): next_undo(state, effects))


def _cancel_can_be_paused(patch: pytest.MonkeyPatch) -> None:
    pauses = {(Status.CANCELLING, Verb.PAUSE): transitions.Move(Status.PAUSING, settled=Status.PAUSED)}
    _with_rows(patch, pauses)


def _end_can_be_resumed(patch: pytest.MonkeyPatch) -> None:
    _with_rows(patch, {(Status.CANCELLING, Verb.RESUME): transitions.Move(Status.RUNNING)})


def _nobody_is_asked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(calls, "_no_consent", lambda state, command: None)


def _arguments_not_compared(patch: pytest.MonkeyPatch) -> None:
    no_consent = calls._no_consent

    def lax(state: State, command: Any) -> Any:
        approval = state.approvals.get(command.call)
        return no_consent(state, command if approval is None else replace(command, fingerprint=approval.fingerprint))

    patch.setattr(calls, "_no_consent", lax)


def _approvals_survive(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(evolve, "WITHDRAWS_APPROVALS", frozenset({Verb.CANCEL}))


def _consent_to_one_is_consent_to_all(patch: pytest.MonkeyPatch) -> None:
    decided = evolve._CHANGES[ApprovalDecided]
    _swap(patch, evolve._CHANGES, ApprovalDecided, lambda state, event: decided(state, replace(event, always=True)))


def _denied_stays_asked(patch: pytest.MonkeyPatch) -> None:
    decided = evolve._CHANGES[ApprovalDecided]

    def deaf(state: State, event: Any) -> dict[str, Any]:
        return decided(state, event) if event.decision is Decision.APPROVED else {}

    _swap(patch, evolve._CHANGES, ApprovalDecided, deaf)


def _with_rows(patch: pytest.MonkeyPatch, rows: dict[tuple[Status, Verb], transitions.Move]) -> None:
    table = {**transitions.VERBS, **rows}
    patch.setattr(transitions, "VERBS", table)
    patch.setattr(transitions, "SETTLES", {(m.to, verb): m.settled for (_, verb), m in table.items() if m.settled})


def _row(status: Status, verb: Verb, move: transitions.Move) -> Patch:
    return lambda patch: _with_rows(patch, {(status, verb): move})


def _settles(verb: Verb, settled: Status | None) -> Patch:
    """Every row of the verb that settles somewhere settles here instead, so that the rows agree."""
    rows = {pair: replace(m, settled=settled) for pair, m in transitions.VERBS.items() if pair[1] is verb and m.settled}
    return lambda patch: _with_rows(patch, rows)


def _cell(stop: Stop, fate: Fate, kind: CallKind = CallKind.TOOL) -> Patch:
    """What a verb does to a call, such as a tool that says nothing about pauses."""
    cell = (transitions.stoppable(kind), stop)
    return lambda patch: patch.setattr(transitions, "STOPS", {**transitions.STOPS, cell: fate})


def _swap(patch: pytest.MonkeyPatch, rules_by_type: Any, kind: type, rule: Callable[..., Any]) -> None:
    patch.setitem(rules_by_type, kind, rule)


ABOVE = FREEZE._replace(fences=1, freezes=0)
TWO = Bounds(calls=(TOOL, TOOL), verbs=0, crashes=0, freezes=0)
HANGS = Bounds(calls=(TOOL,), verbs=1, crashes=0, freezes=0, hangs=1)
FAILS = Bounds(calls=(TOOL,), verbs=1, crashes=0, freezes=0, failures=1)
ASKS = Bounds(calls=(Kind(asks=True), Kind(asks=True)), verbs=1, crashes=0, freezes=0)
PROGRAM = Bounds(calls=(Kind(kind=CallKind.PROCESS, undo=False),), verbs=2, crashes=0, freezes=0)
BELOW = Bounds(calls=(TOOL,), verbs=0, crashes=1, freezes=0, below=1)

BUGS = (
    Bug("a permit is not compared with what came in meanwhile", "any", RASH, _after_unchecked),
    Bug("a stale owner may still append", "any", RASH, _epoch_unchecked),
    Bug("a sub-run does not look at the fence", "P1", ABOVE, _fence_unchecked),
    Bug("a cancelling run takes permits", "P1", CALM, _permits_while(Status.CANCELLING)),
    Bug("a pausing run takes permits", "pause", CALM, _permits_while(Status.PAUSING)),
    Bug("a paused run takes permits", "pause", CALM, _permits_while(Status.PAUSED)),
    Bug("an undo does not wait for the former owner", "no effect after its undo", FREEZE, _owner_forgotten),
    Bug("a tool in doubt is simply tried again", "P2", CRASH, _every_tool_again),
    Bug("a takeover marks nothing in doubt", "stuck", CRASH, _takeover_marks_nothing),
    Bug("a takeover presumes the former owner dead", "no effect after its undo", FREEZE, _owner_presumed_dead),
    Bug(
        "a takeover judges calls by whoever claimed the run last",
        "no effect after its undo",
        FREEZE._replace(vain=1),
        _last_claimant_taken_for_the_maker,
    ),
    Bug("an undo in doubt is taken for done", "P3", CRASH, _undo_in_doubt_taken_for_done),
    Bug("a halt leaves calls without an outcome", "stop", CALM._replace(halts=1), _halt_marks_nothing),
    Bug("superseded verbs are never settled", "settled once", CALM, _superseded_never_settled),
    Bug("a cancel does not wait for its undos", "P3", CALM, _cancel_does_not_wait_for_undo),
    Bug("a cancel is always late", "P3", CALM, _cancel_is_always_late),
    Bug("a run completes after its cancel", "P4", CALM, _completes_while_cancelling),
    Bug("what is left is called settled", "P3", CALM._replace(calls=(NO_UNDO,)), _left_called_settled),
    Bug("the oldest effect is undone first", "P3", TWO, _oldest_first),
    Bug("a pause does not wait for its tool", "pause", CALM, _pause_does_not_wait),
    Bug("a call that happened is done again", "P2", CRASH, _happened_is_done_again),
    Bug("a reply that comes twice counts twice", "any", CALM._replace(duplicates=1), _second_reply_taken),
    Bug("a cancelling run can be paused", "settles", CALM, _cancel_can_be_paused),
    Bug("a cancelling run can be resumed", "settles", CALM, _end_can_be_resumed),
    Bug("a pause settles as running", "settles", CALM, _settles(Verb.PAUSE, Status.RUNNING)),
    Bug("a pause never settles as paused", "settles", CALM, _settles(Verb.PAUSE, None)),
    Bug("a cancel settles as completed", "P4", CALM, _settles(Verb.CANCEL, Status.COMPLETED)),
    Bug("a cancel never ends the run", "settles", CALM, _settles(Verb.CANCEL, None)),
    Bug("a cancel pauses the run", "P1", CALM, _row(RUNNING, Verb.CANCEL, Move(Status.PAUSING, settled=Status.PAUSED))),
    Bug("a redirect settles as redirecting", "settles", CALM, _settles(Verb.REDIRECT, None)),
    Bug(
        "a resumed run is queued although it is driven", "resume", CALM, _row(PAUSED, Verb.RESUME, Move(Status.QUEUED))
    ),
    Bug("a halt only cancels", "any", CALM._replace(halts=1), _row(RUNNING, Verb.HALT, Move(Status.CANCELLING))),
    Bug("a pause spares tools", "pause", CALM, _cell(Stop.PAUSE, Fate.SPARE)),
    Bug("a cancel spares tools", "stop", CALM._replace(calls=(NO_UNDO,)), _cell(Stop.CANCEL, Fate.SPARE)),
    Bug("a halt spares tools", "stop", CALM._replace(halts=1), _cell(Stop.HALT, Fate.SPARE)),
    Bug("a pause spares a program", "pause", PROGRAM, _cell(Stop.PAUSE, Fate.SPARE, CallKind.PROCESS)),
    Bug("a redirect ends a program", "redirect", PROGRAM, _cell(Stop.REDIRECT_NOW, Fate.STOP, CallKind.PROCESS)),
    Bug("a cancel spares a program", "stop", PROGRAM, _cell(Stop.CANCEL, Fate.SPARE, CallKind.PROCESS)),
    Bug("a program in doubt is simply started again", "P2", PROGRAM._replace(crashes=1), _every_tool_again),
    Bug("a second cancel is taken as a new one", "same receipt", CALM, _row(CANCELLING, Verb.CANCEL, Move(CANCELLING))),
    Bug("a cancel waits for a call that does not answer", "stuck", HANGS, _nobody_is_detached),
    Bug("of a call that was let go nothing is in doubt", "no effect after its undo", HANGS, _detached_leaves_no_doubt),
    Bug("a call that was let go counts as stopped", "no effect after its undo", HANGS, _detached_taken_for_stopped),
    Bug("an undo does not wait for a call that was let go", "no effect after its undo", HANGS, _owner_forgotten),
    Bug("a program that fails ends a run that is being cancelled", "P4", FAILS, _fails_while_cancelling),
    Bug("a call that a failing program broke off did nothing", "P3", FAILS, _broken_off_taken_for_nothing),
    Bug("a parent is undone before its leaves", "P3", BELOW, _leaves_not_waited_for),
    Bug("a call that asks begins unasked", "consent", ASKS, _nobody_is_asked),
    Bug("an approval holds for other arguments", "consent", ASKS, _arguments_not_compared),
    Bug("an approval outlives a redirect", "consent", ASKS, _approvals_survive),
    Bug("consent to one call is consent to all", "consent", ASKS, _consent_to_one_is_consent_to_all),
    Bug("a call that was denied can still be approved", "consent", ASKS, _denied_stays_asked),
)
