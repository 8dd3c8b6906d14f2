"""A journal as a driver uses it: while its lease holds, a store that is away is asked again.

A store may be away for a moment: locked, restarted, unplugged. Nobody can claim the run before its lease is over, so
until then its calls go on, and whatever was asked of the store is asked again. A repeat does no harm: an append is
known by the ids of its events, and a follower goes on where it stood. When the lease is over, or the journal was
closed, whoever asks is told that the run is lost.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Container, Mapping, Sequence
from typing import ParamSpec, Self, TypeVar, Unpack

from checkrein.core.effects import Effect
from checkrein.core.enums import EffectState, Status
from checkrein.core.events import Event, RunCreated
from checkrein.core.state import State
from checkrein.driver.ownership import Ownership, OwnershipLost
from checkrein.errors import StoreUnavailable
from checkrein.journal import base
from checkrein.journal.evidence import EvidenceTables

P = ParamSpec("P")
T = TypeVar("T")


class PatientJournal(base.Journal):
    """What a driver reads and writes goes through this; leases and fences are passed on as they are."""

    def __init__(self, journal: base.Journal, ownership: Ownership) -> None:
        self._journal = journal
        self._ownership = ownership

    async def _ask(self, ask: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        while True:
            try:
                return await ask(*args, **kwargs)
            except StoreUnavailable as error:
                if not await self._ownership.may_ask_again(error):
                    raise OwnershipLost from error

    @property
    def evidence(self) -> EvidenceTables:
        return self._journal.evidence

    async def create(self, event: RunCreated, *, if_busy: base.IfBusy = "queue") -> base.Recorded:
        return await self._ask(self._journal.create, event, if_busy=if_busy)

    async def append(self, run: str, events: Sequence[Event], *, after: int, epoch: int | None = None) -> base.Appended:
        return await self._ask(self._journal.append, run, events, after=after, epoch=epoch)

    async def read(self, run: str, *, after: int = 0, limit: int | None = None) -> tuple[base.Recorded, ...]:
        return await self._ask(self._journal.read, run, after=after, limit=limit)

    async def find(self, run: str, event_id: str) -> base.Recorded | None:
        return await self._ask(self._journal.find, run, event_id)

    def follow(self, run: str, *, after: int = 0, wants: base.Wants | None = None) -> base.RecordStream:
        return _PatientStream(self._journal.follow(run, after=after, wants=wants), self._ownership)

    def changes(self, *, except_for: Container[str] = ()) -> AsyncIterator[frozenset[str]]:
        return self._journal.changes(except_for=except_for)

    async def load(self, run: str) -> State:
        return await self._ask(self._journal.load, run)

    async def states(self, ids: Collection[str]) -> Mapping[str, State]:
        return await self._ask(self._journal.states, ids)

    async def effects(self, run: str, states: Collection[EffectState] = ()) -> tuple[Effect, ...]:
        return await self._ask(self._journal.effects, run, states)

    async def runs(
        self, *, limit: int = 100, before: str | None = None, **wanted: Unpack[base.RunFilter]
    ) -> tuple[base.RunRow, ...]:
        return await self._ask(self._journal.runs, limit=limit, before=before, **wanted)

    async def tally(self) -> Mapping[tuple[str, Status], int]:
        return await self._ask(self._journal.tally)

    async def wanting_undo(self) -> tuple[str, ...]:
        return await self._ask(self._journal.wanting_undo)

    async def verify(self, run: str) -> int:
        return await self._ask(self._journal.verify, run)

    async def claim(
        self, run: str, owner: base.Owner, *, seconds: float, **terms: Unpack[base.ClaimTerms]
    ) -> base.Lease:
        return await self._journal.claim(run, owner, seconds=seconds, **terms)

    async def renew(self, owner: base.Owner, *, seconds: float, runs: Collection[str] | None = None) -> frozenset[str]:
        return await self._journal.renew(owner, seconds=seconds, runs=runs)

    async def release(self, lease: base.Lease, *, rests_at: int = 0, hands_over: bool = False) -> None:
        await self._journal.release(lease, rests_at=rests_at, hands_over=hands_over)

    async def lease(self, run: str) -> base.Lease | None:
        return await self._ask(self._journal.lease, run)

    async def leases(self, ids: Collection[str]) -> Mapping[str, base.Lease]:
        return await self._ask(self._journal.leases, ids)

    async def versions(self, ids: Collection[str]) -> Mapping[str, str]:
        return await self._ask(self._journal.versions, ids)

    async def owners(self) -> tuple[base.Owner, ...]:
        return await self._ask(self._journal.owners)

    async def leases_of(
        self, processes: Collection[str], agents: Collection[str], **left: Unpack[base.LeftToOthers]
    ) -> tuple[base.Lease, ...]:
        return await self._ask(self._journal.leases_of, processes, agents, **left)

    async def free_runs(
        self, agents: Collection[str], owner: base.Owner, *, most: int, **options: Unpack[base.ClaimOptions]
    ) -> tuple[str, ...]:
        return await self._ask(self._journal.free_runs, agents, owner, most=most, **options)

    async def claim_free(
        self,
        agents: Collection[str],
        owner: base.Owner,
        *,
        most: int,
        seconds: float,
        **options: Unpack[base.ClaimOptions],
    ) -> tuple[base.Lease, ...]:
        return await self._journal.claim_free(agents, owner, most=most, seconds=seconds, **options)

    async def enlist(self, worker: base.Worker, *, seconds: float, instead_of: Collection[str] = ()) -> base.Worker:
        return await self._journal.enlist(worker, seconds=seconds, instead_of=instead_of)

    async def discharge(self, owner: base.Owner) -> None:
        await self._journal.discharge(owner)

    async def workers(self) -> tuple[base.Worker, ...]:
        return await self._ask(self._journal.workers)

    async def bury(self, name: str, *, by: str, reason: str) -> base.Worker:
        return await self._journal.bury(name, by=by, reason=reason)

    async def departed(self, processes: Collection[str]) -> frozenset[str]:
        return await self._ask(self._journal.departed, processes)

    async def fence(self, fence: base.Fence, *, host: str = "") -> bool:
        return await self._journal.fence(fence, host=host)

    async def unfence(self, scope: base.Scope, name: str = "", **words: Unpack[base.LiftWords]) -> bool:
        return await self._journal.unfence(scope, name, **words)

    async def fences(self) -> tuple[base.Fence, ...]:
        return await self._ask(self._journal.fences)

    async def operations(self, *, after: int = 0, limit: int | None = None) -> tuple[base.RecordedOperation, ...]:
        return await self._ask(self._journal.operations, after=after, limit=limit)

    def operated(self, *, seconds: float) -> AsyncIterator[None]:
        return self._journal.operated(seconds=seconds)

    async def write_chunks(self, chunks: Mapping[str, Sequence[base.Chunk]]) -> None:
        await self._journal.write_chunks(chunks)

    async def chunks(self, run: str, call: str, *, after: int = -1) -> tuple[base.Chunk, ...]:
        return await self._ask(self._journal.chunks, run, call, after=after)

    def texts(self) -> AsyncIterator[frozenset[str] | None]:
        return self._journal.texts()

    async def chunks_of(self, after: Mapping[tuple[str, str], int]) -> Mapping[tuple[str, str], tuple[base.Chunk, ...]]:
        return await self._ask(self._journal.chunks_of, after)

    async def write_file(self, run: str, call: str, number: int, body: bytes) -> None:
        await self._journal.write_file(run, call, number, body)

    async def file(self, run: str, call: str, number: int) -> bytes | None:
        return await self._ask(self._journal.file, run, call, number)

    def now(self) -> float:
        return self._journal.now()

    def check_may_drive(self) -> None:
        self._journal.check_may_drive()

    async def close(self) -> None:
        await self._journal.close()


class _PatientStream:
    """The events of a run; while the store is away it waits, and then goes on where it stood."""

    def __init__(self, stream: base.RecordStream, ownership: Ownership) -> None:
        self._stream = stream
        self._ownership = ownership

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> base.Recorded:
        while True:
            try:
                return await anext(self._stream)
            except StoreUnavailable as error:
                if not await self._ownership.may_ask_again(error):
                    raise OwnershipLost from error

    async def aclose(self) -> None:
        await self._stream.aclose()
