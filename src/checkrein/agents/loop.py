"""The built-in agent: a model and tools, round after round, until the model has nothing more to ask for.

It is a program like any other, keyed by turn: on replay a call is recognised by the turn it belongs to and not by what
was said, so instructions, tools and model may be changed while a run is paused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from checkrein.agents.asking import ModelPerformance, Told
from checkrein.agents.threads import SEPARATOR, Conversation, history_of_thread, told_of
from checkrein.agents.tool import Tool, as_tool
from checkrein.agents.tooling import path_of, tool_call, undo_call
from checkrein.agents.watchers.contract import Flag, Watching
from checkrein.agents.watchers.several import watch
from checkrein.core.conditions import DEFAULT, Condition
from checkrein.core.effects import Effect
from checkrein.core.events import Need, PlanPublished
from checkrein.core.words import CallKind, Outcome, Status
from checkrein.errors import CallFailed, Interrupted, MisuseError
from checkrein.models.history import Fate, repair, result_of
from checkrein.models.messages import (
    Assistant,
    Message,
    Note,
    Request,
    Settings,
    ToolCall,
    ToolResult,
    ToolSpec,
    User,
    as_json,
)
from checkrein.models.port import Model
from checkrein.models.registry import resolve
from checkrein.runtime.calling import Result
from checkrein.runtime.driver import Driver
from checkrein.runtime.spec import Ended, Perform, Performance, Permit, Spec, UndoneCall

if TYPE_CHECKING:
    import pydantic

_MENDABLE = frozenset({"model_unauthorised", "model_not_found", "model_rate_limited", "model_unavailable"})


class Agent:
    """A model, its instructions and its tools.

    `output` is a pydantic model, or another type, that the final answer must fit. Without `stop_when` an agent gets 50
    turns and 30 minutes.
    """

    def __init__(
        self,
        name: str,
        *,
        model: str | Model,
        instructions: str = "",
        tools: Sequence[Tool | Callable[..., Any]] = (),
        plan: Sequence[str] = (),
        stop_when: Condition | None = DEFAULT,
        output: Any = None,
        watchers: Sequence[Watching] = (),
        settings: Settings | None = None,
    ) -> None:
        self.name = name
        self.instructions = instructions
        self.tools = {tool.name: tool for tool in map(as_tool, tools)}
        self.plan = tuple(plan)
        self.stop_when = stop_when
        self.output = output
        self.watchers = tuple(watchers)
        self.settings = settings or Settings()
        self._model = model
        if len(self.tools) < len(tools):
            raise MisuseError(f"Agent {name} has two tools of the same name.")

    def __repr__(self) -> str:
        return f"<Agent {self.name}>"

    @cached_property
    def model(self) -> Model:
        return resolve(self._model)

    @cached_property
    def tool_specs(self) -> tuple[ToolSpec, ...]:
        return tuple(
            ToolSpec(name=tool.name, description=tool.description, schema=as_json(tool.schema))
            for tool in self.tools.values()
        )

    @cached_property
    def output_type(self) -> pydantic.TypeAdapter[Any] | None:
        if self.output is None:
            return None
        import pydantic

        return pydantic.TypeAdapter(self.output)

    # -- what a driver asks for

    async def play(self, driver: Driver) -> bytes | None:
        return await _Play(self, driver).run()

    def undo(self, effect: Effect, call: UndoneCall, driver: Driver) -> Performance:
        for tool in self.tools.values():
            if tool.undo is not None and path_of(tool.undo) == effect.undo:
                return undo_call(driver.stage, tool.undo, call)
        raise MisuseError(f"Agent {self.name} has no tool any more whose undo is {effect.undo}.")

    def answer(self, question: str, driver: Driver) -> Perform:
        def perform(permit: Permit) -> Performance:
            async def ask() -> Request:
                records = await driver.journal.read(driver.run)
                told = Conversation(records)
                messages = repair([*told.messages, User(question)], told.fates)
                return Request(self.instructions, messages, settings=self.settings)

            return _Asking(self, ask, driver, permit)

        return perform


class _Asking:
    """A side question: the context is read first, then the model is asked, without tools."""

    def __init__(self, agent: Agent, request: Callable[[], Any], driver: Driver, permit: Permit) -> None:
        self._task = asyncio.get_running_loop().create_task(self._ask(agent, request, driver, permit))
        self._inner: ModelPerformance | None = None

    async def _ask(self, agent: Agent, request: Callable[[], Any], driver: Driver, permit: Permit) -> Ended:
        self._inner = ModelPerformance(
            agent.model, await request(), lambda offset, text: driver.chunk(permit.call, offset, text)
        )
        try:
            ended = await self._inner.ended()
        except asyncio.CancelledError:
            await self._inner.abort()
            ended = await self._inner.ended()
        told = told_of(ended.result)
        text = msgspec.json.encode(told.message.text if told is not None else "")
        return msgspec.structs.replace(ended, result=text)

    async def ended(self) -> Ended:
        await asyncio.wait([self._task])
        return Ended(outcome=Outcome.ABORTED) if self._task.cancelled() else self._task.result()

    async def abort(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def hold(self) -> bool:
        return False

    async def go_on(self) -> None:
        return None


class _Play:
    """One run of an agent."""

    def __init__(self, agent: Agent, driver: Driver) -> None:
        self._agent = agent
        self._driver = driver
        self._messages: list[Message] = []
        self._turn = 0

    async def run(self) -> bytes | None:
        driver, agent = self._driver, self._agent
        state = driver.state
        self._messages = [*await history_of_thread(driver.journal, state.thread, state.run), User(state.goal)]
        if agent.plan:
            driver.note_once(PlanPublished(id="plan", at=driver.now(), steps=agent.plan))
        while True:
            told = await self._ask()
            if told is None:
                continue
            if told.message.calls and not told.message.interrupted:
                self._messages += await self._use_tools(told.message.calls)
                continue
            result = self._final(told)
            if result is not None and await driver.try_finish(Status.COMPLETED, result=result):
                return result
            if result is not None:
                await driver.until_it_may_go_on()

    # -- asking the model

    async def _ask(self) -> Told | None:
        """One model call. None when it has to be asked again: redirected, or something was mended."""
        self._turn += 1
        try:
            result = await self._driver.call(self._model_call())
        except Interrupted as interrupted:
            partial = told_of(interrupted.partial)
            if partial is not None and partial.message.text:
                self._messages += [partial.message, Note("A person interrupted you there.")]
            return None
        except CallFailed as failed:
            await self._mend(failed)
            return None
        if result.instruction is not None:
            self._messages.append(User(result.instruction))
        told = told_of(result.value)
        assert told is not None, "a model call that completed has an answer"
        self._messages.append(told.message)
        return told

    def _model_call(self) -> Spec:
        agent, driver = self._agent, self._driver
        history = repair(self._messages)

        def request(instruction: str | None) -> Request:
            messages = history if instruction is None else repair([*history, User(instruction)])
            schema = None if agent.output_type is None else as_json(agent.output_type.json_schema())
            is_last = driver.state.last_calls is not None
            return Request(
                instructions=agent.instructions,
                messages=messages,
                tools=() if is_last else agent.tool_specs,
                output_schema=schema,
                settings=agent.settings,
            )

        def perform(permit: Permit) -> Performance:
            answers = [message.text for message in history if isinstance(message, Assistant) and message.text]
            watchers = watch(agent.watchers, agent.instructions, answers[-5:]) if agent.watchers else None
            return ModelPerformance(
                agent.model,
                request(permit.instruction),
                lambda offset, text: driver.chunk(permit.call, offset, text),
                watchers=watchers,
                on_flags=lambda flags: self._flagged(permit.call, flags),
            )

        return Spec(
            kind=CallKind.MODEL,
            name=agent.model.name,
            perform=perform,
            arguments=lambda instruction: msgspec.json.encode({"turn": self._turn, "messages": len(history)}),
            place=f"turn:{self._turn}",
            carries=True,
        )

    def _flagged(self, call: str, flags: Sequence[Flag]) -> None:
        for flag in flags:
            self._driver.flag(call, flag.watcher, flag.what, flag.offset, flag.action)

    async def _mend(self, failed: CallFailed) -> None:
        """What a person can mend pauses the run instead of failing it."""
        code = failed.error.partition(":")[0]
        if code not in _MENDABLE:
            raise failed
        await self._driver.need(Need(code=code, what=failed.message, remedy="Mend it, then resume."))

    def _final(self, told: Told) -> bytes | None:
        """The result as JSON; None when the answer does not fit what was asked for, and the model was told so."""
        adapter = self._agent.output_type
        if adapter is None:
            return msgspec.json.encode(told.message.text)
        try:
            return adapter.dump_json(adapter.validate_json(told.message.text))
        except ValueError as error:
            self._messages.append(Note(f"That answer does not have the form that was asked for: {error}"))
            return None

    # -- using tools

    async def _use_tools(self, calls: Sequence[ToolCall]) -> list[Message]:
        results = await asyncio.gather(*(self._use(call) for call in calls))
        return list(results)

    async def _use(self, call: ToolCall) -> ToolResult:
        place = f"turn:{self._turn}{SEPARATOR}{call.id}"
        try:
            spec = self._tool_call(call, place)
        except ValueError as error:
            if not self._driver.has_recorded(place):
                return ToolResult(call.id, call.name, str(error), is_error=True)
            spec = _only_from_the_past(call, place, error)
        try:
            result = await self._driver.call(spec)
        except Interrupted:
            return result_of(call, Fate.INTERRUPTED)
        except CallFailed as failed:
            return ToolResult(call.id, call.name, failed.error or failed.message, is_error=True)
        return ToolResult(call.id, call.name, _content(result))

    def _tool_call(self, call: ToolCall, place: str) -> Spec:
        """Raises `ValueError` when there is no such tool, or its arguments do not fit."""
        driver, tool = self._driver, self._agent.tools.get(call.name)
        if tool is None:
            names = ", ".join(self._agent.tools) or "none"
            raise ValueError(f"There is no tool {call.name}; there are: {names}.")
        try:
            return tool_call(driver.stage, tool, bytes(call.arguments), place=place, on_held=driver.look_again)
        except ValueError as error:
            raise ValueError(f"The arguments do not fit: {error}") from error


def _only_from_the_past(call: ToolCall, place: str, error: ValueError) -> Spec:
    """A call that was made when the agent still had such a tool: its outcome is recorded, and it can only be that."""

    def perform(permit: Permit) -> Performance:
        raise error

    return Spec(kind=CallKind.TOOL, name=call.name, perform=perform, place=place)


def _content(result: Result) -> str:
    if result.value is None:
        return ""
    value = msgspec.json.decode(result.value)
    return value if isinstance(value, str) else result.value.decode()
