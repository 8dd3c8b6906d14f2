"""Programs: an agent that is an async function over a context.

@agent
async def research(ctx: Context, goal: str) -> str:
    async with ctx.step("Search"):
        found = await ctx.tool(search, query=goal)
    answer = await ctx.model(f"Summarise: {found}", model="openai:gpt-5")
    return answer.text
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, overload

from checkrein.agents.answering import answer_with
from checkrein.agents.context import Context
from checkrein.agents.mcp.source import MCP, lending, verify_of
from checkrein.agents.naming import agent_name
from checkrein.agents.tool import Tool, Toolbox
from checkrein.agents.tooling import check_call, function_at, undo_call
from checkrein.core.conditions import DEFAULT, Condition
from checkrein.core.effects import Effect
from checkrein.errors import MisuseError
from checkrein.models.port import Model
from checkrein.models.registry import resolve
from checkrein.runtime import values
from checkrein.runtime.driver import Driver
from checkrein.runtime.spec import Perform, Performance, Permit, UndoneCall

Body = Callable[[Context, str], Awaitable[Any]]


class ProgramAgent:
    """An async function over a context, as an agent. Calling it just calls the function."""

    def __init__(
        self,
        function: Body,
        *,
        name: str | None = None,
        model: str | Model | None = None,
        tools: Sequence[Tool | MCP | Callable[..., Any]] = (),
        stop_when: Condition | None = DEFAULT,
        deps: Any = None,
    ) -> None:
        if not inspect.iscoroutinefunction(function):
            raise MisuseError(f"A program is an `async def`, and {function!r} is not.")
        self.function = function
        self.name = function.__name__ if name is None else agent_name(name)
        self.description = inspect.getdoc(function) or ""
        self.model = model
        self.sources = tuple(one for one in tools if isinstance(one, MCP))
        self.tools = Toolbox(self.name, [one for one in tools if not isinstance(one, MCP)])
        self.stop_when = stop_when
        self.deps = deps
        self.__doc__ = function.__doc__

    def __repr__(self) -> str:
        return f"<Program {self.name}>"

    async def __call__(self, ctx: Context, goal: str) -> Any:
        return await self.function(ctx, goal)

    # -- what a driver asks for

    async def play(self, driver: Driver) -> bytes | None:
        result = await self.function(Context(self, driver), driver.state.goal)
        return values.encode_result(self.function, result)

    def undo(self, effect: Effect, call: UndoneCall, driver: Driver) -> Performance:
        assert effect.undo is not None, "only what has an undo is undone"
        with lending(driver.stage):
            return undo_call(driver.stage, function_at(effect.undo), call)

    def check(self, call: UndoneCall, driver: Driver) -> Performance | None:
        verify = verify_of(self.tools, self.sources, call.name)
        with lending(driver.stage):
            return None if verify is None else check_call(driver.stage, verify, call)

    def answer(self, question: str, driver: Driver) -> Perform:
        if self.model is not None:
            return answer_with(resolve(self.model), question, driver)

        def refuse(permit: Permit) -> Performance:
            raise MisuseError(f"Program {self.name} has no model that could answer; give it one with @agent(model=…).")

        return refuse


@overload
def agent(function: Body, /) -> ProgramAgent: ...
@overload
def agent(
    *,
    name: str | None = None,
    model: str | Model | None = None,
    tools: Sequence[Tool | MCP | Callable[..., Any]] = (),
    stop_when: Condition | None = DEFAULT,
    deps: Any = None,
) -> Callable[[Body], ProgramAgent]: ...
def agent(function: Body | None = None, /, **options: Any) -> Any:
    """Make an agent of an async function: `@agent`, or `@agent(name="research", model="openai:gpt-5")`.

    `tools` names the tools, and the MCP servers, whose `verify` may be asked after a crash; a program may use any other
    as well.
    """
    if function is not None:
        return ProgramAgent(function)
    return lambda decorated: ProgramAgent(decorated, **options)
