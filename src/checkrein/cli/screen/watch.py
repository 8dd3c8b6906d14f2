"""What the screen knows of a run: the run itself, whether the journal answers, and whether anybody drives it.

When the journal cannot be read it says so, keeps what it has, and goes on by itself once it can.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from checkrein.cli.wording import Value, values_of
from checkrein.control.call_view import decoded
from checkrein.control.feed import Item, RunFeed
from checkrein.control.view import RunView
from checkrein.core.events import ApprovalRequested, CallStarted
from checkrein.driver.ownership import is_in_force, left_at
from checkrein.errors import CheckreinError
from checkrein.journal.base import Chunk, Fence, Journal
from checkrein.runtime import Runtime

_log = logging.getLogger(__name__)

PULSE_SECONDS: Final = 1.0
"""How often it is made sure that the journal answers, and that somebody drives the run."""
PATIENCE_SECONDS: Final = 5.0
"""A journal that takes longer to answer counts as away."""
AGAIN_SECONDS: Final = 0.5


class RunWatch:
    """`run()` goes on until it is cancelled. `is_fresh` is set whenever there is something new to show."""

    def __init__(
        self, journal: Journal, run: str, runtime: Runtime | None = None, *, clock: Callable[[], float] | None = None
    ) -> None:
        self._journal = journal
        self._run = run
        self._clock = clock or journal.now
        listen = None if runtime is None else runtime.listen
        self._feed = RunFeed(journal, run, on_record=self._heard, on_text=self._heard, listen=listen)
        self.is_fresh = False
        self.is_driven = True
        self.halts: tuple[Fence, ...] = ()
        """What operators have halted in this store."""
        self.away = ""
        """Why the journal cannot be read; empty while it can."""
        self.away_since = 0.0

    @property
    def next_step(self) -> str:
        """The step that a redirect would rewrite."""
        state = self._feed.viewer.state
        return "" if state is None else state.next_step

    def view(self) -> RunView | None:
        """The run as it looks now; None before anything was read."""
        viewer = self._feed.viewer
        return None if viewer.state is None else viewer.view(self._clock())

    async def given_to(self, call: str) -> list[Value]:
        """All that a call was given, or is to be given, as it was recorded."""
        given: list[Value] = []
        for record in await self._journal.read(self._run):
            event = record.event
            if isinstance(event, CallStarted | ApprovalRequested) and event.call == call:
                given = values_of(decoded(event.arguments))
        return given

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow())
            tasks.create_task(self._pulse())

    async def _follow(self) -> None:
        while True:
            try:
                await self._feed.run()
            except (CheckreinError, OSError) as error:
                self.failed(error)
            await asyncio.sleep(AGAIN_SECONDS)

    async def _pulse(self) -> None:
        while True:
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    lease = await self._journal.lease(self._run)
                    halts = await self._journal.halts()
                driven = lease is not None and is_in_force(lease, self._clock())
                viewer = self._feed.viewer
                viewer.left_at = None if viewer.state is None else left_at(lease, viewer.state, self._clock())
                self.is_fresh |= driven is not self.is_driven or halts != self.halts
                self.halts = halts
                self.is_driven = driven
                self._answered()
            except (CheckreinError, OSError, TimeoutError) as error:
                self.failed(error)
            await asyncio.sleep(PULSE_SECONDS)

    def _heard(self, item: Item) -> None:
        self.is_fresh = True
        if not isinstance(item, Chunk):  # text may come from a driver while the journal does not answer
            self._answered()

    def _answered(self) -> None:
        if self.away:
            self.away, self.is_fresh = "", True

    def failed(self, error: BaseException) -> None:
        """What is shown may be old from now on, until the journal answers again."""
        if not self.away:
            self.away_since = self._clock()
            _log.warning("The journal does not answer: %s", error, extra={"run": self._run})
        self.away = str(error) or f"It did not answer within {PATIENCE_SECONDS:.0f} s."
        self.is_fresh = True
