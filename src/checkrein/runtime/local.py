"""What calls in this process have in common, in a task or in a thread: marks, a control, and child processes to end."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import time
from abc import abstractmethod
from collections.abc import Callable, Collection
from typing import Any, Final

import msgspec

from checkrein.core.words import Outcome
from checkrein.runtime import call as calls
from checkrein.runtime import marking, processes, table, tracking, values
from checkrein.runtime.control import LocalControl
from checkrein.runtime.lineage import Family
from checkrein.runtime.marking import Mark
from checkrein.runtime.performance import HOLD_SECONDS, Job, ToolEnded, ToolPerformance
from checkrein.runtime.table import Row

_AFTER_DETACHING: Final = 8
"""How often one that was let go is told again to stop, at intervals that double."""


class LocalPerformance(ToolPerformance):
    """The stop of a call that cannot be killed, because it shares this process.

    It is told to stop, and told again after a half and three quarters of the grace. Not more often, so that one that
    cleans up is left in peace, and one that swallows it does not spin. After the grace it is *detached*: it may still
    be running, can start no more processes, and whatever it returns is dropped.
    """

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._control = LocalControl(self._changed)
        self._mark = Mark(job.runtime, job.mark)
        self._born = table.birth_of_self()
        self._family: Family | None = None
        self._brood = tracking.Brood(self._control.tell, self._changed)
        self._draft: ToolEnded | None = None
        """How the function ended; None while it runs."""
        self._frozen: list[Row] = []
        self._freezing = asyncio.Lock()
        self._tells_when_over = False

    @abstractmethod
    def _tell(self) -> None:
        """Tell everything of the call that still runs to stop."""

    @abstractmethod
    def _is_parked(self) -> bool:
        """Whether nothing of the call runs, because all of it waits at checkpoints."""

    def _tell_brood(self, except_for: Collection[asyncio.Task[Any]] = ()) -> None:
        for task in list(self._brood.tasks):
            if task not in except_for and not task.done():
                task.cancel()
        for work in list(self._brood.works):
            work.stop()

    def _is_over(self) -> bool:
        return self._draft is not None and not self._brood

    def _context(self) -> contextvars.Context:
        """The context that the tool runs in."""
        marking.install()
        job = self.job
        call = calls.Call(
            id=job.id,
            key=job.key,
            attempt=job.attempt,
            arguments=values.shown_arguments(job.arguments),
            folder=job.folder,
            control=self._control,
            deps=lambda: calls.made_by(job.deps) if inspect.isroutine(job.deps) else job.deps,
        )
        context = contextvars.copy_context()
        context.run(calls.enter_call, call)
        context.run(marking.current.set, self._mark)
        context.run(tracking.current.set, self._brood)
        return context

    def _changed(self) -> None:
        self._stir.set()
        if self._tells_when_over and self._is_over():
            self._tells_when_over = False
            if self.job.on_late_end is not None:
                self.job.on_late_end()
        elif self._control.is_held and self.job.on_held is not None and self._is_parked():
            self.job.on_held()

    # -- the end

    def _has_left_nothing(self) -> bool:
        return not self._brood and not self._mark.has_started_any and not self._has_files()

    def _end_now(self) -> None:
        """The function is over and has left nothing behind: so is the call, without further ado."""
        assert self._draft is not None
        self.is_decided = self._mark.is_closed = self._brood.is_closed = True
        if self._control.is_settled:
            self._draft = msgspec.structs.replace(self._draft, settled=True)
        self._tell_end(self._draft)

    async def _returned(self) -> None:
        """The function is over, and nobody had asked it to stop: end whatever it has left behind."""
        self.is_decided = True
        self._grace = min(self._grace, processes.GRACE_SECONDS)
        self._until = time.monotonic() + self._grace
        if self._brood:
            self._tell()
        children = self._spawn_children_end()
        await self._told_until(self._is_over)
        await self._let_go(children)
        assert self._draft is not None
        await self._end_with(self._draft)

    async def _abort(self) -> None:
        await self._shield_over()
        if self.is_decided:
            return
        self._control.stop()
        began, quarter = time.monotonic(), self._left_of_grace() / 4
        self._tell()
        while self._draft is None and time.monotonic() < began + quarter and self._left_of_grace() > 0:
            await self._change(min(quarter, self._left_of_grace()))
        children = self._spawn_children_end()
        self._tell()
        await self._told_until(self._is_over)
        await self._let_go(children)
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

    def _ending_of_abort(self) -> ToolEnded:
        if self._draft is not None and not self._control.was_told:
            return self._draft  # it had finished first
        if self._is_over():
            return ToolEnded(outcome=Outcome.ABORTED, begun=self._has_begun())
        return ToolEnded(outcome=Outcome.DETACHED, error="It could not be stopped; its result will be dropped.")

    def _has_begun(self) -> bool:
        return True

    async def _end_with(self, ended: ToolEnded) -> None:
        left = self._brood.names() if self._draft is not None else (*self._brood.names(), *self._own_name())
        ended = msgspec.structs.replace(ended, settled=self._control.is_settled, left=left + self._survivors)
        if not self._is_over():
            self._tells_when_over = True
            self._tell_now_and_then(_AFTER_DETACHING, max(self._grace, 0.5))
        await self._conclude(ended)

    def _own_name(self) -> tuple[str, ...]:
        return ()

    def _tell_now_and_then(self, times: int, seconds: float) -> None:
        if times and not self._is_over():
            self._tell()
            self._loop.call_later(seconds, self._tell_now_and_then, times - 1, seconds * 2)

    # -- processes

    _survivors: tuple[str, ...] = ()

    def _find_family(self) -> Family | None:
        """The processes of this call; None when it never started any."""
        if not self._mark.has_started_any:
            return None
        if self._family is None:
            self._family = Family(marks=((marking.CALL, self.job.mark),), since=self._born)
        for child in self._mark.children:
            found = table.row(child.pid) if child.returncode is None else None
            if found is not None:
                self._family.add(found)
        return self._family

    def _spawn_children_end(self) -> asyncio.Task[None]:
        return self._spawn(self._end_children())

    async def _end_children(self) -> None:
        family = self._find_family()
        if family is not None:
            survivors = await processes.end(family, until=lambda: self._until)
            self._survivors = tuple(f"process {one.pid}" for one in survivors)
        for child in self._mark.children:
            child.poll()  # nobody else will ask for its status any more

    async def _let_go(self, children: asyncio.Task[None]) -> None:
        """From now on the call can begin nothing, and what it had begun meanwhile is ended."""
        await children
        self._mark.is_closed = True
        self._brood.is_closed = True
        if self._mark.has_started_any:
            self._until = time.monotonic()
            await self._end_children()

    def pids(self) -> tuple[int, ...]:
        return tuple(child.pid for child in self._mark.children if child.returncode is None)

    # -- holding

    def _shield_seconds(self) -> float | None:
        return self._control.shield_seconds

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
                self._frozen += await processes.hold(family)
        return self._control.is_held

    async def go_on(self) -> None:
        self._control.go_on()
        async with self._freezing:
            frozen, self._frozen = self._frozen, []
            if frozen:
                await processes.go_on(frozen)
