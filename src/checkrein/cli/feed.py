"""A run as it happens: its records and its streamed text, in the order in which they make sense."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Final

from checkrein.agents.threads import told_of
from checkrein.core.events import CallFinished, CallStarted, RunFinished
from checkrein.core.words import CallKind
from checkrein.journal.contract import Chunk, Journal, Recorded, stream_of

if TYPE_CHECKING:
    from checkrein.control.runs import Runtime

POLL_SECONDS: Final = 0.15
"""How often text is looked for that another process streams."""

Item = Recorded | Chunk


class Feed:
    """Everything about one run from its first record on; ends after `run.finished`.

    With a `runtime` that drives the run here, text comes the moment it streams; else it is read from the journal, where
    its process writes it a few times a second. Either way no text is given twice, and all of a call's text comes
    before the record of its end.
    """

    def __init__(self, journal: Journal, run: str, runtime: Runtime | None = None) -> None:
        self._journal = journal
        self._run = run
        self._runtime = runtime
        self._items: asyncio.Queue[Item | BaseException] = asyncio.Queue()
        self._live: dict[str, CallStarted] = {}
        self._given: dict[str, int] = {}
        """How much of each text was given."""
        self._early: dict[str, list[Chunk]] = {}
        """Pieces that wait for what lies before them."""
        self._ended: set[str] = set()

    async def items(self) -> AsyncIterator[Item]:
        loop = asyncio.get_running_loop()
        let_go = self._listen()
        tasks = [loop.create_task(self._guard(self._follow)), loop.create_task(self._guard(self._read_text))]
        try:
            while True:
                item = await self._items.get()
                if isinstance(item, BaseException):
                    raise item
                for ready in self._ready(item):
                    yield ready
                if isinstance(item, Recorded) and isinstance(item.event, RunFinished):
                    return
        finally:
            let_go()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # -- where items come from

    async def _guard(self, source: Callable[[], object]) -> None:
        try:
            await source()  # type: ignore[misc]
        except Exception as error:
            self._items.put_nowait(error)

    async def _follow(self) -> None:
        follower = self._journal.follow(self._run)
        try:
            async for record in follower:
                self._items.put_nowait(record)
        finally:
            await follower.aclose()  # type: ignore[attr-defined]

    def _listen(self) -> Callable[[], None]:
        if self._runtime is None:
            return lambda: None
        return self._runtime.listen(self._run, self._items.put_nowait)

    async def _read_text(self) -> None:
        """Read from the journal what nobody tells us: everything, or what had streamed before we listened."""
        read: dict[str, int] = {}
        while True:
            for started in list(self._live.values()):
                stream = stream_of(started.call, started.attempt)
                if self._runtime is not None and stream not in self._early:
                    continue
                for chunk in await self._journal.chunks(self._run, stream, after=read.get(stream, -1)):
                    read[stream] = chunk.offset
                    self._items.put_nowait(chunk)
            await asyncio.sleep(POLL_SECONDS)

    # -- what is given of them

    def _ready(self, item: Item) -> list[Item]:
        if isinstance(item, Chunk):
            return self._fresh(item)
        event = item.event
        if isinstance(event, CallStarted) and event.kind in (CallKind.MODEL, CallKind.ASK):
            self._live[event.call] = event
        if isinstance(event, CallFinished) and event.call in self._live:
            return [*self._rest(self._live.pop(event.call), event), item]
        return [item]

    def _fresh(self, chunk: Chunk) -> list[Item]:
        """What is new in a piece of text, and in those that have waited for it."""
        stream, fresh = chunk.call, list[Item]()
        if stream in self._ended:
            return []  # the record of its end has brought the rest
        for piece in sorted([*self._early.pop(stream, ()), chunk], key=lambda piece: piece.offset):
            given = self._given.get(stream, 0)
            if piece.offset > given:
                self._early.setdefault(stream, []).append(piece)
            elif text := piece.text[given - piece.offset :]:
                self._given[stream] = given + len(text)
                fresh.append(Chunk(stream, given, text))
        return fresh

    def _rest(self, started: CallStarted, finished: CallFinished) -> list[Item]:
        """What was said and had not been read by the time the call ended."""
        stream = stream_of(started.call, started.attempt)
        self._ended.add(stream)
        self._early.pop(stream, None)
        told = told_of(finished.result) if started.kind is CallKind.MODEL else None
        given = self._given.pop(stream, 0)
        rest = "" if told is None else told.message.text[given:]
        return [Chunk(stream, given, rest)] if rest else []
