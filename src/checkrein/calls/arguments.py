"""How a tool's arguments come in and its result goes out: as JSON, the same in a worker, a thread and a task.

What is recorded is what was used: a value that JSON cannot hold is an error of the tool and says so, instead of
becoming something else on its way.

Arguments as a function's signature wants them. They travel as JSON, which knows no dates, enums, sets or models.

Imports little: every worker starts with it. Pydantic is asked only for types that JSON does not have.
"""

from __future__ import annotations

import inspect
import itertools
import json
import types
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from checkrein.errors import ResultTooLarge, said_by

if TYPE_CHECKING:
    import msgspec

_PLAIN: Final = frozenset({str, int, float, bool, list, dict, object, None, type(None), Any})
_PLAIN_IF_INSIDE_IS: Final = frozenset({list, dict, Union, types.UnionType})


def typed(function: Callable[..., Any], given: Mapping[str, Any]) -> Mapping[str, Any]:
    """`given`, with a value of the annotated type wherever JSON could only hold a likeness of it.

    What does not fit its annotation is left as it is: whether it should is for whoever offers the function to say.
    """
    adapters = _adapters(inspect.unwrap(function)) if given else {}
    return {name: _made(adapters[name], value) if name in adapters else value for name, value in given.items()}


def _made(adapter: Any, value: Any) -> Any:
    import json

    try:
        return adapter.validate_json(json.dumps(value))
    except ValueError:
        return value


@lru_cache(maxsize=1024)
def _adapters(function: Callable[..., Any]) -> dict[str, Any]:
    """By the name of a parameter, what makes its values out of JSON; only where that is something to do."""
    try:
        hints = get_type_hints(function, include_extras=True)
    except Exception:  # names in it that are not known here: nothing can be made of them
        return {}
    return {name: made for name, hint in hints.items() if not is_plain(hint) and (made := _adapter(hint)) is not None}


def is_plain(hint: Any) -> bool:
    """Whether JSON holds values of this type as they are."""
    origin, inside = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return is_plain(inside[0])
    if origin is Literal:
        return all(type(value) in _PLAIN for value in inside)
    if origin in _PLAIN_IF_INSIDE_IS:
        return all(is_plain(one) for one in inside)
    try:
        return hint in _PLAIN
    except TypeError:
        return False


def _adapter(hint: Any) -> Any:
    import pydantic

    try:
        return pydantic.TypeAdapter(hint)
    except pydantic.PydanticUserError:
        return None


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


RESULT_BYTES: Final = 10_000_000
"""The most that a result may be, as JSON, unless a runtime says otherwise."""


def encode_result(function: Callable[..., Any], result: Any, *, most: int | None = None, name: str = "") -> bytes:
    """The result as JSON, or `NotJson`. Raises `ResultTooLarge`, with `name` or the function's own, where it has more
    than `most` bytes."""
    # The first look spares everybody on this event loop the time that it takes to encode what is refused anyway.
    if most is not None and _is_surely_larger(result, most):
        raise _too_large(name or _name(function), most)
    encoded = _encoded(function, result)
    if most is not None and len(encoded) > most:
        raise _too_large(name or _name(function), most)
    return encoded


def _too_large(name: str, most: int) -> ResultTooLarge:
    return ResultTooLarge(
        f"{name} returned more than {most:,} bytes of JSON, which is the most that is kept. What it did is done. Let it"
        " write a file and return where it is, or return a part.",
        most=most,
    )


_LOOKED_AT: Final = 10_000


def _is_surely_larger(value: Any, most: int) -> bool:
    """Whether the lengths of the first texts and containers alone are more. Quick, and never wrongly true."""
    size, inside = 0, [value]
    for _ in range(_LOOKED_AT):
        if not inside or size > most:
            break
        one = inside.pop()
        if isinstance(one, str):
            size += len(one)
        elif isinstance(one, dict):
            size += 4 * len(one)
            inside.extend(itertools.islice(one.values(), _LOOKED_AT))
        elif isinstance(one, list | tuple):
            size += 2 * len(one)
            inside.extend(one[:_LOOKED_AT])
    return size > most


def _encoded(function: Callable[..., Any], result: Any) -> bytes:
    try:
        text = json.dumps(result, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plainer)
        return text.encode()
    except NotJson as error:
        raise NotJson(f"{_name(function)} returned {_what(result)}{error}") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise NotJson(f"{_name(function)} returned {_what(result)}, which JSON cannot hold: {said_by(error)}") from None


def stored(value: msgspec.Raw | None) -> bytes | None:
    """JSON as the journal has it."""
    return None if value is None else bytes(value)


def is_readable_json(body: bytes) -> bool:
    """Whether `body` is one JSON value that a journal takes and programs can read: not too deep, no endless number."""
    import msgspec

    try:
        msgspec.json.decode(body, type=msgspec.Raw)
        msgspec.json.decode(body)
    except msgspec.ValidationError:  # a number of more digits than it counts
        try:
            json.loads(body)
        except (ValueError, RecursionError):
            return False
    except (msgspec.DecodeError, ValueError, RecursionError):
        return False
    return True


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
