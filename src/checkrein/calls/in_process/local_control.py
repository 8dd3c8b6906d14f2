"""What a tool in this process and its execution share: stop, hold, shields, and who waits at a checkpoint."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Generator
from typing import Any

from checkrein.calls.current import Aborted
from checkrein.calls.tool_execution import HeldShield, held_shield


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
