"""A call of a plain `def` tool in a worker process: the kind that can always be stopped.

An abort ends the worker with everything that came from it, by group, tree and mark: SIGTERM, the grace, SIGKILL. So it
works on a tool that sleeps, computes in C, or ignores signals. The outcome is then *killed*; what the tool had done by
then is not known.
"""

from __future__ import annotations

import asyncio
import inspect
import signal
from collections.abc import Iterable

from checkrein.core.words import Outcome
from checkrein.errors import NotImportable
from checkrein.runtime import marking, processes
from checkrein.runtime.channel import Head
from checkrein.runtime.importable import target_of
from checkrein.runtime.lineage import Family
from checkrein.runtime.loading import Target
from checkrein.runtime.performance import Job, ToolEnded, ToolPerformance
from checkrein.runtime.table import Row
from checkrein.runtime.worker_process import WorkerProcess
from checkrein.runtime.workers import Workers


class WorkerPerformance(ToolPerformance):
    def __init__(self, job: Job, target: Target, workers: Workers) -> None:
        super().__init__(job)
        self._target = target
        self._workers = workers
        self._worker: WorkerProcess | None = None
        self._family: Family | None = None
        self._answer: tuple[Head, bytes] | None = None
        self._news = asyncio.Event()
        self._shields: list[float] = []
        self._is_settled = False
        self._is_killing = False
        self._frozen: list[Row] = []
        self._gate = asyncio.Event()
        self._gate.set()
        self._freezing = asyncio.Lock()
        self._running = self._spawn(self._run())

    # -- the call

    async def _run(self) -> None:
        try:
            worker = await self._begin()
        except asyncio.CancelledError:
            await self._conclude(ToolEnded(outcome=Outcome.ABORTED, begun=False))
            return
        except OSError as error:
            message = f"no worker process could be started: {error}"
            await self._conclude(ToolEnded(outcome=Outcome.FAILED, error=message, begun=False))
            return
        await self._news.wait()
        if self._is_killing:
            return  # whoever stops the call has the last word
        self.is_decided = True
        await self._finish(worker)

    async def _begin(self) -> WorkerProcess:
        """Wait for a worker and give it the call."""
        worker = await self._workers.take()
        try:
            await self._gate.wait()
        except asyncio.CancelledError:
            self._workers.give_back(worker)
            raise
        if self._aborting is not None or not self.job.may_begin():
            self._workers.give_back(worker)
            raise asyncio.CancelledError
        job = self.job
        worker.on_message = self._hear
        worker.on_exit = self._news.set
        self._family = worker.family((marking.CALL, job.mark))
        self._worker = worker  # from here on an abort means a kill
        head = {"target": self._target, "id": job.id, "key": job.key, "attempt": job.attempt, "mark": job.mark}
        await worker.send({"call": {**head, "folder": str(job.folder), "deps": _deps(job.deps)}}, job.arguments)
        if worker.is_over:
            self._news.set()
        return worker

    def _hear(self, head: Head, body: bytes) -> None:
        if "end" in head:
            self._answer = head, body
            self._news.set()
        elif "settled" in head:
            self._is_settled = True
        elif "shield" in head:
            if head["shield"] is None:
                self._shields.pop()
            else:
                self._shields.append(head["shield"])
        self._stir.set()

    async def _finish(self, worker: WorkerProcess) -> None:
        """The call has ended by itself, one way or another."""
        await self.go_on()
        if self._answer is not None and not self._answer[0]["left"] and not worker.is_over:
            worker_is_clean = True
            survivors: list[Row] = []
        else:
            worker_is_clean = False
            survivors = await processes.end(self._whole_family())
        ended = self._told_ending(left=_in_words(survivors)) if self._answer is not None else None
        if worker_is_clean:
            self._workers.give_back(worker)
        else:
            status = worker.bury()
            ended = ended or self._crash(status, survivors)
            self._workers.forget(worker)
        assert ended is not None
        await self._conclude(ended)

    def _told_ending(self, left: tuple[str, ...]) -> ToolEnded:
        assert self._answer is not None
        head, body = self._answer
        match head["end"]:
            case "completed":
                return ToolEnded(outcome=Outcome.COMPLETED, result=body, settled=self._is_settled, left=left)
            case "failed":
                error = f"{head['type']}: {head['message']}"
                trace = head["traceback"]
                return ToolEnded(
                    outcome=Outcome.FAILED, error=error, traceback=trace, settled=self._is_settled, left=left
                )
            case _:
                return ToolEnded(outcome=Outcome.KILLED, settled=self._is_settled, left=left)

    def _crash(self, status: int | None, survivors: list[Row]) -> ToolEnded:
        error = f"The worker process of {self._target.qualname} died in the middle of the call: {_cause(status)}."
        return ToolEnded(
            outcome=Outcome.FAILED, error=error, crashed=True, settled=self._is_settled, left=_in_words(survivors)
        )

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
        survivors = await processes.end(self._whole_family(), until=lambda: self._until)
        worker.bury()  # which also hears what it said last
        self._news.set()
        finished_first = self._answer is not None and not self._answer[0]["told"]
        if finished_first:
            ended = self._told_ending(left=_in_words(survivors))
        else:
            outcome = Outcome.DETACHED if survivors else Outcome.KILLED
            ended = ToolEnded(outcome=outcome, settled=self._is_settled, left=_in_words(survivors))
        self._workers.forget(worker)
        await self._conclude(ended)

    def _shield_seconds(self) -> float | None:
        return max(self._shields, default=None)

    async def hold(self) -> bool:
        async with self._freezing:
            if self.is_decided or self._aborting is not None:
                return False
            if self._family is None:
                self._gate.clear()  # it has not begun, and will not until it may go on
                return True
            self._frozen += await processes.hold(self._family)
        if self._news.is_set():
            await self.go_on()
            return False
        return True

    async def go_on(self) -> None:
        async with self._freezing:
            self._gate.set()
            frozen, self._frozen = self._frozen, []
            if frozen:
                await processes.go_on(frozen)

    def pids(self) -> tuple[int, ...]:
        return () if self._worker is None or self._end.done() else (self._worker.pid,)


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


def _in_words(survivors: Iterable[Row]) -> tuple[str, ...]:
    return tuple(f"process {one.pid}" for one in survivors)


def _cause(status: int | None) -> str:
    if status is None:
        return "it could not be ended"
    if status >= 0:
        return f"it left with exit status {status}"
    name = signal.Signals(-status).name
    hint = "; the system may have run out of memory" if -status == signal.SIGKILL else ""
    return f"it was ended by {name}{hint}"
