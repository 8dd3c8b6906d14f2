"""A program that knows nothing of Checkrein, as an execution: frozen, continued and ended with all that it has started.

It has a session of its own, so that a `setsid` of its children takes nothing away: they are found by their marks. What
it leaves behind when it ends is ended too. Nothing is known of what it does but what it asks of others, so it is never
played again; after a crash the supervisor ends it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio
import msgspec

from checkrein.asyncutil import Once, run_to_completion
from checkrein.calls.base import CallResult, Execution, in_words
from checkrein.calls.in_process.child_tasks import outside
from checkrein.core.enums import Outcome
from checkrein.errors import describe
from checkrein.processes import env_marks, launch_main, table, termination
from checkrein.processes.families import Family
from checkrein.processes.table import ProcessInfo
from checkrein.processes.termination import Exit
from checkrein.timings import TOOL_GRACE_SECONDS

_log = logging.getLogger(__name__)


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be started, and how."""

    file: str
    """The path of the program."""
    arguments: Sequence[str]
    """As it sees them, its own name first."""
    environment: Mapping[str, str]
    seal: tuple[int, int] | None = None
    """It has no network but loopback, where it finds what listens at this port: over a socket of this number it sends
    back the one that listens there; -1: nothing does."""
    freezes: bool = True
    """A pause freezes it. Otherwise it goes on until it asks for something that the pause keeps from it."""
    terminal: int | None = None
    """A descriptor of the terminal that it gets for itself; None: it has the streams of this process."""


class ProcessExecution(Execution):
    """Made on the event loop; the program begins by itself."""

    def __init__(self, command: Command, *, runtime: str, mark: str) -> None:
        self._command = command
        self._mark = env_marks.Mark(runtime, mark)
        self._end: Once[CallResult] = Once()
        self._family: Family | None = None
        # Invariant: whoever has it sees the program either not begun, or begun and with a family.
        self._turn = asyncio.Lock()
        self._frozen: list[ProcessInfo] = []
        self._may_begin = asyncio.Event()
        self._may_begin.set()
        self._until = float("inf")
        self._aborting: asyncio.Task[None] | None = None
        self.exit_code: int | None = None
        """How the program ended by itself, as a shell says it: 128 and the number of the signal that ended it."""
        self._task = asyncio.get_running_loop().create_task(self._run(), context=outside())

    async def ended(self) -> CallResult:
        return await self._end.get()

    # -- its life

    async def _run(self) -> None:
        await self._may_begin.wait()
        try:
            process, family = await self._begin()
        except OSError as error:
            self._conclude(CallResult(outcome=Outcome.FAILED, error=describe(error), begun=False))
            return
        exited = Exit(process.pid)
        try:
            await exited.wait()
            if self._aborting is None:
                # Before it is reaped: as long as its number is its own, whoever it leads is found by it.
                left = await termination.end(family)
                self._conclude(self._own_end(process.wait(), left))
        finally:
            exited.close()
            process.poll()

    async def _begin(self) -> tuple[subprocess.Popen[bytes], Family]:
        async with self._turn:  # whoever is to freeze or to end it waits until it is known
            process = await run_to_completion(anyio.to_thread.run_sync(self._start))
            root = table.row(process.pid)
            assert root is not None, "a child that was not reaped is in the process table"
            marks = ((env_marks.CALL, self._mark.call),)
            self._family = Family(marks=marks, roots=(root,), since=root.started)
            return process, self._family

    def _start(self) -> subprocess.Popen[bytes]:
        terminal = self._command.terminal
        options = [] if terminal is None else ["--terminal"]
        passed: tuple[int, ...] = ()
        if self._command.seal is not None:
            line, port = self._command.seal
            options += ["--sealed", str(line), str(port)]
            passed = (line,) if line >= 0 else ()
        with self._mark.starting():
            return subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", str(Path(launch_main.__file__))),
                    *(*options, "--", self._command.file, *self._command.arguments),
                ],
                stdin=terminal,
                stdout=terminal,
                stderr=terminal,
                start_new_session=True,
                pass_fds=passed,
                env={**env_marks.without_own_secrets(self._command.environment), **self._mark.variables()},
            )

    def _own_end(self, status: int, survivors: Sequence[ProcessInfo]) -> CallResult:
        self.exit_code = status if status >= 0 else 128 - status
        result = msgspec.json.encode({"exit_code": self.exit_code})
        left = in_words(survivors)
        if status == 0:
            return CallResult(outcome=Outcome.COMPLETED, result=result, left=left)
        how = f"exit status {status}" if status > 0 else signal.Signals(-status).name
        error = f"{self._name} ended with {how}."
        return CallResult(outcome=Outcome.FAILED, result=result, error=error, left=left)

    @property
    def _name(self) -> str:
        return os.path.basename(self._command.file)

    def _conclude(self, ended: CallResult) -> None:
        if not self._end.done():
            self._mark.is_closed = True
            self._end.set(ended)

    # -- stopping and holding

    async def abort(self) -> None:
        if self._aborting is None and not self._end.done():
            self._until = time.monotonic() + TOOL_GRACE_SECONDS
            self._aborting = asyncio.get_running_loop().create_task(self._abort(), context=outside())
        await self.ended()

    async def hurry(self) -> None:
        self._until = 0.0

    async def _abort(self) -> None:
        async with self._turn:
            if self._family is None:
                self._task.cancel()
                self._conclude(CallResult(outcome=Outcome.ABORTED, begun=False))
                return
        _log.info("kill: %s and all that it has started", self._name, extra={"call": self._mark.call})
        survivors = await termination.end(self._family, until=lambda: self._until)
        outcome = Outcome.DETACHED if survivors else Outcome.KILLED
        self._conclude(CallResult(outcome=outcome, left=in_words(survivors)))

    @property
    def is_ending(self) -> bool:
        """Whether the program itself is being ended, or has ended."""
        return self._aborting is not None or self._end.done()

    async def end_since(self, moment: float) -> bool:
        """End whatever of it was started at `moment` or later, as `table.now` counts; whether there was anybody. The
        program itself lives on, and hears of its commands what it hears when one is killed."""
        async with self._turn:
            if self._family is None or self._aborting is not None:
                return False
            members = await anyio.to_thread.run_sync(self._family.members)
            begun = [one for one in members if one.started >= moment]
            if begun:
                _log.info("end: %d processes that %s has started", len(begun), self._name)
                await termination.end(Family(roots=begun))
            return bool(begun)

    async def hold(self) -> bool:
        async with self._turn:
            if self._end.done() or self._aborting is not None:
                return False
            if self._family is not None and not self._command.freezes:
                return True
            if self._family is None:
                self._may_begin.clear()  # it has not begun, and will not until it may go on
                return True
            self._frozen += await termination.hold(self._family)
        return not self._end.done()

    async def resume(self) -> None:
        async with self._turn:
            self._may_begin.set()
            frozen, self._frozen = self._frozen, []
            if frozen:
                await termination.resume(frozen)
