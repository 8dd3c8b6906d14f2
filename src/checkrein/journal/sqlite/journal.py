"""A journal in one SQLite file, for any number of tasks and for several processes on one host."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Container, Mapping, Sequence
from functools import partial
from typing import Final

from anyio import to_thread

from checkrein.core.effects import Effect
from checkrein.core.events import Event, RunCreated
from checkrein.core.state import State
from checkrein.core.words import EffectState, Status
from checkrein.journal import chain, codec, refusals, rules
from checkrein.journal.bells import Changes, Follower, Tower
from checkrein.journal.contract import Appended, Chunk, Fence, Journal, Lease, Owner, Recorded, RunRow, Scope, Wants
from checkrein.journal.sqlite import effects, extras, fences, file, leases, queries, trouble
from checkrein.journal.sqlite.events import Append, Create, find
from checkrein.journal.sqlite.extras import SaveSnapshot, WriteAllChunks, WriteChunks
from checkrein.journal.sqlite.jobs import Lane, Transaction
from checkrein.journal.sqlite.reader import Reader
from checkrein.journal.sqlite.reserve import Reserve
from checkrein.journal.sqlite.turns import Turns
from checkrein.journal.sqlite.writer import Writer
from checkrein.journal.surely import surely

SNAPSHOT_AFTER: Final = 256
"""A load that had to fold more events than this keeps what it has found."""


class SqliteJournal(Journal):
    """Opens the journal at `path`, or makes one. Blocks meanwhile; `open_journal` does not.

    `clock` gives Unix seconds and is asked for leases only; `patience` is how many seconds a write waits for other
    processes before it raises `StoreUnavailable`.
    """

    def __init__(self, path: str, *, clock: Callable[[], float] = time.time, patience: float = 10.0) -> None:
        self._clock = clock
        self._path = file.ensure(path)
        self._tower = Tower()
        with trouble.explained(self._path):
            reader = file.connect(self._path, is_writer=False)
            # The reader may have made the log, and SQLite does not mind when the name of that is not on disk.
            file.sync(os.path.dirname(self._path))
            connect = partial(file.connect, self._path)
            turns = Turns(self._path, patience)
            reserve = Reserve(self._path)
            self._writer = Writer(self._path, connect, reserve, turns, self._on_commit)
        self._reader = Reader(self._path, reader, self._tower)

    def _on_commit(self, tx: Transaction) -> None:
        if self._tower.is_listened_to:
            self._reader.committed(tx)
            self._tower.announce(tx.news)

    # -- events

    async def create(self, event: RunCreated) -> Recorded:
        return await self._writer.submit(Create(event, self._path))

    async def append(self, run: str, events: Sequence[Event], *, after: int, epoch: int | None = None) -> Appended:
        proposal = rules.propose(events, after=after, epoch=epoch)
        taken = await self._writer.submit(
            Append(run, proposal, [codec.encode_checked(event) for event in proposal.events])
        )
        if taken.refusal is not None:
            missed = await self.read(run, after=after)
            raise refusals.refused(*taken.refusal, run, proposal, taken.events, missed, self._path)
        is_up_to_date = taken.events[-1].seq - after <= len(taken.events)
        return Appended(taken.events, () if is_up_to_date else await self._missed(run, after, taken.events))

    async def _missed(self, run: str, after: int, own: tuple[Recorded, ...]) -> tuple[Recorded, ...]:
        ids = {record.event.id for record in own}
        between = await self.read(run, after=after, limit=own[-1].seq - after)
        return tuple(record for record in between if record.event.id not in ids)

    async def read(self, run: str, *, after: int = 0, limit: int | None = None) -> tuple[Recorded, ...]:
        left = sys.maxsize if limit is None else limit
        records: tuple[Recorded, ...] = ()
        while True:
            page = await self._read(run, after, min(left, queries.PAGE))
            records += page
            left -= len(page)
            if len(page) < queries.PAGE or not left:
                return records
            after = page[-1].seq

    def _read(self, run: str, after: int, limit: int) -> Awaitable[tuple[Recorded, ...]]:
        return self._reader.ask(queries.read, run, after, limit)

    async def find(self, run: str, event_id: str) -> Recorded | None:
        return await self._reader.ask(find, run, event_id)

    def follow(self, run: str, *, after: int = 0, wants: Wants | None = None) -> AsyncIterator[Recorded]:
        follower = Follower(self._tower, run, after, self._read, wants)
        self._reader.look_out()
        return follower

    def changes(self, *, except_for: Container[str] = ()) -> AsyncIterator[frozenset[str]]:
        changes = Changes(self._tower, self._reader.check_open, except_for)
        self._reader.look_out()
        return changes

    # -- what is derived from events

    async def load(self, run: str) -> State:
        state = await self._reader.ask(extras.read_snapshot, run)
        folded, page = 0, queries.PAGE
        while page == queries.PAGE:
            state, page = await self._reader.ask(queries.fold, run, state)
            folded += page
        assert state is not None, "a run has at least its run.created"
        if folded > SNAPSHOT_AFTER:
            self._writer.submit_quietly(SaveSnapshot(state, self._path, Lane.IDLE))
        return state

    async def save_snapshot(self, state: State) -> None:
        await self._writer.submit(SaveSnapshot(state, self._path))

    async def effects(self, run: str, states: Collection[EffectState] = ()) -> tuple[Effect, ...]:
        return await self._reader.ask(effects.read, run, states)

    async def runs(
        self,
        *,
        status: Collection[Status] = (),
        thread: str | None = None,
        owner: str | None = None,
        agent: str | None = None,
        root: str | None = None,
        limit: int = 100,
        before: str | None = None,
    ) -> tuple[RunRow, ...]:
        fields = {"thread": thread, "owner": owner, "agent": agent, "root": root}
        return await self._reader.ask(queries.runs, status, fields, limit, before)

    async def wanting_undo(self) -> tuple[str, ...]:
        return await self._reader.ask(effects.wanting_undo)

    async def verify(self, run: str) -> int:
        seq, hash, is_end = 0, chain.genesis(run), False
        while not is_end:
            seq, hash, is_end = await self._reader.ask(queries.check_chain, run, seq, hash)
        return seq

    # -- leases

    async def claim(
        self, run: str, owner: Owner, *, seconds: float, force: bool = False, epoch: int | None = None
    ) -> Lease:
        return await self._writer.submit(leases.Claim(run, owner, seconds, force, epoch, self._clock))

    async def renew(self, owner: Owner, *, seconds: float) -> frozenset[str]:
        return await self._writer.submit(leases.Renew(owner, seconds, self._clock))

    async def release(self, lease: Lease) -> None:
        await self._writer.submit(leases.Release(lease))

    async def lease(self, run: str) -> Lease | None:
        _, _, lease = await self._reader.ask(leases.read, run)
        return lease

    # -- fences

    async def fence(self, fence: Fence) -> None:
        rules.check_fence(fence)
        await self._writer.submit(fences.PutFence(fence))

    async def unfence(self, scope: Scope, name: str = "") -> bool:
        return await self._writer.submit(fences.LiftFence(scope, name))

    async def fences(self) -> tuple[Fence, ...]:
        return await self._reader.ask(fences.read)

    # -- streamed text

    async def write_chunks(self, run: str, chunks: Sequence[Chunk]) -> None:
        await self._writer.submit(WriteChunks(run, chunks, self._path))

    async def write_all_chunks(self, chunks: Mapping[str, Sequence[Chunk]]) -> None:
        await self._writer.submit(WriteAllChunks(chunks, self._path))

    async def chunks(self, run: str, call: str, *, after: int = -1) -> tuple[Chunk, ...]:
        return await self._reader.ask(extras.read_chunks, run, call, after)

    # -- the store

    async def close(self) -> None:
        await surely(self._close())  # it takes no longer than what was queued

    async def _close(self) -> None:
        await to_thread.run_sync(self._writer.close)
        # Those whose append was still committed now read what they missed, and are ahead in the reader's queue.
        await to_thread.run_sync(self._reader.close)
        self._tower.ring_all()
