"""From a tool, or an undo, to a call that a driver can make."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

import msgspec

from checkrein.agents.tool import Isolation, Tool, path_of
from checkrein.core.events import UNDO_PREFIX
from checkrein.core.words import CallKind
from checkrein.errors import MisuseError
from checkrein.runtime import undone
from checkrein.runtime.checking import CHECK_PREFIX
from checkrein.runtime.driver import Driver
from checkrein.runtime.importable import target_of
from checkrein.runtime.loading import look_up
from checkrein.runtime.spec import Perform, Performance, Permit, Spec, UndoneCall
from checkrein.runtime.stage import Stage

if TYPE_CHECKING:
    from checkrein.agents.mcp.statement import MCPTool


def tool_call(
    driver: Driver, tool: Tool, arguments: bytes, *, place: str = "", step: int | None = None, deps: Any = None
) -> Spec:
    """The call of `tool` with these JSON arguments. Raises `ValueError` when they do not fit its signature."""
    checked = tool.to_json(arguments)
    isolation = None if tool.is_async else tool.isolation

    def perform(permit: Permit) -> Performance:
        return begin(driver, permit, tool.function, permit.arguments, isolation=isolation, deps=deps)

    return spec_of(tool, perform, checked, place=place, step=step)


def begin(
    driver: Driver,
    permit: Permit,
    function: Callable[..., Any],
    arguments: bytes,
    *,
    isolation: Isolation | None = None,
    deps: Any = None,
) -> Performance:
    """Begin a call on the stage of its driver. The driver is told when it comes to rest later than it was asked to, and
    when it could not be stopped and has ended after all."""
    return driver.stage.start(  # type: ignore[no-any-return]
        function,
        arguments,
        id=permit.call,
        key=permit.key,
        attempt=permit.attempt,
        isolation=isolation,
        deps=deps,
        may_begin=permit.holds,
        on_held=driver.look_again,
        on_late_end=lambda: driver.ended_late(permit.call),
    )


def spec_of(
    tool: Tool | MCPTool, perform: Perform, arguments: bytes, *, place: str = "", step: int | None = None
) -> Spec:
    """A call of `tool` that is made by `perform`, with what its author says of it."""
    what = tool.what(arguments) if isinstance(tool, Tool) else tool.name
    return Spec(
        kind=CallKind.TOOL,
        name=tool.name,
        perform=perform,
        arguments=arguments,
        place=place,
        step=step,
        on_pause=tool.on_pause,
        idempotent=tool.idempotent,
        effect=what if tool.has_effect else None,
        undo=None if tool.undo is None else path_of(tool.undo),
        approval=tool.approval,
        timeout_seconds=tool.timeout_seconds,
    )


def function_at(path: str) -> Callable[..., Any]:
    """The function at a path that `path_of` gave, also after a restart. Raises `MisuseError` when it is gone."""
    module, _, name = path.partition(":")
    try:
        return look_up(import_module(module), name)  # type: ignore[no-any-return]
    except (ImportError, AttributeError) as error:
        raise MisuseError(f"{path} cannot be found any more: {error}") from error


def check_undo(function: Callable[..., Any]) -> None:
    """Raise `MisuseError` for an undo that could not be found again by its path, and so would never be made."""
    try:
        found: Any = function_at(path_of(function))
    except (MisuseError, AttributeError):
        found = None
    if found is None or inspect.unwrap(found) is not inspect.unwrap(function):
        name = getattr(function, "__qualname__", None) or repr(function)
        raise MisuseError(f"{name} could not be found again to undo anything. Move it to the top level of a module.")


# -- undo and check


def undo_call(
    stage: Stage, function: Callable[..., Any], call: UndoneCall, *, prefix: str = UNDO_PREFIX
) -> Performance:
    """Begin to undo what `call` did. A plain `def` runs in a worker process and can be killed like any tool."""
    told = {
        "id": call.id,
        "key": call.key,
        "name": call.name,
        "arguments": msgspec.json.decode(call.arguments),
        "result": None if call.result is None else msgspec.json.decode(call.result),
        "outcome": call.outcome.value,
    }
    if inspect.iscoroutinefunction(function):

        async def perform() -> Any:
            return await function(undone.Undone(**told))

        return stage.start(perform, b"{}", id=prefix + call.id, key=call.key)
    arguments = msgspec.json.encode({"target": target_of(function), "call": told})
    return stage.start(undone.perform, arguments, id=prefix + call.id, key=call.key)


def check_call(stage: Stage, function: Callable[..., Any], call: UndoneCall) -> Performance:
    """Begin to find out whether `call` happened."""
    return undo_call(stage, function, call, prefix=CHECK_PREFIX)
