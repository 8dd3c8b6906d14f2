"""What the screen knows of a run: its records as they are committed, and its text as it streams.

Reads only. When the journal cannot be read it says so, keeps what it has, and goes on by itself once it can.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from checkrein.control.runs import Runtime
from checkrein.control.view import RunView
from checkrein.control.viewing import Viewer
from checkrein.errors import CheckreinError
from checkrein.journal.contract import Chunk, Journal, attempt_of
from checkrein.runtime.identity import is_known_dead

POLL_SECONDS: Final = 0.2
"""How often text is looked for that another process streams."""
PULSE_SECONDS: Final = 1.0
"""How often it is made sure that the journal answers, and that somebody drives the run."""
PATIENCE_SECONDS: Final = 5.0
"""A journal that takes longer to answer counts as away."""
AGAIN_SECONDS: Final = 0.5


class Feed:
    """`run()` goes on until it is cancelled. `is_fresh` is set whenever there is something new to show."""

    def __init__(
        self, journal: Journal, run: str, runtime: Runtime | None = None, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._journal = journal
        self._run = run
        self._runtime = runtime
        self._clock = clock
        self._viewer = Viewer()
        self._known: dict[str, int] = {}
        """How much is known of each text, without gaps."""
        self._early: dict[str, list[Chunk]] = {}
        """Pieces that wait for what lies before them."""
        self._read: dict[str, int] = {}
        """Up to which offset the journal's pieces were read."""
        self._ended: set[str] = set()
        """Texts to which nothing comes any more, and that were read."""
        self.is_fresh = False
        self.is_driven = True
        self.away = ""
        """Why the journal cannot be read; empty while it can."""
        self.away_since = 0.0

    @property
    def next_step(self) -> str:
        """The step that a redirect would rewrite."""
        return "" if self._viewer.state is None else self._viewer.state.next_step

    def view(self) -> RunView | None:
        """The run as it looks now; None before anything was read."""
        return None if self._viewer.state is None else self._viewer.view(self._clock())

    async def run(self) -> None:
        let_go = self._listen()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._follow())
                tasks.create_task(self._pulse())
                tasks.create_task(self._read_chunks())
        finally:
            let_go()

    # -- records

    async def _follow(self) -> None:
        while True:
            follower = self._journal.follow(self._run, after=self._viewer.seq)
            try:
                async for record in follower:
                    self._viewer.absorb(record)
                    self.is_fresh = True
                    self._answered()
            except (CheckreinError, OSError) as error:
                self.failed(error)
            finally:
                await follower.aclose()  # type: ignore[attr-defined]
            await asyncio.sleep(AGAIN_SECONDS)

    # -- is anybody there

    async def _pulse(self) -> None:
        while True:
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    lease = await self._journal.lease(self._run)
                driven = lease is not None and lease.deadline > self._clock() and not is_known_dead(lease.owner)
                self.is_fresh |= driven is not self.is_driven
                self.is_driven = driven
                self._answered()
            except (CheckreinError, OSError, TimeoutError) as error:
                self.failed(error)
            await asyncio.sleep(PULSE_SECONDS)

    def _answered(self) -> None:
        if self.away:
            self.away, self.is_fresh = "", True

    def failed(self, error: BaseException) -> None:
        """What is shown may be old from now on, until the journal answers again."""
        if not self.away:
            self.away_since = self._clock()
        self.away = str(error) or f"It did not answer within {PATIENCE_SECONDS:.0f} s."
        self.is_fresh = True

    # -- text

    def _listen(self) -> Callable[[], None]:
        """Hear text at once where it is streamed by this process."""
        return (lambda: None) if self._runtime is None else self._runtime.listen(self._run, self._hear)

    def _hear(self, chunk: Chunk) -> None:
        """Take in a piece of text. One that does not join on to what is known waits for what lies between."""
        stream = chunk.call
        self._early.setdefault(stream, []).append(chunk)
        for piece in sorted(self._early.pop(stream), key=lambda piece: piece.offset):
            known = self._known.get(stream, 0)
            if piece.offset > known:
                self._early.setdefault(stream, []).append(piece)
                continue
            self._known[stream] = max(known, piece.offset + len(piece.text))
            self._viewer.hear(piece)
            self.is_fresh = True

    async def _read_chunks(self) -> None:
        """Read from the journal what nobody told: everything, or what had streamed before we listened."""
        while True:
            with suppress(CheckreinError, OSError):  # the pulse says so
                await self._read_untold()
            await asyncio.sleep(POLL_SECONDS)

    async def _read_untold(self) -> None:
        live = {} if self._viewer.state is None else self._viewer.state.live
        for stream in self._viewer.untold():
            is_told = self._runtime is not None and stream in self._known and stream not in self._early
            if is_told or stream in self._ended:
                continue
            if attempt_of(stream)[0] not in live:
                self._ended.add(stream)
            for chunk in await self._journal.chunks(self._run, stream, after=self._read.get(stream, -1)):
                self._read[stream] = chunk.offset
                self._hear(chunk)
