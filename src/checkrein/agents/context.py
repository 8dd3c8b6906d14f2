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
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack, overload

import msgspec

from checkrein.agents.history import told_of
from checkrein.agents.loop import is_priced, mend
from checkrein.agents.output import OutputType
from checkrein.agents.plan import Plan
from checkrein.agents.questions import Answer, Answering, Watch, question, told
from checkrein.agents.tool import Tool, as_tool
from checkrein.agents.tool_calls import begin, check_undo, mcp_call, spec_of, tool_call
from checkrein.calls import arguments as values
from checkrein.calls.answer import Source
from checkrein.calls.base import ApprovalRule, CallRequest, EffectKind, Execution, Perform, Permit
from checkrein.calls.stream import Stream, StreamExecution
from checkrein.core.enums import CallKind, OnPause, Status
from checkrein.driver.permits import Result
from checkrein.driver.program_api import Program, ProgramApi
from checkrein.errors import CallFailed, MisuseError, ModelContextExceeded
from checkrein.mcp.tools import MCPTool
from checkrein.models.base import Model
from checkrein.models.failures import Retries
from checkrein.models.history import repair, shortened
from checkrein.models.messages import Assistant, Message, Settings, User, as_json
from checkrein.models.redaction import redacted_messages
from checkrein.models.registry import resolve

if TYPE_CHECKING:
    from checkrein.agents.agent import Agent
    from checkrein.agents.program import ContextAgent, ProgramAgent

T = TypeVar("T")


_step: ContextVar[int | None] = ContextVar("checkrein_step", default=None)


class ModelOptions(TypedDict, total=False):
    """What may be said of a question to a model; `Context.model` has the defaults."""

    model: str | Model | None
    instructions: str
    settings: Settings | None
    place: str


class Context:
    """One run of a program. Its calls raise `Interrupted` when a person stopped them, `CallFailed` when they failed.

    `place` names where in the program a call stands. A call that has one is recognised by it when the program is played
    again, whatever its arguments are by then; calls without are told apart by what they ask for.
    """

    def __init__(self, agent: ContextAgent, driver: ProgramApi) -> None:
        self._agent = agent
        self._driver = driver
        self._plan = Plan(driver.note_once)
        self._tools: dict[object, Tool] = {}
        self._watch = Watch(agent.watchers)
        self._taken = 0
        """How often this playing has asked for an instruction, or a person."""

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

    @overload
    async def model(
        self, messages: str | Sequence[Message], *, output: None = None, **options: Unpack[ModelOptions]
    ) -> Assistant: ...
    @overload
    async def model(
        self, messages: str | Sequence[Message], *, output: type[T], **options: Unpack[ModelOptions]
    ) -> T: ...
    async def model(
        self,
        messages: str | Sequence[Message],
        *,
        model: str | Model | None = None,
        instructions: str = "",
        output: Any = None,
        settings: Settings | None = None,
        place: str = "",
    ) -> Any:
        """Ask a model and return its answer: an `Assistant` with `text`, or, with `output`, a value of that type.

        Without `model` the one of the agent is asked. An instruction that a person has given meanwhile goes with it.
        It is asked again by itself where that may help. A failure that a person can mend pauses the run, and it is
        asked anew when they resume it; any other raises `CallFailed`.
        """
        asked = self._model(model)
        history = repair([User(messages)] if isinstance(messages, str) else list(messages))
        history = redacted_messages(self._driver.secrets, history)
        wanted = None if output is None else OutputType(output)
        schema = None if wanted is None else as_json(wanted.schema)
        priced = await is_priced(self._driver, asked)
        retries = Retries()
        result: Result | None = None
        while result is None:
            spec = question(
                self._driver,
                asked,
                history,
                instructions=instructions,
                output_schema=schema,
                settings=settings or Settings(),
                place=place,
                step=_step.get(),
                priced=priced,
                retries=retries,
                watch=self._watch,
            )
            try:
                result = await self._driver.call(spec)
            except CallFailed as failed:
                code = await mend(self._driver, failed)
                retries = Retries(room=retries.room)
                if code == ModelContextExceeded.code:
                    history = tuple(shortened(history)[0])
                if failed.instruction is not None:
                    history = repair([*history, User(failed.instruction)])
        recorded = told_of(result.value)
        message = Assistant("") if recorded is None else recorded.message
        self._watch.heard(message.text)
        return message if wanted is None else _typed(wanted, message.text, asked)

    async def answer(
        self, source: Source, *, name: str, place: str = "", asked: Any = None, carries: bool = True
    ) -> Answer:
        """Have somebody else ask a model, on any client, as one recorded call. Its `value` is what the source gives.

        `source(asked)` is an async generator: it makes the request, yields text as it comes, and ends with a
        `WholeAnswer(value, usage)`. `name` is who is asked, as `provider:model`, by which it is priced. The `asked`
        that is given here is what is recorded of the request.

        It is shown, priced, watched, kept free of secrets and asked again like a model of ours. Paused, its source is
        closed, and asked again after the resume; redirected, it is asked again at once. Each time `asked.messages` has
        what was said meanwhile: the half answer, and the instruction. The program never hears of it, and puts
        `answer.messages` into its history. With `carries=False` an instruction waits for another request.
        """
        answering = Answering(
            self._driver,
            source,
            name=name,
            place=place,
            asked=asked,
            step=_step.get(),
            watch=self._watch,
            carries=carries,
        )
        return await answering.answer()

    async def tool(self, tool: Tool | MCPTool | Callable[..., Any], /, *, place: str = "", **arguments: Any) -> Any:
        """Use a tool, with everything its author has said about it: undo, approval, isolation, timeout.

        A tool that takes an argument `place` itself is given it.
        """
        if place and _takes_place(tool):
            place, arguments = "", {**arguments, "place": place}
        if isinstance(tool, MCPTool):
            given = values.encode_result(self.tool, arguments)
            spec = mcp_call(self._driver, tool, given, place=place, step=_step.get())
            return _value((await self._driver.call(spec)).value)
        used = self._tools.setdefault(tool, as_tool(tool))
        if used.undo is not None:
            check_undo(used.undo)
        try:
            given = values.encode_result(used.function, arguments)
            spec = tool_call(self._driver, used, given, place=place, step=_step.get(), deps=self._agent.deps)
        except ValueError as error:
            raise MisuseError(f"The arguments do not fit {used.name}: {error}") from error
        return _value((await self._driver.call(spec)).value)

    async def call(
        self,
        function: Callable[..., Any],
        /,
        *args: Any,
        undo: Callable[..., Any] | None = None,
        effect: EffectKind = "unknown",
        idempotent: bool = False,
        on_pause: OnPause | str = OnPause.FINISH,
        approval: ApprovalRule | bool | None = None,
        timeout: float | None = None,
        changes: str = "",
        name: str | None = None,
        place: str = "",
        **kwargs: Any,
    ) -> Any:
        """Call any function as one recorded step: a coroutine function here, a plain one in a worker process.

        What is said of it means what it means with `@tool`: `effect="none"` if it only looks, `"irreversible"` asks a
        person first, and of one that says nothing all that is known after a stop is that it may have partly happened.
        `changes` are the words for it. Arguments are recorded as far as JSON can hold them, the result must be
        something that it can hold.
        """
        if isinstance(function, Tool):
            raise MisuseError(f"{function.name} is a tool: use `ctx.tool`, which heeds its approval and its undo.")
        if undo is not None:
            check_undo(undo)
        said = Tool(
            function,
            name=name or str(getattr(function, "__name__", "call")),
            undo=undo,
            effect=effect,
            idempotent=idempotent,
            on_pause=on_pause,
            approval=approval,
            timeout=timeout,
            changes=changes,
        )
        bound = inspect.signature(function).bind(*args, **kwargs)
        if inspect.iscoroutinefunction(function):
            recorded = _recorded(bound.arguments)
            perform = self._here(function, bound, recorded)
        else:
            recorded, perform = values.encode_result(function, _flat(bound)), self._in_worker(function)
        spec = spec_of(said, perform, recorded, check=_check_json, has_schema=False, place=place, step=_step.get())
        return _value((await self._driver.call(spec)).value)

    async def stream(self, source: Stream, *, name: str = "stream") -> Any:
        """Read a stream to its end as one recorded call, and return all of it: text as one string, else a list.

        `source` is a function that makes an async iterator, so that it can be asked again after a pause; an iterator
        itself can be read only once. Pieces of text are shown as they come. A stop closes it at once.
        """

        def perform(permit: Permit) -> Execution:
            return StreamExecution(source, permit.attempt, self._driver.shows(permit), secrets=self._driver.secrets)

        spec = CallRequest(kind=CallKind.MODEL, name=name, perform=perform, step=_step.get())
        return _value((await self._driver.call(spec)).value)

    @overload
    async def spawn(self, agent: Agent[T] | ProgramAgent[T], goal: str, *, place: str = "") -> T: ...
    @overload
    async def spawn(self, agent: Program, goal: str, *, place: str = "") -> Any: ...
    async def spawn(self, agent: Program, goal: str, *, place: str = "") -> Any:
        """Have another agent work on `goal` as a sub-run, and return its result. It stops with this run."""
        spec = self._driver.sub_run(agent, goal, place=place, step=_step.get())
        value = (await self._driver.call(spec)).value
        return None if value is None else agent.result_of(value)

    # -- a person

    async def ask_person(self, question: str, *, place: str = "") -> str:
        """Put a question to a person: the run waits as *needs you*, and what they resume it with is the answer.

        Empty when they resume it without a word. The question survives restarts, and is put once.
        """
        place = place or self._next_place("question")
        if not self._driver.has_recorded(place):
            await self._driver.ask_person(question, place)
        spec = told("ask_person", place, {"question": question}, step=_step.get())
        return (await self._driver.call(spec)).instruction or ""

    async def instruction(self) -> str | None:
        """What a person has told this run and no call has carried yet; None when nothing. It counts as delivered.

        For a program that asks no model: `ctx.model` and `ctx.answer` carry it by themselves.
        """
        place = self._next_place("instruction")
        if not self._driver.has_recorded(place) and (
            self._driver.is_replaying or self._driver.state.instruction is None
        ):
            return None
        return (await self._driver.call(told("instruction", place, step=_step.get()))).instruction

    def _next_place(self, what: str) -> str:
        self._taken += 1
        return f"{what}:{self._taken}"

    # -- what a person sees

    def plan(self, steps: Sequence[str]) -> None:
        """Publish the task list: every step that has not begun is replaced."""
        self._plan.publish(steps)

    @asynccontextmanager
    async def step(self, title: str) -> AsyncIterator[None]:
        """`async with ctx.step("Fetch"):` a step of the task list. Calls made inside belong to it."""
        number = self._plan.open(self._driver.secrets.text(title))
        token = _step.set(number)
        try:
            yield
        finally:
            _step.reset(token)
        self._plan.finish(number)

    async def until_stopped(self) -> None:
        """Return once the run is being cancelled, or is over: for what goes on beside the calls of a program."""
        while not (self._driver.state.is_finished or self._driver.state.status is Status.CANCELLING):
            await self._driver.change()

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

    def _here(self, function: Callable[..., Any], bound: inspect.BoundArguments, recorded: bytes) -> Perform:
        """How a coroutine function is called: with the very objects it is given, as far as they are permitted."""

        def perform(permit: Permit) -> Execution:
            given = as_permitted(function, bound, self._driver.secrets.json(recorded), permit.arguments)

            async def work() -> Any:
                return await function(*given.args, **given.kwargs)

            # What an error about its result says.
            work.__qualname__ = getattr(function, "__qualname__", work.__qualname__)
            return begin(self._driver, permit, work, b"{}", deps=self._agent.deps)

        return perform

    def _in_worker(self, function: Callable[..., Any]) -> Perform:
        """How a plain function is called: with what is recorded of its arguments."""
        return lambda permit: begin(self._driver, permit, function, permit.arguments, deps=self._agent.deps)

    def _model(self, model: str | Model | None) -> Model:
        wanted = model or self._agent.model
        if wanted is None:
            raise MisuseError(f"Program {self._agent.name} has no model: give one to @agent(model=…) or ctx.model().")
        return resolve(wanted)


def as_permitted(
    function: Callable[..., Any], bound: inspect.BoundArguments, asked: bytes, permitted: bytes
) -> inspect.BoundArguments:
    """Arguments of which each is the very object that was given, unless another was permitted than was asked for."""
    before = values.plain_arguments(asked)
    other = {name: value for name, value in values.plain_arguments(permitted).items() if before.get(name) != value}
    made = inspect.BoundArguments(bound.signature, bound.arguments.copy())
    made.arguments.update(values.typed(function, other))
    return made


def _takes_place(tool: Tool | MCPTool | Callable[..., Any]) -> bool:
    if isinstance(tool, MCPTool):
        return "place" in tool.schema.get("properties", {})
    return "place" in inspect.signature(tool).parameters


def _check_json(edited: bytes) -> None:
    try:
        values.plain_arguments(edited)
    except values.NotJson as error:
        raise ValueError(str(error)) from error


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


def _typed(wanted: OutputType, text: str, asked: Model) -> Any:
    """The answer of a model as a value. Raises `CallFailed` where it does not have that form."""
    try:
        return wanted.read(text)
    except ValueError as error:
        raise CallFailed(f"The answer of {asked.name} does not have the form that was asked for: {error}") from error
