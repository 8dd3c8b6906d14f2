"""What a program has in its hands: `ctx`. Everything it does to the world, it does through it.

A call made here needs a permit, is recorded, and can be stopped at any moment. In a new process the program is played
again from its beginning: what is recorded comes back, and the first call that is not goes live. So between its calls a
program must do the same again: no clock but `ctx.now()`, no chance but `ctx.uuid()`.
"""

from __future__ import annotations

import inspect
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import msgspec

from checkrein.agents.mcp.performing import mcp_call
from checkrein.agents.mcp.statement import MCPTool
from checkrein.agents.mending import mend
from checkrein.agents.plan import Plan
from checkrein.agents.questions import question
from checkrein.agents.redacting import redacted_messages
from checkrein.agents.streaming import Stream, StreamPerformance
from checkrein.agents.threads import told_of
from checkrein.agents.tool import Tool, as_tool, path_of
from checkrein.agents.tooling import begin, check_undo, tool_call
from checkrein.core.words import CallKind, OnPause
from checkrein.errors import CallFailed, MisuseError
from checkrein.models.history import repair
from checkrein.models.messages import Assistant, Message, Settings, User, as_json
from checkrein.models.port import Model
from checkrein.models.registry import resolve
from checkrein.runtime import values
from checkrein.runtime.calling import Result
from checkrein.runtime.driver import Driver
from checkrein.runtime.spec import Perform, Performance, Permit, Program, Spec

if TYPE_CHECKING:
    from checkrein.agents.program import ProgramAgent

_step: ContextVar[int | None] = ContextVar("checkrein_step", default=None)


class Context:
    """One run of a program. Its calls raise `Interrupted` when a person stopped them, `CallFailed` when they failed."""

    def __init__(self, agent: ProgramAgent, driver: Driver) -> None:
        self._agent = agent
        self._driver = driver
        self._plan = Plan(driver.note_once)
        self._tools: dict[object, Tool] = {}

    @property
    def run(self) -> str:
        """The id of this run."""
        return self._driver.run

    @property
    def goal(self) -> str:
        return self._driver.state.goal

    @property
    def thread(self) -> str:
        return self._driver.state.thread

    # -- calls

    async def model(
        self,
        messages: str | Sequence[Message],
        *,
        model: str | Model | None = None,
        instructions: str = "",
        output: Any = None,
        settings: Settings | None = None,
    ) -> Any:
        """Ask a model and return its answer: an `Assistant` with `text`, or, with `output`, a value of that type.

        Without `model` the one of the agent is asked. An instruction that a person has given meanwhile goes with it.
        It is asked again by itself where that may help. A failure that a person can mend pauses the run, and it is
        asked anew when they resume it; any other raises `CallFailed`.
        """
        asked = self._model(model)
        history = repair([User(messages)] if isinstance(messages, str) else list(messages))
        history = redacted_messages(self._driver.secrets, history)
        adapter = None if output is None else _adapter(output)
        schema = None if adapter is None else as_json(adapter.json_schema())
        result: Result | None = None
        while result is None:
            spec = question(
                self._driver,
                asked,
                history,
                instructions=instructions,
                output_schema=schema,
                settings=settings or Settings(),
                step=_step.get(),
            )
            try:
                result = await self._driver.call(spec)
            except CallFailed as failed:
                await mend(self._driver, failed)
                if failed.instruction is not None:
                    history = repair([*history, User(failed.instruction)])
        told = told_of(result.value)
        message = Assistant("") if told is None else told.message
        if adapter is None:
            return message
        try:
            return adapter.validate_json(message.text)
        except ValueError as error:
            raise CallFailed(
                f"The answer of {asked.name} does not have the form that was asked for: {error}"
            ) from error

    async def tool(self, tool: Tool | MCPTool | Callable[..., Any], /, **arguments: Any) -> Any:
        """Use a tool, with everything its author has said about it: undo, approval, isolation, timeout."""
        if isinstance(tool, MCPTool):
            given = values.encode_result(self.tool, arguments)
            return _value((await self._driver.call(mcp_call(self._driver, tool, given, step=_step.get()))).value)
        used = self._tools.setdefault(tool, as_tool(tool))
        if used.undo is not None:
            check_undo(used.undo)
        try:
            given = values.encode_result(used.function, arguments)
            spec = tool_call(self._driver, used, given, step=_step.get(), deps=self._agent.deps)
        except ValueError as error:
            raise MisuseError(f"The arguments do not fit {used.name}: {error}") from error
        return _value((await self._driver.call(spec)).value)

    async def call(
        self,
        function: Callable[..., Any],
        /,
        *args: Any,
        undo: Callable[..., Any] | None = None,
        effect: str | None = None,
        idempotent: bool = False,
        on_pause: OnPause | str = OnPause.FINISH,
        timeout: float | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Call any function as one recorded step: a coroutine function here, a plain one in a worker process.

        `effect` says in words what it does to the world; with an `undo` its name will do. Arguments are recorded as far
        as JSON can hold them, the result must be something that it can hold.
        """
        if isinstance(function, Tool):
            raise MisuseError(f"{function.name} is a tool: use `ctx.tool`, which heeds its approval and its undo.")
        if undo is not None:
            check_undo(undo)
        title = name or str(getattr(function, "__name__", "call"))
        bound = inspect.signature(function).bind(*args, **kwargs)
        if inspect.iscoroutinefunction(function):
            recorded, perform = _recorded(bound.arguments), self._here(function, args, kwargs)
        else:
            recorded, perform = values.encode_result(function, _flat(bound)), self._in_worker(function)
        spec = Spec(
            kind=CallKind.TOOL,
            name=title,
            perform=perform,
            arguments=recorded,
            step=_step.get(),
            on_pause=OnPause(on_pause),
            idempotent=idempotent,
            effect=effect or (title if undo is not None else None),
            undo=None if undo is None else path_of(undo),
            timeout_seconds=timeout,
        )
        return _value((await self._driver.call(spec)).value)

    async def stream(self, source: Stream, *, name: str = "stream") -> Any:
        """Read a stream to its end as one recorded call, and return all of it: text as one string, else a list.

        `source` is a function that makes an async iterator, so that it can be asked again after a pause; an iterator
        itself can be read only once. Pieces of text are shown as they come. A stop closes it at once.
        """

        def perform(permit: Permit) -> Performance:
            return StreamPerformance(
                source,
                permit.attempt,
                self._driver.shows(permit),
                secrets=self._driver.secrets,
            )

        spec = Spec(kind=CallKind.MODEL, name=name, perform=perform, step=_step.get())
        return _value((await self._driver.call(spec)).value)

    async def spawn(self, agent: Program, goal: str) -> Any:
        """Have another agent work on `goal` as a sub-run, and return its result. It stops with this run."""
        return _value((await self._driver.call(self._driver.sub_run(agent, goal, step=_step.get()))).value)

    # -- what a person sees

    def plan(self, steps: Sequence[str]) -> None:
        """Publish the task list: every step that has not begun is replaced."""
        self._plan.publish(steps)

    @asynccontextmanager
    async def step(self, title: str) -> AsyncIterator[None]:
        """`async with ctx.step("Fetch"):` a step of the task list. Calls made inside belong to it."""
        number = self._plan.open(title)
        token = _step.set(number)
        try:
            yield
        finally:
            _step.reset(token)
        self._plan.finish(number)

    # -- instead of the clock and of chance

    def now(self) -> float:
        """The time, in Unix seconds, of the last thing this program has seen: the same when it is played again."""
        return self._driver.now()

    def uuid(self) -> uuid.UUID:
        """A UUID, the same when the program is played again."""
        return self._driver.uuid()

    def version(self, name: str) -> bool:
        """Whether to take the newer way where the program was changed: `if ctx.version("scores-v2"): ... else: ...`.

        False for a run that came by here before the change, for good. Without it a changed program asks for something
        else than its run has recorded, and the run pauses as diverged.
        """
        return self._driver.version(name)

    # -- how calls are made

    def _here(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Perform:
        """How a coroutine function is called: with the very objects it is given."""

        async def work() -> Any:
            return await function(*args, **kwargs)

        work.__qualname__ = getattr(function, "__qualname__", work.__qualname__)  # what an error about its result says
        return lambda permit: begin(self._driver, permit, work, b"{}", deps=self._agent.deps)

    def _in_worker(self, function: Callable[..., Any]) -> Perform:
        """How a plain function is called: with what is recorded of its arguments."""
        return lambda permit: begin(self._driver, permit, function, permit.arguments, deps=self._agent.deps)

    def _model(self, model: str | Model | None) -> Model:
        wanted = model or self._agent.model
        if wanted is None:
            raise MisuseError(f"Program {self._agent.name} has no model: give one to @agent(model=…) or ctx.model().")
        return resolve(wanted)


def _adapter(output: Any) -> Any:
    import pydantic

    return pydantic.TypeAdapter(output)


def _value(result: bytes | None) -> Any:
    return None if result is None else msgspec.json.decode(result)


def _flat(bound: inspect.BoundArguments) -> Mapping[str, Any]:
    """Arguments by name, as a worker is given them."""
    for parameter in bound.signature.parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
            raise MisuseError(f"A worker process is given arguments by name, and {parameter} has none.")
    given = dict(bound.arguments)
    for parameter in bound.signature.parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            given |= given.pop(parameter.name, {})
    return given


def _recorded(arguments: Mapping[str, Any]) -> bytes:
    """Arguments as the journal keeps them: what JSON cannot hold is named by its type."""
    return msgspec.json.encode({name: _plain(value) for name, value in arguments.items()})


def _plain(value: Any) -> Any:
    try:
        return msgspec.json.decode(values.encode_result(_plain, value))
    except values.NotJson:
        return f"<{type(value).__name__}>"
