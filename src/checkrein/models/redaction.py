"""Secrets on their way to a model and back: what it is asked, and what it says, piece by piece."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

from msgspec.structs import replace

from checkrein.core.events import Json
from checkrein.models.base import Delta, Finished, TextDelta, ThinkingDelta, ToolCallDelta
from checkrein.models.messages import Assistant, Message, Request, ToolCall, ToolResult, ToolSpec
from checkrein.secrets import Secrets, Stream


class RedactedReply:
    """The deltas of one reply, without secrets: in its text, its thinking, and the tool calls it asks for.

    Text comes as soon as it is known to be no secret. The arguments of a tool call, which nobody reads before they are
    complete, come at the end.
    """

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._text: Stream | None = None
        self._thinking: Stream | None = None
        self._arguments: dict[int, list[str]] = {}

    @property
    def keeps_thinking(self) -> bool:
        """Whether the thinking is word for word what the model thought; otherwise a signature no longer fits it."""
        return self._thinking is None or (not self._thinking.has_redacted and not self._thinking.held)

    def feed(self, delta: Delta) -> Iterable[Delta]:
        """What may be passed on now that `delta` has come."""
        if not self._secrets:
            return (delta,)
        if isinstance(delta, TextDelta):
            self._text = self._text or self._secrets.stream()
            text = self._text.feed(delta.text)
            if text == delta.text:
                return (delta,)
            return (TextDelta(text),) if text else ()
        if isinstance(delta, ToolCallDelta):
            self._arguments.setdefault(delta.index, []).append(delta.arguments)
            return (ToolCallDelta(delta.index, self._secrets.text(delta.id), self._secrets.text(delta.name)),)
        if isinstance(delta, ThinkingDelta):
            self._thinking = self._thinking or self._secrets.stream()
            return (ThinkingDelta(self._thinking.feed(delta.text), delta.signature),)
        if isinstance(delta, Finished):
            return (*self.end(), delta)
        return (delta,)

    def end(self) -> Iterator[Delta]:
        """The reply is over: the rest of it."""
        if self._text is not None and (text := self._text.end()):
            yield TextDelta(text)
        if self._thinking is not None and (thinking := self._thinking.end()):
            yield ThinkingDelta(thinking)
        yield from self.calls()

    def calls(self) -> Iterator[ToolCallDelta]:
        """The arguments of the tool calls so far. Where a reply was stopped, this is the rest of it: text that could
        still have become a secret is dropped."""
        arguments, self._arguments = self._arguments, {}
        for index, pieces in arguments.items():
            body = "".join(pieces).encode("utf-8", "surrogatepass")
            yield ToolCallDelta(index, arguments=self._secrets.json(body).decode("utf-8", "surrogatepass"))


def redacted_request(secrets: Secrets, request: Request) -> Request:
    """What the author of an agent wrote, without secrets. A default argument that was read from the environment stands
    in the schema of its tool. The messages are made of what has been redacted already."""
    if not secrets:
        return request
    schema = request.output_schema
    return replace(
        request,
        instructions=_text(secrets, request.instructions),
        tools=tuple(_tool(secrets, tool) for tool in request.tools),
        output_schema=None if schema is None else Json(_json(secrets, bytes(schema))),
    )


def redacted_messages(secrets: Secrets, messages: Iterable[Message]) -> tuple[Message, ...]:
    """Messages that a program has made itself, without secrets."""
    return tuple(_message(secrets, message) for message in messages)


def _message(secrets: Secrets, message: Message) -> Message:
    if isinstance(message, ToolResult):
        return replace(message, content=secrets.text(message.content))
    if isinstance(message, Assistant):
        thinking = secrets.text(message.thinking)
        return replace(
            message,
            text=secrets.text(message.text),
            thinking=thinking,
            calls=tuple(_call(secrets, call) for call in message.calls),
            signature=message.signature if thinking == message.thinking else "",
        )
    return replace(message, text=secrets.text(message.text))


def _call(secrets: Secrets, call: ToolCall) -> ToolCall:
    return replace(call, arguments=Json(secrets.json(bytes(call.arguments))))


def _tool(secrets: Secrets, tool: ToolSpec) -> ToolSpec:
    description, schema = _text(secrets, tool.description), _json(secrets, bytes(tool.schema))
    return ToolSpec(name=tool.name, description=description, schema=Json(schema))


# The same for every turn of an agent, so it is looked at once.
@lru_cache(maxsize=512)
def _text(secrets: Secrets, text: str) -> str:
    return secrets.text(text)


@lru_cache(maxsize=512)
def _json(secrets: Secrets, body: bytes) -> bytes:
    return secrets.json(body)
