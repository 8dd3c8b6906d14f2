"""What every journal promises, whatever it is kept in.

A journal is the only truth about its runs: one ordered, hash-chained list of events for each, and beside it what is
derived from the events or guards them: leases, fences, chunks of streamed text, an index of effects, snapshots.

An **append** is a list of events for one run: facts first, then decisions. The facts are taken unless the maker's
`epoch` is stale. From the first decision on it is all or nothing: refused with `Conflict` when a deciding event came in
after `after`, the last seq its maker has seen. A refused append never undoes its neighbours in a group commit.

Nothing here knows what an event means beyond the sets in `core.events`; the rules are in `admission`.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Container, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import ClassVar, Final, Literal, Protocol, Self, TypedDict, Unpack

import msgspec

from checkrein.core.effects import Effect
from checkrein.core.enums import DRIVEN, STOPPING, TERMINAL, EffectState, Status
from checkrein.core.events import Event, RunCreated
from checkrein.core.state import State
from checkrein.errors import RunNotFound, StoreDamaged, StoreTooNew
from checkrein.journal.evidence import EvidenceTables
from checkrein.journal.operations import GENESIS, HALTED, link


class Recorded(msgspec.Struct, frozen=True, gc=False):
    """An event as it stands in the journal. `body` is what was hashed, and what a stream sends."""

    run: str
    seq: int
    event: Event
    body: bytes
    hash: bytes


IfBusy = Literal["queue", "refuse"]
"""What a new run on a busy thread does: waits behind those that are there, or is refused."""

Wants = Callable[[Recorded], bool]
"""Whether somebody who follows a run wants an event."""


class RecordStream(Protocol):
    """The events of a run as they come. It never ends by itself: whoever has read enough of it closes it."""

    def __aiter__(self) -> Self: ...

    async def __anext__(self) -> Recorded: ...

    async def aclose(self) -> None:
        """Listen no longer. Closing it twice does no harm."""


class Appended(msgspec.Struct, frozen=True, gc=False):
    """An append that was taken whole.

    `missed` are the events of others between `after` and these, so that folding `missed` and then `events` brings the
    maker up to date. A repeat of an append that was already taken gets the same `events` again.
    """

    events: tuple[Recorded, ...]
    missed: tuple[Recorded, ...] = ()


class Owner(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A process that may hold leases, described so that its death can be established later.

    `process` is unique to one life of one process. `boot_id` changes when the host restarts; `(pid, started)` cannot
    be reused within one boot.
    """

    process: str
    host: str = ""
    boot_id: str = ""
    pid: int = 0
    started: float = 0.0


class Lease(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The right to drive a run until `deadline`, or until somebody claims it with a higher epoch.

    The wall clock may be set, so `deadline` (Unix seconds) decides only among hosts. On the host and in the boot of its
    owner `until` does, by the `steady` clock, which nobody sets and all processes share; 0: not known.
    """

    run: str
    epoch: int
    owner: Owner
    deadline: float
    until: float = 0.0
    previous: Owner | None = None
    """With a claim: who held the run before; None when nobody did, or when it was released."""
    previous_until: float = 0.0
    """With a claim: until when that one had it, by the `steady` clock; 0: not known."""
    alive_at: float = 0.0
    """With a claim: when whoever held it before last gave a sign of life, by the `steady` clock; 0: not known."""


def steady() -> float:
    """A clock that nobody sets, that all processes of a host share, and that goes on while it sleeps."""
    return time.clock_gettime(_STEADY)


_STEADY: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def has_not_run_out(lease: Lease, *, boot_id: str, at: float, steady_at: float) -> bool:
    """Whether a lease is in force for somebody who lives in the boot `boot_id`, at this time by both clocks."""
    if lease.until and boot_id and boot_id == lease.owner.boot_id:
        return lease.until > steady_at
    return lease.deadline > at


def keeps_out(lease: Lease, owner: Owner, *, at: float, steady_at: float) -> bool:
    """Whether a lease is somebody else's and in force, so that `owner` may not claim its run."""
    is_others = lease.owner.process != owner.process
    return is_others and has_not_run_out(lease, boot_id=owner.boot_id, at=at, steady_at=steady_at)


class Burial(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An operator's word that a worker is dead."""

    by: str
    reason: str
    at: float


class Worker(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A process that drives runs of its agents, as the roster has it.

    A name is the promise of whoever gives it that no two processes of that name live at once: where a newer one is
    enlisted, the one before it is dead. Times are by the store's clock.
    """

    name: str
    owner: Owner
    version: str = ""
    cards: bytes = b"[]"
    """What there is to say about its agents, as JSON."""
    agents: tuple[str, ...] = ()
    slots: int = 0
    """How many runs it drives at once; 0: any number."""
    free: int = 0
    """How many of its slots were free when it was last seen."""
    engine: str = "leases"
    since: float = 0.0
    """When it was enlisted."""
    seen_until: float = 0.0
    """Until then its last sign of life counts."""
    burial: Burial | None = None

    def is_seen(self, at: float) -> bool:
        """Whether it lives, as far as the roster knows."""
        return self.burial is None and self.seen_until > at


LISTED_SECONDS: Final = 86_400.0
"""So long after it was last seen, or was buried, a worker is still listed; what is known of it is kept for ever."""


STOP_VERSION_SECONDS: Final = 1.0
"""So long after its last event a run that is being stopped or undone is left to those who have its version. Whoever of
them lives takes it at once, and its undos are theirs; but no stop waits for a version."""

ANY_VERSION: Final = STOPPING | TERMINAL
"""Of these statuses are runs of which no code is played any more, except for undos: whoever claims such a run does not
change the version that it is known by."""


def claimable(stops_only: bool) -> tuple[frozenset[Status], frozenset[Status]]:
    """The statuses of runs that want a driver, and those of runs that want one because their lease was left behind."""
    return (STOPPING, STOPPING | TERMINAL) if stops_only else (DRIVEN, frozenset(Status))


class Scope(StrEnum):
    RUN = "run"
    ROOT = "root"
    AGENT = "agent"
    OWNER = "owner"
    ALL = "all"


class Fence(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """No permits in this scope. A halt's fence stops undos too; a cancel's does not."""

    scope: Scope
    name: str = ""
    halt: bool = True
    by: str = ""
    reason: str = ""
    at: float = 0.0


class LiftWords(TypedDict, total=False):
    """What is recorded of a reset."""

    by: str
    reason: str
    host: str
    at: float
    """By the clock of that host."""
    runs: Collection[str]
    """Runs that the halt has ended: their own fences are lifted with it."""


class Operation(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What an operator did, as `operations` records it: a halt (`halt.latched`) or a reset (`halt.lifted`)."""

    type: str
    scope: Scope
    name: str
    by: str
    reason: str
    at: float
    """By the clock of the host that asked."""
    host: str
    id: str
    store_at: float
    """By the clock of the store."""
    was_latched: bool
    """Whether the scope was halted before."""
    store_user: str = ""
    """Whom the store let in; empty where it knows no users."""


class RecordedOperation(msgspec.Struct, frozen=True, gc=False):
    """An operation as it stands in the journal. `body` is what was hashed."""

    seq: int
    operation: Operation
    body: bytes
    hash: bytes


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """A piece of streamed text: `offset` counts characters from the beginning of the call's text.

    `call` is as `stream_of` names it: each attempt of a call has a text of its own.
    """

    call: str
    offset: int
    text: str


def stream_of(call: str, attempt: int) -> str:
    """The name of the text of one attempt: the call's own for the first one, then `c3#2` and so on."""
    return call if attempt == 1 else f"{call}#{attempt}"


def attempt_of(stream: str) -> tuple[str, int]:
    """The call and the attempt behind the name of a text."""
    call, _, attempt = stream.rpartition("#")
    return (call, int(attempt)) if call and attempt.isdecimal() else (stream, 1)


def is_found(search: str, run: str, goal: str) -> bool:
    """Whether somebody who looks for `search` means a run with this id and goal."""
    return run.startswith((search, f"r-{search}")) or search.lower() in goal.lower()


class RunRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One line of a list of runs."""

    id: str
    agent: str
    owner: str
    thread: str
    parent: str | None
    root: str | None
    goal: str
    status: Status
    seq: int
    created_at: float
    changed_at: float


class RunFilter(TypedDict, total=False):
    """Which runs are asked for: those that fit everything given. What is None is not given."""

    status: Collection[Status]
    """One of these; none means any."""
    thread: str | None
    owner: str | None
    agent: str | None
    root: str | None
    """The descendants of this run."""
    tree: str | None
    """This run and all below it."""
    since: float | None
    """Created then or later."""
    until: float | None
    """Created before."""
    changed_after: float | None
    """By the time that the last event of a run bears. Times are not quite in the order of commits: a store may leave
    out a run that a thousand events of earlier times have come after, as when a clock was set back."""
    asked: bool
    """Only runs of which something was ever asked: a verb was accepted."""
    search: str | None
    """A part of the goal, whatever the case of its letters, or the beginning of the id."""


class ClaimTerms(TypedDict, total=False):
    """How one run is claimed."""

    force: bool
    """Also while another owner's lease has not run out."""
    epoch: int | None
    """Given by the caller; it has to be higher than any before. None: the next one."""
    version: str
    """Of the caller, which the run is known by from then on; empty: that does not change."""


class LeftToOthers(TypedDict, total=False):
    """Which runs are left to others for the version they are known by."""

    versions_elsewhere: Collection[str]
    """Versions that others have. A run that is known by one of these is left to them for `version_seconds` after it was
    last heard of; one that is being stopped or undone, for `STOP_VERSION_SECONDS` at most."""
    version_seconds: float


class ClaimOptions(LeftToOthers, total=False):
    """Which of the runs that want a driver are claimed."""

    except_for: Collection[str]
    """Runs that are not wanted, such as those that the caller drives already."""
    not_of: Collection[str]
    """Processes whose leases are left to the caller, also those that have run out."""
    stops_only: bool
    """Only those that are being stopped or undone: what nobody should have to wait for, however much there is to do."""
    version: str
    """Of the caller, which the run is known by from then on; empty: that does not change."""


class Journal(ABC):
    """The contract. An instance may be used by many tasks at once; several processes may use one store.

    A task that is cancelled while it waits for an append does not take the append back: ask `find` by its id.
    """

    too_new: StoreTooNew | None = None
    """Set with a renewal of leases, once somebody has migrated the store so that this version may not write it any
    more. From then on nothing is created or claimed; what is held may still be handed over."""

    @property
    @abstractmethod
    def evidence(self) -> EvidenceTables:
        """Withheld text, the signed log, and the end of a run's record."""

    # -- events

    @abstractmethod
    async def create(self, event: RunCreated, *, if_busy: IfBusy = "queue") -> Recorded:
        """Begin a run. A repeat with the same event id returns the same record.

        The thread of its owner is busy while a topmost run there is unfinished. With `if_busy="refuse"` none is begun
        there then: of any number of creations at the same moment, by whichever processes, one is taken. The runs of a
        thread are listed in the order in which their creations were committed: once one is seen, none appears that is
        older.

        Raises `RunExists` for another event on that run id, `RunNotFound` for an unknown parent, `RunOver` for one that
        is finished, `Fenced` where a fence covers the run or its parent, `Refused` (`thread_busy`), which names the
        oldest run that keeps the thread busy, and `StoreFull`.
        """

    @abstractmethod
    async def append(self, run: str, events: Sequence[Event], *, after: int, epoch: int | None = None) -> Appended:
        """Append facts and decisions, durably: when this returns they survive a power cut.

        `epoch` is that of the maker's lease; without one only `UNOWNED` events are taken. A `verb.accepted` of a
        cancel or a halt fences the run and all its descendants in the same transaction.

        An event whose id the run already has is not taken again. A repeat of a whole append therefore returns what was
        recorded the first time, also when it would be refused by now; of one that was taken in part, the rest is
        judged anew.

        Raises `Conflict`, `Fenced`, `RunOver`, `StaleEpoch`, `RunNotFound`, `StoreFull`, or `StoreUnavailable` when it
        is not known whether the append was taken (then `find` tells).
        """

    @abstractmethod
    async def read(self, run: str, *, after: int = 0, limit: int | None = None) -> tuple[Recorded, ...]:
        """The events with a seq above `after`, in order. Raises `RunNotFound`."""

    @abstractmethod
    async def find(self, run: str, event_id: str) -> Recorded | None:
        """The event with this id, if it was ever taken."""

    @abstractmethod
    def follow(self, run: str, *, after: int = 0, wants: Wants | None = None) -> RecordStream:
        """Every event above `after`, and then each new one soon after it is committed, by whichever process.

        With `wants`, only those that it says yes to. It is asked once for each, soon after the commit, and where no
        person waits for it only after whoever appended it was told; an event that is not wanted then wakes nobody.

        Raises `StoreUnavailable` while the store is away. It may be asked again, and goes on where it stood.
        """

    @abstractmethod
    def changes(self, *, except_for: Container[str] = ()) -> AsyncIterator[frozenset[str]]:
        """The ids of runs that got new events since the last time round, by whichever process. Never ends.

        What is committed for a run that is in `except_for` at that moment wakes nobody; it may be asked in any thread.
        """

    # -- what is derived from events

    @abstractmethod
    async def load(self, run: str) -> State:
        """The run's state now: the latest snapshot and what was appended since, folded."""

    @abstractmethod
    async def effects(self, run: str, states: Collection[EffectState] = ()) -> tuple[Effect, ...]:
        """The run's effects, oldest first; only those in `states` where given."""

    @abstractmethod
    async def runs(
        self, *, limit: int = 100, before: str | None = None, **wanted: Unpack[RunFilter]
    ) -> tuple[RunRow, ...]:
        """Runs that fit everything given, newest first; `before` is the id of the last run of the page before."""

    async def states(self, ids: Collection[str]) -> Mapping[str, State]:
        """What `load` says of each of these runs; one that there is not is left out.

        Each state is that of one moment, but not all of the same.
        """
        found: dict[str, State] = {}
        for run in ids:
            with suppress(RunNotFound):
                found[run] = await self.load(run)
        return found

    async def tally(self) -> Mapping[tuple[str, Status], int]:
        """How many runs there are, by agent and status; what there is none of is left out."""
        counted: Counter[tuple[str, Status]] = Counter()
        page = await self.runs(limit=1000)
        while page:
            counted.update((row.agent, row.status) for row in page)
            page = await self.runs(limit=1000, before=page[-1].id)
        return counted

    async def wanting_undo(self) -> tuple[str, ...]:
        """The finished runs with an effect whose undo was asked for and is not done yet."""
        found: list[str] = []
        page = await self.runs(status=TERMINAL, limit=1000)
        while page:
            for row in page:
                if any(effect.wanted for effect in await self.effects(row.id, {EffectState.OPEN})):
                    found.append(row.id)
            page = await self.runs(status=TERMINAL, limit=1000, before=page[-1].id)
        return tuple(found)

    @abstractmethod
    async def verify(self, run: str) -> int:
        """Walk the run's chain from its beginning and return how many events it has.

        Raises `StoreDamaged` naming the first event whose hash does not follow.
        """

    # -- leases

    @abstractmethod
    async def claim(self, run: str, owner: Owner, *, seconds: float, **terms: Unpack[ClaimTerms]) -> Lease:
        """Become the run's only owner, with an epoch higher than any before.

        Raises `LeaseHeld` while another owner's lease has not run out (`keeps_out`), unless `force`. A given `epoch`
        that is not higher than the run's raises `StaleEpoch`. The same owner may claim again and gets a new epoch. The
        run is known by the `version` of its owner from then on, unless that is empty, or the run is being stopped or
        undone.
        """

    @abstractmethod
    async def renew(self, owner: Owner, *, seconds: float, runs: Collection[str] | None = None) -> frozenset[str]:
        """Prolong the leases of `owner`, only those of `runs` where given, and say which runs those are.

        One that has run out is prolonged all the same, as long as nobody else has claimed it: a wall clock that was set
        forward takes no run from its owner. One that was handed over is not.
        """

    @abstractmethod
    async def release(self, lease: Lease, *, rests_at: int = 0, hands_over: bool = False) -> None:
        """Give a lease back. The epoch stays; releasing a lease that is no longer held does nothing.

        `rests_at`: whatever its status, the run wants no driver until it has an event after that seq. `hands_over`: it
        wants one at once; its lease stays, as one that has run out.
        """

    @abstractmethod
    async def lease(self, run: str) -> Lease | None:
        """The run's lease as it stands, also one that has run out; None when never claimed or released."""

    async def leases(self, ids: Collection[str]) -> Mapping[str, Lease]:
        """What `lease` says of each of these runs; one that has no lease, or that there is not, is left out."""
        found: dict[str, Lease] = {}
        for run in ids:
            with suppress(RunNotFound):
                lease = await self.lease(run)
                if lease is not None:
                    found[run] = lease
        return found

    @abstractmethod
    async def versions(self, ids: Collection[str]) -> Mapping[str, str]:
        """The versions that these runs are known by; one that has none, or that there is not, is left out."""

    @abstractmethod
    async def owners(self) -> tuple[Owner, ...]:
        """Everybody who has a lease, also one that has run out, each once."""

    @abstractmethod
    async def leases_of(
        self, processes: Collection[str], agents: Collection[str], **left: Unpack[LeftToOthers]
    ) -> tuple[Lease, ...]:
        """The leases of these owners' processes on runs of these agents, also those that have run out.

        Without those of runs that are to be left to others for their version, as `claim_free` has it.
        """

    @abstractmethod
    async def free_runs(
        self, agents: Collection[str], owner: Owner, *, most: int, **options: Unpack[ClaimOptions]
    ) -> tuple[str, ...]:
        """The runs that `claim_free` would claim, the oldest first, without claiming any."""

    @abstractmethod
    async def claim_free(
        self, agents: Collection[str], owner: Owner, *, most: int, seconds: float, **options: Unpack[ClaimOptions]
    ) -> tuple[Lease, ...]:
        """Claim up to `most` runs of these agents that want a driver and have none, the oldest first.

        A run wants a driver when its status is one of `DRIVEN`; while it is queued, only once no topmost run that its
        owner has begun before it on its thread is unfinished. One that was released to rest wants none until it has a
        new event. Whatever its status, a run wants one whose lease was not given back: its driver may have died with
        something left to do, or have left it to the next.

        It has none when nobody's lease on it is in force, as `has_not_run_out` tells from where `owner` lives; the
        lease of `owner` itself counts like any other. A sub-run belongs to whoever drives its parent: while somebody
        else's lease on that is in force, it is left to them.

        Each is claimed as by `claim`: no two processes get the same run. What is found and claimed is one moment where
        a store can do that; there, claims that run at the same time together get everything that is free. Asking costs
        no commit when nothing is free.

        Left to the caller, who can look at states and processes: a lease in force whose owner is known to be dead; a
        paused run of which something is asked, and a finished one. Those change by an event, of which `changes` tells.
        """

    # -- workers

    @abstractmethod
    async def enlist(self, worker: Worker, *, seconds: float, instead_of: Collection[str] = ()) -> Worker:
        """Put a worker on the roster, or say that it is still there, for the next `seconds`; its row as it stands now.

        `since` and `seen_until` are set by the store. Whoever had the name before is known dead from then on.

        Raises `NameTaken` while another process of that name is seen, unless it is one of `instead_of`: processes that
        the caller knows to be dead. Raises it also for a process whose name was given to another one since, or which
        was buried: it may not drive any more.
        """

    @abstractmethod
    async def discharge(self, owner: Owner) -> None:
        """Take a worker that ends in order from the roster: its name is free. Not known: nothing is done."""

    @abstractmethod
    async def workers(self) -> tuple[Worker, ...]:
        """Every worker on the roster, the last enlisted first: for `LISTED_SECONDS` also those that are not seen any
        more, and the buried.

        Of each name there is one; whoever had it before is not listed.
        """

    @abstractmethod
    async def bury(self, name: str, *, by: str, reason: str) -> Worker:
        """Record an operator's word that the worker of this name is dead. It is believed: if it lives, it may not
        drive any more. A worker that is buried already stays so. Raises `WorkerNotFound`."""

    @abstractmethod
    async def departed(self, processes: Collection[str]) -> frozenset[str]:
        """Those of these owners' processes that are known dead: a newer process has their name, or they were buried."""

    # -- fences

    @abstractmethod
    async def fence(self, fence: Fence, *, host: str = "") -> bool:
        """Latch a fence. It covers every run in its scope, also those created later; over a run, also all below it.

        A halt's is recorded among the operations in the same transaction; whether it was latched before is returned,
        and then the words of the first one stay.
        """

    @abstractmethod
    async def unfence(self, scope: Scope, name: str = "", **words: Unpack[LiftWords]) -> bool:
        """Lift a halt's fence; False when there was none. It is recorded among the operations either way. A cancel's
        fence stays."""

    @abstractmethod
    async def fences(self) -> tuple[Fence, ...]:
        """Every halt that is latched, and the fence of each run that a halt has ended."""

    async def halts(self) -> tuple[Fence, ...]:
        """Every halt that an operator has latched: not those of single runs that a wider one has ended."""
        asked: dict[tuple[Scope, str], bool] = {}
        for record in await self.operations():
            asked[record.operation.scope, record.operation.name] = record.operation.type == HALTED
        return tuple(
            fence for fence in await self.fences() if asked.get((fence.scope, fence.name), fence.scope is not Scope.RUN)
        )

    # -- operations

    @abstractmethod
    async def operations(self, *, after: int = 0, limit: int | None = None) -> tuple[RecordedOperation, ...]:
        """What operators did, with a seq above `after`, in order. Raises `StoreDamaged` for what cannot be read."""

    @abstractmethod
    def operated(self, *, seconds: float) -> AsyncIterator[None]:
        """Comes round soon after an operation was recorded, by whichever process, and every so many seconds. Never
        ends."""

    async def verify_operations(self) -> int:
        """Walk the chain of operations and return how many there are.

        Raises `StoreDamaged` naming the first whose hash does not follow.
        """
        previous, seq = GENESIS, 0
        for record in await self.operations():
            seq += 1
            previous = link(previous, seq, record.body)
            if (record.seq, record.hash) != (seq, previous):
                raise StoreDamaged(f"Operation {seq} of the journal was changed, dropped or moved: its hash is wrong.")
        return seq

    # -- streamed text

    @abstractmethod
    async def write_chunks(self, chunks: Mapping[str, Sequence[Chunk]]) -> None:
        """Keep streamed text of runs. Writing a chunk again changes nothing. Not part of the chain.

        Text of a run that is not there is dropped, and keeps no other from being kept.
        """

    @abstractmethod
    async def chunks(self, run: str, call: str, *, after: int = -1) -> tuple[Chunk, ...]:
        """The chunks of a call with an offset above `after`, in order."""

    async def chunks_of(self, after: Mapping[tuple[str, str], int]) -> Mapping[tuple[str, str], tuple[Chunk, ...]]:
        """What `chunks` says of each of these calls, each given as (run, call) with the offset `after` which to read.

        A call that has no such chunks, or whose run there is not, is left out.
        """
        found: dict[tuple[str, str], tuple[Chunk, ...]] = {}
        for (run, call), offset in after.items():
            with suppress(RunNotFound):
                chunks = await self.chunks(run, call, after=offset)
                if chunks:
                    found[run, call] = chunks
        return found

    text_seconds: ClassVar[float] = 0.2
    """For how long whoever streams best gathers text before it is written, and how often whoever reads looks for it
    where it is not told."""

    async def texts(self) -> AsyncIterator[frozenset[str] | None]:
        """The ids of runs of which text was written since the last time round, by whichever process. Never ends.

        None: that is not known, so look at each run that matters. It comes now and then, and from a store that cannot
        tell every `text_seconds`.
        """
        while True:
            await asyncio.sleep(self.text_seconds)
            yield None

    # -- files of calls

    @abstractmethod
    async def write_file(self, run: str, call: str, number: int, body: bytes) -> None:
        """Keep what a call has published, `call` as `stream_of` names its attempt. Writing it again replaces it.

        Not part of the chain: the hash is, which `call.finished` bears. A file of a run that is not there is dropped.
        Raises `StoreFull` and `StoreUnavailable`.
        """

    @abstractmethod
    async def file(self, run: str, call: str, number: int) -> bytes | None:
        """What was kept of a file; None where nothing was. Raises `RunNotFound`."""

    # -- the store

    def now(self) -> float:
        """The time by which leases are judged, in Unix seconds: the clock that all who use the store share."""
        return time.time()

    def check_may_drive(self) -> None:  # noqa: B027 - most stores know no rights
        """Raises `StoreForbidden` where whoever opened this journal has not the right to drive runs there, and
        `StoreUnavailable` where the clock of this host is too far from the store's."""

    @abstractmethod
    async def close(self) -> None:
        """Commit what is queued and let the store go. Appends after this raise `StoreUnavailable`."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
