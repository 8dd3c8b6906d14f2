"""A call of an `async def` tool: a task of the event loop, ended with every task and thread it has started.

The tool runs inside two cancel scopes of anyio. The outer one is cancelled once; the inner one is a shield that is
lifted for an instant whenever the cancellation is to be delivered. So a tool gets one `CancelledError` at a time, as an
asyncio program expects, its own anyio shields hold, and one that swallows it does not spin.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import anyio

from checkrein.core.words import Outcome
from checkrein.runtime import tracking, values
from checkrein.runtime.local import LocalPerformance
from checkrein.runtime.performance import Job, ToolEnded, failure

_QUICK_TRIES: Final = 5


class TaskPerformance(LocalPerformance):
    def __init__(self, job: Job) -> None:
        super().__init__(job)
        tracking.install(self._loop)
        self._outer = anyio.CancelScope()
        self._shield = anyio.CancelScope(shield=True)
        self._begun = False
        self._retry: asyncio.Handle | None = None
        name = f"checkrein {job.id}"
        self._main = self._loop.create_task(self._perform(), name=name, context=self._context())
        self._main.add_done_callback(self._main_over)

    async def _perform(self) -> ToolEnded:
        if not self.job.may_begin():
            return ToolEnded(outcome=Outcome.ABORTED, begun=False)
        self._begun = True
        draft = ToolEnded(outcome=Outcome.ABORTED)
        function = self.job.function
        with self._outer, self._shield:
            try:
                given = values.decode_arguments(function, self.job.arguments)
                result: Any = await function(**given)
                draft = ToolEnded(outcome=Outcome.COMPLETED, result=values.encode_result(function, result))
            except asyncio.CancelledError as error:
                if self._control.was_told:
                    raise
                draft = failure(error)  # the tool has cancelled itself
            except BaseException as error:
                draft = failure(error)
        return draft

    def _main_over(self, task: asyncio.Task[ToolEnded]) -> None:
        if self._retry is not None:
            self._retry.cancel()
        if task.cancelled():
            self._draft = ToolEnded(outcome=Outcome.ABORTED, begun=self._begun)
        else:
            self._draft = task.result()
        if not self._control.is_stopping:
            if self._has_left_nothing():
                self._end_now()
            else:
                self._spawn(self._returned())
                self.is_decided = True
        self._changed()

    # -- stopping

    def _stop_before_it_begins(self) -> None:
        if not self._begun:
            self._control.stop()
            self._control.tell()
            self._main.cancel()

    def abandon(self) -> None:
        # asyncio.run() waits for every task it knows, and one that never ends would keep it waiting for ever.
        for task in self._brood.tasks:
            asyncio._unregister_task(task)
            task._log_destroy_pending = False  # type: ignore[attr-defined]

    def _tell(self) -> None:
        if self._main.done():
            self._tell_brood()
        elif self._begun:
            already = self._outer.cancel_called
            before = {task: task.cancelling() for task in self._brood.tasks}
            self._outer.cancel()
            self._deliver()
            if already:
                # The second time also to those that the scope does not reach. The first time they are left to the tool,
                # which may be about to end them in order.
                self._tell_brood(except_for={task for task, count in before.items() if task.cancelling() > count})

    def _deliver(self, tries: int = 1) -> None:
        """Deliver one cancellation to the tool: now, or as soon as it can take it.

        It cannot while it is just about to run, and while it is inside an anyio shield of its own.
        """
        if self._retry is not None:
            self._retry.cancel()
        if self._main.done():
            return
        before = self._main.cancelling()
        self._shield.shield = False
        self._shield.shield = True
        if self._main.cancelling() > before:
            self._control.tell()
        elif not self.is_decided:
            self._retry = self._loop.call_later(0.0 if tries < _QUICK_TRIES else 0.02, self._deliver, tries + 1)

    def _has_begun(self) -> bool:
        return self._begun

    # -- holding

    def _is_parked(self) -> bool:
        """All tasks wait; the first one may instead be waiting for the others."""
        others = self._brood.tasks - {self._main}
        parked = self._control.parked
        return others <= parked and (self._main in parked or bool(others)) and not self._main.done()
