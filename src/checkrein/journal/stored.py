"""What journals have in common whose store is read by a thread of its own: a page at a time, since others read too."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Awaitable, Sequence
from typing import Final

import msgspec

from checkrein.core.state import State
from checkrein.journal import encoding, refusals
from checkrein.journal.admission import Proposal, Taken
from checkrein.journal.base import Appended, Burial, Journal, Lease, Owner, Recorded, Worker

PAGE: Final = 1000
"""How many events are read in one go."""


SNAPSHOT_AFTER: Final = 256
"""A load that had to fold more events than this keeps what it has found."""


class StoredJournal(Journal):
    @abstractmethod
    def _read(self, run: str, after: int, limit: int) -> Awaitable[tuple[Recorded, ...]]:
        """Up to `limit` events after `after`; no more than a page is asked for."""

    @abstractmethod
    def _check_chain(self, run: str, seq: int, hash: bytes) -> Awaitable[tuple[int, bytes, bool]]:
        """Walk up to a page of events after `seq`, which has `hash`. Says where that led and whether it is the end."""

    @abstractmethod
    def _snapshot(self, run: str) -> Awaitable[State | None]:
        """The latest that can be read, if any."""

    @abstractmethod
    def _fold(self, run: str, state: State | None) -> Awaitable[tuple[State | None, int]]:
        """`state` and up to a page of the events after it, folded; and how many those were."""

    @abstractmethod
    def _keep_snapshot(self, state: State) -> None:
        """Soon, and only if nothing stands in the way."""

    async def load(self, run: str) -> State:
        state = await self._snapshot(run)
        folded, page = 0, PAGE
        while page == PAGE:
            state, page = await self._fold(run, state)
            folded += page
        assert state is not None, "a run has at least its run.created"
        return self._loaded(state, folded)

    def _loaded(self, state: State, folded: int) -> State:
        if folded > SNAPSHOT_AFTER:
            self._keep_snapshot(state)
        return state

    async def read(self, run: str, *, after: int = 0, limit: int | None = None) -> tuple[Recorded, ...]:
        left = sys.maxsize if limit is None else limit
        records: tuple[Recorded, ...] = ()
        while True:
            page = await self._read(run, after, min(left, PAGE))
            records += page
            left -= len(page)
            if len(page) < PAGE or not left:
                return records
            after = page[-1].seq

    async def verify(self, run: str) -> int:
        seq, hash, is_end = 0, encoding.genesis(run), False
        while not is_end:
            seq, hash, is_end = await self._check_chain(run, seq, hash)
        return seq

    async def _appended(self, run: str, proposal: Proposal, taken: Taken, after: int, store: str) -> Appended:
        """What its maker is told of an append to `store`. Raises the refusal, if it was not taken whole."""
        if taken.refusal is not None:
            missed = await self.read(run, after=after)
            raise refusals.refused(*taken.refusal, run, proposal, taken.events, missed, store)
        is_up_to_date = taken.events[-1].seq - after <= len(taken.events)
        return Appended(taken.events, () if is_up_to_date else await self._missed(run, after, taken.events))

    async def _missed(self, run: str, after: int, own: tuple[Recorded, ...]) -> tuple[Recorded, ...]:
        ids = {record.event.id for record in own}
        between = await self.read(run, after=after, limit=own[-1].seq - after)
        return tuple(record for record in between if record.event.id not in ids)


def walk_chain(
    run: str, seq: int, hash: bytes, rows: Sequence[tuple[int, bytes, bytes, str]], last: int
) -> tuple[int, bytes, bool]:
    """Walk a page of events after `seq`, which has `hash`: their seq, body, recorded hash and id.

    Returns where that led and whether it is the end, which is not before `last`. Raises what is wrong with them.
    """
    for found, body, claimed, event_id in rows:
        hash = encoding.link(hash, seq + 1, body)
        if found != seq + 1 or claimed != hash or encoding.decode(body).id != event_id:
            raise refusals.broken_chain(run, seq + 1)
        seq = found
    is_end = len(rows) < PAGE
    if is_end and seq < last:
        raise refusals.broken_chain(run, seq + 1)
    return seq, hash, is_end


def lease_of_row(
    run: str, epoch: int, deadline: float, until: float, process: str, host: str, boot_id: str, pid: int, started: float
) -> Lease:
    """A lease from its columns, in the order in which both stores ask for them."""
    owner = Owner(process=process, host=host, boot_id=boot_id, pid=pid, started=started)
    return Lease(run=run, epoch=epoch, owner=owner, deadline=deadline, until=until)


WORKER_COLUMNS: Final = (
    "name, process, host, boot_id, pid, started, version, cards, agents, slots, free, engine, since, seen_until, "
    "buried_by, reason, buried_at"
)


def worker_of_row(
    name: str,
    process: str,
    host: str,
    boot_id: str,
    pid: int,
    started: float,
    version: str,
    cards: bytes,
    agents: str | bytes,
    slots: int,
    free: int,
    engine: str,
    since: float,
    seen_until: float,
    buried_by: str | bytes | None,
    reason: str | bytes | None,
    buried_at: float | None,
) -> Worker:
    """A worker from `WORKER_COLUMNS`. What people write is text in one store and bytes in the other."""
    is_buried = buried_by is not None and reason is not None and buried_at is not None
    return Worker(
        name=name,
        owner=Owner(process=process, host=host, boot_id=boot_id, pid=pid, started=started),
        version=version,
        cards=bytes(cards),
        agents=msgspec.json.decode(agents, type=tuple[str, ...]),
        slots=slots,
        free=free,
        engine=engine,
        since=since,
        seen_until=seen_until,
        burial=Burial(by=_text(buried_by), reason=_text(reason), at=buried_at or 0.0) if is_buried else None,
    )


def _text(written: str | bytes | None) -> str:
    return written if isinstance(written, str) else (written or b"").decode()
