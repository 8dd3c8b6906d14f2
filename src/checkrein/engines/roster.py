"""A process on the roster of its store, as a worker of a name.

It says so again and again, from a thread of its own: a tool that keeps the event loop busy does not make it look dead.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from msgspec.structs import replace

from checkrein.errors import CheckreinError, NameTaken
from checkrein.journal.base import Journal, Worker
from checkrein.processes.identity import is_known_dead
from checkrein.timings import SIGNS_OF_LIFE

_log = logging.getLogger(__name__)

AGAIN_SECONDS: Final = 0.3
"""How often a name is asked for again whose worker may be dead."""


async def enlist(journal: Journal, worker: Worker, *, seconds: float) -> Worker:
    """Put a worker on the roster. If its name is that of one that was seen a moment ago, wait until it is seen again,
    or not any more: after a crash, its seconds run out.

    Raises `NameTaken` where another one lives, or this one may not drive any more.
    """
    first: Worker | None = None
    dead: list[str] = []
    while True:
        try:
            return await journal.enlist(worker, seconds=seconds, instead_of=dead)
        except NameTaken as taken:
            holder: Worker = taken.worker
            if taken.code != NameTaken.code:
                raise
            if is_known_dead(holder.owner) and holder.owner.process not in dead:
                dead.append(holder.owner.process)
                continue
            if first is not None and (holder.owner != first.owner or holder.seen_until > first.seen_until):
                raise
            if first is None:
                first = holder
                _log.warning("%s It is waited for, in case it is dead: for %g s at most.", taken.message, seconds)
        await asyncio.sleep(AGAIN_SECONDS)


class RosterEntry:
    """Use as an async context manager: inside it the worker is on the roster. Left, its name is free.

    `free` tells how many of its slots are free. `lost` is called in the event loop, once, when this process may not
    drive any more: another one has its name, or it was buried.
    """

    def __init__(
        self,
        journal: Journal,
        worker: Worker,
        *,
        seconds: float,
        free: Callable[[], int],
        lost: Callable[[NameTaken], None],
    ) -> None:
        self._journal = journal
        self._worker = worker
        self._seconds = seconds
        self._free = free
        self._lost = lost
        self._stop = threading.Event()
        self.is_well = True
        """Whether the store took the last sign of life."""

    async def __aenter__(self) -> Worker:
        enlisted = await enlist(self._journal, self._worker, seconds=self._seconds)
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._keep, name="checkrein-roster", daemon=True)
        self._thread.start()
        return enlisted

    async def __aexit__(self, *_: object) -> None:
        self._stop.set()
        await asyncio.to_thread(self._thread.join)
        try:
            await self._journal.discharge(self._worker.owner)
        except CheckreinError as error:  # it is not seen any more soon enough
            _log.warning("worker %s could not be taken from the roster: %s", self._worker.name, error)

    def _keep(self) -> None:
        with asyncio.Runner() as runner:
            while not self._stop.wait(self._seconds / SIGNS_OF_LIFE):
                try:
                    said = replace(self._worker, free=self._free())
                    runner.run(self._journal.enlist(said, seconds=self._seconds))
                    self.is_well = True
                except NameTaken as error:
                    _log.error("%s", error)
                    with suppress(RuntimeError):  # the loop has ended, and with it all of this
                        self._loop.call_soon_threadsafe(self._lost, error)
                    return
                except CheckreinError as error:
                    self.is_well = False
                    _log.warning("worker %s could not say that it lives: %s", self._worker.name, error)
