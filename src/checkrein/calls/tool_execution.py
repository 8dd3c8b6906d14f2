"""One call of a tool while it is being performed: the one interface for tasks, threads and worker processes.

Whatever it is made of, an execution ends exactly once, and the answer never changes: `ended`. Stopping it is `abort`,
which returns when nothing of the call is left, or when the grace is over and what is left has been let go (*detached*).
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import os
import time
import traceback
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import anyio
import msgspec

from checkrein.asyncutil import Once
from checkrein.calls import files
from checkrein.calls.arguments import RESULT_BYTES
from checkrein.calls.base import CallResult, Execution, StopWait
from checkrein.calls.current import SHIELD_SECONDS
from checkrein.calls.in_process.child_tasks import outside
from checkrein.core.enums import Outcome
from checkrein.errors import CheckreinError, describe
from checkrein.journal.base import stream_of
from checkrein.processes import termination
from checkrein.processes.families import Family
from checkrein.secrets import OFF, Secrets
from checkrein.timings import TOOL_GRACE_SECONDS

_log = logging.getLogger(__name__)

_GONE_LOOK_SECONDS: Final = 0.5
_GONE_LOOK_MOST_SECONDS: Final = 30.0


KEEP_SECONDS: Final = 5.0
"""So long the end of a call may wait for copies of its files to be kept."""

KeepFile = Callable[[str, str, int, bytes], Awaitable[None]]
"""Keeps a copy of a file: of this run, this attempt of a call, by its number."""


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be performed."""

    function: Callable[..., Any]
    arguments: bytes
    """JSON: an object with the keyword arguments."""
    id: str
    key: str
    run: str = ""
    mark: str
    """On every process of this call. The same after a restart, so that a later process can find them."""
    runtime: str
    folder: Path
    """For the call's files; made when needed, removed at the end."""
    attempt: int = 1
    deps: Any = None
    """What the tool finds at `current_call().deps`: a value, or a function that makes it."""
    result_bytes: int = RESULT_BYTES
    """The most that its result may be, as JSON."""
    secrets: Secrets = OFF
    """What must not come out of it."""
    keep_file: KeepFile | None = None
    may_begin: Callable[[], bool] = lambda: True
    """Asked at the last moment before the tool begins; False: it never does."""
    on_held: Callable[[], None] | None = None
    """Called when the call has come to rest after a `hold` that answered False."""
    on_late_end: Callable[[], None] | None = None
    """Called when a detached call has ended after all."""


class HeldShield(NamedTuple):
    """A shielded section as its driver counts it: what a tool claims is not believed beyond `SHIELD_SECONDS`."""

    seconds: float
    until: float
    """By the monotonic clock."""


def held_shield(seconds: float) -> HeldShield:
    """One that begins now."""
    seconds = min(seconds, SHIELD_SECONDS)
    return HeldShield(seconds, time.monotonic() + seconds)


class ToolExecution(Execution):
    """Made on the event loop; the call begins by itself."""

    def __init__(self, tool_call: ToolCall) -> None:
        self.tool_call = tool_call
        self.is_decided = False
        """Whether it is settled how the call ended; an abort comes too late."""
        self._loop = asyncio.get_running_loop()
        self._end: Once[CallResult] = Once()
        self._aborting: asyncio.Task[None] | None = None
        self._grace = math.inf
        self._until = math.inf
        self._is_hurried = False
        self._wake = asyncio.Event()
        self._jobs: set[asyncio.Task[None]] = set()
        self._watches: set[asyncio.Task[None]] = set()
        """Those that wait for what could not be stopped, for however long that takes."""

    async def ended(self) -> CallResult:
        """Return when the call is over. Cancelling this stops nothing."""
        return await self._end.get()

    async def abort(self, grace_seconds: float = TOOL_GRACE_SECONDS) -> Outcome:
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
            self._wake.set()
        return (await self.ended()).outcome

    async def hurry(self) -> None:
        self._is_hurried = True
        self._wake.set()

    @abstractmethod
    async def hold(self) -> bool:
        """Freeze the call where it is. True when it is frozen.

        False when it is over, or has not come to a checkpoint yet; in that case it will be held there, and `on_held`
        tells when. Asking again answers anew.
        """

    @abstractmethod
    async def resume(self) -> None:
        """Let the call go on after `hold`, whatever that answered."""

    def abandon(self) -> None:
        """Forget about a detached call, so that it does not keep the event loop from closing."""
        for job in self._watches:
            job.cancel()

    def _stop_before_it_begins(self) -> None:
        """If the tool has not begun yet, see to it that it never does."""
        return

    @abstractmethod
    async def _abort(self) -> None:
        """Stop the call and conclude, unless it is decided meanwhile."""

    @abstractmethod
    def _shields_held(self) -> Sequence[HeldShield]:
        """The shielded sections that the tool is in."""

    # -- for the subclasses

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work, context=outside())
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)
        return task

    async def _gone(self, family: Family) -> None:
        """Return when nobody of a family lives that could not be ended; until then it is killed again and again."""
        task = asyncio.current_task()
        assert task is not None
        self._watches.add(task)
        seconds = _GONE_LOOK_SECONDS
        while True:
            await asyncio.sleep(seconds)  # first, so that it is recorded by then how the call was left
            if not await termination.kill_again(family):
                return
            seconds = min(seconds * 2, _GONE_LOOK_MOST_SECONDS)

    async def _shield_over(self) -> None:
        """Return when the tool is in no shielded section, or the time for that is over. The grace begins then.

        Only the sections count that it is in when this is called: by entering another it puts nothing off.
        """
        longest = max(self._shields_held(), key=lambda shield: shield.until, default=None)
        while longest is not None and not self.is_decided and not self._is_hurried and self._shields_held():
            left = longest.until - time.monotonic()
            if left <= 0:
                break
            if self.waits_for is None:
                self.waits_for = StopWait("a shielded section", longest.seconds)
                if self.on_wait is not None:
                    self.on_wait(self.waits_for)
            await self._change(left)
        self.waits_for = None
        self._until = time.monotonic() + self._grace

    async def _change(self, seconds: float) -> None:
        """Return at the next change, or after so many seconds."""
        self._wake.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    def _left_of_grace(self) -> float:
        return self._until - time.monotonic()

    def _has_files(self) -> bool:
        return os.path.exists(self.tool_call.folder)  # pathlib takes several times as long

    async def _conclude(self, ended: CallResult) -> None:
        """The call is over: publish or drop its files, and let everybody know."""
        self.is_decided = True
        folder = self.tool_call.folder
        if self._has_files():
            ended = await self._copied(await anyio.to_thread.run_sync(_put_away, folder, ended))
        self._tell_end(ended)

    async def _copied(self, ended: CallResult) -> CallResult:
        """The same, once copies of its files are kept, as far as they can be: the files themselves are in place."""
        call = self.tool_call
        if call.keep_file is None:
            return ended
        hashes: list[str] = []
        try:
            async with asyncio.timeout(KEEP_SECONDS):
                for number, path in enumerate(ended.files):
                    body = await anyio.to_thread.run_sync(files.content, path)
                    if body is not None:
                        body = call.secrets.json(body)
                        await call.keep_file(call.run, stream_of(call.id, call.attempt), number, body)
                    hashes.append("" if body is None else hashlib.sha256(body).hexdigest())
        except (CheckreinError, TimeoutError) as error:
            _log.warning("files of %s are not kept in the store: %r", call.mark, error, extra={"run": call.run})
        return msgspec.structs.replace(ended, file_hashes=(*hashes, *[""] * (len(ended.files) - len(hashes))))

    def _tell_end(self, ended: CallResult) -> None:
        """Let everybody know how it ended, without secrets."""
        self._end.set(_redacted(ended, self.tool_call.secrets))


def _redacted(ended: CallResult, secrets: Secrets) -> CallResult:
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


def _put_away(folder: Path, ended: CallResult) -> CallResult:
    if ended.outcome is not Outcome.COMPLETED:
        files.discard(folder)
        return ended
    try:
        return msgspec.structs.replace(ended, files=files.publish(folder))
    except OSError as error:
        message = f"{type(error).__name__}: a file could not be published: {error}"
        return msgspec.structs.replace(ended, outcome=Outcome.FAILED, result=None, error=message)


def failure(error: BaseException) -> CallResult:
    lines = traceback.format_exception(type(error), error, error.__traceback__)
    return CallResult(outcome=Outcome.FAILED, error=describe(error), traceback="".join(lines))
