"""A model as the rest of Checkrein sees it: asked with a `Request`, it streams `Delta`s.

This file owns the promise between the two sides, and what a stream amounts to when it ends, or is stopped anywhere in
the middle. It knows no provider, no network and no journal.

A stream is stopped by cancelling the task that reads it. Calling `aclose()` on it from another task does not work while
it is being read, and leaving an `async for` early does not close anything: `close` it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from enum import StrEnum
from typing import Final, Protocol, runtime_checkable
from uuid import uuid4

import anyio
import msgspec

from checkrein.core.conditions import Usage
from checkrein.core.events import Json
from checkrein.errors import ModelUnavailable
from checkrein.models.messages import Assistant, Message, Request, ToolCall, ToolResult, as_json
from checkrein.timings import CLOSE_SECONDS

BYTES_PER_TOKEN: Final = 4
"""Four characters of English. An estimate, and marked as one wherever it is used."""


class Finish(StrEnum):
    """Why a reply ended."""

    STOP = "stop"
    TOOL_CALLS = "tool_calls"
    LENGTH = "length"
    """Cut off by a limit on its length."""
    FILTERED = "filtered"
    """Cut off, or refused, by the provider's own rules."""
    INTERRUPTED = "interrupted"
    """Stopped from our side. No provider says this."""


class TextDelta(msgspec.Struct, frozen=True, gc=False):
    text: str


class ThinkingDelta(msgspec.Struct, frozen=True, gc=False):
    text: str
    signature: str = ""
    """If given, it replaces the one before: see `Assistant.signature`."""


class ToolCallDelta(msgspec.Struct, frozen=True, gc=False):
    """A piece of the tool call number `index` of this reply. `id` and `name` are given once; `arguments` add up."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


class UsageDelta(msgspec.Struct, frozen=True, gc=False):
    """What this request has used in total, as far as the provider has said: never the difference to the last one."""

    usage: Usage
    final: bool = True
    """False: said before the end, so the output is still to grow."""


class Finished(msgspec.Struct, frozen=True, gc=False):
    """The model has said all it is going to say. A `UsageDelta` may still follow, nothing else does."""

    reason: Finish


Delta = TextDelta | ThinkingDelta | ToolCallDelta | UsageDelta | Finished


@runtime_checkable
class Model(Protocol):
    @property
    def name(self) -> str:
        """Who is asked, as `provider:model`."""
        ...

    def stream(self, request: Request) -> AsyncIterator[Delta]:
        """Ask, and yield the answer as it comes, ending with a `Finished` (and perhaps a `UsageDelta`).

        Nothing is sent before the first `anext`. Raises a `ModelError`, never a provider's or an HTTP library's own.
        When the reading task is cancelled the request is closed before the cancellation goes on, and nothing is
        yielded any more. One instance may be asked by many tasks at once. No cancel scope or task group is held open
        over a `yield`.
        """
        ...


async def can_continue(model: Model, request: Request) -> bool:
    """Whether `model` goes on exactly at the end of a half answer that is the last message of `request`.

    A model says so with an `async def can_continue(self, request)`. One without, and one that cannot tell, cannot.
    """
    says = getattr(model, "can_continue", None)
    return says is not None and bool(await says(request))


def tells_cost(model: Model) -> bool:
    """Whether `model` says itself what each answer has cost: it has an attribute `tells_cost` that is true."""
    return bool(getattr(model, "tells_cost", False))


class Reply(msgspec.Struct, frozen=True, gc=False):
    """What a stream amounted to."""

    message: Assistant
    usage: Usage
    finish: Finish


class Collector:
    """Puts a reply together from its deltas, and can say at any moment what it amounts to."""

    __slots__ = ("_calls", "_final", "_request", "_said", "_signature", "_text", "_thinking", "finish")

    def __init__(self, request: Request | None = None) -> None:
        """`request` serves to estimate what it used, should the provider not come to say so."""
        self.finish: Finish | None = None
        self._request = request
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._signature = ""
        self._calls: dict[int, _Pieces] = {}
        self._said: Usage | None = None
        self._final = False

    def add(self, delta: Delta) -> None:
        # In the order of how often they come: this runs once for every token.
        if isinstance(delta, TextDelta):
            self._text.append(delta.text)
        elif isinstance(delta, ToolCallDelta):
            self._add_call(delta)
        elif isinstance(delta, ThinkingDelta):
            self._thinking.append(delta.text)
            self._signature = delta.signature or self._signature
        elif isinstance(delta, UsageDelta):
            self._said = _most(self._said, delta.usage)
            self._final = self._final or delta.final
        else:
            self.finish = delta.reason

    def reply(self) -> Reply:
        """The whole reply. Raises `ModelUnavailable` (with `partial`) if the stream ended without saying so."""
        if self.finish is None:
            raise ModelUnavailable("The model's answer broke off before it was complete.", partial=self.partial())
        calls = tuple(call for pieces in self._calls.values() if (call := pieces.whole(self.finish)) is not None)
        finish = self.finish
        if finish in (Finish.STOP, Finish.TOOL_CALLS):
            # Providers do not agree on what to call it when a reply both speaks and asks for tools.
            finish = Finish.TOOL_CALLS if calls else Finish.STOP
        return Reply(self._message(calls, interrupted=False), self.usage(), finish)

    def partial(self) -> Reply:
        """What there is when the stream was stopped here; the whole reply if it was over by then.

        All text is kept. A tool call is kept if it had come whole, so that the model can be told that it was not
        begun; half a tool call is dropped. Nothing of an interrupted reply is ever performed.
        """
        if self.finish is not None:
            return self.reply()
        begun = list(self._calls.values())
        calls = tuple(
            call
            for pieces in begun
            if (call := pieces.stopped(is_last=pieces is begun[-1])) is not None
        )  # fmt: skip
        return Reply(self._message(calls, interrupted=True), self.usage(), Finish.INTERRUPTED)

    def usage(self) -> Usage:
        """What the provider has said that this used, or else an estimate that is marked as one."""
        said = self._said
        if said is not None and self._final:
            return said
        sizes = [*map(_size, self._text), *map(_size, self._thinking)]
        sizes += [call.size() for call in self._calls.values()]
        read = said.input_tokens if said is not None else 0
        written = said.output_tokens if said is not None else 0
        return Usage(
            input_tokens=read or (estimate_tokens(self._request) if self._request is not None else 0),
            output_tokens=max(written, tokens_of(sum(sizes))),
            cost_usd=said.cost_usd if said is not None else None,
            estimated=True,
        )

    def _add_call(self, delta: ToolCallDelta) -> None:
        pieces = self._calls.get(delta.index)
        if pieces is None:
            pieces = self._calls[delta.index] = _Pieces()
        pieces.id = pieces.id or delta.id
        pieces.name = pieces.name or delta.name
        pieces.arguments.append(delta.arguments)

    def _message(self, calls: tuple[ToolCall, ...], *, interrupted: bool) -> Assistant:
        return Assistant(
            text="".join(self._text),
            thinking="".join(self._thinking),
            calls=calls,
            interrupted=interrupted,
            signature=self._signature,
        )


_MAY_BE_CUT: Final = frozenset({Finish.LENGTH, Finish.FILTERED})


class _Pieces:
    """A tool call on its way in."""

    __slots__ = ("arguments", "id", "name")

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []

    def size(self) -> int:
        return _size(self.name) + sum(map(_size, self.arguments))

    def whole(self, finish: Finish) -> ToolCall | None:
        """The call, now that the model has finished. None if it was cut off in the middle.

        Arguments that are no JSON are kept as a JSON string: valid to record, and never mistaken for an object.
        """
        text = "".join(self.arguments)
        if finish in _MAY_BE_CUT and not is_object(text.encode()):
            return None
        return self._call(text)

    def stopped(self, *, is_last: bool) -> ToolCall | None:
        """The call, if it was whole when the stream was stopped. Nobody can tell that of a last one without text."""
        text = "".join(self.arguments)
        is_whole = is_object(text.encode()) or (not text.strip() and not is_last)
        return self._call(text) if self.name and is_whole else None

    def _call(self, text: str) -> ToolCall:
        if not self.id:
            self.id = f"call_{uuid4().hex[:24]}"
        return ToolCall(id=self.id, name=self.name, arguments=_arguments(text))


def _arguments(text: str) -> Json:
    if not text.strip():
        return Json(b"{}")
    body = text.encode()
    # An event is one line of JSON, whatever white space the model likes between its tokens.
    return Json(msgspec.json.format(body, indent=-1)) if is_json(body) else as_json(text)


def is_json(body: bytes) -> bool:
    return _decoded(body) is not _MALFORMED


def is_object(body: bytes) -> bool:
    """Whether `body` is a JSON object, whole and well-formed."""
    return isinstance(_decoded(body), dict)


_MALFORMED: Final = object()


def _decoded(body: bytes) -> object:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return _MALFORMED


async def collect(stream: AsyncIterator[Delta], request: Request | None = None) -> Reply:
    """Read `stream` to its end. It is closed on return, on error and on cancellation."""
    collector = Collector(request)
    try:
        async for delta in stream:
            collector.add(delta)
    finally:
        await close(stream)
    return collector.reply()


async def close(stream: AsyncIterator[Delta]) -> None:
    """Close a stream that nobody is reading any more, also while being cancelled. Takes at most `CLOSE_SECONDS`."""
    aclose = getattr(stream, "aclose", None)
    is_over = getattr(stream, "ag_frame", stream) is None  # a generator that was read to its end has nothing to close
    if aclose is not None and not is_over:
        with anyio.move_on_after(CLOSE_SECONDS, shield=True):
            await aclose()


def estimate_tokens(request: Request) -> int:
    """About how many tokens a model has to read to answer `request`."""
    tools = sum(_size(tool.name) + _size(tool.description) + len(bytes(tool.schema)) for tool in request.tools)
    schema = len(bytes(request.output_schema)) if request.output_schema is not None else 0
    seen = _size(request.instructions) + sum(map(message_size, request.messages)) + tools + schema
    return tokens_of(seen) + request.unseen_tokens


def message_size(message: Message) -> int:
    """How many bytes a model has to read of it, about."""
    if isinstance(message, Assistant):
        calls = sum(_size(call.name) + len(bytes(call.arguments)) for call in message.calls)
        return _size(message.text) + calls
    return _size(message.content if isinstance(message, ToolResult) else message.text)


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def tokens_in(text: str) -> int:
    """About how many tokens a text has."""
    return tokens_of(_size(text))


def tokens_of(size: int) -> int:
    """About how many tokens so many bytes are."""
    return -(-size // BYTES_PER_TOKEN)


def _most(earlier: Usage | None, later: Usage) -> Usage:
    """Both are totals of the same request. Some providers repeat only a part of what they said before."""
    if earlier is None:
        return later
    return msgspec.structs.replace(
        later,
        input_tokens=max(earlier.input_tokens, later.input_tokens),
        output_tokens=max(earlier.output_tokens, later.output_tokens),
        cached_tokens=max(earlier.cached_tokens, later.cached_tokens),
        cache_written_tokens=max(earlier.cache_written_tokens, later.cache_written_tokens),
    )
