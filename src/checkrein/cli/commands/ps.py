"""`checkrein ps`, the list of runs: what each is doing, for how long, and what it waits for."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click
import msgspec

from checkrein.cli import options, output
from checkrein.cli.output import print_table
from checkrein.cli.session import Session, StoreSession, with_session
from checkrein.cli.wording import halt_sentence
from checkrein.core.enums import AT_WORK, DRIVEN, TERMINAL, UNFINISHED, Status
from checkrein.core.escape import one_line
from checkrein.core.orders import obstacle
from checkrein.core.state import Waiting
from checkrein.core.wording import clock, status_word

if TYPE_CHECKING:
    from checkrein.control.view import ListedRun
    from checkrein.core.effects import Effect
    from checkrein.core.state import State
    from checkrein.journal.base import Lease, RunRow


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """One run in the list."""

    run: str
    status: Status
    waiting: tuple[Waiting, ...]
    settling: str
    """What a verb that is in force still waits for; empty when none does."""
    is_driven: bool
    """Whether a living process drives it."""
    waits_for_worker: str
    """Of a run that nobody drives, and that nobody who is known could take up: what it waits for."""
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


_AS_LISTED: Final = (
    *("status", "agent", "goal", "thread", "owner", "parent"),
    *("created_at", "elapsed_seconds", "waits_for_worker"),
)
"""What is the same as in a `ListedRun`."""


@click.command
@click.option("--all", "all_runs", is_flag=True, help="Finished runs too.")
@options.limit(50, "How many runs at most.")
@options.as_json
@options.place
def ps(all_runs: bool, limit: int, as_json: bool, place: options.Place) -> None:
    """List the runs: those that wait for you first."""

    async def act(session: Session) -> list[Listed]:
        status = frozenset(Status) if all_runs else UNFINISHED
        if not isinstance(session, StoreSession):
            from checkrein.cli.remote import listed_runs

            # That it has a process for each of its agents is the server's own concern.
            return [_shown(one, is_driven=one.driven) for one in await listed_runs(session, status, limit)]
        from checkrein.control.worker_roster import WorkerRoster

        rows = await session.journal.runs(status=status, limit=limit)
        ids = [row.id for row in rows]
        states, leases = await session.journal.states(ids), await session.journal.leases(ids)
        at = session.journal.now()
        wanted = await WorkerRoster(session.journal).wanted(
            [one for one in states.values() if _is_undriven(one, leases.get(one.run), at)]
        )
        return [await _listed(session, row, states[row.id], leases.get(row.id), wanted.get(row.id, "")) for row in rows]

    halted: list[str] = []

    async def look(session: Session) -> list[Listed]:
        halted.extend(halt_sentence(*one) for one in await session.halts())
        return await act(session)

    listed = sorted(with_session(place, look), key=_urgency)
    for sentence in halted:
        print(sentence, file=sys.stderr)
    if as_json:
        for one in listed:
            output.out_json(one)
    elif listed:
        print_table(
            ("RUN", "STATUS", "AGENT", "STEP", "TIME", "GOAL", "WAITS FOR"),
            [_row(one) for one in listed],
            widest=(20, 36, 16, 8, 9, 40, 60),
        )
    else:
        from checkrein.journal.address import shown

        more = "" if all_runs else f" Finished ones: {output.command('ps --all')}"
        where = place.server or shown(place.store)
        print(f"No {'run' if all_runs else 'unfinished run'} in {where}.{more}", file=sys.stderr)


def _shown(one: ListedRun, *, settling: str = "", is_driven: bool, resumes_itself: bool = False) -> Listed:
    return Listed(
        run=one.id,
        waiting=one.waiting_for,
        settling=settling,
        is_driven=is_driven,
        resumes_itself=resumes_itself,
        steps=one.steps if one.steps[1] else (one.usage.tool_calls, 0),
        **{name: getattr(one, name) for name in _AS_LISTED},
    )


def _is_undriven(state: State, lease: Lease | None, at: float) -> bool:
    """Whether a run wants a driver and has none."""
    from checkrein.driver.ownership import is_in_force

    return (lease is None or not is_in_force(lease, at)) and (state.status in DRIVEN or state.resumes_itself)


async def _listed(
    session: StoreSession, row: RunRow, state: State, lease: Lease | None, waits_for_worker: str
) -> Listed:
    from checkrein.control.view import ListedRun
    from checkrein.driver.ownership import is_in_force, left_at

    at = session.journal.now()
    return _shown(
        ListedRun.of(row, state, left_at(lease, state, at), at, waits_for_worker),
        settling=_settling(state, await session.journal.effects(row.id)) if state.verbs else "",
        is_driven=lease is not None and is_in_force(lease, at),
        resumes_itself=state.resumes_itself,
    )


def _settling(state: State, effects: Sequence[Effect]) -> str:
    pending = next((verb for verb in reversed(state.verbs) if verb.superseded_by is None), None)
    return "" if pending is None else obstacle(state, pending, effects) or ""


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
    is_left = not one.is_driven and one.status in AT_WORK
    word = status_word(one.status, driven=False).lower() if is_left else one.status.value
    status = word if not one.waiting else f"{word}, needs you"
    return (
        one.run,
        status,
        one_line(one.agent),
        f"{begun} of {planned}" if planned else str(begun),
        clock(one.elapsed_seconds),
        one_line(one.goal, 120),
        _waits_for(one),
    )


def _waits_for(one: Listed) -> str:
    if one.waiting:
        first = one.waiting[0]
        call = f" ({first.call})" if first.call else ""
        more = f", and {len(one.waiting) - 1} more" if len(one.waiting) > 1 else ""
        return one_line(f"{first.what}{call}{more}")
    return one_line(one.waits_for_worker or one.settling)
