"""A call of a `def` tool with `isolation="thread"`: in a daemon thread of its own, stopped where it cooperates.

`checkpoint()` raises in it, and so does the interpreter at the next Python instruction. A thread that sits in a
blocking system call or in C code hears neither; after the grace it is *detached*, and its effect is in doubt.
"""

from __future__ import annotations

import threading

from checkrein.core.words import Outcome
from checkrein.runtime import values
from checkrein.runtime.call import Aborted
from checkrein.runtime.interrupt import Interruptible
from checkrein.runtime.local import LocalPerformance
from checkrein.runtime.performance import Job, ToolEnded, failure


class ThreadPerformance(LocalPerformance):
    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._work = Interruptible(self._control.tell)
        context = self._context()
        name = f"checkrein {job.id}"
        self._thread = threading.Thread(target=context.run, args=(self._perform,), name=name, daemon=True)
        self._thread.start()

    def _perform(self) -> None:
        """In the thread."""
        function = self.job.function
        try:
            given = values.decode_arguments(function, self.job.arguments)
            result = self._work.run(lambda: function(**given))
            draft = ToolEnded(outcome=Outcome.COMPLETED, result=values.encode_result(function, result))
        except Aborted as error:
            draft = ToolEnded(outcome=Outcome.ABORTED) if self._control.was_told else failure(error)
        except BaseException as error:
            draft = failure(error)
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._thread_over, draft)

    def _thread_over(self, draft: ToolEnded) -> None:
        self._draft = draft
        if not self._control.is_stopping:
            self._spawn(self._returned())
            self.is_decided = True
        self._changed()

    def _tell(self) -> None:
        self._work.stop()
        self._tell_brood()

    def _is_parked(self) -> bool:
        return self._draft is None and self._thread.ident in self._control.parked

    def _own_name(self) -> tuple[str, ...]:
        return (f"{self.job.function.__qualname__} in a thread",)
