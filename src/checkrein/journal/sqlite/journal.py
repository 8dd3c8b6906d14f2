"""A journal in one SQLite file, for any number of tasks and for several processes on one host."""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Callable, Collection, Container, Mapping, Sequence
from functools import partial
from typing import Final, Unpack

from anyio import to_thread

from checkrein.asyncutil import run_to_completion
from checkrein.core.events import Event, RunCreated, VerbAccepted
from checkrein.core.state import State
from checkrein.journal import admission, base, encoding, refusals
from checkrein.journal.admission import Taken
from checkrein.journal.evidence import EvidenceTables
from checkrein.journal.queue import Lane
from checkrein.journal.sqlite import database, leases, reads, tables, workers
from checkrein.journal.sqlite.append import Append, Create, find
from checkrein.journal.sqlite.change_poller import Reader
from checkrein.journal.sqlite.disk_reserve import Reserve
from checkrein.journal.sqlite.evidence import SqliteEvidence
from checkrein.journal.sqlite.job import Transaction
from checkrein.journal.sqlite.tables import SaveSnapshot, WriteChunks, WriteFile
from checkrein.journal.sqlite.write_lock import WriteLock
from checkrein.journal.sqlite.writer import Writer
from checkrein.journal.stored import Reads, StoredJournal
from checkrein.journal.subscriptions import Changes, Follower, Operated, Subscriptions
from checkrein.timings import STORE_PATIENCE_SECONDS

ASKED: Final = "INSERT OR IGNORE INTO asked (run) SELECT key FROM runs WHERE id = ?1"


class AppendVerb(Append):
    """An append that may ask something of its run; that it did is kept beside it."""

    def perform(self, tx: Transaction) -> Taken:
        taken = super().perform(tx)
        if any(isinstance(record.event, VerbAccepted) for record in taken.events):
            tx.cursor.execute(ASKED, (taken.events[0].run,))
        return taken


class SqliteJournal(StoredJournal[sqlite3.Connection]):
    """Opens the journal at `path`, or makes one. Blocks meanwhile; `open_journal` does not.

    `clock` gives Unix seconds and is asked, beside `steady`, for leases only; `patience` is how many seconds a write
    waits for other processes before it raises `StoreUnavailable`.
    """

    _reader: Reader
    # In the order of `Reads`.
    _reads = Reads(
        reads.read,
        reads.heads,
        find,
        reads.check_chain,
        tables.read_snapshot,
        reads.fold,
        reads.tally,
        tables.read_effects,
        tables.wanting_undo,
        leases.read_all,
        leases.versions,
        leases.owners,
        workers.departed,
        tables.read_fences,
        tables.read_operations,
        tables.read_chunks,
        tables.read_chunks_of,
        tables.read_file,
    )

    def __init__(
        self,
        path: str,
        *,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = base.steady,
        patience: float = STORE_PATIENCE_SECONDS,
    ) -> None:
        self._clocks = leases.Clocks(clock, steady)
        self._path = database.ensure(path)
        self._tower = Subscriptions()
        with database.explained(self._path):
            reader = database.connect(self._path, is_writer=False)
            # The reader may have made the log, and SQLite does not mind when the name of that is not on disk.
            database.sync(os.path.dirname(self._path))
            connect = partial(database.connect, self._path)
            turns = WriteLock(self._path, patience)
            reserve = Reserve(self._path)
            self._writer = Writer(self._path, connect, reserve, turns, self._on_commit)
        self._reader = Reader(self._path, reader, self._tower)
        self._evidence = SqliteEvidence(self._writer, self._reader, self._path)

    def _on_commit(self, tx: Transaction) -> None:
        if not self._tower.is_listened_to:
            return
        if tx.last:
            self._reader.committed(tx)
            self._tower.announce(tx.news)
        if tx.has_operation:
            self._tower.announce_operations()

    @property
    def evidence(self) -> EvidenceTables:
        return self._evidence

    # -- events

    async def create(self, event: RunCreated, *, if_busy: base.IfBusy = "queue") -> base.Recorded:
        return await self._writer.submit(Create(event, self._path, is_refused_if_busy=if_busy == "refuse"))

    async def append(self, run: str, events: Sequence[Event], *, after: int, epoch: int | None = None) -> base.Appended:
        proposal = admission.propose(events, after=after, epoch=epoch)
        kind = AppendVerb if proposal.shape.has_verb else Append
        taken = await self._writer.submit(
            kind(run, proposal, [encoding.encode_checked(event) for event in proposal.events])
        )
        return await self._appended(run, proposal, taken, after, self._path)

    def follow(self, run: str, *, after: int = 0, wants: base.Wants | None = None) -> base.RecordStream:
        follower = Follower(self._tower, run, after, self._read, self._heads, wants)
        self._reader.look_out()
        return follower

    def changes(self, *, except_for: Container[str] = ()) -> AsyncIterator[frozenset[str]]:
        changes = Changes(self._tower, self._reader.check_open, except_for)
        self._reader.look_out()
        return changes

    # -- what is derived from events

    def _keep_snapshot(self, state: State) -> None:
        self._writer.submit_quietly(SaveSnapshot(state, self._path, Lane.IDLE))

    async def states(self, ids: Collection[str]) -> Mapping[str, State]:
        found: dict[str, State] = {}
        left, begun = list(dict.fromkeys(ids)), None
        while left:
            answers, begun = await self._reader.ask(reads.states, left[: reads.STATES], begun)
            for name, answer in zip(left, answers, strict=False):
                if answer is not None:
                    found[name] = self._loaded(*answer)
            del left[: len(answers)]
        return found

    async def runs(
        self, *, limit: int = 100, before: str | None = None, **wanted: Unpack[base.RunFilter]
    ) -> tuple[base.RunRow, ...]:
        changed_after = wanted.get("changed_after")
        changed = None if changed_after is None else await self._changed(changed_after)
        narrowed = reads.Narrowed(wanted, changed, before)
        if not narrowed.has_no_index:
            return await self._reader.ask(reads.runs, narrowed, limit)
        # A piece at a time: whoever stops a run asks the same reader, and does not wait for a search.
        found: list[base.RunRow] = []
        newest = await self._reader.ask(reads.newest, before)
        while newest > 0 and len(found) < limit:
            keys = (newest - reads.SCANNED + 1, newest)
            found += await self._reader.ask(reads.runs, narrowed, limit - len(found), keys)
            newest = keys[0] - 1
        return tuple(found)

    async def _changed(self, after: float) -> reads.Changed:
        keys, position = frozenset[int](), sys.maxsize
        while position:
            found, position = await self._reader.ask(reads.recent, position, after)
            keys |= found
        return reads.Changed(after, keys)

    # -- leases

    async def claim(
        self, run: str, owner: base.Owner, *, seconds: float, **terms: Unpack[base.ClaimTerms]
    ) -> base.Lease:
        return await self._writer.submit(leases.Claim(run, owner, seconds, terms, self._clocks))

    async def renew(self, owner: base.Owner, *, seconds: float, runs: Collection[str] | None = None) -> frozenset[str]:
        return await self._writer.submit(leases.Renew(owner, seconds, runs, self._clocks))

    async def release(self, lease: base.Lease, *, rests_at: int = 0, hands_over: bool = False) -> None:
        await self._writer.submit(leases.Release(lease, rests_at, hands_over))

    async def lease(self, run: str) -> base.Lease | None:
        _, _, lease = await self._reader.ask(leases.read, run)
        return lease

    async def leases_of(
        self, processes: Collection[str], agents: Collection[str], **left: Unpack[base.LeftToOthers]
    ) -> tuple[base.Lease, ...]:
        return await self._reader.ask(leases.leases_of, processes, agents, left, self._clocks.wall())

    async def free_runs(
        self, agents: Collection[str], owner: base.Owner, *, most: int, **options: Unpack[base.ClaimOptions]
    ) -> tuple[str, ...]:
        return tuple(await self._reader.ask(leases.free, leases.Wanted(agents, owner, most, options), self._clocks))

    async def _claim_some(
        self, agents: Collection[str], owner: base.Owner, most: int, seconds: float, options: base.ClaimOptions
    ) -> tuple[base.Lease, ...]:
        wanted = leases.Wanted(agents, owner, most, options)
        return await self._writer.submit(leases.ClaimFree(wanted, seconds, self._clocks))

    # -- workers

    async def enlist(self, worker: base.Worker, *, seconds: float, instead_of: Collection[str] = ()) -> base.Worker:
        refusals.check_worker(worker)
        return await self._writer.submit(workers.Enlist(worker, seconds, instead_of, self._clocks))

    async def discharge(self, owner: base.Owner) -> None:
        await self._writer.submit(workers.Discharge(owner))

    async def workers(self) -> tuple[base.Worker, ...]:
        return await self._reader.ask(workers.read, self._clocks)

    async def bury(self, name: str, *, by: str, reason: str) -> base.Worker:
        return await self._writer.submit(workers.Bury(name, by, reason, self._clocks))

    # -- fences

    async def fence(self, fence: base.Fence, *, host: str = "") -> bool:
        admission.check_fence(fence)
        return await self._writer.submit(tables.PutFence(fence, host, self._clocks.wall))

    async def unfence(self, scope: base.Scope, name: str = "", **words: Unpack[base.LiftWords]) -> bool:
        asked = admission.reset_request(scope, name, words)
        return await self._writer.submit(tables.LiftFence(asked, words.get("runs", ()), self._clocks.wall))

    # -- operations

    def operated(self, *, seconds: float) -> AsyncIterator[None]:
        operated = Operated(self._tower, seconds)
        self._reader.look_out()
        return operated

    # -- streamed text

    async def write_chunks(self, chunks: Mapping[str, Sequence[base.Chunk]]) -> None:
        await self._writer.submit(WriteChunks(chunks, self._path))

    # -- files of calls

    async def write_file(self, run: str, call: str, number: int, body: bytes) -> None:
        await self._writer.submit(WriteFile(run, call, number, body, self._path))

    # -- the store

    def now(self) -> float:
        return self._clocks.wall()

    async def close(self) -> None:
        await run_to_completion(self._close())  # it takes no longer than what was queued

    async def _close(self) -> None:
        await to_thread.run_sync(self._writer.close)
        # Those whose append was still committed now read what they missed, and are ahead in the reader's queue.
        await to_thread.run_sync(self._reader.close)
        self._tower.ring_all()
