"""What a tool sees of its own call: `current_call()`.

The same in a worker process, a thread and a task of the event loop; what differs is behind `Control`. Imports little:
every worker starts with it.

What an undo or a verify function is given, and how a worker calls one. Imports little: a first undo waits for it.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Protocol

from checkrein.calls.files import CallFiles
from checkrein.calls.imports import Target, load
from checkrein.errors import MisuseError

SHIELD_SECONDS: Final = 60.0
"""The longest that a shielded section counts as one, from the moment at which it begins."""


class Aborted(BaseException):
    """Raised inside a plain `def` tool whose call is being stopped. (An `async def` tool gets a `CancelledError`.)

    Not an `Exception`, so that `except Exception:` in a tool does not swallow it. Clean up and let it pass: a tool that
    goes on is killed after the grace, or, in a thread, left to itself.
    """


class Control(Protocol):
    """The way from a tool to whoever performs its call. All of it may be used from any thread of the tool."""

    def checkpoint(self) -> Awaitable[None]: ...

    def settle(self) -> None: ...

    def enter_shield(self, seconds: float) -> None: ...

    def leave_shield(self) -> None: ...


class Call:
    """One call of a tool, as the tool sees it."""

    def __init__(
        self,
        *,
        id: str,
        key: str,
        attempt: int,
        arguments: Mapping[str, Any],
        folder: Path,
        control: Control,
        deps: Callable[[], Any] | None = None,
    ) -> None:
        self.id = id
        """Names the call within its run."""
        self.key = key
        """The same for every attempt of this call: what to give to a service as its idempotency key."""
        self.attempt = attempt
        self.arguments = arguments
        self._folder = folder
        self._control = control
        self._deps = deps

    @property
    def deps(self) -> Any:
        """What the agent was given as `deps`, or what that function makes: once in each process. None without one."""
        return None if self._deps is None else self._deps()

    def __repr__(self) -> str:
        return f"<Call {self.id} attempt {self.attempt}>"

    def scratch(self) -> Path:
        """A folder for this call alone. It is removed when the call ends, however it ends."""
        return CallFiles(self._folder).scratch()

    def write(self, path: str | os.PathLike[str], mode: str = "w", **options: Any) -> AbstractContextManager[IO[Any]]:
        """`with call.write(path) as file:` writes a file that appears at `path` only if the call succeeds, and then at
        once. It is written under another name beside it; `options` are those of `open`.

        If the block raises, the call fails or it is stopped, `path` stays as it was.
        """
        if mode not in ("w", "wb"):
            raise ValueError(f'A file of a call is written with mode "w" or "wb", not {mode!r}.')
        if "b" not in mode:
            options.setdefault("encoding", "utf-8")
        return CallFiles(self._folder).write(path, mode, **options)

    def settle(self) -> None:
        """Say that what this call has done is meant to stay: a later cancel does not undo it."""
        self._control.settle()

    def checkpoint(self) -> Awaitable[None]:
        """A place where the call may be stopped or held.

        In a `def` tool call it plainly: it raises `Aborted` if the call is to stop, and waits while the call is held.
        In an `async def` tool await it: `await call.checkpoint()`. Inside a shield it does nothing.
        """
        return self._control.checkpoint()

    def shield(self, seconds: float = 2.0) -> Shield:
        """A section that is not to be torn: `async with call.shield():`, or `with call.shield():` in a `def` tool.

        A stop that comes meanwhile waits until the section is over, for at most `seconds` from its beginning. Once a
        stop has been asked for, no new section begins: entering one raises. A halt and a second cancel wait for none.
        """
        if not 0 < seconds <= SHIELD_SECONDS:
            raise ValueError(f"A shield lasts for up to {SHIELD_SECONDS:g} seconds.")
        return Shield(self._control, seconds)


class Shield:
    """See `Call.shield`. It may be used once."""

    def __init__(self, control: Control, seconds: float) -> None:
        self._control = control
        self._seconds = seconds

    def __enter__(self) -> None:
        self._control.enter_shield(self._seconds)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._control.leave_shield()

    async def __aenter__(self) -> None:
        self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)


@cache
def made_by(factory: Callable[[], Any]) -> Any:
    """What `factory` makes, which is asked once."""
    return factory()


_current: ContextVar[Call | None] = ContextVar("checkrein_call", default=None)
_process_call: Call | None = None


def current_call() -> Call:
    """The call that this code runs for. Raises `MisuseError` outside a tool."""
    call = _current.get() or _process_call
    if call is None:
        raise MisuseError("There is no current call here: current_call() works inside a tool while it runs.")
    return call


def found() -> Call | None:
    """The call of this context, if there is one."""
    return _current.get()


def enter_call(call: Call | None) -> None:
    """From now on `call` is the current one in this context; None for no call."""
    _current.set(call)


def enter_process_call(call: Call | None) -> None:
    """In a worker: the call this whole process works for, threads without a context included."""
    global _process_call
    _process_call = call


class Undone:
    """The call that an undo or a verify function is about."""

    def __init__(self, *, id: str, key: str, name: str, arguments: Any, result: Any, outcome: str) -> None:
        self.id = id
        self.key = key
        """The same every time: what to give to a service as its idempotency key."""
        self.name = name
        self.arguments = arguments
        self.result = result
        """None when it is not known."""
        self.outcome = outcome
        """How the call ended: `completed`, `failed`, `aborted`, `killed`, `detached` or `in_doubt`."""

    def __repr__(self) -> str:
        return f"<Undone {self.name} {self.id}>"


def perform(target: list[str], call: dict[str, Any]) -> Any:
    """Runs in a worker: find the function and call it."""
    return load(Target(*target))(Undone(**call))


def undo(target: list[str], call: dict[str, Any]) -> None:
    """Runs in a worker: the same for an undo, whose result nobody needs."""
    perform(target, call)
