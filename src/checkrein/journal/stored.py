"""What journals have in common whose store is read by a thread of its own: a page at a time, since others read too."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final, Generic, NamedTuple, TypeVar, Unpack

import msgspec

from checkrein.core.effects import Effect
from checkrein.core.enums import EffectState, Status
from checkrein.core.state import State
from checkrein.journal import encoding, refusals
from checkrein.journal.admission import Proposal, Taken
from checkrein.journal.base import (
    Appended,
    Burial,
    Chunk,
    ClaimOptions,
    Fence,
    Journal,
    Lease,
    Owner,
    Recorded,
    RecordedOperation,
    Worker,
)
from checkrein.journal.queue import ReadThread

PAGE: Final = 1000
"""How many events are read in one go."""
SNAPSHOT_AFTER: Final = 256
"""A load that had to fold more events than this keeps what it has found."""


C = TypeVar("C")
"""What a question is put to: a connection."""


class Reads(NamedTuple, Generic[C]):
    """What a store answers, each as a function of a connection. The journal's methods of the same names say what."""

    read: Callable[[C, str, int, int], tuple[Recorded, ...]]
    """Up to so many events after one; no more than a page is asked for."""
    heads: Callable[[C, Sequence[str]], Mapping[str, int]]
    """How many events each of these runs has; of one that there is not, nothing."""
    find: Callable[[C, str, str], Recorded | None]
    check_chain: Callable[[C, str, int, bytes], tuple[int, bytes, bool]]
    """Walk up to a page of events after one, which has that hash. Says where it led and whether it is the end."""
    snapshot: Callable[[C, str], State | None]
    """The latest that can be read, if any."""
    fold: Callable[[C, str, State | None], tuple[State | None, int]]
    """A state and up to a page of the events after it, folded; and how many those were."""
    tally: Callable[[C], Mapping[tuple[str, Status], int]]
    effects: Callable[[C, str, Collection[EffectState]], tuple[Effect, ...]]
    wanting_undo: Callable[[C], tuple[str, ...]]
    leases: Callable[[C, Collection[str]], Mapping[str, Lease]]
    versions: Callable[[C, Collection[str]], Mapping[str, str]]
    owners: Callable[[C], tuple[Owner, ...]]
    departed: Callable[[C, Collection[str]], frozenset[str]]
    fences: Callable[[C], tuple[Fence, ...]]
    operations: Callable[[C, int, int | None], tuple[RecordedOperation, ...]]
    chunks: Callable[[C, str, str, int], tuple[Chunk, ...]]
    chunks_of: Callable[[C, Mapping[tuple[str, str], int]], Mapping[tuple[str, str], tuple[Chunk, ...]]]
    file: Callable[[C, str, str, int], bytes | None]


class StoredJournal(Journal, Generic[C]):
    _reader: ReadThread[C]
    _reads: Reads[C]

    @abstractmethod
    def _keep_snapshot(self, state: State) -> None:
        """Soon, and only if nothing stands in the way."""

    @abstractmethod
    async def _claim_some(
        self, agents: Collection[str], owner: Owner, most: int, seconds: float, options: ClaimOptions
    ) -> tuple[Lease, ...]:
        """Claim those of the free runs that are still free."""

    def _check_version(self) -> None:
        """Raise what stands in the way of driving runs with this version."""

    # -- events

    def _read(self, run: str, after: int, limit: int) -> Awaitable[tuple[Recorded, ...]]:
        return self._reader.ask(self._reads.read, run, after, limit)

    def _heads(self, runs: Sequence[str]) -> Awaitable[Mapping[str, int]]:
        return self._reader.ask(self._reads.heads, runs)

    async def find(self, run: str, event_id: str) -> Recorded | None:
        return await self._reader.ask(self._reads.find, run, event_id)

    async def load(self, run: str) -> State:
        state = await self._reader.ask(self._reads.snapshot, run)
        folded, page = 0, PAGE
        while page == PAGE:
            state, page = await self._reader.ask(self._reads.fold, run, state)
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
            seq, hash, is_end = await self._reader.ask(self._reads.check_chain, run, seq, hash)
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

    # -- what is derived from events

    async def tally(self) -> Mapping[tuple[str, Status], int]:
        return await self._reader.ask(self._reads.tally)

    async def effects(self, run: str, states: Collection[EffectState] = ()) -> tuple[Effect, ...]:
        return await self._reader.ask(self._reads.effects, run, states)

    async def wanting_undo(self) -> tuple[str, ...]:
        return await self._reader.ask(self._reads.wanting_undo)

    # -- leases and workers

    async def leases(self, ids: Collection[str]) -> Mapping[str, Lease]:
        return await self._reader.ask(self._reads.leases, ids)

    async def versions(self, ids: Collection[str]) -> Mapping[str, str]:
        return await self._reader.ask(self._reads.versions, ids)

    async def owners(self) -> tuple[Owner, ...]:
        return await self._reader.ask(self._reads.owners)

    async def claim_free(
        self,
        agents: Collection[str],
        owner: Owner,
        *,
        most: int,
        seconds: float,
        **options: Unpack[ClaimOptions],
    ) -> tuple[Lease, ...]:
        self._check_version()
        if not await self.free_runs(agents, owner, most=1, **options):
            return ()  # asked first: to find nothing costs no transaction, which would keep others from writing
        return await self._claim_some(agents, owner, most, seconds, options)

    async def departed(self, processes: Collection[str]) -> frozenset[str]:
        return await self._reader.ask(self._reads.departed, processes)

    # -- fences and operations

    async def fences(self) -> tuple[Fence, ...]:
        return await self._reader.ask(self._reads.fences)

    async def operations(self, *, after: int = 0, limit: int | None = None) -> tuple[RecordedOperation, ...]:
        return await self._reader.ask(self._reads.operations, after, limit)

    # -- streamed text and files

    async def chunks(self, run: str, call: str, *, after: int = -1) -> tuple[Chunk, ...]:
        return await self._reader.ask(self._reads.chunks, run, call, after)

    async def chunks_of(self, after: Mapping[tuple[str, str], int]) -> Mapping[tuple[str, str], tuple[Chunk, ...]]:
        return await self._reader.ask(self._reads.chunks_of, after)

    async def file(self, run: str, call: str, number: int) -> bytes | None:
        return await self._reader.ask(self._reads.file, run, call, number)


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
