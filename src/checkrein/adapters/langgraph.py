"""LangGraph and LangChain: `interruptible(graph)`. The extra `checkrein[langgraph]` brings them.

A compiled graph closes over its model, so the seam is where it is built: `create_agent(…, middleware=[Reins()])`, or
`reined(model)` and `reined(tool)` in a graph of one's own. Outside a run of Checkrein they do nothing.

A run plays the graph from its beginning, on a checkpointer in memory, whichever it was compiled with: the journal is
what survives. A request is known by where it stands (step, node and path of the graph, and how often it has asked from
there), a tool by its call id: the ids of checkpoints, tasks and messages are random. Their graph is not changed.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any, ClassVar, Final, overload
from weakref import WeakKeyDictionary

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
from checkrein.agents.questions import Answer
from checkrein.calls.answer import Asked, SaidMessage
from checkrein.core.conditions import DEFAULT, Condition
from checkrein.errors import CallFailed, MisuseError
from checkrein.watchers.base import Watching

LEAST: Final = "1.4.7"
FOUND: Final = require("langchain", LEAST, "langgraph", framework="LangChain")

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse  # noqa: E402 - once it is known that it is there
from langchain_core.language_models import BaseChatModel  # noqa: E402
from langchain_core.messages import (  # noqa: E402
    BaseMessage,
    HumanMessage,
    ToolMessage,
    message_to_dict,
    messages_from_dict,
)
from langchain_core.outputs import ChatGeneration, ChatResult  # noqa: E402
from langchain_core.tools import BaseTool  # noqa: E402
from langchain_core.tools import tool as as_tool  # noqa: E402
from langgraph.checkpoint.memory import InMemorySaver  # noqa: E402
from langgraph.config import get_config  # noqa: E402
from langgraph.pregel import Pregel  # noqa: E402
from langgraph.types import Command  # noqa: E402
from pydantic import TypeAdapter  # noqa: E402

from checkrein.adapters.langchain_values import (  # noqa: E402
    Tokens,
    adapted,
    heard,
    is_message,
    name_of,
    result_of_state,
    returned_of,
    text_of,
    theirs_of,
)

__all__ = ["LangGraphAgent", "Reins", "Rules", "interruptible", "reined"]

NAMELESS: Final = "LangGraph"
"""How a graph is called that nobody has named."""
_playing: ContextVar[Play | None] = ContextVar("checkrein_langgraph", default=None)
_told: WeakKeyDictionary[Play, dict[str | None, list[BaseMessage]]] = WeakKeyDictionary()
"""What people said before an answer of a reined model, by its id: such a model cannot write to the state of a graph."""


def interruptible(
    graph: Any,
    *,
    name: str | None = None,
    deps: Any = None,
    stop_when: Condition | None = DEFAULT,
    watchers: Sequence[Watching] = (),
    tools: Mapping[str, Rules] | None = None,
    inline: Sequence[str] = (),
    output: type[Any] | None = None,
) -> LangGraphAgent:
    """A compiled graph as an agent of Checkrein: pause, redirect, resume, cancel, undo, receipts, replay.

    `deps` is the `context` of its runs: a value, or a function that makes it. `tools` says of a tool, by its name, what
    LangChain cannot: `{"send": Rules(undo=unsend)}`. `inline` names tools whose body is played again instead of being
    recorded as one call: those that run another graph. `output` is the type of its `structured_response`.
    """
    return LangGraphAgent(
        graph,
        name=name,
        deps=deps,
        stop_when=stop_when,
        watchers=watchers,
        tools=tools or {},
        inline=inline,
        output=output,
    )


class LangGraphAgent(AdaptedAgent):
    """A compiled graph, as a program. `await run.result()` gives its last answer, or a value of `output`."""

    framework: ClassVar[str] = "LangGraph"

    def __init__(
        self,
        graph: Any,
        *,
        name: str | None,
        deps: Any,
        stop_when: Condition | None,
        watchers: Sequence[Watching],
        tools: Mapping[str, Rules],
        inline: Sequence[str],
        output: type[Any] | None,
    ) -> None:
        if not isinstance(graph, Pregel):
            raise MisuseError(
                f"interruptible() of checkrein.adapters.langgraph takes a compiled graph, and {graph!r} is none."
            )
        _check_reins(graph)
        self.graph = graph
        self.rules = check_rules(tools)
        self.inline = frozenset(names_of_tools(inline))
        self.output = output
        self.asked: BaseChatModel | None = None
        """The one that was asked last. A compiled graph does not show it before it is asked."""
        known = [adapted(tool, tools) for tool in _tools_of(graph)]
        named = name or (None if graph.name == NAMELESS else graph.name)
        super().__init__(name=named, tools=known, deps=deps, stop_when=stop_when, watchers=watchers)
        check_known(self.name, self.tools, (*tools, *inline))

    @property
    def model_name(self) -> str:
        return name_of(self._asked_model())

    def _asked_model(self) -> BaseChatModel:
        if self.asked is None:
            raise MisuseError(f"Agent {self.name} has asked no model yet, so nobody can answer; ask a little later.")
        return self.asked

    async def run_theirs(self, play: Play, goal: str) -> Any:
        # What a graph fills in as it runs is filled in there: theirs stays as it is.
        nodes = {name: node.copy({}) for name, node in self.graph.nodes.items()}
        own = {"checkpointer": InMemorySaver(), "nodes": nodes, "channels": dict(self.graph.channels)}
        graph = self.graph.copy(own)
        config: Any = {"configurable": {"thread_id": play.driver.run}}
        given: Any = {"messages": [HumanMessage(goal)]}
        token = _playing.set(play)
        try:
            while True:
                state = await graph.ainvoke(given, config, context=self.deps_of_run())
                if not state.get("__interrupt__"):
                    return result_of_state(state)
                # Their interrupt is a question to a person, and the answer is what the run is resumed with. Asked in
                # the order of the tasks, which is the same again; the state has them in that of their arrival.
                tasks = (await graph.aget_state(config)).tasks
                asked = {one.id: text_of(one.value) for task in tasks for one in task.interrupts}
                given = Command(resume={id: await play.ctx.ask_person(question) for id, question in asked.items()})
        finally:
            _playing.reset(token)

    def result_of(self, result: bytes) -> Any:
        return json.loads(result) if self.output is None else TypeAdapter(self.output).validate_json(result)

    def returned(self, tool: str, recorded: Any) -> Any:
        if not self._is_played_here(tool) or not is_message(recorded):
            return recorded
        known = self.tools.get(tool)
        return returned_of(recorded["data"], None if known is None else known.function)

    async def asks(self, messages: Sequence[SaidMessage]) -> AsyncIterator[str]:
        async for piece in self._asked_model().astream(theirs_of(messages)):
            if text := str(piece.text):
                yield text


# -- the seam


class Reins(AgentMiddleware):
    """Middleware for `create_agent`: in a run of Checkrein its model and its tools are calls of that run."""

    def before_agent(self, state: Any, runtime: Any) -> None:
        """Does nothing. By its node it is seen that a compiled graph has reins."""

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        return handler(request)

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        return handler(request)

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        play = _playing.get()
        if play is None or isinstance(request.model, _ReinedModel):
            return await handler(request)
        return await _answered(play, request, handler)

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        play = _playing.get()
        if play is None or request.tool is None or request.tool_call["name"] in _agent_of(play).inline:
            return await handler(request)
        if isinstance(request.tool, _ReinedTool):
            return await handler(request)
        return await _used(play, request, handler)


async def _answered(play: Play, request: ModelRequest, handler: Callable[[Any], Awaitable[Any]]) -> ModelResponse:
    """A model request of theirs as a call: what a person said meanwhile goes into the graph's state, before it."""

    async def ask(model: BaseChatModel, messages: list[BaseMessage]) -> Any:
        return await handler(request.override(model=model, messages=messages))  # type: ignore[arg-type]

    answer = await _asked(play, request.model, request.messages, ask)
    schema, structured = getattr(request.response_format, "schema", None), answer.value["structured"]
    if structured is not None and isinstance(schema, type):
        structured = TypeAdapter(schema).validate_python(structured)
    said = [*theirs_of(answer.messages), *messages_from_dict(answer.value["messages"])]
    return ModelResponse(result=said, structured_response=structured)


async def _asked(
    play: Play,
    model: BaseChatModel,
    messages: Sequence[BaseMessage],
    ask: Callable[[BaseChatModel, list[BaseMessage]], Coroutine[Any, Any, Any]],
) -> Answer:
    _agent_of(play).asked = model

    async def source(asked: Asked) -> AsyncIterator[Any]:
        tokens = Tokens()
        reading = tokens.read(ask(heard(model, tokens), [*messages, *theirs_of(asked.messages)]))
        async with aclosing(reading):
            async for item in reading:
                yield item

    size = sum(len(str(message.content)) for message in messages)
    place = play.model_place(_place("model"))
    return await play.model(source, name=name_of(model), place=place, messages=len(messages), size=size)


async def _used(play: Play, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
    """A tool call of theirs as a call: in a worker process where it can be, else as the framework makes it."""
    call, agent = request.tool_call, _agent_of(play)
    known = agent.tools.get(call["name"])
    used = known if isinstance(known, AdaptedTool) else adapted(request.tool, agent.rules)

    async def invoke() -> Any:
        made = await handler(request)
        if not isinstance(made, ToolMessage):
            kind = type(made).__name__
            raise MisuseError(f'{used.name} gives a {kind}, which no record can hold: write inline=["{used.name}"].')
        return message_to_dict(made)

    def told(content: str, status: Any = "success") -> ToolMessage:
        return ToolMessage(content=content, name=call["name"], tool_call_id=call["id"], status=status)

    try:
        said = await play.tool(used, call["args"], invoke, place=f"tool/{call['id']}")
    except Declined as declined:
        return told(str(declined), "error")
    except WrongArguments as wrong:
        # As LangGraph says it.
        return told(
            f"Error invoking tool '{used.name}' with error:\n {wrong}\n Please fix the error and try again.", "error"
        )
    except ToolRaised as raised:
        raise CallFailed(str(raised), error=str(raised)) from raised
    if not used.goes_to_worker and is_message(said):
        return messages_from_dict([said])[0]
    return told(said if isinstance(said, str) else text_of(said))


def _agent_of(play: Play) -> LangGraphAgent:
    assert isinstance(play.agent, LangGraphAgent)
    return play.agent


def _place(what: str) -> str:
    """Where the graph stands. Task ids are random; the names of nodes before them tell subgraphs apart."""
    told = get_config().get("metadata") or {}
    above = "|".join(part.partition(":")[0] for part in str(told.get("langgraph_checkpoint_ns", "")).split("|"))
    step, node, path = (told.get(f"langgraph_{name}") for name in ("step", "node", "path"))
    return f"{what}:{above}/{step}/{node}/{path}"


# -- graphs of one's own


@overload
def reined(theirs: BaseChatModel) -> BaseChatModel: ...
@overload
def reined(theirs: BaseTool | Callable[..., Any]) -> BaseTool: ...
def reined(theirs: Any) -> Any:
    """A model or a tool for the nodes of a graph of one's own: in a run of Checkrein its work are calls of that run.

    The nodes are `async def` and await it. Everywhere else it is what it was; `theirs` is not changed.
    """
    if isinstance(theirs, BaseChatModel):
        return _ReinedModel(theirs=theirs)
    if inspect.isfunction(theirs):
        theirs = as_tool(theirs)
    if not isinstance(theirs, BaseTool):
        raise MisuseError(f"reined() takes a chat model or a tool, and {theirs!r} is neither.")
    said = {field: getattr(theirs, field) for field in BaseTool.model_fields}
    return _ReinedTool(**said | {"args_schema": theirs.args_schema or theirs.get_input_schema(), "theirs": theirs})


class _ReinedModel(BaseChatModel):
    theirs: BaseChatModel

    @property
    def _llm_type(self) -> str:
        return self.theirs._llm_type

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        bound: Any = self.theirs.bind_tools(tools, **options)
        return self.bind(**bound.kwargs)

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **options: Any) -> Any:
        _refuse_to_block("model")
        return self.theirs._generate(messages, stop, run_manager, **options)

    async def _agenerate(self, messages: Any, stop: Any = None, run_manager: Any = None, **options: Any) -> Any:
        play = _playing.get()
        if play is None:
            return await self.theirs._agenerate(messages, stop, run_manager, **options)
        told = _told.setdefault(play, {})
        given = [each for one in messages for each in (*told.get(one.id, ()), one)]
        answer = await _asked(play, self.theirs, given, lambda model, all: model.ainvoke(all, stop=stop, **options))
        (said,) = messages_from_dict(answer.value["messages"])
        told[said.id] = theirs_of(answer.messages)
        return ChatResult(generations=[ChatGeneration(message=said)])


class _ReinedTool(BaseTool):
    theirs: BaseTool

    def _run(self, *given: Any, **options: Any) -> Any:
        _refuse_to_block("tool")
        return self.theirs._run(*given, **options)

    def invoke(self, input: Any, config: Any = None, **options: Any) -> Any:
        _refuse_to_block("tool")
        return self.theirs.invoke(input, config, **options)

    async def ainvoke(self, input: Any, config: Any = None, **options: Any) -> Any:
        play = _playing.get()
        if play is None or self.name in _agent_of(play).inline:
            return await self.theirs.ainvoke(input, config, **options)
        called = isinstance(input, dict) and input.get("type") == "tool_call"
        given = input["args"] if called else input if isinstance(input, dict) else {next(iter(self.args)): input}
        # What the framework has put in is not the model's, and no record could hold it.
        args = {name: value for name, value in given.items() if name in self.theirs.tool_call_schema.model_fields}  # type: ignore[union-attr]
        id = input["id"] if called else play.model_place(_place("tool"))
        call = {"name": self.name, "args": args, "id": id, "type": "tool_call"}

        async def invoke(_: Any) -> Any:
            return await self.theirs.ainvoke({**call, "args": given}, config, **options)

        said = await _used(play, SimpleNamespace(tool_call=call, tool=self.theirs), invoke)
        return said if called else said.content


def _refuse_to_block(what: str) -> None:
    if _playing.get() is not None:
        raise MisuseError(f"A node waits for a reined {what} in a thread: write async def and await {what}.ainvoke(…).")


def _used_by(graph: Any) -> list[Any]:
    """The models and tools that the nodes of a graph name."""
    used: list[Any] = []
    for node in graph.nodes.values():
        if isinstance(node.bound, Pregel):
            used += _used_by(node.bound)
        used += getattr(node.bound, "tools_by_name", {}).values()
        for function in (getattr(node.bound, "func", None), getattr(node.bound, "afunc", None)):
            if inspect.isfunction(function):
                named = inspect.getclosurevars(function)
                used += [getattr(one, "bound", one) for one in (*named.globals.values(), *named.nonlocals.values())]
    return [one for one in used if isinstance(one, BaseChatModel | BaseTool)]


def _check_reins(graph: Any) -> None:
    if any(one.endswith("Reins.before_agent") for one in graph.nodes):
        return
    used = _used_by(graph)
    if used and all(isinstance(one, _ReinedModel | _ReinedTool) for one in used):
        return
    raise MisuseError(
        "This graph has no reins, so nothing in it could be stopped: build it with create_agent(…, "
        "middleware=[Reins()]), or give its nodes reined(model) and reined(tool)."
    )


def _tools_of(graph: Any) -> list[BaseTool]:
    """The tools of every node that has some."""
    tools = [tool for node in graph.nodes.values() for tool in getattr(node.bound, "tools_by_name", {}).values()]
    tools += [one for one in _used_by(graph) if isinstance(one, _ReinedTool)]
    return [getattr(tool, "theirs", tool) for tool in {tool.name: tool for tool in tools}.values()]
