"""Marks: what every process started for a call carries in its environment, so that it can be found wherever it goes.

Inside an `async def` tool, and in a thread, many calls share one process and one `os.environ`, so the mark of the call
is in a context variable and `subprocess.Popen` is taught to add it, also where a tool passes an `env` of its own;
`asyncio.create_subprocess_exec` and `_shell` start their processes through it too. Outside a call the patch changes
nothing. A worker process has one call at a time and sets the mark for the whole process.

A variable holds the marks of every runtime around a process, outermost first, separated by commas.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import wraps
from typing import Any, Final

RUNTIME: Final = "CHECKREIN_RUNTIME"
"""On every process that a runtime starts."""
WORKER: Final = "CHECKREIN_WORKER"
"""On a worker and all that comes from it: a fork of it carries the worker's environment and no call's."""
SERVER: Final = "CHECKREIN_SERVER"
"""On a server of tools that a runtime has started, and all that comes from it."""
CALL: Final = "CHECKREIN_CALL"
"""On every process started for a call."""


def chain(around: str | None, mark: str) -> str:
    """The value of a variable with one more mark in it."""
    if not mark or "," in mark or "\0" in mark:
        raise ValueError(f"{mark!r} cannot be a mark: it may not be empty or hold a comma or a NUL.")
    marks = [one for one in (around or "").split(",") if one]
    return ",".join(marks if mark in marks else [*marks, mark])


class Mark:
    """The mark of one call. `children` are those of its processes that were started through `subprocess`."""

    def __init__(self, runtime: str, call: str) -> None:
        self.runtime = runtime
        self.call = call
        self.children: list[subprocess.Popen[Any]] = []
        self.has_started_any = False
        self.is_closed = False
        """The call is over: it may start no more processes."""

    def variables(self) -> dict[str, str]:
        return {
            RUNTIME: chain(os.environ.get(RUNTIME), self.runtime),
            CALL: chain(os.environ.get(CALL), self.call),
        }

    def note(self, child: subprocess.Popen[Any]) -> None:
        self.has_started_any = True
        self.children = [*(one for one in self.children if one.returncode is None), child]


current: ContextVar[Mark | None] = ContextVar("checkrein_mark", default=None)
"""The mark of the call in whose context this code runs."""

_process_mark: Mark | None = None
_original: Callable[..., None] | None = None


def mark_process(mark: Mark | None) -> None:
    """In a worker: the mark of the call that this whole process works for, threads without a context included."""
    global _process_mark
    _process_mark = mark


def install() -> None:
    """Teach `subprocess.Popen` about marks. Doing it twice changes nothing."""
    global _original
    if _original is None:
        _original = subprocess.Popen.__init__
        subprocess.Popen.__init__ = _marked(_original)  # type: ignore[method-assign]


def remove() -> None:
    """Take `install` back. Where somebody else has patched on top of it, ours stays beneath and does nothing."""
    global _original
    if _original is not None:
        if getattr(subprocess.Popen.__init__, "__wrapped__", None) is _original:
            subprocess.Popen.__init__ = _original  # type: ignore[method-assign,assignment]
        _original = None


_ENV: Final = 10
"""The place of `env` among the positional arguments of `Popen`, `self` not counted."""


def _marked(original: Callable[..., None]) -> Callable[..., None]:
    @wraps(original)
    def init(self: subprocess.Popen[Any], *args: Any, **kwargs: Any) -> None:
        mark = current.get() or _process_mark
        if mark is None or _original is None:
            return original(self, *args, **kwargs)
        if mark.is_closed:
            raise PermissionError(f"The call {mark.call} is over and may start no more processes.")
        given = args[_ENV] if len(args) > _ENV else kwargs.pop("env", None)
        env = _with_marks(given, mark)
        if len(args) > _ENV:
            args = (*args[:_ENV], env, *args[_ENV + 1 :])
        else:
            kwargs["env"] = env
        original(self, *args, **kwargs)
        # One that asyncio started is reaped by asyncio; if we asked for its status too, one of us would be told lies.
        if sys._getframe(1).f_globals.get("__name__", "").startswith(("asyncio.", "uvloop")):
            mark.has_started_any = True
        else:
            mark.note(self)

    return init


def _with_marks(given: Mapping[Any, Any] | None, mark: Mark) -> dict[Any, Any]:
    env = dict(os.environ if given is None else given)
    for name, value in mark.variables().items():
        env.pop(os.fsencode(name), None)
        env[name] = value
    return env
