"""From a tool, or an undo, to a call that a driver can make."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any

import msgspec

from checkrein.agents.tool import Tool
from checkrein.core.words import CallKind, Outcome
from checkrein.runtime.importable import target_of
from checkrein.runtime.spec import Performance, Permit, Spec, UndoneCall
from checkrein.runtime.stage import Stage


def tool_call(
    stage: Stage, tool: Tool, arguments: bytes, *, place: str = "", on_held: Callable[[], None] | None = None
) -> Spec:
    """The call of `tool` with these JSON arguments. Raises `ValueError` when they do not fit its signature.

    `on_held` is told when a call that was to be held has come to rest later than it was asked to.
    """
    checked = tool.to_json(arguments)

    def perform(permit: Permit) -> Performance:
        return stage.start(
            tool.function,
            permit.arguments,
            id=permit.call,
            key=permit.key,
            attempt=permit.attempt,
            isolation=None if tool.is_async else tool.isolation,
            on_held=on_held,
        )

    return Spec(
        kind=CallKind.TOOL,
        name=tool.name,
        perform=perform,
        arguments=checked,
        place=place,
        on_pause=tool.on_pause,
        idempotent=tool.idempotent,
        effect=tool.name if tool.has_effect else None,
        undo=None if tool.undo is None else path_of(tool.undo),
        approval=tool.approval,
        timeout_seconds=tool.timeout_seconds,
    )


def path_of(function: Callable[..., Any]) -> str:
    """Where an undo function can be found again after a restart."""
    return f"{function.__module__}:{function.__qualname__}"


# -- undo


class Undone(msgspec.Struct, frozen=True, kw_only=True):
    """What an undo function is given: the call whose effect it is to undo."""

    id: str
    key: str
    name: str
    arguments: Any
    result: Any
    """None when it is not known."""
    outcome: Outcome


def undo_call(stage: Stage, function: Callable[..., Any], call: UndoneCall) -> Performance:
    """Begin to undo what `call` did. A plain `def` runs in a worker process and can be killed like any tool."""
    undone = Undone(
        id=call.id,
        key=call.key,
        name=call.name,
        arguments=msgspec.json.decode(call.arguments),
        result=None if call.result is None else msgspec.json.decode(call.result),
        outcome=call.outcome,
    )
    if inspect.iscoroutinefunction(function):

        async def undo() -> None:
            await function(undone)

        return stage.start(undo, b"{}", id=f"undo:{call.id}", key=call.key)
    target_of(function)  # says at once what a worker could not import
    arguments = msgspec.json.encode({"path": path_of(function), "call": undone})
    return stage.start(perform_undo, arguments, id=f"undo:{call.id}", key=call.key)


def perform_undo(path: str, call: dict[str, Any]) -> None:
    """Runs in a worker: find the undo function and call it."""
    module, _, name = path.partition(":")
    function: Any = import_module(module)
    for part in name.split("."):
        function = getattr(function, part)
    function(msgspec.convert(call, Undone))
