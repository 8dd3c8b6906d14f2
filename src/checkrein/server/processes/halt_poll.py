"""Halts in a store that supervisors cannot read: the parent of drivers reads them, a front or a worker, which shares no
interpreter with user code.

A supervisor is not told the password of a database, so in PostgreSQL it finds no fence by itself. The parent has a
journal open: it hears of a halt at once, looks every second, whoever has put the fence or the flag up and wherever, and
tells its drivers' supervisors. Each gives its driver two seconds to answer, and kills one that does not, together with
what its tools have started.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

import anyio.to_thread

from checkrein.errors import JournalError
from checkrein.journal.base import Journal
from checkrein.journal.operations import HALTED
from checkrein.processes.halt_flags import Flags
from checkrein.processes.supervisor import tell_halt_waits
from checkrein.timings import HALT_LOOK_SECONDS

_log = logging.getLogger(__name__)


class HaltPoll:
    """What was halted since the last look, by the journal and by the flags of this host."""

    def __init__(self, journal: Journal, store: str) -> None:
        self._journal = journal
        self._flags = Flags(store)
        self._up = self._flags.names()
        self._seen = 0
        self._is_away = False

    def is_flagged(self) -> bool:
        """Whether a flag was put up since."""
        up = self._flags.names()
        is_news, self._up = bool(up - self._up), up
        return is_news

    async def is_fenced(self) -> bool:
        """Whether a halt was recorded since. What is not read while the store is away is read later."""
        try:
            news = await self._journal.operations(after=self._seen)
            self._is_away = False
        except JournalError as error:
            if not self._is_away:  # once: it is tried again every second
                _log.warning("halts are told by the flags of this host alone: %s", error)
            self._is_away, news = True, ()
        self._seen = max((record.seq for record in news), default=self._seen)
        return any(record.operation.type == HALTED for record in news)


@asynccontextmanager
async def heeded_halts(journal: Journal, store: str, pids: Collection[int]) -> AsyncIterator[None]:
    """Meanwhile the supervisors of `pids`, the drivers at each moment, are told of every halt.

    To be entered before there are drivers: what was halted by then they read themselves when they begin.
    """
    poll = HaltPoll(journal, store)
    await poll.is_fenced()

    async def tell() -> None:
        for pid in tuple(pids):
            try:
                await anyio.to_thread.run_sync(tell_halt_waits, pid)
            except RuntimeError:  # no thread is to be had, as when processes fill the machine
                tell_halt_waits(pid)

    async def look_for_fences() -> None:
        async for _ in journal.operated(seconds=HALT_LOOK_SECONDS):
            if await poll.is_fenced():
                await tell()

    async def look_for_flags() -> None:
        # By itself: a store that is away keeps whoever asks it waiting, and that is when a flag is needed.
        while True:
            await asyncio.sleep(HALT_LOOK_SECONDS)
            if poll.is_flagged():
                await tell()

    looking = asyncio.gather(look_for_fences(), look_for_flags())
    try:
        yield
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
