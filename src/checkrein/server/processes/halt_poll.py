"""Halts in a store that supervisors cannot read: the front reads them, which shares no interpreter with user code.

A supervisor is not told the password of a database, so in PostgreSQL it finds no fence by itself. The front has a
journal open: it looks every second, whoever has put the fence up and wherever, and tells its drivers' supervisors.
Each gives its driver two seconds to answer, and kills one that does not, together with what its tools have started.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

import anyio.to_thread

from checkrein.errors import JournalError
from checkrein.journal.base import Journal
from checkrein.journal.operations import HALTED
from checkrein.processes.supervisor import tell_halt_waits
from checkrein.timings import HALT_LOOK_SECONDS

_log = logging.getLogger(__name__)


async def heed_halts(journal: Journal, pids: Callable[[], Iterable[int]]) -> None:
    """Look for ever. `pids` are the drivers at each moment."""
    seen: int | None = None
    is_away = False
    while True:
        try:
            news = await journal.operations(after=seen or 0)
            is_away = False
        except JournalError as error:
            if not is_away:  # once: it is tried again every second
                _log.warning("the front reads of no halt just now: %s", error)
            news, is_away = (), True
        # What was halted before the drivers began they have read themselves.
        if seen is not None and any(record.operation.type == HALTED for record in news):
            for pid in tuple(pids()):
                await anyio.to_thread.run_sync(tell_halt_waits, pid)
        if not is_away:
            seen = max((record.seq for record in news), default=seen or 0)
        await asyncio.sleep(HALT_LOOK_SECONDS)
