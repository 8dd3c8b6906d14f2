"""Whether a value fits a JSON schema: as much of it as the arguments of tools use.

A person who approves a call with other arguments is told at once what is wrong with them, by whoever takes the verb,
which has no code of the tool's author. What is not looked at here (`pattern`, `format`) is for the tool itself to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

_DEEPEST: Final = 64


def misfits(value: Any, schema: Any) -> list[str]:
    """What is wrong with `value`, a sentence each, naming the place; nothing when it fits."""
    return list(_misfits(value, schema, "", schema, _DEEPEST))


def _misfits(value: Any, schema: Any, where: str, root: Any, depth: int) -> Iterator[str]:
    if schema is False:
        yield f"{where or 'it'} is not taken"
    if not isinstance(schema, dict) or depth <= 0:
        return
    if isinstance(ref := schema.get("$ref"), str):
        yield from _misfits(value, _at(root, ref), where, root, depth - 1)
    if "type" in schema and not _is_of(value, schema["type"]):
        wanted = schema["type"] if isinstance(schema["type"], str) else " or ".join(map(str, schema["type"]))
        yield f"{where or 'it'} is {_called(value)}, not {wanted}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where or 'it'} is none of {', '.join(map(repr, schema['enum']))}"
    if "const" in schema and value != schema["const"]:
        yield f"{where or 'it'} is not {schema['const']!r}"
    for name in ("anyOf", "oneOf"):
        ways = schema.get(name) or ()
        wrong = [list(_misfits(value, one, where, root, depth - 1)) for one in ways]
        if wrong and all(wrong):
            yield min(wrong, key=len)[0] if len(wrong) == 1 else " and ".join(one[0] for one in wrong)
    for one in schema.get("allOf") or ():
        yield from _misfits(value, one, where, root, depth - 1)
    yield from _bounds(value, schema, where)
    if isinstance(value, dict):
        yield from _inside_object(value, schema, where, root, depth)
    elif isinstance(value, list) and "items" in schema:
        for number, one in enumerate(value):
            yield from _misfits(one, schema["items"], f"{where}[{number}]", root, depth - 1)


def _inside_object(
    value: dict[str, Any], schema: Mapping[str, Any], where: str, root: Any, depth: int
) -> Iterator[str]:
    known = schema.get("properties") or {}
    for name in schema.get("required") or ():
        if name not in value:
            yield f"{_place(where, name)} is missing"
    for name, one in value.items():
        if name in known:
            yield from _misfits(one, known[name], _place(where, name), root, depth - 1)
        elif schema.get("additionalProperties") is False:
            taken = ", ".join(known) or "none"
            yield f"there is no {_place(where, name)}; there are: {taken}"
        else:
            yield from _misfits(one, schema.get("additionalProperties"), _place(where, name), root, depth - 1)


_BOUNDS: Final[Mapping[str, tuple[Callable[[Any], Any], Callable[[Any, Any], bool], str]]] = {
    "minimum": (lambda value: value, lambda value, bound: value >= bound, "less than"),
    "maximum": (lambda value: value, lambda value, bound: value <= bound, "more than"),
    "exclusiveMinimum": (lambda value: value, lambda value, bound: value > bound, "not more than"),
    "exclusiveMaximum": (lambda value: value, lambda value, bound: value < bound, "not less than"),
    "minLength": (len, lambda size, bound: size >= bound, "shorter than"),
    "maxLength": (len, lambda size, bound: size <= bound, "longer than"),
    "minItems": (len, lambda size, bound: size >= bound, "fewer than"),
    "maxItems": (len, lambda size, bound: size <= bound, "more than"),
}
_BOUNDED: Final = {"Length": str, "Items": list}


def _bounds(value: Any, schema: Mapping[str, Any], where: str) -> Iterator[str]:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    for name, (measure, fits, what) in _BOUNDS.items():
        kind = next((kind for end, kind in _BOUNDED.items() if name.endswith(end)), None)
        applies = isinstance(value, kind) if kind is not None else is_number
        if name in schema and applies and not fits(measure(value), schema[name]):
            yield f"{where or 'it'} is {what} {schema[name]}"


def _at(root: Any, ref: str) -> Any:
    """What a reference within the schema leads to; anything fits one that leads elsewhere."""
    found = root
    for part in ref.removeprefix("#/").split("/") if ref.startswith("#/") else ():
        found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    return found if ref.startswith("#/") else None


_KINDS: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}


def _is_of(value: Any, kinds: Any) -> bool:
    """A float is no integer here, whatever it is equal to: it may have been rounded, and the tool would get a float."""
    wanted = [kinds] if isinstance(kinds, str) else list(kinds)
    if isinstance(value, bool):
        return "boolean" in wanted
    return any(isinstance(value, _KINDS.get(kind, (object,))) for kind in wanted)


def _called(value: Any) -> str:
    return next((kind for kind in ("boolean", *_KINDS) if _is_of(value, kind)), type(value).__name__)


def _place(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name
