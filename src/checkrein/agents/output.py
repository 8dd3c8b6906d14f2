"""What an answer is to be a value of: its schema for the model, and the way from JSON to the value and back.

Pydantic models, dataclasses, msgspec structs, and whatever pydantic knows besides.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Any, get_args, get_type_hints

import msgspec

from checkrein.calls.arguments import is_plain
from checkrein.errors import MisuseError


class OutputType:
    """One type. Nothing is imported before it is used: a program without a model may never ask."""

    def __init__(self, type: Any) -> None:
        if type is None or isinstance(type, str | bytes | dict | list | tuple | int | float):
            raise MisuseError(f"output={type!r} is no type; give a class, such as a pydantic model or a dataclass.")
        self.type = type
        self._is_struct = _has_struct(type)

    @property
    def name(self) -> str:
        return str(getattr(self.type, "__name__", self.type))

    @cached_property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of its values."""
        if self._is_struct:
            return _at_root(msgspec.json.schema(self.type))
        return self._adapter.json_schema()  # type: ignore[no-any-return]

    def read(self, text: str | bytes) -> Any:
        """The value that this JSON is. Raises `ValueError` when it does not fit."""
        if self._is_struct:
            return msgspec.json.decode(text, type=self.type)
        return self._adapter.validate_json(text)

    def recorded(self, text: str) -> bytes:
        """JSON as it is recorded: that of the value, from which the value can be read again. Raises `ValueError`."""
        value = self.read(text)
        if self._is_struct:
            return msgspec.json.encode(value)
        recorded: bytes = self._adapter.dump_json(value, by_alias=True, round_trip=True)
        try:
            self.read(recorded)
        except ValueError:  # it is written under other names than it is read by
            return msgspec.json.encode(msgspec.json.decode(text))
        return recorded

    @cached_property
    def _adapter(self) -> Any:
        import pydantic

        try:
            return pydantic.TypeAdapter(self.type)
        except pydantic.PydanticUserError as error:
            raise MisuseError(f"output={self.name} cannot be described to a model: {error.message}") from error


@lru_cache(maxsize=1024)
def returned_by(function: Callable[..., Any]) -> OutputType | None:
    """What `function` says it returns, where JSON does not hold that as it is; None where it does."""
    try:
        hint = get_type_hints(function, include_extras=True).get("return", Any)
    except Exception:  # names in it that are not known here: nothing can be made of them
        return None
    return None if is_plain(hint) else OutputType(hint)


def _has_struct(type_: Any) -> bool:
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        return True
    return any(_has_struct(inside) for inside in get_args(type_))


def _at_root(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema whose root is the object itself: providers do not take a reference there."""
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    if not name:
        return schema
    definitions = dict(schema["$defs"])
    root = definitions[name]
    if f'"#/$defs/{name}"'.encode() not in msgspec.json.encode(root) + msgspec.json.encode(definitions):
        del definitions[name]
    return {**root, "$defs": definitions} if definitions else dict(root)
