"""Tools: plain functions, with what a runtime must know to stop, undo and repeat them honestly."""

from __future__ import annotations

import inspect
import os
import string
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict, TypeGuard, Unpack, overload

import msgspec

from checkrein.calls import arguments as values
from checkrein.calls.base import (
    ApprovalRule,
    EffectKind,
    Isolation,
    approval_of,
    effect_of,
    flag_of,
    isolation_of,
    on_pause_of,
    timeout_of,
)
from checkrein.calls.imports import in_worker, look_up, path_of, target_of
from checkrein.core.enums import OnPause
from checkrein.core.wording import QUOTED_CHARS, quoted
from checkrein.driver.program_api import Program, ToolWarning
from checkrein.errors import MisuseError, NotImportable

if TYPE_CHECKING:
    from typing_extensions import ParamSpec, TypeVar

    P = ParamSpec("P", default=...)
    R = TypeVar("R", default=Any)
else:
    from typing import ParamSpec, TypeVar

    P = ParamSpec("P")
    R = TypeVar("R")


class Tool(Generic[P, R]):
    """A function an agent may call. Calling the tool itself just calls the function, with its signature."""

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        description: str | None = None,
        undo: Callable[..., Any] | None = None,
        idempotent: bool = False,
        effect: EffectKind = "unknown",
        on_pause: OnPause | str = OnPause.FINISH,
        isolation: Isolation = "process",
        approval: ApprovalRule | bool | None = None,
        timeout: float | None = None,
        verify: Callable[..., Any] | None = None,
        changes: str = "",
    ) -> None:
        """`changes` says in a person's words what a call changes: `the draft to {to}`, with arguments in braces.

        Raises `MisuseError`, with what may be said instead, for a word that means nothing here.
        """
        if not callable(function):
            raise MisuseError(f"A tool is made of a function, and {function!r} is none.")
        self.function = function
        self.name: str = name or str(getattr(function, "__name__", "tool"))
        about = f"Tool {self.name}"
        self.description = description or inspect.getdoc(function) or ""
        self.undo = undo
        self.idempotent = flag_of(about, "idempotent", idempotent)
        self.effect: EffectKind = effect_of(about, effect, hint=" What it changes is said in words with changes=.")
        self.on_pause = on_pause_of(about, on_pause)
        self.isolation: Isolation = isolation_of(about, isolation)
        self.timeout_seconds = timeout_of(about, timeout)
        self.verify = verify
        self.changes = changes
        self._approval: ApprovalRule | Literal[False] | None = approval_of(about, approval)
        self.__wrapped__ = function  # a worker that looks for the function finds this, and sees what is in it
        self.__doc__ = function.__doc__
        self.__name__ = self.name
        self.__qualname__ = getattr(function, "__qualname__", self.name)
        self.__module__ = getattr(function, "__module__", "")
        self._check()

    def _check(self) -> None:
        for name, other in (("undo", self.undo), ("verify", self.verify)):
            if other is not None and not callable(other):
                raise MisuseError(f"Tool {self.name} says {name}={other!r}; it is a function.")
        if not isinstance(self.changes, str):
            raise MisuseError(f"Tool {self.name} says changes={self.changes!r}; it is a text, such as 'the draft'.")
        if self.on_pause is OnPause.ABORT and not self.idempotent:
            raise MisuseError(
                f"Tool {self.name} says on_pause='abort' but not idempotent=True: it could not be tried again after "
                "the pause. Say idempotent=True if repeating it does no harm, or use on_pause='finish'."
            )
        if self.effect == "none" and self.undo is not None:
            raise MisuseError(f"Tool {self.name} has an undo and says effect='none'. Leave one of them out.")
        if self.is_async and self.isolation == "thread":
            raise MisuseError(
                f"Tool {self.name} is async def and runs on the event loop; isolation='thread' is for def."
            )

    def warnings(self) -> Iterator[ToolWarning]:
        """What could not be stopped, undone or known of its calls."""
        if not self.is_async and self.isolation == "thread":
            yield ToolWarning(
                'runs in a thread (isolation="thread") and may not be stoppable',
                "A thread cannot be killed: after a stop it may go on until it looks up, and what it did is then in "
                "doubt.",
            )
        if self.effect == "unknown" and self.undo is None:
            yield ToolWarning(
                "says nothing about its effect and has no undo",
                'When it is interrupted, all that can be said is: may have partly happened. Say effect="none" if it '
                'only looks, give it an undo=, or say effect="irreversible".',
            )
        if self.effect == "irreversible" and self.approval is None:
            yield ToolWarning(
                "cannot be undone and asks nobody (approval=False)", "By the time somebody cancels, it has happened."
            )
        if self.effect == "reversible" and self.undo is None:
            yield ToolWarning(
                'says effect="reversible" and has no undo', "A cancel cannot take it back, and will list it as left."
            )

    def check_signature(self) -> None:
        """Raise `MisuseError` if no model could ever call this."""
        for place, parameter in enumerate(inspect.signature(self.function).parameters.values()):
            if place == 0 and parameter.name == "self":
                raise MisuseError(
                    f"Tool {self.name} takes self, which no model can give. Make the tool of the method of an object: "
                    f'tool(box.{self.name}, isolation="thread"), or an async method.'
                )
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
                raise MisuseError(f"Tool {self.name} takes {parameter}; a model can only give arguments by name.")
            if parameter.name.startswith("_"):
                raise MisuseError(
                    f"Tool {self.name} takes {parameter.name}; give it a name that begins with a letter, for the model."
                )

        self._check_changes()

    def _check_changes(self) -> None:
        known = inspect.signature(self.function).parameters
        try:
            fields = [field for _, field, _, _ in string.Formatter().parse(self.changes) if field is not None]
        except ValueError as error:
            raise MisuseError(
                f"Tool {self.name} says changes={self.changes!r}, which cannot be read: {error}."
            ) from None
        for field in fields:
            if field not in known:
                raise MisuseError(
                    f"Tool {self.name} says changes={self.changes!r}, but takes no argument {field!r}; "
                    f"it takes: {', '.join(known) or 'none'}."
                )

    def what(self, arguments: bytes) -> str:
        """What a call with these JSON arguments changes, in words; the tool's name if its author gives none."""
        if not self.changes:
            return self.name
        given = {name: _brief(value) for name, value in values.plain_arguments(arguments).items()}
        try:
            return self.changes.format_map(given)
        except (LookupError, ValueError):
            return self.name

    def check_defaults(self) -> None:
        """Raise `MisuseError` for a default that JSON cannot hold: a call that uses it could not be recorded."""
        for parameter in inspect.signature(self.function).parameters.values():
            if parameter.default is not parameter.empty and not self._can_record(parameter):
                raise MisuseError(
                    f"Tool {self.name} has a default for {parameter.name} that JSON cannot hold, so a call with it "
                    "could not be recorded. Use None and make the value inside, or take it from `current_call().deps`."
                )

    def _can_record(self, parameter: inspect.Parameter) -> bool:
        try:
            values.encode_result(self.function, parameter.default)
        except values.NotJson:
            # Only now pydantic is asked, and imported: it knows some more, such as bytes.
            try:
                call = self._arguments_model.model_construct()
                recorded = call.model_dump_json(include={parameter.name}, warnings=False)
            except (RuntimeError, TypeError, ValueError):
                return False
            kept = next(iter(msgspec.json.decode(recorded).values()), None)
            return kept is not None or getattr(call, parameter.name) is None  # it makes null of an infinite number
        return True

    def check_importable(self) -> None:
        """Raise `NotImportable` if a worker process would have to import this and cannot."""
        if not self.is_async and self.isolation == "process":
            target_of(self.function)
        for other in (self.undo, self.verify):
            if other is not None and not inspect.iscoroutinefunction(other):
                target_of(other)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Tool {self.name}>"

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.function)

    @property
    def has_effect(self) -> bool:
        return self.undo is not None or self.effect != "none"

    @property
    def approval(self) -> ApprovalRule | None:
        """Whether a person is asked first. What cannot be undone asks, unless told otherwise."""
        if self._approval is None:
            return "block" if self.effect == "irreversible" else None
        return self._approval or None

    @cached_property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of its arguments, read off the signature."""
        return self._arguments_model.model_json_schema()  # type: ignore[no-any-return]

    def to_json(self, arguments: bytes) -> bytes:
        """Arguments checked against the signature, with defaults filled in, as JSON again."""
        checked = self._arguments_model.model_validate_json(arguments)
        return checked.model_dump_json(by_alias=True).encode()  # type: ignore[no-any-return]

    @cached_property
    def _arguments_model(self) -> Any:
        import pydantic  # only when a schema is wanted: a worker, or a program without a model, may never want one

        self.check_signature()
        fields: dict[str, Any] = {}
        hints = _hints(self.function)
        for parameter in inspect.signature(self.function).parameters.values():
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[parameter.name] = (hints.get(parameter.name, Any), default)
        config = pydantic.ConfigDict(extra="forbid", arbitrary_types_allowed=False, protected_namespaces=())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a parameter may well be called `schema` or `json`
            return pydantic.create_model(f"{self.name}_arguments", __config__=config, **fields)


class ToolOptions(TypedDict, total=False):
    """What may be said of a tool; `Tool` has the defaults."""

    name: str | None
    description: str | None
    undo: Callable[..., Any] | None
    idempotent: bool
    effect: EffectKind
    on_pause: OnPause | str
    isolation: Isolation
    approval: ApprovalRule | bool | None
    timeout: float | None
    verify: Callable[..., Any] | None
    changes: str


@overload
def tool(function: Callable[P, R], /, **options: Unpack[ToolOptions]) -> Tool[P, R]: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a tool of a function: `@tool`, `@tool(undo=discard_draft)`, or `tool(box.put, isolation="thread")`."""
    if function is not None:
        return Tool(function, **options)
    return lambda decorated: Tool(decorated, **options)


def as_tool(candidate: Tool | Callable[..., Any]) -> Tool:
    """A plain function is a tool too, one that says nothing about its effect."""
    return candidate if isinstance(candidate, Tool) else Tool(candidate)


def is_program(candidate: Any) -> TypeGuard[Program]:
    """Whether something among the tools is an agent, to work as a sub-run."""
    return isinstance(candidate, Program)


def function_at(path: str) -> Callable[..., Any]:
    """The function at a path that `path_of` gave, also after a restart. Raises `MisuseError` when it is gone."""
    module, _, name = path.partition(":")
    try:
        return look_up(import_module(module), name)  # type: ignore[no-any-return]
    except (Exception, SystemExit) as error:  # whatever importing the module comes to
        raise MisuseError(f"{path} cannot be found any more: {type(error).__name__}: {error}") from error


class Toolbox(dict[str, Tool]):
    """The tools of one agent by name.

    One that a worker process could not import, or whose `deps` it could not have, is refused here, with the remedy.
    """

    def __init__(self, agent: str, tools: Iterable[Any], *, deps: Any = None) -> None:
        given = list(tools)
        own = [as_tool(one) for one in given if not is_program(one)]
        super().__init__((tool.name, tool) for tool in own)
        self._agent = agent
        _check_names(agent, [*own, *filter(is_program, given)])
        if not in_worker():
            for tool in self.values():
                tool.check_signature()
                tool.check_defaults()
                tool.check_importable()
            self._check_deps(deps)

    def _check_deps(self, deps: Any) -> None:
        """Raise `MisuseError` for deps that a tool in a worker process could not be given."""
        elsewhere = [tool.name for tool in self.values() if not tool.is_async and tool.isolation == "process"]
        if deps is None or not elsewhere:
            return
        why = "are a value of this process"
        if inspect.isroutine(deps):
            try:
                target_of(deps)
            except NotImportable as error:
                why = f"cannot be made in another process: {error.reason}"
            else:
                return
        raise MisuseError(
            f"The deps of agent {self._agent} {why}, and its tool {elsewhere[0]} runs in a worker process, which does "
            "not have them. Give deps=make_deps, a function at the top level of a module, which makes them in each "
            f'process; or declare {elsewhere[0]} with isolation="thread", or as an `async def`.',
            agent=self._agent,
        )

    def undo_at(self, path: str | None, name: str = "") -> Callable[..., Any]:
        """The undo function that a run has recorded under this path, for a call of the tool `name`.

        Functions that were made by one and the same function share a path, so the tool's own comes first. A tool that
        was taken out of the agent can be undone as long as its undo is where it was. Raises `MisuseError` otherwise.
        """
        for tool in sorted(self.values(), key=lambda tool: tool.name != name):
            if tool.undo is not None and path_of(tool.undo) == path:
                return tool.undo
        if path is not None:
            return function_at(path)  # its tool was taken out of the agent, and what it did still has to be undone
        raise MisuseError(f"Agent {self._agent} has no tool any more whose undo is {path}.")


def listed(agent: str, tools: object) -> list[Any]:
    """What an author gives as `tools`, or `MisuseError` where it is no list."""
    if isinstance(tools, str | bytes) or not isinstance(tools, Iterable):
        raise MisuseError(f"Agent {agent}: tools is a list, such as [search, send], not {tools!r}.", agent=agent)
    return list(tools)


def _check_names(agent: str, tools: Iterable[Tool | Program]) -> None:
    """Raise `MisuseError` where a model could not tell two tools apart."""
    seen: dict[str, Tool | Program] = {}
    for one in tools:
        other = seen.setdefault(one.name, one)
        if other is not one:
            raise MisuseError(
                f"Agent {agent} has two tools with the name {one.name}: {_place(other)} and {_place(one)}. Give one of "
                f'them another: tool({one.name}, name="…").',
                agent=agent,
            )


def _place(one: Tool | Program) -> str:
    if not isinstance(one, Tool):
        return f"the agent {one.name}"
    code = getattr(inspect.unwrap(one.function), "__code__", None)
    where = "" if code is None else f" ({os.path.basename(code.co_filename)}:{code.co_firstlineno})"
    return f"{one.__module__}.{one.__qualname__}{where}"


def _brief(value: Any) -> str:
    """An argument within a sentence. A model has chosen it, so what could be words is quoted: they are not ours."""
    return str(value) if isinstance(value, int | float) and len(str(value)) <= QUOTED_CHARS else quoted(str(value))


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    from typing import get_type_hints

    try:
        return get_type_hints(function, include_extras=True)
    except Exception:
        return dict(getattr(function, "__annotations__", {}))
