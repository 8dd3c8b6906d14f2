"""What a person is asked about: consent to a call, and calls of which nobody knows whether they happened."""

from __future__ import annotations

from collections.abc import Mapping

from checkrein.control.view import AnswerView, ApprovalView, DoubtView
from checkrein.control.viewing.calls import SeenCall
from checkrein.core.effects import Effect
from checkrein.core.state import State
from checkrein.core.words import Answer, EffectState


def approval_views(state: State, calls: Mapping[str, SeenCall]) -> tuple[ApprovalView, ...]:
    """Every call that waits for consent, in the order they were asked for."""
    return tuple(
        ApprovalView(
            call=call,
            name=approval.name,
            requested_at=calls[call].requested_at or state.at if call in calls else state.at,
            arguments=calls[call].arguments if call in calls else None,
            blocks=approval.blocks,
        )
        for call, approval in state.approvals.items()
        if approval.decision is None
    )


def doubt_views(state: State, calls: Mapping[str, SeenCall], effects: Mapping[str, Effect]) -> tuple[DoubtView, ...]:
    """Every call that a person may resolve: those the run waits for first, then what a stop left unknown."""
    asked = [call for call, doubt in state.doubts.items() if doubt.person]
    unknown = [
        effect.id
        for effect in effects.values()
        if effect.state is EffectState.IN_DOUBT and effect.id not in {*asked, *state.live, *state.again}
    ]
    return tuple(_doubt(state, call, calls.get(call), effects.get(call)) for call in (*asked, *unknown))


def _doubt(state: State, call: str, seen: SeenCall | None, effect: Effect | None) -> DoubtView:
    doubt = state.doubts.get(call)
    name = doubt.name if doubt is not None else effect.what if effect is not None else call
    blocks = doubt is not None and doubt.blocks and not state.is_finished
    return DoubtView(
        call=call,
        name=name,
        answers=_answers(state, effect, blocks=blocks),
        started_at=None if seen is None else seen.started_at,
        arguments=None if seen is None else seen.arguments,
        blocks=blocks,
        may_still_happen=doubt is not None and bool(doubt.unanswered),
        checked=None if seen is None else seen.checked,
    )


def _answers(state: State, effect: Effect | None, *, blocks: bool) -> tuple[AnswerView, ...]:
    can_undo = effect is not None and effect.undo is not None
    happened = "its result is recorded and the run goes on" if blocks else "it is written down as done"
    did_not = "it is done now" if blocks else "it is written down as not done"
    undo = "its undo is called" if can_undo else "it has no undo"
    return (
        AnswerView(answer=Answer.HAPPENED, enabled=True, consequence=happened),
        AnswerView(answer=Answer.DID_NOT_HAPPEN, enabled=True, consequence=did_not),
        AnswerView(answer=Answer.UNDO, enabled=can_undo, consequence=undo),
    )
