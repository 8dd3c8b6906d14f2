"""The list of runs: one line for each, with what it waits for and what it has used.

What a line needs of a run's state is kept for as long as the run has no new event. So a page costs one query for its
runs, one for the leases of those at work, and one for the states that are not known, however many lines it has.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from checkrein.control.view import ListedRun
from checkrein.core.enums import AT_WORK, UNFINISHED, Status
from checkrein.core.state import State
from checkrein.driver.ownership import left_at
from checkrein.journal.base import Lease, RunFilter, RunRow
from checkrein.server.auth.principals import Principal, Role
from checkrein.server.backend import Backend

PAGE: Final = 200
KEPT: Final = 5_000


class RunList(msgspec.Struct, frozen=True, kw_only=True):
    runs: tuple[ListedRun, ...]
    more: bool
    """Whether there are older ones: ask with `before` = the last id."""
    at: float


class RunFilters(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs somebody asks for: those that fit everything given, of those that they may see."""

    status: Collection[Status] = ()
    agent: str | None = None
    owner: str | None = None
    thread: str | None = None
    root: str | None = None
    since: float | None = None
    until: float | None = None
    search: str | None = None
    waiting: bool = False

    def narrowed_for(self, principal: Principal) -> RunFilter | None:
        """What the journal is asked for; None: nothing fits."""
        status = frozenset(self.status)
        if self.waiting:
            status = (status or UNFINISHED) & UNFINISHED
            if not status:
                return None
        owner = self.owner
        if principal.role is not Role.OPERATOR and principal.run is None:
            if owner not in (None, principal.owner):
                return None  # of what is somebody else's they are told nothing, not even that
            owner = principal.owner
        return RunFilter(
            status=status,
            agent=self.agent,
            owner=owner,
            thread=self.thread,
            root=self.root,
            tree=principal.run,
            since=self.since,
            until=self.until,
            search=self.search,
        )


class Listing:
    """Lists of the runs that somebody may see."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._states: dict[str, State] = {}

    async def page(self, principal: Principal, filters: RunFilters, *, before: str | None, limit: int) -> RunList:
        """At most `limit` runs, newest first. Raises `RunNotFound` for a `before` that there is not."""
        narrowed = filters.narrowed_for(principal)
        found: list[ListedRun] = []
        has_more = narrowed is not None
        while narrowed is not None and has_more and len(found) <= limit:
            size = PAGE if filters.waiting else limit + 1 - len(found)
            rows = await self._backend.journal.runs(**narrowed, limit=size, before=before)
            has_more, before = len(rows) == size, rows[-1].id if rows else before
            lines = await self._lines([row for row in rows if principal.may_see(row.owner, row.id, row.root)])
            found += [line for line in lines if line.waiting or not filters.waiting]
        return RunList(runs=tuple(found[:limit]), more=len(found) > limit, at=self._backend.now())

    async def _lines(self, rows: list[RunRow]) -> list[ListedRun]:
        states = await self._known_states(rows)
        at_work = [run for run, state in states.items() if state.status in AT_WORK]
        leases = await self._backend.journal.leases(at_work) if at_work else {}
        at = self._backend.now()
        undriven = [one for one in states.values() if _is_undriven(one, leases.get(one.run), at)]
        wanted = await self._backend.workers_wanted(undriven) if undriven else {}
        lines = ((row, states[row.id]) for row in rows if row.id in states)
        return [
            ListedRun.of(row, state, left_at(leases.get(row.id), state, at), at, wanted.get(row.id, ""))
            for row, state in lines
        ]

    async def _known_states(self, rows: list[RunRow]) -> dict[str, State]:
        """The states of these runs, each at least as new as its row."""
        known = {row.id: self._states.get(row.id) for row in rows}
        states = {row.id: state for row in rows if (state := known[row.id]) is not None and state.seq >= row.seq}
        if stale := [row.id for row in rows if row.id not in states]:
            fresh = await self._backend.journal.states(stale)
            states |= fresh
            self._keep(fresh)
        return states

    def _keep(self, states: Mapping[str, State]) -> None:
        # The oldest goes first, so that a list that is longer than what is kept is not read anew each time.
        for run, state in states.items():
            self._states.pop(run, None)
            while len(self._states) >= KEPT:
                del self._states[next(iter(self._states))]
            self._states[run] = state


def _is_undriven(state: State, lease: Lease | None, at: float) -> bool:
    """Whether a run wants a driver and has none."""
    return state.status is Status.QUEUED or left_at(lease, state, at) is not None
