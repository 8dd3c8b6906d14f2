"""Answers and errors on the wire of Anthropic's messages."""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from checkrein.testing.provider import wire
from checkrein.testing.provider.http import events
from checkrein.testing.provider.scenario import Fault, Reply, Usage

MODELS: Final = ("claude-opus-5-5", "claude-sonnet-5-5", "claude-opus-4-6", "claude-haiku-4-5", "claude-*")

# fmt: off
STOP: Final[Mapping[str, str]] = MappingProxyType({
    "stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal",
})
"""The other wire's words for how an answer ended."""

ERRORS: Final[Mapping[int, tuple[str, str]]] = MappingProxyType({
    400: ("invalid_request_error", "Bad request."),
    401: ("authentication_error", "invalid x-api-key"),
    403: ("permission_error", "Your API key does not have permission to use the specified resource."),
    404: ("not_found_error", "model: {model}"),
    413: ("request_too_large", "Request exceeds the maximum size"),
    429: ("rate_limit_error", "This request would exceed your organization's rate limit of 50 requests per minute."),
    500: ("api_error", "Internal server error"),
    504: ("timeout_error", "Request timed out"),
    529: ("overloaded_error", "Overloaded"),
})
# fmt: on
"""Type and message of what goes wrong on the provider's side, by status."""

SEAL: Final = b"checkrein"
VERSION: Final = re.compile(r"claude-[a-z]+-(\d{1,2})(?:-(\d{1,2}))?(?!\d)")
HIDES_THINKING_SINCE: Final = (4, 7)
"""Models that keep their thinking to themselves unless they are asked to show it."""

PING: Final = events([("ping", {"type": "ping"})])


def headers(request_id: str) -> dict[str, str]:
    return {
        "request-id": request_id,
        "anthropic-organization-id": "00000000-0000-4000-8000-000000000000",
        "anthropic-ratelimit-requests-limit": "50",
        "anthropic-ratelimit-requests-remaining": "49",
        "cache-control": "no-cache",
    }


def error(type: str, message: str, request_id: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": type, "message": message}, "request_id": request_id}


def problem_of(status: int, type: str, message: str) -> wire.Problem:
    """An error of the provider as a whole response."""
    request_id = wire.new_id("req_011C", 20)
    shown = headers(request_id) | {"x-should-retry": _should_retry(status)}
    return wire.problem(status, shown, error(type, message, request_id), message)


def _should_retry(status: int) -> str:
    return "true" if status in wire.RETRY or status >= 500 else "false"


def _error_of(status: int) -> tuple[str, str]:
    return ERRORS.get(status) or ERRORS[400 if status < 500 else 500]


def fault_problem(fault: Fault, model: str) -> wire.Problem:
    """The error that `fault.status` asks for."""
    status = fault.status or wire.ERROR_STATUS
    type, message = _error_of(status)
    made = problem_of(status, type, message.format(model=model))
    shown = made.headers | wire.retry_headers(fault)
    if status == 429:
        shown["anthropic-ratelimit-requests-remaining"] = "0"
    body = fault.body if fault.body is not None else msgspec.json.decode(made.body)
    if isinstance(body, str):
        del shown["content-type"]
    return wire.problem(status, shown | fault.headers, body, f"status {status}")


def models(terms: wire.Terms, one: str = "") -> dict[str, Any] | None:
    """The list of models, or the one that is asked for: None if there is no such."""

    def entry(name: str) -> dict[str, Any]:
        return {
            "type": "model",
            "id": name,
            "display_name": name,
            "created_at": "2026-01-01T00:00:00Z",
            "lifecycle": "active",
        }

    if one:
        return entry(one) if terms.has(one, MODELS) else None
    entries = [entry(name) for name in terms.listed(MODELS)]
    ids = [found["id"] for found in entries] or [None]
    return {"data": entries, "has_more": False, "first_id": ids[0], "last_id": ids[-1]}


def signature_of(thinking: str) -> str:
    """What goes with a block of thinking and must come back with it: it fits that text and no other."""
    digest = sha256(thinking.encode()).digest()
    return b64encode(digest + sha256(SEAL + digest).digest()).decode()


def fits(signature: str, thinking: str) -> bool:
    """Whether this provider made `signature` for `thinking`, or kept the thinking to itself."""
    try:
        made = b64decode(signature, validate=True)
    except ValueError:
        return False
    ours = made[32:] == sha256(SEAL + made[:32]).digest()
    return ours and (not thinking or signature == signature_of(thinking))


def version_of(model: str) -> tuple[int, int] | None:
    """4.6 of claude-opus-4-6; None for names of another form, such as claude-3-5-haiku-latest."""
    found = VERSION.match(model)
    return (int(found[1]), int(found[2] or 0)) if found else None


def _shows_thinking(body: dict[str, Any]) -> bool:
    display = (body.get("thinking") or {}).get("display")
    version = version_of(body["model"])
    return display == "summarized" if display else version is None or version < HIDES_THINKING_SINCE


def answer(reply: Reply, body: dict[str, Any], size: int) -> wire.Answer:
    """`reply` to a request of `size` bytes."""
    parts, cut_short = wire.parts_of(reply, body.get("max_tokens"), lambda: wire.new_id("toolu_01", 22))
    calls = any(part.kind == "call" for part in parts)
    stop = STOP.get(reply.finish, reply.finish) if reply.finish else "tool_use" if calls else "end_turn"
    if cut_short:
        stop = "max_tokens"
    used = _usage(wire.usage_of(reply, parts, size))
    shown = parts if _shows_thinking(body) else [replace(part, shown=part.kind != "thinking") for part in parts]
    request_id = wire.new_id("req_011C", 20)
    message: dict[str, Any] = {
        "id": wire.new_id("msg_01", 22),
        "type": "message",
        "role": "assistant",
        "model": body.get("model"),
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": used | {"output_tokens": min(1, used["output_tokens"])},
    }
    ended = {"stop_reason": stop, "stop_sequence": None}
    last = {key: value for key, value in used.items() if isinstance(value, int)}
    return wire.Answer(
        headers=headers(request_id),
        whole=msgspec.json.encode(message | ended | {"content": [_block(part) for part in shown], "usage": used}),
        opening=events([("message_start", {"type": "message_start", "message": message})]),
        pieces=_pieces(shown),
        closing=[
            events([("message_delta", {"type": "message_delta", "delta": ended, "usage": last})]),
            events([("message_stop", {"type": "message_stop"})]),
        ],
        ping=PING,
        malformed=b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"te\n\n',
        oversized=lambda bytes: _delta(0, {"type": "text_delta", "text": "x" * bytes}),
        error=lambda status: events([("error", error(*_error_of(status), request_id))]),
    )


def _usage(used: Usage) -> dict[str, Any]:
    return {
        "input_tokens": used.input - used.cache_read - used.cache_write,
        "cache_creation_input_tokens": used.cache_write,
        "cache_read_input_tokens": used.cache_read,
        "output_tokens": used.output,
        "service_tier": "standard",
    }


def _pieces(parts: list[wire.Part]) -> list[bytes]:
    """A piece for each token; the first of a block opens it, the last closes it."""
    pieces: list[bytes] = []
    for index, part in enumerate(parts):
        begin = {"type": "content_block_start", "index": index, "content_block": _empty_block(part)}
        opening = events([("content_block_start", begin)]) + (PING if index == 0 else b"")
        made = [_delta(index, _token(part, token)) for token in part.tokens if part.shown] or [b""]
        if part.kind == "call":
            opening += _delta(index, _token(part, ""))
        made[0] = opening + made[0]
        if part.kind == "thinking":
            made[-1] += _delta(index, {"type": "signature_delta", "signature": signature_of(part.text)})
        made[-1] += events([("content_block_stop", {"type": "content_block_stop", "index": index})])
        pieces += made
    return pieces


def _delta(index: int, delta: dict[str, Any]) -> bytes:
    return events([("content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta})])


def _token(part: wire.Part, token: str) -> dict[str, Any]:
    if part.kind == "call":
        return {"type": "input_json_delta", "partial_json": token}
    return {"type": f"{part.kind}_delta", part.kind: token}


def _empty_block(part: wire.Part) -> dict[str, Any]:
    if part.kind == "call":
        return {"type": "tool_use", "id": part.id, "name": part.name, "input": {}}
    return {"type": part.kind, part.kind: ""} | ({"signature": ""} if part.kind == "thinking" else {})


def _block(part: wire.Part) -> dict[str, Any]:
    block = _empty_block(part)
    if part.kind == "call":
        return block | {"input": _input(part.text)}
    block[part.kind] = part.text if part.shown else ""
    return block | ({"signature": signature_of(part.text)} if part.kind == "thinking" else {})


def _input(arguments: str) -> Any:
    """As an object, which it may not be when the scenario or a limit broke it off."""
    try:
        return json.loads(arguments or "{}")
    except ValueError:
        return {}
