"""Signs what happens while it happens: the head of a run at each stop that has settled, and the heads of all runs that
have changed, together, once a minute.

Whoever has the key does this, a front or an operator's command. Several may: each appends to the same log after the
others, and what one has signed the next finds there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Final

import msgspec

from checkrein.control.evidence.keys import SigningKey
from checkrein.control.evidence.log import OPERATIONS, Leaf, Statement, sign
from checkrein.control.stops import STOPS
from checkrein.core.events import VerbSettled
from checkrein.errors import JournalError, RunNotFound
from checkrein.journal.base import Journal, RunRow

_log = logging.getLogger(__name__)

HEADS_SECONDS: Final = 60.0
STOPS_SECONDS: Final = 1.0
"""How long it waits after a change: what comes within that is looked at together."""
OVERLAP_SECONDS: Final = 600.0
"""So far before what was signed last it looks again: the clocks of hosts differ, and another signer may have died."""
_PAGE: Final = 500


class Signer:
    def __init__(self, journal: Journal, key: SigningKey, clock: Callable[[], float]) -> None:
        self._journal = journal
        self._key = key
        self._clock = clock
        self._looked_at: float | None = None
        """Up to here everything that has changed was looked at; None: nothing was yet."""
        self._stops: dict[str, int] = {}
        """Up to which event the stops of a run are signed."""
        self._heads: dict[str, int] = {}
        """The head of each run that was signed last."""
        self._operations: int | None = None
        """Up to which record the operations are signed; None: not known yet."""

    async def run(self) -> None:
        """Sign, until this is cancelled. What the store does not take now is signed later."""
        changed = asyncio.Event()
        listening = asyncio.create_task(self._listen(changed))
        is_behind, heads_due_at = True, 0.0
        try:
            while True:
                is_due = is_behind and self._clock() >= heads_due_at
                try:
                    await self.sign(heads=is_due)
                    if is_due:
                        is_behind, heads_due_at = False, self._clock() + HEADS_SECONDS
                except JournalError as error:
                    _log.warning("nothing is signed until the store answers: %s", error)
                left = max(0.0, heads_due_at - self._clock()) if is_behind else None
                with suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), left)
                    is_behind = True
                changed.clear()
                await asyncio.sleep(STOPS_SECONDS)
        finally:
            listening.cancel()

    async def _listen(self, changed: asyncio.Event) -> None:
        async def operations() -> None:
            async for _ in self._journal.operated(seconds=HEADS_SECONDS):
                changed.set()

        async with asyncio.TaskGroup() as group:
            group.create_task(operations())
            async for _ in self._journal.changes():
                changed.set()

    async def sign(self, *, heads: bool = True) -> int:
        """Sign every stop that has settled since, and with `heads` the heads of all that has changed. How many
        statements that were."""
        since, at = await self._since(), self._clock()
        count = 0
        async for row in self._changed(since, asked=True):
            if self._stops.get(row.id) != row.seq:
                count += await self._sign_stops(row)
        count += await self._sign_operations()
        if heads:
            count += await self._sign_heads(since)
            self._looked_at = at
        return count

    async def _since(self) -> float:
        if self._looked_at is not None:
            return self._looked_at - OVERLAP_SECONDS
        last = await self._journal.evidence.last_signed()
        if last is None:
            return 0.0
        return msgspec.json.decode(last.body, type=Statement).at - OVERLAP_SECONDS

    async def _changed(self, since: float, *, asked: bool) -> AsyncIterator[RunRow]:
        before: str | None = None
        while rows := await self._journal.runs(asked=asked, changed_after=since, limit=_PAGE, before=before):
            for row in rows:
                yield row
            before = rows[-1].id

    async def _sign_stops(self, row: RunRow) -> int:
        run = row.id
        if run not in self._stops:
            signed = await self._journal.evidence.signed(run=run)
            said = [msgspec.json.decode(entry.body, type=Statement) for entry in signed]
            self._stops[run] = max((one.seq for one in said if one.kind == "stop"), default=0)
        count = 0
        try:
            records = await self._journal.read(run, after=self._stops[run])
        except RunNotFound:  # it was deleted meanwhile
            return 0
        for record in records:
            if isinstance(record.event, VerbSettled) and record.event.verb in STOPS:
                leaf = Leaf(run, record.seq, record.hash.hex())
                await self._sign_leaf(leaf, record.event.verb.value)
                count += 1
            self._stops[run] = record.seq
        return count

    async def _sign_leaf(self, leaf: Leaf, what: str) -> None:
        await sign(self._journal, self._key, "stop", at=self._clock(), leaf=leaf, what=what)

    async def _sign_operations(self) -> int:
        """Every halt and every reset. Each run that a halt ends has settled a stop of its own besides."""
        if self._operations is None:
            signed = await self._journal.evidence.signed(run=OPERATIONS)
            said = [msgspec.json.decode(entry.body, type=Statement) for entry in signed]
            self._operations = max((one.seq for one in said), default=0)
        records = await self._journal.operations(after=self._operations)
        for record in records:
            leaf, operation = Leaf(OPERATIONS, record.seq, record.hash.hex()), record.operation
            at = self._clock()
            await sign(self._journal, self._key, "operation", at=at, leaf=leaf, what=operation.type, by=operation.by)
            self._operations = record.seq
        return len(records)

    async def _sign_heads(self, since: float) -> int:
        leaves = []
        async for row in self._changed(since, asked=False):
            if self._heads.get(row.id) == row.seq:
                continue
            with suppress(RunNotFound):  # it was deleted meanwhile
                for record in await self._journal.read(row.id, after=row.seq - 1, limit=1):
                    leaves.append(Leaf(row.id, record.seq, record.hash.hex()))
        if not leaves:
            return 0
        await sign(self._journal, self._key, "heads", at=self._clock(), leaves=sorted(leaves))
        self._heads.update({leaf.run: leaf.seq for leaf in leaves})
        return 1
