"""A request as the OpenAI wire wants it: chat completions, streamed."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from checkrein.errors import MisuseError
from checkrein.models.encoded import EncodedMessages
from checkrein.models.messages import Assistant, Message, Request, Settings, ToolCall, ToolResult, ToolSpec
from checkrein.models.services import Limit

_encode: Final = msgspec.json.Encoder().encode

_OURS: Final = frozenset({"messages", "stream"})


class Bodies:
    """Makes the bodies of requests to one model. What a message looks like on the wire is worked out once."""

    def __init__(self, model: str, *, limit_field: Limit, thinking_field: str, asks_for_usage: bool) -> None:
        self._model = model
        self._limit_field = limit_field
        self._thinking_field = thinking_field
        self._asks_for_usage = asks_for_usage
        self._messages = EncodedMessages(self._message)

    def make(self, request: Request) -> bytes:
        """The whole body. Raises `MisuseError` if `settings.extra` would replace what is not the author's to choose."""
        messages = self._messages.all(request.messages)
        if request.instructions:
            messages.insert(0, _encode({"role": "system", "content": request.instructions}))
        return _encode(self._head(request))[:-1] + b',"messages":[' + b",".join(messages) + b"]}"

    def place_of(self, request: Request, place: int) -> int | None:
        """Which message of `request` is the one at `place` on the wire; None for the instructions."""
        found = place - bool(request.instructions)
        return found if 0 <= found < len(request.messages) else None

    def _head(self, request: Request) -> dict[str, Any]:
        head: dict[str, Any] = {"model": self._model, "stream": True}
        if self._asks_for_usage:
            head["stream_options"] = {"include_usage": True}
        if request.tools:
            head["tools"] = [_tool(tool) for tool in request.tools]
            if request.settings.tool_choice != "auto":
                head["tool_choice"] = request.settings.tool_choice
        if request.output_schema is not None:
            # Not `strict`: that is for schemas without defaults or optional fields, and refuses all others.
            schema = {"name": "answer", "schema": request.output_schema}
            head["response_format"] = {"type": "json_schema", "json_schema": schema}
        return head | self._settings(request.settings)

    def _settings(self, settings: Settings) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if settings.max_tokens is not None:
            found[self._limit_field] = settings.max_tokens
        if settings.temperature is not None:
            found["temperature"] = settings.temperature
        if settings.reasoning is not None:
            found["reasoning_effort"] = settings.reasoning
        return found | extra_of(settings)

    def _message(self, message: Message) -> bytes:
        if isinstance(message, ToolResult):
            return _encode({"role": "tool", "tool_call_id": message.call, "content": message.content})
        if not isinstance(message, Assistant):
            return _encode({"role": "user", "content": message.text})
        said: dict[str, Any] = {"role": "assistant", "content": message.text}
        if message.calls:
            said["content"] = message.text or None
            said["tool_calls"] = [_call(call) for call in message.calls]
        if self._thinking_field and message.thinking:
            said[self._thinking_field] = message.thinking
        return _encode(said)


def extra_of(settings: Settings) -> dict[str, Any]:
    """What an author hands on to this one provider."""
    if settings.extra is None:
        return {}
    extra = msgspec.json.decode(settings.extra)
    if not isinstance(extra, dict):
        raise MisuseError("`extra` of a model's settings must be an object of fields and their values.")
    if taken := _OURS & extra.keys():
        raise MisuseError(f"`extra` of a model's settings may not replace {' and '.join(sorted(taken))}.")
    return extra


def _tool(tool: ToolSpec) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.schema}
    return {"type": "function", "function": function}


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": bytes(call.arguments).decode()}
    return {"id": call.id, "type": "function", "function": function}
