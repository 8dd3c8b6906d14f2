"""One call as a person sees it, from its request to its end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from checkrein.agents.threads import told_of
from checkrein.control.view import CallView, CheckView, Shown
from checkrein.core.effects import Effect
from checkrein.core.events import ApprovalRequested, CallChecked, CallFinished, CallResolved, CallStarted
from checkrein.core.state import State
from checkrein.core.words import Answer, CallKind, Decision, EffectState, Outcome, Status, Verb

WAITS_FOR_APPROVAL: Final = "waiting for approval"

_SHOWN: Final = {
    Outcome.COMPLETED: Shown.DONE,
    Outcome.FAILED: Shown.FAILED,
    Outcome.ABORTED: Shown.CANCELLED,
    Outcome.KILLED: Shown.CANCELLED,
    Outcome.DETACHED: Shown.CANCELLED,
    Outcome.IN_DOUBT: Shown.CANCELLED,
}


@dataclass(slots=True, eq=False)
class SeenCall:
    """What the records have said about one call so far."""

    id: str
    kind: CallKind
    name: str
    step: int | None = None
    attempt: int = 1
    arguments: Any = None
    run: str | None = None
    requested_at: float | None = None
    decision: Decision | None = None
    started_at: float | None = None
    finished_at: float | None = None
    outcome: Outcome | None = None
    result: Any = None
    error: str | None = None
    stopped_by: Verb | None = None
    resolved: Answer | None = None
    checked: CheckView | None = None
    text: str = ""
    thinking: str = ""
    files: tuple[str, ...] = ()
    _early: dict[int, str] = field(default_factory=dict)
    """Text of attempts whose start has not been read yet."""
    _is_told: bool = False
    """The whole text is known from the record of its end."""
    _changes: int = 0
    _key: tuple[object, ...] | None = None
    _view: CallView | None = field(default=None, repr=False)

    # -- what is said about it

    def begin(self, event: CallStarted) -> None:
        self.text = self._early.pop(event.attempt, "")
        self.name, self.kind, self.attempt = event.name, event.kind, event.attempt
        self.step = self.step if event.step is None else event.step
        self.arguments = decoded(event.arguments)
        self.started_at, self.finished_at, self.outcome = event.at, None, None
        self.result = self.error = self.stopped_by = self.resolved = self.checked = None
        self._is_told = False
        self._changes += 1

    def end(self, event: CallFinished, stopped_by: Verb | None) -> None:
        self.finished_at, self.outcome, self.error, self.stopped_by = event.at, event.outcome, event.error, stopped_by
        self.files = event.files
        self._take_result(event.result)
        self._changes += 1

    def resolve(self, event: CallResolved) -> None:
        self.resolved = event.answer
        if event.answer is Answer.HAPPENED:
            self._take_result(event.result)
        self._changes += 1

    def check(self, event: CallChecked) -> None:
        self.checked = CheckView(at=event.at, answer=event.answer, note=event.note)

    def decide(self, decision: Decision) -> None:
        self.decision = decision
        self._changes += 1

    def hear(self, attempt: int, offset: int, text: str) -> None:
        """A piece of streamed text. Hearing one again changes nothing, and one of an earlier attempt is past."""
        if self.started_at is None or attempt > self.attempt:
            self._early[attempt] = _joined(self._early.get(attempt, ""), offset, text)
        elif attempt == self.attempt and not self._is_told:
            self.text = _joined(self.text, offset, text)
            self._changes += 1

    def _take_result(self, result: msgspec.Raw | None) -> None:
        """What a model said is its text; of the rest only the value counts."""
        if self.kind is CallKind.MODEL:
            told = told_of(result)
            if told is not None:
                self._is_told = True
                self.text, self.thinking = told.message.text, told.message.thinking
            elif isinstance(value := decoded(result), str):  # a stream that a program read as a call
                self._is_told, self.text = True, value
            return
        self.result = decoded(result)
        if self.kind is CallKind.ASK and isinstance(self.result, str):
            self.text = self.result

    # -- how it looks

    def view(self, state: State, effect: Effect | None) -> CallView:
        live = state.live.get(self.id)
        doubt = state.doubts.get(self.id)
        key = (
            self._changes,
            None if live is None else (live.stop, live.hold, state.status),
            doubt is not None and doubt.person,
            self.id in state.again and state.status,
            None if effect is None else effect.state,
            state.is_finished,
        )
        if key != self._key or self._view is None:
            self._key, self._view = key, self._made(state, effect)
        return self._view

    def _made(self, state: State, effect: Effect | None) -> CallView:
        shown, now = self._looks(state, effect)
        return CallView(
            id=self.id,
            kind=self.kind,
            name=self.name,
            shown=shown,
            now=now,
            step=self.step,
            attempt=self.attempt,
            arguments=self.arguments,
            result=self.result,
            error=self.error,
            text=self.text,
            thinking=self.thinking,
            started_at=self.started_at,
            finished_at=self.finished_at,
            stopped_by=self.stopped_by,
            run=self.run,
            files=self.files,
        )

    def _looks(self, state: State, effect: Effect | None) -> tuple[Shown, str]:
        if self.started_at is None:
            return self._looks_before(state)
        if self.outcome is None:
            return self._looks_live(state)
        if self.kind is not CallKind.UNDO and effect is not None and effect.state is EffectState.UNDONE:
            was_done = self.outcome is Outcome.COMPLETED or self.resolved is not None
            return (Shown.UNDONE, "undone") if was_done else (Shown.CANCELLED, f"{self.outcome.value}, undone")
        if self.resolved is Answer.HAPPENED:
            return Shown.DONE, "happened"
        if self.id in state.again and not state.is_finished:
            is_paused = state.status is Status.PAUSED
            return (Shown.PAUSED, "paused") if is_paused else (Shown.QUEUED, "to be asked again")
        if self.resolved is not None:
            return Shown.CANCELLED, "did not happen" if self.resolved is Answer.DID_NOT_HAPPEN else "to be undone"
        doubt = state.doubts.get(self.id)
        if doubt is not None and doubt.person:
            return Shown.NEEDS_YOU, self.outcome.value
        return _SHOWN[self.outcome], self.outcome.value

    def _looks_before(self, state: State) -> tuple[Shown, str]:
        if self.decision is Decision.APPROVED and not state.is_finished:
            return Shown.QUEUED, "approved"
        if self.decision is None and not state.is_finished:
            return Shown.NEEDS_YOU, WAITS_FOR_APPROVAL
        word = Decision.WITHDRAWN if self.decision in (None, Decision.APPROVED) else self.decision
        return Shown.CANCELLED, word.value

    def _looks_live(self, state: State) -> tuple[Shown, str]:
        live = state.live.get(self.id)
        if live is not None and live.stop is not None:
            return Shown.RUNNING, "stopping"
        if live is not None and live.hold and state.status is Status.PAUSED:
            return Shown.PAUSED, "held"
        return Shown.RUNNING, "running"


def requested(event: ApprovalRequested, step: int | None) -> SeenCall:
    """A call that a person is asked about before it begins."""
    return SeenCall(
        id=event.call,
        kind=CallKind.TOOL,
        name=event.name,
        step=step,
        arguments=decoded(event.arguments),
        requested_at=event.at,
    )


def _joined(text: str, offset: int, more: str) -> str:
    return text if text[offset : offset + len(more)] == more else text[:offset] + more


def decoded(raw: msgspec.Raw | None) -> Any:
    """The value behind JSON of a journal."""
    return None if raw is None else msgspec.json.decode(bytes(raw))
