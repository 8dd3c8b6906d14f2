"""The events of an answer on the OpenAI wire, as deltas. Nothing here waits or sends.

Servers that call themselves compatible differ: in where thinking goes, in whether parallel tool calls are numbered, in
repeating ids and names, in leaving out the end. What they mean is told apart here, and not above.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from checkrein.core.conditions import Usage
from checkrein.models.failures import ErrorInStream
from checkrein.models.port import Delta, Finish, Finished, TextDelta, ThinkingDelta, ToolCallDelta, UsageDelta
from checkrein.models.reader import Reader

DONE: Final = b"[DONE]"

# fmt: off
_FINISH: Final = {
    "stop":           Finish.STOP,
    "tool_calls":     Finish.TOOL_CALLS,
    "function_call":  Finish.TOOL_CALLS,
    "length":         Finish.LENGTH,
    "content_filter": Finish.FILTERED,
}
# fmt: on
"""Any other word is a server's own for an end that is no limit and no filter."""


class _Function(msgspec.Struct, frozen=True, gc=False):
    name: str | None = None
    arguments: Any = None


class _Call(msgspec.Struct, frozen=True, gc=False):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Part(msgspec.Struct, frozen=True):
    """Of content that comes as a list: text, or thinking that is again a list."""

    text: str | None = None
    thinking: str | list[_Part] | None = None


class _Delta(msgspec.Struct, frozen=True, gc=False):
    content: str | list[_Part] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct, frozen=True, gc=False):
    index: int = 0
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Read(msgspec.Struct, frozen=True, gc=False):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct, frozen=True, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost: float | None = None
    prompt_tokens_details: _Read | None = None


class _Chunk(msgspec.Struct, frozen=True, gc=False):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


_decode: Final = msgspec.json.Decoder(_Chunk).decode


class OpenAIReader(Reader):
    """Reads one answer on the OpenAI wire."""

    __slots__ = ("_calls", "_is_refusal")

    def __init__(self) -> None:
        super().__init__()
        self._calls = _Calls()
        self._is_refusal = False

    def read(self, event: bytes) -> list[Delta]:
        if event == DONE:
            return self._end()
        chunk = _decode(event)
        deltas: list[Delta] = []
        if chunk.error is not None:
            raise ErrorInStream(event)
        if chunk.choices:
            for choice in chunk.choices:
                # We ask for one answer only; a server that gives several is taken at its first.
                if choice.index == 0 and not self.is_finished:
                    self._add(choice, event, deltas)
        if chunk.usage is not None:
            deltas.append(UsageDelta(_usage(chunk.usage), final=self.is_finished))
        self._said += deltas
        return deltas

    def _end(self) -> list[Delta]:
        """The server says that this was all. Many a compatible one does not say why."""
        self.is_complete = True
        if self.is_finished:
            return []
        self.is_finished = True
        self._said.append(Finished(Finish.STOP))
        return self._said[-1:]

    def _add(self, choice: _Choice, event: bytes, deltas: list[Delta]) -> None:
        delta = choice.delta
        if delta is not None:
            if isinstance(delta.content, str):
                if delta.content:
                    deltas.append(TextDelta(delta.content))
            elif delta.content is not None:
                _add_parts(delta.content, deltas)
            if thinking := delta.reasoning_content or delta.reasoning:
                deltas.append(ThinkingDelta(thinking))
            if delta.refusal:
                self._is_refusal = True
                deltas.append(TextDelta(delta.refusal))
            if delta.tool_calls:
                deltas += map(self._calls.delta, delta.tool_calls)
        if choice.finish_reason:
            if choice.finish_reason == "error":
                raise ErrorInStream(event)
            reason = _FINISH.get(choice.finish_reason, Finish.STOP)
            self.is_finished = True
            deltas.append(Finished(Finish.FILTERED if self._is_refusal else reason))


class _Calls:
    """Which tool call a piece belongs to.

    It is numbered, as a rule. Some servers leave the number out, and some give every call the same one: then a new id
    with a name begins a new call.
    """

    __slots__ = ("_ids", "_latest", "_places")

    def __init__(self) -> None:
        self._places: dict[int, int] = {}
        """Our number of the call that the server's number means at the moment."""
        self._ids: list[str] = []
        self._latest = 0

    def delta(self, call: _Call) -> ToolCallDelta:
        function = call.function or _Function()
        id, name = call.id or "", function.name or ""
        number = self._latest if call.index is None else call.index
        place = self._places.get(number)
        if place is None or (id and name and self._ids[place] not in ("", id)):
            place = self._places[number] = len(self._ids)
            self._ids.append("")
        self._ids[place] = self._ids[place] or id
        self._latest = number
        return ToolCallDelta(place, id, name, _arguments(function.arguments))


def _arguments(given: Any) -> str:
    if given is None:
        return ""
    return given if isinstance(given, str) else msgspec.json.encode(given).decode()


def _add_parts(parts: list[_Part], deltas: list[Delta]) -> None:
    for part in parts:
        if part.text:
            deltas.append(TextDelta(part.text))
        if isinstance(part.thinking, str):
            deltas.append(ThinkingDelta(part.thinking))
        elif part.thinking is not None:
            deltas += [ThinkingDelta(inner.text) for inner in part.thinking if inner.text]


def _usage(used: _Usage) -> Usage:
    cached = used.prompt_tokens_details.cached_tokens if used.prompt_tokens_details is not None else None
    return Usage(
        input_tokens=used.prompt_tokens or 0,
        output_tokens=used.completion_tokens or 0,
        cost_usd=used.cost,
        cached_tokens=min(cached or 0, used.prompt_tokens or 0),
    )
