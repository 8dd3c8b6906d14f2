"""Answers on the wire of OpenAI's Responses, and what that refuses."""

from __future__ import annotations

import time
from base64 import b64encode
from typing import Any, Final, NoReturn

import msgspec

from checkrein.testing.provider import openai, wire
from checkrein.testing.provider.http import Incoming, events
from checkrein.testing.provider.openai_rules import refuse_key, unknown_model
from checkrein.testing.provider.scenario import Reply, Usage

Item = dict[str, Any]

CALLS: Final = frozenset({"function_call", "custom_tool_call"})
"""Items with which a model asks for a tool. Each must be followed by its output."""


def answer(reply: Reply, body: dict[str, Any], size: int) -> wire.Answer:
    """`reply` to a request of `size` bytes."""
    parts, cut_short = wire.parts_of(reply, body.get("max_output_tokens"), lambda: wire.new_id("call_", 24))
    stream = _Stream(body, parts, cut_short)
    used = _usage(wire.usage_of(reply, parts, size)) if reply.usage else None
    opening, pieces, closing = stream.opening(), stream.pieces(), stream.closing(used)
    return wire.Answer(
        headers=openai.headers(),
        whole=msgspec.json.encode(stream.response(stream.status, stream.items, used)),
        opening=opening,
        pieces=pieces,
        closing=[closing],
        ping=b": keep-alive\n\n",
        malformed=b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","del\n\n',
        oversized=lambda bytes: stream.event("response.output_text.delta", delta="x" * bytes),
        error=stream.error,
    )


def _usage(used: Usage) -> dict[str, Any]:
    return {
        "input_tokens": used.input,
        "input_tokens_details": {"cached_tokens": used.cache_read, "cache_write_tokens": used.cache_write},
        "output_tokens": used.output,
        "output_tokens_details": {"reasoning_tokens": used.reasoning},
        "total_tokens": used.input + used.output,
    }


class _Stream:
    """The events of one answer, numbered in the order in which they are made."""

    def __init__(self, body: dict[str, Any], parts: list[wire.Part], cut_short: bool) -> None:
        self._body = body
        self._parts = parts
        self._id = wire.new_id("resp_", 48)
        self._created = int(time.time())
        self._number = -1
        self.status = "incomplete" if cut_short else "completed"
        self.items = [_item(part, "completed") for part in parts]

    def response(self, status: str, output: list[Item], used: dict[str, Any] | None) -> dict[str, Any]:
        body = self._body
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "instructions": body.get("instructions"),
            "max_output_tokens": body.get("max_output_tokens"),
            "model": body.get("model"),
            "output": output,
            "parallel_tool_calls": body.get("parallel_tool_calls", True),
            "previous_response_id": body.get("previous_response_id"),
            "reasoning": {"effort": None, "summary": None},
            "store": body.get("store", True),
            "temperature": 1.0,
            "text": {"format": {"type": "text"}},
            "tool_choice": body.get("tool_choice", "auto"),
            "tools": body.get("tools", []),
            "top_p": 1.0,
            "truncation": "disabled",
            "usage": used,
            "metadata": {},
        }

    def event(self, kind: str, **fields: Any) -> bytes:
        self._number += 1
        return events([(kind, {"type": kind, "sequence_number": self._number, **fields})])

    def error(self, status: int) -> bytes:
        type, code, message = openai.ERRORS.get(status) or openai.ERRORS[400 if status < 500 else 500]
        said = message.format(model=self._body.get("model"), wait="20")
        return self.event("error", code=code or type, message=said, param=None)

    def opening(self) -> bytes:
        begun = self.response("in_progress", [], None)
        return self.event("response.created", response=begun) + self.event("response.in_progress", response=begun)

    def closing(self, used: dict[str, Any] | None) -> bytes:
        return self.event(f"response.{self.status}", response=self.response(self.status, self.items, used))

    def pieces(self) -> list[bytes]:
        """A piece for each token; the first of an item opens it, the last closes it."""
        made: list[bytes] = []
        for index, (part, item) in enumerate(zip(self._parts, self.items, strict=True)):
            place = {"output_index": index, "item_id": item["id"]}
            begin = self.event("response.output_item.added", output_index=index, item=_begun(item))
            begin += self._part("added", part, place, "")
            tokens = [self._token(part, place, token) for token in part.tokens] or [b""]
            tokens[0] = begin + tokens[0]
            tokens[-1] += self._done(part, place) + self._part("done", part, place, part.text)
            tokens[-1] += self.event("response.output_item.done", output_index=index, item=item)
            made += tokens
        return made

    def _part(self, moment: str, part: wire.Part, place: dict[str, Any], text: str) -> bytes:
        if part.kind == "text":
            return self.event(f"response.content_part.{moment}", **place, content_index=0, part=_text(text))
        if part.kind == "thinking":
            said = {"type": "summary_text", "text": text}
            return self.event(f"response.reasoning_summary_part.{moment}", **place, summary_index=0, part=said)
        return b""

    def _token(self, part: wire.Part, place: dict[str, Any], token: str) -> bytes:
        if part.kind == "text":
            return self.event("response.output_text.delta", **place, content_index=0, delta=token, logprobs=[])
        if part.kind == "thinking":
            return self.event("response.reasoning_summary_text.delta", **place, summary_index=0, delta=token)
        return self.event("response.function_call_arguments.delta", **place, delta=token)

    def _done(self, part: wire.Part, place: dict[str, Any]) -> bytes:
        if part.kind == "text":
            return self.event("response.output_text.done", **place, content_index=0, text=part.text, logprobs=[])
        if part.kind == "thinking":
            return self.event("response.reasoning_summary_text.done", **place, summary_index=0, text=part.text)
        return self.event("response.function_call_arguments.done", **place, name=part.name, arguments=part.text)


def _text(text: str) -> Item:
    return {"type": "output_text", "annotations": [], "logprobs": [], "text": text}


def _item(part: wire.Part, status: str) -> Item:
    if part.kind == "text":
        id = wire.new_id("msg_", 48)
        return {"id": id, "type": "message", "status": status, "content": [_text(part.text)], "role": "assistant"}
    if part.kind == "thinking":
        summary = [{"type": "summary_text", "text": part.text}]
        sealed = b64encode(part.text.encode()).decode()
        return {"id": wire.new_id("rs_", 48), "type": "reasoning", "summary": summary, "encrypted_content": sealed}
    said = {"arguments": part.text, "call_id": part.id, "name": part.name}
    return {"id": wire.new_id("fc_", 48), "type": "function_call", "status": status, **said}


def _begun(item: Item) -> Item:
    """`item` as it is announced, before anything of it has come."""
    empty: dict[str, Item] = {
        "message": {"content": []},
        "reasoning": {"summary": []},
        "function_call": {"arguments": ""},
    }
    begun = item | empty[item["type"]]
    return begun | ({"status": "in_progress"} if "status" in item else {})


# -- what it refuses


def refuse(request: Incoming, body: Any, terms: wire.Terms) -> None:
    """Raise `Refused` where the real provider would answer with an error."""
    refuse_key(request, terms)
    if not isinstance(body, dict):
        _bad("We could not parse the JSON body of your request.")
    if not isinstance(model := body.get("model"), str) or not model:
        _bad("Missing required parameter: 'model'.", "model", "missing_required_parameter")
    if not terms.has(model, openai.KNOWN):
        raise wire.Refused(unknown_model(model))
    if "messages" in body:
        _bad(
            "Unsupported parameter: 'messages'. In the Responses API, this parameter has moved to 'input'.", "messages"
        )
    _refuse_input(body.get("input"), chained="previous_response_id" in body)


def _refuse_input(given: Any, *, chained: bool) -> None:
    if isinstance(given, str):
        return
    if not isinstance(given, list) or not given:
        _bad("Missing required parameter: 'input'.", "input", "missing_required_parameter")
    asked: set[str] = set()
    for place, item in enumerate(given):
        kind = item.get("type", "message")
        if kind in CALLS:
            asked.add(item["call_id"])
        elif kind in ("function_call_output", "custom_tool_call_output"):
            if item["call_id"] not in asked and not chained:
                _bad(f"No tool call found for function call output with call_id {item['call_id']}.", "input")
            asked.discard(item["call_id"])
        elif kind == "message":
            _refuse_content(place, item)
    if asked:
        _bad(f"No tool output found for function call {min(asked)}.", "input")


def _refuse_content(place: int, item: Item) -> None:
    if item.get("role") not in ("user", "assistant", "system", "developer"):
        _bad(f"Invalid value: '{item.get('role')}'.", f"input[{place}].role", "invalid_value")
    kind = "output_text" if item["role"] == "assistant" else "input_text"
    for number, part in enumerate(item["content"] if isinstance(item["content"], list) else []):
        if part["type"] in ("output_text", "input_text") and part["type"] != kind:
            where = f"input[{place}].content[{number}].type"
            _bad(f"Invalid value: '{part['type']}'. Supported values are: '{kind}'.", where, "invalid_value")


def _bad(message: str, param: str | None = None, code: str | None = None) -> NoReturn:
    said = openai.error(message, "invalid_request_error", param, code)
    raise wire.Refused(wire.problem(400, openai.headers(), said, message))
