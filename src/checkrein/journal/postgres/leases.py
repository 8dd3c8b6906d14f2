"""Leases: who drives a run, and until when. The epoch is kept with the run's head and only ever rises.

All times are the server's own, so that hosts need not agree on theirs. On the host and in the boot of its owner a lease
is also known by the clock that nobody sets.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from typing import Any, Final, NamedTuple
from uuid import uuid4

import msgspec

from checkrein.core.enums import UNFINISHED, Status
from checkrein.errors import StoreUnavailable
from checkrein.journal import refusals
from checkrein.journal.base import ClaimOptions, ClaimTerms, Lease, LeftToOthers, Owner, claimable
from checkrein.journal.postgres.connection import Session
from checkrein.journal.postgres.writes.job import Context, Job
from checkrein.journal.stored import lease_of_row
from checkrein.timings import LEASE_SECONDS

_log = logging.getLogger(__name__)

NOW: Final = "SELECT extract(epoch FROM clock_timestamp())::double precision"
CLOCK_READINGS: Final = 5
SKEW_WARN_SECONDS: Final = 1.0
SKEW_MOST_SECONDS: Final = LEASE_SECONDS / 3


class ServerClock:
    """How far the clock of this host is from that of the server, which all hosts share.

    Measured by one thread, read by any.
    """

    def __init__(self) -> None:
        self._ahead = 0.0
        self._is_warned = False

    def now(self) -> float:
        """The time by the clock of the server, as well as it is known here."""
        return time.time() + self._ahead

    def measure(self, session: Session) -> None:
        """Ask the server a few times; the quickest answer is the most exact one."""
        best = (float("inf"), 0.0)
        for _ in range(CLOCK_READINGS):
            began = time.time()
            (there,) = session.row(NOW) or (0.0,)
            ended = time.time()
            best = min(best, (ended - began, there - (began + ended) / 2))
        self._ahead = best[1]
        if abs(self._ahead) > SKEW_WARN_SECONDS and not self._is_warned:
            self._is_warned = True
            _log.warning("the clock of this host is %.1f s from that of the store; set it", -self._ahead)

    def check(self, name: str) -> None:
        """Raises `StoreUnavailable` where this host's clock is too far off to tell when a lease ends."""
        if abs(self._ahead) > SKEW_MOST_SECONDS:
            raise StoreUnavailable(
                f"The clock of this host is {-self._ahead:+.0f} s from that of {name}, and a lease lasts "
                f"{LEASE_SECONDS:g} s. Have both set by a time server.",
                code="store_clock_off",
                path=name,
            )


HELD: Final = """
SELECT h.epoch, l.deadline, l.until, l.process, l.host, l.boot_id, l.pid, l.started
FROM {s}.runs r JOIN {s}.heads h ON h.run = r.key LEFT JOIN {s}.leases l ON l.run = r.key WHERE r.id = %s
"""
CLAIM: Final = """
SELECT outcome, new_epoch, new_deadline, new_until, was_held, was_until FROM {s}.claim(
    %s::text, %s::text, %s::text, %s::text, %s::bigint, %s::double precision, %s::text, %s::double precision,
    %s::boolean, %s::bigint, %s::double precision, %s::double precision, %s::text
)
"""
HELD_OF: Final = """
SELECT r.id, h.epoch, l.deadline, l.until, l.process, l.host, l.boot_id, l.pid, l.started
FROM {s}.runs r JOIN {s}.heads h ON h.run = r.key JOIN {s}.leases l ON l.run = r.key WHERE r.id = ANY (%s)
"""
LEASES_OF: Final = """
SELECT r.id, h.epoch, l.deadline, l.until, l.process, l.host, l.boot_id, l.pid, l.started
FROM {s}.leases l JOIN {s}.runs r ON r.key = l.run JOIN {s}.heads h ON h.run = l.run
WHERE l.process = ANY (%(processes)s::text[]) AND r.agent = ANY (%(agents)s::text[])
AND NOT {s}.is_left_to_others(h, l, %(versions)s::text[], %(version_seconds)s::double precision,
    coalesce(%(now)s::double precision, extract(epoch FROM clock_timestamp())))
ORDER BY r.key
"""
VERSIONS: Final = """
SELECT r.id, h.version FROM {s}.runs r JOIN {s}.heads h ON h.run = r.key WHERE r.id = ANY (%s) AND h.version <> ''
"""
OWNERS: Final = "SELECT DISTINCT process, host, boot_id, pid, started FROM {s}.leases"
FREE: Final = """
SELECT id FROM {s}.free_runs(
    %(agents)s::text[], %(wanted)s::text[], %(if_left)s::text[], %(unfinished)s::text[], %(queued)s::text,
    %(except_for)s::text[], %(not_of)s::text[], %(versions)s::text[], %(version_seconds)s::double precision,
    %(process)s::text, %(boot_id)s::text,
    coalesce(%(now)s::double precision, extract(epoch FROM clock_timestamp())), %(steady)s::double precision
) LIMIT %(most)s::bigint
"""
CLAIM_FREE: Final = """
SELECT run, epoch, deadline, was_held, was_until FROM {s}.claim_free(
    %(agents)s::text[], %(wanted)s::text[], %(if_left)s::text[], %(unfinished)s::text[], %(queued)s::text,
    %(except_for)s::text[], %(not_of)s::text[], %(versions)s::text[], %(version_seconds)s::double precision,
    %(process)s::text, %(host)s::text, %(boot_id)s::text, %(pid)s::bigint, %(started)s::double precision,
    %(version)s::text, %(token)s::text, %(seconds)s::double precision, %(most)s::bigint, %(now)s::double precision,
    %(steady)s::double precision
)
"""
RENEW: Final = """
UPDATE {s}.leases l SET until = %(steady)s::double precision + %(seconds)s::double precision,
    deadline = coalesce(%(now)s::double precision, extract(epoch FROM clock_timestamp())) + %(seconds)s
FROM {s}.runs r WHERE r.key = l.run AND l.process = %(process)s::text AND l.deadline <> 0
AND (%(runs)s::text[] IS NULL OR r.id = ANY (%(runs)s)) RETURNING r.id
"""
RELEASE: Final = "SELECT * FROM {s}.release(%s::text, %s::bigint, %s::text, %s::bigint, %s::boolean)"

_OWNER: Final = msgspec.json.Decoder(Owner)


class Clocks(NamedTuple):
    wall: Callable[[], float] | None
    """None: the server's own, which is asked in the statement."""
    steady: Callable[[], float]

    def told(self) -> float | None:
        return self.wall() if self.wall is not None else None


def read(session: Session, run: str) -> Lease | None:
    """The run's lease if somebody holds it, also one that has run out. Raises `RunNotFound`."""
    row = session.row(HELD, (run,)) if "\0" not in run else None
    if row is None:
        raise refusals.not_found(run)
    return None if row[3] is None else lease_of_row(run, *row)


def read_all(session: Session, runs: Collection[str]) -> dict[str, Lease]:
    """The leases of these runs, of those that have one."""
    rows = session.rows(HELD_OF, ([run for run in runs if "\0" not in run],))
    return {row[0]: lease_of_row(*row) for row in rows}


def leases_of(
    session: Session, processes: Collection[str], agents: Collection[str], left: LeftToOthers, now: float | None
) -> tuple[Lease, ...]:
    """`now` None: by the server's time."""
    given = {
        "processes": _texts(processes),
        "agents": _texts(agents),
        "versions": _texts(left.get("versions_elsewhere", ())),
        "version_seconds": float(left.get("version_seconds", 0.0)),
        "now": now,
    }
    rows = session.rows(LEASES_OF, given)
    return tuple(lease_of_row(*row) for row in rows)


def versions(session: Session, runs: Collection[str]) -> dict[str, str]:
    return dict(session.rows(VERSIONS, (_texts(runs),)))


def owners(session: Session) -> tuple[Owner, ...]:
    rows = session.rows(OWNERS)
    return tuple(Owner(process=row[0], host=row[1], boot_id=row[2], pid=row[3], started=row[4]) for row in rows)


def _texts(given: Collection[str]) -> list[str]:
    return [text for text in given if "\0" not in text]


class Wanted(NamedTuple):
    """What is free for whom."""

    agents: Collection[str]
    owner: Owner
    options: ClaimOptions
    clocks: Clocks

    def values(self) -> dict[str, Any]:
        owner, options = self.owner, self.options
        wanted, if_left = claimable(options.get("stops_only", False))
        return {
            "agents": _texts(self.agents),
            "wanted": [status.value for status in wanted],
            "if_left": [status.value for status in if_left],
            "unfinished": [status.value for status in UNFINISHED],
            "queued": Status.QUEUED.value,
            "except_for": _texts(options.get("except_for", ())),
            "not_of": _texts(options.get("not_of", ())),
            "version": options.get("version", ""),
            "versions": _texts(options.get("versions_elsewhere", ())),
            "version_seconds": float(options.get("version_seconds", 0.0)),
            "process": owner.process,
            "host": owner.host,
            "boot_id": owner.boot_id,
            "pid": owner.pid,
            "started": float(owner.started),
            "steady": self.clocks.steady(),
            "now": self.clocks.told(),
        }


def free(session: Session, wanted: Wanted, most: int) -> tuple[str, ...]:
    """What there is to claim, the oldest first."""
    rows = session.rows(FREE, {**wanted.values(), "most": max(0, most)})
    return tuple(run for (run,) in rows)


class ClaimFree(Job[tuple[Lease, ...]]):
    """Claims what wants a driver and has none, the oldest first, in one transaction."""

    def __init__(self, wanted: Wanted, most: int, seconds: float) -> None:
        self._wanted = wanted
        self._most = most
        self._seconds = seconds
        self._token = uuid4().hex

    def perform(self, at: Context) -> tuple[Lease, ...]:
        given = self._wanted.values()
        more = {"token": self._token, "seconds": float(self._seconds), "most": self._most}
        rows = at.session.rows(CLAIM_FREE, {**given, **more})
        for run, *_ in rows:
            at.heads.forget(run)
        return tuple(
            Lease(
                run=run,
                epoch=epoch,
                owner=self._wanted.owner,
                deadline=deadline,
                until=given["steady"] + self._seconds,
                previous=None if was_held is None else _OWNER.decode(was_held),
                previous_until=was_until or 0.0,
            )
            for run, epoch, deadline, was_held, was_until in rows
        )


class Claim(Job[Lease]):
    def __init__(self, run: str, owner: Owner, seconds: float, terms: ClaimTerms, clocks: Clocks) -> None:
        self._run = run
        self._owner = owner
        self._seconds = seconds
        self._force = terms.get("force", False)
        self._epoch = terms.get("epoch")
        self._version = terms.get("version", "")
        self._clocks = clocks
        self._token = uuid4().hex
        """A claim whose answer was lost is known by it when it is made again."""

    def perform(self, at: Context) -> Lease:
        run, owner = self._run, self._owner
        if "\0" in run:
            raise refusals.not_found(run)
        at.heads.forget(run)
        outcome, epoch, deadline, until, was_held, was_until = at.session.rows(
            CLAIM,
            (
                *(run, owner.process, owner.host, owner.boot_id, owner.pid, float(owner.started), self._token),
                *(float(self._seconds), self._force, self._epoch, self._clocks.told(), self._clocks.steady()),
                self._version,
            ),
        )[0]
        if outcome == "no run":
            raise refusals.not_found(run)
        if outcome == "stale":
            raise refusals.stale_claim(run, self._epoch or 0, epoch)
        if outcome == "held":
            current = read(at.session, run)
            if current is None:  # released a moment ago
                return self.perform(at)
            raise refusals.held(run, current.owner, current.deadline)
        return Lease(
            run=run,
            epoch=epoch,
            owner=owner,
            deadline=deadline,
            until=until,
            previous=None if was_held is None else _OWNER.decode(was_held),
            previous_until=was_until or 0.0,
        )


class Release(Job[None]):
    def __init__(self, lease: Lease, rests_at: int, hands_over: bool) -> None:
        self._lease = lease
        self._how = (rests_at, hands_over)

    def perform(self, at: Context) -> None:
        lease = self._lease
        if not at.session.run(RELEASE, (lease.run, lease.epoch, lease.owner.process, *self._how)):
            read(at.session, lease.run)  # raises where there is no such run


def renew(
    session: Session, owner: Owner, seconds: float, runs: Collection[str] | None, clocks: Clocks
) -> frozenset[str]:
    """Prolong the leases of `owner`, only those of `runs` where given."""
    if runs is not None and not runs:
        return frozenset()
    values = {
        "now": clocks.told(),
        "steady": clocks.steady(),
        "seconds": float(seconds),
        "process": owner.process,
        "runs": None if runs is None else [run for run in runs if "\0" not in run],
    }
    return frozenset(run for (run,) in session.rows(RENEW, values))
