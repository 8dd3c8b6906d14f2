"""Models that are asked over the Anthropic wire (messages): Anthropic, and everybody who speaks as it does.

    AnthropicModel("claude-opus-5-5")
    AnthropicModel("kimi-k2", provider="moonshot", base_url="https://api.moonshot.ai/anthropic")

By name, as in `anthropic:claude-opus-5-5`, they are made in `registry`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from checkrein.core.conditions import Usage
from checkrein.errors import MisuseError
from checkrein.models.anthropic.request import Bodies, Body, gives_thinking
from checkrein.models.anthropic.thoughts import SEALED, Thought, generation_of, is_since, packed
from checkrein.models.base import Delta, Finish, Finished, TextDelta, ThinkingDelta, ToolCallDelta, UsageDelta
from checkrein.models.failures import ErrorInStream
from checkrein.models.http.client import DEFAULT_TIMEOUTS, Response, Timeouts
from checkrein.models.messages import Request
from checkrein.models.registry import Service, key_of, service_called
from checkrein.models.wire import Reader, WireModel

# fmt: off
_FINISH: Final = {
    "end_turn":                      Finish.STOP,
    "stop_sequence":                 Finish.STOP,
    "tool_use":                      Finish.TOOL_CALLS,
    "max_tokens":                    Finish.LENGTH,
    "model_context_window_exceeded": Finish.LENGTH,
    # The provider's own tools have gone round as often as they may.
    "pause_turn":                    Finish.LENGTH,
    "refusal":                       Finish.FILTERED,
}
# fmt: on


class _Usage(msgspec.Struct, frozen=True, gc=False):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None


class _Message(msgspec.Struct, frozen=True, gc=False):
    usage: _Usage | None = None


class _Block(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    id: str = ""
    name: str = ""
    input: Any = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None


class _Delta(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    text: str = ""
    partial_json: str = ""
    thinking: str = ""
    signature: str = ""
    stop_reason: str | None = None


class _Event(msgspec.Struct, frozen=True, gc=False):
    type: str
    index: int = 0
    delta: _Delta | None = None
    content_block: _Block | None = None
    message: _Message | None = None
    usage: _Usage | None = None


_decode: Final = msgspec.json.Decoder(_Event).decode


class AnthropicReader(Reader):
    """Reads one answer on the Anthropic wire: its events, as deltas. Nothing here waits or sends.

    An answer is a list of blocks, and an event says which of them it belongs to. Kinds of events, blocks and deltas
    that are not known here are passed over: the provider reserves the right to add some.
    """

    __slots__ = ("_cached", "_calls", "_input", "_output", "_text", "_thoughts", "_written")

    def __init__(self) -> None:
        super().__init__()
        self._calls: dict[int, int] = {}
        """Our number of the tool call in the block of that index."""
        self._text = 0
        self._thoughts: list[Thought] = []
        self._input = 0
        self._cached = 0
        self._written = 0
        self._output = 0

    def read(self, event: bytes) -> list[Delta]:
        found = _decode(event)
        # In the order of how often they come: this runs once for every token.
        if found.type == "content_block_delta":
            deltas = self._piece(found) if not self.is_finished else []
        elif found.type == "content_block_start":
            deltas = self._block(found) if not self.is_finished else []
        elif found.type == "message_delta":
            deltas = self._end(found) if not self.is_finished else []
        elif found.type == "message_start":
            deltas = self._used(found.message.usage if found.message is not None else None, final=False)
        elif found.type == "message_stop":
            deltas = self._stop()
        elif found.type == "error":
            raise ErrorInStream(event)
        else:
            deltas = []
        self._said += deltas
        return deltas

    def _piece(self, event: _Event) -> list[Delta]:
        delta = event.delta
        if delta is None:
            return []
        if delta.type == "text_delta":
            return self._spoken(delta.text)
        if delta.type == "input_json_delta":
            number = self._calls.get(event.index)
            if number is None or not delta.partial_json:
                return []
            return [ToolCallDelta(number, arguments=delta.partial_json)]
        if delta.type == "thinking_delta":
            return self._thought(delta.thinking)
        if delta.type == "signature_delta":
            return self._signed(delta.signature)
        return []

    def _block(self, event: _Event) -> list[Delta]:
        block = event.content_block
        if block is None:
            return []
        if block.type == "text":
            return self._spoken(block.text or "")
        if block.type == "tool_use":
            number = self._calls[event.index] = len(self._calls)
            # Arguments come in pieces afterwards; some servers give them here.
            arguments = msgspec.json.encode(block.input).decode() if block.input else ""
            return [ToolCallDelta(number, block.id, block.name, arguments)]
        if block.type == "thinking":
            self._thoughts.append(Thought(self._text, len(self._calls), 0, ""))
            return [*self._thought(block.thinking or ""), *self._signed(block.signature or "")]
        if block.type == "redacted_thinking" and block.data:
            self._thoughts.append(Thought(self._text, len(self._calls), SEALED, block.data))
            return [self._signature()]
        return []

    def _spoken(self, text: str) -> list[Delta]:
        self._text += len(text)
        return [TextDelta(text)] if text else []

    def _thought(self, text: str) -> list[Delta]:
        if not text:
            return []
        if self._thoughts:
            self._thoughts[-1].length += len(text)
        return [ThinkingDelta(text)]

    def _signed(self, signature: str) -> list[Delta]:
        if not signature or not self._thoughts:
            return []
        self._thoughts[-1].seal = signature
        return [self._signature()]

    def _signature(self) -> Delta:
        """What is to be kept so that everything thought so far can be given back."""
        return ThinkingDelta("", packed(self._thoughts))

    def _end(self, event: _Event) -> list[Delta]:
        reason = event.delta.stop_reason if event.delta is not None else None
        deltas = self._used(event.usage, final=reason is not None)
        if reason is not None:
            self.is_finished = True
            deltas.append(Finished(_FINISH.get(reason, Finish.STOP)))
        return deltas

    def _stop(self) -> list[Delta]:
        self.is_complete = True
        if self.is_finished:
            return []
        self.is_finished = True
        return [Finished(Finish.STOP)]

    def _used(self, usage: _Usage | None, *, final: bool) -> list[Delta]:
        """What the provider says it has used. Both times it is a total, and the second may leave out the input."""
        if usage is None:
            return []
        read = (usage.input_tokens, usage.cache_creation_input_tokens, usage.cache_read_input_tokens)
        self._input = max(self._input, sum(count or 0 for count in read))
        self._output = max(self._output, usage.output_tokens or 0)
        if not self._input and not self._output:
            return []
        self._cached = max(self._cached, usage.cache_read_input_tokens or 0)
        self._written = max(self._written, usage.cache_creation_input_tokens or 0)
        said = Usage(
            input_tokens=self._input,
            output_tokens=self._output,
            cost_usd=None,
            cached_tokens=self._cached,
            cache_written_tokens=self._written,
        )
        # No request is free of input: a server that says so has not counted it, and it is estimated instead.
        return [UsageDelta(said, final=final and self._input > 0)]


ANTHROPIC: Final = Service(
    name="anthropic",
    base_url="https://api.anthropic.com",
    url_variable="ANTHROPIC_BASE_URL",
    key_variable="ANTHROPIC_API_KEY",
)

TOKEN_VARIABLE: Final = "ANTHROPIC_AUTH_TOKEN"
"""Some gateways are given this instead of a key."""

MAX_TOKENS: Final = 32_000
"""The wire wants a limit. Thinking counts, and every model of the last years can write as much."""


class AnthropicModel(WireModel):
    """A model behind `POST {base_url}/v1/messages`.

    Key and address are taken from the arguments, or else from the environment (`ANTHROPIC_API_KEY`,
    `ANTHROPIC_BASE_URL`) when it is asked; `api_key=""` is for a server that takes none. `max_tokens` is the longest
    answer where the settings of an agent do not say. `provider` is what stands before the colon of its name: those that
    are not known here have their key in `PROVIDER_API_KEY`. `headers` are sent with every request. What one answer may
    cost in time is in `timeouts`.
    """

    wrong_address = "Check that the base URL is that of an Anthropic-compatible API, without /v1/messages at its end."
    # For the last event of a complete answer. It says nothing, but keeps the connection usable.
    end_seconds = 1.0

    def __init__(
        self,
        name: str,
        *,
        provider: str = "anthropic",
        api_key: str | None = None,
        base_url: str | None = None,
        max_tokens: int = MAX_TOKENS,
        headers: Mapping[str, str] | None = None,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
    ) -> None:
        if max_tokens < 1:
            raise MisuseError("max_tokens must be at least 1: it limits how long an answer may be.")
        service = ANTHROPIC if provider == ANTHROPIC.name else service_called(provider)
        super().__init__(service, name, api_key=api_key, base_url=base_url, headers=headers, timeouts=timeouts)
        self._bodies = Bodies(name, max_tokens=max_tokens)

    async def can_continue(self, request: Request) -> bool:
        """Older models go on where a half answer breaks off. Since 4.6, and while it thinks, a model refuses that."""
        is_older = generation_of(self._name) is not None and not is_since(self._name, (4, 6))
        return is_older and request.output_schema is None and request.settings.reasoning is None

    async def _ask(self, request: Request) -> Response:
        response = await self._send(self._bodies.make(request))
        if response.status == 400 and gives_thinking(request):
            said = await response.beginning()
            if b"thinking" not in said:
                raise self._refusal(response, said, request)
            # It does not recognise what it thought: another model or account did, or something before it has changed.
            # It does without, and rather that than to end a run for it.
            response = await self._send(self._bodies.make(request, thinks=False))
        return await self._streaming(response, request)

    async def _send(self, body: Body) -> Response:
        headers = self._all_headers(body.version)
        return await self._post(self._url(), headers, body.data)

    def _reader(self) -> Reader:
        return AnthropicReader()

    def _place_of(self, request: Request, place: int) -> int | None:
        return self._bodies.place_of(request, place)

    def _url(self) -> str:
        address = self._address()
        path = address.path.rstrip("/").removesuffix("/v1")
        return address._replace(path=f"{path}/v1/messages").geturl()

    def _all_headers(self, version: str) -> dict[str, str]:
        headers = {"content-type": "application/json", "accept": "text/event-stream", "anthropic-version": version}
        if token := self._token():
            headers["authorization"] = f"Bearer {key_of(self._service, token)}"
        elif key := key_of(self._service, self._api_key):
            headers["x-api-key"] = key
        return headers | self._headers

    def _token(self) -> str:
        """What stands in for a key, where there is none."""
        has_key = self._api_key is not None or os.environ.get(self._service.key_variable, "").strip()
        return "" if has_key or self._service is not ANTHROPIC else os.environ.get(TOKEN_VARIABLE, "").strip()

    def _key(self) -> str:
        return self._token() or super()._key()
