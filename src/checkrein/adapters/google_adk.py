"""Google ADK: `interruptible(agent)`. The extra `checkrein[google-adk]` brings it.

One plugin that is given to the runner of a run alone: it answers in place of models (`before_model_callback`) and tools
(`before_tool_callback`), for every agent that works in it, sub-agents and agents as tools included. The callbacks that
their author has put there run where they did. Their agent is not changed.

A request is known by where it stands (the agent tool calls that lead to it, branch and agent, and how often it has
asked), a tool by its call id. Gemini leaves these ids out, and ADK makes them after the answer: so they are put into
what is recorded. What a tool does to the session beside its result (state, a transfer) is recorded with it.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing
from contextvars import ContextVar
from typing import Any, ClassVar, Final

from checkrein.adapters.bridge import (
    AdaptedAgent,
    AdaptedTool,
    Declined,
    Play,
    Rules,
    ToolRaised,
    WrongArguments,
    check_known,
    check_rules,
    names_of_tools,
    require,
)
from checkrein.calls.answer import Asked, SaidMessage, WholeAnswer
from checkrein.core.conditions import DEFAULT, Condition, Usage
from checkrein.errors import CallFailed, MisuseError
from checkrein.models.messages import ToolCall, as_json
from checkrein.watchers.base import Watching

LEAST: Final = "2.13.0"
FOUND: Final = require("google-adk", LEAST, "google-adk", framework="Google ADK")

from google.adk.agents import BaseAgent, LlmAgent, RunConfig  # noqa: E402 - not before it is known that it is there, and new enough
from google.adk.apps import App  # noqa: E402
from google.adk.events import Event, EventActions  # noqa: E402
from google.adk.models import BaseLlm  # noqa: E402
from google.adk.models.llm_request import LlmRequest  # noqa: E402
from google.adk.models.llm_response import LlmResponse  # noqa: E402
from google.adk.plugins import BasePlugin  # noqa: E402
from google.adk.runners import InMemoryRunner  # noqa: E402
from google.adk.tools.agent_tool import AgentTool  # noqa: E402
from google.adk.tools.base_tool import BaseTool  # noqa: E402
from google.adk.tools.function_tool import FunctionTool  # noqa: E402
from google.adk.tools.tool_confirmation import ToolConfirmation  # noqa: E402
from google.genai import types  # noqa: E402
from pydantic import TypeAdapter  # noqa: E402
from pydantic_core import to_jsonable_python  # noqa: E402

__all__ = ["GoogleADKAgent", "Rules", "interruptible"]

USER: Final = "user"
UNLIMITED: Final = 1_000_000_000
"""0 would mean the same to ADK, and be warned of."""
STEERING: Final = ("agent_tool", "_node_tool", "exit_loop_tool", "transfer_to_agent_tool", "set_model_response_tool")
"""Modules of `google.adk.tools` whose tools do nothing but lead the run elsewhere: they are played again."""
CALLED_BY: Final = ("run_async", "_preprocess_args", "_preprocess_args_with_validation", "_invoke_callable")
"""What of a `FunctionTool` stands before its function: a class that has its own may guard it."""
_within: ContextVar[str] = ContextVar("checkrein_google_adk", default="")
"""The calls of agents as tools that lead to what is done now."""


def interruptible(
    agent: BaseAgent,
    *,
    name: str | None = None,
    deps: Any = None,
    stop_when: Condition | None = DEFAULT,
    watchers: Sequence[Watching] = (),
    tools: Mapping[str, Rules] | None = None,
    inline: Sequence[str] = (),
) -> GoogleADKAgent:
    """`agent` as an agent of Checkrein: pause, redirect, resume, cancel, undo, receipts, replay.

    `deps` is the state that the session of a run begins with: a dictionary, or a function that makes it. `tools` says
    of a tool, by its name, what ADK cannot: `{"send": Rules(undo=unsend)}`. `inline` names tools whose body is played
    again instead of being recorded as one call.
    """
    return GoogleADKAgent(
        agent, name=name, deps=deps, stop_when=stop_when, watchers=watchers, tools=tools or {}, inline=inline
    )


class GoogleADKAgent(AdaptedAgent):
    """An agent of Google ADK, as a program. `await run.result()` gives its answer, or one of its `output_schema`."""

    framework: ClassVar[str] = "Google ADK"

    def __init__(
        self,
        agent: BaseAgent,
        *,
        name: str | None,
        deps: Any,
        stop_when: Condition | None,
        watchers: Sequence[Watching],
        tools: Mapping[str, Rules],
        inline: Sequence[str],
    ) -> None:
        if not isinstance(agent, BaseAgent):
            raise MisuseError(
                f"interruptible() of checkrein.adapters.google_adk takes an agent of google.adk.agents, and {agent!r} "
                "is none."
            )
        self.agent = agent
        self.rules = check_rules(tools)
        self.inline = frozenset(names_of_tools(inline))
        known = {tool.name: adapted(tool, tools) for tool in _tools_of(agent)}
        super().__init__(
            name=name or agent.name, tools=list(known.values()), deps=deps, stop_when=stop_when, watchers=watchers
        )
        check_known(self.name, self.tools, (*tools, *inline))

    @property
    def model_name(self) -> str:
        return _name_of(self._model())

    def _model(self) -> BaseLlm:
        found = next((one for one in _family(self.agent) if isinstance(one, LlmAgent)), None)
        if found is None:
            raise MisuseError(f"Agent {self.name} has no agent with a model, so nobody can answer.")
        return found.canonical_model

    async def run_theirs(self, play: Play, goal: str) -> Any:
        app = App(name=f"run_{uuid.uuid4().hex}", root_agent=self.agent, plugins=[_Reins(play)])
        runner = InMemoryRunner(app=app)
        session = await runner.session_service.create_session(
            app_name=app.name, user_id=USER, session_id=play.driver.run, state=self.deps_of_run()
        )
        # Caps are Checkrein's: where they trip, a person is asked instead of the run being lost.
        config = RunConfig(max_llm_calls=UNLIMITED)
        asked = types.Content(role="user", parts=[types.Part(text=goal)])
        events = runner.run_async(user_id=USER, session_id=session.id, new_message=asked, run_config=config)
        said = ""
        try:
            async with aclosing(events):
                async for event in events:
                    if event.error_code and not event.content:
                        raise CallFailed(event.error_message or event.error_code, error=event.error_code)
                    if event.is_final_response() and event.author != USER:
                        said = _text_of(event.content) or said
        except RuntimeError as error:
            # What a plugin raises is wrapped by ADK, in a sentence about plugins.
            raise error.__cause__ if isinstance(error.__cause__, Exception) else error from None
        return said

    def result_of(self, result: bytes) -> Any:
        said = json.loads(result)
        schema = getattr(self.agent, "output_schema", None)
        return TypeAdapter(schema).validate_json(said) if isinstance(schema, type) else said

    def returned(self, tool: str, recorded: Any) -> Any:
        return recorded["result"] if self._is_played_here(tool) and _has_actions(recorded) else recorded

    async def asks(self, messages: Sequence[SaidMessage]) -> AsyncIterator[str]:
        model = self._model()
        request = LlmRequest(model=model.model, contents=[_theirs(one) for one in messages])
        async with aclosing(model.generate_content_async(request, stream=True)) as answers:
            async for answer in answers:
                if answer.partial and (text := _text_of(answer.content)):
                    yield text


# -- the seams


class _Reins(BasePlugin):
    """What is given to the runner of one playing: every request and every tool call of its agents is a call."""

    def __init__(self, play: Play) -> None:
        super().__init__(name="checkrein")
        self.play = play

    @property
    def program(self) -> GoogleADKAgent:
        assert isinstance(self.play.agent, GoogleADKAgent)
        return self.play.agent

    async def before_model_callback(self, *, callback_context: Any, llm_request: LlmRequest) -> LlmResponse | None:
        context = callback_context.get_invocation_context()
        agent: LlmAgent = context.agent
        answered = await _first(agent.canonical_before_model_callbacks, callback_context, llm_request)
        if answered is None:
            answered = await self._answer(await agent.canonical_model_async(callback_context), context, llm_request)
        # ADK leaves these out after an answer that a plugin has given.
        answered = await _first(agent.canonical_after_model_callbacks, callback_context, answered) or answered
        # Callbacks may have made calls of their own, whose ids are to be the same when they are played again.
        place = self.play.model_place(f"ids:{_within.get()}/{context.branch or ''}/{agent.name}")
        for n, part in enumerate(_parts(answered.content)):
            if part.function_call and not part.function_call.id:
                part.function_call.id = f"adk-{uuid.uuid5(uuid.NAMESPACE_OID, f'{place}/{n}')}"
        return answered

    async def _answer(self, model: BaseLlm, context: Any, request: LlmRequest) -> LlmResponse:
        async def source(asked: Asked) -> AsyncIterator[Any]:
            contents = [*request.contents, *(_theirs(one) for one in asked.messages)]
            # They change what they are given.
            sent = request.model_copy(update={"contents": contents, "config": request.config.model_copy(deep=True)})
            last: LlmResponse | None = None
            async with aclosing(model.generate_content_async(sent, stream=True)) as answers:
                async for answer in answers:
                    if not answer.partial:
                        last = _joined(last, answer)
                    elif text := _text_of(answer.content):
                        yield text
            if last is None:
                raise ConnectionError("the answer broke off")
            calls = [_with_id(part.function_call) for part in _parts(last.content) if part.function_call]
            value = last.model_dump(mode="json", exclude_none=True, by_alias=True)
            yield WholeAnswer(value, _usage(last), tuple(calls))

        answer = await self.play.model(
            source,
            name=_name_of(model),
            place=self.play.model_place(f"model:{_within.get()}/{context.branch or ''}/{context.agent.name}"),
            messages=len(request.contents),
            size=sum(len(one.model_dump_json(exclude_none=True)) for one in request.contents),
        )
        # What a person said meanwhile belongs into the session, before the answer.
        for one in answer.messages:
            author = USER if one["role"] == "user" else context.agent.name
            told = Event(
                invocation_id=context.invocation_id, author=author, branch=context.branch, content=_theirs(one)
            )
            await context.session_service.append_event(context.session, told)
        return LlmResponse.model_validate(answer.value)

    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: Any
    ) -> dict[str, Any] | None:
        place = f"{_within.get()}/{tool_context.function_call_id}"
        if tool.name in self.program.inline or _is_steering(tool):
            _within.set(place)  # ADK goes on in this task, which is the call's own
            return None
        agent = tool_context.get_invocation_context().agent
        for callback in agent.canonical_before_tool_callbacks:
            answered = callback(tool=tool, args=tool_args, tool_context=tool_context)
            answered = await answered if inspect.isawaitable(answered) else answered
            if answered is not None:
                return answered  # type: ignore[no-any-return]
        try:
            return await self._use(tool, tool_args, tool_context, f"tool:{place}")
        except Declined as declined:
            return {"error": str(declined)}
        except WrongArguments as wrong:
            return {"error": f"Invoking `{tool.name}()` failed: {wrong}"}  # as ADK says it
        except ToolRaised as raised:
            return await _told(agent, tool, tool_args, tool_context, raised)

    async def _use(self, tool: BaseTool, given: dict[str, Any], context: Any, place: str) -> dict[str, Any]:
        known = self.program.tools.get(tool.name)
        used = known if isinstance(known, AdaptedTool) else adapted(tool, self.program.rules)
        needs = await tool.check_require_confirmation(given, context)
        if needs:
            context.tool_confirmation = ToolConfirmation(confirmed=True)  # the call itself asks a person, before it

        async def invoke() -> Any:
            result = to_jsonable_python(await _run(tool, given, context))
            return {"result": result, "actions": context.actions.model_dump(mode="json", exclude_defaults=True)}

        said = await self.play.tool(used, given, invoke, place=place, approval=needs is True)
        if used.goes_to_worker or not _has_actions(said):
            return _response(tool, said)  # also: interrupted, or what a person says that it came to
        _apply(EventActions.model_validate(said["actions"]), context)
        return _response(tool, said["result"])


async def _first(callbacks: Sequence[Any], context: Any, given: Any) -> LlmResponse | None:
    """What the first of their callbacks says that says something."""
    for callback in callbacks:
        named = "llm_response" if isinstance(given, LlmResponse) else "llm_request"
        answered = callback(callback_context=context, **{named: given})
        answered = await answered if inspect.isawaitable(answered) else answered
        if answered:
            return answered  # type: ignore[no-any-return]
    return None


async def _told(agent: Any, tool: BaseTool, given: dict[str, Any], context: Any, raised: ToolRaised) -> dict[str, Any]:
    """What their callbacks make of a failure. Raises it where they make nothing of it, as ADK does."""
    error = CallFailed(str(raised), error=str(raised))
    for callback in agent.canonical_on_tool_error_callbacks:
        answered = callback(tool=tool, args=given, tool_context=context, error=error)
        answered = await answered if inspect.isawaitable(answered) else answered
        if answered is not None:
            return answered  # type: ignore[no-any-return]
    raise error from raised


# -- tools


def adapted(tool: BaseTool, rules: Mapping[str, Rules]) -> AdaptedTool:
    said = rules.get(tool.name, Rules())
    if not isinstance(tool, FunctionTool):
        return AdaptedTool(tool.run_async, tool.name, said, why_here="only its class knows how it is called")
    takes = sorted(_context_parameters(tool))
    if any(getattr(type(tool), one, None) is not getattr(FunctionTool, one, None) for one in CALLED_BY):
        return AdaptedTool(
            tool.func, tool.name, said, why_here=f"{type(tool).__name__} has a way of its own to call it"
        )
    why = f"it takes {', '.join(takes)} of the framework" if takes else ""
    return AdaptedTool(tool.func, tool.name, said, why_here=why)


def _context_parameters(tool: FunctionTool) -> set[str]:
    declared = tool._get_declaration()
    shown: set[str] = set()
    if declared is not None:
        schema = declared.parameters_json_schema or {}
        shown = set(schema.get("properties", ()) if isinstance(schema, dict) else ())
        shown |= set((declared.parameters.properties if declared.parameters else None) or ())
    return set(inspect.signature(tool.func).parameters) - shown


async def _run(tool: BaseTool, given: dict[str, Any], context: Any) -> Any:
    """Use a tool as ADK does. A function that blocks does so in a thread: ADK would hold the whole event loop."""
    function = getattr(tool, "func", None)
    if function is None or inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        return await tool.run_async(args=given, tool_context=context)
    return await asyncio.to_thread(lambda: asyncio.run(tool.run_async(args=given, tool_context=context)))


def _is_steering(tool: BaseTool) -> bool:
    function = getattr(tool, "func", None)
    module = type(tool).__module__ if function is None else function.__module__
    package, _, last = module.rpartition(".")
    return (package == "google.adk.tools" and last in STEERING) or package.startswith("google.adk.agents")


def _response(tool: BaseTool, result: Any) -> dict[str, Any]:
    """Never None, by which ADK would use the tool itself."""
    if isinstance(result, dict):
        return result
    return {} if tool.is_long_running and not result else {"result": result}


def _has_actions(recorded: Any) -> bool:
    """Whether this is what a tool has returned together with what it did to the session."""
    return isinstance(recorded, dict) and recorded.keys() == {"result", "actions"}


def _apply(actions: EventActions, context: Any) -> None:
    """What a tool has done to the session: done again where the tool itself is not."""
    for key, value in actions.state_delta.items():
        context.state[key] = value
    for field in actions.model_fields_set - {"state_delta"}:
        setattr(context.actions, field, getattr(actions, field))


def _family(agent: BaseAgent) -> Iterator[BaseAgent]:
    """The agent, those below it, and those that they have as tools."""
    yield agent
    for below in agent.sub_agents:
        yield from _family(below)
    for tool in getattr(agent, "tools", ()):
        if isinstance(tool, AgentTool):
            yield from _family(tool.agent)


def _tools_of(agent: BaseAgent) -> list[BaseTool]:
    """Those that are known before a run: what a toolset has is known when it is asked."""
    found: list[BaseTool] = []
    for one in _family(agent):
        for tool in getattr(one, "tools", ()):
            if isinstance(tool, AgentTool) and not tool.include_plugins:
                raise MisuseError(
                    f"Agent {one.name} has {tool.name} as a tool that shuts plugins out, so nothing in it could be "
                    "stopped: leave include_plugins=False out."
                )
            if isinstance(tool, BaseTool):
                found.append(tool)
            elif callable(tool):
                found.append(FunctionTool(tool))
    return [tool for tool in found if not _is_steering(tool) or isinstance(tool, AgentTool)]


# -- requests and answers


def _name_of(model: BaseLlm) -> str:
    provider = {"Gemini": "google", "Claude": "anthropic", "AnthropicLlm": "anthropic"}.get(type(model).__name__)
    named = model.model.rpartition("/")[2]
    return f"{provider or type(model).__name__.lower()}:{named}"


def _theirs(said: SaidMessage) -> types.Content:
    role = "model" if said["role"] == "assistant" else "user"
    return types.Content(role=role, parts=[types.Part(text=said["content"])])


def _parts(content: types.Content | None) -> list[types.Part]:
    return list((content.parts if content is not None else None) or ())


def _text_of(content: types.Content | None) -> str:
    return "".join(part.text for part in _parts(content) if part.text and not part.thought)


def _joined(before: LlmResponse | None, after: LlmResponse) -> LlmResponse:
    """One answer of several that are no fragments: some models give text and calls after one another."""
    parts = [*_parts(before.content if before is not None else None), *_parts(after.content)]
    content = types.Content(role="model", parts=parts) if parts else None
    return after.model_copy(update={"content": content, "partial": None})


def _with_id(call: types.FunctionCall) -> ToolCall:
    """A call of a tool, with the id that the model has left out; ADK takes out what begins so before it sends it."""
    call.id = call.id or f"adk-{uuid.uuid4()}"
    return ToolCall(call.id, call.name or "", as_json(call.args or {}))


def _usage(answer: LlmResponse) -> Usage | None:
    used = answer.usage_metadata
    if used is None:
        return None
    return Usage(
        input_tokens=used.prompt_token_count or 0,
        output_tokens=(used.candidates_token_count or 0) + (used.thoughts_token_count or 0),
        cached_tokens=used.cached_content_token_count or 0,
    )
