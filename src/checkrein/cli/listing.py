"""The list of runs: what each is doing, for how long, and what it waits for."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from checkrein.cli import hints, saying
from checkrein.cli.clean import one_line
from checkrein.cli.session import Session, with_store
from checkrein.cli.table import print_table
from checkrein.cli.words import clock
from checkrein.core.orders import obstacle
from checkrein.core.state import Waiting
from checkrein.core.words import TERMINAL, Status

if TYPE_CHECKING:
    from checkrein.core.effects import Effect
    from checkrein.core.state import State
    from checkrein.journal.contract import RunRow


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """One run in the list."""

    run: str
    status: Status
    waiting: tuple[Waiting, ...]
    settling: str
    """What a verb that is in force still waits for; empty when none does."""
    is_driven: bool
    """Whether a living process drives it."""
    resumes_itself: bool
    """Paused by a shutdown: it goes on as soon as a process with its agent runs."""
    agent: str
    goal: str
    thread: str
    owner: str
    parent: str | None
    created_at: float
    elapsed_seconds: float
    steps: tuple[int, int]
    """How many have begun, of how many. Without a plan: the tool calls so far, of 0."""


def list_runs(store: str, *, all_runs: bool, limit: int, as_json: bool) -> None:
    async def act(session: Session) -> list[Listed]:
        status = frozenset(Status) if all_runs else frozenset(Status) - TERMINAL
        rows = await session.journal.runs(status=status, limit=limit)
        return [await _listed(session, row) for row in rows]

    listed = sorted(with_store(store, act), key=_urgency)
    if as_json:
        for one in listed:
            saying.out_json(one)
    elif listed:
        print_table(
            ("RUN", "STATUS", "AGENT", "STEP", "TIME", "GOAL", "WAITS FOR"),
            [_row(one) for one in listed],
            widest=(20, 22, 16, 8, 9, 40, 60),
        )
    else:
        more = "" if all_runs else f" Finished ones: {hints.command('ps --all')}"
        print(f"No {'run' if all_runs else 'unfinished run'} in {store}.{more}", file=sys.stderr)


async def _listed(session: Session, row: RunRow) -> Listed:
    state = await session.journal.load(row.id)
    return Listed(
        run=row.id,
        status=state.status,
        waiting=() if state.is_finished else state.waiting(),
        settling=_settling(state, await session.journal.effects(row.id)) if state.verbs else "",
        is_driven=await session.is_driven(row.id),
        resumes_itself=state.resumes_itself,
        agent=row.agent,
        goal=row.goal,
        thread=row.thread,
        owner=row.owner,
        parent=row.parent,
        created_at=row.created_at,
        elapsed_seconds=round(state.spent(time.time()).elapsed_seconds, 3),
        steps=_steps(state),
    )


def _settling(state: State, effects: Sequence[Effect]) -> str:
    pending = next((verb for verb in reversed(state.verbs) if verb.superseded_by is None), None)
    return "" if pending is None else obstacle(state, pending, effects) or ""


def _steps(state: State) -> tuple[int, int]:
    return (state.steps_begun, len(state.plan)) if state.plan else (state.usage.tool_calls, 0)


def _urgency(one: Listed) -> tuple[int, float]:
    """Who waits for a person first, then what is at work, then what rests, then what is over; the newest first."""
    if one.waiting:
        rank = 0
    elif one.status in TERMINAL:
        rank = 3
    else:
        rank = 2 if one.status is Status.PAUSED else 1
    return rank, -one.created_at


def _row(one: Listed) -> tuple[str, ...]:
    begun, planned = one.steps
    status = one.status.value if not one.waiting else f"{one.status.value}, needs you"
    return (
        one.run,
        status,
        one_line(one.agent),
        f"{begun} of {planned}" if planned else str(begun),
        clock(one.elapsed_seconds),
        one_line(one.goal, 120),
        _waits_for(one),
    )


_AT_WORK = frozenset({Status.QUEUED, Status.RUNNING, Status.PAUSING, Status.REDIRECTING, Status.CANCELLING})


def _waits_for(one: Listed) -> str:
    if one.waiting:
        first = one.waiting[0]
        call = f" ({first.call})" if first.call else ""
        more = f", and {len(one.waiting) - 1} more" if len(one.waiting) > 1 else ""
        return one_line(f"{first.what}{call}{more}")
    if not one.is_driven and (one.status in _AT_WORK or one.resumes_itself):
        return f"a process with agent {one_line(one.agent)}"
    return one_line(one.settling)
