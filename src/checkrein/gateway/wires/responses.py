"""OpenAI's Responses.

Everything is said several times there: in deltas, and once more as a whole in four closing events. So a splice keeps
what the client has, and writes those four anew.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from checkrein.gateway.wires.base import Answered, Body, Event, SeenCall, Splice, Wire, rest_after
from checkrein.gateway.wires.chat import openai_refusal
from checkrein.models.base import Delta, UsageDelta
from checkrein.models.openai_responses import CALLS, ResponsesReader
from checkrein.models.wire import Reader

_BEGINS: Final = frozenset({"response.created", "response.in_progress", "response.queued"})
_ENDS: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})


class ResponsesSplice(Splice):
    """An answer as a list of items. A message that is open goes on; any other item begins after what there is."""

    seals_thinking = True

    def __init__(self) -> None:
        super().__init__()
        self.id = ""
        """The one by which the client knows the answer."""
        self.last_id = ""
        """The one by which the provider knows it: that of the last attempt."""
        self._response: Event = {}
        self._number = -1
        self._items: dict[int, Event] = {}
        """The items that the client has, the open ones as far as they have come."""
        self._open: set[int] = set()
        self._texts: dict[tuple[int, int], str] = {}
        self._places: dict[int, int] = {}

    def began(self) -> None:
        self._places = {}

    # -- what the client has

    def note(self, event: Event) -> None:
        kind, index = str(event.get("type")), event.get("output_index")
        self._number = max(self._number, event.get("sequence_number", self._number + 1))
        if kind in _BEGINS and not self.id:
            self._response = event["response"]
            self.id = self.last_id = str(self._response.get("id"))
        elif kind == "response.output_item.added" and index is not None:
            self._items[index] = event["item"]
            self._open.add(index)
        elif kind == "response.output_item.done" and index is not None:
            self._items[index] = event["item"]
            self._open.discard(index)
        elif kind == "response.output_text.delta" and index is not None:
            place = (index, event.get("content_index", 0))
            self._texts[place] = self._texts.get(place, "") + event["delta"]
        elif kind == "response.content_part.added" and index is not None:
            self._texts.setdefault((index, event.get("content_index", 0)), "")
        self.is_thinking = any(self._items[one].get("type") == "reasoning" for one in self._open)

    def is_whole(self, events: list[Event], deltas: list[Delta]) -> bool:
        return any(
            event.get("type") == "response.output_item.done" and event["item"].get("type") in CALLS for event in events
        ) or any(event.get("type") in _ENDS for event in events)

    # -- what a later attempt adds

    def rewrite(self, data: bytes) -> list[Event]:
        event: Event = msgspec.json.decode(data)
        kind = event.get("type")
        if kind in _BEGINS:
            self.last_id = str(event["response"].get("id"))
            return [] if self.id else [event]
        events = self._ended(event) if kind in _ENDS else self._item_event(event)
        held = sum(len(found) for _, found, _ in self._held)
        return [{**one, "sequence_number": self._number + held + at + 1} for at, one in enumerate(events)]

    def _item_event(self, event: Event) -> list[Event]:
        if "output_index" not in event:
            return [event]
        kind, given = event.get("type"), int(event["output_index"])
        message = self._open_message()
        if kind == "response.output_item.added":
            if not self._places and message is not None and event["item"].get("type") == "message":
                self._places[given] = message
                return []
            before = [] if message is None else self._closing(message)
            self._places[given] = len(self._items)
            return [*before, {**event, "output_index": len(self._items)}]
        place: int = self._places.get(given, given)
        event["output_index"] = place
        if place in self._items and "item_id" in event:
            event["item_id"] = self._items[place].get("id", event["item_id"])
        return self._text_event(event, (place, event.get("content_index", 0)))

    def _text_event(self, event: Event, place: tuple[int, int]) -> list[Event]:
        kind = event.get("type")
        if kind == "response.content_part.added" and place in self._texts:
            return []
        if kind == "response.output_text.delta":
            event["delta"] = self.joined(event["delta"])
        elif kind == "response.output_text.done":
            event["text"] = self._texts.get(place, event["text"])
        elif kind == "response.content_part.done" and "text" in event["part"]:
            event["part"]["text"] = self._texts.get(place, event["part"]["text"])
        elif kind == "response.output_item.done":
            event["item"] = self._whole(place[0], event["item"])
        return [event]

    def _whole(self, place: int, item: Event) -> Event:
        """`item` with the id by which the client knows it, and all of its text."""
        if item.get("type") != "message":
            return item
        for number, part in enumerate(item.get("content") or ()):
            if "text" in part:
                part["text"] = self._texts.get((place, number), part["text"])
        return {**item, "id": self._items.get(place, item).get("id")}

    def _ended(self, event: Event) -> list[Event]:
        message = self._open_message()
        before = [] if message is None else self._closing(message)
        items = {**self._items}
        if message is not None:
            items[message] = before[-1]["item"]
        self.last_id = str(event["response"].get("id"))
        output = [items[index] for index in sorted(items)]
        response = {**event["response"], "id": self.id or event["response"].get("id"), "output": output}
        return [*before, {**event, "response": response}]

    def _open_message(self) -> int | None:
        return next((one for one in self._open if self._items[one].get("type") == "message"), None)

    def _closing(self, index: int) -> list[Event]:
        """The events that close a message with what the client has of it."""
        item = self._items[index]
        parts: list[Event] = []
        events: list[Event] = []
        for _, number in sorted(place for place in self._texts if place[0] == index):
            text = self._texts[index, number]
            where = {"item_id": item.get("id"), "output_index": index, "content_index": number}
            part = {"type": "output_text", "annotations": [], "logprobs": [], "text": text}
            events.append({"type": "response.output_text.done", **where, "text": text, "logprobs": []})
            events.append({"type": "response.content_part.done", **where, "part": part})
            parts.append(part)
        done = {**item, "status": "completed", "content": parts}
        return [*events, {"type": "response.output_item.done", "output_index": index, "item": done}]

    # -- the end

    def closing(self) -> bytes:
        if self.is_finished:
            return b""
        response = {**self._response, "status": "completed", "id": self.last_id}
        return self._written(self._ended({"type": "response.completed", "response": response}))

    def failing(self, message: str) -> bytes:
        said = {"code": "server_error", "message": message}
        response = {**self._response, "status": "failed", "error": said}
        return self._written([{"type": "response.failed", "response": response}])

    def _written(self, events: list[Event]) -> bytes:
        out = b""
        for event in events:
            self._number += 1
            out += self.encode({**event, "sequence_number": self._number})
        return out

    def encode(self, event: Event) -> bytes:
        return b"event: %b\ndata: %b\n\n" % (str(event.get("type")).encode(), msgspec.json.encode(event))


class ResponsesWire(Wire):
    provider = "openai"

    def messages(self, body: Body) -> list[Body]:
        found = body.get("input")
        if isinstance(found, str):
            return [{"role": "user", "content": found}]
        return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []

    def with_messages(self, body: Body, messages: list[Body]) -> Body:
        return {**body, "input": messages}

    def user(self, text: str) -> Body:
        return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}

    def assistant(self, text: str) -> Body:
        return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}

    def system(self, body: Body) -> object:
        told = [self.text_of(one) for one in self.messages(body) if one.get("role") in ("system", "developer")]
        return [body.get("instructions"), *told]

    def tools(self, body: Body) -> frozenset[str]:
        return frozenset(str(tool.get("name", tool.get("type"))) for tool in body.get("tools") or ())

    def text_of(self, message: Body) -> str:
        content = message.get("content")
        if isinstance(content, list):
            return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
        return content if isinstance(content, str) else ""

    def is_answer(self, message: Body) -> bool:
        return message.get("role") == "assistant" or message.get("type") in {*CALLS, "reasoning"}

    def split(self, message: Body, half: str) -> tuple[Body, Body | None] | None:
        rest = rest_after(self.text_of(message), half) if message.get("role") == "assistant" else None
        if rest is None:
            return None
        return self.assistant(half.rstrip()), self.assistant(rest) if rest else None

    def results(self, messages: list[Body]) -> list[tuple[str, str]]:
        found = (one for one in messages if str(one.get("type")).endswith("call_output"))
        return [(str(one.get("call_id")), _said(one.get("output"))) for one in found]

    def reader(self) -> Reader:
        return ResponsesReader()

    def splice(self) -> Splice:
        return ResponsesSplice()

    def answered(self, body: Body) -> Answered:
        items = body.get("output") or ()
        texts = [self.text_of(item) for item in items if item.get("type") == "message"]
        calls = [
            SeenCall(str(item.get("call_id")), str(item.get("name")), _said(item.get("arguments", item.get("input"))))
            for item in items
            if item.get("type") in CALLS
        ]
        end = msgspec.json.encode({"type": "response.completed", "response": {"usage": body.get("usage")}})
        said = [delta.usage for delta in ResponsesReader().read(end) if isinstance(delta, UsageDelta)]
        return Answered("".join(texts), tuple(calls), said[0] if said else None)

    def refusal(self, status: int, message: str) -> Body:
        return openai_refusal(message)


def _said(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
