"""Anthropic's messages."""

from __future__ import annotations

from typing import Any

import msgspec

from checkrein.gateway.wires.base import Answered, Body, Event, SeenCall, Splice, Wire, rest_after
from checkrein.models.anthropic.model import AnthropicReader
from checkrein.models.base import Delta, UsageDelta
from checkrein.models.wire import Reader


class MessagesSplice(Splice):
    """An answer in blocks, numbered. A block of text that is open goes on; any other begins after what there is."""

    seals_thinking = True

    def __init__(self) -> None:
        super().__init__()
        self._open: tuple[int, str] | None = None
        """Number and kind of the block that the client is in."""
        self._next = 0
        self._has_begun = False
        self._places: dict[int, int] = {}
        """The number that a block of this attempt has for the client."""

    def began(self) -> None:
        self._places = {}

    def note(self, event: Event) -> None:
        kind = event.get("type")
        if kind == "content_block_start":
            self._open = (event["index"], str(event["content_block"].get("type")))
            self._next = event["index"] + 1
        elif kind == "content_block_stop":
            self._open = None
        elif kind == "message_start":
            self._has_begun = True
        self.is_thinking = self._open is not None and "thinking" in self._open[1]

    def is_whole(self, events: list[Event], deltas: list[Delta]) -> bool:
        return any(event.get("type") == "content_block_stop" for event in events)

    def rewrite(self, data: bytes) -> list[Event]:
        event: Event = msgspec.json.decode(data)
        kind = event.get("type")
        if kind == "message_start":
            return [] if self._has_begun else [event]
        if kind == "content_block_start":
            return self._begun(event)
        if kind == "message_delta" and self._open is not None:
            return [self._stop(), event]
        if "index" not in event:
            return [event]
        event["index"] = self._places.get(event["index"], event["index"])
        delta = event.get("delta") or {}
        if delta.get("type") == "text_delta":
            delta["text"] = self.joined(delta["text"])
        return [event]

    def _begun(self, event: Event) -> list[Event]:
        if (
            not self._places
            and self._open is not None
            and self._open[1] == event["content_block"].get("type") == "text"
        ):
            self._places[event["index"]] = self._open[0]
            return []
        before = [] if self._open is None else [self._stop()]
        self._places[event["index"]] = self._next
        return [*before, {**event, "index": self._next}]

    def _stop(self) -> Event:
        assert self._open is not None
        return {"type": "content_block_stop", "index": self._open[0]}

    def encode(self, event: Event) -> bytes:
        return b"event: %b\ndata: %b\n\n" % (str(event.get("type")).encode(), msgspec.json.encode(event))

    def closing(self) -> bytes:
        out = b"" if self._open is None else self.encode(self._stop())
        if not self.is_finished:
            ended = {"stop_reason": "tool_use" if self.calls else "end_turn", "stop_sequence": None}
            out += self.encode({"type": "message_delta", "delta": ended, "usage": {"output_tokens": 0}})
        return out + self.encode({"type": "message_stop"})

    def failing(self, message: str) -> bytes:
        return self.encode({"type": "error", "error": {"type": "overloaded_error", "message": message}})


class MessagesWire(Wire):
    provider = "anthropic"

    def messages(self, body: Body) -> list[Body]:
        found = body.get("messages")
        return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []

    def with_messages(self, body: Body, messages: list[Body]) -> Body:
        return {**body, "messages": messages}

    def user(self, text: str) -> Body:
        return {"role": "user", "content": [{"type": "text", "text": text}]}

    def assistant(self, text: str) -> Body:
        return {"role": "assistant", "content": [{"type": "text", "text": text}]}

    def system(self, body: Body) -> object:
        system = body.get("system")
        return [part.get("text") for part in system] if isinstance(system, list) else system

    def tools(self, body: Body) -> frozenset[str]:
        return frozenset(str(tool.get("name")) for tool in body.get("tools") or ())

    def text_of(self, message: Body) -> str:
        content = message.get("content")
        return content if isinstance(content, str) else "".join(str(one["text"]) for one in _blocks(message, "text"))

    def is_answer(self, message: Body) -> bool:
        return message.get("role") == "assistant"

    def split(self, message: Body, half: str) -> tuple[Body, Body | None] | None:
        content = message.get("content")
        blocks: list[Any] = [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())
        if not blocks or blocks[0].get("type") != "text":
            return None  # thinking stays together with what was thought
        rest = rest_after(str(blocks[0]["text"]), half)
        if rest is None:
            return None
        left = [{**blocks[0], "text": rest}] if rest else []
        left += blocks[1:]
        return self.assistant(half.rstrip()), {**message, "content": left} if left else None

    def results(self, messages: list[Body]) -> list[tuple[str, str]]:
        found = [block for message in messages for block in _blocks(message, "tool_result")]
        return [(str(block.get("tool_use_id")), self.text_of(block)) for block in found]

    def reader(self) -> Reader:
        return AnthropicReader()

    def splice(self) -> Splice:
        return MessagesSplice()

    def answered(self, body: Body) -> Answered:
        calls = [
            SeenCall(str(block["id"]), str(block["name"]), msgspec.json.encode(block.get("input")).decode())
            for block in _blocks(body, "tool_use")
        ]
        # The usage of a whole answer has the form of that which begins a stream.
        start = msgspec.json.encode({"type": "message_start", "message": {"usage": body.get("usage")}})
        said = [delta.usage for delta in AnthropicReader().read(start) if isinstance(delta, UsageDelta)]
        return Answered(self.text_of(body), tuple(calls), said[0] if said else None)

    def refusal(self, status: int, message: str) -> Body:
        return {"type": "error", "error": {"type": "invalid_request_error", "message": message}}


def _blocks(message: Body, kind: str) -> list[Body]:
    content = message.get("content")
    found = content if isinstance(content, list) else []
    return [block for block in found if isinstance(block, dict) and block.get("type") == kind]
