"""Where a run is printed to: plain lines for people, JSON lines for programs.

A plain line says when, what kind of thing, and what about it, and is whole by itself. A model's words come line by
line, each marked as such, so that nothing it says can pass for a line of ours.

A reader that goes away is not a stop: the rest is then printed to nobody, and the run goes on.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Protocol, TextIO

import msgspec

from checkrein.cli import output
from checkrein.cli.output import line_of
from checkrein.cli.wording import arguments, receipt_lines, result, values_of
from checkrein.control.call_view import decoded
from checkrein.core import events
from checkrein.core.enums import ACTING, Answer, CallKind, Outcome, Status, Verb
from checkrein.core.escape import one_line, printable
from checkrein.core.wording import OUTCOMES, REFUSED, clock, milliseconds, reason_word
from checkrein.journal.base import Chunk, Recorded, attempt_of

_ASK: Final = "ask:"
"""The id of the call that answers a side question begins with this."""
WIDTH: Final = 100
"""Where a model's long lines are broken."""

ASKED: Final = 2_000
"""How much of each argument is printed of a call that asks for consent."""

Told = tuple[str, str]
"""What kind of thing, and what about it."""


class Lines:
    """Turns what happens to one run into lines."""

    def __init__(self) -> None:
        self._run = ""
        self._began = 0.0
        self._at = 0.0
        self._plan: tuple[str, ...] = ()
        self._calls: dict[str, events.CallStarted] = {}
        self._names: dict[str, str] = {}
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

    def _created(self, event: events.RunCreated) -> Iterator[Told]:
        self._began, self._run = event.at, event.run
        yield "run", f"{event.run}, agent {one_line(event.agent)}: {one_line(event.goal, 400)}"

    def _started(self, event: events.RunStarted) -> Iterator[Told]:
        if event.epoch > 1:
            yield "taken up", f"by process {event.pid}" if event.pid else "by another process"

    def _finished(self, event: events.RunFinished) -> Iterator[Told]:
        about = event.error or ""
        if event.status is Status.COMPLETED:
            about = result(decoded(event.result), 2000)
        yield event.status.value, one_line(about)

    def _published(self, event: events.PlanPublished) -> Iterator[Told]:
        self._plan = event.steps
        yield "plan", "; ".join(f"{n} {one_line(step, 80)}" for n, step in enumerate(event.steps, start=1))

    def _step_started(self, event: events.StepStarted) -> Iterator[Told]:
        number = f"{event.step} of {len(self._plan)}" if len(self._plan) >= event.step else f"{event.step}"
        yield "step", f"{number}: {one_line(event.title, 200)}"

    def _step_finished(self, event: events.StepFinished) -> Iterator[Told]:
        yield "step", f"{event.step} done"

    # -- calls

    def _call_started(self, event: events.CallStarted) -> Iterator[Told]:
        self._calls[event.call] = event
        self._names[event.call] = event.name
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
        elif event.kind is CallKind.PROCESS:
            yield "program", f"{name}{again}"
        elif again:
            yield "model", f"{name} is asked again"

    def _call_finished(self, event: events.CallFinished) -> Iterator[Told]:
        yield from self._rest_of(event.call)
        started = self._calls.pop(event.call, None)
        if started is None:
            return
        took = milliseconds(max(0.0, event.at - started.at) * 1000)
        name, ended = one_line(started.name, 80), REFUSED if event.refused else OUTCOMES[event.outcome]
        if started.kind in (CallKind.MODEL, CallKind.ASK):
            if event.outcome is not Outcome.COMPLETED:
                yield "model", f"{name}: {ended}{_because(event.error)}"
            return
        if started.kind is CallKind.UNDO and event.outcome is Outcome.COMPLETED:
            return  # the effect says so
        value = f": {shown}" if (shown := result(decoded(event.result))) else ""
        yield ended, f"{name}, {took}{value}{_because(event.error)}"
        if event.traceback is not None and (place := _place(event.traceback)):
            yield "at", place
        if started.kind in ACTING and event.outcome is Outcome.IN_DOUBT and not started.idempotent:
            how = output.command(f"resolve {self._run} {event.call} happened|did_not_happen|undo")
            yield "needs you", f"did {name} happen? {how}"
        if event.left:
            yield "left", f"still running: {one_line(', '.join(event.left), 200)}"

    def _stop_delayed(self, event: events.StopDelayed) -> Iterator[Told]:
        name = self._calls[event.call].name if event.call in self._calls else event.call
        yield "waits", f"the stop of {one_line(name, 80)}, for {event.what}, at most {event.seconds:g} s"

    def _call_resolved(self, event: events.CallResolved) -> Iterator[Told]:
        answer = "is to be undone" if event.answer is Answer.UNDO else event.answer.value.replace("_", " ")
        yield "resolved", f"{self._name_of(event.call)} {answer}, says {one_line(event.by)}"

    def _name_of(self, call: str) -> str:
        return one_line(self._names.get(call, call), 80)

    def _undone(self, event: events.EffectUndone) -> Iterator[Told]:
        yield "undone", one_line(self._effects.get(event.effect, event.effect), 80)

    def _left(self, event: events.EffectLeft) -> Iterator[Told]:
        yield "left", f"{one_line(self._effects.get(event.effect, event.effect), 80)}{_because(event.why)}"

    def _retry(self, event: events.RetryScheduled) -> Iterator[Told]:
        # Why is said by the end of the attempt before it.
        yield "retry", f"asked again in {milliseconds(event.wait_seconds * 1000)}, attempt {event.attempt}"

    # -- people, and what speaks for them

    def _accepted(self, event: events.VerbAccepted) -> Iterator[Told]:
        said = event.instruction or event.question or ""
        about = f": {one_line(said, 400)}" if said else ""
        yield event.verb.value, f"by {one_line(event.by)}{about}{_because(event.reason)}"
        if event.needs is not None:
            yield "needs you", one_line(f"{event.needs.what}. {event.needs.remedy}".strip(), 400)

    def _settled(self, event: events.VerbSettled) -> Iterator[Told]:
        kind = "answer" if event.verb is Verb.ASK else "receipt"
        for line in receipt_lines(event.receipt):
            yield kind, line

    def _delivered(self, event: events.InstructionDelivered) -> Iterator[Told]:
        yield "told", one_line(event.diff)

    def _reason(self, event: events.ReasonAdded) -> Iterator[Told]:
        yield "reason", f"{one_line(reason_word(event.reason), 400)} ({one_line(event.by)})"

    def _requested(self, event: events.ApprovalRequested) -> Iterator[Told]:
        self._names[event.call] = event.name
        values, given = values_of(decoded(event.arguments)), arguments(decoded(event.arguments))
        is_short = len(given) <= WIDTH and not any("\n" in value.text for value in values)
        name, how = one_line(event.name, 80), output.command(f"approve|deny {self._run} {event.call}")
        yield "needs you", f"may it call {name}({given})? {how}" if is_short else f"may it call {name}? {how}"
        for value in [] if is_short else values:
            short = value.shortened(ASKED)
            yield "with", f"{short.name}: {short.text}{short.more}" if short.name else f"{short.text}{short.more}"

    def _decided(self, event: events.ApprovalDecided) -> Iterator[Told]:
        yield event.decision.value, f"{self._name_of(event.call)}, by {one_line(event.by)}{_because(event.note)}"

    def _tripped(self, event: events.ConditionTripped) -> Iterator[Told]:
        seen = "not known" if event.observed is None else f"{event.observed:.15g}"
        yield "cap", f"{event.condition} is reached ({seen} of {event.allowed:.15g})"

    def _flagged(self, event: events.WatcherFlagged) -> Iterator[Told]:
        yield "flag", f"{one_line(event.watcher)}: {one_line(event.what, 400)}"


_TELLS: Final[Mapping[type[events.Event], Callable[[Lines, Any], Iterator[Told]]]] = {
    events.RunCreated: Lines._created,
    events.RunStarted: Lines._started,
    events.RunFinished: Lines._finished,
    events.PlanPublished: Lines._published,
    events.StepStarted: Lines._step_started,
    events.StepFinished: Lines._step_finished,
    events.CallStarted: Lines._call_started,
    events.CallFinished: Lines._call_finished,
    events.StopDelayed: Lines._stop_delayed,
    events.CallResolved: Lines._call_resolved,
    events.EffectUndone: Lines._undone,
    events.EffectLeft: Lines._left,
    events.RetryScheduled: Lines._retry,
    events.VerbAccepted: Lines._accepted,
    events.VerbSettled: Lines._settled,
    events.InstructionDelivered: Lines._delivered,
    events.ReasonAdded: Lines._reason,
    events.ApprovalRequested: Lines._requested,
    events.ApprovalDecided: Lines._decided,
    events.ConditionTripped: Lines._tripped,
    events.WatcherFlagged: Lines._flagged,
}


_FRAME: Final = re.compile(r'^ *File "(.+)", line (\d+), in (.+)$', re.MULTILINE)


def _place(traceback: str) -> str:
    """The innermost line of a traceback, as editors take it; the whole of it is in the record and on the page."""
    frames = _FRAME.findall(traceback)
    return one_line("{}:{} in {}".format(*frames[-1]), 200) if frames else ""


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


class Printer(Protocol):
    @property
    def is_unheard(self) -> bool:
        """Whether whoever read the output has left."""

    def item(self, item: Recorded | Chunk) -> None:
        """One more thing that happened."""

    def say(self, text: str) -> None:
        """A word to whoever sits there."""

    def tool_print(self, line: str) -> None:
        """A line that a tool, or the agent's own code, has printed."""

    def end(self, fields: dict[str, Any]) -> None:
        """The last word: `type`, `run`, `status` and what else is known."""


class _Stream:
    """A text stream that may lose its reader."""

    def __init__(self, stream: TextIO) -> None:
        self._stream: TextIO | None = stream

    @property
    def is_lost(self) -> bool:
        return self._stream is None

    def line(self, text: str) -> None:
        if self._stream is None:
            return
        try:
            self._stream.write(f"{text}\n")
            self._stream.flush()
        except OSError:
            self._stream = None


class PlainPrinter:
    def __init__(self, out: TextIO | None = None) -> None:
        self._out = _Stream(out or sys.stdout)
        self._lines = Lines()

    @property
    def is_unheard(self) -> bool:
        return self._out.is_lost

    def item(self, item: Recorded | Chunk) -> None:
        for line in self._lines.take(item):
            self._out.line(line)

    def say(self, text: str) -> None:
        self._out.line(f"{'':7}  {'--':<10} {printable(text)}")

    def tool_print(self, line: str) -> None:
        self._out.line(f"{'':7}  {'prints':<10} {printable(line)}")

    def end(self, fields: dict[str, Any]) -> None:
        """The record of the end has said it all."""


class VerbPrinter(PlainPrinter):
    """Beside a program that prints for itself: what people ask of its run, and what it needs from them. The rest is on
    the page and in `checkrein watch`."""

    def item(self, item: Recorded | Chunk) -> None:
        lines = self._lines.take(item)
        if isinstance(item, Recorded) and isinstance(item.event, _OF_PEOPLE):
            for line in lines:
                self._out.line(line)


_OF_PEOPLE: Final = (
    events.RunCreated,
    events.VerbAccepted,
    events.VerbSettled,
    events.StopDelayed,
    events.ApprovalRequested,
    events.ApprovalDecided,
    events.ConditionTripped,
    events.WatcherFlagged,
)


class JsonPrinter:
    """Everything on standard output is JSON; what a tool prints goes to standard error."""

    def __init__(self, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self._out = _Stream(out or sys.stdout)
        self._err = _Stream(err or sys.stderr)

    @property
    def is_unheard(self) -> bool:
        return self._out.is_lost

    def item(self, item: Recorded | Chunk) -> None:
        if isinstance(item, Chunk):
            call, attempt = attempt_of(item.call)
            fields = {"type": "call.chunk", "call": call, "attempt": attempt, "offset": item.offset, "text": item.text}
            self._out.line(line_of(fields))
        else:
            self._out.line(line_of({"seq": item.seq, "run": item.run, **msgspec.json.decode(item.body)}))

    def say(self, text: str) -> None:
        self._err.line(printable(text))

    def tool_print(self, line: str) -> None:
        self._err.line(printable(line))

    def end(self, fields: dict[str, Any]) -> None:
        self._out.line(line_of(fields))
