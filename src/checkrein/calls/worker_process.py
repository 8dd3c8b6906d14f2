"""A call of a plain `def` tool in a worker process: the kind that can always be stopped.

An abort ends the worker with everything that came from it, by group, tree and mark: SIGTERM, the grace, SIGKILL. So it
works on a tool that sleeps, computes in C, or ignores signals. The outcome is then *killed*; what the tool had done by
then is not known.

The tool shares its process with the code that speaks for it, so nothing that comes over the line is believed without a
bound: a shield ends when the driver says so, an end counts once the worker's main loop has answered to a nonce, and
what is no message of ours ends the worker.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import signal
from collections.abc import Sequence
from typing import Final

from checkrein.calls.arguments import is_readable_json
from checkrein.calls.base import CallResult, in_words
from checkrein.calls.imports import Target, target_of
from checkrein.calls.tool_execution import HeldShield, ToolCall, ToolExecution, held_shield
from checkrein.calls.workers.pool import Workers
from checkrein.calls.workers.process import WorkerProcess
from checkrein.core.enums import Outcome
from checkrein.errors import NotImportable
from checkrein.processes import env_marks, termination
from checkrein.processes.families import Family
from checkrein.processes.ipc import BadMessage, Head
from checkrein.processes.table import ProcessInfo

_log = logging.getLogger(__name__)


_OWN_END_SECONDS: Final = 0.5
_MOST_SHIELDS: Final = 100
"""How many sections one within another are counted. Nobody writes that by hand."""


class WorkerExecution(ToolExecution):
    def __init__(self, tool_call: ToolCall, target: Target, workers: Workers) -> None:
        super().__init__(tool_call)
        self._target = target
        self._workers = workers
        self._worker: WorkerProcess | None = None
        self._family: Family | None = None
        self._answer: tuple[Head, bytes] | None = None
        self._news = asyncio.Event()
        self._shields: list[HeldShield] = []
        self._is_settled = False
        self._is_killing = False
        self._frozen: list[ProcessInfo] = []
        self._gate = asyncio.Event()
        self._gate.set()
        self._freezing = asyncio.Lock()
        self._running = self._spawn(self._run())

    # -- the call

    async def _run(self) -> None:
        try:
            worker = await self._begin()
        except asyncio.CancelledError:
            await self._conclude(CallResult(outcome=Outcome.ABORTED, begun=False))
            return
        except OSError as error:
            message = f"no worker process could be started: {error}"
            await self._conclude(CallResult(outcome=Outcome.FAILED, error=message, begun=False))
            return
        await self._news.wait()
        if not self._is_killing:  # else whoever stops the call has the last word
            await self._finish(worker)

    async def _begin(self) -> WorkerProcess:
        """Wait for a worker and give it the call."""
        worker = await self._workers.take(self.tool_call.run)
        try:
            await self._gate.wait()
        except asyncio.CancelledError:
            self._workers.give_back(worker)
            raise
        if self._aborting is not None or not self.tool_call.may_begin():
            self._workers.give_back(worker)
            raise asyncio.CancelledError
        tool_call = self.tool_call
        worker.on_message = self._hear
        worker.on_exit = self._news.set
        self._family = worker.family((env_marks.CALL, tool_call.mark))
        self._worker = worker  # from here on an abort means a kill
        head = {
            "target": self._target,
            "id": tool_call.id,
            "key": tool_call.key,
            "attempt": tool_call.attempt,
            "mark": tool_call.mark,
            "most": tool_call.result_bytes,
        }
        await worker.send(
            {"call": {**head, "folder": str(tool_call.folder), "deps": _deps(tool_call.deps)}}, tool_call.arguments
        )
        if worker.is_over:
            self._news.set()
        return worker

    def _hear(self, head: Head, body: bytes) -> None:
        """Take what the worker says. Raises `BadMessage` for what no worker of ours says now."""
        match head:
            case {"end": "completed" | "aborted" as end, "left": bool(), "told": bool()} if self._answer is None:
                if end == "completed" and not is_readable_json(body):
                    raise BadMessage("What it returned is no JSON that can be read.")
                self._answer = head, body
                self._news.set()
            case {
                "end": "failed",
                "left": bool(),
                "told": bool(),
                "type": str(),
                "message": str(),
                "traceback": str(),
            } if self._answer is None:
                self._answer = head, body
                self._news.set()
            case {"settled": True}:
                self._is_settled = True
            case {"shield": None} if self._shields:
                self._shields.pop()
            case {"shield": int() | float() as seconds} if seconds > 0 and len(self._shields) < _MOST_SHIELDS:
                self._shields.append(held_shield(seconds))
            case _:
                raise BadMessage(f"{', '.join(map(repr, head))[:100] or 'nothing'} is not what a worker says now.")
        self._wake.set()

    async def _finish(self, worker: WorkerProcess) -> None:
        """The call has ended by itself, one way or another."""
        await self.resume()
        is_told = self._answer is not None and not self._answer[0]["left"]
        worker_is_clean = is_told and await worker.is_back()
        if self._is_killing:
            return
        self.is_decided = True
        if worker_is_clean:
            self._workers.give_back(worker)
            await self._conclude(self._told_ending(left=()))
            return
        if self._answer is None and worker.fault is None:
            # One that says no more may be just ending, for a reason of its own: what ends it is not our signal.
            await worker.exited(_OWN_END_SECONDS)
        if is_told and not worker.is_over:
            worker.fault = "it said that the call was over, and went on"
        survivors = await termination.end(self._whole_family())
        status = worker.reap()
        self._workers.forget(worker)
        if self._answer is not None and worker.fault is None:
            await self._conclude(self._told_ending(left=in_words(survivors)))
        else:
            await self._conclude(self._crash(worker.fault or _cause(status), survivors))

    def _told_ending(self, left: tuple[str, ...]) -> CallResult:
        assert self._answer is not None
        head, body = self._answer
        match head["end"]:
            case "completed":
                return CallResult(outcome=Outcome.COMPLETED, result=body, settled=self._is_settled, left=left)
            case "failed":
                error = f"{head['type']}: {head['message']}"
                trace = head["traceback"]
                return CallResult(
                    outcome=Outcome.FAILED, error=error, traceback=trace, settled=self._is_settled, left=left
                )
            case _:
                return CallResult(outcome=Outcome.KILLED, settled=self._is_settled, left=left)

    def _crash(self, why: str, survivors: list[ProcessInfo]) -> CallResult:
        was_ended = self._worker is not None and self._worker.fault is not None
        how = "had to be ended" if was_ended else "died in the middle of the call"
        error = f"The worker process of {self._target.qualname} {how}: {why}."
        _log.warning(error, extra={"call": self.tool_call.key})
        return CallResult(outcome=Outcome.FAILED, error=error, settled=self._is_settled, left=in_words(survivors))

    def _whole_family(self) -> Family:
        assert self._family is not None
        return self._family

    # -- stopping and holding

    async def _abort(self) -> None:
        if self._worker is None:
            self._running.cancel()
            return
        await self._shield_over()
        if self.is_decided:
            return
        self._is_killing = True
        worker = self._worker
        worker.announce_stop()
        _log.info(
            "kill: worker process %d of %s", worker.pid, self._target.qualname, extra={"call": self.tool_call.key}
        )
        survivors = await termination.end(self._whole_family(), until=lambda: self._until)
        worker.reap()  # which also hears what it said last
        self._news.set()
        finished_first = self._answer is not None and not self._answer[0]["told"]
        if finished_first:
            ended = self._told_ending(left=in_words(survivors))
        else:
            outcome = Outcome.DETACHED if survivors else Outcome.KILLED
            if survivors:
                self._spawn(self._survivors_over(self._whole_family()))
            ended = CallResult(outcome=outcome, settled=self._is_settled, left=in_words(survivors))
        self._workers.forget(worker)
        await self._conclude(ended)

    async def _survivors_over(self, family: Family) -> None:
        await self._gone(family)
        if self.tool_call.on_late_end is not None:
            self.tool_call.on_late_end()

    def _shields_held(self) -> Sequence[HeldShield]:
        return self._shields

    async def hold(self) -> bool:
        async with self._freezing:
            if self.is_decided or self._aborting is not None:
                return False
            if self._family is None:
                self._gate.clear()  # it has not begun, and will not until it may go on
                return True
            self._frozen += await termination.hold(self._family)
        if self._news.is_set():
            await self.resume()
            return False
        return True

    async def resume(self) -> None:
        async with self._freezing:
            self._gate.set()
            frozen, self._frozen = self._frozen, []
            if frozen:
                await termination.resume(frozen)


def _deps(deps: object) -> Target | str | None:
    """Where the worker finds the function that makes `deps`; a sentence when there is none."""
    if deps is None:
        return None
    if not inspect.isroutine(deps):
        return "The agent's deps are a value of its own process. Give it a function at the top level of a module."
    try:
        return target_of(deps)
    except NotImportable as error:
        return error.message


def _cause(status: int | None) -> str:
    if status is None:
        return "it could not be ended"
    if status >= 0:
        return f"it left with exit status {status}"
    name = signal.Signals(-status).name
    hint = "; the system may have run out of memory" if -status == signal.SIGKILL else ""
    return f"it was ended by {name}{hint}"
