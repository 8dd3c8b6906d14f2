"""A careful client of the journal: it looks up or repeats what failed, and writes down what it was promised."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from checkrein.core.events import Event, RunCreated
from checkrein.errors import Conflict, JournalError, StoreFull, StoreUnavailable
from checkrein.journal.base import Chunk, Fence, Journal, Lease, Owner, Recorded, Scope
from tests.support.snapshots import save_snapshot
from tests.torture.crash.witness import FENCE, LEASE, Promise, Witness

TRIES: Final = 4
PAUSE_SECONDS: Final = 0.002
CONFLICTS: Final = 20

T = TypeVar("T")


class GaveUp(Exception):
    """The store kept saying, properly, that it cannot."""


class Client:
    """One process's view of a journal. `seen` is the last seq of each run that it knows of."""

    def __init__(self, journal: Journal, witness: Witness, owner: Owner) -> None:
        self.journal = journal
        self.owner = owner
        self.seen: dict[str, int] = {}
        self._witness = witness

    async def create(self, event: RunCreated) -> None:
        self._learn(await self._persist(lambda: self.journal.create(event)))

    async def claim(self, run: str) -> Lease:
        lease = await self._persist(lambda: self.journal.claim(run, self.owner, seconds=60, force=True))
        self._witness.saw(Promise(run, lease.epoch, LEASE))
        return lease

    async def write_chunks(self, run: str, chunks: Sequence[Chunk]) -> None:
        await self._persist(lambda: self.journal.write_chunks({run: chunks}))

    async def halt(self, agent: str) -> None:
        """Latch the kill switch for an agent."""
        fence = Fence(scope=Scope.AGENT, name=agent, by="p", at=now())
        await self._persist(lambda: self.journal.fence(fence))
        self._witness.saw(Promise(agent, 1, FENCE))

    async def reset(self, agent: str) -> None:
        """Lift it again."""
        await self._persist(lambda: self.journal.unfence(Scope.AGENT, agent))
        self._witness.saw(Promise(agent, 0, FENCE))

    async def snapshot(self, run: str) -> None:
        state = await self._persist(lambda: self.journal.load(run))
        await self._persist(lambda: save_snapshot(self.journal, state))

    async def look(self, run: str) -> None:
        """Know all that has happened to a run."""
        self._see(*await self._persist(lambda: self.journal.read(run)))

    async def append(self, run: str, *events: Event, epoch: int | None = None) -> tuple[Recorded, ...]:
        """Append, and when that was refused for ignorance, learn and try again. Raises other refusals, or `GaveUp`."""
        for _ in range(CONFLICTS):
            with suppress(Conflict):
                return await self._persist(lambda: self._append_or_find(run, events, epoch))
        raise GaveUp(f"{CONFLICTS} conflicts in a row on {run}")

    async def _append_or_find(self, run: str, events: Sequence[Event], epoch: int | None) -> tuple[Recorded, ...]:
        try:
            appended = await self.journal.append(run, events, after=self.seen[run], epoch=epoch)
        except StoreUnavailable:
            # Not known whether it was taken. What the journal has, it has promised.
            records = await self.journal.read(run, after=self.seen[run])
            mine = self._learn(*(record for record in records if record.event.id in {event.id for event in events}))
            if len(mine) < len(events):
                raise
            return mine
        except JournalError as refusal:
            self._see(*getattr(refusal, "missed", ()))
            self._learn(*getattr(refusal, "committed", ()))
            raise
        self._see(*appended.missed)
        return self._learn(*appended.events)

    def _learn(self, *records: Recorded) -> tuple[Recorded, ...]:
        """What was made here is in the journal: it is promised from now on."""
        if records:
            self._witness.saw(*(Promise(record.run, record.seq, record.event.id) for record in records))
        self._see(*records)
        return records

    def _see(self, *records: Recorded) -> None:
        for record in records:
            self.seen[record.run] = max(self.seen.get(record.run, 0), record.seq)

    async def _persist(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask a few times; the same request is recognised by its ids, so a repeat is safe."""
        for _ in range(TRIES - 1):
            with suppress(StoreFull, StoreUnavailable):
                return await ask()
            await asyncio.sleep(PAUSE_SECONDS)
        try:
            return await ask()
        except (StoreFull, StoreUnavailable) as error:
            raise GaveUp(f"{error.code}: {error}") from error


def now() -> float:
    return time.time()
