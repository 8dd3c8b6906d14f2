"""Schemas of answers as the Anthropic wire takes them: a part of JSON Schema, with every object closed.

Limits on numbers and lengths are not in that part. They are told in words, and whoever asked checks the answer anyway.
What cannot be said at all, such as an object of any keys or a schema that contains itself, is left to an instruction.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from checkrein.core.events import Json

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


def closed(schema: Json) -> Schema | None:
    """`schema` as the wire takes it; None if it cannot be said there."""
    return _of(bytes(schema))


# The same for every turn of an agent.
@lru_cache(maxsize=64)
def _of(schema: bytes) -> Schema | None:
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


def in_words(schema: Json) -> str:
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
