"""The worker pool: warm worker processes.

A worker performs one call at a time and is used again after a clean end: no processes or threads left behind, the
folder and the environment put back. What a tool leaves in its module's variables stays there for the next call in the
same worker, and is not seen in others. After anything else the worker is ended, and another is warmed in its place.

A run gets a worker that has served it before, or one that has served nobody, where there is one: when the run is
stopped all that have served it are ended, whatever they say of themselves.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import deque
from collections.abc import Coroutine, Iterable
from typing import Any, Final, Self

from checkrein.asyncutil import run_to_completion
from checkrein.calls.arguments import RESULT_BYTES
from checkrein.calls.imports import Target, refuse_in_worker
from checkrein.calls.in_process.child_tasks import outside
from checkrein.calls.workers.process import LEAVE_SECONDS, WorkerProcess
from checkrein.errors import MisuseError

MOST: Final = 32
IDLE_SECONDS: Final = 60.0
_STOPPED_SECONDS: Final = 0.3
"""How long a worker that has served a run which is stopped is given to leave by itself before it is killed."""
_STARTS_AT_ONCE: Final = max(2, os.cpu_count() or 1)


class Workers:
    """`async with Workers(runtime) as workers:`; belongs to one event loop.

    At most `most` workers live at a time; more calls wait for their turn, first come, first served. `warm` of them are
    kept ready. The modules of `preload` are imported before the first call comes.
    """

    def __init__(
        self,
        runtime: str,
        *,
        most: int = MOST,
        warm: int = 1,
        preload: Iterable[Target] = (),
        idle_seconds: float = IDLE_SECONDS,
        result_bytes: int = RESULT_BYTES,
    ) -> None:
        self.runtime = runtime
        self._result_bytes = result_bytes
        self._most = most
        self._warm = min(warm, most)
        self._preload = list(preload)
        self._idle_seconds = idle_seconds
        self._idle: list[WorkerProcess] = []
        self._workers: set[WorkerProcess] = set()
        self._starting = 0
        self._waiting: deque[asyncio.Future[WorkerProcess]] = deque()
        self._jobs: set[asyncio.Task[Any]] = set()
        self._trim_timer: asyncio.TimerHandle | None = None
        self._is_open = False

    async def __aenter__(self) -> Self:
        refuse_in_worker()
        self._is_open = True
        self._fill()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End every worker, also one that is performing a call. Returns, also when cancelled, when none is left."""
        await run_to_completion(self._close())

    async def _close(self) -> None:
        self._is_open = False
        if self._trim_timer is not None:
            self._trim_timer.cancel()
        while self._waiting:
            self._waiting.popleft().cancel()
        while self._jobs:  # those that are just starting
            await asyncio.wait(self._jobs)
        await asyncio.gather(*(self._dismiss(worker) for worker in list(self._workers)))

    def expect(self, target: Target) -> None:
        """Let workers that start from now on import this module beforehand."""
        if target not in self._preload:
            self._preload.append(target)

    # -- taking and giving back

    async def take(self, run: str = "") -> WorkerProcess:
        """A worker for one call of a run. `give_back` or `discard` it afterwards. Raises `OSError` if none can be
        started."""
        if not self._is_open:
            raise MisuseError("These workers are closed.")
        worker = self._pop_idle(run)
        if worker is None:
            worker = await self._wait()
        if run:
            worker.runs.add(run)
        self._fill()
        return worker

    def give_back(self, worker: WorkerProcess) -> None:
        """It ended its call cleanly and is ready for another."""
        worker.on_message = None
        worker.on_exit = lambda: self._lost_idle(worker)
        if not self._is_open or worker.is_over or worker.is_spent:
            self.discard(worker)
        elif not self._hand_over(worker):
            self._idle.append(worker)
            self._trim_later()

    def discard(self, worker: WorkerProcess) -> None:
        """It is not to be used again: end it if it still lives, and warm another."""
        worker.on_message = None
        worker.on_exit = None
        if worker in self._workers:
            self._spawn(self._replace(worker))

    def forget(self, worker: WorkerProcess) -> None:
        """Somebody has ended and buried it: warm another."""
        self._workers.discard(worker)
        self._fill()

    async def end_those_of(self, run: str) -> None:
        """End every worker that has served a run, which makes no call now. Returns when they have ended; one that is
        busy with a call of another run ends with that call."""
        served = [worker for worker in self._workers if run in worker.runs]
        for worker in served:
            worker.is_spent = True
        idle = [worker for worker in served if worker in self._idle]
        for worker in idle:
            self._idle.remove(worker)
        await asyncio.gather(*(self._dismiss(worker, _STOPPED_SECONDS) for worker in idle))
        self._fill()

    def _lost_idle(self, worker: WorkerProcess) -> None:
        """It has ended, or said something that it has no reason to say."""
        if worker in self._idle:
            self._idle.remove(worker)
            self.discard(worker)

    async def _replace(self, worker: WorkerProcess) -> None:
        await self._dismiss(worker)
        self._fill()

    async def _dismiss(self, worker: WorkerProcess, seconds: float = LEAVE_SECONDS) -> None:
        if worker in self._workers:
            self._workers.discard(worker)
            worker.on_message = worker.on_exit = None
            await worker.leave(seconds)

    @property
    def _count(self) -> int:
        return len(self._workers) + self._starting

    def _pop_idle(self, run: str) -> WorkerProcess | None:
        while self._idle:
            # Of those that suit it best the one that was used last.
            worker = min(reversed(self._idle), key=lambda one: 0 if run in one.runs else 2 if one.runs else 1)
            self._idle.remove(worker)
            if not worker.is_over:
                return worker
            self.discard(worker)
        return None

    async def _wait(self) -> WorkerProcess:
        waiter: asyncio.Future[WorkerProcess] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        self._fill()
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self.give_back(waiter.result())
            raise

    def _hand_over(self, worker: WorkerProcess) -> bool:
        waiter = self._next_waiter()
        if waiter is not None:
            waiter.set_result(worker)
        return waiter is not None

    def _next_waiter(self) -> asyncio.Future[WorkerProcess] | None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                return waiter
        return None

    # -- starting and trimming

    def _fill(self) -> None:
        """Start as many as are waited for and to be kept warm, a few at a time: those that live may be enough."""
        if not self._is_open:
            return
        waited_for = sum(not waiter.done() for waiter in self._waiting)
        wanted = waited_for + self._warm - len(self._idle) - self._starting
        room = min(self._most - self._count, _STARTS_AT_ONCE - self._starting)
        for _ in range(min(wanted, room)):
            self._starting += 1
            self._spawn(self._start())

    async def _start(self) -> None:
        """In a task of its own, so that whoever waits for it may go away at any time."""
        hello = {"path": sys.path, "argv": sys.argv, "preload": self._preload}
        try:
            worker = await WorkerProcess.start(self.runtime, hello, result_bytes=self._result_bytes)
        except OSError as error:
            waiter = self._next_waiter()
            if waiter is not None:
                waiter.set_exception(error)
            return
        finally:
            self._starting -= 1
        self._workers.add(worker)
        self.give_back(worker)
        self._fill()

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.get_running_loop().create_task(work, context=outside())
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)

    def _trim_later(self) -> None:
        if len(self._idle) > self._warm and self._trim_timer is None:
            self._trim_timer = asyncio.get_running_loop().call_later(self._idle_seconds, self._trim)

    def _trim(self) -> None:
        self._trim_timer = None
        while len(self._idle) > self._warm:
            self._spawn(self._dismiss(self._idle.pop(0)))
