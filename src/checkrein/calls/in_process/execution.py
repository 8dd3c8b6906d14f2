"""What a task and a thread have in common: marks, a control, what they have started, and child processes to end."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import time
from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final
from weakref import WeakSet

import msgspec

from checkrein.calls import arguments
from checkrein.calls import current as calls
from checkrein.calls.base import CallResult
from checkrein.calls.in_process import child_tasks, instrumentation
from checkrein.calls.in_process.local_control import LocalControl
from checkrein.calls.tool_execution import HeldShield, ToolCall, ToolExecution
from checkrein.core.enums import Outcome
from checkrein.processes import env_marks, orphans, table, termination
from checkrein.processes.env_marks import Mark
from checkrein.processes.families import Family
from checkrein.processes.table import ProcessInfo
from checkrein.timings import HOLD_SECONDS, TOOL_GRACE_SECONDS

_log = logging.getLogger(__name__)

_THREAD_END_SECONDS: Final = 0.1
"""How long a call that has ended by itself waits for threads that may be just ending."""
_STRAY_LOOK_SECONDS: Final = 0.5
_AFTER_DETACHING: Final = 8
"""How often one that was let go is told again to stop, at intervals that double."""


_at_work: Final[WeakSet[InProcessExecution]] = WeakSet()


class InProcessExecution(ToolExecution):
    """The stop of a call that cannot be killed, because it shares this process.

    It is told to stop, and told again after a half and three quarters of the grace. Not more often, so that one that
    cleans up is left in peace, and one that swallows it does not spin. After the grace it is *detached*: it may still
    be running, can start no more processes, and whatever it returns is dropped.
    """

    def __init__(self, tool_call: ToolCall) -> None:
        super().__init__(tool_call)
        self._control = LocalControl(self._changed)
        self._mark = Mark(tool_call.runtime, tool_call.mark)
        self._born = table.birth_of_self()
        self._began = table.now()
        self._family: Family | None = None
        self._survivors: tuple[str, ...] = ()
        """Processes of the call that could not be ended, in words."""
        self._strays: list[ProcessInfo] = []
        """Processes without a mark that are of this call or of another one that goes on."""
        instrumentation.install(self._loop)
        self._child_tasks = child_tasks.ChildTasks(self._control.tell, self._changed)
        self._draft: CallResult | None = None
        """How the function ended; None while it runs."""
        self._frozen: list[ProcessInfo] = []
        self._freezing = asyncio.Lock()
        self._tells_when_over = False
        _at_work.add(self)

    @abstractmethod
    def _tell(self) -> None:
        """Tell everything of the call that still runs to stop."""

    @abstractmethod
    def _is_parked(self) -> bool:
        """Whether nothing of the call runs, because all of it waits at checkpoints."""

    def _tell_child_tasks(self, except_for: Collection[asyncio.Task[Any]] = ()) -> None:
        for task in list(self._child_tasks.tasks):
            if task not in except_for and not task.done():
                task.cancel()
        for work in list(self._child_tasks.works):
            work.stop()
        if self._control.is_stopping:  # a thread that a call leaves behind which has ended by itself is left in peace
            for thread in list(self._child_tasks.threads):
                thread.stop()

    def _is_over(self) -> bool:
        return self._draft is not None and not self._child_tasks and not self._survivors

    def _is_over_but_for_threads(self) -> bool:
        return self._draft is not None and not self._child_tasks.has_work

    def _context(self) -> contextvars.Context:
        """The context that the tool runs in."""
        tool_call = self.tool_call
        call = calls.Call(
            id=tool_call.id,
            key=tool_call.key,
            attempt=tool_call.attempt,
            arguments=arguments.shown_arguments(tool_call.arguments),
            folder=tool_call.folder,
            control=self._control,
            deps=lambda: calls.made_by(tool_call.deps) if inspect.isroutine(tool_call.deps) else tool_call.deps,
        )
        context = contextvars.copy_context()
        context.run(calls.enter_call, call)
        context.run(env_marks.current.set, self._mark)
        context.run(child_tasks.current.set, self._child_tasks)
        return context

    def _changed(self) -> None:
        self._wake.set()
        if self._tells_when_over and self._is_over():
            self._tells_when_over = False
            if self.tool_call.on_late_end is not None:
                self.tool_call.on_late_end()
        elif self._control.is_held and self.tool_call.on_held is not None and self._is_parked():
            self.tool_call.on_held()

    # -- the end

    def _has_left_nothing(self) -> bool:
        return not self._child_tasks and not self._mark.has_started_any and not self._has_files()

    def _end_now(self) -> None:
        """The function is over and has left nothing behind: so is the call, without further ado."""
        assert self._draft is not None
        self.is_decided = self._mark.is_closed = True
        self._child_tasks.close()
        if self._control.is_settled:
            self._draft = msgspec.structs.replace(self._draft, settled=True)
        self._tell_end(self._draft)

    async def _returned(self) -> None:
        """The function is over, and nobody had asked it to stop: end whatever it has left behind."""
        self.is_decided = True
        self._grace = min(self._grace, TOOL_GRACE_SECONDS)
        self._until = time.monotonic() + self._grace
        if self._child_tasks:
            self._tell()
        ending = self._begin_to_end_processes()
        await self._told_until(self._is_over_but_for_threads)
        await self._threads_over(_THREAD_END_SECONDS)
        await self._let_go(ending)
        assert self._draft is not None
        await self._end_with(self._draft)

    async def _threads_over(self, seconds: float) -> None:
        """Return when the threads that the tool has started are over, or after so many seconds."""
        give_up = time.monotonic() + seconds
        while self._child_tasks.threads and (left := give_up - time.monotonic()) > 0:
            await self._change(left)

    async def _abort(self) -> None:
        await self._shield_over()
        if self.is_decided:
            return
        self._control.stop()
        began, quarter = time.monotonic(), self._left_of_grace() / 4
        self._tell()
        while self._draft is None and time.monotonic() < began + quarter and self._left_of_grace() > 0:
            await self._change(min(quarter, self._left_of_grace()))
        ending = self._begin_to_end_processes()
        self._tell()
        await self._told_until(self._is_over)
        await self._let_go(ending)
        await self._end_with(self._ending_of_abort())

    async def _told_until(self, over: Callable[[], bool]) -> None:
        """Return when it is over, or the grace; tell it again in between."""
        began, grace = time.monotonic(), self._left_of_grace()
        for part in (0.5, 0.75, 1.0):
            while not over() and time.monotonic() < began + grace * part and self._left_of_grace() > 0:
                await self._change(max(0.0, min(began + grace * part - time.monotonic(), self._left_of_grace())))
            if over() or self._left_of_grace() <= 0:
                return
            self._tell()

    def _ending_of_abort(self) -> CallResult:
        if self._draft is not None and not self._control.was_told:
            return self._draft  # it had finished first
        if self._is_over():
            return CallResult(outcome=Outcome.ABORTED, begun=self._has_begun())
        what = (
            "its result will be dropped" if self._draft is None or not self._survivors else "processes of it still run"
        )
        return CallResult(outcome=Outcome.DETACHED, error=f"It could not be stopped; {what}.")

    def _has_begun(self) -> bool:
        return True

    async def _end_with(self, ended: CallResult) -> None:
        left = self._child_tasks.names() if self._draft is not None else (*self._child_tasks.names(), *self._own_name())
        ended = msgspec.structs.replace(ended, settled=self._control.is_settled, left=left + self._survivors)
        if not self._is_over():
            _log.warning(
                "could not be stopped and is left: %s", ", ".join(ended.left), extra={"call": self.tool_call.key}
            )
            self._tells_when_over = True
            self._tell_now_and_then(_AFTER_DETACHING, max(self._grace, 0.5))
            if self._survivors and self._family is not None:
                self._spawn(self._survivors_over(self._family))
        await self._conclude(ended)

    def _own_name(self) -> tuple[str, ...]:
        return ()

    def _tell_now_and_then(self, times: int, seconds: float) -> None:
        if times and not self._is_over():
            self._tell()
            self._loop.call_later(seconds, self._tell_now_and_then, times - 1, seconds * 2)

    # -- processes

    def _find_family(self) -> Family | None:
        """The processes of this call; None when it never started any."""
        if not self._mark.has_started_any:
            return None
        if self._family is None:
            self._family = Family(marks=((env_marks.CALL, self.tool_call.mark),), since=self._born)
        for child in self._mark.children:
            found = table.row(child.pid) if child.returncode is None else None
            if found is not None:
                self._family.add(found)
        while self._mark.roots:
            self._family.add(self._mark.roots.pop())
        return self._family

    def _begin_to_end_processes(self) -> asyncio.Task[None]:
        return self._spawn(self._end_processes())

    async def _end_processes(self) -> None:
        family = self._find_family()
        if family is not None:
            survivors = await termination.end(family, until=lambda: self._until)
            survivors += await self._end_strays(family)
            self._survivors = tuple(f"process {one.pid}" for one in (*survivors, *self._strays))
        for child in self._mark.children:
            child.poll()  # nobody else will ask for its status any more

    async def _end_strays(self, family: Family) -> list[ProcessInfo]:
        """End what has come to this process without a mark since the call began, unless it may be of another call that
        goes on: then it stays, and this call is not said to be over. Returns who could not be ended."""
        strays = orphans.strays(self._began)
        self._strays = [one for one in strays if self._may_be_of_another(one)]
        ours = [one for one in strays if one not in self._strays]
        for one in ours:
            family.add(one)
        return await termination.end(family, until=lambda: self._until) if ours else []

    def _may_be_of_another(self, stray: ProcessInfo) -> bool:
        others = (one for one in _at_work if one is not self and one._mark.has_started_any)
        at_work = (one for one in others if not one.is_decided and not one._control.is_stopping)
        return any(one._began <= stray.started for one in at_work)

    async def _survivors_over(self, family: Family) -> None:
        """Return when those that could not be ended are gone after all."""
        await self._gone(family)
        while self._strays:
            await asyncio.sleep(_STRAY_LOOK_SECONDS)
            self._strays = [one for one in self._strays if table.is_alive(one)]
        self._survivors = ()
        self._changed()

    async def _let_go(self, ending: asyncio.Task[None]) -> None:
        """From now on the call can begin nothing, and what it had begun meanwhile is ended."""
        await ending
        self._mark.is_closed = True
        self._child_tasks.close()
        if self._mark.has_started_any:
            self._until = time.monotonic()
            await self._end_processes()

    # -- holding

    def _shields_held(self) -> Sequence[HeldShield]:
        return self._control.shields

    def _may_be_held(self) -> bool:
        return not self.is_decided and self._aborting is None

    async def hold(self) -> bool:
        if not self._may_be_held():
            return False
        self._control.hold()
        give_up = time.monotonic() + HOLD_SECONDS
        while self._may_be_held() and not self._is_parked() and (left := give_up - time.monotonic()) > 0:
            await self._change(left)
        if not self._may_be_held() or not self._control.is_held or not self._is_parked():
            return False
        family = self._find_family()
        if family is not None:
            async with self._freezing:
                self._frozen += await termination.hold(family)
        return self._control.is_held

    async def resume(self) -> None:
        self._control.resume()
        async with self._freezing:
            frozen, self._frozen = self._frozen, []
            if frozen:
                await termination.resume(frozen)
