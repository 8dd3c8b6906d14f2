"""Models that are asked over the OpenAI wire (chat completions): OpenAI, and everybody who speaks as it does.

    OpenAIModel("gpt-5")
    OpenAIModel("qwen3", base_url="http://gpu-1:8000/v1", api_key="")

By name, as in `openai:gpt-5`, they are made in `registry`.

A request as the OpenAI wire wants it: chat completions, streamed.

The events of an answer on the OpenAI wire, as deltas. Nothing here waits or sends.

Servers that call themselves compatible differ: in where thinking goes, in whether parallel tool calls are numbered, in
repeating ids and names, in leaving out the end. What they mean is told apart here, and not above.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from checkrein.core.conditions import Usage
from checkrein.errors import MisuseError, ModelUnavailable
from checkrein.models.base import Delta, Finish, Finished, TextDelta, ThinkingDelta, ToolCallDelta, UsageDelta
from checkrein.models.failures import ErrorInStream
from checkrein.models.http.client import DEFAULT_TIMEOUTS, Response, Timeouts, client
from checkrein.models.messages import Assistant, Message, Request, Settings, ToolCall, ToolResult, ToolSpec
from checkrein.models.registry import Limit, service_called
from checkrein.models.wire import EncodedMessages, Reader, WireModel

_log = logging.getLogger(__name__)

_encode: Final = msgspec.json.Encoder().encode

OPENAI_HOST: Final = "api.openai.com"
ENGINES_THAT_CONTINUE: Final = ("llamacpp", "vllm", "sglang")
"""Engines that go on with a half answer, as they call themselves (`owned_by`) in their lists of models."""
ENGINE_SECONDS: Final = 5.0
"""How long to wait for such a list."""

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
        if request.continues:
            # As vLLM and SGLang want to be told. llama.cpp and Ollama go on with an assistant's last message anyway.
            head |= {"continue_final_message": True, "add_generation_prompt": False}
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


def usage_in(answer: Mapping[str, Any]) -> Usage | None:
    """What an answer that did not stream says that it has used."""
    said = answer.get("usage")
    return None if said is None else _usage(msgspec.convert(said, _Usage))


class OpenAIModel(WireModel):
    """A model behind `POST {base_url}/chat/completions`.

    Key and address are taken from the arguments, or else from the environment (`OPENAI_API_KEY`, `OPENAI_BASE_URL`)
    when it is asked; `api_key=""` is for a server that takes none. `provider` is what stands before the colon of its
    name: those that are not known here have their key in `PROVIDER_API_KEY`. `headers` are sent with every request.
    Some servers want a model's thinking back, in the field that `thinking_field` names, or do not know the question for
    usage. What one answer may cost in time is in `timeouts`. `continues` says whether the server goes on exactly where
    a half answer breaks off that is its last message; without it the engine behind the address is asked who it is.
    """

    wrong_address = "Check that the base URL is that of an OpenAI-compatible API, which mostly ends in /v1."
    # For what an answer has used, which some give only after it.
    end_seconds = 5.0

    def __init__(
        self,
        name: str,
        *,
        provider: str = "openai",
        api_key: str | None = None,
        base_url: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        thinking_field: str = "",
        asks_for_usage: bool = True,
        continues: bool | None = None,
    ) -> None:
        service = service_called(provider)
        self.tells_cost = service.tells_cost
        self._continues = service.continues if continues is None else continues
        self._engines: dict[str, bool] = {}
        """By address: whether the engine there goes on with a half answer, once that is known."""
        super().__init__(service, name, api_key=api_key, base_url=base_url, headers=headers, timeouts=timeouts)
        self._bodies = Bodies(
            name, limit_field=service.limit_field, thinking_field=thinking_field, asks_for_usage=asks_for_usage
        )

    async def can_continue(self, request: Request) -> bool:
        """Whether the server is known to go on at the end of a half answer."""
        if request.output_schema is not None:
            return False  # the answer would have to follow the schema from where it goes on
        if self._continues is not None:
            return self._continues
        address = self._address()
        if address.hostname == OPENAI_HOST:
            return False
        url = address._replace(path=f"{address.path.rstrip('/')}/models").geturl()
        if url not in self._engines:
            known = await self._engine_at(url)
            if known is None:
                return False  # it could not be asked now
            self._engines[url] = known
        return self._engines[url]

    async def _engine_at(self, url: str) -> bool | None:
        """Whether the list of models there is that of an engine that continues; None where there is no answer."""
        timeouts = Timeouts(connect=ENGINE_SECONDS, first_byte=ENGINE_SECONDS, between_bytes=ENGINE_SECONDS)
        try:
            response = await client().get(url, self._all_headers(), who=self._who(), timeouts=timeouts)
            body = await response.beginning()
        except ModelUnavailable as error:
            _log.info("not known whether the engine continues a half answer: %s", error)
            return None
        return response.status == 200 and any(f'"{name}"'.encode() in body for name in ENGINES_THAT_CONTINUE)

    async def _ask(self, request: Request) -> Response:
        url, headers = self._url(), self._all_headers()
        body = self._bodies.make(request)
        try:
            response = await self._post(url, headers, body)
        except ModelUnavailable as error:
            if error.reason == "refused" and self._base_url is None and self._service.when_refused:
                error.remedy = self._service.when_refused
            raise
        return await self._streaming(response, request)

    def _reader(self) -> Reader:
        return OpenAIReader()

    def _place_of(self, request: Request, place: int) -> int | None:
        return self._bodies.place_of(request, place)

    def _url(self) -> str:
        address = self._address()
        return address._replace(path=f"{address.path.rstrip('/')}/chat/completions").geturl()

    def _all_headers(self) -> dict[str, str]:
        headers = {"content-type": "application/json", "accept": "text/event-stream"}
        for header, variable in self._service.header_variables.items():
            if value := os.environ.get(variable, "").strip():
                headers[header] = value
        if key := self._key():
            headers["authorization"] = f"Bearer {key}"
        return headers | self._headers
