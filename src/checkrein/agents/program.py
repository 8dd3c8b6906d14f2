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
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypedDict, Unpack, overload

from checkrein.agents.agent import agent_condition, agent_name, agent_watchers, answer_with
from checkrein.agents.context import Context
from checkrein.agents.output import returned_by
from checkrein.agents.tool import Tool, Toolbox, function_at, listed
from checkrein.agents.tool_calls import check_call, undo_call, verify_of
from checkrein.calls import arguments
from checkrein.calls.base import Execution, Perform, Permit, UndoneCall
from checkrein.core.conditions import DEFAULT, Condition
from checkrein.core.effects import Effect
from checkrein.driver.program_api import Program, ProgramApi
from checkrein.errors import MisuseError
from checkrein.mcp.server import MCP
from checkrein.models.base import Model
from checkrein.models.registry import resolve
from checkrein.watchers.base import Watching

_log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T", default=Any, covariant=True)
else:
    from typing import TypeVar

    T = TypeVar("T", covariant=True)

Body = Callable[[Context, str], Awaitable[T]]


class ContextOptions(TypedDict, total=False):
    """What may be said of an agent besides its name; `ContextAgent` has the defaults."""

    model: str | Model | None
    tools: Sequence[Tool | MCP | Callable[..., Any] | object]
    stop_when: Condition | None
    deps: Any
    watchers: Sequence[Watching]


class ProgramOptions(ContextOptions, total=False):
    """What may be said of a program."""

    name: str | None


class ContextAgent(Program):
    """An agent whose runs are played over a `Context`, whoever plays them: what its calls go by."""

    def __init__(
        self,
        name: str,
        *,
        model: str | Model | None = None,
        tools: Sequence[Tool | MCP | Callable[..., Any] | object] = (),
        stop_when: Condition | None = DEFAULT,
        deps: Any = None,
        watchers: Sequence[Watching] = (),
    ) -> None:
        self.name = name
        self.model = model
        given = listed(self.name, tools)
        self.sources: tuple[MCP, ...] = tuple(one for one in given if isinstance(one, MCP))
        self.tools: Toolbox = Toolbox(self.name, [one for one in given if not isinstance(one, MCP)], deps=deps)
        self.stop_when = agent_condition(self.name, stop_when)
        self.deps = deps
        self.watchers = agent_watchers(self.name, watchers)

    def __repr__(self) -> str:
        return f"<Program {self.name}>"

    def undo(self, effect: Effect, call: UndoneCall, driver: ProgramApi) -> Execution:
        assert effect.undo is not None, "only what has an undo is undone"
        return undo_call(driver.executor, function_at(effect.undo), call)

    def check(self, call: UndoneCall, driver: ProgramApi) -> Execution | None:
        verify = verify_of(self.tools, self.sources, call.name)
        return None if verify is None else check_call(driver.executor, verify, call)

    def answer(self, question: str, driver: ProgramApi) -> Perform:
        if self.model is not None:
            return answer_with(resolve(self.model), question, driver)

        def refuse(permit: Permit) -> Execution:
            raise MisuseError(f"Program {self.name} has no model that could answer; give it one with @agent(model=…).")

        return refuse


class ProgramAgent(ContextAgent, Generic[T]):
    """An async function over a context, as an agent. Calling it just calls the function.

    `watchers` read along whatever it asks models.

    `await run.result()` gives a value of the type that the function says it returns, where that is one that JSON only
    holds a likeness of, such as a dataclass or a pydantic model.
    """

    def __init__(self, function: Body[T], *, name: str | None = None, **options: Unpack[ContextOptions]) -> None:
        if not inspect.iscoroutinefunction(function):
            raise MisuseError(f"A program is an `async def`, and {function!r} is not.")
        super().__init__(function.__name__ if name is None else agent_name(name), **options)
        self.function = function
        self.description = inspect.getdoc(function) or ""
        self.__doc__ = function.__doc__

    async def __call__(self, ctx: Context, goal: str) -> T:
        return await self.function(ctx, goal)

    async def play(self, driver: ProgramApi) -> bytes | None:
        result = await self.function(Context(self, driver), driver.state.goal)
        return arguments.encode_result(self.function, result, most=driver.executor.result_bytes)

    def result_of(self, result: bytes) -> Any:
        returned = returned_by(self.function)
        if returned is not None:
            try:
                return returned.read(result)
            except (ValueError, MisuseError) as error:  # whether it fits is for its author to say, as with arguments
                _log.info("a result of program %s is no %s: %s", self.name, returned.name, error)
        return super().result_of(result)


@overload
def agent(function: Body[T], /, **options: Unpack[ProgramOptions]) -> ProgramAgent[T]: ...
@overload
def agent(**options: Unpack[ProgramOptions]) -> Callable[[Body[T]], ProgramAgent[T]]: ...
def agent(function: Body[Any] | None = None, /, **options: Any) -> Any:
    """Make an agent of an async function: `@agent`, or `@agent(name="research", model="openai:gpt-5")`.

    `tools` names the tools, and the MCP servers, whose `verify` may be asked after a crash; a program may use any other
    as well.
    """
    if function is not None:
        return ProgramAgent(function, **options)
    return lambda decorated: ProgramAgent(decorated, **options)
