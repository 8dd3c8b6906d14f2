"""The built-in agent: a model and tools, round after round, until the model has nothing more to ask for.

It is a program like any other, keyed by turn: on replay a call is recognised by the turn it belongs to and not by what
was said, so instructions, tools and model may be changed while a run is paused.

What an agent may be called.

Side questions: answered from a copy of the context, without tools, while the run goes on or stays paused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Required, TypedDict, Unpack, overload

import msgspec

from checkrein.agents.history import Conversation, told_of
from checkrein.agents.loop import AgentLoop
from checkrein.agents.output import OutputType
from checkrein.agents.plan import PLAN_TOOL
from checkrein.agents.plan import SPEC as PLAN_SPEC
from checkrein.agents.tool import Tool, Toolbox, is_program, listed
from checkrein.agents.tool_calls import check_call, undo_call, verify_of
from checkrein.calls.base import CallResult, Execution, Perform, Permit, UndoneCall
from checkrein.calls.model import ModelExecution
from checkrein.core.conditions import DEFAULT, Condition, problem_with
from checkrein.core.effects import Effect
from checkrein.core.enums import Outcome
from checkrein.core.events import Json
from checkrein.driver.program_api import Program, ProgramApi
from checkrein.errors import MisuseError
from checkrein.mcp.server import MCP
from checkrein.models.base import Model
from checkrein.models.failures import RETRIES
from checkrein.models.history import repair
from checkrein.models.messages import Request, Settings, ToolSpec, User, as_json
from checkrein.models.registry import resolve
from checkrein.watchers.base import Watching, check_action
from checkrein.watchers.loops import Loops

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T", default=Any, covariant=True)
else:
    from typing import TypeVar

    T = TypeVar("T", covariant=True)


def agent_name(name: str) -> str:
    """`name`, or `MisuseError` where nobody could say it."""
    if not name.strip():
        raise MisuseError("An agent needs a name that is more than spaces: its runs are listed and found by it.")
    return name


def agent_condition(agent: str, stop_when: Condition | None) -> Condition | None:
    """`stop_when`, or `MisuseError` where it would not cap what its author meant."""
    problem = None if stop_when is None else problem_with(stop_when)
    if problem is not None:
        raise MisuseError(f"Agent {agent}: stop_when cannot be {problem}.", agent=agent)
    return stop_when


def _plan(agent: str, plan: object) -> tuple[str, ...]:
    if isinstance(plan, bool):
        return ()
    if isinstance(plan, str) or not isinstance(plan, Sequence) or not all(isinstance(one, str) for one in plan):
        raise MisuseError(f"Agent {agent}: plan={plan!r} is neither a list of titles nor True or False.", agent=agent)
    return tuple(plan)


def _retries(agent: str, retries: object) -> int:
    if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
        raise MisuseError(f"Agent {agent}: retries={retries!r} is no whole number from 0 on.", agent=agent)
    return retries


def agent_watchers(agent: str, given: object) -> tuple[Watching, ...]:
    """What is to read along, or `MisuseError` where something of it could not."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise MisuseError(f"Agent {agent}: watchers is a list, such as [Loops(), Confession()], not {given!r}.")
    for one in given:
        if isinstance(one, type) or not callable(getattr(one, "watch", None)):
            raise MisuseError(f"Agent {agent}: {one!r} is no watcher; give one that is made, such as Loops().")
        check_action(one, getattr(one, "action", None))
    return tuple(given)


def _watchers(agent: str, given: object, loops: object) -> tuple[Watching, ...]:
    """What reads along: those that were given, and a `Loops` where there is none and nobody has switched it off."""
    if not isinstance(loops, bool):
        raise MisuseError(
            f"Agent {agent}: loops={loops!r} is neither True nor False. For another count or action give "
            'watchers=[Loops(5, action="flag")].'
        )
    watchers = agent_watchers(agent, given)
    has_own = any(isinstance(one, Loops) for one in watchers)
    return watchers if has_own or not loops else (*watchers, Loops())


_DELEGATION = as_json({"type": "object", "properties": {"goal": {"type": "string"}}, "required": ["goal"]})


class AgentOptions(TypedDict, total=False):
    """What may be said of an agent beside its name and its `output`; `Agent` has the defaults."""

    model: Required[str | Model]
    instructions: str
    tools: Sequence[Tool | MCP | Program | Callable[..., Any] | object]
    plan: Sequence[str] | bool
    stop_when: Condition | None
    deps: Any
    watchers: Sequence[Watching]
    loops: bool
    settings: Settings | None
    retries: int
    goals: Sequence[str]


class Agent(Program, Generic[T]):
    """A model, its instructions and its tools.

    `plan` is the task list that a person sees: titles of steps, or True to have the model make it. `output` is a
    pydantic model, a dataclass, a msgspec struct or another type that the final answer must fit, and that
    `await run.result()` then gives a value of; without it that is the text. `deps` is what tools find at
    `current_call().deps`: a value, or a function at the top level of a module that makes it in each process. Another
    agent among the tools is given a goal and works on it as a sub-run. Without `stop_when` an agent gets 50 turns and
    30 minutes. `watchers` read along; one that pauses a run whose model goes round in circles is always there, unless
    `loops` is False. `goals` are offered to whoever starts a run in the page.

    To a type checker `tools` may be a list of anything, since to it several tools of different signatures are a list of
    objects. What is no tool is refused when the agent is built.
    """

    @overload
    def __init__(self: Agent[str], name: str, *, output: None = None, **options: Unpack[AgentOptions]) -> None: ...
    @overload
    def __init__(self, name: str, *, output: type[T], **options: Unpack[AgentOptions]) -> None: ...
    def __init__(
        self,
        name: str,
        *,
        model: str | Model,
        instructions: str = "",
        tools: Sequence[Tool | MCP | Program | Callable[..., Any] | object] = (),
        plan: Sequence[str] | bool = (),
        stop_when: Condition | None = DEFAULT,
        output: Any = None,
        deps: Any = None,
        watchers: Sequence[Watching] = (),
        loops: bool = True,
        settings: Settings | None = None,
        retries: int = RETRIES,
        goals: Sequence[str] = (),
    ) -> None:
        self.name = agent_name(name)
        self.instructions = instructions
        given = listed(name, tools)
        self.sources: tuple[MCP, ...] = tuple(one for one in given if isinstance(one, MCP))
        """MCP servers. What tools they have is known when a run asks them."""
        own = [one for one in given if not isinstance(one, MCP)]
        self.team: dict[str, Program] = {one.name: one for one in own if is_program(one)}
        self.tools: Toolbox = Toolbox(name, own, deps=deps)
        self.plan = _plan(name, plan)
        self.has_plan = bool(plan)
        self.stop_when = agent_condition(name, stop_when)
        self.output = output
        self.output_type = None if output is None else OutputType(output)
        self.deps = deps
        self.watchers = _watchers(name, watchers, loops)
        self.settings = settings or Settings()
        self.retries = _retries(name, retries)
        """How often a model that failed for a reason that may pass is asked again, before a person is."""
        self.goals = tuple(goals)
        self._model = model
        if self.has_plan and PLAN_TOOL in {*self.tools, *self.team}:
            raise MisuseError(f"Agent {name} has a plan, which brings a tool `{PLAN_TOOL}`; give its own another name.")

    def __repr__(self) -> str:
        return f"<Agent {self.name}>"

    @cached_property
    def model(self) -> Model:
        return resolve(self._model)

    @cached_property
    def tool_specs(self) -> tuple[ToolSpec, ...]:
        own = (ToolSpec(tool.name, tool.description, as_json(tool.schema)) for tool in self.tools.values())
        others = (ToolSpec(name, _about(program), _DELEGATION) for name, program in self.team.items())
        return (*own, *others, *((PLAN_SPEC,) if self.has_plan else ()))

    @cached_property
    def output_schema(self) -> Json | None:
        return None if self.output_type is None else as_json(self.output_type.schema)

    # -- what a driver asks for

    async def play(self, driver: ProgramApi) -> bytes | None:
        return await AgentLoop(self, driver).run()

    def result_of(self, result: bytes) -> Any:
        if self.output_type is None:
            return super().result_of(result)
        try:
            return self.output_type.read(result)
        except ValueError as error:
            sentence = f"The result that is recorded is no {self.output_type.name} of agent {self.name}: {error}"
            raise MisuseError(sentence, agent=self.name) from error

    def undo(self, effect: Effect, call: UndoneCall, driver: ProgramApi) -> Execution:
        borrowed = (undo for source in self.sources if (undo := source.undo_at(effect.undo)) is not None)
        return undo_call(driver.executor, next(borrowed, None) or self.tools.undo_at(effect.undo, call.name), call)

    def check(self, call: UndoneCall, driver: ProgramApi) -> Execution | None:
        verify = verify_of(self.tools, self.sources, call.name)
        return None if verify is None else check_call(driver.executor, verify, call)

    def answer(self, question: str, driver: ProgramApi) -> Perform:
        return answer_with(self.model, question, driver, instructions=self.instructions, settings=self.settings)


def _about(program: Program) -> str:
    return program.description or f"Hands a task to the agent {program.name} and waits for its result."


_NO_SETTINGS = Settings()


def answer_with(
    model: Model, question: str, driver: ProgramApi, *, instructions: str = "", settings: Settings = _NO_SETTINGS
) -> Perform:
    """How `question` is put to `model`: after everything that was said and done in the run so far."""

    async def request() -> Request:
        told = Conversation(await driver.journal.read(driver.run))
        messages = repair([*told.messages, User(question)], told.fates)
        return Request(instructions, messages, settings=settings)

    def perform(permit: Permit) -> Execution:
        return _SideQuestion(model, request(), driver, permit)

    return perform


class _SideQuestion(Execution):
    """The context is read first, then the model is asked."""

    def __init__(self, model: Model, request: Coroutine[Any, Any, Request], driver: ProgramApi, permit: Permit) -> None:
        self._task = asyncio.get_running_loop().create_task(self._ask(model, request, driver, permit))

    async def _ask(
        self, model: Model, request: Coroutine[Any, Any, Request], driver: ProgramApi, permit: Permit
    ) -> CallResult:
        inner = ModelExecution(model, await request, driver.shows(permit), secrets=driver.secrets)
        try:
            ended = await inner.ended()
        except asyncio.CancelledError:
            await inner.abort()
            ended = await inner.ended()
        told = told_of(ended.result)
        text = msgspec.json.encode(told.message.text if told is not None else "")
        return msgspec.structs.replace(ended, result=text)

    async def ended(self) -> CallResult:
        await asyncio.wait([self._task])
        return CallResult(outcome=Outcome.ABORTED) if self._task.cancelled() else self._task.result()

    async def abort(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
