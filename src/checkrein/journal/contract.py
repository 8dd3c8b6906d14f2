"""What every journal promises, whatever it is kept in.

A journal is the only truth about its runs: one ordered, hash-chained list of events for each, and beside it what is
derived from the events or guards them: leases, fences, chunks of streamed text, an index of effects, snapshots.

An **append** is a list of events for one run: facts first, then decisions. The facts are taken unless the maker's
`epoch` is stale. From the first decision on it is all or nothing: refused with `Conflict` when a deciding event came in
after `after`, the last seq its maker has seen. A refused append never undoes its neighbours in a group commit.

Nothing here knows what an event means beyond the sets in `core.events`; the rules of admission are in `rules`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Container, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Self

import msgspec

from checkrein.core.effects import Effect
from checkrein.core.events import Event, RunCreated
from checkrein.core.state import State
from checkrein.core.words import TERMINAL, EffectState, Status
from checkrein.errors import JournalError


class Recorded(msgspec.Struct, frozen=True, gc=False):
    """An event as it stands in the journal. `body` is what was hashed, and what a stream sends."""

    run: str
    seq: int
    event: Event
    body: bytes
    hash: bytes


Wants = Callable[[Recorded], bool]
"""Whether somebody who follows a run wants an event."""


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
    """The right to drive a run until `deadline` (Unix seconds), or until somebody claims it with a higher epoch."""

    run: str
    epoch: int
    owner: Owner
    deadline: float
    previous: Owner | None = None
    """With a claim: who held the run before; None when nobody did, or when it was released."""


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


class Journal(ABC):
    """The contract. An instance may be used by many tasks at once; several processes may use one store.

    A task that is cancelled while it waits for an append does not take the append back: ask `find` by its id.
    """

    # -- events

    @abstractmethod
    async def create(self, event: RunCreated) -> Recorded:
        """Begin a run. A repeat with the same event id returns the same record.

        Raises `RunExists` for another event on that run id, `RunNotFound` for an unknown parent, `RunOver` for one that
        is finished, `Fenced` where a fence covers the run or its parent, and `StoreFull`.
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
    def follow(self, run: str, *, after: int = 0, wants: Wants | None = None) -> AsyncIterator[Recorded]:
        """Every event above `after`, and then each new one soon after it is committed, by whichever process.

        With `wants`, only those that it says yes to. It is asked once for each, soon after the commit, and where no
        person waits for it only after whoever appended it was told; an event that is not wanted then wakes nobody.
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
    async def save_snapshot(self, state: State) -> None:
        """Keep `state` so that `load` need not fold what came before. Never needed for correctness."""

    @abstractmethod
    async def effects(self, run: str, states: Collection[EffectState] = ()) -> tuple[Effect, ...]:
        """The run's effects, oldest first; only those in `states` where given."""

    @abstractmethod
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
        """Runs that fit everything given, newest first; `before` is the id of the last run of the page before.

        `root` selects a run's descendants.
        """

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
    async def claim(
        self, run: str, owner: Owner, *, seconds: float, force: bool = False, epoch: int | None = None
    ) -> Lease:
        """Become the run's only owner, with an epoch higher than any before.

        Raises `LeaseHeld` while another owner's lease has not run out, unless `force`. A given `epoch` that is not
        higher than the run's raises `StaleEpoch`. The same owner may claim again and gets a new epoch.
        """

    @abstractmethod
    async def renew(self, owner: Owner, *, seconds: float) -> frozenset[str]:
        """Prolong every lease of `owner` that it still holds, and say which runs those are.

        One that has run out is no longer held, even if nobody else has claimed it: its owner must claim again.
        """

    @abstractmethod
    async def release(self, lease: Lease) -> None:
        """Give a lease back. The epoch stays; releasing a lease that is no longer held does nothing."""

    @abstractmethod
    async def lease(self, run: str) -> Lease | None:
        """The run's lease as it stands, also one that has run out; None when never claimed or released."""

    # -- fences

    @abstractmethod
    async def fence(self, fence: Fence) -> None:
        """Latch a fence. It covers every run in its scope, also those created later; over a run, also all below it."""

    @abstractmethod
    async def unfence(self, scope: Scope, name: str = "") -> bool:
        """Lift a halt's fence; False when there was none. A cancel's fence stays."""

    @abstractmethod
    async def fences(self) -> tuple[Fence, ...]:
        """Every halt that is latched."""

    # -- streamed text

    @abstractmethod
    async def write_chunks(self, run: str, chunks: Sequence[Chunk]) -> None:
        """Keep streamed text. Writing a chunk again changes nothing. Not part of the chain."""

    async def write_all_chunks(self, chunks: Mapping[str, Sequence[Chunk]]) -> None:
        """Keep streamed text of several runs. What cannot be kept of one keeps no other from being kept."""
        for run, of_run in chunks.items():
            with suppress(JournalError):
                await self.write_chunks(run, of_run)

    @abstractmethod
    async def chunks(self, run: str, call: str, *, after: int = -1) -> tuple[Chunk, ...]:
        """The chunks of a call with an offset above `after`, in order."""

    # -- the store

    @abstractmethod
    async def close(self) -> None:
        """Commit what is queued and let the store go. Appends after this raise `StoreUnavailable`."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
