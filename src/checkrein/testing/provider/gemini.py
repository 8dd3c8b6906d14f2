"""Answers and errors on the wire of Google's Gemini (`generateContent`), and what that refuses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NoReturn

import msgspec

from checkrein.testing.provider import wire
from checkrein.testing.provider.http import Incoming, data
from checkrein.testing.provider.scenario import Fault, Reply, Usage

MODELS: Final = ("gemini-3-pro", "gemini-2.5-pro", "gemini-2.5-flash", "gemini-*", "gemma*")

# fmt: off
FINISH: Final[Mapping[str, str]] = MappingProxyType({
    "stop": "STOP", "end_turn": "STOP", "stop_sequence": "STOP", "tool_calls": "STOP", "tool_use": "STOP",
    "length": "MAX_TOKENS", "max_tokens": "MAX_TOKENS", "content_filter": "SAFETY", "refusal": "SAFETY",
})
"""The other wires' words for how an answer ended."""

ERRORS: Final[Mapping[int, tuple[str, str]]] = MappingProxyType({
    400: ("INVALID_ARGUMENT", "Request contains an invalid argument."),
    401: ("UNAUTHENTICATED", "Request had invalid authentication credentials."),
    403: ("PERMISSION_DENIED", "The caller does not have permission"),
    404: ("NOT_FOUND", "models/{model} is not found for API version v1beta, or is not supported for generateContent."),
    429: ("RESOURCE_EXHAUSTED", "You exceeded your current quota, please check your plan and billing details."),
    500: ("INTERNAL", "An internal error has occurred. Please retry."),
    503: ("UNAVAILABLE", "The model is overloaded. Please try again later."),
    504: ("DEADLINE_EXCEEDED", "The request timed out. Please try again."),
})
# fmt: on
"""Status and message of what goes wrong on the provider's side, by the status of HTTP."""

HEADERS: Final = {"server": "scaffolding on HTTPServer2", "x-frame-options": "SAMEORIGIN", "vary": "Origin"}


def answer(reply: Reply, body: dict[str, Any], size: int) -> wire.Answer:
    """`reply` to a request of `size` bytes."""
    limit = (body.get("generationConfig") or {}).get("maxOutputTokens")
    parts, cut_short = wire.parts_of(reply, limit, lambda: "")
    finish = "MAX_TOKENS" if cut_short else FINISH.get(reply.finish or "stop", reply.finish)
    stream = _Stream(str(body.get("model", "")), _usage(wire.usage_of(reply, parts, size)) if reply.usage else None)
    return wire.Answer(
        headers=dict(HEADERS),
        whole=msgspec.json.encode(stream.chunk([_part(part, part.text) for part in parts], finish)),
        opening=b"",
        pieces=_pieces(stream, parts),
        closing=[data(stream.chunk([{"text": ""}], finish))],
        ping=b"",  # its own client takes a comment for an answer that is no JSON
        malformed=b'data: {"candidates": [{"content": {"parts": [{"te\n\n',
        oversized=lambda bytes: data(stream.chunk([{"text": "x" * bytes}])),
        error=lambda status: data(_error_of(status, stream.model)),
    )


class _Stream:
    """The chunks of one answer, which differ in their parts alone."""

    def __init__(self, model: str, used: dict[str, Any] | None) -> None:
        self.model = model
        self._id = wire.new_id("", 22)
        self._used = used

    def chunk(self, parts: list[dict[str, Any]], finish: str | None = None) -> dict[str, Any]:
        candidate: dict[str, Any] = {"content": {"parts": parts, "role": "model"}, "index": 0}
        if finish is not None:
            candidate["finishReason"] = finish
        made: dict[str, Any] = {"candidates": [candidate], "modelVersion": self.model, "responseId": self._id}
        if self._used is not None and finish is not None:
            made["usageMetadata"] = self._used
        return made


def _pieces(stream: _Stream, parts: list[wire.Part]) -> list[bytes]:
    """A chunk for each token. A call comes whole, with the last of its tokens."""
    pieces: list[bytes] = []
    for part in parts:
        if part.kind == "call":
            pieces += [b""] * (len(part.tokens) - 1)
            pieces.append(data(stream.chunk([_part(part, part.text)])))
        else:
            pieces += [data(stream.chunk([_part(part, token)])) for token in part.tokens]
    return pieces


def _part(part: wire.Part, text: str) -> dict[str, Any]:
    if part.kind == "call":
        made: dict[str, Any] = {"functionCall": {"name": part.name, "args": _arguments(text)}}
        if part.id:
            made["functionCall"]["id"] = part.id
        return made
    return {"text": text} | ({"thought": True} if part.kind == "thinking" else {})


def _arguments(text: str) -> Any:
    try:
        return json.loads(text or "{}")
    except ValueError:
        return {}


def _usage(used: Usage) -> dict[str, Any]:
    said = {
        "promptTokenCount": used.input,
        "candidatesTokenCount": used.output - used.reasoning,
        "totalTokenCount": used.input + used.output,
    }
    if used.reasoning:
        said["thoughtsTokenCount"] = used.reasoning
    if used.cache_read:
        said["cachedContentTokenCount"] = used.cache_read
    return said


# -- what goes wrong


def _error_of(status: int, model: str) -> dict[str, Any]:
    name, message = ERRORS.get(status) or ERRORS[400 if status < 500 else 500]
    return {"error": {"code": status, "message": message.format(model=model), "status": name}}


def problem_of(status: int, message: str, model: str = "") -> wire.Problem:
    """An error of the provider as a whole response."""
    said = _error_of(status, model)
    said["error"]["message"] = message or said["error"]["message"]
    return wire.problem(status, HEADERS, said, said["error"]["message"])


def fault_problem(fault: Fault, model: str) -> wire.Problem:
    """The error that `fault.status` asks for."""
    status = fault.status or 503
    body = fault.body if fault.body is not None else _error_of(status, model)
    return wire.problem(status, HEADERS | wire.retry_headers(fault) | fault.headers, body, f"status {status}")


def refuse_key(request: Incoming, terms: wire.Terms) -> None:
    if terms.key is None:
        return
    given = [found.partition("=")[2] for found in request.query.split("&") if found.startswith("key=")]
    given.append(request.headers.get("x-goog-api-key", ""))
    if not any(given):
        _fail(403, "Method doesn't allow unregistered callers (callers without established identity).")
    if terms.key not in given:
        _fail(400, "API key not valid. Please pass a valid API key.")


def refuse(request: Incoming, body: Any, terms: wire.Terms) -> None:
    """Raise `Refused` where the real provider would answer with an error."""
    refuse_key(request, terms)
    if not isinstance(body, dict):
        _fail(400, "Invalid JSON payload received.")
    model = str(body.get("model", ""))
    if not terms.has(model, MODELS):
        _fail(404, "", model)
    contents = body.get("contents")
    if not isinstance(contents, list) or not contents:
        _fail(400, "* GenerateContentRequest.contents: contents is not specified\n")
    for place, content in enumerate(contents):
        if content.get("role", "user") not in ("user", "model", "function"):
            _fail(400, "Please use a valid role: user, model.")
        if not content.get("parts"):
            _fail(400, f"* GenerateContentRequest.contents[{place}].parts: contents.parts must not be empty.\n")
    _refuse_calls(contents)


def _refuse_calls(contents: list[dict[str, Any]]) -> None:
    """Every call is answered by the turn after it, part by part."""
    for before, after in zip(contents, [*contents[1:], {}], strict=True):
        calls = sum("functionCall" in part for part in before["parts"])
        answers = sum("functionResponse" in part for part in after.get("parts", ()))
        if calls and calls != answers:
            _fail(
                400,
                "Please ensure that the number of function response parts is equal to the number of function call "
                "parts of the function call turn.",
            )


def _fail(status: int, message: str, model: str = "") -> NoReturn:
    raise wire.Refused(problem_of(status, message, model))
