"""The live text: what the model says as it says it, calls, instructions and flags among it, and the receipt at the end.

Only the tail is shown; the whole stays in the journal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from checkrein.cli import output
from checkrein.cli.screen.sheet import Paragraph, paragraph
from checkrein.cli.screen.style import (
    ADDED,
    ALARM,
    ATTENTION,
    LOOKS,
    QUIET,
    STRONG,
    Look,
    fates,
    look_of,
    now_word,
    one_line,
    span,
)
from checkrein.cli.wording import MOST_ARGUMENTS, receipt_lines, result, values_shown
from checkrein.control.view import CallView, FlagView, InstructionView, RunView, Shown
from checkrein.core.enums import TERMINAL, CallKind, Status, Verb
from checkrein.core.escape import printable
from checkrein.core.receipts import Receipt
from checkrein.core.wording import CALL_PREFIXES, STOPPED_BY, plural
from checkrein.exec.profiles import started_again

TAIL_CHARS: Final = 4_000
"""How much of one text is shown: its end."""
CALLS: Final = 60
"""How many calls are shown: the latest."""
_ARGUMENT: Final = 60
"""How much of each argument is shown in the line of its call."""
_CURSOR: Final = "▌"
_GUTTER: Final = "┊ "
"""Before every line of a model's text, so that nothing it says can pass for a line of ours."""


def live_text(view: RunView, now: float, *, is_kept: bool = True) -> list[Paragraph]:
    """Everything in the order it happened. Of a run that is not kept nobody is told how to go on."""
    calls = view.calls[-CALLS:]
    since = calls[0].started_at or 0.0 if len(calls) < len(view.calls) else 0.0
    happened: list[tuple[float, int, list[Paragraph]]] = []
    at = 0.0
    for n, call in enumerate(calls):
        # One that was denied never began: it stands where it was asked for, behind the call before it.
        at = max(at, call.started_at or at)
        happened.append((at, n, list(_call(call, now))))
    for n, (told, has_it) in enumerate(fates(view)):
        happened.append((told.at, n - 1_000, [_instruction(told, has_it)]))
    for n, flag in enumerate(view.flags):
        happened.append((flag.at, n + 1_000, [_flag(flag)]))
    happened.sort(key=lambda item: item[:2])
    lines: list[Paragraph] = []
    if since:
        lines.append(paragraph(("… what came before is in the journal", QUIET)))
    for at, _, texts in happened:
        if at >= since:
            lines += texts
    return [*lines, *_ending(view, is_kept=is_kept)]


# -- calls


def _call(call: CallView, now: float) -> Iterator[Paragraph]:
    match call.kind:
        case CallKind.MODEL:
            yield from _model(call)
        case CallKind.ASK:
            yield from _question(call)
        case _:
            yield _work(call, now)


def _model(call: CallView) -> Iterator[Paragraph]:
    is_live = call.shown is Shown.RUNNING
    if not call.text and is_live:
        yield paragraph(("the model is at work ", QUIET), (_CURSOR, "ansi_blue"), gutter=_GUTTER)
    yield from _texts(call.text, is_live=is_live)
    if call.stopped_by is not None:
        yield paragraph((f"■ stopped there by {STOPPED_BY[call.stopped_by]}", QUIET))
    elif call.error:
        yield paragraph((f"✗ {one_line(call.error)}", ALARM), indent=2)


def _texts(text: str, *, is_live: bool = False, style: str = "") -> Iterator[Paragraph]:
    """The end of a text, a paragraph each line, so that while it streams only its last line is wrapped again."""
    if len(text) > TAIL_CHARS:
        yield paragraph((f"… {len(text) - TAIL_CHARS:,} characters before this are in the journal", QUIET))
        text = text[-TAIL_CHARS:]
    lines = printable(text).rstrip("\n").split("\n") if text else []
    for line in lines[:-1]:
        yield paragraph((line, style), gutter=_GUTTER)
    for line in lines[-1:]:
        yield paragraph((line, style), *([(_CURSOR, "ansi_blue")] if is_live else []), gutter=_GUTTER)


def _question(call: CallView) -> Iterator[Paragraph]:
    yield paragraph(("? ", "bold ansi_cyan"), (result(call.arguments, 400), STRONG), indent=2)
    is_live = call.shown is Shown.RUNNING
    yield from _texts(call.text, is_live=is_live, style="ansi_cyan")
    if not call.text and is_live:
        yield paragraph(("the run goes on meanwhile ", QUIET), (_CURSOR, "ansi_cyan"))
    if call.error:
        yield paragraph((f"✗ {one_line(call.error)}", ALARM), indent=2)


def _work(call: CallView, now: float) -> Paragraph:
    look = LOOKS[call.shown]
    what = CALL_PREFIXES.get(call.kind, "")
    goes_on = call.shown is Shown.RUNNING
    took = span(call.started_at, call.finished_at, now) if goes_on or call.finished_at is not None else ""
    given = f"({_given(call)})" if call.kind is CallKind.TOOL else ""
    ended = _outcome(call)
    return paragraph(
        (f"{look.shape} ", look.style),
        (f"{what}{one_line(call.name, 60)}", STRONG),
        (given, QUIET),
        f" {now_word(call)}",
        (f" {took}" if took else "", QUIET),
        (f" → {ended}" if ended else "", "" if call.error is None else "ansi_red"),
        indent=2,
    )


def _given(call: CallView) -> str:
    """The arguments on one line, each shortened by itself."""
    shown = [value.shortened(_ARGUMENT) for value in values_shown(call)]
    named = [f"{value.name}={one_line(value.text)}{value.more}" for value in shown[:MOST_ARGUMENTS]]
    rest = len(shown) - MOST_ARGUMENTS
    return ", ".join([*named, *([f"… {plural(rest, 'more argument')}"] if rest > 0 else [])])


def _outcome(call: CallView) -> str:
    if call.error:
        return one_line(call.error, 160)
    return result(call.result, 100) if call.shown is Shown.DONE else ""


# -- what people and watchers said


def _instruction(told: InstructionView, has_it: bool | None) -> Paragraph:
    said = told.diff or f"+ {told.text}"
    fate = {True: "the agent has it", False: "the agent did not get it", None: "on its way to the agent"}[has_it]
    is_lost = has_it is False
    return paragraph(
        (f"{one_line(told.by, 40)} ({told.verb.value}) ", QUIET),
        (one_line(said, 400), "ansi_red" if is_lost else ADDED),
        (f" · {fate}", ALARM if is_lost else QUIET),
        indent=2,
    )


def _flag(flag: FlagView) -> Paragraph:
    return paragraph((f"⚑ {one_line(flag.watcher, 40)}: ", ATTENTION), one_line(flag.what, 400), indent=2)


# -- how it stands when nothing goes on


def _ending(view: RunView, *, is_kept: bool) -> Sequence[Paragraph]:
    """The receipt of what stopped it, or its result."""
    lines: list[Paragraph] = []
    if view.status is Status.COMPLETED:
        lines = [paragraph(("✓ Completed.", "bold ansi_green"), is_marked=True), *_result(view)]
    elif view.status is Status.FAILED:
        lines = [paragraph(("✗ Failed. ", ALARM), one_line(view.error or "", 600), indent=2, is_marked=True)]
    stopped_by = _STOP_OF.get(view.status)
    receipt = next((r for r in reversed(view.receipts) if r.verb is stopped_by and r.superseded_by is None), None)
    if receipt is not None:
        lines += _receipt(receipt, look_of(view))
    if view.status in TERMINAL and is_kept:
        lines.append(paragraph(("To go on from here: ", QUIET), _how_to_go_on(view), indent=2))
    return [paragraph(""), *lines] if lines else []


def _how_to_go_on(view: RunView) -> str:
    programs = [call.arguments["command"] for call in view.calls if call.kind is CallKind.PROCESS and call.arguments]
    return output.command(started_again(programs[0])) if programs else output.go_on_from(view.id)


def _receipt(receipt: Receipt, look: Look) -> Iterator[Paragraph]:
    head, *rest = receipt_lines(receipt)
    why = f": {one_line(receipt.reason)}" if receipt.reason else "."
    by = f" By {one_line(receipt.by, 40)}{why}"
    yield paragraph((f"{look.shape} ", look.style), (head, look.style), (by, QUIET), indent=2, is_marked=True)
    for line in rest:
        text = line.lstrip(" ")
        yield paragraph(f"  {line}", indent=2 + len(line) - len(text) + 2)


_STOP_OF: Final = {Status.PAUSED: Verb.PAUSE, Status.CANCELLED: Verb.CANCEL, Status.KILLED: Verb.HALT}


def _result(view: RunView) -> Iterator[Paragraph]:
    said = next((call.text for call in reversed(view.calls) if call.kind is CallKind.MODEL), "")
    if isinstance(view.result, str) and view.result.strip() == said.strip():
        return
    if view.result is not None:
        yield from _texts(view.result if isinstance(view.result, str) else result(view.result, TAIL_CHARS))
