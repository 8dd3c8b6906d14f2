"""All appends that wait, in one statement.

An append is judged in Python, on what is remembered of its run; the statement takes it only where the run still stands
there (compare and set), and in one order, so that two processes never wait for each other in a circle. A run that has
moved on is read afresh and its appends are judged again. A refusal is never given on what is only remembered: the head
is read, and then the ids of the append are looked up, since it may be a repeat.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import count
from typing import Any, Final, LiteralString

import msgspec

from checkrein.core.effects import Effect, fold_effects
from checkrein.core.enums import EffectState
from checkrein.errors import CheckreinError
from checkrein.journal import admission as rules
from checkrein.journal import encoding, refusals
from checkrein.journal.admission import FenceLevel, Refusal, Taken
from checkrein.journal.base import Fence, Recorded
from checkrein.journal.postgres.arrays import Blobs, Integers, Numbers, Texts, boolean, integer, number
from checkrein.journal.postgres.connection import Session
from checkrein.journal.postgres.writes.append import Append, look_up
from checkrein.journal.postgres.writes.job import CachedHead, Context, ledger_of

# Who is locked, and who has moved, is told by arrays: in a join the server would compare each with each, since it takes
# the unknown to be few.
APPEND: Final = """
WITH held AS (SELECT 1 FROM {s}.gate WHERE false FOR SHARE),
locked AS MATERIALIZED (
    SELECT run FROM {s}.heads WHERE run = ANY (%(runs)b::bigint[]) ORDER BY run FOR NO KEY UPDATE
),
moved AS (
    UPDATE {s}.heads h SET seq = g.new_seq, decided = g.new_decided, status = g.new_status, at = g.new_at,
        hash = g.new_hash, changed = extract(epoch FROM clock_timestamp())
    FROM unnest(
        %(runs)b::bigint[], %(seqs)b::bigint[], %(epochs)b::bigint[], %(stopped_by)b::bigint[],
        %(new_seqs)b::bigint[], %(new_decided)b::bigint[], %(new_statuses)b::text[],
        %(new_ats)b::double precision[], %(new_hashes)b::bytea[]
    ) AS g (run, seq, epoch, stopped_by, new_seq, new_decided, new_status, new_at, new_hash)
    WHERE g.run = ANY (ARRAY(SELECT run FROM locked))
    AND h.run = g.run AND h.seq = g.seq AND h.epoch = g.epoch AND h.cover < g.stopped_by
    AND (g.stopped_by = 3 OR NOT EXISTS (
        SELECT 1 FROM {s}.fences f JOIN {s}.runs r ON r.key = g.run
        WHERE f.scope <> 'run' AND f.halt::int + 1 >= g.stopped_by AND (
            f.scope = 'all'
            OR (f.scope = 'root' AND f.name = convert_to(coalesce(r.root, r.id), 'UTF8'))
            OR (f.scope = 'agent' AND f.name = convert_to(r.agent, 'UTF8'))
            OR (f.scope = 'owner' AND f.name = r.owner)
        )
    ))
    RETURNING h.run
),
put AS (
    INSERT INTO {s}.events (run, seq, id, at, type, hash, body)
    SELECT e.* FROM unnest(
        %(event_runs)b::bigint[], %(event_seqs)b::bigint[], %(event_ids)b::bytea[],
        %(event_ats)b::double precision[], %(event_types)b::text[], %(event_hashes)b::bytea[],
        %(event_bodies)b::bytea[]
    ) AS e (run, seq, id, at, type, hash, body) WHERE e.run = ANY (ARRAY(SELECT run FROM moved))
)
{effects}
SELECT array_agg(run), CASE WHEN count(*) > 0 THEN pg_notify(%(channel)b::text, %(note)b::text) END FROM moved
"""
PUT_EFFECTS: Final = """,
kept AS (
    INSERT INTO {s}.effects (run, id, state, opened, wanted, body)
    SELECT e.* FROM unnest(
        %(effect_runs)b::bigint[], %(effect_ids)b::bytea[], %(effect_states)b::text[], %(effect_opened)b::bigint[],
        %(effect_wanted)b::boolean[], %(effect_bodies)b::bytea[]
    ) AS e (run, id, state, opened, wanted, body) WHERE e.run = ANY (ARRAY(SELECT run FROM moved))
    ON CONFLICT (run, id) DO UPDATE
        SET state = excluded.state, opened = excluded.opened, wanted = excluded.wanted, body = excluded.body
)
"""
APPEND_EVENTS: Final = APPEND.replace("{effects}", "")
APPEND_EVENTS_AND_EFFECTS: Final = APPEND.replace("{effects}", PUT_EFFECTS)

# What is appended to a single run, as mostly happens where few are at work: it needs no order of locks, and without a
# permit no look at the fences.
APPEND_TO_ONE: Final = """
WITH {held}moved AS (
    UPDATE {s}.heads SET seq = $4::bigint, decided = $5::bigint, status = $6::text, at = $7::double precision,
        hash = $8::bytea, changed = extract(epoch FROM clock_timestamp())
    WHERE run = $1::bigint AND seq = $2::bigint AND epoch = $3::bigint{unfenced}
    RETURNING run, pg_notify($9::text, $10::text)
){kept}
INSERT INTO {s}.events (run, seq, id, at, type, hash, body)
SELECT m.run, e.* FROM moved m CROSS JOIN (VALUES {events}) e
"""
HELD: Final = "held AS (SELECT 1 FROM {s}.gate WHERE false FOR SHARE),\n"
UNFENCED: Final = """ AND cover < $11::bigint AND NOT EXISTS (
        SELECT 1 FROM {s}.fences f JOIN {s}.runs r ON r.key = $1::bigint
        WHERE f.scope <> 'run' AND f.halt::int + 1 >= $11::bigint AND (
            f.scope = 'all'
            OR (f.scope = 'root' AND f.name = convert_to(coalesce(r.root, r.id), 'UTF8'))
            OR (f.scope = 'agent' AND f.name = convert_to(r.agent, 'UTF8'))
            OR (f.scope = 'owner' AND f.name = r.owner)
        )
    )"""
KEPT: Final = """,
kept AS (
    INSERT INTO {s}.effects (run, id, state, opened, wanted, body)
    SELECT m.run, e.* FROM moved m CROSS JOIN (VALUES {effects}) e
    ON CONFLICT (run, id) DO UPDATE
        SET state = excluded.state, opened = excluded.opened, wanted = excluded.wanted, body = excluded.body
)"""
_EVENT_TYPES: Final = ("bigint", "bytea", "double precision", "text", "bytea", "bytea")
_EFFECT_TYPES: Final = ("bytea", "text", "bigint", "boolean", "bytea")
MOST_IN_ONE: Final = 4
"""How many events, and how many effects, are written by a statement of their own for each number of them."""


@cache
def append_to_one(events: int, effects: int, is_fenced: bool) -> LiteralString:
    """The statement that appends so many events, which change so many effects, to a single run."""
    numbers = count(12 if is_fenced else 11)

    def rows(many: int, types: Sequence[LiteralString]) -> LiteralString:
        return ", ".join(f"({', '.join(f'${next(numbers)}::{kind}' for kind in types)})" for _ in range(many))

    return (
        APPEND_TO_ONE.replace("{held}", HELD if is_fenced else "")
        .replace("{unfenced}", UNFENCED if is_fenced else "")
        .replace("{events}", rows(events, _EVENT_TYPES))
        .replace("{kept}", KEPT.replace("{effects}", rows(effects, _EFFECT_TYPES)) if effects else "")
    )


APPEND_AND_FENCE: Final = """
SELECT {s}.append_and_fence(
    %(run)b::text, %(key)b::bigint, %(seq)b::bigint, %(epoch)b::bigint, %(stop)b::bigint, %(new_seq)b::bigint,
    %(new_decided_)b::bigint, %(new_status)b::text, %(new_at)b::double precision, %(new_hash)b::bytea,
    %(event_seqs)b::bigint[], %(event_ids)b::bytea[], %(event_ats)b::double precision[], %(event_types)b::text[],
    %(event_hashes)b::bytea[], %(event_bodies)b::bytea[],
    %(effect_ids)s::bytea[], %(effect_states)s::text[], %(effect_opened)s::bigint[], %(effect_wanted)s::boolean[],
    %(effect_bodies)s::bytea[],
    %(halt)b::boolean, %(by)b::bytea, %(reason)b::bytea, %(at)b::double precision,
    %(channel)b::text, %(note)b::text
)
"""
_EFFECT_ENCODER: Final = msgspec.json.Encoder()

LARGEST_STATEMENT: Final = 8 * 1024 * 1024
"""How many bytes of events go into one statement, unless one append alone has more."""

Answer = tuple[Append, Taken | CheckreinError]


def append_all(at: Context, jobs: Sequence[Append]) -> Iterator[list[Answer]]:
    """Take what can be taken, and yield the answers as they are known: after each commit those that it decides.

    Where this raises, what was not answered yet was not taken, as far as anybody knows.
    """
    for group in _groups(jobs):
        left: Sequence[Append] = group
        while left:
            batch = _Batch(at, left)
            left = batch.perform()
            yield batch.answers


def _groups(jobs: Sequence[Append]) -> Iterator[list[Append]]:
    """What goes into one statement: a verb that fences goes alone, and so does what is very large."""
    group: list[Append] = []
    size = 0
    for job in jobs:
        is_alone = job.proposal.fencing is not None
        if group and (is_alone or size + job.size > LARGEST_STATEMENT):
            yield group
            group, size = [], 0
        group.append(job)
        size += job.size
        if is_alone:
            yield group
            group, size = [], 0
    if group:
        yield group


class _Draft:
    """What a batch would make of one run."""

    def __init__(self, run: str, known: CachedHead, *, is_fresh: bool) -> None:
        self.run = run
        self.known = known
        self.is_fresh = is_fresh
        """It was read for this batch."""
        self.head = known.head
        self.hash = known.hash
        self.records: list[Recorded] = []
        self.stopped_by = FenceLevel.NEVER
        self.has_effects = False
        self.answers: list[Answer] = []
        """Given only if the run still stands where it stood."""
        self.later: list[Append] = []
        """What has to be judged on a head that was read afresh, and all of the run that came after it."""

    def take(self, session: Session, proposal: rules.Proposal, bodies: Sequence[bytes], count: int) -> list[Recorded]:
        records: list[Recorded] = []
        for event, body in zip(proposal.events[:count], bodies, strict=False):
            seq = self.head.seq + len(records) + 1
            self.hash = encoding.link(self.hash, seq, body)
            records.append(Recorded(self.run, seq, event, body, self.hash))
        self.head = rules.advance(self.head, proposal, count)
        self.records += records
        if count == len(proposal.events):
            self.stopped_by = min(self.stopped_by, proposal.stopped_by)
        if proposal.shape.has_effects and records:
            self.has_effects = True
            ledger = ledger_of(session, self.known)
            for record in records:
                ledger.seq = record.seq
                fold_effects(ledger, record.event)
        return records


class _Batch:
    def __init__(self, at: Context, jobs: Sequence[Append]) -> None:
        self._at = at
        self._jobs = jobs
        self._drafts: dict[str, _Draft] = {}
        self.answers: list[Answer] = []

    def perform(self) -> list[Append]:
        """Take what can be taken. What is returned has to be done once more."""
        fresh = self._read_heads()
        # After the heads: what was taken in between is found, and not refused for having been taken.
        recorded = self._look_up()
        for job in self._jobs:
            self._judge(job, recorded.get(job.run, {}), is_fresh=job.run in fresh)
        written = [draft for draft in self._drafts.values() if draft.records]
        moved = self._write(written) if written else set()
        return [job for draft in self._drafts.values() for job in self._close(draft, moved)]

    def _read_heads(self) -> set[str]:
        heads = self._at.heads
        heads.make_room()
        unknown = {job.run for job in self._jobs if heads.get(job.run) is None and "\0" not in job.run}
        if unknown:
            heads.read(self._at.session, unknown)
        return unknown

    def _look_up(self) -> dict[str, dict[str, Recorded]]:
        """The events of appends that may be repeats, as far as they were taken."""
        wanted = [(job.run, event.id) for job in self._jobs if job.must_look for event in job.proposal.events]
        found: dict[str, dict[str, Recorded]] = {}
        if wanted:
            for record in look_up(self._at.session, wanted):
                found.setdefault(record.run, {})[record.event.id] = record
        return found

    def _judge(self, job: Append, of_run: dict[str, Recorded], *, is_fresh: bool) -> None:
        known = self._at.heads.get(job.run)
        if known is None:
            self.answers.append((job, refusals.not_found(job.run)))
            return
        draft = self._drafts.get(job.run)
        if draft is None:
            draft = self._drafts[job.run] = _Draft(job.run, known, is_fresh=is_fresh)
        if draft.later:
            draft.later.append(job)
            return
        try:
            self._draft(job, draft, {e.id: of_run[e.id] for e in job.proposal.events if e.id in of_run})
        except CheckreinError as error:
            self.answers.append((job, error))

    def _draft(self, job: Append, draft: _Draft, recorded: dict[str, Recorded]) -> None:
        left = rules.remainder(job.proposal, recorded) if recorded else job.proposal
        if left is None:
            self.answers.append((job, Taken(tuple(recorded.values()))))
            return
        bodies = job.bodies if left is job.proposal else [encoding.encode(event) for event in left.events]
        head = draft.head
        admission = rules.admit(left, head, cover=draft.known.cover)
        if admission.refusal is not None and not (draft.is_fresh and job.must_look):
            job.must_look = True
            draft.later.append(job)
            return
        taken = draft.take(self._at.session, left, bodies, admission.taken)
        recorded |= {record.event.id: record for record in taken}
        events = tuple(recorded[event.id] for event in job.proposal.events if event.id in recorded)
        draft.answers.append((job, Taken(events, Refusal(admission.refusal, head) if admission.refusal else None)))

    def _close(self, draft: _Draft, moved: set[int]) -> list[Append]:
        """Answer what the commit has decided; return what is left of the run."""
        heads = self._at.heads
        if draft.records and draft.known.key not in moved:
            heads.forget(draft.run)
            return [job for job, _ in draft.answers] + draft.later
        self.answers += draft.answers
        if draft.records:
            draft.known.head, draft.known.hash = draft.head, draft.hash
            self._at.news.setdefault(draft.run, []).extend(draft.records)
        if draft.later or any(job.proposal.fencing is not None for job, _ in draft.answers):
            heads.forget(draft.run)
        return draft.later

    # -- the statement

    def _write(self, drafts: list[_Draft]) -> set[int]:
        """Take the drafts, each if its run still stands where it stood; return the keys of those that do."""
        effects = [(draft, effect) for draft in drafts if draft.has_effects for effect in _changed(draft.known)]
        fencing = self._jobs[0].proposal.fencing
        is_small = len(drafts) == 1 and max(len(drafts[0].records), len(effects)) <= MOST_IN_ONE
        if fencing is None and is_small and self._at.session.writes_tables:
            return self._write_one(drafts[0], [effect for _, effect in effects])
        values = self._values(drafts, effects)
        if fencing is not None and _is_taken(drafts[0].answers[0][1]):  # it stands alone in its batch
            return self._write_and_fence(drafts[0], rules.fence_of(drafts[0].run, fencing), values)
        has_effects = bool(values["effect_runs"])
        row = self._at.session.row(APPEND_EVENTS_AND_EFFECTS if has_effects else APPEND_EVENTS, values)
        return set(row[0] or ()) if row else set()

    def _write_one(self, draft: _Draft, effects: Sequence[Effect]) -> set[int]:
        known, is_fenced = draft.known, draft.stopped_by is not FenceLevel.NEVER
        values = [
            *(integer(known.key), integer(known.head.seq), integer(known.head.epoch)),
            *(integer(draft.head.seq), integer(draft.head.decided), draft.head.status.value.encode()),
            *(number(draft.records[-1].event.at), draft.hash),
            *(self._at.target.channel.encode(), self._at.note([draft.run]).encode()),
        ]
        if is_fenced:
            values.append(integer(draft.stopped_by))
        for record in draft.records:
            event = record.event
            values += integer(record.seq), event.id.encode(), number(event.at), rules.tag(type(event)).encode()
            values += record.hash, record.body
        for effect in effects:
            values += effect.id.encode(), effect.state.value.encode(), integer(_opened(known, effect))
            values += boolean(_is_wanted(effect)), _EFFECT_ENCODER.encode(effect)
        statement = append_to_one(len(draft.records), len(effects), is_fenced)
        return {known.key} if self._at.session.change(statement, values) else set()

    def _write_and_fence(self, draft: _Draft, fence: Fence, values: dict[str, Any]) -> set[int]:
        values |= {
            "run": draft.run,
            "key": draft.known.key,
            "seq": draft.known.head.seq,
            "epoch": draft.known.head.epoch,
            "stop": int(draft.stopped_by),
            "new_seq": draft.head.seq,
            "new_decided_": draft.head.decided,
            "new_status": draft.head.status.value,
            "new_at": draft.records[-1].event.at,
            "new_hash": draft.hash,
            "halt": fence.halt,
            "by": fence.by.encode(),
            "reason": fence.reason.encode(),
            "at": fence.at,
        }
        self._at.heads.forget()  # it fences runs that are not in this batch
        row = self._at.session.row(APPEND_AND_FENCE, values)
        return {draft.known.key} if row and row[0] else set()

    def _values(self, drafts: list[_Draft], effects: Sequence[tuple[_Draft, Effect]]) -> dict[str, Any]:
        events = [(draft.known.key, record) for draft in drafts for record in draft.records]
        records = [record for _, record in events]
        return {
            "runs": Integers([draft.known.key for draft in drafts]),
            "seqs": Integers([draft.known.head.seq for draft in drafts]),
            "epochs": Integers([draft.known.head.epoch for draft in drafts]),
            "stopped_by": Integers([draft.stopped_by for draft in drafts]),
            "new_seqs": Integers([draft.head.seq for draft in drafts]),
            "new_decided": Integers([draft.head.decided for draft in drafts]),
            "new_statuses": Texts([draft.head.status.value for draft in drafts]),
            "new_ats": Numbers([draft.records[-1].event.at for draft in drafts]),
            "new_hashes": Blobs([draft.hash for draft in drafts]),
            "event_runs": Integers([key for key, _ in events]),
            "event_seqs": Integers([record.seq for record in records]),
            "event_ids": Blobs([record.event.id.encode() for record in records]),
            "event_ats": Numbers([record.event.at for record in records]),
            "event_types": Texts([rules.tag(type(record.event)) for record in records]),
            "event_hashes": Blobs([record.hash for record in records]),
            "event_bodies": Blobs([record.body for record in records]),
            "effect_runs": [draft.known.key for draft, _ in effects],
            "effect_ids": [effect.id.encode() for _, effect in effects],
            "effect_states": [effect.state.value for _, effect in effects],
            "effect_opened": [_opened(draft.known, effect) for draft, effect in effects],
            "effect_wanted": [_is_wanted(effect) for _, effect in effects],
            "effect_bodies": [_EFFECT_ENCODER.encode(effect) for _, effect in effects],
            "channel": self._at.target.channel,
            "note": self._at.note([draft.run for draft in drafts]),
        }


def _changed(known: CachedHead) -> list[Effect]:
    assert known.ledger is not None
    changed = [known.ledger[name] for name in known.ledger.changed]
    known.ledger.changed.clear()
    return changed


def _opened(known: CachedHead, effect: Effect) -> int:
    assert known.ledger is not None
    return known.ledger.opened[effect.id]


def _is_wanted(effect: Effect) -> bool:
    return effect.wanted and effect.state is EffectState.OPEN


def _is_taken(answer: Taken | CheckreinError) -> bool:
    return isinstance(answer, Taken) and answer.refusal is None
