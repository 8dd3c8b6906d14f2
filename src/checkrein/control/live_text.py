"""Text that streams through this process: shown to those who listen at once, and kept in the journal soon."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from checkrein.asyncutil import start
from checkrein.errors import JournalError
from checkrein.journal.base import Chunk, Journal
from checkrein.journal.chunks import joined

_log = logging.getLogger(__name__)

REST: Final = 4
"""A store that is slow has a fourth of the usual wait for others between two writes of text."""

Listener = Callable[[Chunk], None]
HearsAll = Callable[[str, Chunk], None]


class Listeners:
    """Who wants to hear what each run says, as it streams. A listener must not raise, and must not block."""

    def __init__(self) -> None:
        self._of_run: dict[str, tuple[Listener, ...]] = {}
        """Replaced and never changed, so that who is told a piece is settled when that begins."""

    def add(self, run: str, listener: Listener) -> Callable[[], None]:
        """Have `listener` told each piece of a run's text. Returns an undo."""
        listeners = self._of_run.get(run, ())
        if listener not in listeners:
            self._of_run[run] = (*listeners, listener)

        def undo() -> None:
            left = tuple(other for other in self._of_run.get(run, ()) if other != listener)
            if left:
                self._of_run[run] = left
            else:
                self._of_run.pop(run, None)

        return undo

    def tell(self, run: str, chunk: Chunk) -> None:
        for listener in self._of_run.get(run, ()):
            listener(chunk)


class LiveText:
    """What the runs of this process say."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._listeners = Listeners()
        self._hear_all: set[HearsAll] = set()
        self._pending: dict[str, list[Chunk]] = {}
        self._writing: asyncio.Task[None] | None = None

    def listen(self, run: str, listener: Listener) -> Callable[[], None]:
        """Have `listener` told each piece of a run's text. Returns an undo."""
        return self._listeners.add(run, listener)

    def listen_to_all(self, listener: HearsAll) -> Callable[[], None]:
        """Have `listener` told each piece of every run's text, with the run. Returns an undo."""
        self._hear_all.add(listener)
        return lambda: self._hear_all.discard(listener)

    def hear(self, run: str, stream: str, offset: int, text: str) -> None:
        """A run has said something. This runs once for every token."""
        chunk = Chunk(stream, offset, text)
        self._listeners.tell(run, chunk)
        for hears_all in self._hear_all:
            hears_all(run, chunk)
        pending = self._pending.get(run)
        if pending is not None:
            pending.append(chunk)
            return
        self._pending[run] = [chunk]
        if self._writing is None:
            self._writing = start(self._keep())

    async def kept(self) -> None:
        """Return when what has streamed is written."""
        if self._writing is not None:
            await self._writing

    async def _keep(self) -> None:
        """Write what has streamed, a few times a second: neighbouring pieces as one, and all runs together."""
        now, seconds = asyncio.get_running_loop().time, self._journal.text_seconds
        due = now() + seconds
        try:
            while self._pending:
                # A piece waits to be kept together with what follows it. A crash loses at most that much. What the
                # store takes for the last ones is a part of the wait, but for a rest that it is always left.
                await asyncio.sleep(max(seconds / REST, due - now()))
                due = now() + seconds
                pending, self._pending = self._pending, {}
                try:
                    await self._journal.write_chunks({run: joined(chunks) for run, chunks in pending.items()})
                except JournalError as error:  # what the store does not take is lost, and nothing else is
                    _log.warning("streamed text was not kept: %s", error, extra={"runs": sorted(pending)})
        finally:
            self._writing = None
