"""Pydantic AI: `interruptible(agent)`. The extra `checkrein[pydantic-ai]` brings it.

One capability that is given for the run alone: it wraps the model that serves a request (`get_wrapper_model`) and the
tools (`get_wrapper_toolset`), answers approvals (`handle_deferred_tool_calls`), and gives the run ids that are the same
when it is played again. Their agent is not changed.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar, Final

from checkrein.adapters.bridge import (
    AdaptedAgent,
    AdaptedTool,
    Declined,
    Play,
    Rules,
    ToolRaised,
    check_known,
    check_rules,
    names_of_tools,
    require,
)
from checkrein.calls.answer import Asked, SaidMessage, WholeAnswer
from checkrein.core.conditions import DEFAULT, Condition, Usage
from checkrein.core.events import Json
from checkrein.errors import CallFailed, MisuseError
from checkrein.models.messages import ToolCall
from checkrein.watchers.base import Watching

LEAST: Final = "2.66.0"
FOUND: Final = require("pydantic-ai-slim", LEAST, "pydantic-ai", framework="Pydantic AI")

from pydantic import PydanticUserError, TypeAdapter  # noqa: E402 - not before it is known that it is there, and new enough
from pydantic_ai import RunContext, exceptions  # noqa: E402
from pydantic_ai import messages as theirs  # noqa: E402
from pydantic_ai.agent import AbstractAgent  # noqa: E402
from pydantic_ai.capabilities import AbstractCapability  # noqa: E402
from pydantic_ai.models import CompletedStreamedResponse, Model, ModelRequestParameters, infer_model  # noqa: E402
from pydantic_ai.models.wrapper import WrapperModel  # noqa: E402
from pydantic_ai.tools import DeferredToolResults, ToolApproved  # noqa: E402
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset, ToolsetTool, WrapperToolset  # noqa: E402
from pydantic_ai.usage import UsageLimits  # noqa: E402
from pydantic_core import to_jsonable_python  # noqa: E402

__all__ = ["PydanticAIAgent", "Rules", "interruptible", "reins"]

_MESSAGES: Final = theirs.ModelMessagesTypeAdapter
_TOOL_RETURN: Final[TypeAdapter[Any]] = TypeAdapter(theirs.ToolReturn)
_place: ContextVar[str] = ContextVar("checkrein_pydantic_ai_place", default="")
"""Where the model request stands that is being made."""
_inside: ContextVar[_Reins | None] = ContextVar("checkrein_pydantic_ai_inside", default=None)
"""The reins for what an inline tool runs."""


def interruptible(
    agent: AbstractAgent[Any, Any],
    *,
    name: str | None = None,
    deps: Any = None,
    stop_when: Condition | None = DEFAULT,
    watchers: Sequence[Watching] = (),
    tools: Mapping[str, Rules] | None = None,
    inline: Sequence[str] = (),
) -> PydanticAIAgent:
    """`agent` as an agent of Checkrein: pause, redirect, resume, cancel, undo, receipts, replay.

    `deps` are those of its runs: a value, or a function that makes it. `tools` says of a tool, by its name, what
    Pydantic AI cannot: `{"send": Rules(undo=unsend)}`. `inline` names tools whose body is played again instead of being
    recorded as one call: those that run another agent, with `capabilities=[reins()]`.
    """
    return PydanticAIAgent(
        agent, name=name, deps=deps, stop_when=stop_when, watchers=watchers, tools=tools or {}, inline=inline
    )


def reins() -> AbstractCapability[Any]:
    """For an agent that an inline tool runs: `await other.run(task, capabilities=[reins()])`.

    Its requests and tool calls are then those of the same run. Outside a run of Checkrein it does nothing.
    """
    inside = _inside.get()
    return AbstractCapability() if inside is None else inside.below()


class PydanticAIAgent(AdaptedAgent):
    """An agent of Pydantic AI, as a program. `await run.result()` gives a value of its `output_type`."""

    framework: ClassVar[str] = "Pydantic AI"

    def __init__(
        self,
        agent: AbstractAgent[Any, Any],
        *,
        name: str | None,
        deps: Any,
        stop_when: Condition | None,
        watchers: Sequence[Watching],
        tools: Mapping[str, Rules],
        inline: Sequence[str],
    ) -> None:
        if not isinstance(agent, AbstractAgent):
            raise MisuseError(
                f"interruptible() of checkrein.adapters.pydantic_ai takes a pydantic_ai.Agent, and {agent!r} is none."
            )
        self.agent = agent
        self.rules = check_rules(tools)
        self.inline = frozenset(names_of_tools(inline))
        known = [adapted(tool.name, tool, tools) for tool in _function_tools(agent)]
        super().__init__(name=name or agent.name, tools=known, deps=deps, stop_when=stop_when, watchers=watchers)
        check_known(self.name, self.tools, (*tools, *inline))

    @property
    def model_name(self) -> str:
        return _name_of(infer_model(self._default_model()))

    def _default_model(self) -> Any:
        model = self.agent.model
        if model is None:
            raise MisuseError(f"Agent {self.name} has no model: give it one, Agent('openai:gpt-5', …).")
        return model

    async def run_theirs(self, play: Play, goal: str) -> Any:
        # Caps are Checkrein's: where they trip, a person is asked instead of the run being lost.
        limits, deps = UsageLimits(request_limit=None), self.deps_of_run()
        result = await self.agent.run(goal, deps=deps, usage_limits=limits, capabilities=[_Reins(play)])
        return to_jsonable_python(result.output)

    def result_of(self, result: bytes) -> Any:
        expected: Any = self.agent.output_type
        try:
            return TypeAdapter(expected).validate_json(result)
        except (PydanticUserError, ValueError):
            return json.loads(result)  # an output function, or one of several: what it came to is plain data

    async def asks(self, messages: Sequence[SaidMessage]) -> AsyncIterator[str]:
        model = infer_model(self._default_model())
        async with model.request_stream(_theirs(messages, None), None, ModelRequestParameters()) as stream:
            async for event in stream:
                if text := _text_of(event):
                    yield text


# -- the seams


@dataclass
class _Reins(AbstractCapability[Any]):
    """What is given to one run of theirs."""

    play: Play
    part: str = "run"
    """Which run of theirs within ours: the same when it is played again, and in a fork. Places are named by it."""
    asked: set[str] = field(default_factory=set)
    """Tool calls that need an approval."""
    added: dict[str, list[theirs.ModelMessage]] = field(default_factory=dict)
    """By the place of a request: what was said beside it, and belongs into their history."""
    runs: int = 0
    """How many runs the tool has begun that these are for."""

    def below(self) -> _Reins:
        self.runs += 1
        return _Reins(self.play, f"{self.part}.{self.runs}")

    def get_default_run_id(self) -> str | None:
        """The same when it is played again; but in a fork another, as what it does there is done by another run."""
        return self.play.driver.run + self.part.removeprefix("run")

    def get_default_conversation_id(self, run_id: str) -> str | None:
        return f"{run_id}-conversation"

    def get_run_clock(self) -> Callable[[], datetime] | None:
        return lambda: datetime.fromtimestamp(self.play.ctx.now(), UTC)

    def get_wrapper_model(self, model: Model) -> Model | None:
        return _ReinedModel(model, self)

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any] | None:
        return _ReinedTools(toolset, self)

    async def wrap_model_request(self, ctx: RunContext[Any], *, request_context: Any, handler: Any) -> Any:
        """Give the request its place, and put what a person said meanwhile into their history, before the answer."""
        place = self.play.model_place(f"model:{self.part}")
        token = _place.set(place)
        try:
            response = await handler(request_context)
        finally:
            _place.reset(token)
        ctx.messages.extend(self.added.pop(place, ()))
        return response

    async def handle_deferred_tool_calls(self, ctx: RunContext[Any], *, requests: Any) -> DeferredToolResults | None:
        """Their approvals are ours: the call itself asks a person, before it begins."""
        self.asked |= {call.tool_call_id for call in requests.approvals}
        return DeferredToolResults(approvals={call.tool_call_id: ToolApproved() for call in requests.approvals})


class _ReinedModel(WrapperModel):
    """Makes each request a call of the run."""

    def __init__(self, wrapped: Model, reins: _Reins) -> None:
        super().__init__(wrapped)
        self._reins = reins

    async def request(self, messages: Any, model_settings: Any, model_request_parameters: Any) -> theirs.ModelResponse:
        reins, place = self._reins, _place.get()

        async def source(asked: Asked) -> AsyncIterator[Any]:
            sent = [*messages, *_theirs(asked.messages, messages)]
            async with self.wrapped.request_stream(sent, model_settings, model_request_parameters) as stream:
                async for event in stream:
                    if text := _text_of(event):
                        yield text
                response = stream.get()
            calls = tuple(
                ToolCall(part.tool_call_id, part.tool_name, Json(part.args_as_json_str().encode()))
                for part in response.parts
                if isinstance(part, theirs.ToolCallPart)
            )
            yield WholeAnswer(_value(response), _usage(response), calls)

        answer = await reins.play.model(
            source,
            name=_name_of(self.wrapped),
            place=place,
            messages=len(messages),
            size=reins.play.size_of(messages),
        )
        reins.added[place] = _theirs(answer.messages, messages)
        (response,) = _MESSAGES.validate_python(answer.value)
        assert isinstance(response, theirs.ModelResponse)
        return response

    @asynccontextmanager
    async def request_stream(
        self, messages: Any, model_settings: Any, model_request_parameters: Any, *rest: Any
    ) -> AsyncGenerator[Any]:
        response = await self.request(messages, model_settings, model_request_parameters)
        yield CompletedStreamedResponse(response, model_request_parameters=model_request_parameters, replay_events=True)


@dataclass
class _ReinedTools(WrapperToolset[Any]):
    """Makes each tool call a call of the run."""

    reins: _Reins

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        play, inner = self.reins.play, super().call_tool
        agent = play.agent
        assert isinstance(agent, PydanticAIAgent)
        if name in agent.inline:
            token = _inside.set(_Reins(play, f"{self.reins.part}.{ctx.tool_call_id}"))
            try:
                return await inner(name, tool_args, ctx, tool)
            finally:
                _inside.reset(token)
        known = agent.tools.get(name)
        used = known if isinstance(known, AdaptedTool) else adapted(name, None, agent.rules)
        call_id = ctx.tool_call_id or ""

        async def invoke() -> Any:
            return to_jsonable_python(await inner(name, tool_args, ctx, tool))

        try:
            returned = await play.tool(
                used,
                to_jsonable_python(tool_args),
                invoke,
                place=f"tool:{self.reins.part}/{call_id}",
                approval=call_id in self.reins.asked,
            )
            return _returned(used, returned)
        except Declined as declined:
            return str(declined)
        except ToolRaised as raised:
            raise _as_raised(raised) from raised


def _returned(used: AdaptedTool, recorded: Any) -> Any:
    """What a tool returned. A `ToolReturn` is known by its kind, also where the function does not say so."""
    if isinstance(recorded, dict) and recorded.get("kind") == "tool-return" and "return_value" in recorded:
        return _TOOL_RETURN.validate_python(recorded)
    return used.as_returned(recorded)


def _as_raised(raised: ToolRaised) -> Exception:
    """What a tool has raised, as the framework knows it: some of it is a word to the model, or asks for an approval."""
    if raised.kind in ("ModelRetry", "ToolFailed"):
        return getattr(exceptions, raised.kind)(raised.says)  # type: ignore[no-any-return]
    if raised.kind == "ApprovalRequired":
        return exceptions.ApprovalRequired()
    return CallFailed(str(raised), error=str(raised))


# -- tools


def adapted(name: str, tool: Any, rules: Mapping[str, Rules]) -> AdaptedTool:
    """A tool of theirs; without `tool` one that only its toolset knows, such as that of a server."""
    said = rules.get(name, Rules())
    if tool is None:
        return AdaptedTool(_unknown, name, said, why_here="only its toolset knows how it is called")
    why = "it takes the RunContext" if tool.takes_ctx else ""
    return AdaptedTool(tool.function, name, said, why_here=why)


async def _unknown(**arguments: Any) -> Any:
    """Stands for a function that nobody here has."""
    raise NotImplementedError


def _function_tools(agent: AbstractAgent[Any, Any]) -> list[Any]:
    found: list[Any] = []

    def visit(toolset: AbstractToolset[Any]) -> None:
        if isinstance(toolset, FunctionToolset):
            found.extend(toolset.tools.values())

    for toolset in agent.toolsets:
        toolset.apply(visit)
    return found


# -- messages


def _name_of(model: Model) -> str:
    return f"{model.system}:{model.model_name}"


def _value(response: theirs.ModelResponse) -> Any:
    """An answer as it is recorded: without what nobody said, which comes back by itself."""
    value = _MESSAGES.dump_python([response], mode="json", exclude_none=True)
    used = value[0].get("usage", {})
    value[0]["usage"] = {name: said for name, said in used.items() if said}
    return value


def _theirs(said: Sequence[SaidMessage], after: Sequence[Any] | None) -> list[theirs.ModelMessage]:
    """What was said, as messages of theirs, under the instructions that the request has."""
    last = next((one for one in reversed(after or ()) if isinstance(one, theirs.ModelRequest)), None)
    instructions = None if last is None else last.instructions
    made: list[theirs.ModelMessage] = []
    for one in said:
        if one["role"] == "assistant":
            made.append(theirs.ModelResponse(parts=[theirs.TextPart(one["content"])]))
        else:
            made.append(theirs.ModelRequest(parts=[theirs.UserPromptPart(one["content"])], instructions=instructions))
    return made


def _text_of(event: Any) -> str:
    if isinstance(event, theirs.PartStartEvent) and isinstance(event.part, theirs.TextPart):
        return event.part.content
    if isinstance(event, theirs.PartDeltaEvent) and isinstance(event.delta, theirs.TextPartDelta):
        return event.delta.content_delta
    return ""


def _usage(response: theirs.ModelResponse) -> Usage:
    used = response.usage
    return Usage(
        input_tokens=used.input_tokens or 0,
        output_tokens=used.output_tokens or 0,
        cached_tokens=used.cache_read_tokens or 0,
        cache_written_tokens=used.cache_write_tokens or 0,
    )
