"""The list of runs: one line for each, with what it waits for and what it has used.

What a line needs of a run's state is kept for as long as the run has no new event, so that a list that is asked for
again and again costs one query.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

import msgspec

from checkrein.core.conditions import Usage
from checkrein.core.state import State, Waiting
from checkrein.core.words import TERMINAL, Status
from checkrein.journal.contract import RunRow
from checkrein.server.auth.principals import Principal, Role
from checkrein.server.backend import Backend

PAGE: Final = 200
KEPT: Final = 5_000
UNFINISHED: Final = frozenset(Status) - TERMINAL


class ListedRun(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the list."""

    id: str
    status: Status
    waiting: bool
    """Whether it waits for a person."""
    waiting_for: tuple[Waiting, ...]
    agent: str
    goal: str
    thread: str
    owner: str
    parent: str | None
    created_at: float
    changed_at: float
    elapsed_seconds: float
    ticking: bool
    """Whether its time is counting."""
    usage: Usage
    seq: int
    steps: tuple[int, int]
    """How many of its plan's steps have begun, and how many there are."""


class RunList(msgspec.Struct, frozen=True, kw_only=True):
    runs: tuple[ListedRun, ...]
    more: bool
    """Whether there are older ones: ask with `before` = the last id."""
    at: float


class Listing:
    """Lists of the runs that somebody may see."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._states: dict[str, State] = {}

    async def page(
        self,
        principal: Principal,
        *,
        status: Collection[Status],
        agent: str | None,
        thread: str | None,
        root: str | None,
        waiting: bool,
        before: str | None,
        limit: int,
    ) -> RunList:
        """At most `limit` runs, newest first. Raises `RunNotFound` for a `before` that there is not."""
        if waiting:
            status = frozenset(status or UNFINISHED) & UNFINISHED
        found: list[ListedRun] = []
        has_more = not (waiting and not status)
        while len(found) <= limit and has_more:
            size = PAGE if waiting or principal.run else limit + 1 - len(found)
            rows = await self._backend.journal.runs(
                status=status,
                agent=agent,
                thread=thread,
                root=root,
                owner=None if principal.role is Role.OPERATOR or principal.run else principal.owner,
                limit=size,
                before=before,
            )
            has_more, before = len(rows) == size, rows[-1].id if rows else before
            lines = await self._lines([row for row in rows if principal.may_see(row.owner, row.id, row.root)])
            found += [line for line in lines if line.waiting or not waiting]
        return RunList(runs=tuple(found[:limit]), more=len(found) > limit, at=self._backend.now())

    async def _lines(self, rows: list[RunRow]) -> list[ListedRun]:
        return list(await asyncio.gather(*map(self._line, rows)))

    async def _line(self, row: RunRow) -> ListedRun:
        state, at = await self._state(row), self._backend.now()
        waiting = () if state.is_finished else state.waiting()
        return ListedRun(
            id=row.id,
            status=state.status,
            waiting=bool(waiting),
            waiting_for=waiting,
            agent=row.agent,
            goal=row.goal,
            thread=row.thread,
            owner=row.owner,
            parent=row.parent,
            created_at=row.created_at,
            changed_at=row.changed_at,
            elapsed_seconds=round(state.spent(at).elapsed_seconds, 3),
            ticking=state.active_since is not None,
            usage=state.usage,
            seq=state.seq,
            steps=(state.steps_begun, len(state.plan)),
        )

    async def _state(self, row: RunRow) -> State:
        state = self._states.get(row.id)
        if state is None or state.seq < row.seq:
            state = await self._backend.journal.load(row.id)
            if len(self._states) >= KEPT:
                self._states.clear()
            self._states[row.id] = state
        return state
