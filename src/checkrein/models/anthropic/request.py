"""A request as the Anthropic wire wants it: messages, streamed.

Messages of one role in a row are one turn there, and a turn is a list of blocks. What a message looks like as blocks is
worked out once; to put them together is all that a growing history costs.

Schemas of answers as the wire takes them: a part of JSON Schema, with every object closed. Limits on numbers and
lengths are not in that part. They are told in words, and whoever asked checks the answer anyway. What cannot be said at
all, such as an object of any keys or a schema that contains itself, is left to an instruction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from checkrein.core.events import Json
from checkrein.models.anthropic.thoughts import blocks_of, has_room_for_thought, is_since, thinking_for
from checkrein.models.messages import Assistant, Message, Request, ToolResult, ToolSpec
from checkrein.models.openai import extra_of
from checkrein.models.wire import EncodedMessages

Schema = dict[str, Any]

_KEPT: Final = frozenset({"type", "title", "description", "enum", "const", "required", "$ref"})
_FORMATS: Final = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"}
)
_PRIMITIVE: Final = (str, int, float, bool, type(None))
_IN_ONE_OF: Final = ("anyOf", "oneOf")
_DROPPED: Final = frozenset({"discriminator", "examples", "$schema", "$id", "additionalProperties"})


class _Inexpressible(Exception):
    """This cannot be said in what the wire takes."""


def closed_schema(schema: Json) -> Schema | None:
    """`schema` as the wire takes it; None if it cannot be said there."""
    return _closed_once(bytes(schema))


# The same for every turn of an agent.
@lru_cache(maxsize=64)
def _closed_once(schema: bytes) -> Schema | None:
    found = msgspec.json.decode(schema)
    if not isinstance(found, dict) or found.get("type") != "object":
        return None
    try:
        made = _closed(found)
        definitions = {name: _closed(one) for name, one in found.get("$defs", {}).items()}
        if any(_reaches(name, definitions[name], definitions, ()) for name in definitions):
            return None
    except _Inexpressible:
        return None
    return made | ({"$defs": definitions} if definitions else {})


def schema_in_words(schema: Json) -> str:
    """The instruction that takes the place of a schema."""
    return (
        "Your final answer must be JSON and nothing else, without a word or a fence around it. It must follow this "
        f"JSON schema:\n{bytes(schema).decode()}"
    )


def _closed(schema: object) -> Schema:
    if not isinstance(schema, dict):
        raise _Inexpressible
    made: Schema = {key: value for key, value in schema.items() if key in _KEPT}
    words = {key: value for key, value in schema.items() if key not in _KEPT | _DROPPED | {"$defs"}}
    for key in _IN_ONE_OF:
        if key in words:
            made["anyOf"] = [_closed(one) for one in words.pop(key)]
    if "allOf" in words:
        made["allOf"] = [_closed(one) for one in words.pop("allOf")]
    _check_values(made)
    if made.keys() & {"enum", "const"}:
        made.pop("type", None)  # the values say it
    kind = made.get("type")
    if kind == "object":
        _close_object(schema, made, words)
    elif kind == "array":
        if "items" not in words:
            raise _Inexpressible
        made["items"] = _closed(words.pop("items"))
        if words.get("minItems") in (0, 1):
            made["minItems"] = words.pop("minItems")
    elif kind == "string" and words.get("format") in _FORMATS:
        made["format"] = words.pop("format")
    elif not made.keys() & {"type", "enum", "const", "$ref", "anyOf", "allOf"}:
        raise _Inexpressible
    return _told(made, words)


def _check_values(made: Schema) -> None:
    if isinstance(made.get("type"), list):
        raise _Inexpressible
    if not all(isinstance(value, _PRIMITIVE) for value in (*made.get("enum", ()), made.get("const"))):
        raise _Inexpressible


def _close_object(schema: Schema, made: Schema, words: Schema) -> None:
    properties = words.pop("properties", {})
    if schema.get("additionalProperties") not in (None, False) or not properties:
        raise _Inexpressible
    made["properties"] = {name: _closed(one) for name, one in properties.items()}
    made["additionalProperties"] = False


def _told(made: Schema, words: Mapping[str, Any]) -> Schema:
    """What has no place in the schema, in its description."""
    if not words:
        return made
    told = ", ".join(f"{key}: {msgspec.json.encode(value).decode()}" for key, value in words.items())
    said = made.get("description")
    return made | {"description": f"{said} ({told})" if said else f"({told})"}


def _reaches(name: str, schema: object, definitions: Mapping[str, Schema], seen: tuple[str, ...]) -> bool:
    """Whether `schema` refers to `name`, itself or through others."""
    if isinstance(schema, list):
        return any(_reaches(name, one, definitions, seen) for one in schema)
    if not isinstance(schema, dict):
        return False
    target = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    if target == name:
        return True
    if target and target not in seen and _reaches(name, definitions.get(target), definitions, (*seen, target)):
        return True
    return any(_reaches(name, one, definitions, seen) for one in schema.values())


VERSION: Final = "2026-10-21"
VERSION_WITH_SAMPLING: Final = "2023-06-01"
"""The last version of the API that knows the parameters of sampling, for models that take them."""
SAMPLING: Final = frozenset({"temperature", "top_p", "top_k"})

GO_ON: Final = "Go on."
"""Said by the user where the last word is the assistant's: newer models do not answer that."""
GONE: Final = "Not available any more."

_CHOICES: Final = {"auto": "auto", "none": "none", "required": "any"}
_CLOSE: Final = b"]},"
_USER: Final = _CLOSE + b'{"role":"user","content":['
_ASSISTANT: Final = _CLOSE + b'{"role":"assistant","content":['

_encode: Final = msgspec.json.Encoder().encode


class Body(msgspec.Struct, frozen=True):
    """A request in bytes, and the version of the API that it is written for."""

    data: bytes
    version: str


class Bodies:
    """Makes the bodies of requests to one model."""

    def __init__(self, model: str, *, max_tokens: int) -> None:
        self._model = model
        self._max_tokens = max_tokens
        self._with_thinking = EncodedMessages(_blocks)
        self._without = EncodedMessages(_blocks_without_thinking)

    def make(self, request: Request, *, thinks: bool = True) -> Body:
        """The whole body; without `thinks` it gives back nothing of what the model thought.

        Raises `MisuseError` if `settings.extra` would replace what is not the author's to choose.
        """
        encoded = (self._with_thinking if thinks else self._without).all(request.messages)
        head = self._head(request)
        if not has_room_for_thought(head, _open_turn(request.messages, encoded)):
            del head["thinking"]
        return Body(
            b"".join([_encode(head)[:-1], b',"messages":[', *_turns(request, encoded), b"]}]}"]),
            VERSION_WITH_SAMPLING if SAMPLING & head.keys() else VERSION,
        )

    def place_of(self, request: Request, place: int) -> int | None:
        """Which message of `request` is the first of the turn at `place` on the wire."""
        turn, before = -1, None
        encoded = self._with_thinking.all(request.messages)
        for position, (message, blocks) in enumerate(zip(request.messages, encoded, strict=True)):
            role = isinstance(message, Assistant)
            if blocks and role is not before:
                turn, before = turn + 1, role
                if turn == place:
                    return position
        return None

    def _head(self, request: Request) -> dict[str, Any]:
        settings = request.settings
        limit = settings.max_tokens or self._max_tokens
        head: dict[str, Any] = {"model": self._model, "max_tokens": limit, "stream": True}
        system = [request.instructions] if request.instructions.strip() else []
        if settings.temperature is not None:
            head["temperature"] = settings.temperature
        if settings.reasoning is not None:
            head |= thinking_for(self._model, settings.reasoning, limit)
        if request.output_schema is not None:
            schema = closed_schema(request.output_schema) if is_since(self._model, (4, 5)) else None
            if schema is None:
                system.append(schema_in_words(request.output_schema))
            else:
                head["output_config"] = head.get("output_config", {}) | {
                    "format": {"type": "json_schema", "schema": schema}
                }
        if system:
            head["system"] = "\n\n".join(system)
        head |= _tools(request)
        for name, value in extra_of(settings).items():
            head[name] = _joined(head.get(name), value)
        return head


def _tools(request: Request) -> dict[str, Any]:
    if request.tools:
        chosen = _CHOICES[request.settings.tool_choice]
        choice = {} if chosen == "auto" else {"tool_choice": {"type": chosen}}
        return {"tools": [_tool(tool) for tool in request.tools], **choice}
    # A history in which tools were used is refused by many a server when there are none.
    used = {call.name for message in request.messages if isinstance(message, Assistant) for call in message.calls}
    if not used:
        return {}
    tools = [{"name": name, "description": GONE, "input_schema": {"type": "object"}} for name in sorted(used)]
    return {"tools": tools, "tool_choice": {"type": "none"}}


def _tool(tool: ToolSpec) -> dict[str, Any]:
    made: dict[str, Any] = {"name": tool.name, "input_schema": tool.schema}
    return made | ({"description": tool.description} if tool.description else {})


def _joined(ours: object, extra: Any) -> Any:
    """What an author adds to what we say: objects and lists grow, anything else is replaced."""
    if isinstance(ours, dict) and isinstance(extra, dict):
        return ours | extra
    return [*ours, *extra] if isinstance(ours, list) and isinstance(extra, list) else extra


# -- messages as blocks, blocks as turns


def _turns(request: Request, encoded: Sequence[bytes]) -> list[bytes]:
    """The pieces of all turns. Each but the first closes the one before it, and the last is not closed."""
    parts: list[bytes] = []
    before: bool | None = None
    for message, blocks in zip(request.messages, encoded, strict=True):
        if blocks:
            is_user = type(message) is not Assistant
            parts += (b"," if is_user is before else _USER if is_user else _ASSISTANT, blocks)
            before = is_user
    if not before and not request.continues:
        parts += (_USER, _encode({"type": "text", "text": GO_ON}))
    parts[0] = parts[0].removeprefix(_CLOSE)
    return parts


def _open_turn(messages: Sequence[Message], encoded: Sequence[bytes]) -> list[bytes]:
    """What the assistant has said in a turn that is not over, because it waits for the results of its tools."""
    place = len(messages)
    has_results = False
    while place and not isinstance(messages[place - 1], Assistant):
        place -= 1
        has_results = has_results or isinstance(messages[place], ToolResult)
    first = place
    while first and isinstance(messages[first - 1], Assistant):
        first -= 1
    return [blocks for blocks in encoded[first:place] if blocks] if has_results else []


def _blocks(message: Message, *, thinks: bool = True) -> bytes:
    """The blocks of a message, with commas between them; nothing if it says nothing."""
    if isinstance(message, Assistant):
        return _encode(blocks_of(message, thinks=thinks))[1:-1]
    if isinstance(message, ToolResult):
        block: dict[str, Any] = {"type": "tool_result", "tool_use_id": message.call}
        if message.content:
            block["content"] = message.content
        if message.is_error:
            block["is_error"] = True
        return _encode(block)
    return _encode({"type": "text", "text": message.text}) if message.text.strip() else b""


def _blocks_without_thinking(message: Message) -> bytes:
    return _blocks(message, thinks=False)


def gives_thinking(request: Request) -> bool:
    """Whether there is any thinking to give back."""
    return any(isinstance(message, Assistant) and message.signature for message in request.messages)
