"""Models that are asked over Google's Gemini wire (`streamGenerateContent`).

    GeminiModel("gemini-2.5-flash")

By name, as in `gemini:gemini-2.5-flash`, they are made in `registry`.

The chunks of an answer there, as deltas: parts of text, of thoughts and whole calls. A call mostly has no id there, so
it is given one. It may have a seal of what was thought before it, which goes back with it.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import uuid4

import msgspec

from checkrein.core.conditions import Usage
from checkrein.models.base import Delta, Finish, Finished, TextDelta, ThinkingDelta, ToolCallDelta, UsageDelta
from checkrein.models.failures import ErrorInStream
from checkrein.models.http.client import Response
from checkrein.models.messages import Assistant, Message, Request, Settings, ToolResult, ToolSpec
from checkrein.models.openai import extra_of
from checkrein.models.registry import Service
from checkrein.models.wire import OneServiceModel, Reader

_encode: Final = msgspec.json.Encoder().encode

# fmt: off
_FINISH: Final = {
    "STOP":                    Finish.STOP,
    "MAX_TOKENS":              Finish.LENGTH,
    "SAFETY":                  Finish.FILTERED,
    "RECITATION":              Finish.FILTERED,
    "BLOCKLIST":               Finish.FILTERED,
    "PROHIBITED_CONTENT":      Finish.FILTERED,
    "SPII":                    Finish.FILTERED,
}
# fmt: on
"""Any other word is for an end that is no limit and no filter."""


class _Call(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    args: Any = None
    id: str = ""


class _Part(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    text: str | None = None
    thought: bool = False
    function_call: _Call | None = None
    thought_signature: str = ""


class _Content(msgspec.Struct, frozen=True, gc=False):
    parts: list[_Part] | None = None


class _Candidate(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    content: _Content | None = None
    finish_reason: str | None = None
    index: int = 0


class _Used(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    prompt_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None
    cached_content_token_count: int | None = None


class _Feedback(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    block_reason: str | None = None


class _Chunk(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    candidates: list[_Candidate] | None = None
    usage_metadata: _Used | None = None
    prompt_feedback: _Feedback | None = None
    error: Any = None


_decode: Final = msgspec.json.Decoder(_Chunk).decode


class GeminiReader(Reader):
    """Reads one answer on the Gemini wire. Nothing says that no more will come but the end of the response."""

    __slots__ = ("_calls", "_seals")

    def __init__(self) -> None:
        super().__init__()
        self._calls = 0
        self._seals: dict[str, str] = {}
        """By the number of a call."""

    def read(self, event: bytes) -> list[Delta]:
        chunk = _decode(event)
        if chunk.error is not None:
            raise ErrorInStream(event)
        deltas: list[Delta] = []
        for candidate in chunk.candidates or ():
            if candidate.index == 0 and not self.is_finished:
                self._add(candidate, deltas)
        if chunk.prompt_feedback is not None and chunk.prompt_feedback.block_reason and not self.is_finished:
            self.is_finished = True
            deltas.append(Finished(Finish.FILTERED))
        if chunk.usage_metadata is not None:
            deltas.append(UsageDelta(_usage(chunk.usage_metadata), final=self.is_finished))
        self._said += deltas
        return deltas

    def _add(self, candidate: _Candidate, deltas: list[Delta]) -> None:
        for part in (candidate.content.parts if candidate.content is not None else None) or ():
            if part.function_call is not None:
                call = part.function_call
                arguments = msgspec.json.encode(call.args if call.args is not None else {}).decode()
                deltas.append(ToolCallDelta(self._calls, call.id or new_id(), call.name, arguments))
                if part.thought_signature:
                    self._seals[str(self._calls)] = part.thought_signature
                    deltas.append(ThinkingDelta("", _encode(self._seals).decode()))
                self._calls += 1
            elif part.text:
                deltas.append(ThinkingDelta(part.text) if part.thought else TextDelta(part.text))
        if candidate.finish_reason:
            self.is_finished = True
            reason = _FINISH.get(candidate.finish_reason, Finish.STOP)
            deltas.append(Finished(Finish.TOOL_CALLS if self._calls and reason is Finish.STOP else reason))


def new_id() -> str:
    return f"call_{uuid4().hex[:24]}"


def _usage(used: _Used) -> Usage:
    return Usage(
        input_tokens=used.prompt_token_count or 0,
        output_tokens=(used.candidates_token_count or 0) + (used.thoughts_token_count or 0),
        cost_usd=None,
        cached_tokens=min(used.cached_content_token_count or 0, used.prompt_token_count or 0),
    )


GEMINI: Final = Service(
    name="gemini",
    base_url="https://generativelanguage.googleapis.com",
    url_variable="GOOGLE_GEMINI_BASE_URL",
    key_variable="GEMINI_API_KEY",
)


class GeminiModel(OneServiceModel):
    """A model behind `POST {base_url}/v1beta/models/{name}:streamGenerateContent`.

    Key and address are taken from the arguments, or else from the environment (`GEMINI_API_KEY`,
    `GOOGLE_GEMINI_BASE_URL`) when it is asked; `api_key=""` is for a server that takes none. `headers` are sent with
    every request. What one answer may cost in time is in `timeouts`.
    """

    wrong_address = "Check that the base URL is that of a Gemini API, without /v1beta at its end."
    # Nothing follows the last chunk but the end of the response.
    end_seconds = 1.0
    service = GEMINI

    async def _ask(self, request: Request) -> Response:
        headers = {"content-type": "application/json", "accept": "text/event-stream"}
        if key := self._key():
            headers["x-goog-api-key"] = key
        address = self._address()
        path = f"{address.path.rstrip('/')}/v1beta/models/{self._name}:streamGenerateContent"
        url = address._replace(path=path, query="alt=sse").geturl()
        return await self._streaming(await self._post(url, headers | self._headers, self._body(request)), request)

    def _reader(self) -> Reader:
        return GeminiReader()

    def _encoded(self, message: Message) -> bytes:
        return _content(message)

    def _place_of(self, request: Request, place: int) -> int | None:
        return place if 0 <= place < len(request.messages) else None

    def _body(self, request: Request) -> bytes:
        head: dict[str, Any] = {}
        if request.instructions:
            head["systemInstruction"] = {"parts": [{"text": request.instructions}]}
        if request.tools:
            head["tools"] = [{"functionDeclarations": [_tool(tool) for tool in request.tools]}]
            if request.settings.tool_choice != "auto":
                mode = {"none": "NONE", "required": "ANY"}[request.settings.tool_choice]
                head["toolConfig"] = {"functionCallingConfig": {"mode": mode}}
        if config := _config(request):
            head["generationConfig"] = config
        contents = _joined(self._messages.all(request.messages))
        encoded = _encode(head | extra_of(request.settings))[:-1]
        return encoded + (b"," if len(encoded) > 1 else b"") + b'"contents":[' + contents + b"]}"


def _config(request: Request) -> dict[str, Any]:
    settings: Settings = request.settings
    config: dict[str, Any] = {}
    if settings.max_tokens is not None:
        config["maxOutputTokens"] = settings.max_tokens
    if settings.temperature is not None:
        config["temperature"] = settings.temperature
    if settings.reasoning is not None:
        config["thinkingConfig"] = {"thinkingLevel": settings.reasoning}
    if request.output_schema is not None:
        config |= {"responseMimeType": "application/json", "responseJsonSchema": request.output_schema}
    return config


def _tool(tool: ToolSpec) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.schema}


_RESULT: Final = b'{"role":"user","parts":[{"functionResponse":'


def _joined(contents: list[bytes]) -> bytes:
    """All contents, with results that follow each other in one: a turn is answered as a whole there."""
    joined: list[bytes] = []
    for content in contents:
        if joined and content.startswith(_RESULT) and joined[-1].startswith(_RESULT):
            joined[-1] = joined[-1][:-2] + b"," + content[len(b'{"role":"user","parts":[') :]
        else:
            joined.append(content)
    return b",".join(joined)


def _content(message: Message) -> bytes:
    if isinstance(message, ToolResult):
        response = {"error" if message.is_error else "output": message.content}
        said = {"functionResponse": {"id": message.call, "name": message.name, "response": response}}
        return _encode({"role": "user", "parts": [said]})
    if not isinstance(message, Assistant):
        return _encode({"role": "user", "parts": [{"text": message.text}]})
    parts: list[dict[str, Any]] = [{"text": message.text}] if message.text else []
    seals = _seals_in(message.signature)
    for number, call in enumerate(message.calls):
        asked: dict[str, Any] = {"functionCall": {"id": call.id, "name": call.name, "args": call.arguments}}
        seal = seals.get(str(number))
        parts.append(asked if seal is None else {**asked, "thoughtSignature": seal})
    return _encode({"role": "model", "parts": parts})


def _seals_in(signature: str) -> dict[str, str]:
    """The seals of calls that an answer came with; none where another wire made it."""
    try:
        return msgspec.json.decode(signature, type=dict[str, str]) if signature else {}
    except msgspec.MsgspecError:
        return {}
