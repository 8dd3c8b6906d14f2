"""Writing events: the creation of a run, and the append. What appends that wait do together is in `batch`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from checkrein.core.enums import UNFINISHED
from checkrein.core.events import RunCreated
from checkrein.errors import MisuseError
from checkrein.journal import admission as rules
from checkrein.journal import encoding, refusals
from checkrein.journal.admission import Taken
from checkrein.journal.base import Recorded
from checkrein.journal.postgres.connection import Session
from checkrein.journal.postgres.writes.job import Context, Job
from checkrein.journal.queue import Lane

RECORDED: Final = """
SELECT r.id, e.seq, e.body, e.hash FROM unnest(%s::text[], %s::bytea[]) AS w (run, id)
JOIN {s}.runs r ON r.id = w.run JOIN {s}.events e ON e.run = r.key AND e.id = w.id
"""
CREATE: Final = """
SELECT outcome, found_root, busy_with FROM {s}.create_run(
    %s::text, %s::text, %s::bytea, %s::bytea, %s::text, %s::text, %s::text, %s::double precision, %s::bytea, %s::bytea,
    %s::text, %s::bytea, %s::bytea, %s::text, %s::text, %s::text[]
)
"""


class Create(Job[Recorded]):
    def __init__(self, event: RunCreated, *, is_refused_if_busy: bool = False) -> None:
        if "\0" in f"{event.run}{event.agent}{event.parent}{event.root}":
            raise MisuseError("The id of a run and the name of an agent cannot hold the character NUL.")
        self._event = event
        self._busy_statuses = [status.value for status in UNFINISHED] if is_refused_if_busy else []
        self._body = encoding.encode_checked(event)

    def perform(self, at: Context) -> Recorded:
        event = self._event
        hash = encoding.link(encoding.genesis(event.run), 1, self._body)
        outcome, root, busy_with = at.session.rows(
            CREATE,
            (
                *(event.run, event.agent, event.owner.encode(), event.thread.encode(), event.parent, event.root),
                *(event.status.value, event.at, event.goal.encode(), event.id.encode(), rules.tag(type(event))),
                *(hash, self._body, at.target.channel, at.note([event.run]), self._busy_statuses),
            ),
        )[0]
        if outcome == "exists":
            known = find(at.session, event.run, event.id)
            if known is None:
                raise refusals.exists(event.run)
            return known
        if outcome == "no parent":
            raise refusals.not_found(event.parent or "")
        if outcome == "another root":
            rules.check_descent(event, root)
        if outcome == "fenced":
            raise refusals.fenced_creation(event)
        if outcome == "parent over":
            raise refusals.over_parent(event)
        if outcome == "busy":
            raise refusals.busy(event, busy_with)
        record = Recorded(event.run, 1, event, self._body, hash)
        at.news[event.run] = [record]
        return record


class Append(Job[Taken]):
    """`bodies` are the encoded events, made before so that the writer need not."""

    def __init__(self, run: str, proposal: rules.Proposal, bodies: Sequence[bytes]) -> None:
        self.lane = Lane.VERB if proposal.shape.is_urgent else Lane.ORDINARY
        self.run = run
        self.proposal = proposal
        self.bodies = bodies
        self.must_look = proposal.shape.has_answer
        """Its ids are looked up first: it may be a repeat, or would be refused."""
        self.size = sum(map(len, bodies))

    def perform(self, at: Context) -> Taken:
        """Appends are performed together, by `batch.append_all`."""
        raise NotImplementedError


def find(session: Session, run: str, event_id: str) -> Recorded | None:
    """The event with this id, if it was ever taken."""
    return next(iter(look_up(session, [(run, event_id)])), None)


def look_up(session: Session, wanted: Iterable[tuple[str, str]]) -> list[Recorded]:
    """Of these events, by run and id, those that were taken."""
    runs, ids = [], []
    for run, event_id in wanted:
        if "\0" not in run:
            runs.append(run)
            ids.append(event_id.encode())
    if not runs:
        return []
    rows = session.rows(RECORDED, (runs, ids))
    return [Recorded(run, seq, encoding.decode(body), body, hash) for run, seq, body, hash in rows]
