"""How a tool's arguments come in and its result goes out: as JSON, the same in a worker, a thread and a task.

What is recorded is what was used: a value that JSON cannot hold is an error of the tool and says so, instead of
becoming something else on its way.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from checkrein.runtime.typed import typed

if TYPE_CHECKING:
    import msgspec


class NotJson(TypeError):
    """A tool returned something that JSON cannot hold, or was given arguments that are no JSON object."""


def decode_arguments(function: Callable[..., Any], arguments: bytes) -> Mapping[str, Any]:
    """The keyword arguments for `function`, of the types in its signature."""
    return typed(function, plain_arguments(arguments))


def plain_arguments(arguments: bytes) -> dict[str, Any]:
    """The arguments as they stand in the journal."""
    found = json.loads(arguments)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise NotJson(f"The arguments of a tool are a JSON object, not a {type(found).__name__}.")
    return found


def shown_arguments(arguments: bytes) -> Mapping[str, Any]:
    """The arguments as a tool may look at them. Whether they are right is for `decode_arguments` to say."""
    try:
        return plain_arguments(arguments)
    except (NotJson, ValueError):
        return {}


def encode_result(function: Callable[..., Any], result: Any) -> bytes:
    """The result as JSON, or `NotJson`."""
    try:
        text = json.dumps(result, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plainer)
        return text.encode()
    except NotJson as error:
        raise NotJson(f"{_name(function)} returned {_what(result)}{error}") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise NotJson(f"{_name(function)} returned {_what(result)}, which JSON cannot hold: {error}") from None


def stored(value: msgspec.Raw | None) -> bytes | None:
    """JSON as the journal has it."""
    return None if value is None else bytes(value)


def recordable(text: str) -> str:
    """`text` as a journal can hold it: halves of a character are joined, and one that is alone is replaced."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", None) or repr(function)


def _what(value: Any) -> str:
    return f"a value of type {type(value).__name__}"


def _plainer(value: Any) -> Any:
    """What JSON can hold in place of a dataclass, an enum, a time, a model of pydantic or msgspec, and the like."""
    # Nothing is imported for this: a value of a type whose module was never imported cannot be here.
    import sys

    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if hasattr(value, "__dataclass_fields__") and not isinstance(value, type):
        return {name: getattr(value, name) for name in value.__dataclass_fields__}
    if hasattr(value, "__struct_fields__") and not isinstance(value, type):
        return sys.modules["msgspec"].to_builtins(value)
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    if isinstance(value, Mapping):
        return dict(value)
    kinds = {kind.__module__ + "." + kind.__name__ for kind in type(value).__mro__}
    if kinds & {"datetime.date", "datetime.time"}:
        return value.isoformat()
    if "enum.Enum" in kinds:
        return value.value
    if kinds & {"uuid.UUID", "decimal.Decimal", "pathlib.PurePath"}:
        return str(value)
    if hasattr(value, "__await__"):
        close = getattr(value, "close", None)
        if close is not None:
            close()  # nobody will await it any more
        raise NotJson(": it must be awaited. Declare the tool with `async def`.")
    raise NotJson(f", and JSON cannot hold {_what(value)}.")
