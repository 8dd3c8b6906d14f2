"""A call of a `def` tool in a thread, stopped by an exception that is raised in it."""

from __future__ import annotations

import os
import threading

from checkrein.calls import arguments
from checkrein.calls.base import CallResult
from checkrein.calls.current import Aborted
from checkrein.calls.in_process.child_tasks import Interruptible, outside
from checkrein.calls.in_process.execution import InProcessExecution
from checkrein.calls.tool_execution import ToolCall, failure
from checkrein.core.enums import Outcome


class ThreadExecution(InProcessExecution):
    """A daemon thread of its own, stopped where it cooperates.

    `checkpoint()` raises in it, and so does the interpreter at the next Python instruction. A thread that sits in a
    blocking system call or in C code hears neither; after the grace it is *detached*, and its effect is in doubt.
    """

    def __init__(self, tool_call: ToolCall) -> None:
        super().__init__(tool_call)
        self._work = Interruptible(self._control.tell)
        self._pid = os.getpid()
        context = self._context()
        self._outside = outside()
        name = f"checkrein {tool_call.id}"
        self._thread = threading.Thread(target=context.run, args=(self._perform,), name=name, daemon=True)
        self._thread.start()

    def _perform(self) -> None:
        """In the thread."""
        function = self.tool_call.function
        try:
            given = arguments.decode_arguments(function, self.tool_call.arguments)
            result = self._work.run(lambda: function(**given))
            encoded = arguments.encode_result(function, result, most=self.tool_call.result_bytes)
            draft = CallResult(outcome=Outcome.COMPLETED, result=encoded)
        except Aborted as error:
            draft = CallResult(outcome=Outcome.ABORTED) if self._control.was_told else failure(error)
        except BaseException as error:
            draft = failure(error)
        if os.getpid() != self._pid:
            os._exit(0)  # a fork that comes back as if it were this process
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._thread_over, draft, context=self._outside)

    def _thread_over(self, draft: CallResult) -> None:
        self._draft = draft
        if not self._control.is_stopping:
            self._spawn(self._returned())
            self.is_decided = True
        self._changed()

    def _tell(self) -> None:
        self._work.stop()
        self._tell_child_tasks()

    def _is_parked(self) -> bool:
        return self._draft is None and self._thread.ident in self._control.parked

    def _own_name(self) -> tuple[str, ...]:
        return (f"{self.tool_call.function.__qualname__} in a thread",)
