"""OpenAI's chat completions."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from checkrein.gateway.wires.base import Answered, Body, Event, SeenCall, Splice, Wire, rest_after
from checkrein.models.base import Delta, Finished, TextDelta
from checkrein.models.openai import DONE, OpenAIReader, usage_in
from checkrein.models.wire import Reader

_DONE: Final = {"done": True}
"""Stands for the end of a stream, which is no JSON on this wire."""


class ChatSplice(Splice):
    """An answer in chunks, all of the same id. The role is said once: clients join what is said of it twice."""

    def __init__(self) -> None:
        super().__init__()
        self._first: Event = {}

    def note(self, event: Event) -> None:
        self._first = self._first or event
        for choice in event.get("choices") or ():
            delta = choice.get("delta") or {}
            if delta.get("content") or delta.get("tool_calls"):
                self.is_thinking = False
            elif delta.get("reasoning_content") or delta.get("reasoning"):
                self.is_thinking = True

    def is_whole(self, events: list[Event], deltas: list[Delta]) -> bool:
        return any(isinstance(delta, Finished | TextDelta) for delta in deltas)

    def rewrite(self, data: bytes) -> list[Event]:
        if data == DONE:
            return [_DONE]
        event: Event = msgspec.json.decode(data)
        if self._first:
            event["id"] = self._first.get("id", event.get("id"))
        for choice in event.get("choices") or ():
            delta = choice.get("delta") or {}
            if self._first:
                delta.pop("role", None)
            if isinstance(delta.get("content"), str):
                delta["content"] = self.joined(delta["content"])
        return [event]

    def encode(self, event: Event) -> bytes:
        return b"data: %b\n\n" % (DONE if event is _DONE else msgspec.json.encode(event))

    def closing(self) -> bytes:
        if self.is_finished:
            return self.encode(_DONE)
        kept = ("id", "object", "created", "model", "system_fingerprint", "service_tier")
        event = {name: self._first[name] for name in kept if name in self._first}
        choice = {"index": 0, "delta": {}, "finish_reason": "tool_calls" if self.calls else "stop"}
        return self.encode({**event, "choices": [choice]}) + self.encode(_DONE)

    def failing(self, message: str) -> bytes:
        return self.encode(
            {"error": {"message": message, "type": "server_error", "param": None, "code": "interrupted"}}
        )


class ChatWire(Wire):
    provider = "openai"

    def messages(self, body: Body) -> list[Body]:
        found = body.get("messages")
        return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []

    def with_messages(self, body: Body, messages: list[Body]) -> Body:
        return {**body, "messages": messages}

    def user(self, text: str) -> Body:
        return {"role": "user", "content": text}

    def assistant(self, text: str) -> Body:
        return {"role": "assistant", "content": text}

    def system(self, body: Body) -> object:
        return [one.get("content") for one in self.messages(body) if one.get("role") in ("system", "developer")]

    def tools(self, body: Body) -> frozenset[str]:
        tools = body.get("tools") or ()
        return frozenset(str((tool.get("function") or tool).get("name", tool.get("type"))) for tool in tools)

    def text_of(self, message: Body) -> str:
        content = message.get("content")
        if isinstance(content, list):
            return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
        return content if isinstance(content, str) else ""

    def is_answer(self, message: Body) -> bool:
        return message.get("role") == "assistant"

    def split(self, message: Body, half: str) -> tuple[Body, Body | None] | None:
        rest = rest_after(self.text_of(message), half)
        if rest is None:
            return None
        whole = {**message, "content": rest or None}
        return self.assistant(half.rstrip()), whole if rest or message.get("tool_calls") else None

    def results(self, messages: list[Body]) -> list[tuple[str, str]]:
        tools = (one for one in messages if one.get("role") == "tool")
        return [(str(one.get("tool_call_id")), self.text_of(one)) for one in tools]

    def reader(self) -> Reader:
        return OpenAIReader()

    def splice(self) -> Splice:
        return ChatSplice()

    def answered(self, body: Body) -> Answered:
        message = body["choices"][0]["message"]
        calls = [
            SeenCall(str(call.get("id")), str(call["function"]["name"]), str(call["function"].get("arguments")))
            for call in message.get("tool_calls") or ()
            if "function" in call
        ]
        return Answered(self.text_of(message), tuple(calls), usage_in(body))

    def refusal(self, status: int, message: str) -> Body:
        return openai_refusal(message)


def openai_refusal(message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": "run_stopped"}}
