"""One run of the built-in agent: ask the model, use the tools it asks for, and again.

What a person can mend pauses a run instead of failing it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from checkrein.agents.history import SEPARATOR, as_edited, history_of_thread, told_of
from checkrein.agents.plan import PLAN_TOOL, Plan
from checkrein.agents.tool_calls import mcp_call, refused_call, tool_call
from checkrein.calls.base import CallRequest, Execution, Permit
from checkrein.calls.model import ModelExecution
from checkrein.core.conditions import Cost, caps, tokens_left
from checkrein.core.enums import CallKind, Status
from checkrein.core.events import Need
from checkrein.driver.permits import Result
from checkrein.driver.program_api import ProgramApi
from checkrein.errors import (
    CallFailed,
    Interrupted,
    ModelContextExceeded,
    ModelCut,
    ModelFiltered,
    ModelNotFound,
    ModelRateLimited,
    ModelUnauthorised,
    ModelUnavailable,
    UnknownModel,
)
from checkrein.mcp.tools import OfferedTools
from checkrein.models import prices
from checkrein.models.base import Model, estimate_tokens, tells_cost, tokens_of
from checkrein.models.failures import Retries
from checkrein.models.history import INTERRUPTED_REPLY, Fate, Growing, result_of
from checkrein.models.messages import (
    Assistant,
    Message,
    Note,
    RecordedReply,
    Request,
    ToolCall,
    ToolResult,
    User,
    hash_after,
)
from checkrein.watchers.base import Flag, watch

if TYPE_CHECKING:
    from checkrein.agents.agent import Agent

_log = logging.getLogger(__name__)

MENDABLE: Final = {
    kind.code: kind.remedy
    for kind in (
        ModelUnauthorised,
        ModelNotFound,
        ModelRateLimited,
        ModelUnavailable,
        ModelCut,
        ModelFiltered,
        ModelContextExceeded,
    )
}
"""Failures of a model that a person can mend, and how."""


async def mend(driver: ProgramApi, failed: CallFailed) -> str:
    """Pause until a person has mended what made a model call fail, and resumed. Raises `failed` if nobody can.

    Returns what it was, as a code.
    """
    code = failed.error.partition(":")[0]
    if code not in MENDABLE:
        raise failed
    what = failed.message.removeprefix(f"{code}: ").removesuffix(".")  # the code is for programs, and has its own field
    await driver.need(Need(code=code, what=what, remedy=MENDABLE[code]), about=failed.call)
    return code


def tokens_allowed(driver: ProgramApi) -> int | None:
    """How many tokens the caps of the run leave for the next answer; None where they do not limit it."""
    state = driver.state
    return None if state.last_calls is not None else tokens_left(state.stop_when, state.spent(state.at), state.grants)


async def is_priced(driver: ProgramApi, model: Model) -> bool:
    """Whether a cap of the run on cost can hold for `model`. Where there is none it does not matter."""
    if tells_cost(model) or not any(isinstance(cap, Cost) for cap in caps(driver.state.stop_when)):
        return True
    return await asyncio.to_thread(prices.is_known, model.name)


NOT_PERMITTED: Final = "Not done: what this run was allowed is used up. Answer with what you have."
PENDING: Final = "Waits for a person's approval. Go on with other work; you will be told what became of it."


def unknown_model(agent: Agent) -> UnknownModel | None:
    """Why the model that an agent names cannot be had, which whoever wrote its name can mend."""
    try:
        agent.model  # noqa: B018 - it is resolved when it is first asked for
    except UnknownModel as unknown:
        return unknown
    return None


class AgentLoop:
    """One run of an agent."""

    def __init__(self, agent: Agent, driver: ProgramApi) -> None:
        self._agent = agent
        self._driver = driver
        self._history = Growing([])
        self._messages: list[Message] = []
        """What was said since the model was asked last."""
        self._said: RecordedReply | None = None
        """The model's latest answer."""
        self._turn = 0
        self._room: int | None = None
        """How many tokens an answer may have, after one was cut off in spite of more room."""
        self._other_model = ""
        """The model that this run was asked of before, where it is another, until that is said."""
        self._is_priced = True
        self._overhead = 0
        """What a model has to read besides the history, in tokens."""
        self._plan = Plan(driver.note_once)
        taken = {*agent.tools, *agent.team, *((PLAN_TOOL,) if agent.has_plan else ())}
        self._supply = OfferedTools(driver, agent.sources, taken)
        """What MCP servers lend to this run."""
        self._later: set[asyncio.Task[None]] = set()
        """Calls that wait for an approval while the agent works on."""
        self._news: list[Message] = []

    async def run(self) -> bytes | None:
        driver, agent = self._driver, self._agent
        state = driver.state
        earlier = await history_of_thread(driver.journal, state.thread, state.owner, state.run)
        self._history = Growing([*earlier, User(state.goal)])
        while (unknown := unknown_model(agent)) is not None:
            await driver.need(Need(code=unknown.code, what=unknown.message, remedy=unknown.remedy))
        self._is_priced = await is_priced(driver, agent.model)
        self._overhead = estimate_tokens(Request(agent.instructions, (), agent.tool_specs, agent.output_schema))
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

    async def _ask(self) -> RecordedReply | None:
        """One model call. None when it has to be asked again: redirected, or something was mended."""
        self._turn += 1
        self._notice_model(f"turn:{self._turn}")
        if not self._driver.has_outcome(f"turn:{self._turn}"):
            await self._supply.renew()
        self._messages += self._news
        self._news.clear()
        retries = Retries(self._agent.retries, self._room)
        try:
            result = await self._driver.call(self._model_call(retries))
        except Interrupted as interrupted:
            self._heard(interrupted.carried)
            partial = told_of(interrupted.partial)
            if partial is not None and partial.message.text:
                self._messages += [partial.message, Note("A person interrupted you there.")]
            return None
        except CallFailed as failed:
            if failed.error == "cap_reached":
                return await self._last_word(failed)
            self._heard(failed.instruction)
            code = await mend(self._driver, failed)
            if code == ModelCut.code:
                self._room = retries.room
            elif code == ModelContextExceeded.code:
                self._history.shorten()
            return None
        self._room = None
        self._heard(result.instruction)
        told = told_of(result.value)
        assert told is not None, "a model call that completed has an answer"
        self._messages.append(told.message)
        self._said = told
        return told

    def _notice_model(self, place: str) -> None:
        """Agents are told apart by their names alone: a run may have been begun by another one, or an earlier one."""
        recorded = self._driver.recorded_name(place)
        if recorded:
            self._other_model = "" if recorded == self._agent.model.name else recorded

    def _say_other_model(self, call: str) -> None:
        before, self._other_model = self._other_model, ""
        if before:
            agent, model = self._agent.name, self._agent.model.name
            what = (
                f"goes on with {model}; so far it was {before}: agent {agent} was changed, or is another of that name"
            )
            _log.warning("%s", what, extra={"run": self._driver.run, "call": call})
            self._driver.flag(call, Flag("model", what, 0, "flag"))

    def _heard(self, instruction: str | None) -> None:
        """A person's word that went with a call is part of the history, whatever became of the call."""
        if instruction is not None:
            self._messages.append(User(instruction))

    def _model_call(self, retries: Retries) -> CallRequest:
        agent, driver = self._agent, self._driver
        self._history.add(self._messages)
        self._messages = []
        history = self._history

        def request(permit: Permit) -> Request:
            messages = history.messages()
            if permit.instruction is not None:
                messages = (*messages, *_interrupted(permit), User(permit.instruction))
            is_last = driver.state.last_calls is not None
            return Request(
                instructions=agent.instructions,
                messages=messages,
                tools=() if is_last else (*agent.tool_specs, *self._supply.specs),
                output_schema=agent.output_schema,
                settings=agent.settings,
            )

        def perform(permit: Permit) -> Execution:
            self._say_other_model(permit.call)
            answers = history.last_answers(5) if agent.watchers else []
            watchers = watch(agent.watchers, agent.instructions, answers) if agent.watchers else None
            return ModelExecution(
                agent.model,
                request(permit),
                driver.shows(permit),
                secrets=driver.secrets,
                watchers=watchers,
                on_flag=lambda flag, withheld: driver.flag(permit.call, flag, withheld, permit.attempt),
                retries=retries,
                begun="" if agent.output_type is not None else _begun(permit),
                most_tokens=tokens_allowed(driver),
            )

        return CallRequest(
            kind=CallKind.MODEL,
            name=agent.model.name,
            perform=perform,
            arguments=lambda instruction: _asked(self._turn, history, instruction, self._overhead),
            place=f"turn:{self._turn}",
            step=self._plan.step,
            carries=True,
            priced=self._is_priced,
        )

    async def _last_word(self, failed: CallFailed) -> RecordedReply | None:
        """The last model call it was granted is spent, and asked for tools nevertheless: what it said is the answer.

        Where it said nothing that could be one, a person decides whether it gets more.
        """
        self._turn -= 1  # nothing is recorded of it, and a replay will not pass by here
        said = self._said
        if said is not None and said.message.text and self._agent.output_type is None:
            return msgspec.structs.replace(said, message=msgspec.structs.replace(said.message, calls=()))
        await self._driver.need(Need(code="cap", what=failed.message, remedy="Resume grants what was used up again."))
        return None

    def _final(self, told: RecordedReply) -> bytes | None:
        """The result as JSON; None when the answer does not fit what was asked for, and the model was told so."""
        output = self._agent.output_type
        if output is None:
            return msgspec.json.encode(told.message.text)
        try:
            return output.recorded(told.message.text)
        except ValueError as error:
            self._messages.append(Note(f"That answer does not have the form that was asked for: {error}"))
            return None

    # -- using tools

    async def _use_tools(self, calls: Sequence[ToolCall]) -> list[Message]:
        planned = [self._obey(call) if self._agent.has_plan and call.name == PLAN_TOOL else None for call in calls]
        asked = [
            self._use(call, done) for call, done in zip(calls, planned, strict=True) if not isinstance(done, ToolResult)
        ]
        used = [await asked[0]] if len(asked) == 1 else await asyncio.gather(*asked)
        rest = iter(used)
        return [done if isinstance(done, ToolResult) else next(rest) for done in planned]

    def _obey(self, call: ToolCall) -> ToolResult | ValueError:
        """What the model is told of its plan, or why that does not fit."""
        try:
            return ToolResult(call.id, call.name, self._plan.obey(call))
        except ValueError as error:
            return error

    async def _use(self, call: ToolCall, misfit: ValueError | None = None) -> ToolResult:
        place, why_not = f"turn:{self._turn}{SEPARATOR}{call.id}", NOT_PERMITTED
        try:
            if misfit is not None:
                raise misfit
            spec = await self._tool_call(call, place)
        except ValueError as error:
            why_not = str(error)
            spec = refused_call(call.name, bytes(call.arguments), why_not, place=place, step=self._plan.step)
        if self._was_refused(place):
            return ToolResult(call.id, call.name, why_not, is_error=True)
        if spec.approval == "queue":
            task = self._driver.start(self._use_later(call, spec))
            self._later.add(task)
            task.add_done_callback(self._later.discard)
            return ToolResult(call.id, call.name, PENDING)
        return await self._made(call, spec)

    def _was_refused(self, place: str) -> bool:
        """Whether the run has gone on without this call: it had no permit, so nothing is recorded of it."""
        return self._driver.has_recorded(f"turn:{self._turn + 1}") and not self._driver.has_recorded(place)

    async def _made(self, call: ToolCall, spec: CallRequest) -> ToolResult:
        try:
            result = await self._driver.call(spec)
        except Interrupted as interrupted:
            return self._told(result_of(call, Fate.INTERRUPTED), interrupted.call)
        except CallFailed as failed:
            why = NOT_PERMITTED if failed.error == "cap_reached" else failed.error or failed.message
            return self._told(ToolResult(call.id, call.name, why, is_error=True), failed.call)
        return self._told(ToolResult(call.id, call.name, _content(result)), result.call)

    def _told(self, result: ToolResult, call: str) -> ToolResult:
        """What a call came to; the model is told if it was made with other arguments than it asked for."""
        edited = self._driver.edited_arguments(call)
        return result if edited is None else msgspec.structs.replace(result, content=as_edited(result.content, edited))

    async def _use_later(self, call: ToolCall, spec: CallRequest) -> None:
        """What becomes of a call that waits for an approval is told like an instruction, with the next turn."""
        made = await self._made(call, spec)
        asked = bytes(call.arguments).decode()
        self._news.append(Note(f"Your call {call.name}({asked}), which waited for approval: {made.content}"))

    async def _tool_call(self, call: ToolCall, place: str) -> CallRequest:
        """Raises `ValueError` when there is no such tool, or its arguments do not fit."""
        driver, tool = self._driver, self._agent.tools.get(call.name)
        if call.name in self._agent.team:
            program, goal = self._agent.team[call.name], _goal(call)
            return driver.sub_run(program, goal, place=place, step=self._plan.step)
        if tool is None and not driver.has_outcome(place) and (lent := await self._supply.get(call.name)) is not None:
            return mcp_call(driver, lent, bytes(call.arguments), place=place, step=self._plan.step)
        if tool is None:
            names = ", ".join(dict.fromkeys((*self._agent.tools, *self._agent.team, *self._supply.tools))) or "none"
            raise ValueError(f"There is no tool {call.name}; there are: {names}.")
        try:
            given = bytes(call.arguments)
            return tool_call(driver, tool, given, place=place, step=self._plan.step, deps=self._agent.deps)
        except ValueError as error:
            raise ValueError(f"The arguments do not fit: {error}") from error


def _begun(permit: Permit) -> str:
    """What the model had said when it was stopped, and can go on with.

    Not with what it had come to ask for tools with, not after thoughts that are lost, and not when it is told something
    else now.
    """
    told = told_of(permit.partial)
    if told is None or told.message.calls or told.message.thinking or permit.delivers:
        return ""
    return told.message.text


def _interrupted(permit: Permit) -> tuple[Message, ...]:
    """What the model had said when a person interrupted it with an instruction."""
    told = told_of(permit.partial) if permit.delivers else None
    if told is None or not told.message.text.strip():
        return ()
    return (Assistant(told.message.text.rstrip(), interrupted=True), Note(INTERRUPTED_REPLY))


def _asked(turn: int, history: Growing, instruction: str | None, overhead: int) -> bytes:
    """What is recorded of a request. Every message is in the journal already; the hash says which history it was.

    `tokens` is how much there is to read, estimated.
    """
    added = () if instruction is None else (User(instruction),)
    asked = {
        "turn": turn,
        "messages": len(history) + len(added),
        "hash": hash_after(history.hash, added),
        "tokens": overhead + tokens_of(history.size + len(instruction or "")),
    }
    return msgspec.json.encode(asked | ({"left_out": history.left_out} if history.left_out else {}))


class _Goal(msgspec.Struct):
    goal: str


def _goal(call: ToolCall) -> str:
    try:
        return msgspec.json.decode(bytes(call.arguments), type=_Goal).goal
    except msgspec.MsgspecError as error:
        raise ValueError(f"The arguments do not fit: {error}") from error


def _content(result: Result) -> str:
    if result.value is None:
        return ""
    value = msgspec.json.decode(result.value)
    return value if isinstance(value, str) else result.value.decode()
