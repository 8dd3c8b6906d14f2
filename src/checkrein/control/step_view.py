"""The task list a person sees: from the plan where there is one, else made of the tool calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from checkrein.control.call_view import SeenCall
from checkrein.control.view import Shown, StepView
from checkrein.core.effects import Effect
from checkrein.core.enums import CallKind, EffectState, Status
from checkrein.core.state import State


@dataclass(slots=True)
class _Step:
    number: int
    title: str
    calls: list[str] = field(default_factory=list)
    tools: list[str] = field(default_factory=list)
    started_at: float | None = None
    finished_at: float | None = None


class Steps:
    """The steps of one run, as its records tell of them."""

    def __init__(self) -> None:
        self._steps: dict[int, _Step] = {}
        self._from_calls: dict[str, SeenCall] = {}

    # -- what is said about them

    def publish(self, titles: Iterable[str]) -> None:
        """A plan replaces the one before; a step that stays where it was stays what it was."""
        before, self._steps = self._steps, {}
        for number, title in enumerate(titles, start=1):
            known = before.get(number)
            self._steps[number] = known if known is not None and known.title == title else _Step(number, title)

    def begin(self, number: int, title: str, at: float) -> None:
        step = self._steps.setdefault(number, _Step(number, title))
        step.title, step.started_at, step.finished_at = title, at, None

    def finish(self, number: int, at: float) -> None:
        if number in self._steps:
            self._steps[number].finished_at = at

    def add_call(self, call: SeenCall) -> None:
        if call.kind in (CallKind.TOOL, CallKind.RUN):
            self._from_calls[call.id] = call
        step = self._steps.get(call.step or 0)
        if step is not None and call.id not in step.calls:
            step.calls.append(call.id)
            if call.kind in (CallKind.TOOL, CallKind.RUN):
                step.tools.append(call.id)

    @property
    def at_work(self) -> int | None:
        """The number of the step that was begun last and is not finished."""
        begun = [step for step in self._steps.values() if step.started_at is not None and step.finished_at is None]
        return max(begun, key=lambda step: (step.started_at or 0.0, step.number)).number if begun else None

    @property
    def are_planned(self) -> bool:
        """Whether somebody has said what the steps are; else they are made of the calls."""
        return bool(self._steps)

    # -- how they look

    def views(self, state: State, effects: Mapping[str, Effect]) -> tuple[StepView, ...]:
        if not self.are_planned:
            made_of = enumerate(self._from_calls.values(), start=1)
            return tuple(_made_of_call(number, call, state, effects) for number, call in made_of)
        waiting_calls = {waiting.call for waiting in state.asked()}
        views = []
        for step in sorted(self._steps.values(), key=lambda step: step.number):
            needs_you = not waiting_calls.isdisjoint(step.calls) or (None in waiting_calls and step.finished_at is None)
            views.append(
                StepView(
                    number=step.number,
                    title=step.title,
                    shown=_looks(step, state, effects, needs_you=needs_you),
                    calls=tuple(step.calls),
                    started_at=step.started_at,
                    finished_at=step.finished_at,
                )
            )
        return tuple(views)


def _looks(step: _Step, state: State, effects: Mapping[str, Effect], *, needs_you: bool) -> Shown:
    if step.started_at is None:
        return Shown.NOT_STARTED if state.is_finished else Shown.QUEUED
    if step.finished_at is None:
        if state.is_finished:
            return _AT_THE_END[state.status]
        if needs_you:
            return Shown.NEEDS_YOU
        return Shown.PAUSED if state.status is Status.PAUSED else Shown.RUNNING
    # Work that changed nothing still stands: a step is undone when nothing of what was done in it does.
    done = [effects.get(call) for call in step.tools]
    if done and all(effect is not None and effect.state is EffectState.UNDONE for effect in done):
        return Shown.UNDONE
    return Shown.DONE


_AT_THE_END = {
    Status.COMPLETED: Shown.DONE,
    Status.FAILED: Shown.FAILED,
    Status.CANCELLED: Shown.CANCELLED,
    Status.KILLED: Shown.CANCELLED,
}


def _made_of_call(number: int, call: SeenCall, state: State, effects: Mapping[str, Effect]) -> StepView:
    view = call.view(state, effects.get(call.id))
    shown = view.shown
    if shown is Shown.RUNNING and state.status is Status.PAUSED:
        shown = Shown.PAUSED
    return StepView(
        number=number,
        title=view.name,
        shown=shown,
        calls=(view.id,),
        started_at=view.started_at,
        finished_at=view.finished_at,
    )
