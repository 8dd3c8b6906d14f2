"""A call of an `async def` tool in a task of the event loop."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Any, Final

import anyio

from checkrein import asyncutil
from checkrein.asyncutil import is_torn_down, watch_teardown
from checkrein.calls import arguments
from checkrein.calls.base import CallResult
from checkrein.calls.in_process.execution import InProcessExecution
from checkrein.calls.tool_execution import ToolCall, failure
from checkrein.core.enums import Outcome

_log = logging.getLogger(__name__)

_QUICK_TRIES: Final = 5


class TaskExecution(InProcessExecution):
    """A task of the event loop, ended with every task and thread it has started.

    The tool runs inside two cancel scopes of anyio. The outer one is cancelled once; the inner one is a shield that is
    lifted for an instant whenever the cancellation is to be delivered. So a tool gets one `CancelledError` at a time,
    as an asyncio program expects, its own anyio shields hold, and one that swallows it does not spin.
    """

    def __init__(self, tool_call: ToolCall) -> None:
        super().__init__(tool_call)
        watch_teardown()
        self._outer = anyio.CancelScope()
        self._shield = anyio.CancelScope(shield=True)
        self._begun = False
        self._pid = os.getpid()
        self._retry: asyncio.Handle | None = None
        name = f"checkrein {tool_call.id}"
        self._main = self._loop.create_task(self._perform(), name=name, context=self._context())
        self._main.add_done_callback(self._main_over)

    async def _perform(self) -> CallResult:
        if not self.tool_call.may_begin():
            return CallResult(outcome=Outcome.ABORTED, begun=False)
        self._begun = True
        draft = CallResult(outcome=Outcome.ABORTED)
        function = self.tool_call.function
        with self._outer, self._shield:
            try:
                given = arguments.decode_arguments(function, self.tool_call.arguments)
                result: Any = await function(**given)
                encoded = arguments.encode_result(function, result, most=self.tool_call.result_bytes)
                draft = CallResult(outcome=Outcome.COMPLETED, result=encoded)
            except asyncio.CancelledError as error:
                if self._control.was_told or is_torn_down(self._loop):
                    raise
                draft = failure(error)  # nobody has asked for it, so it is the tool's own
            except BaseException as error:
                draft = failure(error)
        if os.getpid() != self._pid:
            os._exit(0)  # a fork that comes back as if it were this process
        return draft

    def _main_over(self, task: asyncio.Task[CallResult]) -> None:
        if self._retry is not None:
            self._retry.cancel()
        if task.cancelled():
            self._draft = CallResult(outcome=Outcome.ABORTED, begun=self._begun)
        else:
            self._draft = task.result()
        if is_torn_down(self._loop) and not self._control.is_stopping:
            pass  # the process is about to end; what it was doing is for whoever takes the run over to say
        elif not self._control.is_stopping:
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
        super().abandon()
        for task in self._child_tasks.tasks:
            asyncutil.abandon(task)

    def _tell(self) -> None:
        if self._main.done():
            self._tell_child_tasks()
        elif self._begun:
            already = self._outer.cancel_called
            before = {task: task.cancelling() for task in self._child_tasks.tasks}
            self._outer.cancel()
            self._deliver()
            if already:
                # The second time also to those that the scope does not reach. The first time they are left to the tool,
                # which may be about to end them in order.
                heard = {task for task, count in before.items() if task.cancelling() > count}
                if self._main not in heard:
                    self._control.tell()
                self._tell_child_tasks(except_for=heard)

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
        others = self._child_tasks.tasks - {self._main}
        parked = self._control.parked
        return others <= parked and (self._main in parked or bool(others)) and not self._main.done()
