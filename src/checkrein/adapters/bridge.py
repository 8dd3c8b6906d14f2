"""What all adapters share: their agent as a program of ours, and each of its model requests and tool calls as a call.

An adapter brings the seams of its framework and nothing else. Rules for all of them: calls are matched by place, never
by content; a tool that takes nothing of the framework goes to a worker process, where it can be killed; what a person
has interrupted or declined is told to their model as the result of the tool; what a tool raises is raised again where
it was raised, by the framework's own error where it has one.
"""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, ClassVar, Final

import msgspec
from pydantic import ValidationError

from checkrein.agents.context import Context
from checkrein.agents.history import Conversation
from checkrein.agents.loop import NOT_PERMITTED
from checkrein.agents.program import ProgramAgent
from checkrein.agents.questions import Answer
from checkrein.agents.tool import Tool
from checkrein.agents.tool_calls import begin, refused_call, spec_of, tool_call
from checkrein.calls import arguments as values
from checkrein.calls.answer import Asked, SaidMessage, SourceModel, WholeAnswer, assistant, user
from checkrein.calls.base import (
    ApprovalRule,
    CallRequest,
    CallResult,
    EffectKind,
    Execution,
    Isolation,
    Perform,
    Permit,
    UndoneCall,
)
from checkrein.calls.imports import in_worker, target_of
from checkrein.calls.model import ModelExecution
from checkrein.core.conditions import DEFAULT, Condition
from checkrein.core.effects import Effect
from checkrein.core.enums import OnPause, Outcome
from checkrein.driver.program_api import ProgramApi, ToolWarning
from checkrein.errors import CallFailed, Interrupted, MisuseError, NotImportable
from checkrein.models.history import SENTENCES, Fate, repair
from checkrein.models.messages import Assistant, Message, Request, ToolResult, User
from checkrein.watchers.base import Watching

DECLINED: Final = "A person declined this."
"""How the error of a call begins that a person has denied."""


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What a framework cannot say of its tool; each means what it means with `@tool`."""

    undo: Callable[..., Any] | None = None
    idempotent: bool = False
    effect: EffectKind = "unknown"
    on_pause: OnPause | str = OnPause.FINISH
    isolation: Isolation = "process"
    approval: ApprovalRule | bool | None = None
    timeout: float | None = None
    verify: Callable[..., Any] | None = None
    changes: str = ""


class AdaptedTool(Tool):
    """A tool of a framework. `why_here` is why a plain function cannot go to a worker process; empty when it can."""

    def __init__(self, function: Callable[..., Any], name: str, rules: Rules, *, why_here: str = "") -> None:
        said = {field: getattr(rules, field) for field in rules.__struct_fields__}
        super().__init__(function, name=name, **said)
        self.why_here = why_here
        if not why_here and not self.is_async and self.isolation == "process" and not in_worker():
            try:
                target_of(function)
            except NotImportable as error:
                self.why_here = f"a worker process could not import it: {error.reason}"

    @property
    def goes_to_worker(self) -> bool:
        return not self.is_async and self.isolation == "process" and not self.why_here

    def as_returned(self, recorded: Any) -> Any:
        """What it returned, made of what is recorded: a value of the type that its function says it returns."""
        return values.typed(self.function, {"return": recorded})["return"]

    def check_importable(self) -> None:
        """What cannot be imported runs where its framework runs it, and `doctor` says so."""

    def check_signature(self) -> None:
        """Its framework has read it."""

    def check_defaults(self) -> None:
        """As above: what is recorded are the arguments that the model gave."""

    def warnings(self) -> Any:
        for said in super().warnings():
            where = f'interruptible(agent, tools={{"{self.name}": Rules(…)}})'
            yield ToolWarning(said.what, f"{said.why} Say it in {where}.")
        if self.why_here and not self.is_async:
            yield ToolWarning(
                "runs in a thread of this process and may not be stoppable",
                f"It cannot go to a worker process: {self.why_here}. A thread cannot be killed: after a stop it may go "
                "on until it looks up, and what it did is then in doubt.",
            )


class Declined(Exception):
    """A person did not want a tool to be used; what it says is for the model."""


class ToolRaised(Exception):
    """A tool has raised `kind`, and said `says`."""

    def __init__(self, recorded: str) -> None:
        super().__init__(recorded)
        self.kind, _, self.says = recorded.partition(": ")


class WrongArguments(ToolRaised):
    """A model has given a tool other arguments than it takes; what it says is for the model."""


class Play:
    """One playing of their agent: what its seams ask for, as calls of the run."""

    def __init__(self, agent: AdaptedAgent, ctx: Context, driver: ProgramApi) -> None:
        self.agent = agent
        self.ctx = ctx
        self.driver = driver
        self._asked: dict[str, int] = {}
        self._sizes: dict[int, tuple[Any, int]] = {}
        """Of each message of the last request, by its identity, how much text is in it."""

    def size_of(self, messages: Sequence[Any]) -> int:
        """How much text there is to read. Most of it was measured with the request before."""
        known = self._sizes
        self._sizes = {id(one): known.get(id(one)) or (one, text_size(one)) for one in messages}
        return sum(size for _, size in self._sizes.values())

    def model_place(self, within: str) -> str:
        """Where the next model request of a part of their run stands: the part, and how often it has asked."""
        self._asked[within] = self._asked.get(within, 0) + 1
        return f"{within}:{self._asked[within]}"

    async def model(
        self,
        source: Callable[[Asked], AsyncIterator[Any]],
        *,
        name: str,
        place: str,
        messages: int,
        size: int,
    ) -> Answer:
        """A model request of theirs. `messages` are how many it has, `size` is how much text there is to read."""
        asked = {"messages": messages, "tokens": -(-size // 4)}
        return await self.ctx.answer(source, name=name, place=place, asked=asked)

    async def tool(
        self,
        tool: AdaptedTool,
        given: Mapping[str, Any],
        invoke: Callable[[], Awaitable[Any]],
        *,
        place: str,
        approval: bool = False,
    ) -> Any:
        """A tool call of theirs, in a worker process or, by `invoke`, as the framework makes it.

        Raises `Declined`, `WrongArguments`, and `ToolRaised` for whatever it raised. An interrupted one returns what is
        to be said of it.
        """
        recorded = values.encode_result(self.tool, given)
        raises: type[ToolRaised] = ToolRaised
        try:
            spec = (
                self._in_worker(tool, recorded, place)
                if tool.goes_to_worker
                else self._here(tool, recorded, invoke, place)
            )
        except ValidationError as error:
            raises, spec = WrongArguments, refused_call(tool.name, recorded, str(error), place=place)
        if approval and spec.approval is None and raises is ToolRaised:
            spec = msgspec.structs.replace(spec, approval="block")
        try:
            value = (await self.driver.call(spec)).value
        except Interrupted:
            return SENTENCES[Fate.INTERRUPTED]
        except CallFailed as failed:
            if failed.error == "cap_reached":
                return NOT_PERMITTED
            if failed.error.startswith(DECLINED):
                raise Declined(failed.error) from failed
            raise raises(failed.error or failed.message) from failed
        return None if value is None else msgspec.json.decode(value)

    def _in_worker(self, tool: AdaptedTool, given: bytes, place: str) -> CallRequest:
        return tool_call(self.driver, tool, given, place=place, deps=None)

    def _here(self, tool: AdaptedTool, given: bytes, invoke: Callable[[], Awaitable[Any]], place: str) -> CallRequest:
        async def work() -> Any:
            return await invoke()

        work.__qualname__ = tool.name

        def perform(permit: Permit) -> Execution:
            return begin(self.driver, permit, work, b"{}")

        # Other arguments than the model asked for could not be given to what the framework is about to call.
        spec = spec_of(tool, perform, given, check=_no_others, has_schema=False, place=place)
        return spec


def _no_others(edited: bytes) -> None:
    raise ValueError(
        "this tool is called by its framework, which has its arguments already; deny it and say why instead"
    )


class AdaptedAgent(ProgramAgent[Any]):
    """An agent of a framework, as a program."""

    framework: ClassVar[str]
    """Its name, for sentences."""

    def __init__(
        self,
        *,
        name: str | None,
        tools: Sequence[AdaptedTool],
        deps: Any = None,
        stop_when: Condition | None = DEFAULT,
        watchers: Sequence[Watching] = (),
    ) -> None:
        if not isinstance(name, str) or not name.strip():
            raise MisuseError(f'This {self.framework} agent has no name: write interruptible(agent, name="support").')
        super().__init__(self._play, name=name, tools=tools, stop_when=stop_when, watchers=watchers)
        self.their_deps = deps
        self.description = ""

    def __repr__(self) -> str:
        return f"<{self.framework} agent {self.name}>"

    @abstractmethod
    async def run_theirs(self, play: Play, goal: str) -> Any:
        """Run their agent to its end, and return its result as JSON can hold it."""

    @abstractmethod
    def asks(self, messages: Sequence[SaidMessage]) -> AsyncIterator[str]:
        """Put messages to their model, without tools, and yield its answer."""

    @property
    @abstractmethod
    def model_name(self) -> str:
        """Who is asked, as `provider:model`."""

    async def _play(self, ctx: Context, goal: str) -> Any:
        return await self.run_theirs(Play(self, ctx, ctx._driver), goal)

    def returned(self, tool: str, recorded: Any) -> Any:
        """What a tool has returned, of what is recorded of a call of it: some record more, to play it again."""
        return recorded

    def undo(self, effect: Effect, call: UndoneCall, driver: ProgramApi) -> Execution:
        return super().undo(effect, self._as_returned(call), driver)

    def check(self, call: UndoneCall, driver: ProgramApi) -> Execution | None:
        return super().check(self._as_returned(call), driver)

    def _as_returned(self, call: UndoneCall) -> UndoneCall:
        if call.result is None:
            return call
        returned = self.returned(call.name, msgspec.json.decode(call.result))
        return msgspec.structs.replace(call, result=msgspec.json.encode(returned))

    def _is_played_here(self, tool: str) -> bool:
        """Whether a tool is used by its framework. One of a toolset may not be known."""
        known = self.tools.get(tool)
        return not (isinstance(known, AdaptedTool) and known.goes_to_worker)

    def deps_of_run(self) -> Any:
        return self.their_deps() if inspect.isroutine(self.their_deps) else self.their_deps

    def answer(self, question: str, driver: ProgramApi) -> Perform:
        async def source(messages: Sequence[SaidMessage]) -> AsyncIterator[Any]:
            text = ""
            async for piece in self.asks(messages):
                text += piece
                yield piece
            yield WholeAnswer(text)

        return lambda permit: _SideAnswer(self.model_name, source, question, driver, permit)


class _SideAnswer(Execution):
    """A side question to their model, after what was said and done in the run."""

    def __init__(self, name: str, source: Any, question: str, driver: ProgramApi, permit: Permit) -> None:
        async def asks(asked: Asked) -> AsyncIterator[Any]:
            told = Conversation(await driver.journal.read(driver.run))
            said = [one for message in repair(told.messages, told.fates) for one in _said(message)]
            async for item in source([*said, user(question)]):
                yield item

        model = SourceModel(name, asks, Asked())
        self._reading = ModelExecution(model, Request("", ()), driver.shows(permit), secrets=driver.secrets)

    async def ended(self) -> CallResult:
        ended = await self._reading.ended()
        said = "" if ended.result is None else msgspec.json.decode(ended.result)["message"]["text"]
        if ended.outcome is Outcome.COMPLETED or said:
            return msgspec.structs.replace(ended, result=msgspec.json.encode(said))
        return ended

    async def abort(self) -> None:
        await self._reading.abort()


def _said(message: Message) -> list[SaidMessage]:
    """A message of ours in the form that every framework takes; of tools there is only what was said of them."""
    if isinstance(message, Assistant):
        calls = [f"[I call {call.name}({bytes(call.arguments).decode()})]" for call in message.calls]
        return [assistant("\n".join([*filter(None, [message.text]), *calls]) or "…")]
    if isinstance(message, ToolResult):
        return [user(f"[{message.name}: {message.content}]")]
    return [user(message.text)] if isinstance(message, User) or message.text else []


_DEPTH: Final = 12
"""Messages are not nested deeper; what people put beside them may be, and may even contain itself."""


def text_size(value: Any, depth: int = _DEPTH) -> int:
    """How many characters of text are in messages of a framework, whatever they are made of.

    Every request is measured with its whole history: to write it as JSON would cost more than the rest of the adapter.
    """
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, Mapping):
        inside: Any = value.values()
    elif isinstance(value, list | tuple):
        inside = value
    elif hasattr(value, "__dataclass_fields__") or hasattr(value, "__pydantic_fields__"):
        inside = vars(value).values()
    else:
        return 0
    return sum(text_size(one, depth - 1) for one in inside if one is not None) if depth else 0


def check_rules(rules: Mapping[str, Rules]) -> Mapping[str, Rules]:
    """What is said of tools, or `MisuseError` where it is not said with `Rules`."""
    for name, said in rules.items():
        if not isinstance(said, Rules):
            raise MisuseError(f'tools={{"{name}": {said!r}}} says no rules of {name}; write Rules(effect="none").')
    return rules


def names_of_tools(inline: Sequence[str]) -> Sequence[str]:
    if isinstance(inline, str) or not all(isinstance(one, str) for one in inline):
        raise MisuseError(f'inline={inline!r} is no list of names of tools; write inline=["research"].')
    return inline


def check_known(agent: str, known: Mapping[str, object], names: Sequence[str]) -> None:
    """Raise `MisuseError` for a name that no tool has: what was said of it would be said of nothing."""
    for name in names:
        if name not in known:
            raise MisuseError(f"Agent {agent} has no tool {name}; there are: {', '.join(known) or 'none'}.")


def require(package: str, least: str, extra: str, *, framework: str) -> str:
    """The version of a framework that is installed. Raises `MisuseError` where it is missing, or older than tested."""
    line = f"pip install 'checkrein[{extra}]'"
    try:
        found = version(package)
    except PackageNotFoundError:
        raise MisuseError(
            f"{framework} is not installed, and this adapter needs {package} {least} or later: {line}"
        ) from None
    if _numbers(found) < _numbers(least):
        raise MisuseError(f"{package} {found} is installed, and this adapter needs {least} or later: {line}")
    return found


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split(".")[:3] if part.isdecimal())
