"""The engine of a process that drives what was begun in it, and nothing else.

What goes by the same name elsewhere may be another agent altogether, as with programs in terminals."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Self

from checkrein.core.enums import Status
from checkrein.core.state import State
from checkrein.engines.dispatcher import Dispatcher
from checkrein.engines.leases import LeaseEngine


class OwnRunsEngine(LeaseEngine):
    """Takes up the runs that it is told to, and those again when something happens to them while nobody drives them."""

    name: ClassVar[str] = "own"

    def __init__(self, dispatcher: Dispatcher) -> None:
        super().__init__(dispatcher)
        self._own: set[str] = set()
        self._may_be_queued: set[str] = set()

    async def __aenter__(self) -> Self:
        await self._dispatcher.__aenter__()
        self._dispatcher.is_open = True
        for work in (self._watch(), self._look_now_and_then()):
            self._dispatcher.start(work)
        return self

    async def take_up(self, run: str) -> None:
        self._own.add(run)
        self._may_be_queued.add(run)
        await super().take_up(run)

    async def _look(self) -> None:
        await self._look_at_queued()
        await self._look_at_changed()
        self._dispatcher.examine_suspects()

    async def _look_at_queued(self) -> None:
        """Whatever of its own waits behind another of its thread: nothing happens to it when that has ended."""
        states = await self._journal.states(list(self._may_be_queued - {*self.runs}))
        queued = [run for run, state in states.items() if state.status is Status.QUEUED]
        self._may_be_queued -= states.keys() - {*queued}
        await self._look_at(queued)

    async def _claim(self) -> None:
        return

    async def _look_at(self, runs: Iterable[str]) -> None:
        await super()._look_at([run for run in runs if run in self._own])

    async def _take_up_next(self, state: State) -> None:
        await self._look_at_queued()
