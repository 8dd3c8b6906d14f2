"""Where tools are performed: chooses between a task, a thread and a worker process, and keeps what they need."""

from __future__ import annotations

import asyncio
import functools
import inspect
import uuid
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Protocol, Self, TypeVar
from urllib.parse import quote
from weakref import WeakSet

from checkrein.errors import NotImportable
from checkrein.journal.surely import surely
from checkrein.runtime import undone
from checkrein.runtime.importable import target_of
from checkrein.runtime.in_worker import WorkerPerformance
from checkrein.runtime.loading import refuse_in_worker
from checkrein.runtime.performance import Job, ToolPerformance
from checkrein.runtime.secrets import OFF, Secrets
from checkrein.runtime.tasks import TaskPerformance
from checkrein.runtime.threads import ThreadPerformance
from checkrein.runtime.workers import MOST, Workers


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


class Kept(Protocol):
    """Something that outlives the calls that use it, such as a session with a server of tools."""

    async def close(self) -> None:
        """End it, and leave nothing of it behind."""


K = TypeVar("K", bound=Kept)


class Stage:
    """`async with Stage(folder) as stage:`; belongs to one event loop.

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
    ) -> None:
        self.folder = folder
        self.runtime = runtime or uuid.uuid4().hex
        self._secrets = secrets
        self._performances: WeakSet[ToolPerformance] = WeakSet()
        self._kept: dict[Hashable, Kept] = {}
        self._workers = Workers(self.runtime, most=most_workers, warm=warm_workers)
        for function in (undone.perform, *preload):
            with suppress(NotImportable):  # whoever builds the agent has told its author
                self._workers.expect(target_of(function))

    async def __aenter__(self) -> Self:
        refuse_in_worker()
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
            await surely(self._end_all())
        finally:
            for performance in self._performances:
                performance.abandon()

    async def _end_all(self) -> None:
        await asyncio.gather(self._workers.close(), *(kept.close() for kept in self._kept.values()))

    def keep(self, key: Hashable, make: Callable[[], K]) -> K:
        """What is kept under `key`, made if there is nothing yet. It is closed with the stage."""
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
    ) -> ToolPerformance:
        """Begin a call. Raises `NotImportable` for a function that a worker cannot import.

        `mark` names this attempt among all calls of all runs; an undo has the key of its call and an id of its own, so
        without one given it is made of both.
        """
        mark = mark or f"{key}@{id}#{attempt}"
        job = Job(
            function=function,
            arguments=arguments,
            id=id,
            key=key,
            mark=mark,
            runtime=self.runtime,
            folder=self.folder_of(mark),
            attempt=attempt,
            deps=deps,
            secrets=self._secrets,
            may_begin=may_begin,
            on_held=on_held,
            on_late_end=on_late_end,
        )
        performance = self._begin(job, isolation_of(function, isolation))
        self._performances.add(performance)
        return performance

    def _begin(self, job: Job, isolation: Isolation) -> ToolPerformance:
        match isolation:
            case Isolation.TASK:
                return TaskPerformance(job)
            case Isolation.THREAD:
                return ThreadPerformance(job)
            case Isolation.PROCESS:
                target = target_of(job.function)
                self._workers.expect(target)
                return WorkerPerformance(job, target, self._workers)
