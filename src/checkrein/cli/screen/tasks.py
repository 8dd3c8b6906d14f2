"""The task list: every step with its shape and word, the calls of the step at work, and what the run has changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from rich.cells import cell_len, set_cell_size

from checkrein.cli.screen.sheet import Paragraph, paragraph
from checkrein.cli.screen.words import ADDED, ATTENTION, LOOKS, QUIET, STRONG, Look, fates, one_line, plural, span
from checkrein.cli.words import arguments
from checkrein.control.view import CallView, EffectView, InstructionView, RunView, Shown, StepView
from checkrein.core.words import CallKind, EffectState

_AT_WORK: Final = frozenset({Shown.RUNNING, Shown.PAUSED, Shown.NEEDS_YOU})
_STEPS: Final = 40
"""How many steps are listed at most."""
_LATEST: Final = 3
_CALLS: Final = 6
"""How many calls of the step at work are listed: the latest."""

_EFFECTS: Final[Mapping[EffectState, Look]] = {
    EffectState.OPEN: Look("○", "open", ""),
    EffectState.SETTLED: Look("✓", "kept", QUIET),
    EffectState.UNDONE: Look("↶", "undone", "ansi_red"),
    EffectState.IN_DOUBT: Look("◆", "unknown", "bold ansi_magenta"),
    EffectState.LEFT: Look("✗", "left as it is", "bold ansi_red"),
}


def task_list(view: RunView, width: int, now: float, *, is_compact: bool = False) -> list[Paragraph]:
    """The whole list; a compact one has no heading, and only such calls as are at work."""
    calls = {call.id: call for call in view.calls}
    lines = [paragraph(("STEPS", QUIET))] if not is_compact else []
    if not view.steps:
        lines.append(paragraph(("none yet", QUIET)))
    before, steps, after = _around_work(view.steps)
    word = max((len(LOOKS[step.shown].word) for step in steps), default=0)
    if before:
        lines.append(paragraph((f"… {plural(before, 'step')} before", QUIET)))
    for step in steps:
        lines.append(_step(step, width, now, word))
        if step.shown in _AT_WORK:
            listed = [call for call in _calls_of(step, calls) if not is_compact or call.shown in _AT_WORK]
            lines += (_call(call, width, now) for call in listed)
    if after:
        lines.append(paragraph((f"… {plural(after, 'step')} after", QUIET)))
    return [*lines, *_changes(view), *_told(view), *_flags(view)]


def _around_work(steps: Sequence[StepView]) -> tuple[int, Sequence[StepView], int]:
    """The steps around those at work, and how many there are before and after them."""
    at_work = next((n for n, step in enumerate(steps) if step.shown in _AT_WORK), len(steps))
    first = max(0, min(at_work - _STEPS // 2, len(steps) - _STEPS))
    shown = steps[first : first + _STEPS]
    return first, shown, len(steps) - first - len(shown)


def _step(step: StepView, width: int, now: float, word: int) -> Paragraph:
    look, is_at_work = LOOKS[step.shown], step.shown in _AT_WORK
    took = _took(step, now)
    head = f"{look.shape} {look.word:<{word}} "
    title = _fitted(one_line(step.title), width - cell_len(head) - len(took) - 1)
    return paragraph(
        (head, look.style), (title, STRONG if is_at_work else ""), (f" {took}", QUIET), longest=1, is_marked=is_at_work
    )


def _calls_of(step: StepView, calls: Mapping[str, CallView]) -> Iterator[CallView]:
    """The latest calls of a step. A step that was made of one call is that call, and is not said twice."""
    made_of_call = len(step.calls) == 1 and step.calls[0] in calls and calls[step.calls[0]].name == step.title
    if made_of_call:
        return
    for call in step.calls[-_CALLS:]:
        if call in calls and calls[call].kind is not CallKind.UNDO:
            yield calls[call]


def _call(call: CallView, width: int, now: float) -> Paragraph:
    look = LOOKS[call.shown]
    took = _took(call, now)
    name = "model" if call.kind is CallKind.MODEL else one_line(call.name, 40)
    word = one_line(call.now)
    head = f"  {look.shape} "
    text = f"{name}, {word}"
    if call.kind is CallKind.TOOL and call.arguments:
        text = f"{name}({arguments(call.arguments, 40)}), {word}"
    if cell_len(text) > width - len(head) - len(took) - 1:
        text = f"{name}, {word}"
    text = _fitted(text, width - len(head) - len(took) - 1)
    return paragraph((head, look.style), text, (f" {took}", QUIET), longest=1)


def _took(what: StepView | CallView, now: float) -> str:
    """How long it took, or takes; nothing where it neither ended by itself nor goes on."""
    goes_on = what.finished_at is None and what.shown is Shown.RUNNING
    return span(what.started_at, what.finished_at, now) if goes_on or what.finished_at is not None else ""


# -- what it changed, was told, and was noticed at


def _changes(view: RunView) -> list[Paragraph]:
    """What the run has changed in the world, in plain words."""
    return _section("CHANGED", [_effect(effect) for effect in view.effects[-_STEPS:]])


def _told(view: RunView) -> list[Paragraph]:
    return _section("TOLD", [_instruction(told, has_it) for told, has_it in list(fates(view))[-_LATEST:]])


def _flags(view: RunView) -> list[Paragraph]:
    flags = [
        paragraph((f"⚑ {one_line(flag.watcher, 40)}: ", ATTENTION), one_line(flag.what), indent=2, longest=2)
        for flag in view.flags[-_LATEST:]
    ]
    return _section("FLAGGED", flags)


def _section(heading: str, texts: list[Paragraph]) -> list[Paragraph]:
    return [paragraph(""), paragraph((heading, QUIET)), *texts] if texts else []


def _instruction(told: InstructionView, has_it: bool | None) -> Paragraph:
    fate = {True: "", False: " · not delivered", None: " · on its way"}[has_it]
    text = one_line(told.diff or f"+ {told.text}", 300)
    return paragraph((text, ADDED), (f" {one_line(told.by, 40)}{fate}", QUIET), indent=2, longest=2)


def _effect(effect: EffectView) -> Paragraph:
    look = _EFFECTS[effect.now]
    rest = ""
    if effect.now is EffectState.OPEN:
        rest = ", cancel undoes it" if effect.can_undo else ", cannot be undone"
    elif effect.why:
        rest = f", {one_line(effect.why)}"
    return paragraph(
        (f"{look.shape} ", look.style), one_line(effect.what), (f" {look.word}{rest}", QUIET), indent=2, longest=2
    )


def _fitted(text: str, width: int) -> str:
    """The text in exactly `width` cells."""
    if width < 1:
        return ""
    if cell_len(text) > width:
        text = set_cell_size(text, width - 1) + "…"
    return set_cell_size(text, width)
