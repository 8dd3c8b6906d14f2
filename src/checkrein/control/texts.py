"""Text that streams through this process: shown to those who listen at once, and kept in the journal soon."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from checkrein.errors import JournalError
from checkrein.journal.contract import Chunk, Journal

KEEP_SECONDS: Final = 0.2
"""How long a piece of text waits to be kept together with what follows it. A crash loses at most that much."""

Listener = Callable[[Chunk], None]
HearsAll = Callable[[str, Chunk], None]


class Listeners:
    """Who wants to hear what each run says, as it streams. A listener must not raise, and must not block."""

    def __init__(self) -> None:
        self._of_run: dict[str, set[Listener]] = {}

    def add(self, run: str, listener: Listener) -> Callable[[], None]:
        """Have `listener` told each piece of a run's text. Returns an undo."""
        self._of_run.setdefault(run, set()).add(listener)

        def undo() -> None:
            listeners = self._of_run.get(run, set())
            listeners.discard(listener)
            if not listeners:
                self._of_run.pop(run, None)

        return undo

    def tell(self, run: str, chunk: Chunk) -> None:
        if run in self._of_run:
            for listener in tuple(self._of_run[run]):
                listener(chunk)


class Texts:
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
            self._writing = asyncio.get_running_loop().create_task(self._keep())

    async def kept(self) -> None:
        """Return when what has streamed is written."""
        if self._writing is not None:
            await self._writing

    async def _keep(self) -> None:
        """Write what has streamed, a few times a second: neighbouring pieces as one, and all runs together."""
        try:
            while self._pending:
                await asyncio.sleep(KEEP_SECONDS)
                pending, self._pending = self._pending, {}
                with suppress(JournalError):  # what the store does not take is lost, and nothing else is
                    await self._journal.write_all_chunks({run: joined(chunks) for run, chunks in pending.items()})
        finally:
            self._writing = None


def joined(chunks: Iterable[Chunk]) -> list[Chunk]:
    """The same text in as few chunks as possible."""
    whole: list[Chunk] = []
    texts: list[str] = []
    call, start, end = "", 0, -1
    for chunk in chunks:
        if chunk.call != call or chunk.offset != end:
            if texts:
                whole.append(Chunk(call, start, "".join(texts)))
            call, start, texts = chunk.call, chunk.offset, []
        texts.append(chunk.text)
        end = chunk.offset + len(chunk.text)
    if texts:
        whole.append(Chunk(call, start, "".join(texts)))
    return whole
