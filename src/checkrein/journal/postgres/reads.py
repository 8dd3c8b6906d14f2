"""What can be asked of a journal's schema. Each function gets the reader's connection."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, LiteralString

import psycopg

from checkrein.core.enums import Status
from checkrein.core.evolve import evolve
from checkrein.core.state import State
from checkrein.journal import encoding
from checkrein.journal.base import Recorded, RunFilter, RunRow, is_found
from checkrein.journal.postgres.connection import Session, Target, explain, is_lost
from checkrein.journal.postgres.tables import key_of
from checkrein.journal.queue import Question, ReadThread, tell_all
from checkrein.journal.stored import PAGE as PAGE
from checkrein.journal.stored import walk_chain

SCANNED: Final = 1000
"""How many runs are looked at in one go in a search."""

EVENTS: Final = """
SELECT e.seq, e.body, e.hash FROM {s}.events e WHERE e.run = %s AND e.seq > %s ORDER BY e.seq LIMIT %s
"""
HEAD: Final = "SELECT seq FROM {s}.heads WHERE run = %s"
CHAIN: Final = "SELECT seq, body, hash, id FROM {s}.events WHERE run = %s AND seq > %s ORDER BY seq LIMIT %s"
RUNS: Final = """
SELECT r.key, r.id, r.agent, r.owner, r.thread, r.parent, r.root, r.goal, h.status, h.seq, r.created_at, h.at
FROM {s}.runs r JOIN {s}.heads h ON h.run = r.key
{where}
ORDER BY r.key DESC LIMIT %(limit)s
"""
CONDITIONS: Final[Mapping[str, LiteralString]] = {
    "status": "h.status = ANY (%(status)s)",
    "thread": "r.thread = %(thread)s",
    "owner": "r.owner = %(owner)s",
    "agent": "r.agent = %(agent)s",
    "root": "r.root = %(root)s",
    "tree": "(r.id = %(tree)s OR r.root = %(tree)s OR (r.id > %(tree)s || '.' AND r.id < %(tree)s || '/'))",
    "since": "r.created_at >= %(since)s",
    "until": "r.created_at < %(until)s",
    "changed_after": "h.at > %(changed_after)s",
    "asked": "EXISTS (SELECT 1 FROM {s}.events v WHERE v.run = r.key AND v.type = 'verb.accepted')",
    "below": "r.key < %(below)s",
}
VALUES: Final[Mapping[str, Callable[[Any], Any]]] = {
    "status": lambda statuses: [status.value for status in statuses or ()] or None,
    "thread": lambda text: None if text is None else text.encode(),
    "owner": lambda text: None if text is None else text.encode(),
    "agent": lambda text: text,
    "root": lambda text: text,
    "tree": lambda text: text,
    "since": lambda at: None if at is None else float(at),
    "until": lambda at: None if at is None else float(at),
    "changed_after": lambda at: None if at is None else float(at),
    "asked": lambda asked: asked or None,
}
"""How each field of a `RunFilter` is given to its condition; None: it says nothing."""
TALLY: Final = """
SELECT r.agent, h.status, count(*) FROM {s}.runs r JOIN {s}.heads h ON h.run = r.key GROUP BY r.agent, h.status
"""
SNAPSHOTS: Final = """
SELECT r.id, r.key, s.state FROM {s}.runs r LEFT JOIN {s}.snapshots s ON s.run = r.key AND s.version = %s
WHERE r.id = ANY (%s)
"""
EVENTS_OF: Final = """
SELECT w.run, e.seq, e.body FROM unnest(%s::bigint[], %s::bigint[]) AS w (run, after)
CROSS JOIN LATERAL (
    SELECT seq, body FROM {s}.events WHERE run = w.run AND seq > w.after ORDER BY seq LIMIT %s
) e ORDER BY w.run, e.seq
"""
HEADS: Final = "SELECT r.id, h.seq FROM {s}.runs r JOIN {s}.heads h ON h.run = r.key WHERE r.id = ANY(%s)"
CHANGED: Final = """
SELECT r.id, h.seq FROM {s}.heads h JOIN {s}.runs r ON r.key = h.run
WHERE h.changed > extract(epoch FROM clock_timestamp()) - %s::double precision
"""


def read(session: Session, run: str, after: int, limit: int) -> tuple[Recorded, ...]:
    rows = session.rows(EVENTS, (key_of(session, run), after, limit))
    return tuple(Recorded(run, seq, encoding.decode(body), body, hash) for seq, body, hash in rows)


def fold(session: Session, run: str, state: State | None) -> tuple[State | None, int]:
    """`state` and up to a page of the events after it; also how many those were."""
    rows = session.rows(EVENTS, (key_of(session, run), state.seq if state else 0, PAGE))
    for seq, body, _ in rows:
        state = evolve(state, encoding.decode(body), seq)
    return state, len(rows)


def states(session: Session, names: Collection[str]) -> dict[str, tuple[State | None, int]]:
    """Of each of these runs that there is: the state after its snapshot and up to a page of events, and how many those
    were. A page of them means that there may be more."""
    known = session.rows(SNAPSHOTS, (encoding.STATE_VERSION, [name for name in names if "\0" not in name]))
    found = {key: (None if body is None else encoding.decode_state(body)) for _, key, body in known}
    counts = dict.fromkeys(found, 0)
    after = [0 if state is None else state.seq for state in found.values()]
    for key, seq, body in session.rows(EVENTS_OF, (list(found), after, PAGE)):
        found[key] = evolve(found[key], encoding.decode(body), seq)
        counts[key] += 1
    return {name: (found[key], counts[key]) for name, key, _ in known}


def tally(session: Session) -> dict[tuple[str, Status], int]:
    return {(agent, Status(status)): count for agent, status, count in session.rows(TALLY, ())}


def check_chain(session: Session, run: str, seq: int, hash: bytes) -> tuple[int, bytes, bool]:
    """Walk up to a page of events after `seq`, which has `hash`. Returns where that led and whether it is the end."""
    key = key_of(session, run)
    (last,) = session.row(HEAD, (key,)) or (0,)
    rows = [
        (found, body, claimed, event_id.decode(errors="surrogateescape"))
        for found, body, claimed, event_id in session.rows(CHAIN, (key, seq, PAGE))
    ]
    return walk_chain(run, seq, hash, rows, last)


def runs(session: Session, wanted: RunFilter, limit: int, below: int | None) -> tuple[tuple[RunRow, ...], int]:
    """Runs that fit all that is given, newest first, of those with a key below; and the lowest key of them. What is
    searched for is left to the caller (`found`)."""
    if any("\0" in (name or "") for name in (wanted.get("agent"), wanted.get("root"), wanted.get("tree"))):
        return (), 0
    values = {**{name: encode(wanted.get(name)) for name, encode in VALUES.items()}, "below": below}
    given = {name: value for name, value in values.items() if value is not None}
    where: LiteralString = "WHERE " + " AND ".join(CONDITIONS[name] for name in given) if given else ""
    rows = session.rows(RUNS.replace("{where}", where), {**given, "limit": limit})
    return tuple(_run_row(row) for row in rows), rows[-1][0] if rows else 0


def found(rows: tuple[RunRow, ...], search: str) -> list[RunRow]:
    """Those that are meant by `search`. Goals are bytes to the server, which knows no letters in them."""
    return [row for row in rows if is_found(search, row.id, row.goal)]


def heads(session: Session, runs: Sequence[str]) -> dict[str, int]:
    """How many events each of these runs has."""
    return dict(session.rows(HEADS, (list(runs),)))


def changed(session: Session, seconds: float) -> dict[str, int]:
    """The runs that got events within so many seconds, and how many each has."""
    return dict(session.rows(CHANGED, (seconds,)))


def _run_row(row: tuple[Any, ...]) -> RunRow:
    _, id, agent, owner, thread, parent, root, goal, status, seq, created_at, changed_at = row
    return RunRow(
        id=id,
        agent=agent,
        owner=owner.decode(),
        thread=thread.decode(),
        parent=parent,
        root=root,
        goal=goal.decode(),
        status=Status(status),
        seq=seq,
        created_at=created_at,
        changed_at=changed_at,
    )


PAUSE_SECONDS: Final = 0.1
"""How long a server that cannot be reached is left alone."""


class Reader(ReadThread[Session]):
    """The thread that reads.

    A connection that is lost is opened anew and the question asked again, for as long as whoever asked has patience.
    """

    def __init__(self, target: Target, connect: Callable[[], Session], patience: float) -> None:
        super().__init__(target.shown)
        self._target = target
        self._connect = connect
        self._patience = patience
        self._session: Session | None = None
        self._thread.start()

    def prepare_statements(self) -> None:
        if self._session is not None:
            self._session.prepare_statements()

    # -- the thread

    def _run(self) -> None:
        while (question := self._questions.get()) is not None:
            if question.future is None or not question.future.cancelled():
                tell_all([(question.future, self._answer(question))])
        self._drop_connection()

    def _answer(self, question: Question) -> Any:
        while True:
            try:
                if self._session is None:
                    self._session = self._connect()
                return question.ask(self._session)
            except psycopg.Error as error:
                if not is_lost(error) or time.monotonic() > question.asked_at + self._patience:
                    return explain(error, self._target.shown)
                self._drop_connection()
                time.sleep(PAUSE_SECONDS)
            except Exception as error:
                return error

    def _drop_connection(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()
