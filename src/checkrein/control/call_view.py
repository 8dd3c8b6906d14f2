"""One call as a person sees it, from its request to its end.

Its arguments and its result are text made of the recorded bytes, so that it is exactly what was recorded. Whoever reads
JSON as numbers of its own may read other ones (JavaScript rounds what is above 2^53), so nothing that a person decides
by is made of parsed values: a number, a list or an object is shown as it stands in the journal, a text as the text.
Each value is shortened on its own and has its name, so that a long one hides nothing but itself.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from checkrein.agents.history import told_of
from checkrein.control.view import CallView, CheckView, Shown, ShownValue
from checkrein.core import events
from checkrein.core.effects import Effect
from checkrein.core.enums import Answer, CallKind, Decision, EffectState, Outcome, Status, Verb
from checkrein.core.state import State
from checkrein.core.wording import REFUSED
from checkrein.journal.base import stream_of
from checkrein.journal.chunks import TextAssembler

SHOWN_CHARS: Final = 2_000
"""So much of a value is shown unless somebody asks for all of it."""
SHOWN_VALUES: Final = 100
"""So many values are shown by their names; of the rest only how much there is."""
LARGE_BYTES: Final = 64 * 1024
"""What is longer than this as JSON is not part of a view, only of the call when somebody looks at it alone."""

_TYPES: Final = {ord('"'): "string", ord("{"): "object", ord("["): "array", ord("t"): "boolean", ord("f"): "boolean"}


def shown_arguments(raw: msgspec.Raw | bytes | None, *, longest: int | None = SHOWN_CHARS) -> tuple[ShownValue, ...]:
    """Every argument by its name, in the order of the record. `longest` None: whole.

    What is no JSON object is one value without a name; no arguments at all are none.
    """
    if raw is None or bytes(raw) in (b"null", b"{}"):
        return ()
    named = _named(bytes(raw))
    if named is None:
        return (shown_value(raw, longest=longest),)
    most = len(named) if longest is None else SHOWN_VALUES
    values = [shown_value(value, name=name, longest=longest) for name, value in list(named.items())[:most]]
    if len(named) > most:
        rest = sum(len(name) + len(bytes(value).decode()) for name, value in list(named.items())[most:])
        values.append(ShownValue(name=f"… and {len(named) - most:,} more", text="", hidden=rest))
    return tuple(values)


def shown_value(raw: msgspec.Raw | bytes, *, name: str = "", longest: int | None = SHOWN_CHARS) -> ShownValue:
    """One JSON value. A text is shown as itself; `type` tells the number 5 from the text "5"."""
    source = bytes(raw).strip()
    text = source.decode()
    kind = _TYPES.get(source[0] if source else 0, "null" if text == "null" else "number")
    if kind == "string":
        text = _text(source)
    if longest is None or len(text) <= longest:
        return ShownValue(name=name, text=text, type=kind)
    return ShownValue(name=name, text=text[:longest], hidden=len(text) - longest, type=kind)


def _named(raw: bytes) -> dict[str, msgspec.Raw] | None:
    try:
        return msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    except msgspec.MsgspecError:
        return None


def _text(source: bytes) -> str:
    """The text that a JSON string is; the source itself where it is none that can be sent on."""
    found = decoded(source)
    try:
        found.encode()
    except (AttributeError, UnicodeEncodeError):  # half of a character: shown escaped, as it was recorded
        return source.decode()
    return str(found)


def decoded(raw: msgspec.Raw | bytes | None) -> Any:
    """The value behind JSON of a journal, for programs. A number that neither an int nor a float can hold is an
    infinite one."""
    if raw is None:
        return None
    try:
        return msgspec.json.decode(bytes(raw))
    except msgspec.MsgspecError:
        return json.loads(bytes(raw), parse_int=_whole)


def _whole(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:  # Python reads no more digits than sys.get_int_max_str_digits()
        return float(text)


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
    texts: TextAssembler = field(repr=False)
    """Where what has streamed of the run's calls is put together."""
    step: int | None = None
    attempt: int = 1
    given: msgspec.Raw | None = None
    """Its arguments, as they are recorded."""
    arguments: Any = None
    run: str | None = None
    reused_from: str = ""
    """Of a call that a fork has taken over: the run that made it."""
    requested: events.ApprovalRequested | None = None
    """How it was put to a person, if it was."""
    decided: events.ApprovalDecided | None = None
    is_withdrawn: bool = False
    allowed_by: str = ""
    """Who has approved all calls of its tool for the rest of the run, of one that began unasked."""
    started_at: float | None = None
    finished_at: float | None = None
    outcome: Outcome | None = None
    brought: msgspec.Raw | None = None
    """Its result, as it is recorded."""
    result: Any = None
    error: str | None = None
    refused: bool = False
    stopped_by: Verb | None = None
    resolved: Answer | None = None
    resolved_by: str = ""
    checked: CheckView | None = None
    thinking: str = ""
    files: tuple[str, ...] = ()
    file_hashes: tuple[str, ...] = ()
    host: str = ""
    traceback: str | None = None
    left: tuple[str, ...] = ()
    _told: str | None = None
    """The whole text, once the record of its end has told it."""
    _changes: int = 0
    _key: tuple[object, ...] | None = None
    _view: CallView | None = field(default=None, repr=False)

    # -- what is said about it

    @property
    def stream(self) -> str:
        """The name of the text of its latest attempt."""
        return stream_of(self.id, self.attempt)

    @property
    def text(self) -> str:
        """What its latest attempt has said, so far or in all."""
        return self.texts.text(self.stream) if self._told is None else self._told

    def begin(self, event: events.CallStarted) -> None:
        for earlier in range(self.attempt, event.attempt):
            self.texts.end(stream_of(self.id, earlier))
        self.name, self.kind, self.attempt = event.name, event.kind, event.attempt
        self.step = self.step if event.step is None else event.step
        self.given, self.arguments = event.arguments, decoded(event.arguments)
        self.started_at, self.finished_at, self.outcome = event.at, None, None
        self.resolved_by, self.brought = "", None
        self.result = self.error = self.stopped_by = self.resolved = self.checked = self.traceback = None
        self.left, self.refused = (), False
        self._told = None
        self._changes += 1

    def reuse(self, event: events.CallReused) -> None:
        self.step, self.reused_from = event.step, event.origin
        self.given = event.arguments if event.edited is None else event.edited
        self.arguments = decoded(self.given)
        self.started_at, self.finished_at = event.started_at, event.ended_at
        self.outcome, self.error = event.outcome, event.error
        self._take_result(event.result)
        self._changes += 1

    def end(self, event: events.CallFinished, stopped_by: Verb | None, host: str) -> None:
        self.file_hashes, self.host = event.file_hashes, host if event.files else ""
        self.finished_at, self.outcome, self.error, self.stopped_by = event.at, event.outcome, event.error, stopped_by
        self.files, self.traceback, self.left, self.refused = event.files, event.traceback, event.left, event.refused
        self._take_result(event.result)
        self._changes += 1

    def resolve(self, event: events.CallResolved) -> None:
        self.resolved, self.resolved_by = event.answer, event.by
        if event.answer is Answer.HAPPENED:
            self._take_result(event.result)
        self._changes += 1

    def check(self, event: events.CallChecked) -> None:
        self.checked = CheckView(at=event.at, answer=event.answer, note=event.note)

    def decide(self, event: events.ApprovalDecided) -> None:
        self.decided = event
        if event.decision is Decision.REFUSED:
            self.error = event.note
        if event.arguments is not None:
            self.given, self.arguments = event.arguments, decoded(event.arguments)
        self._changes += 1

    def withdraw(self) -> None:
        self.is_withdrawn = True
        self._changes += 1

    @property
    def decision(self) -> Decision | None:
        if self.is_withdrawn:
            return Decision.WITHDRAWN
        return None if self.decided is None else self.decided.decision

    @property
    def is_edited(self) -> bool:
        return self.decided is not None and self.decided.arguments is not None

    def _take_result(self, result: msgspec.Raw | None) -> None:
        """What a model said is its text; of the rest only the value counts."""
        if self.kind is CallKind.MODEL:
            told = told_of(result)
            if told is not None:
                self._told, self.thinking = told.message.text, told.message.thinking
            elif isinstance(value := decoded(result), str):  # a stream that a program read as a call
                self._told = value
        else:
            self.brought, self.result = result, decoded(result)
            if self.kind is CallKind.ASK and isinstance(self.result, str):
                self._told = self.result
        if self._told is not None:
            # The answer to a side question is shown as the result that it is: what had not streamed of it is no text.
            self.texts.end(self.stream, self._told if self.kind is CallKind.MODEL else "")

    # -- how it looks

    def view(self, state: State, effect: Effect | None) -> CallView:
        live = state.live.get(self.id)
        doubt = state.doubts.get(self.id)
        key = (
            self._changes,
            self._told is None and self.texts.length(self.stream),
            None if live is None else (live.stop, live.hold, live.waits_for, state.status),
            doubt is not None and doubt.person,
            self.id in state.again and state.status,
            None if effect is None else effect.state,
            state.is_finished,
        )
        if key != self._key or self._view is None:
            self._key, self._view = key, self._made(state, effect)
        return self._view

    def whole(self, state: State, effect: Effect | None) -> CallView:
        """The same, with nothing left out that is long."""
        return self._made(state, effect, longest=None)

    def _made(self, state: State, effect: Effect | None, *, longest: int | None = SHOWN_CHARS) -> CallView:
        shown, now = self._looks(state, effect)
        live = state.live.get(self.id)
        asked = self.requested.arguments if self.requested is not None and self.is_edited else None
        consent = self.allowed_by
        if self.decided is not None:
            consent = self.decided.by if self.decision is Decision.APPROVED else ""
        return CallView(
            id=self.id,
            kind=self.kind,
            name=self.name,
            shown=shown,
            now=now,
            step=self.step,
            attempt=self.attempt,
            arguments=self.arguments if longest is None or not is_large(self.given) else None,
            result=self.result if longest is None or not is_large(self.brought) else None,
            given=shown_arguments(self.given, longest=longest),
            brought=None if self.brought is None else shown_value(self.brought, longest=longest),
            asked_for=shown_arguments(asked, longest=longest),
            approved_by=consent,
            edited_by=consent if self.is_edited else "",
            resolved_by=self.resolved_by,
            error=self.error,
            text=self.text,
            thinking=self.thinking,
            started_at=self.started_at,
            finished_at=self.finished_at,
            stopped_by=self.stopped_by,
            run=self.run,
            reused_from=self.reused_from,
            files=self.files,
            file_hashes=self.file_hashes,
            host=self.host,
            traceback=self.traceback,
            left=self.left,
            waits_for="" if live is None else live.waits_for,
        )

    def _looks(self, state: State, effect: Effect | None) -> tuple[Shown, str]:
        if self.started_at is None:
            return self._looks_before(state)
        if self.outcome is None:
            return self._looks_live(state)
        if self.kind is not CallKind.UNDO and effect is not None and effect.state is EffectState.UNDONE:
            was_done = self.outcome is Outcome.COMPLETED or self.resolved is not None
            return (Shown.UNDONE, "undone") if was_done else (Shown.CANCELLED, f"{self.outcome.value}, undone")
        if self.refused:
            return Shown.FAILED, REFUSED
        if self.resolved is Answer.HAPPENED:
            return Shown.DONE, "happened" if self.brought is not None else "happened, without a result"
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
        if self.decision is Decision.REFUSED:
            return Shown.FAILED, REFUSED
        word = Decision.WITHDRAWN if self.decision in (None, Decision.APPROVED) else self.decision
        return Shown.CANCELLED, word.value

    def _looks_live(self, state: State) -> tuple[Shown, str]:
        live = state.live.get(self.id)
        if live is not None and live.stop is not None:
            return Shown.RUNNING, "stopping"
        if live is not None and live.hold and state.status is Status.PAUSED:
            return Shown.PAUSED, "held"
        return Shown.RUNNING, "running"


def requested(event: events.ApprovalRequested, step: int | None, texts: TextAssembler) -> SeenCall:
    """A call that a person is asked about before it begins."""
    return SeenCall(
        id=event.call,
        kind=CallKind.TOOL,
        name=event.name,
        texts=texts,
        step=step,
        given=event.arguments,
        arguments=decoded(event.arguments),
        requested=event,
    )


def is_large(raw: msgspec.Raw | None) -> bool:
    """Whether JSON is too long to be part of a view."""
    return raw is not None and len(bytes(raw)) > LARGE_BYTES
