"""What the gateway has to know of a wire: where a request has its conversation, and how an answer is spliced.

A splice is one answer as its client sees it, over all attempts to get it. Events of the first attempt pass as they are;
those of later ones are rewritten, so that they go on where the client stands. What a client has been sent is never
taken back, so arguments of a tool call are kept back until the call is whole: half a call could not be continued.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

import msgspec

from checkrein.core.conditions import Usage
from checkrein.gateway.frames import Frame
from checkrein.models.base import Delta, Finished, TextDelta, ToolCallDelta
from checkrein.models.wire import Reader

Body = dict[str, Any]
Event = dict[str, Any]

Next = Literal["ask", "close", "fail"]
"""How an answer that was stopped goes on: it is asked for again, closed with what it has, or broken off."""


class SeenCall(NamedTuple):
    """A tool call that an answer asks the program for."""

    id: str
    name: str
    arguments: str


class Answered(NamedTuple):
    """What an answer that did not stream amounts to."""

    text: str = ""
    calls: tuple[SeenCall, ...] = ()
    usage: Usage | None = None


class Splice(ABC):
    """One answer over all attempts. `sent` counts as sent: whoever takes it writes it before anything else happens."""

    seals_thinking = False
    """Thinking comes with a seal on this wire, so that half of it cannot go on."""

    def __init__(self) -> None:
        self._segment: list[str] = []
        self._unread: list[bytes] = []
        """Events of the first attempt that the client was sent as they were. Nobody needs to look into them, unless
        there is a second one."""
        self.calls = 0
        self.is_finished = False
        self.is_thinking = False
        self._attempt = 0
        self._joint = ""
        self._held: list[tuple[bytes, list[Event], Iterable[Delta]]] = []

    @property
    def segment(self) -> str:
        """The text that the client was sent since the attempt began."""
        return "".join(self._segment)

    def begin(self, joint: str = "") -> None:
        """Another attempt begins. `joint` goes between what the client has and the first text of it."""
        self._catch_up()
        self._attempt += 1
        self._joint = joint
        self._held.clear()
        self._segment = []
        self.began()

    def next(self) -> Next:
        self._catch_up()
        if self.is_finished or self.calls:
            return "close"
        return "fail" if self.is_thinking and self.seals_thinking else "ask"

    def take(self, frame: Frame, deltas: list[Delta]) -> bytes:
        """What the client is sent of it now."""
        if not frame.data:
            return frame.raw if not self._held else b""
        if self._attempt == 1 and not self._held and len(deltas) == 1 and type(deltas[0]) is TextDelta:
            self._unread.append(frame.data)
            self._segment.append(deltas[0].text)
            return frame.raw
        has_call = any(isinstance(delta, ToolCallDelta) for delta in deltas)
        if self._attempt == 1 and not has_call and not self._held:
            self._unread.append(frame.data)
            self._said(deltas)
            return frame.raw
        if self._attempt == 1:
            raw, events = frame.raw, _decoded(frame.data)
        else:
            events = self.rewrite(frame.data)
            raw = b"".join(map(self.encode, events))
        out = b""
        if self._held and self._is_new_call(deltas):
            out = self._flush()
        if self._held or has_call:
            self._held.append((raw, events, deltas))
            return out + (self._flush() if self.is_whole(events, deltas) else b"")
        self._sent(events, deltas)
        return out + raw

    def end(self) -> bytes:
        """The answer has ended: what was kept back of it is as whole as it will be."""
        return self._flush()

    def _is_new_call(self, deltas: list[Delta]) -> bool:
        """Whether another call begins than the one that is kept back."""
        held = {one.index for _, _, found in self._held for one in found if isinstance(one, ToolCallDelta)}
        return bool({one.index for one in deltas if isinstance(one, ToolCallDelta)} - held)

    def _flush(self) -> bytes:
        held, self._held = self._held, []
        for _, events, deltas in held:
            self._sent(events, deltas)
        self.calls += bool(held)
        return b"".join(raw for raw, _, _ in held)

    def close(self) -> bytes:
        """What ends the answer in good order with what the client has of it."""
        self._catch_up()
        return self.closing()

    def error(self, message: str) -> bytes:
        """What breaks the answer off, as the provider itself would."""
        self._catch_up()
        return self.failing(message)

    def _sent(self, events: list[Event], deltas: Iterable[Delta]) -> None:
        self._catch_up()
        self._said(deltas)
        for event in events:
            self.note(event)

    def _said(self, deltas: Iterable[Delta]) -> None:
        for delta in deltas:
            if isinstance(delta, TextDelta):
                self._segment.append(delta.text)
            elif isinstance(delta, Finished):
                self.is_finished = True

    def _catch_up(self) -> None:
        unread, self._unread = self._unread, []
        for data in unread:
            for event in _decoded(data):
                self.note(event)

    def joined(self, text: str) -> str:
        """`text` with the joint before it, if it is the first of this attempt."""
        if not text:
            return text
        joint, self._joint = self._joint, ""
        return joint + text

    # -- what a wire adds

    def began(self) -> None:
        """Another attempt begins."""
        return

    @abstractmethod
    def note(self, event: Event) -> None:
        """The client was sent `event`."""

    @abstractmethod
    def is_whole(self, events: list[Event], deltas: list[Delta]) -> bool:
        """Whether the call that is kept back is whole with this."""

    @abstractmethod
    def rewrite(self, data: bytes) -> list[Event]:
        """An event of a later attempt, as it goes on where the client stands."""

    @abstractmethod
    def encode(self, event: Event) -> bytes:
        """An event as a frame."""

    @abstractmethod
    def closing(self) -> bytes:
        """As `close`."""

    @abstractmethod
    def failing(self, message: str) -> bytes:
        """As `error`."""


class Wire(ABC):
    """A wire, as far as requests and whole answers go."""

    provider: str
    """Whose price list it is."""

    @abstractmethod
    def messages(self, body: Body) -> list[Body]:
        """The conversation that a request brings along."""

    @abstractmethod
    def with_messages(self, body: Body, messages: list[Body]) -> Body: ...
    @abstractmethod
    def user(self, text: str) -> Body: ...
    @abstractmethod
    def assistant(self, text: str) -> Body: ...
    @abstractmethod
    def system(self, body: Body) -> object:
        """What the model is told about itself."""

    @abstractmethod
    def tools(self, body: Body) -> frozenset[str]:
        """The names of the tools that it is offered."""

    @abstractmethod
    def text_of(self, message: Body) -> str:
        """What is said in a message."""

    @abstractmethod
    def is_answer(self, message: Body) -> bool:
        """Whether the model said it."""

    @abstractmethod
    def split(self, message: Body, half: str) -> tuple[Body, Body | None] | None:
        """An answer in two: `half` of its text, and the rest if there is any. None where it does not begin so."""

    @abstractmethod
    def results(self, messages: list[Body]) -> list[tuple[str, str]]:
        """The results of tool calls in there: the id (or name) of the call, and what came of it."""

    @abstractmethod
    def reader(self) -> Reader: ...
    @abstractmethod
    def splice(self) -> Splice: ...
    @abstractmethod
    def answered(self, body: Body) -> Answered:
        """What a whole answer says."""

    @abstractmethod
    def refusal(self, status: int, message: str) -> Body:
        """An error as the body of a response."""

    def model(self, body: Body, path: str) -> str:
        """Which model is asked."""
        return str(body.get("model") or "unknown")


def _decoded(data: bytes) -> list[Event]:
    try:
        event = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return []
    return [event] if isinstance(event, dict) else []


def rest_after(text: str, half: str) -> str | None:
    """What follows `half` in `text`; None where it does not begin so."""
    half = half.rstrip()
    return text[len(half) :].lstrip() if half and text.startswith(half) else None
