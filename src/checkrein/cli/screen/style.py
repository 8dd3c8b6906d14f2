"""How things look in a terminal: a shape and a word for each, so that nothing is said by colour alone.

Everything here is made of parts, a text and a style each. A text is never read as markup, and nothing from outside gets
into one unless it went through `core.escape`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from checkrein.control.view import CallView, InstructionView, RunView, Shown
from checkrein.core import escape, wording
from checkrein.core.enums import MAY_WAIT, TERMINAL, Status
from checkrein.core.wording import OUTCOMES, SHOWN_WORDS, STATUS_WORDS, milliseconds

Part = tuple[str, str]
"""A text and its style."""

QUIET: Final = "dim"
STRONG: Final = "bold"
KEY: Final = "bold reverse"
ADDED: Final = "ansi_green"
ALARM: Final = "bold ansi_red"
ATTENTION: Final = "bold ansi_yellow"


class Look(NamedTuple):
    shape: str
    word: str
    style: str = ""

    def part(self) -> Part:
        return f"{self.shape} {self.word}", self.style


LOOKS: Final[Mapping[Shown, Look]] = {
    Shown.QUEUED: Look("○", SHOWN_WORDS[Shown.QUEUED], QUIET),
    Shown.RUNNING: Look("▶", SHOWN_WORDS[Shown.RUNNING], "bold ansi_blue"),
    Shown.PAUSED: Look("‖", SHOWN_WORDS[Shown.PAUSED], ATTENTION),
    Shown.DONE: Look("✓", SHOWN_WORDS[Shown.DONE], "ansi_green"),
    Shown.CANCELLED: Look("■", SHOWN_WORDS[Shown.CANCELLED], "ansi_red"),
    Shown.UNDONE: Look("↶", SHOWN_WORDS[Shown.UNDONE], "ansi_red"),
    Shown.FAILED: Look("✗", SHOWN_WORDS[Shown.FAILED], ALARM),
    Shown.NEEDS_YOU: Look("◆", SHOWN_WORDS[Shown.NEEDS_YOU], "bold ansi_magenta"),
    Shown.NOT_STARTED: Look("–", SHOWN_WORDS[Shown.NOT_STARTED], QUIET),
}
"""How a step or a call looks."""

STATUSES: Final[Mapping[Status, Look]] = {
    Status.QUEUED: Look("○", STATUS_WORDS[Status.QUEUED]),
    Status.RUNNING: LOOKS[Shown.RUNNING],
    Status.PAUSING: Look("◐", STATUS_WORDS[Status.PAUSING], ATTENTION),
    Status.PAUSED: LOOKS[Shown.PAUSED],
    Status.REDIRECTING: Look("◐", STATUS_WORDS[Status.REDIRECTING], "bold ansi_blue"),
    Status.CANCELLING: Look("◐", STATUS_WORDS[Status.CANCELLING], ALARM),
    Status.COMPLETED: Look("✓", STATUS_WORDS[Status.COMPLETED], "bold ansi_green"),
    Status.FAILED: Look("✗", STATUS_WORDS[Status.FAILED], ALARM),
    Status.CANCELLED: Look("■", STATUS_WORDS[Status.CANCELLED], ALARM),
    Status.KILLED: Look("■", STATUS_WORDS[Status.KILLED], ALARM),
}
"""How a run looks."""


def look_of(view: RunView) -> Look:
    """How the run looks; one that waits for a person says so besides."""
    look = STATUSES[view.status]
    if not view.driven:
        look = Look(look.shape, wording.status_word(view.status, driven=False), look.style)
    if view.waiting and view.status in MAY_WAIT:
        needs = LOOKS[Shown.NEEDS_YOU]
        return Look(needs.shape, f"{look.word}, needs you", needs.style)
    return look


def fates(view: RunView) -> Iterator[tuple[InstructionView, bool | None]]:
    """Each instruction, and whether the agent has it; None: it is on its way.

    One that a newer took the place of, or that the end of the run overtook, will not arrive any more.
    """
    for n, told in enumerate(view.instructions, start=1):
        is_pending = n == len(view.instructions) and view.status not in TERMINAL
        yield told, told.delivered if told.delivered is not None or is_pending else False


def now_word(call: CallView) -> str:
    """How a call stands, in words."""
    return one_line({outcome.value: word for outcome, word in OUTCOMES.items()}.get(call.now, call.now))


# -- texts from outside


def one_line(text: str, longest: int = 200) -> str:
    """A text of a model, a tool or a person on one line, with nothing in it that acts on a terminal."""
    return escape.one_line(text, longest)


# -- numbers


def clock(seconds: float) -> str:
    """Time at work: `00:12`, `1:03:09`."""
    return wording.clock(seconds, padded=True)


def span(started_at: float | None, finished_at: float | None, now: float) -> str:
    """How long something took, or takes; whole seconds while it goes on, so that it does not flicker."""
    if started_at is None:
        return ""
    if finished_at is not None:
        return milliseconds(max(0.0, finished_at - started_at) * 1000)
    seconds = int(max(0.0, now - started_at))
    return f"{seconds} s" if seconds < 60 else clock(seconds)
