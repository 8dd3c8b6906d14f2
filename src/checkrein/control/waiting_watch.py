"""Tells a program when a run needs a person: each thing that it waits for, once.

Whoever is told is code of somebody else: whatever it raises is logged, and however long it takes nothing else waits for
it.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Callable, Container
from typing import Any, Final, Self

from checkrein.asyncutil import TaskSet
from checkrein.control.view import RunView
from checkrein.control.viewer import look
from checkrein.core.enums import UNFINISHED
from checkrein.core.state import State, Waiting
from checkrein.driver.ownership import is_held
from checkrein.errors import JournalError
from checkrein.journal.base import Journal, Owner

OnWaiting = Callable[[RunView, Waiting], Any]
"""Told what the run looks like, and what it waits for. Plain, or a coroutine function."""

AT_ONCE: Final = 8
"""How many may be told at the same time: the others come when one of them returns."""
AGAIN_SECONDS: Final = 1.0
"""How long to wait before a store that does not answer is asked again."""
PAGE: Final = 500

_log = logging.getLogger(__name__)

_Key = tuple[str, str | None, object]


class WaitingWatch:
    """Use as an async context manager: whoever is inside is told of the runs of `agents` that nobody else drives.

    What waits already when it is entered is told too.
    """

    def __init__(
        self, journal: Journal, owner: Owner, tell: OnWaiting, *, agents: Container[str], clock: Callable[[], float]
    ) -> None:
        self._journal = journal
        self._owner = owner
        self._tell = tell
        self._agents = agents
        self._clock = clock
        self._told: dict[str, tuple[int, frozenset[_Key]]] = {}
        """Of each run that waits: what was told, and as of which event."""
        self._room = asyncio.Semaphore(AT_ONCE)
        self._tasks = TaskSet()

    async def __aenter__(self) -> Self:
        self._tasks.start(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._tasks.cancel()

    # -- noticing

    async def _watch(self) -> None:
        changes = self._journal.changes()  # before the first look, so that nothing comes in between
        again = set(await self._unfinished())
        while True:
            try:
                for run in list(again):
                    await self._look(run)
                    again.discard(run)
                again |= await anext(changes)
            except JournalError as error:
                _log.warning("what runs wait for could not be read, and will be again: %s", error)
                await asyncio.sleep(AGAIN_SECONDS)

    async def _unfinished(self) -> list[str]:
        found: list[str] = []
        before: str | None = None
        while True:
            try:
                rows = await self._journal.runs(status=UNFINISHED, limit=PAGE, before=before)
            except JournalError as error:
                _log.warning("what runs wait for could not be read, and will be again: %s", error)
                await asyncio.sleep(AGAIN_SECONDS)
                continue
            found += [row.id for row in rows if row.agent in self._agents]
            if len(rows) < PAGE:
                return found
            before = rows[-1].id

    async def _look(self, run: str) -> None:
        state = await self._journal.load(run)
        waiting = {} if state.agent not in self._agents or state.is_finished else _needs(state)
        seen, told = self._told.get(run, (0, frozenset[_Key]()))
        if state.seq < seen:
            return
        if waiting:
            held = await self._journal.lease(run)
            if held is not None and is_held(held, self._owner, self._clock()):
                return  # whoever drives it tells
            self._told[run] = (state.seq, frozenset(waiting))
        else:
            self._told.pop(run, None)
        new = [one for key, one in waiting.items() if key not in told]
        if new:
            view = await look(self._journal, run, at=self._clock())
            for one in new:
                self._tasks.start(self._tell_one(view, one))

    # -- telling

    async def _tell_one(self, view: RunView, waiting: Waiting) -> None:
        async with self._room:
            try:
                said = self._tell(view, waiting) if _is_async(self._tell) else await self._aside(view, waiting)
                if inspect.isawaitable(said):
                    await said
            except asyncio.CancelledError:
                raise
            except BaseException:
                _log.exception("on_waiting failed when it was told: %s", waiting.what, extra={"run": view.id})

    async def _aside(self, view: RunView, waiting: Waiting) -> Any:
        """Call a plain function in a thread that nobody waits for at the end: it may block for as long as it likes."""
        loop = asyncio.get_running_loop()
        said: asyncio.Future[Any] = loop.create_future()

        def settle(value: Any, error: BaseException | None) -> None:
            if said.done():
                return
            if error is None:
                said.set_result(value)
            else:
                said.set_exception(RuntimeError(repr(error)) if isinstance(error, StopIteration) else error)

        def call() -> None:
            value, raised = None, None
            try:
                value = self._tell(view, waiting)
            except BaseException as error:
                raised = error
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, value, raised)

        threading.Thread(target=call, name="checkrein on_waiting", daemon=True).start()
        return await said


def _needs(state: State) -> dict[_Key, Waiting]:
    """Everything that a person is to do, by what makes it another thing than the one before."""
    found: dict[_Key, Waiting] = {}
    for one in state.asked():
        doubt = state.doubts.get(one.call or "")
        of = state.paused_by if one.call is None else None if doubt is None else doubt.attempt
        found[(one.kind, one.call, of)] = one
    return found


def _is_async(tell: OnWaiting) -> bool:
    return inspect.iscoroutinefunction(tell) or inspect.iscoroutinefunction(getattr(tell, "__call__", None))  # noqa: B004
