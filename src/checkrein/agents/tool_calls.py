"""From a tool, or an undo, to a call that a driver can make."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from checkrein.agents.tool import Tool, function_at
from checkrein.calls import arguments as values
from checkrein.calls import current
from checkrein.calls.base import CallRequest, Execution, Isolation, Perform, Permit, RefusedExecution, UndoneCall
from checkrein.calls.executor import ToolExecutor, lent_executor
from checkrein.calls.imports import path_of, target_of
from checkrein.calls.mcp import MCPExecution
from checkrein.core.enums import CallKind
from checkrein.core.events import UNDO_PREFIX
from checkrein.driver.program_api import ProgramApi
from checkrein.driver.undo import CHECK_PREFIX
from checkrein.errors import MisuseError
from checkrein.mcp.server import MCP
from checkrein.mcp.tools import MCPTool

_log = logging.getLogger(__name__)

SCHEMA_BYTES: Final = 64 * 1024
"""A longer schema is not put into the record with the question: other arguments are then checked by the tool alone."""


def tool_call(
    driver: ProgramApi, tool: Tool, arguments: bytes, *, place: str = "", step: int | None = None, deps: Any = None
) -> CallRequest:
    """The call of `tool` with these JSON arguments. Raises `ValueError` when they do not fit its signature."""
    checked = tool.to_json(arguments)
    isolation = None if tool.is_async else tool.isolation

    def perform(permit: Permit) -> Execution:
        return begin(driver, permit, tool.function, permit.arguments, isolation=isolation, deps=deps)

    return spec_of(tool, perform, checked, check=tool.to_json, place=place, step=step)


def begin(
    driver: ProgramApi,
    permit: Permit,
    function: Callable[..., Any],
    arguments: bytes,
    *,
    isolation: Isolation | None = None,
    deps: Any = None,
) -> Execution:
    """Begin a call on the executor of its driver. The driver is told when it comes to rest later than it was asked to,
    and when it could not be stopped and has ended after all."""
    return driver.executor.start(
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
    tool: Tool | MCPTool,
    perform: Perform,
    arguments: bytes,
    *,
    check: Callable[[bytes], object],
    has_schema: bool = True,
    place: str = "",
    step: int | None = None,
) -> CallRequest:
    """A call of `tool` that is made by `perform`, with what its author says of it.

    `check` raises `ValueError` for arguments that the tool does not take. `has_schema`: whether a model is offered it.
    """
    what = tool.what(arguments) if isinstance(tool, Tool) else tool.name
    schema = None if tool.approval is None or not has_schema else msgspec.json.encode(tool.schema)

    def revise(edited: bytes) -> CallRequest:
        check(edited)
        return spec_of(tool, perform, edited, check=check, has_schema=has_schema, place=place, step=step)

    return CallRequest(
        kind=CallKind.TOOL,
        name=tool.name,
        perform=perform,
        arguments=arguments,
        place=place,
        step=step,
        on_pause=tool.on_pause,
        idempotent=tool.idempotent or not tool.has_effect,  # one that only looks may look again
        effect=what if tool.has_effect else None,
        undo=None if tool.undo is None else path_of(tool.undo),
        approval=tool.approval,
        what=what,
        schema=None if schema is None or len(schema) > SCHEMA_BYTES else schema,
        revise=revise,
        timeout_seconds=tool.timeout_seconds,
    )


def refused_call(name: str, arguments: bytes, why: str, *, place: str = "", step: int | None = None) -> CallRequest:
    """A call that no tool fits: it is recorded, shown and counted like any other, and fails because of `why`.

    Recorded when the agent still had such a tool, its outcome is the one that is recorded.
    """

    def perform(permit: Permit) -> Execution:
        _log.info("refused a call of %s: %s", name, why, extra={"run": permit.run, "call": permit.call})
        return RefusedExecution(why)

    # Whoever finds it without an outcome after a crash may refuse it once more: it touches nothing.
    return CallRequest(
        kind=CallKind.TOOL, name=name, perform=perform, arguments=arguments, place=place, step=step, idempotent=True
    )


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
    executor: ToolExecutor, function: Callable[..., Any], call: UndoneCall, *, prefix: str = UNDO_PREFIX
) -> Execution:
    """Begin to undo what `call` did. A plain `def` runs in a worker process and can be killed like any tool.

    What an undo returns is dropped: nobody needs it, and JSON may not be able to hold it. A check is asked for it.
    """
    is_wanted = prefix != UNDO_PREFIX
    told = {
        "id": call.id,
        "key": call.key,
        "name": call.name,
        "arguments": json.loads(call.arguments),  # as the tool itself was given them
        "result": None if call.result is None else json.loads(call.result),
        "outcome": call.outcome.value,
    }
    if inspect.iscoroutinefunction(function):

        async def perform() -> Any:
            lent_executor.set(executor)
            said = await function(current.Undone(**told))
            return said if is_wanted else None

        return executor.start(perform, b"{}", id=prefix + call.id, key=call.key)
    arguments = msgspec.json.encode({"target": target_of(function), "call": told})
    performed = current.perform if is_wanted else current.undo
    return executor.start(performed, arguments, id=prefix + call.id, key=call.key)


def check_call(executor: ToolExecutor, function: Callable[..., Any], call: UndoneCall) -> Execution:
    """Begin to find out whether `call` happened."""
    return undo_call(executor, function, call, prefix=CHECK_PREFIX)


def mcp_call(
    driver: ProgramApi, tool: MCPTool, arguments: bytes, *, place: str = "", step: int | None = None
) -> CallRequest:
    """The call of a server's tool with these JSON arguments. Raises `ValueError` when they are no JSON object."""

    def check(given: bytes) -> None:
        try:
            values.plain_arguments(given)
        except values.NotJson as error:
            raise ValueError(str(error)) from error

    def perform(permit: Permit) -> Execution:
        return MCPExecution(
            tool.source.connection(driver.executor),
            tool,
            permit,
            driver.shows(permit),
            secrets=driver.secrets,
            result_bytes=driver.executor.result_bytes,
            on_late_end=lambda: _tell_late(driver, permit.call),
        )

    check(arguments)
    return spec_of(tool, perform, arguments, check=check, place=place, step=step)


def _tell_late(driver: ProgramApi, call: str, tries: int = 100) -> None:
    """Say that a call is over after all; once it is recorded how it was left, or it would count for nothing."""
    if call in driver.state.live and tries:
        asyncio.get_running_loop().call_later(0.02, _tell_late, driver, call, tries - 1)
    else:
        driver.ended_late(call)


def verify_of(tools: Mapping[str, Tool], sources: Iterable[MCP], name: str) -> Callable[..., Any] | None:
    """What finds out whether a call of this tool happened."""
    if name in tools:
        return tools[name].verify
    return next((verify for source in sources if (verify := source.verify_of(name)) is not None), None)
