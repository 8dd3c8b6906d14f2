"""Marks: what every process started for a call carries in its environment, so that it can be found wherever it goes.

Inside an `async def` tool, and in a thread, many calls share one process and one `os.environ`, so the mark of the call
is in a context variable and `subprocess.Popen` is taught to add it, also where a tool passes an `env` of its own;
`asyncio.create_subprocess_exec` and `_shell` start their processes through it too. Outside a call the patch changes
nothing. A worker process has one call at a time and sets the mark for the whole process.

`install_everywhere` teaches the same to the other ways of starting a process: `multiprocessing`, `os.posix_spawn`,
`os.system` and `os.fork`, whose environment nobody can add to; those are found by the mark in their limits
(`limit_marks`), which each gets.

A variable holds the marks of every runtime around a process, outermost first, separated by commas.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, Final

from checkrein.processes import limit_marks, orphans, table
from checkrein.processes.table import ProcessInfo

RUNTIME: Final = "CHECKREIN_RUNTIME"
"""On every process that a runtime starts."""
WORKER: Final = "CHECKREIN_WORKER"
"""On a worker and all that comes from it: a fork of it carries the worker's environment and no call's."""
SERVER: Final = "CHECKREIN_SERVER"
"""On a server of tools that a runtime has started, and all that comes from it."""
CALL: Final = "CHECKREIN_CALL"
"""On every process started for a call."""


_OWN_SECRETS: Final = ("_TOKEN", "_SECRET", "_KEY", "PASSWORD", "_STORE")
"""How the names of our variables end that are not for tools. The address of a store may hold its password."""


def without_own_secrets(environment: Mapping[Any, Any]) -> dict[Any, Any]:
    """An environment for tools: whoever holds a token of ours (`CHECKREIN_TOKEN`), or the address of the store
    (`CHECKREIN_STORE`), may stop runs and approve calls, and no tool is given that right."""
    return {name: value for name, value in environment.items() if not _is_own_secret(os.fsdecode(name).upper())}


def _is_own_secret(name: str) -> bool:
    return name.startswith("CHECKREIN_") and name.endswith(_OWN_SECRETS)


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
        self.roots: set[ProcessInfo] = set()
        """Processes that were started otherwise, and are known by their number."""
        self.has_started_any = False
        self.is_closed = False
        """The call is over: it may start no more processes."""

    def variables(self) -> dict[str, str]:
        return {RUNTIME: chain(os.environ.get(RUNTIME), self.runtime), CALL: chain(os.environ.get(CALL), self.call)}

    def check_open(self) -> None:
        """Raises `PermissionError` once the call is over."""
        if self.is_closed:
            raise PermissionError(f"The call {self.call} is over and may start no more processes.")

    @contextmanager
    def starting(self) -> Iterator[None]:
        """What is started inside belongs to the call. Raises `PermissionError` once the call is over."""
        self.check_open()
        self.has_started_any = True
        with limit_marks.worn(limit_marks.number(self.runtime, self.call)):
            yield

    def note_pid(self, pid: int | None) -> None:
        found = None if pid is None else table.row(pid)
        if found is not None:
            self.roots.add(found)

    def note(self, child: subprocess.Popen[Any]) -> None:
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
            with limit_marks.worn(None):
                original(self, *args, **kwargs)
            orphans.note_own(self.pid)
            return
        given = args[_ENV] if len(args) > _ENV else kwargs.pop("env", None)
        env = _with_marks(given, mark)
        if len(args) > _ENV:
            args = (*args[:_ENV], env, *args[_ENV + 1 :])
        else:
            kwargs["env"] = env
        with mark.starting():
            original(self, *args, **kwargs)
        orphans.note_own(self.pid)
        # One that asyncio started is reaped by asyncio; if we asked for its status too, one of us would be told lies.
        if sys._getframe(1).f_globals.get("__name__", "").startswith(("asyncio.", "uvloop")):
            return
        mark.note(self)

    return init


def _with_marks(given: Mapping[Any, Any] | None, mark: Mark) -> dict[Any, Any]:
    env = without_own_secrets(os.environ if given is None else given)
    for name, value in mark.variables().items():
        env.pop(os.fsencode(name), None)
        env[name] = value
    return env


# -- the other ways of starting a process, where many calls share one


_is_installed = False


def install_everywhere() -> None:
    """Teach `multiprocessing`, `os.posix_spawn`, `os.system` and forks too. Outside a call nothing changes by it, so it
    is never taken back."""
    install()
    global _is_installed
    if _is_installed:
        return
    _is_installed = True
    from multiprocessing import util
    from multiprocessing.process import BaseProcess

    BaseProcess.start = _started(BaseProcess.start)  # type: ignore[method-assign]
    for name in ("posix_spawn", "posix_spawnp"):
        if hasattr(os, name):
            setattr(os, name, _spawned(getattr(os, name)))
    os.system = _system(os.system)
    os.fork = _noted(os.fork)
    if hasattr(os, "forkpty"):
        os.forkpty = _noted_first(os.forkpty)
    util.spawnv_passfds = _noted(util.spawnv_passfds)  # by which multiprocessing starts its helpers
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_parent=_forked, after_in_child=_begin_fork)


def _started(original: Callable[..., None]) -> Callable[..., None]:
    @wraps(original)
    def start(self: Any) -> None:
        mark = current.get()
        if mark is None:
            original(self)
            orphans.note_own(self.pid)
            return
        # Helpers of the whole process must not be started in the name of a call, and end with it.
        method = getattr(self, "_start_method", "fork")
        if method != "fork":
            from multiprocessing import resource_tracker

            resource_tracker.getfd()
        if method == "forkserver":
            from multiprocessing import forkserver

            forkserver.ensure_running()
        with mark.starting():
            original(self)
        orphans.note_own(self.pid)
        mark.note_pid(self.pid)

    return start


def _spawned(original: Callable[..., int]) -> Callable[..., int]:
    @wraps(original)
    def spawn(path: Any, argv: Any, env: Mapping[Any, Any], **options: Any) -> int:
        mark = current.get()
        if mark is None:
            pid = original(path, argv, env, **options)
        else:
            with mark.starting():
                pid = original(path, argv, _with_marks(env, mark), **options)
            mark.note_pid(pid)
        orphans.note_own(pid)
        return pid

    return spawn


def _noted_first(original: Callable[[], tuple[int, int]]) -> Callable[[], tuple[int, int]]:
    @wraps(original)
    def start() -> tuple[int, int]:
        pid, terminal = original()
        orphans.note_own(pid)
        return pid, terminal

    return start


def _noted(original: Callable[..., int]) -> Callable[..., int]:
    @wraps(original)
    def start(*args: Any, **options: Any) -> int:
        pid = original(*args, **options)
        orphans.note_own(pid)
        return pid

    return start


def _system(original: Callable[..., int]) -> Callable[..., int]:
    @wraps(original)
    def system(command: Any) -> int:
        if current.get() is None:
            return original(command)
        status = subprocess.Popen(command, shell=True).wait()
        return -status if status < 0 else status << 8

    return system


def _forked() -> None:
    mark = current.get()
    if mark is not None:
        mark.has_started_any = True


def _begin_fork() -> None:
    """In a fork without exec: its environment cannot be added to any more, its limits can."""
    mark = current.get()
    if mark is not None:
        if mark.is_closed:
            os._exit(1)
        limit_marks.wear(limit_marks.number(mark.runtime, mark.call))
