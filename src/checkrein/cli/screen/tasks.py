"""The task list: every step with its shape and word, the calls of the step at work, and what the run has changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from rich.cells import cell_len, set_cell_size

from checkrein.cli.screen.sheet import Paragraph, lines_of, paragraph
from checkrein.cli.screen.style import ADDED, ATTENTION, LOOKS, QUIET, STRONG, Look, fates, now_word, one_line, span
from checkrein.cli.wording import arguments
from checkrein.control.view import CallView, EffectView, InstructionView, RunView, Shown, StepView
from checkrein.core.enums import CallKind, EffectState
from checkrein.core.wording import plural

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


def task_list(
    view: RunView, width: int, now: float, *, is_compact: bool = False, rows: int | None = None
) -> list[Paragraph]:
    """The whole list; a compact one has no heading, and only such calls as are at work.

    What is given so many `rows` and needs more has no headings either, a line each for the latest changes, and as
    many steps around the work as there is room for: no heading ever stands above nothing.
    """
    steps = _listed_steps(view, width, now, is_compact=is_compact)
    sections = [_changes(view), _told(view), _flags(view)]
    whole = [*([] if is_compact else [_heading("STEPS")]), *steps]
    for heading, texts in zip(("CHANGED", "TOLD", "FLAGGED"), sections, strict=True):
        whole += [paragraph(""), _heading(heading), *texts] if texts else []
    if rows is None or len(lines_of(whole, max(1, width))[0]) <= rows:
        return whole
    return _squeezed(steps, [text for texts in sections for text in texts], max(1, rows))


def _heading(text: str) -> Paragraph:
    return paragraph((text, QUIET))


def _squeezed(steps: list[Paragraph], others: list[Paragraph], rows: int) -> list[Paragraph]:
    """The steps around the work, and below them the latest of what else there is to say, in so many lines."""
    kept = min(len(others), max(rows // 2, rows - len(steps)) if rows > 1 else 0)
    latest = [text._replace(longest=1) for text in others[len(others) - kept :]]
    room = rows - len(latest)
    at_work = next((n for n, step in enumerate(steps) if step.is_marked), len(steps) - 1)
    first = max(0, min(at_work - room // 2, len(steps) - room))
    return [*(step._replace(longest=1) for step in steps[first : first + room]), *latest]


def _listed_steps(view: RunView, width: int, now: float, *, is_compact: bool) -> list[Paragraph]:
    calls = {call.id: call for call in view.calls}
    lines: list[Paragraph] = []
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
    return lines


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
    word = now_word(call)
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
    return [_effect(effect) for effect in view.effects[-_STEPS:]]


def _told(view: RunView) -> list[Paragraph]:
    return [_instruction(told, has_it) for told, has_it in list(fates(view))[-_LATEST:]]


def _flags(view: RunView) -> list[Paragraph]:
    return [
        paragraph((f"⚑ {one_line(flag.watcher, 40)}: ", ATTENTION), one_line(flag.what), indent=2, longest=2)
        for flag in view.flags[-_LATEST:]
    ]


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
