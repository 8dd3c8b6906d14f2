"""Arguments as a function's signature wants them. They travel as JSON, which knows no dates, enums, sets or models.

Imports little: every worker starts with it. Pydantic is asked only for types that JSON does not have.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

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
    return {name: made for name, hint in hints.items() if not _is_plain(hint) and (made := _adapter(hint)) is not None}


def _is_plain(hint: Any) -> bool:
    origin, inside = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _is_plain(inside[0])
    if origin is Literal:
        return all(type(value) in _PLAIN for value in inside)
    if origin in _PLAIN_IF_INSIDE_IS:
        return all(_is_plain(one) for one in inside)
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
