"""Writing events: the creation of a run and the append, each as it happens inside a transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

from checkrein.core.enums import TERMINAL, UNFINISHED, Status
from checkrein.core.events import Event, RunCreated
from checkrein.errors import StoreFull
from checkrein.journal import admission as rules
from checkrein.journal import encoding, refusals
from checkrein.journal.admission import Refusal, Taken
from checkrein.journal.base import Recorded
from checkrein.journal.queue import Lane
from checkrein.journal.sqlite import tables
from checkrein.journal.sqlite.job import CachedHead, Job, Transaction, cover, cover_of

RECORD: Final = """
SELECT e.seq, e.body, e.hash FROM runs r JOIN events e ON e.run = r.key WHERE r.id = ?1 AND e.id = ?2
"""
INSERT_EVENT: Final = """
INSERT INTO events (run, seq, id, at, hash, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (run, id) DO NOTHING
"""
SET_DECIDED: Final = "UPDATE heads SET decided = ?2 WHERE run = ?1"
SET_STATUS: Final = "UPDATE runs SET status = ?2 WHERE key = ?1"
INSERT_RUN: Final = """
INSERT INTO runs (id, agent, owner, thread, parent, root, status, created_at, goal)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
"""
INSERT_HEAD: Final = "INSERT INTO heads (run, decided, epoch) VALUES (?1, 1, 0)"
BUSY: Final = f"""
SELECT id FROM runs WHERE thread = ?1 AND owner = ?2 AND parent IS NULL
AND status IN ({", ".join(f"'{status.value}'" for status in sorted(UNFINISHED))}) ORDER BY key LIMIT 1
"""
PARENT: Final = f"""
SELECT root, status, {cover_of("id", "ifnull(root, id)", "agent", "owner")} FROM runs WHERE id = ?1
"""


class Create(Job[Recorded]):
    is_dispensable = True

    def __init__(self, event: RunCreated, path: str, *, is_refused_if_busy: bool = False) -> None:
        self._event = event
        self._is_refused_if_busy = is_refused_if_busy
        self._body = encoding.encode_checked(event)
        self._path = path

    def perform(self, tx: Transaction) -> Recorded:
        known = self.recall(tx)
        if known is not None:
            return known
        event, cursor = self._event, tx.cursor
        if cursor.execute("SELECT 1 FROM runs WHERE id = ?", (event.run,)).fetchone():
            raise refusals.exists(event.run)
        self._check(tx)
        cursor.execute(
            INSERT_RUN,
            (
                *(event.run, event.agent, event.owner, event.thread, event.parent, event.root),
                *(event.status, event.at, event.goal),
            ),
        )
        key = cursor.lastrowid
        assert key is not None
        hash = encoding.link(encoding.genesis(event.run), 1, self._body)
        cursor.execute(INSERT_HEAD, (key,))
        _insert(tx, key, 1, event, hash, self._body)
        record = Recorded(event.run, 1, event, self._body, hash)
        tx.news[event.run] = [record]
        return record

    def recall(self, tx: Transaction) -> Recorded | None:
        return find(tx.cursor, self._event.run, self._event.id)

    def _check(self, tx: Transaction) -> None:
        event = self._event
        root = status = None
        over = cover(tx.cursor, event.run, event.root or event.run, event.agent, event.owner)
        if event.parent is not None:
            row = tx.cursor.execute(PARENT, (event.parent,)).fetchone()
            if row is None:
                raise refusals.not_found(event.parent)
            root, status = row[:2]
            over = max(over, row[2])
        rules.check_descent(event, root)
        if over:
            raise refusals.fenced_creation(event)
        if status is not None and Status(status) in TERMINAL:
            raise refusals.over_parent(event)
        if self._is_refused_if_busy:
            live = tx.cursor.execute(BUSY, (event.thread, event.owner)).fetchone()
            if live is not None:
                raise refusals.busy(event, live[0])
        if tx.is_full:
            raise refusals.full(self._path)


class Append(Job[Taken]):
    """`bodies` are the encoded events, made before so that the writer need not."""

    def __init__(self, run: str, proposal: rules.Proposal, bodies: Sequence[bytes]) -> None:
        self.lane = Lane.VERB if proposal.shape.is_urgent else Lane.ORDINARY
        self.is_dispensable = proposal.is_work or rules.without_words(proposal) is not proposal
        self._run = run
        self._proposal = proposal
        self._bodies = bodies

    def perform(self, tx: Transaction) -> Taken:
        known = tx.heads.get(tx.cursor, self._run)
        if tx.is_full and not self._leave_out_words():
            return self.recall(tx) or Taken((), Refusal(StoreFull, known.head))
        taken = None
        if not tx.is_careful and not self._proposal.shape.has_answer:
            taken = self._take(tx, known, self._proposal, self._bodies)
        return self._repeat(tx, known) if taken is None else taken

    def _leave_out_words(self) -> bool:
        """Whether what people ask for here can be taken without drawing on the reserve for its words."""
        left = rules.without_words(self._proposal)
        if left is not None and left is not self._proposal:
            self._proposal, self._bodies = left, [encoding.encode(event) for event in left.events]
        return left is not None

    def recall(self, tx: Transaction) -> Taken | None:
        recorded = self._recorded(tx)
        events = self._proposal.events
        is_done = all(e.id in recorded and rules.is_repeat(e, recorded[e.id].event) for e in events)
        return Taken(tuple(recorded.values())) if is_done else None

    def _repeat(self, tx: Transaction, known: CachedHead) -> Taken:
        """Take what was not taken before."""
        recorded = self._recorded(tx)
        left = rules.remainder(self._proposal, recorded)
        if left is None:
            return Taken(tuple(recorded.values()))
        taken = self._take(tx, known, left, [encoding.encode(event) for event in left.events], is_new=True)
        assert taken is not None, "an id that was just looked up appeared inside a transaction"
        recorded |= {record.event.id: record for record in taken.events}
        return taken._replace(events=tuple(recorded[e.id] for e in self._proposal.events if e.id in recorded))

    def _recorded(self, tx: Transaction) -> dict[str, Recorded]:
        found = (find(tx.cursor, self._run, event.id) for event in self._proposal.events)
        return {record.event.id: record for record in found if record is not None}

    def _take(
        self,
        tx: Transaction,
        known: CachedHead,
        proposal: rules.Proposal,
        bodies: Sequence[bytes],
        is_new: bool = False,
    ) -> Taken | None:
        """Write what is admitted. None, with nothing written, where this may be a repeat and must be looked up."""
        key, over, hash, head = known
        admission = rules.admit(proposal, head, cover=over, is_full=tx.is_full)
        if admission.taken == 0 and not is_new:
            return None
        records: list[Recorded] = []
        for event, body in zip(proposal.events[: admission.taken], bodies, strict=False):
            seq = head.seq + len(records) + 1
            hash = encoding.link(hash, seq, body)
            if not _insert(tx, key, seq, event, hash, body):
                if records:
                    raise sqlite3.IntegrityError(f"event id {event.id!r} is taken")
                return None
            records.append(Recorded(self._run, seq, event, body, hash))
        if records:
            after = rules.advance(head, proposal, admission.taken)
            tx.heads.put(self._run, CachedHead(key, over, hash, after))
            tx.news.setdefault(self._run, []).extend(records)
            self._keep(tx, key, proposal, head, after, records)
        return Taken(tuple(records), Refusal(admission.refusal, head) if admission.refusal else None)

    def _keep(
        self,
        tx: Transaction,
        key: int,
        proposal: rules.Proposal,
        before: rules.Head,
        after: rules.Head,
        records: Sequence[Recorded],
    ) -> None:
        """Bring what is derived from events up to date."""
        if after.decided != before.decided:
            tx.cursor.execute(SET_DECIDED, (key, after.decided))
            if after.status is not before.status:
                tx.cursor.execute(SET_STATUS, (key, after.status))
            if proposal.fencing is not None:
                tables.insert_fence(tx.cursor, rules.fence_of(self._run, proposal.fencing))
                tx.heads.forget()
        if proposal.shape.has_effects:
            tables.keep(tx.cursor, key, records)


def find(db: sqlite3.Connection | sqlite3.Cursor, run: str, event_id: str) -> Recorded | None:
    """The event with this id, if it was ever taken."""
    row = db.execute(RECORD, (run, event_id)).fetchone()
    return None if row is None else Recorded(run, row[0], encoding.decode(row[1]), row[1], row[2])


def _insert(tx: Transaction, key: int, seq: int, event: Event, hash: bytes, body: bytes) -> bool:
    """False when the run has an event with this id."""
    cursor = tx.cursor.execute(INSERT_EVENT, (key, seq, event.id, event.at, hash, body))
    if cursor.rowcount == 0:
        return False
    tx.last = cursor.lastrowid or 0
    tx.first = tx.first or tx.last
    return True
