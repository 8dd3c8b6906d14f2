"""Tools: plain functions, with what a runtime must know to stop, undo and repeat them honestly."""

from __future__ import annotations

import inspect
import string
import warnings
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, Literal, TypeGuard, overload

import msgspec

from checkrein.core.words import OnPause
from checkrein.errors import MisuseError
from checkrein.runtime import values
from checkrein.runtime.importable import target_of
from checkrein.runtime.loading import in_worker
from checkrein.runtime.spec import Program

EffectKind = Literal["unknown", "none", "reversible", "irreversible"]
Isolation = Literal["process", "thread"]
ApprovalRule = Literal["block", "queue"]


class Tool:
    """A function an agent may call. Calling the tool itself just calls the function."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        undo: Callable[..., Any] | None = None,
        idempotent: bool = False,
        effect: EffectKind = "unknown",
        on_pause: OnPause | str = OnPause.FINISH,
        isolation: Isolation = "process",
        approval: ApprovalRule | Literal[False] | None = None,
        timeout: float | None = None,
        verify: Callable[..., Any] | None = None,
        changes: str = "",
    ) -> None:
        """`changes` says in a person's words what a call changes: `the draft to {to}`, with arguments in braces."""
        self.function = function
        self.name: str = name or str(getattr(function, "__name__", "tool"))
        self.description = description or inspect.getdoc(function) or ""
        self.undo = undo
        self.idempotent = idempotent
        self.effect: EffectKind = effect
        self.on_pause = OnPause(on_pause)
        self.isolation: Isolation = isolation
        self.timeout_seconds = timeout
        self.verify = verify
        self.changes = changes
        self._approval = approval
        self.__wrapped__ = function  # a worker that looks for the function finds this, and sees what is in it
        self.__doc__ = function.__doc__
        self.__name__ = self.name
        self.__qualname__ = getattr(function, "__qualname__", self.name)
        self.__module__ = getattr(function, "__module__", "")
        self._check()

    def _check(self) -> None:
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

    def check_signature(self) -> None:
        """Raise `MisuseError` if no model could ever call this."""
        for parameter in inspect.signature(self.function).parameters.values():
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
        given = {name: _brief(value) for name, value in msgspec.json.decode(arguments).items()}
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

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
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


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    undo: Callable[..., Any] | None = None,
    idempotent: bool = False,
    effect: EffectKind = "unknown",
    on_pause: OnPause | str = OnPause.FINISH,
    isolation: Isolation = "process",
    approval: ApprovalRule | Literal[False] | None = None,
    timeout: float | None = None,
    verify: Callable[..., Any] | None = None,
    changes: str = "",
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a tool of a function: `@tool`, or `@tool(undo=discard_draft)`."""
    if function is not None:
        return Tool(function)
    return lambda decorated: Tool(decorated, **options)


def as_tool(candidate: Tool | Callable[..., Any]) -> Tool:
    """A plain function is a tool too, one that says nothing about its effect."""
    return candidate if isinstance(candidate, Tool) else Tool(candidate)


def is_program(candidate: Any) -> TypeGuard[Program]:
    """Whether something among the tools is an agent, to work as a sub-run."""
    return hasattr(candidate, "play") and hasattr(candidate, "name")


class Toolbox(dict[str, Tool]):
    """The tools of one agent by name. One that a worker process could not import is refused here, with the remedy."""

    def __init__(self, agent: str, tools: Iterable[Any]) -> None:
        super().__init__((tool.name, tool) for tool in (as_tool(one) for one in tools if not is_program(one)))
        self._agent = agent
        if not in_worker():
            for tool in self.values():
                tool.check_signature()
                tool.check_defaults()
                tool.check_importable()

    def undo_at(self, path: str | None, name: str = "") -> Callable[..., Any]:
        """The undo function that a run has recorded under this path, for a call of the tool `name`.

        Functions that were made by one and the same function share a path, so the tool's own comes first.
        """
        for tool in sorted(self.values(), key=lambda tool: tool.name != name):
            if tool.undo is not None and path_of(tool.undo) == path:
                return tool.undo
        raise MisuseError(f"Agent {self._agent} has no tool any more whose undo is {path}.")


def path_of(function: Callable[..., Any]) -> str:
    """Where an undo function can be found again after a restart."""
    return f"{function.__module__}:{function.__qualname__}"


def _brief(value: Any) -> str:
    """An argument within a sentence: on one line, and not longer than one reads at a glance."""
    text = " ".join(str(value).split())
    return text if len(text) <= 60 else f"{text[:59]}…"


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    from typing import get_type_hints

    try:
        return get_type_hints(function, include_extras=True)
    except Exception:
        return dict(getattr(function, "__annotations__", {}))
