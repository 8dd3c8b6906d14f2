"""Planted bugs: single rules, each broken in the way a tired person would break it. The search must find every one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from checkrein.core import calls, commands, effects, ends, evolve, evolve_calls, orders, table, verbs
from checkrein.core.decide import _DECISIONS
from checkrein.core.events import CallFinished, CallResolved, EffectUndone
from checkrein.core.state import Again, State
from checkrein.core.words import CallKind, EffectState, Status, Verb
from checkrein.journal import rules
from tests.core.explore import world
from tests.core.explore.world import Bounds, Kind

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
    admit = rules.admit
    patch.setattr(rules, "admit", lambda proposal, head, **kw: admit(proposal, head._replace(decided=0), **kw))


def _epoch_unchecked(patch: pytest.MonkeyPatch) -> None:
    admit = rules.admit

    def lax(proposal: rules.Proposal, head: rules.Head, **kw: Any) -> rules.Admission:
        epoch = head.epoch if proposal.epoch is None else proposal.epoch
        return admit(proposal, head._replace(epoch=epoch), **kw)

    patch.setattr(rules, "admit", lax)


def _fence_unchecked(patch: pytest.MonkeyPatch) -> None:
    admit = rules.admit
    patch.setattr(rules, "admit", lambda proposal, head, **kw: admit(proposal, head))


def _permits_while(status: Status) -> Patch:
    def plant(patch: pytest.MonkeyPatch) -> None:
        may_permit = orders.may_permit
        patch.setattr(calls, "may_permit", lambda state, *rest: state.status is status or may_permit(state, *rest))

    return plant


def _owner_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(State, "is_blocked", lambda state, effect: effect in state.live)


def _every_tool_again(patch: pytest.MonkeyPatch) -> None:
    again = evolve_calls._attempt_again
    patch.setattr(
        evolve_calls,
        "_attempt_again",
        lambda call, outcome, *, retry: again(replace(call, idempotent=True), outcome, retry=retry),
    )


def _takeover_marks_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(calls, "left_in_doubt", lambda state, command, *, owner_dead: ())


def _halt_marks_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ends, "left_in_doubt", lambda state, command, *, owner_dead: ())


def _owner_presumed_dead(patch: pytest.MonkeyPatch) -> None:
    marked = calls.left_in_doubt
    patch.setattr(calls, "left_in_doubt", lambda state, command, *, owner_dead: marked(state, command, owner_dead=True))


def _undo_in_doubt_taken_for_done(patch: pytest.MonkeyPatch) -> None:
    marked = calls.left_in_doubt

    def and_undone(state: State, command: Any, *, owner_dead: bool) -> Any:
        undone = tuple(
            EffectUndone(id=f"x{call}", at=0.0, effect=live.effect or "")
            for call, live in state.live.items()
            if live.kind is CallKind.UNDO
        )
        return (*marked(state, command, owner_dead=owner_dead), *undone)

    patch.setattr(calls, "left_in_doubt", and_undone)


def _superseded_never_settled(patch: pytest.MonkeyPatch) -> None:
    end = ends._end

    def forgetful(state: State, command: Any, *rest: Any, **fields: Any) -> Any:
        in_force = tuple(verb for verb in state.verbs if verb.superseded_by is None)
        return end(replace(state, verbs=in_force), command, *rest, **fields)

    patch.setattr(ends, "_end", forgetful)


def _cancel_does_not_wait_for_undo(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(orders, "_undo_unfinished", lambda state, effects: None)


def _cancel_is_always_late(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ends, "is_late", lambda verb, at, settle_seconds: True)
    patch.setattr(orders, "is_late", lambda verb, at, settle_seconds: True)


def _completes_while_cancelling(patch: pytest.MonkeyPatch) -> None:
    finish = ends.finish_run

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
        lambda state, held: None if state.status is Status.PAUSING else in_flight(state, held),
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


def _cancel_can_be_paused(patch: pytest.MonkeyPatch) -> None:
    pauses = {(Status.CANCELLING, Verb.PAUSE): table.Move(Status.PAUSING, settled=Status.PAUSED)}
    _with_rows(patch, pauses)


def _end_can_be_resumed(patch: pytest.MonkeyPatch) -> None:
    _with_rows(patch, {(Status.CANCELLING, Verb.RESUME): table.Move(Status.RUNNING)})


def _with_rows(patch: pytest.MonkeyPatch, rows: dict[tuple[Status, Verb], table.Move]) -> None:
    patch.setattr(verbs, "VERBS", {**table.VERBS, **rows})


def _swap(patch: pytest.MonkeyPatch, rules_by_type: Any, kind: type, rule: Callable[..., Any]) -> None:
    patch.setitem(rules_by_type, kind, rule)


ABOVE = FREEZE._replace(fences=1, freezes=0)
TWO = Bounds(calls=(TOOL, TOOL), verbs=0, crashes=0, freezes=0)

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
    Bug("a cancelling run can be paused", "P3", CALM, _cancel_can_be_paused),
    Bug("a cancelling run can be resumed", "P1", CALM, _end_can_be_resumed),
)
