"""A call of a tool in this process: of an `async def` in a task, of a `def` with `isolation="thread"` in a thread.

What both have in common comes first: marks, a control that the tool and its execution share (stop, hold, shield), and
child processes to end.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import os
import threading
import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Collection, Generator, Sequence
from typing import Any, Final

import anyio
import msgspec

from checkrein import asyncutil
from checkrein.asyncutil import is_torn_down, watch_teardown
from checkrein.calls import arguments, child_tasks, instrumentation
from checkrein.calls import current as calls
from checkrein.calls.base import CallResult
from checkrein.calls.child_tasks import Interruptible, outside
from checkrein.calls.current import Aborted
from checkrein.calls.tool_execution import HeldShield, ToolCall, ToolExecution, failure, held_shield
from checkrein.core.enums import Outcome
from checkrein.processes import env_marks, table, termination
from checkrein.processes.env_marks import Mark
from checkrein.processes.families import Family
from checkrein.processes.table import ProcessInfo
from checkrein.timings import HOLD_SECONDS, TOOL_GRACE_SECONDS

_log = logging.getLogger(__name__)

_QUICK_TRIES: Final = 5


class LocalControl:
    """Shared by the tool, in any thread, and its execution, on the event loop.

    `changed` is called on the event loop after a shield was entered or left and when somebody begins to wait at a
    checkpoint.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._state = threading.Condition()
        self._gate = asyncio.Event()
        self._gate.set()
        self._shields: list[HeldShield] = []
        self.is_stopping = False
        self.is_held = False
        self.is_settled = False
        self.was_told = False
        """Whether the tool knows that it is to stop: a result after that does not count as finished."""
        self.parked: set[object] = set()
        """The tasks, and the threads by number, that wait at a checkpoint because the call is held."""

    # -- the execution's side

    def stop(self) -> None:
        with self._state:
            self.is_stopping = True
            self._state.notify_all()

    def hold(self) -> None:
        with self._state:
            self.is_held = True
        self._gate.clear()

    def resume(self) -> None:
        with self._state:
            self.is_held = False
            self._state.notify_all()
        self._gate.set()

    @property
    def shields(self) -> tuple[HeldShield, ...]:
        """The shielded sections that the tool is in."""
        with self._state:
            return tuple(self._shields)

    def tell(self) -> None:
        self.was_told = True

    # -- the tool's side

    def checkpoint(self) -> Awaitable[None]:
        on_loop = threading.get_ident() == self._loop_thread
        with self._state:
            if not on_loop:
                self._wait_while_held()
            if self.is_stopping and not self._shields:
                self.was_told = True
                raise asyncio.CancelledError if on_loop else Aborted("The call is being stopped.")
        return _Checkpoint(self._pass if on_loop else None)

    def _wait_while_held(self) -> None:
        if not self.is_held or self.is_stopping or self._shields:
            return
        self.parked.add(threading.get_ident())
        self._notify()
        try:
            self._state.wait_for(lambda: self.is_stopping or not self.is_held)
        finally:
            self.parked.discard(threading.get_ident())

    async def _pass(self) -> None:
        if not self.is_held or self._shields:
            await asyncio.sleep(0)
            return
        task = asyncio.current_task()
        self.parked.add(task)
        self._notify()
        try:
            await self._gate.wait()
        finally:
            self.parked.discard(task)

    def settle(self) -> None:
        self.is_settled = True

    def enter_shield(self, seconds: float) -> None:
        self.checkpoint()
        with self._state:
            self._shields.append(held_shield(seconds))
        self._notify()

    def leave_shield(self) -> None:
        with self._state:
            self._shields.pop()
        self._notify()

    def _notify(self) -> None:
        if threading.get_ident() == self._loop_thread:
            self._changed()
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._changed)


class _Checkpoint:
    """Awaiting it waits while the call is held; not awaiting it does no harm."""

    def __init__(self, wait: Callable[[], Any] | None) -> None:
        self._wait = wait

    def __await__(self) -> Generator[Any, None, None]:
        if self._wait is not None:
            yield from self._wait().__await__()


_THREAD_END_SECONDS: Final = 0.1
"""How long a call that has ended by itself waits for threads that may be just ending."""
_AFTER_DETACHING: Final = 8
"""How often one that was let go is told again to stop, at intervals that double."""


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
        self._family: Family | None = None
        self._survivors: tuple[str, ...] = ()
        """Processes of the call that could not be ended, in words."""
        instrumentation.install(self._loop)
        self._child_tasks = child_tasks.ChildTasks(self._control.tell, self._changed)
        self._draft: CallResult | None = None
        """How the function ended; None while it runs."""
        self._frozen: list[ProcessInfo] = []
        self._freezing = asyncio.Lock()
        self._tells_when_over = False

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
            self._survivors = tuple(f"process {one.pid}" for one in survivors)
        for child in self._mark.children:
            child.poll()  # nobody else will ask for its status any more

    async def _survivors_over(self, family: Family) -> None:
        """Return when those that could not be ended are gone after all."""
        await self._gone(family)
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
