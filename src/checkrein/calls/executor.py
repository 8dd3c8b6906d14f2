"""Where tools are performed: chooses between a task, a thread and a worker process, and keeps what they need."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import uuid
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextvars import ContextVar
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Protocol, Self, TypeVar
from urllib.parse import quote
from weakref import WeakSet

from checkrein.asyncutil import guard_forks, run_to_completion
from checkrein.calls import current
from checkrein.calls.arguments import RESULT_BYTES
from checkrein.calls.imports import refuse_in_worker, target_of
from checkrein.calls.in_process.task import TaskExecution
from checkrein.calls.in_process.thread import ThreadExecution
from checkrein.calls.tool_execution import KeepFile, ToolCall, ToolExecution
from checkrein.calls.worker_process import WorkerExecution
from checkrein.calls.workers.pool import MOST, Workers
from checkrein.errors import NotImportable
from checkrein.processes import env_marks
from checkrein.processes.families import Family
from checkrein.secrets import OFF, Secrets

_log = logging.getLogger(__name__)


class Isolation(StrEnum):
    """Where a tool runs. An `async def` is always a task; a `def` is a process unless its author chose otherwise."""

    TASK = "task"
    PROCESS = "process"
    THREAD = "thread"


def isolation_of(function: Callable[..., Any], wanted: Isolation | str | None = None) -> Isolation:
    """Where `function` runs. Raises `ValueError` for a wish that cannot be granted."""
    is_async = _is_async(function)
    if wanted is None:
        return Isolation.TASK if is_async else Isolation.PROCESS
    wanted = Isolation(wanted)
    if is_async is not (wanted is Isolation.TASK):
        kind = "an `async def` runs as a task" if is_async else "a plain `def` cannot run as a task"
        raise ValueError(f"{getattr(function, '__qualname__', function)}: isolation={wanted.value!r}, but {kind}.")
    return wanted


@functools.lru_cache(maxsize=1024)
def _is_async(function: Any) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    plain = inspect.unwrap(function)
    return inspect.iscoroutinefunction(plain) or inspect.iscoroutinefunction(type(plain).__call__)


_QUOTED: Final = {code: quote(chr(code), safe="") for code in range(128)}
"""`quote` goes through a text character by character; most marks are plain."""


def mark_of(key: str, id: str, attempt: int) -> str:
    """The mark on the processes of one attempt of a call: the same in every process that knows the call."""
    return f"{key}@{id}#{attempt}"


def processes_of(run: str, calls: Mapping[str, int]) -> Family:
    """The processes of these calls of a run, each with its attempt, whoever has begun them."""
    marks = [mark_of(f"{run}/{call}", call, attempt) for call, attempt in calls.items()]
    return Family(marks=tuple((env_marks.CALL, mark) for mark in marks))


class Kept(Protocol):
    """Something that outlives the calls that use it, such as a session with a server of tools."""

    async def close(self) -> None:
        """End it, and leave nothing of it behind."""


K = TypeVar("K", bound=Kept)


class ToolExecutor:
    """`async with ToolExecutor(folder) as executor:`; belongs to one event loop.

    `folder` holds the files of calls while they run. `runtime` is the mark on every process that is started here.
    """

    def __init__(
        self,
        folder: Path,
        *,
        runtime: str | None = None,
        most_workers: int = MOST,
        warm_workers: int = 1,
        preload: Iterable[Callable[..., Any]] = (),
        secrets: Secrets = OFF,
        result_bytes: int = RESULT_BYTES,
        keep_file: KeepFile | None = None,
    ) -> None:
        """`keep_file` keeps copies of the files that calls publish."""
        self._keep_file = keep_file
        self.folder = folder
        self.result_bytes = result_bytes
        """The most that a result may be, as JSON."""
        self.runtime = runtime or uuid.uuid4().hex
        self._secrets = secrets
        self._executions: WeakSet[ToolExecution] = WeakSet()
        self._kept: dict[Hashable, Kept] = {}
        self._workers = Workers(self.runtime, most=most_workers, warm=warm_workers, result_bytes=result_bytes)
        for function in (current.perform, *preload):
            try:
                self._workers.expect(target_of(function))
            except NotImportable as error:  # whoever builds the agent has told its author
                _log.debug("not preloaded in workers: %s", error)

    async def __aenter__(self) -> Self:
        refuse_in_worker()
        guard_forks(asyncio.get_running_loop())
        await self._workers.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End all workers, and all that is kept. Abort the calls first: a worker that is ended under a call looks like
        a crash.

        Detached calls are forgotten, so that they do not keep the event loop from closing.
        """
        try:
            await run_to_completion(self._end_all())
        finally:
            for execution in self._executions:
                execution.abandon()

    async def _end_all(self) -> None:
        await asyncio.gather(self._workers.close(), *(kept.close() for kept in self._kept.values()))

    async def end_workers(self, run: str) -> None:
        """End every worker process that has performed a call of a run, which is being stopped and makes none now.

        A tool shares its process with what speaks for it, so a worker that says it is idle may be at work for the run.
        """
        await self._workers.end_those_of(run)

    def learn_secrets(self, strings: Mapping[str, str]) -> None:
        """Take these out too of whatever comes in from now on."""
        self._secrets.learn(strings)

    def keep(self, key: Hashable, make: Callable[[], K]) -> K:
        """What is kept under `key`, made if there is nothing yet. It is closed with the executor."""
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]  # type: ignore[return-value]

    def folder_of(self, mark: str) -> Path:
        """Where the files of a call are, also those of a call whose runtime died (see `files.discard`)."""
        return self.folder / (mark.translate(_QUOTED) if mark.isascii() else quote(mark, safe=""))

    def start(
        self,
        function: Callable[..., Any],
        arguments: bytes,
        *,
        id: str,
        key: str,
        mark: str | None = None,
        attempt: int = 1,
        isolation: Isolation | str | None = None,
        deps: Any = None,
        may_begin: Callable[[], bool] = lambda: True,
        on_held: Callable[[], None] | None = None,
        on_late_end: Callable[[], None] | None = None,
    ) -> ToolExecution:
        """Begin a call. Raises `NotImportable` for a function that a worker cannot import.

        `mark` names this attempt among all calls of all runs; an undo has the key of its call and an id of its own, so
        without one given it is made of both.
        """
        mark = mark or mark_of(key, id, attempt)
        call = ToolCall(
            function=function,
            arguments=arguments,
            id=id,
            key=key,
            run=key.partition("/")[0],
            mark=mark,
            runtime=self.runtime,
            folder=self.folder_of(mark),
            attempt=attempt,
            deps=deps,
            secrets=self._secrets,
            result_bytes=self.result_bytes,
            keep_file=self._keep_file,
            may_begin=may_begin,
            on_held=on_held,
            on_late_end=on_late_end,
        )
        execution = self._begin(call, isolation_of(function, isolation))
        self._executions.add(execution)
        return execution

    def _begin(self, call: ToolCall, isolation: Isolation) -> ToolExecution:
        match isolation:
            case Isolation.TASK:
                return TaskExecution(call)
            case Isolation.THREAD:
                return ThreadExecution(call)
            case Isolation.PROCESS:
                target = target_of(call.function)
                self._workers.expect(target)
                return WorkerExecution(call, target, self._workers)


lent_executor: Final[ContextVar[ToolExecutor | None]] = ContextVar("checkrein_lent_executor", default=None)
"""Where an undo or a check makes calls of its own, such as those of `MCP.call`."""
