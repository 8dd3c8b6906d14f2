"""Google's Gemini: `generateContent` and `streamGenerateContent`."""

from __future__ import annotations

import msgspec

from checkrein.gateway.wires.base import Answered, Body, Event, SeenCall, Splice, Wire, rest_after
from checkrein.models.base import Delta, TextDelta, ToolCallDelta, UsageDelta
from checkrein.models.gemini import GeminiReader
from checkrein.models.wire import Reader


class GeminiSplice(Splice):
    """An answer in chunks that each stand for themselves. A call comes whole."""

    def note(self, event: Event) -> None:
        for part in _parts(event):
            self.is_thinking = bool(part.get("thought"))

    def is_whole(self, events: list[Event], deltas: list[Delta]) -> bool:
        return True

    def rewrite(self, data: bytes) -> list[Event]:
        event: Event = msgspec.json.decode(data)
        for part in _parts(event):
            if part.get("text") and not part.get("thought"):
                part["text"] = self.joined(part["text"])
        return [event]

    def encode(self, event: Event) -> bytes:
        return b"data: %b\n\n" % msgspec.json.encode(event)

    def closing(self) -> bytes:
        if self.is_finished:
            return b""
        content = {"parts": [{"text": ""}], "role": "model"}
        return self.encode({"candidates": [{"content": content, "finishReason": "STOP", "index": 0}]})

    def failing(self, message: str) -> bytes:
        return self.encode({"error": {"code": 503, "message": message, "status": "UNAVAILABLE"}})


class GeminiWire(Wire):
    provider = "gemini"

    def messages(self, body: Body) -> list[Body]:
        found = body.get("contents")
        return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []

    def with_messages(self, body: Body, messages: list[Body]) -> Body:
        return {**body, "contents": messages}

    def user(self, text: str) -> Body:
        return {"role": "user", "parts": [{"text": text}]}

    def assistant(self, text: str) -> Body:
        return {"role": "model", "parts": [{"text": text}]}

    def system(self, body: Body) -> object:
        return body.get("systemInstruction") or body.get("system_instruction")

    def tools(self, body: Body) -> frozenset[str]:
        declared = [tool.get("functionDeclarations") or () for tool in body.get("tools") or ()]
        return frozenset(str(one.get("name")) for found in declared for one in found)

    def text_of(self, message: Body) -> str:
        parts = message.get("parts") or ()
        return "".join(str(part.get("text", "")) for part in parts if not part.get("thought"))

    def is_answer(self, message: Body) -> bool:
        return message.get("role") == "model"

    def split(self, message: Body, half: str) -> tuple[Body, Body | None] | None:
        texts = self.text_of(message)
        rest = rest_after(texts, half)
        if rest is None:
            return None
        others = [part for part in message.get("parts") or () if "text" not in part]
        left = [{"text": rest}, *others] if rest else others
        return self.assistant(half.rstrip()), {**message, "parts": left} if left else None

    def results(self, messages: list[Body]) -> list[tuple[str, str]]:
        parts = [
            part["functionResponse"]
            for one in messages
            for part in one.get("parts") or ()
            if "functionResponse" in part
        ]
        return [
            (str(one.get("id") or one.get("name")), msgspec.json.encode(one.get("response")).decode()) for one in parts
        ]

    def reader(self) -> Reader:
        return GeminiReader()

    def splice(self) -> Splice:
        return GeminiSplice()

    def answered(self, body: Body) -> Answered:
        deltas = GeminiReader().read(msgspec.json.encode(body))
        texts = [delta.text for delta in deltas if isinstance(delta, TextDelta)]
        calls = [SeenCall(d.id, d.name, d.arguments) for d in deltas if isinstance(d, ToolCallDelta)]
        used = [delta.usage for delta in deltas if isinstance(delta, UsageDelta)]
        return Answered("".join(texts), tuple(calls), used[-1] if used else None)

    def refusal(self, status: int, message: str) -> Body:
        return {"error": {"code": status, "message": message, "status": "FAILED_PRECONDITION"}}

    def model(self, body: Body, path: str) -> str:
        return path.rpartition("/")[2].partition(":")[0] or "unknown"


def _parts(event: Event) -> list[Body]:
    candidates = event.get("candidates") or [{}]
    return [part for part in (candidates[0].get("content") or {}).get("parts") or () if isinstance(part, dict)]
