"""A journal in a PostgreSQL database, for any number of tasks, processes and hosts."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Container, Mapping, Sequence
from typing import Final, TypeVar, Unpack
from uuid import uuid4

import psycopg
from anyio import to_thread

from checkrein.asyncutil import run_to_completion
from checkrein.core.events import CallFinished, Event, RunCreated
from checkrein.core.state import State
from checkrein.journal import admission, base, encoding, refusals
from checkrein.journal.evidence import EvidenceTables
from checkrein.journal.postgres import leases, reads, roles, schema, tables, workers
from checkrein.journal.postgres.connection import Session, Target, is_login_refused, listen_target_of, refuse, target_of
from checkrein.journal.postgres.evidence import PostgresEvidence
from checkrein.journal.postgres.leases import ServerClock
from checkrein.journal.postgres.listener import Listener
from checkrein.journal.postgres.reads import Reader
from checkrein.journal.postgres.tables import JoinChunks, SaveSnapshot, WriteChunks, WriteFile
from checkrein.journal.postgres.writes.append import Append, Create, find
from checkrein.journal.postgres.writes.job import Context, Do, Echo
from checkrein.journal.postgres.writes.writer import News, Writer
from checkrein.journal.stored import Reads, StoredJournal
from checkrein.journal.subscriptions import Changes, Follower, Operated, Subscriptions, Texts
from checkrein.timings import LEASE_MARGIN_SECONDS, STORE_PATIENCE_SECONDS

T = TypeVar("T")

STATES: Final = 100
"""Of how many runs the states are asked for in one question."""
PAUSE_SECONDS: Final = 0.2
LOOK_FOR_TEXT_SECONDS: Final = 2.0
"""After so long without a word of text it is looked for all the same."""
LIVE_SECONDS: Final = 0.2
"""How often, where it is not told."""


class PostgresJournal(StoredJournal[Session]):
    """Opens the journal at `address`, or makes one in an empty database. Blocks meanwhile; `open_journal` does not.

    `listen` is an address of the same database that leads past a pooler. `patience` is how many seconds a server that
    is away is waited for. `clock` gives Unix seconds for leases; without it the server's own clock does.
    """

    text_seconds = 0.1
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
        address: str,
        *,
        listen: str | None = None,
        clock: Callable[[], float] | None = None,
        steady: Callable[[], float] = base.steady,
        patience: float = STORE_PATIENCE_SECONDS,
    ) -> None:
        self._target = target_of(address)
        self._listen = listen_target_of(listen, self._target) if listen is not None else self._target
        self._patience = patience
        self._clocks = leases.Clocks(clock, steady)
        self._server_clock = ServerClock()
        self._may_prepare = False
        self._lease_seconds: dict[str, float] = {}
        """Of the runs that were claimed here: nothing that is written under a lease is waited for longer."""
        self._tower = Subscriptions()
        self._sender = uuid4().hex[:12]
        self._key_listeners: list[Callable[[], None]] = []
        session = self._open()
        self._writer = Writer(self._target, session, self._connect, self._sender, self._on_commit)
        self._reader = Reader(self._target, self._connect, patience)
        try:
            # Nothing that is committed once this journal is open is missed.
            self._listener = Listener(
                self._listen,
                self._sender,
                self._tower,
                self._server_clock,
                self._echo,
                self._on_heard,
                self._on_keys,
            )
        except psycopg.Error as error:
            self._writer.close()
            self._reader.close()
            refuse(error, self._listen)

    def _open(self) -> Session:
        """The first connection, on a server that is fit for a journal, in the form that its user may use.

        Raises what stands in the way.
        """
        session = self._connect_patiently(self._target)
        try:
            schema.ensure(session, self._target)
            self._check_listen(session)
            self._server_clock.measure(session)
            self._fit(session)
        except BaseException:
            session.close()
            raise
        return session

    def _check_listen(self, session: Session) -> None:
        if self._listen is self._target:
            return
        listening = self._connect_patiently(self._listen)
        try:
            schema.check_listens_to(session, self._target, listening, self._listen)
        finally:
            listening.close()

    def _connect_patiently(self, target: Target) -> Session:
        deadline = time.monotonic() + self._patience
        while True:
            try:
                return Session(target)
            except psycopg.Error as error:
                if is_login_refused(error) or time.monotonic() > deadline:
                    refuse(error, target)
                time.sleep(PAUSE_SECONDS)

    def _connect(self) -> Session:
        return Session(self._target, may_prepare=self._may_prepare)

    def _echo(self, note: str, sent: Callable[[], None]) -> None:
        self._writer.submit_quietly(Echo(note, sent), self._patience)

    def _on_heard(self) -> None:
        """No pooler in transaction mode is in between: statements may be prepared, which makes each quicker."""
        if self._listen is self._target and not self._may_prepare:
            self._may_prepare = True
            self._writer.prepare_statements()
            self._reader.prepare_statements()

    def _on_keys(self) -> None:
        for tell in tuple(self._key_listeners):
            tell()

    def _on_commit(self, news: News) -> None:
        if self._tower.is_listened_to:
            self._tower.announce(news)
        for run, records in news.items():
            for record in records:
                if isinstance(record.event, CallFinished) and record.event.chunks:
                    self._writer.submit_quietly(JoinChunks(run, record.event.call), self._patience)

    def _fit(self, session: Session) -> None:
        """From here on every statement in the form that this user may use."""
        self._rights = roles.rights(session, self._target)
        fitted = roles.fitted(session, self._target, self._rights)
        session.say_instead(fitted.instead)
        is_same = self._listen is self._target
        self._target, self._listen = fitted, fitted if is_same else self._listen._replace(instead=fitted.instead)

    def _patience_for(self, run: str, epoch: int | None) -> float:
        """How long a write is tried: never beyond the lease under which it is made, less its margin."""
        seconds = self._lease_seconds.get(run) if epoch is not None else None
        return self._patience if seconds is None else min(self._patience, _less_margin(seconds))

    def now(self) -> float:
        told = self._clocks.told()
        return self._server_clock.now() if told is None else told

    def _check_version(self) -> None:
        if self.too_new is not None:
            raise self.too_new

    @property
    def evidence(self) -> EvidenceTables:
        return PostgresEvidence(self.ask, self.do)

    # -- events

    async def create(self, event: RunCreated, *, if_busy: base.IfBusy = "queue") -> base.Recorded:
        self._check_version()
        return await self._writer.submit(Create(event, is_refused_if_busy=if_busy == "refuse"), self._patience)

    async def append(self, run: str, events: Sequence[Event], *, after: int, epoch: int | None = None) -> base.Appended:
        proposal = admission.propose(events, after=after, epoch=epoch)
        job = Append(run, proposal, [encoding.encode_checked(event) for event in proposal.events])
        taken = await self._writer.submit(job, self._patience_for(run, epoch))
        return await self._appended(run, proposal, taken, after, self._target.shown)

    def follow(self, run: str, *, after: int = 0, wants: base.Wants | None = None) -> base.RecordStream:
        return Follower(self._tower, run, after, self._read, self._heads, wants)

    def changes(self, *, except_for: Container[str] = ()) -> AsyncIterator[frozenset[str]]:
        return Changes(self._tower, self._reader.check_open, except_for)

    # -- what is derived from events

    def _keep_snapshot(self, state: State) -> None:
        self._writer.submit_quietly(SaveSnapshot(state), self._patience)

    async def states(self, ids: Collection[str]) -> Mapping[str, State]:
        found: dict[str, State] = {}
        names = list(dict.fromkeys(ids))
        for begin in range(0, len(names), STATES):
            for run, (state, folded) in (await self._reader.ask(reads.states, names[begin : begin + STATES])).items():
                is_whole = state is not None and folded < reads.PAGE
                found[run] = self._loaded(state, folded) if state is not None and is_whole else await self.load(run)
        return found

    async def runs(
        self, *, limit: int = 100, before: str | None = None, **wanted: Unpack[base.RunFilter]
    ) -> tuple[base.RunRow, ...]:
        below = None if before is None else await self._reader.ask(tables.key_of, before)
        if (search := wanted.get("search")) is None:
            rows, _ = await self._reader.ask(reads.runs, wanted, limit, below)
            return rows
        # A piece at a time: whoever stops a run asks the same reader, and does not wait for a search.
        found: list[base.RunRow] = []
        while len(found) < limit:
            rows, below = await self._reader.ask(reads.runs, wanted, reads.SCANNED, below)
            found += reads.found(rows, search)
            if len(rows) < reads.SCANNED:
                break
        return tuple(found[:limit])

    # -- leases

    async def claim(
        self, run: str, owner: base.Owner, *, seconds: float, **terms: Unpack[base.ClaimTerms]
    ) -> base.Lease:
        self._check_version()
        job = leases.Claim(run, owner, seconds, terms, self._clocks)
        lease = await self._writer.submit(job, min(self._patience, _less_margin(seconds)))
        self._lease_seconds[run] = seconds
        return lease

    async def renew(self, owner: base.Owner, *, seconds: float, runs: Collection[str] | None = None) -> frozenset[str]:
        def renew(session: Session) -> frozenset[str]:
            renewed = leases.renew(session, owner, seconds, runs, self._clocks)
            self.too_new = self.too_new or schema.look(session, self._target)
            return renewed

        return await self._listener.ask(renew, min(self._patience, _less_margin(seconds)))

    async def release(self, lease: base.Lease, *, rests_at: int = 0, hands_over: bool = False) -> None:
        await self._writer.submit(leases.Release(lease, rests_at, hands_over), self._patience)
        self._lease_seconds.pop(lease.run, None)

    async def lease(self, run: str) -> base.Lease | None:
        return await self._reader.ask(leases.read, run)

    async def leases_of(
        self, processes: Collection[str], agents: Collection[str], **left: Unpack[base.LeftToOthers]
    ) -> tuple[base.Lease, ...]:
        return await self._reader.ask(leases.leases_of, processes, agents, left, self._clocks.told())

    async def free_runs(
        self, agents: Collection[str], owner: base.Owner, *, most: int, **options: Unpack[base.ClaimOptions]
    ) -> tuple[str, ...]:
        return await self._reader.ask(leases.free, leases.Wanted(agents, owner, options, self._clocks), most)

    async def _claim_some(
        self, agents: Collection[str], owner: base.Owner, most: int, seconds: float, options: base.ClaimOptions
    ) -> tuple[base.Lease, ...]:
        job = leases.ClaimFree(leases.Wanted(agents, owner, options, self._clocks), most, seconds)
        claimed = await self._writer.submit(job, min(self._patience, _less_margin(seconds)))
        self._lease_seconds.update(dict.fromkeys((lease.run for lease in claimed), seconds))
        return claimed

    # -- workers

    async def enlist(self, worker: base.Worker, *, seconds: float, instead_of: Collection[str] = ()) -> base.Worker:
        refusals.check_worker(worker)
        self._check_version()

        def enlist(session: Session) -> tuple[str, base.Worker]:
            return workers.enlist(session, worker, seconds, instead_of, self._clocks)

        # By the connection that renews leases, so that a long batch does not make a worker look dead.
        outcome, found = await self._listener.ask(enlist, min(self._patience, _less_margin(seconds)))
        if outcome == "taken":
            raise refusals.name_taken(found)
        if outcome == "buried":
            raise refusals.buried(found)
        return found

    async def discharge(self, owner: base.Owner) -> None:
        await self._writer.submit(workers.Discharge(owner), self._patience)

    async def workers(self) -> tuple[base.Worker, ...]:
        return await self._reader.ask(workers.read, self._clocks)

    async def bury(self, name: str, *, by: str, reason: str) -> base.Worker:
        return await self._writer.submit(workers.Bury(name, by, reason, self._clocks), self._patience)

    # -- fences

    async def fence(self, fence: base.Fence, *, host: str = "") -> bool:
        admission.check_fence(fence)
        return await self._writer.submit(tables.PutFence(fence, host), self._patience)

    async def unfence(self, scope: base.Scope, name: str = "", **words: Unpack[base.LiftWords]) -> bool:
        asked = admission.reset_request(scope, name, words)
        return await self._writer.submit(tables.LiftFence(asked, words.get("runs", ())), self._patience)

    # -- operations

    def operated(self, *, seconds: float) -> AsyncIterator[None]:
        return Operated(self._tower, seconds)

    # -- streamed text

    async def write_chunks(self, chunks: Mapping[str, Sequence[base.Chunk]]) -> None:
        await self._writer.submit(WriteChunks(chunks), self._patience)

    def texts(self) -> AsyncIterator[frozenset[str] | None]:
        is_told = self._listener.is_sure_to_hear
        return Texts(self._tower, lambda: LOOK_FOR_TEXT_SECONDS if is_told() else LIVE_SECONDS)

    # -- files of calls

    async def write_file(self, run: str, call: str, number: int, body: bytes) -> None:
        await self._writer.submit(WriteFile(run, call, number, body), self._patience)

    # -- the keys to the runs, which whoever serves them keeps here

    def ask(self, question: Callable[[Session], T]) -> Awaitable[T]:
        """The answer to `question`, which may read the tables of keys."""
        return self._reader.ask(question)

    def do(self, act: Callable[[Context], T]) -> Awaitable[T]:
        """Have `act` write the tables of keys. It is done twice where an answer is lost."""
        return self._writer.submit(Do(act), self._patience)

    def do_quietly(self, act: Callable[[Context], object]) -> None:
        """The same; nobody wants to know when, or whether."""
        self._writer.submit_quietly(Do(act), self._patience)

    def listen_for_keys(self, tell: Callable[[], None]) -> None:
        """Have `tell` called, in any thread, when some key may be good no longer."""
        self._key_listeners.append(tell)

    @property
    def is_sure_to_hear(self) -> bool:
        """Whether what other processes say arrives here at once."""
        return self._listener.is_sure_to_hear()

    # -- the store

    def check_may_drive(self) -> None:
        roles.check_may_drive(self._target, self._rights)
        if self._clocks.told() is None:
            self._server_clock.check(self._target.shown)

    async def close(self) -> None:
        await run_to_completion(self._close())  # it takes no longer than what was queued, or than there is patience

    async def _close(self) -> None:
        await to_thread.run_sync(self._writer.close)
        # Those whose append was still committed now read what they missed, and are ahead in the reader's queue.
        await to_thread.run_sync(self._reader.close)
        await to_thread.run_sync(self._listener.close)
        self._tower.ring_all()


def _less_margin(seconds: float) -> float:
    """A lease less the time that is needed to give it up: of a short one, a third."""
    return seconds - min(LEASE_MARGIN_SECONDS, seconds / 3)
