"""One call of a tool while it is being performed: the one interface for tasks, threads and worker processes.

Whatever it is made of, a performance ends exactly once, and the answer never changes: `ended`. Stopping it is `abort`,
which returns when nothing of the call is left, or when the grace is over and what is left has been let go (*detached*).
"""

from __future__ import annotations

import asyncio
import math
import os
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import msgspec

from checkrein.core.words import Outcome
from checkrein.runtime import files
from checkrein.runtime.once import Once
from checkrein.runtime.processes import GRACE_SECONDS
from checkrein.runtime.secrets import OFF, Secrets
from checkrein.runtime.spec import Ended
from checkrein.runtime.tracking import outside

HOLD_SECONDS = 0.25
"""How long `hold` waits for a task or a thread to come to a checkpoint before it says: not yet."""


class ToolEnded(Ended, frozen=True, kw_only=True):
    """How the call of a tool ended."""

    traceback: str | None = None
    crashed: bool = False
    """The worker process died by itself in the middle of the call."""
    left: tuple[str, ...] = ()
    """What could not be stopped, in words. Its results are dropped."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be performed."""

    function: Callable[..., Any]
    arguments: bytes
    """JSON: an object with the keyword arguments."""
    id: str
    key: str
    mark: str
    """On every process of this call. The same after a restart, so that a later process can find them."""
    runtime: str
    folder: Path
    """For the call's files; made when needed, removed at the end."""
    attempt: int = 1
    deps: Any = None
    """What the tool finds at `current_call().deps`: a value, or a function that makes it."""
    secrets: Secrets = OFF
    """What must not come out of it."""
    may_begin: Callable[[], bool] = lambda: True
    """Asked at the last moment before the tool begins; False: it never does."""
    on_held: Callable[[], None] | None = None
    """Called when the call has come to rest after a `hold` that answered False."""
    on_late_end: Callable[[], None] | None = None
    """Called when a detached call has ended after all."""


class Waiting(NamedTuple):
    """What an abort waits for: a shielded section, at most until then (Unix seconds)."""

    what: str
    until: float


class ToolPerformance(ABC):
    """Made on the event loop; the call begins by itself."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.is_decided = False
        """Whether it is settled how the call ended; an abort comes too late."""
        self.waits_for: Waiting | None = None
        self._loop = asyncio.get_running_loop()
        self._end: Once[ToolEnded] = Once()
        self._aborting: asyncio.Task[None] | None = None
        self._grace = math.inf
        self._until = math.inf
        self._stir = asyncio.Event()
        self._jobs: set[asyncio.Task[None]] = set()

    async def ended(self) -> ToolEnded:
        """Return when the call is over. Cancelling this stops nothing."""
        return await self._end.get()

    async def abort(self, grace_seconds: float = GRACE_SECONDS) -> Outcome:
        """Stop the call and return how it ended: completed or failed if it had finished first.

        On return `ended` has its answer. May be called at any time and from several tasks; a later call can shorten the
        grace. Cancelling this does not take the stop back.
        """
        if not self._end.done() and not self.is_decided:
            self._grace = min(self._grace, grace_seconds)
            self._until = min(self._until, time.monotonic() + grace_seconds if self._aborting else math.inf)
            if self._aborting is None:
                self._aborting = self._spawn(self._abort())
                self._stop_before_it_begins()
            self._stir.set()
        return (await self.ended()).outcome

    @abstractmethod
    async def hold(self) -> bool:
        """Freeze the call where it is. True when it is frozen.

        False when it is over, or has not come to a checkpoint yet; in that case it will be held there, and `on_held`
        tells when. Asking again answers anew.
        """

    @abstractmethod
    async def go_on(self) -> None:
        """Let the call go on after `hold`, whatever that answered."""

    @abstractmethod
    def pids(self) -> tuple[int, ...]:
        """The processes of this call that are known without searching."""

    def abandon(self) -> None:
        """Forget about a detached call, so that it does not keep the event loop from closing."""
        return

    def _stop_before_it_begins(self) -> None:
        """If the tool has not begun yet, see to it that it never does."""
        return

    @abstractmethod
    async def _abort(self) -> None:
        """Stop the call and conclude, unless it is decided meanwhile."""

    @abstractmethod
    def _shield_seconds(self) -> float | None:
        """For how long a stop is to wait for the tool; None when it is not shielded."""

    # -- for the subclasses

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work, context=outside())
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)
        return task

    async def _shield_over(self) -> None:
        """Return when the tool is in no shielded section, or the time for that is over. The grace begins then."""
        began = time.monotonic()
        while not self.is_decided and (seconds := self._shield_seconds()) is not None:
            left = began + seconds - time.monotonic()
            if left <= 0:
                break
            self.waits_for = Waiting("a shielded section", time.time() + left)
            await self._change(left)
        self.waits_for = None
        self._until = time.monotonic() + self._grace

    async def _change(self, seconds: float) -> None:
        """Return at the next change, or after so many seconds."""
        self._stir.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stir.wait()

    def _left_of_grace(self) -> float:
        return self._until - time.monotonic()

    def _has_files(self) -> bool:
        return os.path.exists(self.job.folder)  # pathlib takes several times as long

    async def _conclude(self, ended: ToolEnded) -> None:
        """The call is over: publish or drop its files, and let everybody know."""
        self.is_decided = True
        folder = self.job.folder
        if self._has_files():
            ended = await anyio.to_thread.run_sync(_put_away, folder, ended)
        self._tell_end(ended)

    def _tell_end(self, ended: ToolEnded) -> None:
        """Let everybody know how it ended, without secrets."""
        self._end.set(_redacted(ended, self.job.secrets))


def _redacted(ended: ToolEnded, secrets: Secrets) -> ToolEnded:
    """Nobody sees what a tool has said before this."""
    if not secrets:
        return ended
    return msgspec.structs.replace(
        ended,
        result=None if ended.result is None else secrets.json(ended.result),
        error=None if ended.error is None else secrets.text(ended.error),
        traceback=None if ended.traceback is None else secrets.text(ended.traceback),
        files=tuple(map(secrets.text, ended.files)),
    )


def _put_away(folder: Path, ended: ToolEnded) -> ToolEnded:
    if ended.outcome is not Outcome.COMPLETED:
        files.discard(folder)
        return ended
    try:
        return msgspec.structs.replace(ended, files=files.publish(folder))
    except OSError as error:
        message = f"{type(error).__name__}: a file could not be published: {error}"
        return msgspec.structs.replace(ended, outcome=Outcome.FAILED, result=None, error=message)


def failure(error: BaseException) -> ToolEnded:
    lines = traceback.format_exception(type(error), error, error.__traceback__)
    return ToolEnded(outcome=Outcome.FAILED, error=f"{type(error).__name__}: {error}", traceback="".join(lines))
