"""Models that are asked over OpenAI's Responses wire.

    ResponsesModel("gpt-5")

By name, as in `openai-responses:gpt-5`, they are made in `registry`. Each request brings the whole conversation along
and nothing is kept at the provider (`store: false`), so a run can be resumed and forked like any other.

The events of an answer there, as deltas. Kinds that are not known here are passed over.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from checkrein.core.conditions import Usage
from checkrein.models.base import Delta, Finish, Finished, TextDelta, ThinkingDelta, ToolCallDelta, UsageDelta
from checkrein.models.failures import ErrorInStream
from checkrein.models.http.client import Response
from checkrein.models.messages import Assistant, Message, Request, ToolResult, ToolSpec
from checkrein.models.openai import extra_of
from checkrein.models.registry import OPENAI
from checkrein.models.wire import OneServiceModel, Reader

_encode: Final = msgspec.json.Encoder().encode

CALLS: Final = frozenset({"function_call", "custom_tool_call"})
"""Items with which a model asks for a tool of its caller."""


class _Details(msgspec.Struct, frozen=True, gc=False):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct, frozen=True, gc=False):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _Details | None = None


class _Incomplete(msgspec.Struct, frozen=True, gc=False):
    reason: str | None = None


class _Response(msgspec.Struct, frozen=True, gc=False):
    usage: _Usage | None = None
    incomplete_details: _Incomplete | None = None


class _Item(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    call_id: str = ""
    name: str = ""
    arguments: str | None = None
    input: str | None = None


class _Event(msgspec.Struct, frozen=True, gc=False):
    type: str
    delta: Any = None
    output_index: int = 0
    item: _Item | None = None
    response: _Response | None = None


_decode: Final = msgspec.json.Decoder(_Event).decode

_TEXT: Final = frozenset({"response.output_text.delta", "response.refusal.delta"})
_THINKING: Final = frozenset({"response.reasoning_summary_text.delta", "response.reasoning_text.delta"})
_ARGUMENTS: Final = frozenset({"response.function_call_arguments.delta", "response.custom_tool_call_input.delta"})
_ENDS: Final = frozenset({"response.completed", "response.incomplete"})
_FAILS: Final = frozenset({"error", "response.failed"})


class ResponsesReader(Reader):
    """Reads one answer on the Responses wire."""

    __slots__ = ("_calls", "_is_refusal")

    def __init__(self) -> None:
        super().__init__()
        self._calls: dict[int, int] = {}
        """Our number of the tool call that is the item of that index."""
        self._is_refusal = False

    def read(self, event: bytes) -> list[Delta]:
        found = _decode(event)
        if found.type in _TEXT:
            self._is_refusal = self._is_refusal or found.type != "response.output_text.delta"
            deltas: list[Delta] = [TextDelta(found.delta)] if found.delta else []
        elif found.type in _ARGUMENTS:
            number = self._calls.get(found.output_index)
            deltas = [] if number is None or not found.delta else [ToolCallDelta(number, arguments=found.delta)]
        elif found.type in _THINKING:
            deltas = [ThinkingDelta(found.delta)] if found.delta else []
        elif found.type == "response.output_item.added" and found.item is not None:
            deltas = self._begun(found.output_index, found.item)
        elif found.type in _ENDS:
            deltas = self._end(found)
        elif found.type in _FAILS:
            raise ErrorInStream(event)
        else:
            deltas = []
        self._said += deltas
        return deltas

    def _begun(self, index: int, item: _Item) -> list[Delta]:
        if item.type not in CALLS:
            return []
        number = self._calls[index] = len(self._calls)
        return [ToolCallDelta(number, item.call_id, item.name, item.arguments or item.input or "")]

    def _end(self, event: _Event) -> list[Delta]:
        self.is_complete = self.is_finished = True
        response = event.response or _Response()
        deltas: list[Delta] = [] if response.usage is None else [UsageDelta(_usage(response.usage))]
        return [*deltas, Finished(self._reason(event.type, response))]

    def _reason(self, kind: str, response: _Response) -> Finish:
        if self._is_refusal:
            return Finish.FILTERED
        if kind == "response.incomplete":
            why = response.incomplete_details.reason if response.incomplete_details is not None else None
            return Finish.FILTERED if why == "content_filter" else Finish.LENGTH
        return Finish.TOOL_CALLS if self._calls else Finish.STOP


def _usage(used: _Usage) -> Usage:
    cached = used.input_tokens_details.cached_tokens if used.input_tokens_details is not None else None
    return Usage(
        input_tokens=used.input_tokens or 0,
        output_tokens=used.output_tokens or 0,
        cost_usd=None,
        cached_tokens=min(cached or 0, used.input_tokens or 0),
    )


SERVICE: Final = msgspec.structs.replace(OPENAI, name="openai-responses")


class ResponsesModel(OneServiceModel):
    """A model behind `POST {base_url}/responses`.

    Key and address are taken from the arguments, or else from the environment (`OPENAI_API_KEY`, `OPENAI_BASE_URL`)
    when it is asked; `api_key=""` is for a server that takes none. `headers` are sent with every request. What one
    answer may cost in time is in `timeouts`.
    """

    wrong_address = "Check that the base URL is that of an API with OpenAI's Responses, which mostly ends in /v1."
    end_seconds = 1.0
    service = SERVICE

    async def _ask(self, request: Request) -> Response:
        headers = {"content-type": "application/json", "accept": "text/event-stream"}
        if key := self._key():
            headers["authorization"] = f"Bearer {key}"
        address = self._address()
        url = address._replace(path=f"{address.path.rstrip('/')}/responses").geturl()
        return await self._streaming(await self._post(url, headers | self._headers, self._body(request)), request)

    def _reader(self) -> Reader:
        return ResponsesReader()

    def _encoded(self, message: Message) -> bytes:
        return _items(message)

    def _place_of(self, request: Request, place: int) -> int | None:
        """A message may be several items there, so they are counted."""
        for index, message in enumerate(request.messages):
            place -= len(_parts(message))
            if place < 0:
                return index
        return None

    def _body(self, request: Request) -> bytes:
        head: dict[str, Any] = {"model": self._name, "stream": True, "store": False}
        if request.instructions:
            head["instructions"] = request.instructions
        settings = request.settings
        if request.tools:
            head["tools"] = [_tool(tool) for tool in request.tools]
            if settings.tool_choice != "auto":
                head["tool_choice"] = settings.tool_choice
        if request.output_schema is not None:
            form = {"type": "json_schema", "name": "answer", "schema": request.output_schema, "strict": False}
            head["text"] = {"format": form}
        if settings.max_tokens is not None:
            head["max_output_tokens"] = settings.max_tokens
        if settings.temperature is not None:
            head["temperature"] = settings.temperature
        if settings.reasoning is not None:
            head["reasoning"] = {"effort": settings.reasoning}
        items = b",".join(found for found in self._messages.all(request.messages) if found)
        return _encode(head | extra_of(settings))[:-1] + b',"input":[' + items + b"]}"


def _tool(tool: ToolSpec) -> dict[str, Any]:
    said = {"name": tool.name, "description": tool.description, "parameters": tool.schema}
    return {"type": "function", **said, "strict": False}


def _items(message: Message) -> bytes:
    """A message as the items that it is there, without the brackets around them."""
    return b",".join(map(_encode, _parts(message)))


def _parts(message: Message) -> list[dict[str, Any]]:
    if isinstance(message, ToolResult):
        return [{"type": "function_call_output", "call_id": message.call, "output": message.content}]
    if not isinstance(message, Assistant):
        return [{"role": "user", "content": message.text}]
    parts: list[dict[str, Any]] = [{"role": "assistant", "content": message.text}] if message.text else []
    for call in message.calls:
        said = {"call_id": call.id, "name": call.name, "arguments": bytes(call.arguments).decode()}
        parts.append({"type": "function_call", **said})
    return parts
