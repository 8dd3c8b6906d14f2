"""A journal in dictionaries: nothing survives the process, everything else holds.

This is the contract written out as plainly as possible; the other journals are compared with it. Nothing here waits, so
every method is a transaction by itself.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Container, Iterator, Mapping, Sequence
from itertools import islice
from typing import Unpack

from msgspec.structs import replace

from checkrein.core.effects import Effect, EffectsById, fold_effects
from checkrein.core.enums import TERMINAL, UNFINISHED, EffectState, Status
from checkrein.core.events import Event, RunCreated, VerbAccepted
from checkrein.core.evolve import evolve
from checkrein.core.state import State
from checkrein.errors import CheckreinError
from checkrein.journal import admission as rules
from checkrein.journal import base, encoding, operations, refusals
from checkrein.journal.evidence import EvidenceTables, MemoryEvidence
from checkrein.journal.subscriptions import Changes, Follower, Operated, Subscriptions


class _Run:
    """One run and what is derived from its events."""

    def __init__(self, event: RunCreated) -> None:
        self.created = event
        self.head = rules.Head(seq=0, decided=0, epoch=0, status=event.status)
        self.records: list[base.Recorded] = []
        self.ids: dict[str, base.Recorded] = {}
        self.effects = EffectsById()
        self.chunks: dict[tuple[str, int], base.Chunk] = {}
        self.files: dict[tuple[str, int], bytes] = {}
        self.lease: base.Lease | None = None
        self.rests_at = 0
        """The seq at which it was released to rest."""
        self.version = ""
        """Of whoever drove it last."""
        self.is_asked = False
        """Whether something was ever asked of it."""

    def record(self, events: Sequence[Event]) -> tuple[base.Recorded, ...]:
        previous = self.records[-1].hash if self.records else encoding.genesis(self.created.run)
        for event in events:
            seq, body = len(self.records) + 1, encoding.encode_checked(event)
            previous = encoding.link(previous, seq, body)
            record = base.Recorded(self.created.run, seq, event, body, previous)
            self.records.append(record)
            self.ids[event.id] = record
            fold_effects(self.effects, event)
            self.is_asked |= isinstance(event, VerbAccepted)
        return tuple(self.records[len(self.records) - len(events) :])

    def state(self) -> State:
        state: State | None = None
        for record in self.records:
            state = evolve(state, record.event, record.seq)
        assert state is not None
        return state

    def row(self) -> base.RunRow:
        created = self.created
        return base.RunRow(
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


class _Enlisted:
    """One process on the roster."""

    def __init__(self, worker: base.Worker) -> None:
        self.worker = worker
        self.is_discharged = False
        self.is_replaced = False

    def is_seen(self, at: float) -> bool:
        worker = self.worker
        return not self.is_discharged and worker.burial is None and worker.seen_until > at


def _keeps_busy(run: _Run, created: RunCreated) -> bool:
    """Whether another run on its thread, as this event begins one, has to wait for `run`."""
    is_same = (run.created.thread, run.created.owner) == (created.thread, created.owner)
    return is_same and run.created.parent is None and run.head.status in UNFINISHED


class MemoryJournal(base.Journal):
    """`clock` gives Unix seconds; it is asked, beside the steady clock, for leases only."""

    def __init__(self, *, clock: Callable[[], float] = time.time, steady: Callable[[], float] = base.steady) -> None:
        self._clock = clock
        self._steady = steady
        self._runs: dict[str, _Run] = {}
        self._fences: dict[tuple[base.Scope, str, bool, str], base.Fence] = {}
        """The last part of the key is the name the fence was made for: that of the run itself, or of one above it."""
        self._operations: list[base.RecordedOperation] = []
        self._enlisted: list[_Enlisted] = []
        """In the order in which they were enlisted."""
        self._tower = Subscriptions()
        self._evidence = MemoryEvidence(self._runs.__contains__, self._run, self._delete)
        self._is_closed = False

    @property
    def evidence(self) -> EvidenceTables:
        self._check_open()
        return self._evidence

    # -- events

    async def create(self, event: RunCreated, *, if_busy: base.IfBusy = "queue") -> base.Recorded:
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
        live = next((other for other in self._runs.values() if _keeps_busy(other, event)), None)
        if live is not None and if_busy == "refuse":
            raise refusals.busy(event, live.created.run)
        (record,) = run.record([event])
        run.head = run.head._replace(seq=1, decided=1)
        self._runs[event.run] = run
        self._tower.announce({event.run: [record]})
        return record

    async def append(self, run: str, events: Sequence[Event], *, after: int, epoch: int | None = None) -> base.Appended:
        proposal = rules.propose(events, after=after, epoch=epoch)
        for event in proposal.events:
            encoding.encode_checked(event)  # before any of them is recorded
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
        return base.Appended(taken, tuple(missed))

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

    async def read(self, run: str, *, after: int = 0, limit: int | None = None) -> tuple[base.Recorded, ...]:
        self._check_open()
        end = None if limit is None else after + limit
        return tuple(islice(self._run(run).records, after, end))

    async def find(self, run: str, event_id: str) -> base.Recorded | None:
        self._check_open()
        return self._runs[run].ids.get(event_id) if run in self._runs else None

    def follow(self, run: str, *, after: int = 0, wants: base.Wants | None = None) -> base.RecordStream:
        def read(run: str, after: int, limit: int) -> Awaitable[tuple[base.Recorded, ...]]:
            return self.read(run, after=after, limit=limit)

        return Follower(self._tower, run, after, read, self._heads, wants)

    async def _heads(self, runs: Sequence[str]) -> Mapping[str, int]:
        self._check_open()
        return {run: len(self._runs[run].records) for run in runs if run in self._runs}

    def changes(self, *, except_for: Container[str] = ()) -> AsyncIterator[frozenset[str]]:
        return Changes(self._tower, self._check_open, except_for)

    # -- what is derived from events

    async def load(self, run: str) -> State:
        self._check_open()
        return self._run(run).state()

    async def states(self, ids: Collection[str]) -> Mapping[str, State]:
        self._check_open()
        return {name: self._runs[name].state() for name in ids if name in self._runs}

    async def effects(self, run: str, states: Collection[EffectState] = ()) -> tuple[Effect, ...]:
        self._check_open()
        return tuple(e for e in self._run(run).effects.values() if not states or e.state in states)

    async def runs(
        self, *, limit: int = 100, before: str | None = None, **wanted: Unpack[base.RunFilter]
    ) -> tuple[base.RunRow, ...]:
        self._check_open()
        newest_first = list(reversed(self._runs))
        if before is not None:
            self._run(before)
            newest_first = newest_first[newest_first.index(before) + 1 :]
        rows = (self._runs[name].row() for name in newest_first)
        return tuple(islice((row for row in rows if _fits(row, self._runs[row.id].is_asked, wanted)), limit))

    async def tally(self) -> Mapping[tuple[str, Status], int]:
        self._check_open()
        return Counter((run.created.agent, run.head.status) for run in self._runs.values())

    async def verify(self, run: str) -> int:
        self._check_open()
        kept = self._run(run)
        previous = encoding.genesis(run)
        for seq, record in enumerate(kept.records, 1):
            previous = encoding.link(previous, seq, record.body)
            if previous != record.hash:
                raise refusals.broken_chain(run, seq)
        return len(kept.records)

    # -- leases

    async def claim(
        self, run: str, owner: base.Owner, *, seconds: float, **terms: Unpack[base.ClaimTerms]
    ) -> base.Lease:
        self._check_open()
        kept, epoch = self._run(run), terms.get("epoch")
        now, steady_now, current = self._clock(), self._steady(), kept.lease
        if epoch is not None and epoch <= kept.head.epoch:
            raise refusals.stale_claim(run, epoch, kept.head.epoch)
        if current and not terms.get("force") and base.keeps_out(current, owner, at=now, steady_at=steady_now):
            raise refusals.held(run, current.owner, current.deadline)
        kept.head = kept.head._replace(epoch=kept.head.epoch + 1 if epoch is None else epoch)
        kept.lease = base.Lease(
            run=run, epoch=kept.head.epoch, owner=owner, deadline=now + seconds, until=steady_now + seconds
        )
        version = terms.get("version", "")
        if version and kept.head.status not in base.ANY_VERSION:
            kept.version = version
        if current is None:
            return kept.lease
        return replace(kept.lease, previous=current.owner, previous_until=current.until)

    async def renew(self, owner: base.Owner, *, seconds: float, runs: Collection[str] | None = None) -> frozenset[str]:
        self._check_open()
        deadline, until = self._clock() + seconds, self._steady() + seconds
        held = set()
        for name, kept in self._runs.items():
            is_wanted = runs is None or name in runs
            if is_wanted and kept.lease and kept.lease.deadline and kept.lease.owner.process == owner.process:
                kept.lease = replace(kept.lease, deadline=deadline, until=until)
                held.add(name)
        return frozenset(held)

    async def release(self, lease: base.Lease, *, rests_at: int = 0, hands_over: bool = False) -> None:
        self._check_open()
        kept = self._run(lease.run)
        if kept.lease and (kept.lease.epoch, kept.lease.owner.process) == (lease.epoch, lease.owner.process):
            kept.lease = replace(kept.lease, deadline=0.0, until=0.0) if hands_over else None
            kept.rests_at = rests_at or kept.rests_at

    async def lease(self, run: str) -> base.Lease | None:
        self._check_open()
        return self._run(run).lease

    async def leases(self, ids: Collection[str]) -> Mapping[str, base.Lease]:
        self._check_open()
        held = ((name, self._runs[name].lease) for name in ids if name in self._runs)
        return {name: lease for name, lease in held if lease is not None}

    async def versions(self, ids: Collection[str]) -> Mapping[str, str]:
        self._check_open()
        return {run: known.version for run in ids if (known := self._runs.get(run)) is not None and known.version}

    async def owners(self) -> tuple[base.Owner, ...]:
        self._check_open()
        return tuple({run.lease.owner.process: run.lease.owner for run in self._runs.values() if run.lease}.values())

    async def leases_of(
        self, processes: Collection[str], agents: Collection[str], **left: Unpack[base.LeftToOthers]
    ) -> tuple[base.Lease, ...]:
        self._check_open()
        found = (
            run.lease for run in self._runs.values() if run.created.agent in agents and not self._is_left(run, left)
        )
        return tuple(lease for lease in found if lease is not None and lease.owner.process in processes)

    def _is_left(self, run: _Run, left: base.LeftToOthers) -> bool:
        heard, seconds = run.records[-1].event.at, left.get("version_seconds", 0.0)
        if run.head.status in base.ANY_VERSION:
            seconds = min(seconds, base.STOP_VERSION_SECONDS)
        elif run.lease:
            heard = max(heard, run.lease.deadline)
        return run.version in left.get("versions_elsewhere", ()) and heard + seconds > self._clock()

    async def free_runs(
        self, agents: Collection[str], owner: base.Owner, *, most: int, **options: Unpack[base.ClaimOptions]
    ) -> tuple[str, ...]:
        self._check_open()
        except_for = options.get("except_for", ())
        free = (
            name
            for name, run in self._runs.items()
            if run.created.agent in agents and name not in except_for and self._is_free(run, owner, options)
        )
        return tuple(islice(free, max(0, most)))

    async def claim_free(
        self,
        agents: Collection[str],
        owner: base.Owner,
        *,
        most: int,
        seconds: float,
        **options: Unpack[base.ClaimOptions],
    ) -> tuple[base.Lease, ...]:
        # Whoever waits for a turn waits for a run and not for a lease: to claim one frees no other.
        free = await self.free_runs(agents, owner, most=most, **options)
        version = options.get("version", "")
        return tuple([await self.claim(name, owner, seconds=seconds, version=version) for name in free])

    def _is_free(self, run: _Run, owner: base.Owner, options: base.ClaimOptions) -> bool:
        wanted, if_left = base.claimable(options.get("stops_only", False))
        status, lease, not_of = run.head.status, run.lease, options.get("not_of", ())
        if self._is_in_force(lease, owner) or (lease and lease.owner.process in not_of):
            return False
        is_wanted = status in wanted and run.rests_at != run.head.seq
        if not is_wanted and not (lease is not None and status in if_left):
            return False
        if status is Status.QUEUED and self._is_behind_another(run):
            return False
        if self._is_left(run, options):
            return False
        parent = self._runs[run.created.parent].lease if run.created.parent else None
        return parent is None or parent.owner.process == owner.process or not self._is_in_force(parent, owner)

    def _is_in_force(self, lease: base.Lease | None, owner: base.Owner) -> bool:
        return lease is not None and base.has_not_run_out(
            lease, boot_id=owner.boot_id, at=self._clock(), steady_at=self._steady()
        )

    def _is_behind_another(self, run: _Run) -> bool:
        created = run.created
        for other in self._runs.values():  # in the order of creation
            if other is run:
                return False
            if _keeps_busy(other, created):
                return True
        return False

    # -- workers

    async def enlist(self, worker: base.Worker, *, seconds: float, instead_of: Collection[str] = ()) -> base.Worker:
        refusals.check_worker(worker)
        self._check_open()
        now, process = self._clock(), worker.owner.process
        of_name = [entry for entry in self._enlisted if entry.worker.name == worker.name]
        own = next((entry for entry in of_name if entry.worker.owner.process == process), None)
        holder = next((entry for entry in of_name if not entry.is_replaced), None)
        if own is not None and own.worker.burial is not None:
            raise refusals.buried(own.worker)
        if holder is not None and holder is not own:
            if own is not None or (holder.is_seen(now) and holder.worker.owner.process not in instead_of):
                raise refusals.name_taken(holder.worker)
            holder.is_replaced = True
        if own is None:
            own = _Enlisted(replace(worker, since=now))
            self._enlisted.append(own)
        own.is_discharged = False
        own.worker = replace(worker, since=own.worker.since, seen_until=now + seconds, burial=None)
        return own.worker

    async def discharge(self, owner: base.Owner) -> None:
        self._check_open()
        for entry in self._enlisted:
            if entry.worker.owner.process == owner.process:
                entry.is_discharged = True

    async def workers(self) -> tuple[base.Worker, ...]:
        self._check_open()
        left = [entry.worker for entry in self._enlisted if not entry.is_replaced and not entry.is_discharged]
        since = self._clock() - base.LISTED_SECONDS
        return tuple(one for one in reversed(left) if max(one.seen_until, one.burial.at if one.burial else 0.0) > since)

    async def bury(self, name: str, *, by: str, reason: str) -> base.Worker:
        self._check_open()
        for entry in self._enlisted:
            if entry.worker.name == name and not entry.is_replaced:
                if entry.worker.burial is None:
                    entry.worker = replace(entry.worker, burial=base.Burial(by=by, reason=reason, at=self._clock()))
                entry.is_discharged = False
                return entry.worker
        raise refusals.worker_not_found(name)

    async def departed(self, processes: Collection[str]) -> frozenset[str]:
        self._check_open()
        dead = (entry.worker for entry in self._enlisted if entry.is_replaced or entry.worker.burial is not None)
        return frozenset(worker.owner.process for worker in dead) & frozenset(processes)

    # -- fences

    async def fence(self, fence: base.Fence, *, host: str = "") -> bool:
        rules.check_fence(fence)
        self._check_open()
        was_latched = (fence.scope, fence.name, fence.halt, fence.name) in self._fences
        if fence.halt:
            self._record(rules.halt_request(fence, host), was_latched)
        self._fence_with_descendants(fence)
        return was_latched

    async def unfence(self, scope: base.Scope, name: str = "", **words: Unpack[base.LiftWords]) -> bool:
        self._check_open()
        was_latched = self._lift(scope, name)
        for run in words.get("runs", ()):
            self._lift(base.Scope.RUN, run)
        self._record(rules.reset_request(scope, name, words), was_latched)
        return was_latched

    def _lift(self, scope: base.Scope, name: str) -> bool:
        lifted = [key for key in self._fences if (key[0], key[2], key[3]) == (scope, True, name)]
        for key in lifted:
            del self._fences[key]
        return bool(lifted)

    def _record(self, asked: operations.Request, was_latched: bool) -> None:
        seq = len(self._operations) + 1
        previous = self._operations[-1].hash if self._operations else operations.GENESIS
        body = operations.stamped(asked.body(), store_at=self._clock(), was_latched=was_latched)
        self._operations.append(encoding.decode_operation(seq, operations.link(previous, seq, body), body))
        self._tower.announce_operations()

    async def operations(self, *, after: int = 0, limit: int | None = None) -> tuple[base.RecordedOperation, ...]:
        self._check_open()
        return tuple(islice(self._operations, after, None if limit is None else after + limit))

    def operated(self, *, seconds: float) -> AsyncIterator[None]:
        return Operated(self._tower, seconds)

    async def fences(self) -> tuple[base.Fence, ...]:
        self._check_open()
        halts = (fence for (_, name, halt, source), fence in self._fences.items() if halt and name == source)
        return tuple(sorted(halts, key=lambda fence: (fence.at, fence.scope, fence.name)))

    def _fence_with_descendants(self, fence: base.Fence) -> None:
        names = [fence.name]
        if fence.scope is base.Scope.RUN:
            names += self._descendants(fence.name)
        for name in names:
            self._fences.setdefault((fence.scope, name, fence.halt, fence.name), replace(fence, name=name))

    def _descendants(self, run: str) -> Iterator[str]:
        for name, kept in self._runs.items():
            if kept.created.parent == run:
                yield name
                yield from self._descendants(name)

    def _cover(self, run: _Run) -> rules.FenceLevel:
        created = run.created
        scopes = {
            (base.Scope.RUN, created.run),
            (base.Scope.ROOT, created.root or created.run),
            (base.Scope.AGENT, created.agent),
            (base.Scope.OWNER, created.owner),
            (base.Scope.ALL, ""),
        }
        covers = (
            rules.FenceLevel.HALT if halt else rules.FenceLevel.CANCEL
            for s, n, halt, _ in self._fences
            if (s, n) in scopes
        )
        return max(covers, default=rules.FenceLevel.NONE)

    # -- streamed text

    async def write_chunks(self, chunks: Mapping[str, Sequence[base.Chunk]]) -> None:
        self._check_open()
        for run, of_run in chunks.items():
            if run in self._runs:
                for chunk in of_run:
                    self._runs[run].chunks.setdefault((chunk.call, chunk.offset), chunk)

    async def chunks(self, run: str, call: str, *, after: int = -1) -> tuple[base.Chunk, ...]:
        self._check_open()
        kept = self._run(run).chunks
        return tuple(kept[key] for key in sorted(kept) if key[0] == call and key[1] > after)

    # -- files of calls

    async def write_file(self, run: str, call: str, number: int, body: bytes) -> None:
        self._check_open()
        if run in self._runs:
            self._runs[run].files[call, number] = body

    async def file(self, run: str, call: str, number: int) -> bytes | None:
        self._check_open()
        return self._run(run).files.get((call, number))

    # -- evidence

    def _delete(self, run: str) -> None:
        kept = self._run(run)
        if kept.head.status not in TERMINAL or kept.lease is not None:
            raise refusals.live(run, kept.head.status)
        if any(other.created.parent == run for other in self._runs.values()):
            raise refusals.has_sub_runs(run)
        del self._runs[run]
        for key in [key for key in self._fences if key[:2] == (base.Scope.RUN, run)]:
            del self._fences[key]

    # -- the store

    def now(self) -> float:
        return self._clock()

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


def _fits(row: base.RunRow, is_asked: bool, wanted: base.RunFilter) -> bool:
    named = ((name, wanted.get(name)) for name in ("thread", "owner", "agent", "root"))
    tree, search = wanted.get("tree"), wanted.get("search")
    since, until, changed_after = wanted.get("since"), wanted.get("until"), wanted.get("changed_after")
    return (
        (not wanted.get("status") or row.status in wanted["status"])
        and all(value is None or getattr(row, name) == value for name, value in named)
        and (tree is None or tree in (row.id, row.root) or row.id.startswith(f"{tree}."))
        and (since is None or row.created_at >= since)
        and (until is None or row.created_at < until)
        and (changed_after is None or row.changed_at > changed_after)
        and (not wanted.get("asked") or is_asked)
        and (search is None or base.is_found(search, row.id, row.goal))
    )
