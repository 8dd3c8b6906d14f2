"""One run of the built-in agent: ask the model, use the tools it asks for, and again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from checkrein.agents.asking import ModelPerformance, Told
from checkrein.agents.mcp.performing import mcp_call
from checkrein.agents.mcp.supply import Supply
from checkrein.agents.mending import mend
from checkrein.agents.plan import PLAN_TOOL, Plan
from checkrein.agents.retrying import Retries
from checkrein.agents.threads import SEPARATOR, history_of_thread, told_of
from checkrein.agents.tooling import tool_call
from checkrein.agents.watchers.contract import Flag
from checkrein.agents.watchers.several import watch
from checkrein.core.events import Need
from checkrein.core.words import CallKind, Status
from checkrein.errors import CallFailed, Interrupted
from checkrein.models.history import Fate, Growing, result_of
from checkrein.models.messages import (
    Message,
    Note,
    Request,
    ToolCall,
    ToolResult,
    User,
    hash_after,
)
from checkrein.runtime.calling import Result
from checkrein.runtime.driver import Driver
from checkrein.runtime.spec import Performance, Permit, Spec

if TYPE_CHECKING:
    from checkrein.agents.loop import Agent

NOT_PERMITTED: Final = "Not done: what this run was allowed is used up. Answer with what you have."
PENDING: Final = "Waits for a person's approval. Go on with other work; you will be told what became of it."


class Play:
    """One run of an agent."""

    def __init__(self, agent: Agent, driver: Driver) -> None:
        self._agent = agent
        self._driver = driver
        self._history = Growing([])
        self._messages: list[Message] = []
        """What was said since the model was asked last."""
        self._said: Told | None = None
        """The model's latest answer."""
        self._turn = 0
        self._plan = Plan(driver.note_once)
        taken = {*agent.tools, *agent.team, *((PLAN_TOOL,) if agent.has_plan else ())}
        self._supply = Supply(driver, agent.sources, taken)
        """What MCP servers lend to this run."""
        self._later: set[asyncio.Task[None]] = set()
        """Calls that wait for an approval while the agent works on."""
        self._news: list[Message] = []

    async def run(self) -> bytes | None:
        driver, agent = self._driver, self._agent
        state = driver.state
        earlier = await history_of_thread(driver.journal, state.thread, state.run)
        self._history = Growing([*earlier, User(state.goal)])
        if agent.plan:
            self._plan.publish(agent.plan)
            self._plan.begin(1)
        while True:
            told = await self._ask()
            if told is None:
                continue
            if told.message.calls and not told.message.interrupted:
                self._messages += await self._use_tools(told.message.calls)
                continue
            result = self._final(told)
            if result is None:
                continue
            if self._later or self._news:
                await self._until_news()
                continue
            self._plan.finish()
            while not await driver.try_finish(Status.COMPLETED, result=result):
                await driver.until_it_may_go_on()
                if driver.state.instruction is not None:
                    break
            else:
                return result

    async def _until_news(self) -> None:
        """A run whose approvals are pending does not complete: wait for what becomes of one, or for an instruction."""
        while self._later and not self._news and self._driver.state.instruction is None:
            change = asyncio.ensure_future(self._driver.change())
            try:
                await asyncio.wait({change, *self._later}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                change.cancel()

    # -- asking the model

    async def _ask(self) -> Told | None:
        """One model call. None when it has to be asked again: redirected, or something was mended."""
        self._turn += 1
        if not self._driver.has_outcome(f"turn:{self._turn}"):
            await self._supply.renew()
        self._messages += self._news
        self._news.clear()
        try:
            result = await self._driver.call(self._model_call())
        except Interrupted as interrupted:
            self._heard(interrupted.instruction)
            partial = told_of(interrupted.partial)
            if partial is not None and partial.message.text:
                self._messages += [partial.message, Note("A person interrupted you there.")]
            return None
        except CallFailed as failed:
            if failed.error == "cap_reached":
                return await self._last_word(failed)
            self._heard(failed.instruction)
            await mend(self._driver, failed)
            return None
        self._heard(result.instruction)
        told = told_of(result.value)
        assert told is not None, "a model call that completed has an answer"
        self._messages.append(told.message)
        self._said = told
        return told

    def _heard(self, instruction: str | None) -> None:
        """A person's word that went with a call is part of the history, whatever became of the call."""
        if instruction is not None:
            self._messages.append(User(instruction))

    def _model_call(self) -> Spec:
        agent, driver = self._agent, self._driver
        self._history.add(self._messages)
        self._messages = []
        history, retries = self._history, Retries(agent.retries)

        def request(instruction: str | None) -> Request:
            messages = history.messages() if instruction is None else (*history.messages(), User(instruction))
            is_last = driver.state.last_calls is not None
            return Request(
                instructions=agent.instructions,
                messages=messages,
                tools=() if is_last else (*agent.tool_specs, *self._supply.specs),
                output_schema=agent.output_schema,
                settings=agent.settings,
            )

        def perform(permit: Permit) -> Performance:
            answers = history.last_answers(5) if agent.watchers else []
            watchers = watch(agent.watchers, agent.instructions, answers) if agent.watchers else None
            return ModelPerformance(
                agent.model,
                request(permit.instruction),
                driver.shows(permit),
                secrets=driver.secrets,
                watchers=watchers,
                on_flags=lambda flags: self._flagged(permit.call, flags),
                retries=retries,
                begun="" if agent.output_type is not None else _begun(permit),
            )

        return Spec(
            kind=CallKind.MODEL,
            name=agent.model.name,
            perform=perform,
            arguments=lambda instruction: _asked(self._turn, history, instruction),
            place=f"turn:{self._turn}",
            step=self._plan.step,
            carries=True,
        )

    async def _last_word(self, failed: CallFailed) -> Told | None:
        """The last model call it was granted is spent, and asked for tools nevertheless: what it said is the answer.

        Where it said nothing that could be one, a person decides whether it gets more.
        """
        self._turn -= 1  # nothing is recorded of it, and a replay will not pass by here
        said = self._said
        if said is not None and said.message.text and self._agent.output_type is None:
            return msgspec.structs.replace(said, message=msgspec.structs.replace(said.message, calls=()))
        await self._driver.need(Need(code="cap", what=failed.message, remedy="Resume grants what was used up again."))
        return None

    def _flagged(self, call: str, flags: Sequence[Flag]) -> None:
        for flag in flags:
            self._driver.flag(call, flag.watcher, flag.what, flag.offset, flag.action)

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
        planned = [self._obey(call) if self._agent.has_plan and call.name == PLAN_TOOL else None for call in calls]
        asked = [call for call, done in zip(calls, planned, strict=True) if not done]
        used = [await self._use(asked[0])] if len(asked) == 1 else await asyncio.gather(*map(self._use, asked))
        rest = iter(used)
        return [done or next(rest) for done in planned]

    def _obey(self, call: ToolCall) -> ToolResult:
        try:
            return ToolResult(call.id, call.name, self._plan.obey(call))
        except (ValueError, msgspec.MsgspecError) as error:
            return ToolResult(call.id, call.name, str(error), is_error=True)

    async def _use(self, call: ToolCall) -> ToolResult:
        place = f"turn:{self._turn}{SEPARATOR}{call.id}"
        try:
            spec = await self._tool_call(call, place)
        except ValueError as error:
            if not self._driver.has_recorded(place):
                return ToolResult(call.id, call.name, str(error), is_error=True)
            spec = _only_from_the_past(call, place, error)
        if self._was_refused(place):
            return ToolResult(call.id, call.name, NOT_PERMITTED, is_error=True)
        if spec.approval == "queue":
            task = self._driver.start(self._use_later(call, spec))
            self._later.add(task)
            task.add_done_callback(self._later.discard)
            return ToolResult(call.id, call.name, PENDING)
        return await self._made(call, spec)

    def _was_refused(self, place: str) -> bool:
        """Whether the run has gone on without this call: it had no permit, so nothing is recorded of it."""
        return self._driver.has_recorded(f"turn:{self._turn + 1}") and not self._driver.has_recorded(place)

    async def _made(self, call: ToolCall, spec: Spec) -> ToolResult:
        try:
            result = await self._driver.call(spec)
        except Interrupted:
            return result_of(call, Fate.INTERRUPTED)
        except CallFailed as failed:
            why = NOT_PERMITTED if failed.error == "cap_reached" else failed.error or failed.message
            return ToolResult(call.id, call.name, why, is_error=True)
        return ToolResult(call.id, call.name, _content(result))

    async def _use_later(self, call: ToolCall, spec: Spec) -> None:
        """What becomes of a call that waits for an approval is told like an instruction, with the next turn."""
        made = await self._made(call, spec)
        asked = bytes(call.arguments).decode()
        self._news.append(Note(f"Your call {call.name}({asked}), which waited for approval: {made.content}"))

    async def _tool_call(self, call: ToolCall, place: str) -> Spec:
        """Raises `ValueError` when there is no such tool, or its arguments do not fit."""
        driver, tool = self._driver, self._agent.tools.get(call.name)
        if call.name in self._agent.team:
            program, goal = self._agent.team[call.name], _goal(call)
            return driver.sub_run(program, goal, place=place, step=self._plan.step)
        if tool is None and not driver.has_outcome(place) and (lent := await self._supply.get(call.name)) is not None:
            return mcp_call(driver, lent, bytes(call.arguments), place=place, step=self._plan.step)
        if tool is None:
            names = ", ".join({*self._agent.tools, *self._agent.team, *self._supply.tools}) or "none"
            raise ValueError(f"There is no tool {call.name}; there are: {names}.")
        try:
            given = bytes(call.arguments)
            return tool_call(driver, tool, given, place=place, step=self._plan.step, deps=self._agent.deps)
        except ValueError as error:
            raise ValueError(f"The arguments do not fit: {error}") from error


def _begun(permit: Permit) -> str:
    """What the model had said when it was paused; nothing if it had come to ask for tools."""
    told = told_of(permit.partial)
    return "" if told is None or told.message.calls else told.message.text


def _asked(turn: int, history: Growing, instruction: str | None) -> bytes:
    """What is recorded of a request. Every message is in the journal already; the hash says which history it was."""
    added = () if instruction is None else (User(instruction),)
    return msgspec.json.encode(
        {"turn": turn, "messages": len(history) + len(added), "hash": hash_after(history.hash, added)}
    )


class _Goal(msgspec.Struct):
    goal: str


def _goal(call: ToolCall) -> str:
    try:
        return msgspec.json.decode(bytes(call.arguments), type=_Goal).goal
    except msgspec.MsgspecError as error:
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
