"""Commands that read plain values without pydantic, which Typer would load for every text and number.

Loading it takes longer than a verb takes to reach its run. Should another version of Typer work differently inside,
commands are as they were, only slower; a test notices.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from types import NoneType
from typing import Any, Final, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup

_PLAIN: Final = (str, bool, int, float, Path)


class QuickCommand(TyperCommand):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for param in self.get_params(ctx):
            _quicken(param)
        return super().parse_args(ctx, args)


class QuickGroup(TyperGroup):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for param in self.get_params(ctx):
            _quicken(param)
        return super().parse_args(ctx, args)


def _quicken(param: Any) -> None:
    """Have the values of a parameter converted here, if its type is a plain one."""
    descriptor = getattr(param, "type_descriptor", None)
    if descriptor is None or not hasattr(param, "_runtime_param"):
        return
    kind = _kind_of(descriptor.annotation)
    if kind is not None:
        param._runtime_param = _Converter(kind, getattr(descriptor.parameter_info, "min", None))


def _kind_of(annotation: Any) -> type | None:
    """The plain type behind an annotation: of `str | None` and of `list[str]` that is `str`."""
    parts = [part for part in get_args(annotation) if part is not NoneType]
    inner = (
        parts[0] if len(parts) == 1 and (get_origin(annotation) is list or NoneType in get_args(annotation)) else None
    )
    kind = inner or annotation
    return kind if isinstance(kind, type) and issubclass(kind, (*_PLAIN, Enum)) else None


class _Converter:
    """Stands in for what Typer builds with pydantic."""

    def __init__(self, kind: type, least: float | None) -> None:
        self._kind = kind
        self._least = least

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        if param.multiple or param.nargs == -1:
            return tuple(self._converted(one, param, ctx) for one in value or ())
        return None if value is None else self._converted(value, param, ctx)

    def _converted(self, value: Any, param: Any, ctx: Any) -> Any:
        if isinstance(value, self._kind):
            return value
        try:
            converted = self._kind(value)
        except ValueError:
            raise typer.BadParameter(f"{value!r} is not {self._expected()}.", ctx=ctx, param=param) from None
        if self._least is not None and converted < self._least:
            raise typer.BadParameter(f"{value} is less than {self._least:g}.", ctx=ctx, param=param)
        return converted

    def _expected(self) -> str:
        if issubclass(self._kind, Enum):
            return f"one of {', '.join(member.value for member in self._kind)}"
        return {int: "a whole number", float: "a number"}.get(self._kind, f"a {self._kind.__name__}")
