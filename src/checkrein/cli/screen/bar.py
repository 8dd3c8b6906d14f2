"""The control bar: pause, redirect and cancel with what each would do, the time, the steps and the caps.

Always at the bottom and always whole; where there is little room it says less about each, never fewer of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from checkrein.cli.screen.sheet import Paragraph, paragraph
from checkrein.cli.screen.style import ALARM, ATTENTION, KEY, QUIET, STRONG, Look, clock, look_of, one_line
from checkrein.control.view import CallView, RunView, SettlingView, Shown
from checkrein.core.enums import AT_WORK, TERMINAL, CallKind, Status, Verb
from checkrein.core.escape import printable
from checkrein.core.verb_specs import SPECS
from checkrein.core.wording import SETTLING, amount, plural

TALL: Final = 20
"""From so many rows on there is room for rules and hints."""
SHORT: Final = 14
"""Below so many rows only the most needed is shown."""
_STOPS: Final = {Status.PAUSING: Verb.PAUSE, Status.CANCELLING: Verb.CANCEL, Status.REDIRECTING: Verb.REDIRECT}


class Situation(NamedTuple):
    """What the bar shows besides the run itself."""

    now: float
    owns: bool = False
    is_composing: bool = False
    away: str = ""
    """Why the store cannot be read, if it cannot."""
    away_seconds: float = 0.0
    is_driven: bool = True
    notice: str = ""
    """One line about what a person asked for last."""
    rows: int = 24
    """How high the whole screen is."""
    is_kept: bool = True
    """False: nothing of the run is there any more once it is left."""


def bar(view: RunView, situation: Situation) -> list[Paragraph]:
    """The lines of the bar, from top to bottom."""
    lines: list[Paragraph] = []
    if situation.away:
        lines.append(_away(situation))
    if situation.notice:
        # A command in it stands on lines of its own and is never cut: it is there to be copied.
        words, _, command = situation.notice.partition("\n")
        lines.append(paragraph((one_line(words, 300), ATTENTION), longest=2 if situation.rows >= SHORT else 1))
        if command and situation.rows >= SHORT:
            lines.append(paragraph((printable(command), STRONG)))
    lines.append(_standing(view, situation))
    lines += _controls(view, situation)
    if situation.rows >= TALL:
        lines.append(_hints(view, situation))
    return lines


def _away(situation: Situation) -> Paragraph:
    seconds = int(situation.away_seconds)
    return paragraph(
        (f"✗ The store cannot be read, {seconds} s: what you see may be old. Trying again. ", ALARM),
        (one_line(situation.away, 200), QUIET),
        longest=2,
    )


# -- how it stands


def _standing(view: RunView, situation: Situation) -> Paragraph:
    look = look_of(view)
    if situation.away:
        look = Look("✗", f"{look.word.rstrip('…')} when last seen", QUIET)
    facts = [*_steps(view), *_caps(view)]
    note = ""
    if not situation.is_driven and view.status in AT_WORK:
        note = "  no process drives it now"
    return paragraph(
        look.part(),
        (f"  {clock(view.elapsed_seconds)}", STRONG),
        (f"  {' · '.join(facts)}" if facts else "", QUIET if situation.away else ""),
        (note, ALARM),
        longest=2 if situation.rows >= SHORT else 1,
        fill="" if situation.rows >= TALL else "reverse",  # where there is no room for a rule, this divides
    )


def _steps(view: RunView) -> Iterator[str]:
    """How far it is; without a plan nobody knows of how many, so its calls are counted."""
    if not view.planned:
        calls = sum(call.kind in (CallKind.TOOL, CallKind.RUN) for call in view.calls)
        if calls:
            yield plural(calls, "call")
    elif view.status in TERMINAL:
        yield f"{sum(step.shown is Shown.DONE for step in view.steps)} of {plural(len(view.steps), 'step')} done"
    else:
        begun = [step.number for step in view.steps if step.shown not in (Shown.QUEUED, Shown.NOT_STARTED)]
        yield f"step {max(begun, default=0)} of {len(view.steps)}"


def _caps(view: RunView) -> Iterator[str]:
    """What is used against what is allowed; what has no cap is said too."""
    capped = " ".join(cap.label for cap in view.caps)
    about = "about " if view.usage.estimated else ""
    for cap in view.caps:
        if cap.label.startswith("Elapsed"):
            yield f"at most {clock(cap.allowed)}"
        elif cap.label.startswith("Tokens"):
            yield f"{about}{amount(int(cap.used or 0))} of {amount(int(cap.allowed))} tokens"
        else:
            yield cap.words
    if "Turns" not in capped and view.usage.turns:
        yield plural(view.usage.turns, "turn")
    if "Tokens" not in capped and view.usage.tokens:
        yield f"{about}{amount(view.usage.tokens)} tokens"
    if "Cost" not in capped and view.usage.cost_usd:
        yield f"${view.usage.cost_usd:.2f}"


# -- the controls


class Row(NamedTuple):
    """A key, what it does, and what follows from that, or why it does nothing now."""

    key: str
    label: str
    consequence: str
    is_enabled: bool = True
    style: str = STRONG


def _controls(view: RunView, situation: Situation) -> list[Paragraph]:
    rows = list(_rows(view, situation))
    width = max(len(row.label) for row in rows)
    return [_drawn(row, width, situation) for row in rows]


def _rows(view: RunView, situation: Situation) -> Iterator[Row]:
    now = situation.now
    if view.status in TERMINAL:
        yield Row("q", "Leave", "everything stays in the journal" if situation.is_kept else "the run has ended")
        return
    yield _control(view, Verb.RESUME if view.status is Status.PAUSED else Verb.PAUSE, "p", now)
    if view.status is Status.PAUSING and (waits := waited_for(view)):
        names = one_line(", ".join(dict.fromkeys(call.name for call in waits)), 60)
        yield Row("x", "Don't wait", f"abort {names}")
    yield _control(view, Verb.REDIRECT, "r", now)
    yield _control(view, Verb.CANCEL, "c", now)


def _control(view: RunView, verb: Verb, key: str, now: float) -> Row:
    control, settling = view.controls.get(verb), settling_of(view)
    if settling is not None and settling.verb is verb:
        return Row(key, SETTLING[verb], _waits(settling, now), style=ATTENTION)
    if control is None:
        return Row(key, label(verb), "", is_enabled=False)
    consequence = one_line(control.consequence, 300)
    if verb is Verb.RESUME and control.enabled:
        consequence += "; i resumes with an instruction"
    return Row(key, label(verb), consequence, control.enabled)


def label(verb: str) -> str:
    """What a verb is called on the screen."""
    return SPECS[verb].name.replace("_", " ").capitalize()


def _drawn(row: Row, width: int, situation: Situation) -> Paragraph:
    is_usable = row.is_enabled and not situation.away
    why = row.consequence if row.is_enabled or not row.consequence else f"not now: {row.consequence}"
    return paragraph(
        (f" {row.key} ", KEY if is_usable and not situation.is_composing else QUIET),
        (f" {row.label:<{width}}  ", row.style if is_usable else QUIET),
        (why, "" if is_usable else QUIET),
        indent=width + 6,
        longest=2 if situation.rows >= 24 else 1,
    )


def settling_of(view: RunView) -> SettlingView | None:
    """The verb that the run's status is about, while it settles."""
    verb = _STOPS.get(view.status)
    return next((s for s in reversed(view.settling) if s.verb is verb), None)


def waited_for(view: RunView) -> list[CallView]:
    """The calls that a pause waits for and that could be aborted instead."""
    return [
        call
        for call in view.calls
        if call.shown is Shown.RUNNING and call.now == "running" and call.kind in (CallKind.TOOL, CallKind.RUN)
    ]


def _waits(settling: SettlingView, now: float) -> str:
    seconds = int(now - settling.at)
    waiting = f"waits for {one_line(settling.waiting_for, 200)}" if settling.waiting_for else "about to be settled"
    return f"{waiting}, {seconds} s" if seconds >= 1 else waiting


def _hints(view: RunView, situation: Situation) -> Paragraph:
    if situation.is_composing:
        text = "Letters go into the field; Esc gives the keys back. Ctrl-C works as ever."
    elif view.status in TERMINAL:
        text = _SCROLLING
    elif not situation.owns:
        text = f"a Ask · q or Ctrl-C leaves, the run goes on · {_SCROLLING}"
    elif view.status is Status.PAUSED:
        text = f"a Ask · q leaves it paused · Ctrl-C twice cancels · {_SCROLLING}"
    else:
        text = f"a Ask · Ctrl-C pauses, twice cancels · {_SCROLLING}"
    return paragraph((text, QUIET), longest=1)


_SCROLLING: Final = "PgUp PgDn, Tab scroll"
