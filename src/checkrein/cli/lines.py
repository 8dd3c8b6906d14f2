"""A run as plain lines: when, what kind of thing, and what about it. Each line is whole by itself.

A model's words come line by line, each marked as such, so that nothing it says can pass for a line of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from checkrein.cli import hints
from checkrein.cli.clean import one_line, printable
from checkrein.cli.receipts import receipt_lines
from checkrein.cli.words import arguments, clock, milliseconds, result
from checkrein.control.viewing.calls import decoded
from checkrein.core.events import (
    ApprovalDecided,
    ApprovalRequested,
    CallFinished,
    CallResolved,
    CallStarted,
    ConditionTripped,
    EffectLeft,
    EffectUndone,
    Event,
    InstructionDelivered,
    PlanPublished,
    ReasonAdded,
    RetryScheduled,
    RunCreated,
    RunFinished,
    RunStarted,
    StepFinished,
    StepStarted,
    VerbAccepted,
    VerbSettled,
    WatcherFlagged,
)
from checkrein.core.words import CallKind, Outcome, Status, Verb
from checkrein.journal.contract import Chunk, Recorded, attempt_of

_ASK: Final = "ask:"
"""The id of the call that answers a side question begins with this."""
WIDTH: Final = 100
"""Where a model's long lines are broken."""

_ENDED: Final = {
    Outcome.COMPLETED: "done",
    Outcome.FAILED: "failed",
    Outcome.ABORTED: "aborted",
    Outcome.KILLED: "killed",
    Outcome.DETACHED: "detached",
    Outcome.IN_DOUBT: "in doubt",
}

Told = tuple[str, str]
"""What kind of thing, and what about it."""


class Lines:
    """Turns what happens to one run into lines."""

    def __init__(self) -> None:
        self._run = ""
        self._began = 0.0
        self._at = 0.0
        self._plan: tuple[str, ...] = ()
        self._calls: dict[str, CallStarted] = {}
        self._text: dict[str, str] = {}
        self._effects: dict[str, str] = {}

    def take(self, item: Recorded | Chunk) -> list[str]:
        """The lines about one more thing that happened."""
        if isinstance(item, Chunk):
            return self._heard(item)
        event = item.event
        self._at = event.at
        tell = _TELLS.get(type(event))
        told = [] if tell is None else list(tell(self, event))
        return [self._line(kind, line) for kind, text in told for line in text.split("\n")]

    def _line(self, kind: str, text: str) -> str:
        return f"{clock(self._at - self._began):>7}  {kind:<10} {printable(text)}".rstrip()

    # -- what a model says

    def _heard(self, chunk: Chunk) -> list[str]:
        if chunk.call.startswith(_ASK):
            return []  # the answer to a side question is shown once, with its receipt
        text = self._text.get(chunk.call, "") + chunk.text
        whole, self._text[chunk.call] = _whole_lines(text)
        return [self._line("says", line) for line in whole if line.strip()]

    def _rest_of(self, call: str) -> Iterator[Told]:
        for stream in [stream for stream in self._text if attempt_of(stream)[0] == call]:
            rest = self._text.pop(stream)
            if rest.strip():
                yield "says", rest.strip("\n")

    # -- the run

    def _created(self, event: RunCreated) -> Iterator[Told]:
        self._began, self._run = event.at, event.run
        yield "run", f"{event.run}, agent {one_line(event.agent)}: {one_line(event.goal, 400)}"

    def _started(self, event: RunStarted) -> Iterator[Told]:
        if event.epoch > 1:
            yield "taken up", f"by process {event.pid}" if event.pid else "by another process"

    def _finished(self, event: RunFinished) -> Iterator[Told]:
        about = event.error or ""
        if event.status is Status.COMPLETED:
            about = result(decoded(event.result), 2000)
        yield event.status.value, one_line(about)

    def _published(self, event: PlanPublished) -> Iterator[Told]:
        self._plan = event.steps
        yield "plan", "; ".join(f"{n} {one_line(step, 80)}" for n, step in enumerate(event.steps, start=1))

    def _step_started(self, event: StepStarted) -> Iterator[Told]:
        number = f"{event.step} of {len(self._plan)}" if len(self._plan) >= event.step else f"{event.step}"
        yield "step", f"{number}: {one_line(event.title, 200)}"

    def _step_finished(self, event: StepFinished) -> Iterator[Told]:
        yield "step", f"{event.step} done"

    # -- calls

    def _call_started(self, event: CallStarted) -> Iterator[Told]:
        self._calls[event.call] = event
        if event.effect is not None and event.kind is CallKind.TOOL:
            self._effects[event.effect] = event.name
        name = one_line(event.name, 80)
        again = f" (attempt {event.attempt})" if event.attempt > 1 else ""
        if event.kind is CallKind.TOOL:
            yield "tool", f"{name}({arguments(decoded(event.arguments))}){again}"
        elif event.kind is CallKind.UNDO:
            yield "undo", f"{name}{again}"
        elif event.kind is CallKind.RUN:
            yield "sub-run", f"{name}{again}"
        elif again:
            yield "model", f"{name} is asked again"

    def _call_finished(self, event: CallFinished) -> Iterator[Told]:
        yield from self._rest_of(event.call)
        started = self._calls.pop(event.call, None)
        if started is None:
            return
        took = milliseconds(max(0.0, event.at - started.at) * 1000)
        name, ended = one_line(started.name, 80), _ENDED[event.outcome]
        if started.kind in (CallKind.MODEL, CallKind.ASK):
            if event.outcome is not Outcome.COMPLETED:
                yield "model", f"{name}: {ended}{_because(event.error)}"
            return
        if started.kind is CallKind.UNDO and event.outcome is Outcome.COMPLETED:
            return  # the effect says so
        value = f": {shown}" if (shown := result(decoded(event.result))) else ""
        yield ended, f"{name}, {took}{value}{_because(event.error)}"

    def _call_resolved(self, event: CallResolved) -> Iterator[Told]:
        yield "resolved", f"{event.call}: {event.answer.value}, says {one_line(event.by)}"

    def _undone(self, event: EffectUndone) -> Iterator[Told]:
        yield "undone", one_line(self._effects.get(event.effect, event.effect), 80)

    def _left(self, event: EffectLeft) -> Iterator[Told]:
        yield "left", f"{one_line(self._effects.get(event.effect, event.effect), 80)}{_because(event.why)}"

    def _retry(self, event: RetryScheduled) -> Iterator[Told]:
        yield "retry", f"{event.call} in {milliseconds(event.wait_seconds * 1000)}{_because(event.why)}"

    # -- people, and what speaks for them

    def _accepted(self, event: VerbAccepted) -> Iterator[Told]:
        said = event.instruction or event.question or ""
        about = f": {one_line(said, 400)}" if said else ""
        yield event.verb.value, f"by {one_line(event.by)}{about}{_because(event.reason)}"
        if event.needs is not None:
            yield "needs you", one_line(f"{event.needs.what}. {event.needs.remedy}".strip(), 400)

    def _settled(self, event: VerbSettled) -> Iterator[Told]:
        kind = "answer" if event.verb is Verb.ASK else "receipt"
        for line in receipt_lines(event.receipt):
            yield kind, line

    def _delivered(self, event: InstructionDelivered) -> Iterator[Told]:
        yield "told", one_line(event.diff)

    def _reason(self, event: ReasonAdded) -> Iterator[Told]:
        yield "reason", f"{one_line(event.reason, 400)} ({one_line(event.by)})"

    def _requested(self, event: ApprovalRequested) -> Iterator[Told]:
        asked = f"may it call {one_line(event.name, 80)}({arguments(decoded(event.arguments), 400)})?"
        yield "needs you", f"{asked} {hints.command(f'approve|deny {self._run} {event.call}')}"

    def _decided(self, event: ApprovalDecided) -> Iterator[Told]:
        yield event.decision.value, f"{event.call}, by {one_line(event.by)}{_because(event.note)}"

    def _tripped(self, event: ConditionTripped) -> Iterator[Told]:
        seen = "not known" if event.observed is None else f"{event.observed:.15g}"
        yield "cap", f"{event.condition} is reached ({seen} of {event.allowed:.15g})"

    def _flagged(self, event: WatcherFlagged) -> Iterator[Told]:
        yield "flag", f"{one_line(event.watcher)}: {one_line(event.what, 400)}"


_TELLS: Final[Mapping[type[Event], Callable[[Lines, Any], Iterator[Told]]]] = {
    RunCreated: Lines._created,
    RunStarted: Lines._started,
    RunFinished: Lines._finished,
    PlanPublished: Lines._published,
    StepStarted: Lines._step_started,
    StepFinished: Lines._step_finished,
    CallStarted: Lines._call_started,
    CallFinished: Lines._call_finished,
    CallResolved: Lines._call_resolved,
    EffectUndone: Lines._undone,
    EffectLeft: Lines._left,
    RetryScheduled: Lines._retry,
    VerbAccepted: Lines._accepted,
    VerbSettled: Lines._settled,
    InstructionDelivered: Lines._delivered,
    ReasonAdded: Lines._reason,
    ApprovalRequested: Lines._requested,
    ApprovalDecided: Lines._decided,
    ConditionTripped: Lines._tripped,
    WatcherFlagged: Lines._flagged,
}


def _because(why: str | None) -> str:
    return f" ({one_line(why, 200)})" if why else ""


def _whole_lines(text: str) -> tuple[list[str], str]:
    """The lines that are complete, or too long to wait for their end, and what is left."""
    *whole, rest = text.split("\n")
    broken: list[str] = []
    for line in [*whole, rest]:
        while len(line) > WIDTH:
            cut = line.rfind(" ", 1, WIDTH + 1)
            cut = cut if cut > 0 else WIDTH
            broken.append(line[:cut])
            line = line[cut:].lstrip(" ")
        broken.append(line)
    return broken[:-1], broken[-1]
