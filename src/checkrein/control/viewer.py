"""A run as a person sees it, kept up to date record by record.

How the records of a run become what a person sees of it.

What a person is asked about: consent to a call, and calls of which nobody knows whether they happened.

The caps of a run in words: how much is used of what is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from checkrein.control.call_view import SeenCall, decoded, is_large, requested, shown_arguments, shown_value
from checkrein.control.step_view import Steps
from checkrein.control.view import (
    AnswerView,
    ApprovalView,
    CallView,
    CapView,
    DoubtView,
    EffectView,
    FlagView,
    InstructionView,
    ReasonView,
    RunView,
    SettlingView,
    VerbView,
)
from checkrein.core import events, wording
from checkrein.core.conditions import Usage, caps
from checkrein.core.consequences import controls
from checkrein.core.effects import Effect, EffectsById, fold_effects
from checkrein.core.enums import AT_WORK, DRIVEN, Answer, CallKind, EffectState, Outcome
from checkrein.core.evolve import evolve
from checkrein.core.orders import obstacle
from checkrein.core.receipts import Receipt
from checkrein.core.state import Approval, State
from checkrein.driver.ownership import left_at
from checkrein.journal.base import Chunk, Journal, Recorded
from checkrein.journal.chunks import TextAssembler
from checkrein.models.base import BYTES_PER_TOKEN

RESULT_CHARS: Final = 20_000
"""So much of a run's result is shown as text."""
MOST_APPROVALS: Final = 20
"""So many calls that wait for consent are shown; the others come as those are decided."""


def approval_views(state: State, calls: Mapping[str, SeenCall]) -> tuple[ApprovalView, ...]:
    """The calls that wait for consent: what the run waits for first, else in the order they were asked for."""
    undecided = [(call, approval) for call, approval in state.approvals.items() if approval.decision is None]
    undecided.sort(key=lambda one: not one[1].blocks)
    return tuple(_approval(state, call, approval, calls.get(call)) for call, approval in undecided[:MOST_APPROVALS])


def _approval(state: State, call: str, approval: Approval, seen: SeenCall | None) -> ApprovalView:
    asked = None if seen is None else seen.requested
    given = None if asked is None else asked.arguments
    return ApprovalView(
        call=call,
        name=approval.name,
        requested_at=state.at if asked is None else asked.at,
        headline=approval.name if asked is None else asked.what or approval.name,
        can_undo=asked is not None and asked.can_undo,
        shown=shown_arguments(given),
        fingerprint=approval.fingerprint,
        arguments=None if seen is None or is_large(given) else seen.arguments,
        blocks=approval.blocks,
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
        shown=() if seen is None else shown_arguments(seen.given),
        arguments=None if seen is None or is_large(seen.given) else seen.arguments,
        blocks=blocks,
        may_still_happen=doubt is not None and bool(doubt.unanswered),
        checked=None if seen is None else seen.checked,
    )


def _answers(state: State, effect: Effect | None, *, blocks: bool) -> tuple[AnswerView, ...]:
    can_undo = effect is not None and effect.undo is not None
    happened = (
        "it is recorded, with the result you give, and the run goes on" if blocks else "it is written down as done"
    )
    did_not = "it is done now" if blocks else "it is written down as not done"
    undo = "its undo is called" if can_undo else "it has no undo"
    return (
        AnswerView(answer=Answer.HAPPENED, enabled=True, consequence=happened),
        AnswerView(answer=Answer.DID_NOT_HAPPEN, enabled=True, consequence=did_not),
        AnswerView(answer=Answer.UNDO, enabled=can_undo, consequence=undo),
    )


def cap_views(state: State, at: float) -> tuple[CapView, ...]:
    """Every cap of the run, from left to right, with what a resume has granted."""
    spent = state.spent(at)
    views = []
    for cap in caps(state.stop_when):
        used, allowed = cap.standing(spent, state.grants)
        words = wording.cap(cap, used, allowed, estimated=state.usage.estimated)
        views.append(CapView(label=cap.label, used=used, allowed=allowed, words=words))
    return tuple(views)


class Viewer:
    """Absorbs the records of one run, from `run.created` on, and the text that streams; says what a person sees.

    A record that was absorbed already changes nothing, so a reader that reconnects may begin anew anywhere before.
    """

    def __init__(self, records: Iterable[Recorded] = ()) -> None:
        self.state: State | None = None
        """The fold of the records so far."""
        self.waits_for_worker = ""
        """Of a run that nobody drives, and whose agent nobody has who is known: what it waits for."""
        self.left_at: float | None = None
        """Of a run at work that nobody drives: until when its time counts (`driver.ownership.left_at`). No record tells
        that, so whoever looks at leases says it."""
        self.effects = EffectsById()
        self._created: events.RunCreated | None = None
        self._finished: events.RunFinished | None = None
        self._host = ""
        """Of whoever drives it, or did last."""
        self._calls: dict[str, SeenCall] = {}
        self.texts = TextAssembler()
        """What has streamed of its calls. The views of calls hold it too; `take` is for whoever hands it on."""
        self._steps = Steps()
        self._verbs: dict[str, events.VerbAccepted] = {}
        self._instructions: dict[str, InstructionView] = {}
        self._flags: list[FlagView] = []
        self._allowed_by: dict[str, str] = {}
        self._receipts: list[Receipt] = []
        self._taken: list[VerbView] = []
        self._reasons: list[ReasonView] = []
        for record in records:
            self.absorb(record)

    @property
    def seq(self) -> int:
        """The number of the last record absorbed; 0 before the first."""
        return 0 if self.state is None else self.state.seq

    def absorb(self, record: Recorded) -> None:
        """Take in the next record of the run."""
        if record.seq <= self.seq:
            return
        event = record.event
        if (
            isinstance(event, events.VerbAccepted)
            and event.verb in events.WITHDRAWS_APPROVALS
            and self.state is not None
        ):
            for call in self.state.approvals:
                self._calls[call].withdraw()
        self.state = evolve(self.state, event, record.seq)
        fold_effects(self.effects, event)
        notice = _NOTICES.get(type(event))
        if notice is not None:
            notice(self, event)

    def hear(self, chunk: Chunk) -> bool:
        """Take in a piece of streamed text, in any order with records and other pieces; whether it has added to one.

        Hearing one again changes nothing; one of a past attempt, or of a text that a record has told, comes too late.
        """
        return self.texts.add(chunk)

    def untold(self) -> tuple[str, ...]:
        """The texts that only their chunks know, as the journal names them: of calls in flight or cut off."""
        return tuple(
            call.stream
            for call in self._calls.values()
            if call.kind in (CallKind.MODEL, CallKind.ASK)
            and (call.outcome is None or (call.outcome is not Outcome.COMPLETED and not call.text))
        )

    def call(self, name: str) -> CallView | None:
        """One call as it looks now, whole; None when there is none of this id."""
        call = self._calls.get(name)
        return None if call is None or self.state is None else call.whole(self.state, self.effects.get(name))

    def view(self, at: float) -> RunView:
        """The run as it looks at the time `at`. Raises `ValueError` before the first record."""
        if self.state is None:
            raise ValueError("nothing was absorbed yet")
        return self.view_with(self.state, self.effects, at)

    def view_with(self, state: State, effects: Mapping[str, Effect], at: float) -> RunView:
        """The same, with a state and effects that were folded elsewhere."""
        created, finished, ledger = self._created, self._finished, tuple(effects.values())
        usage, result = self._used(state), None if finished is None else finished.result
        is_left = self.left_at is not None and state.status in AT_WORK
        at = self.left_at if is_left and self.left_at is not None else at
        return RunView(
            id=state.run,
            status=state.status,
            agent=state.agent,
            goal=state.goal,
            thread=state.thread,
            owner=state.owner,
            parent=state.parent,
            continues=None if created is None else created.continues,
            forked_from=state.forked_from,
            seq=state.seq,
            status_seq=state.status_seq,
            created_at=state.at if created is None else created.at,
            finished_at=None if finished is None else finished.at,
            driven=not is_left,
            waits_for_worker=self.waits_for_worker if state.status in DRIVEN else "",
            elapsed_seconds=state.spent(at).elapsed_seconds,
            waiting=state.asked(),
            approvals=approval_views(state, self._calls),
            more_approvals=max(0, sum(one.decision is None for one in state.approvals.values()) - MOST_APPROVALS),
            always=state.always,
            doubts=doubt_views(state, self._calls, effects),
            settling=_settling(state, ledger),
            steps=self._steps.views(state, effects),
            planned=self._steps.are_planned,
            calls=tuple(call.view(state, effects.get(call.id)) for call in self._calls.values()),
            effects=tuple(
                EffectView(id=e.id, what=e.what, now=e.state, why=e.why, can_undo=e.undo is not None) for e in ledger
            ),
            instructions=tuple(self._instructions.values()),
            flags=tuple(self._flags),
            verbs=tuple(self._taken),
            reasons=tuple(self._reasons),
            usage=usage,
            caps=cap_views(replace(state, usage=usage), at),
            controls=controls(state, ledger),
            receipts=tuple(self._receipts),
            result=decoded(result),
            brought=None if result is None else shown_value(result, longest=RESULT_CHARS),
            error=None if finished is None else finished.error,
        )

    def _used(self, state: State) -> Usage:
        """What was used, with that of the models at work: estimated from what they were given and have shown so far."""
        used = state.usage
        for call in (self._calls[name] for name in state.live if name in self._calls):
            if call.kind in (CallKind.MODEL, CallKind.ASK):
                read = call.arguments.get("tokens") if isinstance(call.arguments, dict) else None
                written = -(-self.texts.length(call.stream) // BYTES_PER_TOKEN)
                read = read if isinstance(read, int) else 0
                used += Usage(input_tokens=read, output_tokens=written, estimated=True)
        return used

    # -- one notice for each event that a person sees something of

    def _on_created(self, event: events.RunCreated) -> None:
        self._created = event

    def _on_started(self, event: events.RunStarted) -> None:
        self._host = event.host

    def _on_finished(self, event: events.RunFinished) -> None:
        self._finished = event

    def _on_plan(self, event: events.PlanPublished) -> None:
        self._steps.publish(event.steps)

    def _on_step_started(self, event: events.StepStarted) -> None:
        self._steps.begin(event.step, event.title, event.at)

    def _on_step_finished(self, event: events.StepFinished) -> None:
        self._steps.finish(event.step, event.at)

    def _on_approval_requested(self, event: events.ApprovalRequested) -> None:
        self._add(requested(event, self._steps.at_work, self.texts))

    def _on_approval_decided(self, event: events.ApprovalDecided) -> None:
        if event.call in self._calls:
            self._calls[event.call].decide(event)
            if event.always:
                self._allowed_by[self._calls[event.call].name] = event.by

    def _on_call_started(self, event: events.CallStarted) -> None:
        call = self._calls.get(event.call)
        if call is None:
            call = SeenCall(id=event.call, kind=event.kind, name=event.name, texts=self.texts)
        call.begin(event)
        if call.requested is None and event.kind is CallKind.TOOL and self.state is not None:
            call.allowed_by = self._allowed_by.get(event.name, "") if event.name in self.state.always else ""
        if event.kind is CallKind.RUN and self.state is not None:
            call.run = f"{self.state.run}.{event.call}"  # as a driver names it
        self._add(call)

    def _on_call_reused(self, event: events.CallReused) -> None:
        if event.outcome is None:
            return  # the fork makes it itself
        call = SeenCall(id=event.call, kind=event.kind, name=event.name, texts=self.texts)
        call.reuse(event)
        if event.kind is CallKind.RUN:
            call.run = f"{event.origin}.{event.call}"
        self._add(call)

    def _add(self, call: SeenCall) -> None:
        self._calls[call.id] = call
        self._steps.add_call(call)

    def _on_call_finished(self, event: events.CallFinished) -> None:
        verb = self._verbs.get(event.verb or "")
        if event.call in self._calls:
            self._calls[event.call].end(event, None if verb is None else verb.verb, self._host)

    def _on_call_resolved(self, event: events.CallResolved) -> None:
        if event.call in self._calls:
            self._calls[event.call].resolve(event)

    def _on_call_checked(self, event: events.CallChecked) -> None:
        if event.call in self._calls:
            self._calls[event.call].check(event)

    def _on_verb_accepted(self, event: events.VerbAccepted) -> None:
        self._verbs[event.id] = event
        self._taken.append(
            VerbView(
                verb=event.verb,
                seq=self.seq,
                by=event.by,
                at=event.at,
                reason=event.reason,
                question=event.question or "",
                call=event.call,
            )
        )
        if event.instruction is not None:
            self._instructions[event.id] = InstructionView(
                verb=event.verb, by=event.by, text=event.instruction, at=event.at
            )

    def _on_instruction_delivered(self, event: events.InstructionDelivered) -> None:
        told = self._instructions.get(event.accepted)
        if told is not None:
            self._instructions[event.accepted] = replace(told, diff=event.diff, delivered=True)

    def _on_verb_settled(self, event: events.VerbSettled) -> None:
        self._receipts.append(event.receipt)
        told = self._instructions.get(event.accepted)
        if told is not None and told.delivered is None and event.receipt.delivered is not None:
            self._instructions[event.accepted] = replace(told, delivered=event.receipt.delivered)

    def _on_reason(self, event: events.ReasonAdded) -> None:
        self._reasons.append(ReasonView(reason=event.reason, by=event.by, at=event.at, note=event.note))

    def _on_flagged(self, event: events.WatcherFlagged) -> None:
        self._flags.append(FlagView(watcher=event.watcher, what=event.what, at=event.at, call=event.call))


_NOTICES: Final[Mapping[type[events.Event], Callable[[Viewer, Any], None]]] = {
    events.RunCreated: Viewer._on_created,
    events.RunStarted: Viewer._on_started,
    events.RunFinished: Viewer._on_finished,
    events.PlanPublished: Viewer._on_plan,
    events.StepStarted: Viewer._on_step_started,
    events.StepFinished: Viewer._on_step_finished,
    events.ApprovalRequested: Viewer._on_approval_requested,
    events.ApprovalDecided: Viewer._on_approval_decided,
    events.CallStarted: Viewer._on_call_started,
    events.CallReused: Viewer._on_call_reused,
    events.CallFinished: Viewer._on_call_finished,
    events.CallChecked: Viewer._on_call_checked,
    events.CallResolved: Viewer._on_call_resolved,
    events.VerbAccepted: Viewer._on_verb_accepted,
    events.VerbSettled: Viewer._on_verb_settled,
    events.ReasonAdded: Viewer._on_reason,
    events.InstructionDelivered: Viewer._on_instruction_delivered,
    events.WatcherFlagged: Viewer._on_flagged,
}


def view_of(
    state: State,
    records: Sequence[Recorded],
    effects: Sequence[Effect],
    *,
    at: float,
    texts: Mapping[str, str] | None = None,
) -> RunView:
    """The run as it looks at the time `at`. `texts` is what has streamed of each text that `Viewer.untold` names."""
    viewer = Viewer(records)
    for call, text in (texts or {}).items():
        viewer.hear(Chunk(call, 0, text))
    return viewer.view_with(state, {effect.id: effect for effect in effects}, at)


async def look(journal: Journal, run: str, *, at: float) -> RunView:
    """The run as it stands in the journal. Raises `RunNotFound`."""
    viewer = Viewer(await journal.read(run))
    for stream in viewer.untold():
        for chunk in await journal.chunks(run, stream):
            viewer.hear(chunk)
    if viewer.state is not None:
        viewer.left_at = left_at(await journal.lease(run), viewer.state, at)
    return viewer.view(at)


def _settling(state: State, effects: Sequence[Effect]) -> tuple[SettlingView, ...]:
    return tuple(
        SettlingView(verb=verb.verb, by=verb.by, at=verb.accepted_at, waiting_for=obstacle(state, verb, effects) or "")
        for verb in state.verbs
        if verb.superseded_by is None
    )


__all__ = ["Viewer", "look", "view_of"]
