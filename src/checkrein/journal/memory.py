"""A journal in dictionaries: nothing survives the process, everything else holds.

This is the contract written out as plainly as possible; the other journals are compared with it. Nothing here waits, so
every method is a transaction by itself.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Container, Iterator, Sequence
from itertools import islice

from msgspec.structs import replace

from checkrein.core.effects import AT_THE_END, EFFECT_EVENTS, Effect, evolve_effect
from checkrein.core.events import EffectOpened, Event, RunCreated, RunFinished
from checkrein.core.evolve import evolve
from checkrein.core.state import State
from checkrein.core.words import TERMINAL, EffectState, Status
from checkrein.errors import CheckreinError
from checkrein.journal import chain, codec, refusals, rules
from checkrein.journal.bells import Changes, Follower, Tower
from checkrein.journal.contract import Appended, Chunk, Fence, Journal, Lease, Owner, Recorded, RunRow, Scope, Wants


class _Run:
    """One run and what is derived from its events."""

    def __init__(self, event: RunCreated) -> None:
        self.created = event
        self.head = rules.Head(seq=0, decided=0, epoch=0, status=event.status)
        self.records: list[Recorded] = []
        self.ids: dict[str, Recorded] = {}
        self.effects: dict[str, Effect] = {}
        self.chunks: dict[tuple[str, int], Chunk] = {}
        self.lease: Lease | None = None
        self.snapshot: State | None = None

    def record(self, events: Sequence[Event]) -> tuple[Recorded, ...]:
        previous = self.records[-1].hash if self.records else chain.genesis(self.created.run)
        for event in events:
            seq, body = len(self.records) + 1, codec.encode_checked(event)
            previous = chain.link(previous, seq, body)
            record = Recorded(self.created.run, seq, event, body, previous)
            self.records.append(record)
            self.ids[event.id] = record
            self._keep_effects(event)
        return tuple(self.records[len(self.records) - len(events) :])

    def _keep_effects(self, event: Event) -> None:
        if isinstance(event, RunFinished):
            for effect in self.effects.values():
                if effect.state is EffectState.OPEN:
                    self.effects[effect.id] = replace(effect, state=AT_THE_END[event.status])
        elif type(event) in EFFECT_EVENTS:
            name: str = event.effect  # type: ignore[attr-defined]
            after = evolve_effect(self.effects.get(name), event)
            if isinstance(event, EffectOpened):
                self.effects.pop(name, None)  # the order is that of the last opening
            if after is not None:
                self.effects[name] = after

    def row(self) -> RunRow:
        created = self.created
        return RunRow(
            id=created.run,
            agent=created.agent,
            owner=created.owner,
            thread=created.thread,
            parent=created.parent,
            root=created.root,
            goal=created.goal,
            status=self.head.status,
            seq=self.head.seq,
            created_at=created.at,
            changed_at=self.records[-1].event.at,
        )


class MemoryJournal(Journal):
    """`clock` gives Unix seconds; it is asked for leases only."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._runs: dict[str, _Run] = {}
        self._fences: dict[tuple[Scope, str, bool, str], Fence] = {}
        """The last part of the key is the name the fence was made for: that of the run itself, or of one above it."""
        self._tower = Tower()
        self._is_closed = False

    # -- events

    async def create(self, event: RunCreated) -> Recorded:
        self._check_open()
        known = self._runs.get(event.run)
        if known is not None:
            if event.id in known.ids:
                return known.ids[event.id]
            raise refusals.exists(event.run)
        run = _Run(event)
        parent = self._run(event.parent) if event.parent else None
        rules.check_descent(event, parent.created.root if parent else None)
        if self._cover(run) or (parent and self._cover(parent)):
            raise refusals.fenced_creation(event)
        if parent and parent.head.status in TERMINAL:
            raise refusals.over_parent(event)
        (record,) = run.record([event])
        run.head = run.head._replace(seq=1, decided=1)
        self._runs[event.run] = run
        self._tower.announce({event.run: [record]})
        return record

    async def append(self, run: str, events: Sequence[Event], *, after: int, epoch: int | None = None) -> Appended:
        proposal = rules.propose(events, after=after, epoch=epoch)
        for event in proposal.events:
            codec.encode_checked(event)  # before any of them is recorded
        self._check_open()
        kept = self._run(run)
        left = rules.remainder(proposal, kept.ids)
        before = kept.head
        refusal = None if left is None else self._take(kept, left)
        own = {event.id: kept.ids[event.id] for event in proposal.events if event.id in kept.ids}
        taken = tuple(own.values())
        if refusal is not None:
            raise refusals.refused(refusal, before, run, proposal, taken, tuple(islice(kept.records, after, None)))
        missed = (r for r in islice(kept.records, after, taken[-1].seq) if r.event.id not in own)
        return Appended(taken, tuple(missed))

    def _take(self, run: _Run, proposal: rules.Proposal) -> type[CheckreinError] | None:
        """Record what is admitted, and return what refuses the rest."""
        admission = rules.admit(proposal, run.head, cover=self._cover(run))
        if admission.taken:
            records = run.record(proposal.events[: admission.taken])
            run.head = rules.advance(run.head, proposal, admission.taken)
            self._tower.announce({run.created.run: records})
        if proposal.fencing is not None and admission.refusal is None:
            self._fence_with_descendants(rules.fence_of(run.created.run, proposal.fencing))
        return admission.refusal

    async def read(self, run: str, *, after: int = 0, limit: int | None = None) -> tuple[Recorded, ...]:
        self._check_open()
        end = None if limit is None else after + limit
        return tuple(islice(self._run(run).records, after, end))

    async def find(self, run: str, event_id: str) -> Recorded | None:
        self._check_open()
        return self._runs[run].ids.get(event_id) if run in self._runs else None

    def follow(self, run: str, *, after: int = 0, wants: Wants | None = None) -> AsyncIterator[Recorded]:
        def read(run: str, after: int, limit: int) -> Awaitable[tuple[Recorded, ...]]:
            return self.read(run, after=after, limit=limit)

        return Follower(self._tower, run, after, read, wants)

    def changes(self, *, except_for: Container[str] = ()) -> AsyncIterator[frozenset[str]]:
        return Changes(self._tower, self._check_open, except_for)

    # -- what is derived from events

    async def load(self, run: str) -> State:
        self._check_open()
        kept = self._run(run)
        state = kept.snapshot
        for record in islice(kept.records, state.seq if state else 0, None):
            state = evolve(state, record.event, record.seq)
        assert state is not None
        return state

    async def save_snapshot(self, state: State) -> None:
        self._check_open()
        run = self._run(state.run)
        if (run.snapshot.seq if run.snapshot else 0) < state.seq <= run.head.seq:
            run.snapshot = state

    async def effects(self, run: str, states: Collection[EffectState] = ()) -> tuple[Effect, ...]:
        self._check_open()
        return tuple(e for e in self._run(run).effects.values() if not states or e.state in states)

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
        self._check_open()
        newest_first = list(reversed(self._runs))
        if before is not None:
            self._run(before)
            newest_first = newest_first[newest_first.index(before) + 1 :]
        wanted = {"thread": thread, "owner": owner, "agent": agent, "root": root}
        rows = (self._runs[name].row() for name in newest_first)
        fitting = (
            row
            for row in rows
            if (not status or row.status in status)
            and all(value is None or getattr(row, field) == value for field, value in wanted.items())
        )
        return tuple(islice(fitting, limit))

    async def verify(self, run: str) -> int:
        self._check_open()
        kept = self._run(run)
        previous = chain.genesis(run)
        for seq, record in enumerate(kept.records, 1):
            previous = chain.link(previous, seq, record.body)
            if previous != record.hash:
                raise refusals.broken_chain(run, seq)
        return len(kept.records)

    # -- leases

    async def claim(
        self, run: str, owner: Owner, *, seconds: float, force: bool = False, epoch: int | None = None
    ) -> Lease:
        self._check_open()
        kept = self._run(run)
        now, current = self._clock(), kept.lease
        if epoch is not None and epoch <= kept.head.epoch:
            raise refusals.stale_claim(run, epoch, kept.head.epoch)
        if current and current.owner.process != owner.process and current.deadline > now and not force:
            raise refusals.held(run, current.owner, current.deadline)
        kept.head = kept.head._replace(epoch=kept.head.epoch + 1 if epoch is None else epoch)
        kept.lease = Lease(run=run, epoch=kept.head.epoch, owner=owner, deadline=now + seconds)
        return replace(kept.lease, previous=current.owner if current else None)

    async def renew(self, owner: Owner, *, seconds: float) -> frozenset[str]:
        self._check_open()
        now = self._clock()
        held = set()
        for name, kept in self._runs.items():
            if kept.lease and kept.lease.owner.process == owner.process and kept.lease.deadline > now:
                kept.lease = replace(kept.lease, deadline=now + seconds)
                held.add(name)
        return frozenset(held)

    async def release(self, lease: Lease) -> None:
        self._check_open()
        kept = self._run(lease.run)
        if kept.lease and (kept.lease.epoch, kept.lease.owner.process) == (lease.epoch, lease.owner.process):
            kept.lease = None

    async def lease(self, run: str) -> Lease | None:
        self._check_open()
        return self._run(run).lease

    # -- fences

    async def fence(self, fence: Fence) -> None:
        rules.check_fence(fence)
        self._check_open()
        self._fence_with_descendants(fence)

    async def unfence(self, scope: Scope, name: str = "") -> bool:
        self._check_open()
        lifted = [key for key in self._fences if (key[0], key[2], key[3]) == (scope, True, name)]
        for key in lifted:
            del self._fences[key]
        return bool(lifted)

    async def fences(self) -> tuple[Fence, ...]:
        self._check_open()
        halts = (fence for (_, name, halt, source), fence in self._fences.items() if halt and name == source)
        return tuple(sorted(halts, key=lambda fence: (fence.at, fence.scope, fence.name)))

    def _fence_with_descendants(self, fence: Fence) -> None:
        names = [fence.name]
        if fence.scope is Scope.RUN:
            names += self._descendants(fence.name)
        for name in names:
            self._fences.setdefault((fence.scope, name, fence.halt, fence.name), replace(fence, name=name))

    def _descendants(self, run: str) -> Iterator[str]:
        for name, kept in self._runs.items():
            if kept.created.parent == run:
                yield name
                yield from self._descendants(name)

    def _cover(self, run: _Run) -> rules.Cover:
        created = run.created
        scopes = {
            (Scope.RUN, created.run),
            (Scope.ROOT, created.root or created.run),
            (Scope.AGENT, created.agent),
            (Scope.OWNER, created.owner),
            (Scope.ALL, ""),
        }
        covers = (
            rules.Cover.HALT if halt else rules.Cover.CANCEL for s, n, halt, _ in self._fences if (s, n) in scopes
        )
        return max(covers, default=rules.Cover.NONE)

    # -- streamed text

    async def write_chunks(self, run: str, chunks: Sequence[Chunk]) -> None:
        self._check_open()
        kept = self._run(run).chunks
        for chunk in chunks:
            kept.setdefault((chunk.call, chunk.offset), chunk)

    async def chunks(self, run: str, call: str, *, after: int = -1) -> tuple[Chunk, ...]:
        self._check_open()
        kept = self._run(run).chunks
        return tuple(kept[key] for key in sorted(kept) if key[0] == call and key[1] > after)

    # -- the store

    async def close(self) -> None:
        self._is_closed = True
        self._tower.ring_all()

    def _check_open(self) -> None:
        if self._is_closed:
            raise refusals.closed()

    def _run(self, run: str) -> _Run:
        try:
            return self._runs[run]
        except KeyError:
            raise refusals.not_found(run) from None
