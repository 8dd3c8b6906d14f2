"""Answers and errors on the wire of OpenAI's chat completions."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from checkrein.testing.provider import wire
from checkrein.testing.provider.http import data
from checkrein.testing.provider.scenario import Fault, Reply, Usage

DONE: Final = b"data: [DONE]\n\n"
FINGERPRINT: Final = "fp_checkrein"
MODELS: Final = (
    "gpt-6-sol",
    "gpt-5",
    "gpt-5-mini",
    "gpt-4.1",
    "gpt-4o",
    "gpt-*",
    "chatgpt-*",
    "o[0-9]*",
    "llama*",
    "qwen*",
)
MORE_MODELS: Final = ("mistral*", "gemma*", "deepseek*", "*/*")  # as compatible servers call theirs
KNOWN: Final = MODELS + MORE_MODELS

# fmt: off
FINISH: Final[Mapping[str, str]] = MappingProxyType({
    "end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "tool_use": "tool_calls",
    "refusal": "content_filter",
})
"""The other wire's words for how an answer ended."""

ERRORS: Final[Mapping[int, tuple[str, str | None, str]]] = MappingProxyType({
    400: ("invalid_request_error", None, "Bad request."),
    401: ("invalid_request_error", "invalid_api_key", "Incorrect API key provided."),
    403: ("invalid_request_error", "unsupported_country_region_territory",
          "Country, region, or territory not supported"),
    404: ("invalid_request_error", "model_not_found",
          "The model `{model}` does not exist or you do not have access to it."),
    429: ("requests", "rate_limit_exceeded",
          "Rate limit reached for {model} in organization org-checkrein on requests per min (RPM): Limit 3, Used 3, "
          "Requested 1. Please try again in {wait}s."),
    500: ("server_error", None, "The server had an error while processing your request. Sorry about that!"),
    503: ("server_error", None, "The engine is currently overloaded, please try again later."),
})
# fmt: on
"""Type, code and message of what goes wrong on the provider's side, by status."""


def headers() -> dict[str, str]:
    return {
        "x-request-id": wire.new_id("req_", 32),
        "openai-organization": "org-checkrein",
        "openai-processing-ms": "5",
        "openai-version": "2020-10-01",
        "x-ratelimit-limit-requests": "10000",
        "x-ratelimit-remaining-requests": "9999",
        "x-ratelimit-reset-requests": "6ms",
    }


def error(message: str, type: str, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": type, "param": param, "code": code}}


def _error_of(status: int, model: str, wait: str) -> dict[str, Any]:
    type, code, message = ERRORS.get(status) or ERRORS[400 if status < 500 else 500]
    return error(message.format(model=model, wait=wait), type, None, code)


def fault_problem(fault: Fault, model: str) -> wire.Problem:
    """The error that `fault.status` asks for."""
    status, wait = fault.status or wire.ERROR_STATUS, fault.retry_after
    shown = headers() | wire.retry_headers(fault)
    if status == 429:
        shown |= {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": f"{wait or 20}s"}
        if isinstance(wait, float | int):
            shown["retry-after-ms"] = str(round(wait * 1000))
    body = fault.body if fault.body is not None else _error_of(status, model, str(wait or 20))
    return wire.problem(status, shown | fault.headers, body, f"status {status}")


def models(terms: wire.Terms, one: str = "") -> dict[str, Any] | None:
    """The list of models, or the one that is asked for: None if there is no such."""

    def entry(name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": 1_700_000_000, "owned_by": "checkrein"}

    if one:
        return entry(one) if terms.has(one, KNOWN) else None
    return {"object": "list", "data": [entry(name) for name in terms.listed(KNOWN)]}


def answer(reply: Reply, body: dict[str, Any], size: int) -> wire.Answer:
    """`reply` to a request of `size` bytes."""
    limit = body.get("max_completion_tokens") or body.get("max_tokens")
    parts, cut_short = wire.parts_of(reply, limit, lambda: wire.new_id("call_", 24))
    calls = any(part.kind == "call" for part in parts)
    finish = FINISH.get(reply.finish, reply.finish) if reply.finish else "tool_calls" if calls else "stop"
    if cut_short:
        finish = "length"
    used = _usage(wire.usage_of(reply, parts, size))
    stream = _Stream(body, reply)
    return wire.Answer(
        headers=headers(),
        whole=_whole(stream, parts, finish, used if reply.usage else None, reply.reasoning_field),
        opening=stream.chunk({"role": "assistant", "content": None if calls else "", "refusal": None}),
        pieces=stream.pieces(parts),
        closing=[*stream.closing(finish, used), DONE],
        ping=b": keep-alive\n\n",
        malformed=stream.chunk({"content": "never to be read"})[:-20] + b"\n\n",
        oversized=lambda bytes: stream.chunk({"content": "x" * bytes}),
        error=lambda status: data(_error_of(status, stream.model, "20")),
    )


def _usage(used: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": used.input,
        "completion_tokens": used.output,
        "total_tokens": used.input + used.output,
        "prompt_tokens_details": {"cached_tokens": used.cache_read, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": used.reasoning,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


class _Stream:
    """The chunks of one answer, which differ in their delta alone."""

    def __init__(self, body: dict[str, Any], reply: Reply) -> None:
        options = body.get("stream_options") or {}
        self.id = wire.new_id("chatcmpl-", 29)
        self.created = int(time.time())
        self.model = str(body.get("model", ""))
        self._reply = reply
        self._says_usage = bool(options.get("include_usage")) and reply.usage is not False
        self._padded = options.get("include_obfuscation", True)
        self._count = 0

    def chunk(self, delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return self._event([choice], None)

    def _event(self, choices: Collection[dict[str, Any]], usage: dict[str, Any] | None) -> bytes:
        event: dict[str, Any] = {
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.model,
            "service_tier": "default",
            "system_fingerprint": FINGERPRINT,
            "choices": choices,
        }
        if self._says_usage:
            event["usage"] = usage
        if self._padded:
            # The real one hides the length of a token by padding of random length.
            self._count += 7
            event["obfuscation"] = wire.ALPHABET[: 4 + self._count % 12]
        return data(event)

    def pieces(self, parts: list[wire.Part]) -> list[bytes]:
        pieces: list[bytes] = []
        place = -1
        for part in parts:
            begin = b""
            if part.kind == "call":
                place += 1
                function = {"name": part.name, "arguments": ""}
                begin = self._call({"index": place, "id": part.id, "type": "function", "function": function})
            made = [self._token(part.kind, token, place) for token in part.tokens]
            # A call without any arguments, not even {}, still has to begin.
            pieces += [begin + made[0], *made[1:]] if made else [begin]
        return pieces

    def _token(self, kind: str, token: str, place: int) -> bytes:
        if kind == "call":
            return self._call({"index": place, "function": {"arguments": token}})
        return self.chunk({"content" if kind == "text" else self._reply.reasoning_field: token})

    def _call(self, call: dict[str, Any]) -> bytes:
        return self.chunk({"tool_calls": [call]})

    def closing(self, finish: str, used: dict[str, Any]) -> list[bytes]:
        end = self.chunk({}, finish)
        return [end, self._event([], used)] if self._says_usage else [end]


def _whole(stream: _Stream, parts: list[wire.Part], finish: str, used: dict[str, Any] | None, reasoning: str) -> bytes:
    def joined(kind: str) -> str:
        return "".join(part.text for part in parts if part.kind == kind)

    message: dict[str, Any] = {"role": "assistant", "content": joined("text"), "refusal": None, "annotations": []}
    if thought := joined("thinking"):
        message[reasoning] = thought
    calls = [
        {"id": part.id, "type": "function", "function": {"name": part.name, "arguments": part.text}}
        for part in parts
        if part.kind == "call"
    ]
    if calls:
        message |= {"tool_calls": calls, "content": message["content"] or None}
    completion: dict[str, Any] = {
        "id": stream.id,
        "object": "chat.completion",
        "created": stream.created,
        "model": stream.model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}],
        "service_tier": "default",
        "system_fingerprint": FINGERPRINT,
    }
    if used is not None:
        completion["usage"] = used
    return msgspec.json.encode(completion)
