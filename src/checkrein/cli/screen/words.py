"""How things look in a terminal: a shape and a word for each, so that nothing is said by colour alone.

Everything here is made of parts, a text and a style each. A text is never read as markup, and nothing from outside gets
into one unless it went through `clean`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from checkrein.cli import clean
from checkrein.cli.words import milliseconds
from checkrein.control.view import InstructionView, RunView, Shown
from checkrein.core.words import TERMINAL, Status

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
    Shown.QUEUED: Look("○", "Queued", QUIET),
    Shown.RUNNING: Look("▶", "Running", "bold ansi_blue"),
    Shown.PAUSED: Look("‖", "Paused", ATTENTION),
    Shown.DONE: Look("✓", "Done", "ansi_green"),
    Shown.CANCELLED: Look("■", "Cancelled", "ansi_red"),
    Shown.UNDONE: Look("↶", "Undone", "ansi_red"),
    Shown.FAILED: Look("✗", "Failed", ALARM),
    Shown.NEEDS_YOU: Look("◆", "Needs you", "bold ansi_magenta"),
    Shown.NOT_STARTED: Look("–", "Not started", QUIET),
}
"""How a step or a call looks."""

STATUSES: Final[Mapping[Status, Look]] = {
    Status.QUEUED: Look("○", "Queued"),
    Status.RUNNING: LOOKS[Shown.RUNNING],
    Status.PAUSING: Look("◐", "Pausing…", ATTENTION),
    Status.PAUSED: LOOKS[Shown.PAUSED],
    Status.REDIRECTING: Look("◐", "Redirecting…", "bold ansi_blue"),
    Status.CANCELLING: Look("◐", "Cancelling…", ALARM),
    Status.COMPLETED: Look("✓", "Completed", "bold ansi_green"),
    Status.FAILED: Look("✗", "Failed", ALARM),
    Status.CANCELLED: Look("■", "Cancelled", ALARM),
    Status.KILLED: Look("■", "Halted by an operator", ALARM),
}
"""How a run looks."""

_WAITS: Final = frozenset({Status.RUNNING, Status.PAUSED})


def look_of(view: RunView) -> Look:
    """How the run looks; one that waits for a person says so besides."""
    look = STATUSES[view.status]
    if view.waiting and view.status in _WAITS:
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


# -- texts from outside


def one_line(text: str, longest: int = 200) -> str:
    """A text of a model, a tool or a person on one line, with nothing in it that acts on a terminal."""
    return clean.one_line(text, longest)


# -- numbers


def clock(seconds: float) -> str:
    """Time at work: `00:12`, `1:03:09`."""
    minutes, rest = divmod(int(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes:02}:{rest:02}"


def span(started_at: float | None, finished_at: float | None, now: float) -> str:
    """How long something took, or takes; whole seconds while it goes on, so that it does not flicker."""
    if started_at is None:
        return ""
    if finished_at is not None:
        return milliseconds(max(0.0, finished_at - started_at) * 1000)
    seconds = int(max(0.0, now - started_at))
    return f"{seconds} s" if seconds < 60 else clock(seconds)


def amount(count: int) -> str:
    """`812`, `6.1k`, `50k`, `1.2M`."""
    if count < 1_000:
        return str(count)
    size, unit = (count / 1_000, "k") if count < 999_500 else (count / 1_000_000, "M")
    return f"{size:.1f}".removesuffix(".0") + unit if size < 100 else f"{size:.0f}{unit}"


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
