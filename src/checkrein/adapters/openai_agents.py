"""OpenAI Agents SDK: `interruptible(agent)`. The extra `checkrein[openai-agents]` brings it.

A clone of the agent is run (`agent.clone`) whose model makes each request a call, whose function tools are copies that
make each use one, and whose handoffs lead to clones. Their agent is not changed.
"""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import AsyncIterator, Mapping, Sequence
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
from checkrein.models.messages import ToolCall, as_json
from checkrein.watchers.base import Watching

LEAST: Final = "0.24.0"
FOUND: Final = require("openai-agents", LEAST, "openai-agents", framework="The OpenAI Agents SDK")

import agents as sdk  # noqa: E402 - not before it is known that it is there, and new enough
from agents.function_schema import function_schema  # noqa: E402
from agents.items import TResponseOutputItem  # noqa: E402
from agents.models.fake_id import FAKE_RESPONSES_ID  # noqa: E402
from agents.models.interface import Model, ModelTracing  # noqa: E402
from agents.tool import default_tool_error_function  # noqa: E402
from pydantic import PydanticUserError, TypeAdapter  # noqa: E402
from pydantic_core import to_jsonable_python  # noqa: E402

__all__ = ["OpenAIAgent", "Rules", "interruptible"]

_ITEMS: Final[TypeAdapter[list[Any]]] = TypeAdapter(list[TResponseOutputItem])
_LOCAL: Final = ("ComputerTool", "LocalShellTool", "ShellTool", "ApplyPatchTool", "CustomTool")
"""Tools that are used in this process, and not by a function that could be made a call."""


def interruptible(
    agent: sdk.Agent[Any],
    *,
    name: str | None = None,
    deps: Any = None,
    stop_when: Condition | None = DEFAULT,
    watchers: Sequence[Watching] = (),
    tools: Mapping[str, Rules] | None = None,
    inline: Sequence[str] = (),
) -> OpenAIAgent:
    """`agent` as an agent of Checkrein: pause, redirect, resume, cancel, undo, receipts, replay.

    `deps` is the `context` of its runs: a value, or a function that makes it. `tools` says of a tool, by its name, what
    the SDK cannot: `{"send": Rules(undo=unsend)}`. `inline` names tools whose body is played again instead of being
    recorded as one call. An agent among its tools (`as_tool`) works as a sub-run.
    """
    if not isinstance(agent, sdk.Agent):
        raise MisuseError(
            f"interruptible() of checkrein.adapters.openai_agents takes an agents.Agent, and {agent!r} is none."
        )
    return OpenAIAgent(
        agent, name=name, deps=deps, stop_when=stop_when, watchers=watchers, tools=tools or {}, inline=inline
    )


class OpenAIAgent(AdaptedAgent):
    """An agent of the OpenAI Agents SDK, as a program. `await run.result()` gives a value of its `output_type`."""

    framework: ClassVar[str] = "OpenAI Agents SDK"

    def __init__(
        self,
        agent: sdk.Agent[Any],
        *,
        name: str | None,
        deps: Any,
        stop_when: Condition | None,
        watchers: Sequence[Watching],
        tools: Mapping[str, Rules],
        inline: Sequence[str],
    ) -> None:
        self.agent = agent
        self.inline = frozenset(names_of_tools(inline))
        self.rules = rules = check_rules(tools)
        family = _family(agent)
        for one in family:
            _check_tools(one)
        theirs = {tool.name: tool for one in family for tool in one.tools if isinstance(tool, sdk.FunctionTool)}
        below = {tool_name: tool for tool_name, tool in theirs.items() if _agent_of(tool) is not None}
        known = [_adapted(tool, rules) for tool_name, tool in theirs.items() if tool_name not in below]
        super().__init__(name=name or agent.name, tools=known, deps=deps, stop_when=stop_when, watchers=watchers)
        check_known(self.name, theirs, (*tools, *inline))
        options: dict[str, Any] = {"deps": deps, "stop_when": stop_when, "watchers": watchers}
        self.team = {
            tool_name: interruptible(
                _agent_of(tool), name=f"{self.name}.{tool_name}", tools=_for(_agent_of(tool), rules), **options
            )
            for tool_name, tool in below.items()
        }

    @property
    def model_name(self) -> str:
        return _name_of(_model_of(self.agent))

    async def run_theirs(self, play: Play, goal: str) -> Any:
        config = sdk.RunConfig(tracing_disabled=True)  # a replay would trace again what is not done again
        made = _Clones(self, play).of(self.agent)
        # Caps are Checkrein's: where they trip, a person is asked instead of the run being lost.
        result = await sdk.Runner.run(made, goal, context=self.deps_of_run(), run_config=config, max_turns=None)
        return to_jsonable_python(result.final_output)

    def result_of(self, result: bytes) -> Any:
        expected: Any = self.agent.output_type
        if isinstance(expected, sdk.AgentOutputSchemaBase) or expected is None:
            return json.loads(result)
        try:
            return TypeAdapter(expected).validate_json(result)
        except (PydanticUserError, ValueError):  # the agent that it was handed to gives something else
            return json.loads(result)

    async def asks(self, messages: Sequence[SaidMessage]) -> AsyncIterator[str]:
        request = {"input": list(messages), "model_settings": sdk.ModelSettings(), "tools": [], "handoffs": []}
        rest = {"system_instructions": None, "output_schema": None, "tracing": ModelTracing.DISABLED}
        ids = {"previous_response_id": None, "conversation_id": None, "prompt": None}
        stream: Any = _model_of(self.agent).stream_response(**request, **rest, **ids)  # type: ignore[arg-type]
        async for event in stream:
            if event.type == "response.output_text.delta":
                yield event.delta


# -- the seams


class _Clones:
    """The agents of one playing: each is cloned once, however many handoffs lead to it."""

    def __init__(self, program: OpenAIAgent, play: Play) -> None:
        self._program = program
        self._play = play
        self._made: dict[int, sdk.Agent[Any]] = {}
        self._said = _Said()

    def of(self, agent: sdk.Agent[Any]) -> sdk.Agent[Any]:
        if id(agent) in self._made:
            return self._made[id(agent)]
        model = _ReinedModel(_model_of(agent), self._play, self._said)
        tools = [self._tool(tool) if isinstance(tool, sdk.FunctionTool) else tool for tool in agent.tools]
        made = agent.clone(model=model, model_settings=agent.model_settings, tools=tools, handoffs=[])
        self._made[id(agent)] = made
        made.handoffs = [self._handoff(one) for one in agent.handoffs]
        return made

    def _handoff(self, handoff: Any) -> Any:
        if isinstance(handoff, sdk.Agent):
            return self.of(handoff)
        made, invoke = copy.copy(handoff), handoff.on_invoke_handoff

        async def follow(context: Any, given: str) -> Any:
            return self.of(await invoke(context, given))

        made.on_invoke_handoff = follow
        return made

    def _tool(self, tool: sdk.FunctionTool) -> sdk.FunctionTool:
        """A copy of a tool whose use is a call. Who is asked for an approval is for the call itself to say."""
        if tool.name in self._program.inline:
            return tool
        made = copy.copy(tool)
        made.needs_approval = False
        # An agent behind a `handoff()` is known only when it is reached.
        used = self._program.tools.get(tool.name) or _adapted(tool, self._program.rules)

        async def invoke(context: Any, given: str) -> Any:
            place = f"tool/{context.tool_call_id}"
            if tool.name in self._program.team:
                goal = json.loads(given or "{}").get("input", given)
                return await self._play.ctx.spawn(self._program.team[tool.name], str(goal), place=place)
            assert isinstance(used, AdaptedTool)
            arguments = json.loads(given or "{}")
            asks = tool.needs_approval
            needs = await asks(context, arguments, context.tool_call_id) if callable(asks) else asks

            async def as_theirs() -> Any:
                return to_jsonable_python(await tool.on_invoke_tool(context, given))

            try:
                made = await self._play.tool(used, arguments, as_theirs, place=place, approval=bool(needs))
                return used.as_returned(made)
            except Declined as declined:
                return str(declined)
            except ToolRaised as raised:
                return await _told(tool, context, raised)

        made.on_invoke_tool = invoke
        return made


async def _told(tool: sdk.FunctionTool, context: Any, raised: ToolRaised) -> Any:
    """What the model is told of a tool that failed in a worker process, as the SDK would: by its own function."""
    error = CallFailed(str(raised), error=str(raised))
    tells = getattr(tool, "_failure_error_function", None)
    if tells is None and getattr(tool, "_use_default_failure_error_function", True):
        tells = default_tool_error_function
    if tells is None:
        raise error
    said = tells(context, error)
    return await said if inspect.isawaitable(said) else said


class _Said:
    """What people said in the middle of the run, and where: the SDK has no way to add it to its own history."""

    def __init__(self) -> None:
        self._added: list[tuple[int, list[SaidMessage]]] = []

    def within(self, items: Sequence[Any]) -> list[Any]:
        made = list(items)
        for place, said in reversed(self._added):
            made[place:place] = said
        return made

    def add(self, place: int, said: Sequence[SaidMessage]) -> None:
        if said:
            self._added.append((place, list(said)))


class _ReinedModel(Model):
    """Makes each request a call of the run."""

    def __init__(self, wrapped: Model, play: Play, said: _Said) -> None:
        self._wrapped = wrapped
        self._play = play
        self._said = said

    async def get_response(self, system_instructions: Any, input: Any, *rest: Any, **options: Any) -> sdk.ModelResponse:
        items = [{"role": "user", "content": input}] if isinstance(input, str) else list(input)
        given = self._said.within(items)

        async def source(asked: Asked) -> AsyncIterator[Any]:
            sent: list[Any] = [*given, *asked.messages]
            stream: Any = self._wrapped.stream_response(system_instructions, sent, *rest, **options)
            response = None
            async for event in stream:
                if event.type == "response.output_text.delta":
                    yield event.delta
                elif event.type in ("response.completed", "response.incomplete"):
                    response = event.response
            if response is None:
                raise ConnectionError("the answer broke off")
            yield WholeAnswer(_value(response), _usage(response), _calls(response))

        answer = await self._play.model(
            source,
            name=_name_of(self._wrapped),
            place=self._play.model_place("model"),
            messages=len(given),
            size=self._play.size_of(given) + len(system_instructions or ""),
        )
        self._said.add(len(items), answer.messages)
        return _response(answer.value)

    def stream_response(self, *rest: Any, **options: Any) -> AsyncIterator[Any]:
        raise MisuseError("Runner.run_streamed is not offered: the run is Checkrein's; follow it by its events.")


# -- tools


def _adapted(tool: sdk.FunctionTool, rules: Mapping[str, Rules]) -> AdaptedTool:
    said = rules.get(tool.name, Rules())
    function = getattr(tool, "__wrapped__", None)
    if function is None:
        return AdaptedTool(_unknown, tool.name, said, why_here="only the SDK knows how it is called")
    takes = function_schema(function, strict_json_schema=False).takes_context
    return AdaptedTool(function, tool.name, said, why_here="it takes the context of the run" if takes else "")


async def _unknown(**arguments: Any) -> Any:
    """Stands for a function that nobody here has."""
    raise NotImplementedError


def _agent_of(tool: sdk.FunctionTool) -> Any:
    """The agent behind a tool that `as_tool` made; None for any other. The SDK has no public word for it."""
    return getattr(tool, "_agent_instance", None) if getattr(tool, "_is_agent_tool", False) else None


def _family(agent: sdk.Agent[Any]) -> list[sdk.Agent[Any]]:
    """The agent, and those that it may hand its run over to."""
    found: dict[int, sdk.Agent[Any]] = {}

    def visit(one: Any) -> None:
        if isinstance(one, sdk.Agent) and id(one) not in found:
            found[id(one)] = one
            for other in one.handoffs:
                visit(other)

    visit(agent)
    return list(found.values())


def _for(agent: sdk.Agent[Any], rules: Mapping[str, Rules]) -> dict[str, Rules]:
    names = {tool.name for one in _family(agent) for tool in one.tools}
    return {name: said for name, said in rules.items() if name in names}


def _check_tools(agent: sdk.Agent[Any]) -> None:
    for tool in agent.tools:
        if type(tool).__name__ in _LOCAL:
            raise MisuseError(
                f"Agent {agent.name} has a {type(tool).__name__}, which works beside every call and could not be "
                "stopped; make it a function_tool, or leave it out."
            )
    if agent.mcp_servers:
        raise MisuseError(
            f"Agent {agent.name} has MCP servers, whose tools the SDK calls by itself; leave mcp_servers out, and make "
            "function_tools of those that it needs."
        )


# -- requests and answers


def _model_of(agent: sdk.Agent[Any]) -> Model:
    return agent.model if isinstance(agent.model, Model) else sdk.MultiProvider().get_model(agent.model)


def _name_of(model: Model) -> str:
    name = str(getattr(model, "model", "") or type(model).__name__)
    return name.replace("/", ":") if "/" in name else f"openai:{name}"


def _value(response: Any) -> dict[str, Any]:
    id = None if response.id == FAKE_RESPONSES_ID else response.id
    usage = None if response.usage is None else response.usage.model_dump(mode="json", exclude_none=True)
    output = [item.model_dump(mode="json", exclude_none=True) for item in response.output]
    return {"output": output, "id": id, "usage": usage}


def _response(value: Mapping[str, Any]) -> sdk.ModelResponse:
    said = value["usage"] or {}
    usage = sdk.Usage(
        requests=1,
        input_tokens=said.get("input_tokens", 0),
        output_tokens=said.get("output_tokens", 0),
        total_tokens=said.get("total_tokens", 0),
    )
    return sdk.ModelResponse(output=_ITEMS.validate_python(value["output"]), usage=usage, response_id=value["id"])


def _usage(response: Any) -> Usage | None:
    if response.usage is None:
        return None
    cached = getattr(response.usage.input_tokens_details, "cached_tokens", 0) or 0
    return Usage(
        input_tokens=response.usage.input_tokens, output_tokens=response.usage.output_tokens, cached_tokens=cached
    )


def _calls(response: Any) -> tuple[ToolCall, ...]:
    return tuple(
        ToolCall(item.call_id, item.name, _arguments(item.arguments))
        for item in response.output
        if item.type == "function_call"
    )


def _arguments(text: str) -> Json:
    try:
        return as_json(json.loads(text or "{}"))
    except ValueError:
        return as_json(text)
