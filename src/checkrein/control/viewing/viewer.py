"""A run as a person sees it, kept up to date record by record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from checkrein.control.view import (
    CallView,
    EffectView,
    FlagView,
    InstructionView,
    ReasonView,
    RunView,
    SettlingView,
    VerbView,
)
from checkrein.control.viewing.calls import SeenCall, decoded, requested
from checkrein.control.viewing.caps import cap_views
from checkrein.control.viewing.doubts import approval_views, doubt_views
from checkrein.control.viewing.steps import Steps
from checkrein.core.controls import controls
from checkrein.core.effects import AT_THE_END, EFFECT_EVENTS, Effect, evolve_effect
from checkrein.core.events import (
    ApprovalDecided,
    ApprovalRequested,
    CallChecked,
    CallFinished,
    CallResolved,
    CallStarted,
    EffectOpened,
    Event,
    InstructionDelivered,
    PlanPublished,
    ReasonAdded,
    RunCreated,
    RunFinished,
    StepFinished,
    StepStarted,
    VerbAccepted,
    VerbSettled,
    WatcherFlagged,
)
from checkrein.core.evolve import evolve
from checkrein.core.orders import obstacle
from checkrein.core.receipts import Receipt
from checkrein.core.state import State
from checkrein.core.words import CallKind, EffectState, Outcome
from checkrein.journal.contract import Chunk, Journal, Recorded, attempt_of, stream_of


class Viewer:
    """Absorbs the records of one run, from `run.created` on, and the text that streams; says what a person sees.

    A record that was absorbed already changes nothing, so a reader that reconnects may begin anew anywhere before.
    """

    def __init__(self, records: Iterable[Recorded] = ()) -> None:
        self.state: State | None = None
        """The fold of the records so far."""
        self.effects: dict[str, Effect] = {}
        self._created: RunCreated | None = None
        self._finished: RunFinished | None = None
        self._calls: dict[str, SeenCall] = {}
        self._early: dict[str, list[Chunk]] = {}
        self._steps = Steps()
        self._verbs: dict[str, VerbAccepted] = {}
        self._instructions: dict[str, InstructionView] = {}
        self._flags: list[FlagView] = []
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
        self.state = evolve(self.state, event, record.seq)
        self._fold_effect(event)
        notice = _NOTICES.get(type(event))
        if notice is not None:
            notice(self, event)

    def hear(self, chunk: Chunk) -> None:
        """Take in a piece of streamed text; also one that comes before the record of its call."""
        name, attempt = attempt_of(chunk.call)
        call = self._calls.get(name)
        if call is None:
            self._early.setdefault(name, []).append(chunk)
        else:
            call.hear(attempt, chunk.offset, chunk.text)

    def untold(self) -> tuple[str, ...]:
        """The texts that only their chunks know, as the journal names them: of calls in flight or cut off."""
        return tuple(
            stream_of(call.id, call.attempt)
            for call in self._calls.values()
            if call.kind in (CallKind.MODEL, CallKind.ASK)
            and (call.outcome is None or (call.outcome is not Outcome.COMPLETED and not call.text))
        )

    def call(self, name: str) -> CallView | None:
        """One call as it looks now; None when there is none of this id."""
        call = self._calls.get(name)
        return None if call is None or self.state is None else call.view(self.state, self.effects.get(name))

    def view(self, at: float) -> RunView:
        """The run as it looks at the time `at`. Raises `ValueError` before the first record."""
        if self.state is None:
            raise ValueError("nothing was absorbed yet")
        return self.view_with(self.state, self.effects, at)

    def view_with(self, state: State, effects: Mapping[str, Effect], at: float) -> RunView:
        """The same, with a state and effects that were folded elsewhere."""
        created, finished, ledger = self._created, self._finished, tuple(effects.values())
        return RunView(
            id=state.run,
            status=state.status,
            agent=state.agent,
            goal=state.goal,
            thread=state.thread,
            owner=state.owner,
            parent=state.parent,
            continues=None if created is None else created.continues,
            seq=state.seq,
            status_seq=state.status_seq,
            created_at=state.at if created is None else created.at,
            finished_at=None if finished is None else finished.at,
            elapsed_seconds=state.spent(at).elapsed_seconds,
            waiting=state.waiting(),
            approvals=approval_views(state, self._calls),
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
            usage=state.usage,
            caps=cap_views(state, at),
            controls=controls(state, ledger),
            receipts=tuple(self._receipts),
            result=None if finished is None else decoded(finished.result),
            error=None if finished is None else finished.error,
        )

    # -- the ledger of effects, folded as a journal folds it

    def _fold_effect(self, event: Event) -> None:
        if isinstance(event, RunFinished):
            for effect in tuple(self.effects.values()):
                if effect.state is EffectState.OPEN:
                    self.effects[effect.id] = replace(effect, state=AT_THE_END[event.status])
        elif type(event) in EFFECT_EVENTS:
            name: str = event.effect  # type: ignore[attr-defined]
            after = evolve_effect(self.effects.get(name), event)
            if isinstance(event, EffectOpened):
                self.effects.pop(name, None)  # the order is that of the last opening
            if after is not None:
                self.effects[name] = after

    # -- one notice for each event that a person sees something of

    def _on_created(self, event: RunCreated) -> None:
        self._created = event

    def _on_finished(self, event: RunFinished) -> None:
        self._finished = event

    def _on_plan(self, event: PlanPublished) -> None:
        self._steps.publish(event.steps)

    def _on_step_started(self, event: StepStarted) -> None:
        self._steps.begin(event.step, event.title, event.at)

    def _on_step_finished(self, event: StepFinished) -> None:
        self._steps.finish(event.step, event.at)

    def _on_approval_requested(self, event: ApprovalRequested) -> None:
        self._add(requested(event, self._steps.at_work))

    def _on_approval_decided(self, event: ApprovalDecided) -> None:
        if event.call in self._calls:
            self._calls[event.call].decide(event.decision)

    def _on_call_started(self, event: CallStarted) -> None:
        call = self._calls.get(event.call)
        if call is None:
            call = SeenCall(id=event.call, kind=event.kind, name=event.name)
        call.begin(event)
        if event.kind is CallKind.RUN and self.state is not None:
            call.run = f"{self.state.run}.{event.call}"  # as a driver names it
        self._add(call)

    def _add(self, call: SeenCall) -> None:
        self._calls[call.id] = call
        self._steps.add_call(call)
        for chunk in self._early.pop(call.id, ()):
            self.hear(chunk)

    def _on_call_finished(self, event: CallFinished) -> None:
        verb = self._verbs.get(event.verb or "")
        if event.call in self._calls:
            self._calls[event.call].end(event, None if verb is None else verb.verb)

    def _on_call_resolved(self, event: CallResolved) -> None:
        if event.call in self._calls:
            self._calls[event.call].resolve(event)

    def _on_call_checked(self, event: CallChecked) -> None:
        if event.call in self._calls:
            self._calls[event.call].check(event)

    def _on_verb_accepted(self, event: VerbAccepted) -> None:
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

    def _on_instruction_delivered(self, event: InstructionDelivered) -> None:
        told = self._instructions.get(event.accepted)
        if told is not None:
            self._instructions[event.accepted] = replace(told, diff=event.diff, delivered=True)

    def _on_verb_settled(self, event: VerbSettled) -> None:
        self._receipts.append(event.receipt)
        told = self._instructions.get(event.accepted)
        if told is not None and told.delivered is None and event.receipt.delivered is not None:
            self._instructions[event.accepted] = replace(told, delivered=event.receipt.delivered)

    def _on_reason(self, event: ReasonAdded) -> None:
        self._reasons.append(ReasonView(reason=event.reason, by=event.by, at=event.at, note=event.note))

    def _on_flagged(self, event: WatcherFlagged) -> None:
        self._flags.append(FlagView(watcher=event.watcher, what=event.what, at=event.at, call=event.call))


_NOTICES: Final[Mapping[type[Event], Callable[[Viewer, Any], None]]] = {
    RunCreated: Viewer._on_created,
    RunFinished: Viewer._on_finished,
    PlanPublished: Viewer._on_plan,
    StepStarted: Viewer._on_step_started,
    StepFinished: Viewer._on_step_finished,
    ApprovalRequested: Viewer._on_approval_requested,
    ApprovalDecided: Viewer._on_approval_decided,
    CallStarted: Viewer._on_call_started,
    CallFinished: Viewer._on_call_finished,
    CallChecked: Viewer._on_call_checked,
    CallResolved: Viewer._on_call_resolved,
    VerbAccepted: Viewer._on_verb_accepted,
    VerbSettled: Viewer._on_verb_settled,
    ReasonAdded: Viewer._on_reason,
    InstructionDelivered: Viewer._on_instruction_delivered,
    WatcherFlagged: Viewer._on_flagged,
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
    return viewer.view(at)


def _settling(state: State, effects: Sequence[Effect]) -> tuple[SettlingView, ...]:
    return tuple(
        SettlingView(verb=verb.verb, by=verb.by, at=verb.accepted_at, waiting_for=obstacle(state, verb, effects) or "")
        for verb in state.verbs
        if verb.superseded_by is None
    )
