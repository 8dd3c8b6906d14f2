"""What must hold of a journal after any crash, told from its own records and from the client's list of promises.

Every check is a sentence about the journal that could be false; the list that comes back holds those that are.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from checkrein.core.effects import AT_THE_END, EFFECT_EVENTS, Effect, evolve_effect
from checkrein.core.enums import CallKind, EffectState, Verb
from checkrein.core.events import CallStarted, Event, ReasonAdded, RunCreated, RunFinished, VerbAccepted
from checkrein.core.evolve import evolve
from checkrein.core.state import State
from checkrein.errors import JournalError
from checkrein.journal import open_journal
from checkrein.journal.base import Journal, Owner, Recorded
from tests.torture.crash.client import now
from tests.torture.crash.witness import FENCE, LEASE, Promise, contradictions, is_event
from tests.torture.crash.workload import url

PAGE: Final = 200


def check_in_child(database: Path, promises: Sequence[Promise]) -> int:
    """`check`, for a process of its own: an exit code, and what is wrong on stderr."""
    return _told(asyncio.run(check(database, promises)))


def check_promises_in_child(database: Path, promises: Sequence[Promise]) -> int:
    """`check_promises`, for a process of its own."""
    return _told(asyncio.run(check_promises(database, promises)))


def _told(wrong: list[str]) -> int:
    print("\n".join(wrong[:20]), file=sys.stderr)
    return 1 if wrong else 0


async def check(database: Path, promises: Sequence[Promise]) -> list[str]:
    """Everything: promises kept, chains whole, indexes true to the events, and ready for new appends."""
    wrong = contradictions(promises)
    by_run: dict[str, list[Promise]] = {}
    for promise in promises:
        by_run.setdefault(promise.run, []).append(promise)
    async with await open_journal(url(database)) as journal:
        runs = [run async for run in _all_runs(journal)]
        for run in runs:
            wrong += await _check_run(journal, run, by_run.get(run, ()))
        wrong += _check_nothing_is_gone(set(runs), promises)
        wrong += _check_halts({fence.name for fence in await journal.fences()}, promises)
        wrong += await _check_it_goes_on(journal, runs[0] if runs else None)
    return wrong + _check_file(database)


async def check_promises(database: Path, promises: Sequence[Promise]) -> list[str]:
    """Only the promises given, by looking each of them up."""
    wrong = contradictions(promises)
    async with await open_journal(url(database)) as journal:
        for run, number, id_ in filter(is_event, promises):
            record = await journal.find(run, id_)
            if record is None or record.seq != number:
                wrong.append(f"{run}: {id_} was acknowledged as {number}; the journal has {record and record.seq}")
    return wrong


async def _all_runs(journal: Journal) -> AsyncIterator[str]:
    last: str | None = None
    while page := await journal.runs(limit=PAGE, before=last):
        for row in page:
            yield row.id
        last = page[-1].id


def _check_nothing_is_gone(runs: set[str], promises: Sequence[Promise]) -> Iterator[str]:
    for run, _, id_ in promises:
        if id_ != FENCE and run not in runs:
            yield f"{run}: the run of the acknowledged {id_} is gone"


def _check_halts(halted: set[str], promises: Sequence[Promise]) -> Iterator[str]:
    """A halt that was acknowledged stands, unless lifting it may have been under way; one that was lifted does not."""
    last = {promise.run: promise.number for promise in promises if promise.id == FENCE}
    for agent, latched in last.items():
        if latched and agent.endswith("-halted") and agent not in halted:
            yield f"{agent}: the halt that was acknowledged is gone"
        if not latched and agent in halted:
            yield f"{agent}: the halt that was lifted is back"


async def _check_run(journal: Journal, run: str, promises: Sequence[Promise]) -> list[str]:
    try:
        count = await journal.verify(run)
    except JournalError as error:
        return [f"{run}: {error}"]
    records = await journal.read(run)
    wrong = list(_check_order(run, records, count))
    wrong += _check_promises(run, records, promises)
    wrong += _check_fence(run, records)
    wrong += _check_effects(run, records, await journal.effects(run))
    wrong += _check_state(run, records, await journal.load(run))
    wrong += await _check_lease(journal, run, promises)
    return wrong


def _check_order(run: str, records: Sequence[Recorded], count: int) -> Iterator[str]:
    if [record.seq for record in records] != list(range(1, count + 1)):
        yield f"{run}: the seqs are not 1 to {count} without gaps"
    if len({record.event.id for record in records}) != len(records):
        yield f"{run}: an event is there twice"


def _check_promises(run: str, records: Sequence[Recorded], promises: Sequence[Promise]) -> Iterator[str]:
    there = {record.seq: record.event.id for record in records}
    for _, seq, id_ in filter(is_event, promises):
        if there.get(seq) != id_:
            yield f"{run}: {id_} was acknowledged as {seq}; the journal has {there.get(seq)} there"


def _check_fence(run: str, records: Sequence[Recorded]) -> Iterator[str]:
    cancelled = False
    for record in records:
        event = record.event
        cancelled |= isinstance(event, VerbAccepted) and event.verb is Verb.CANCEL
        if cancelled and isinstance(event, CallStarted) and event.kind is not CallKind.UNDO:
            yield f"{run}: the permit {event.id} follows the cancel"


def _check_state(run: str, records: Sequence[Recorded], loaded: State) -> Iterator[str]:
    state: State | None = None
    for record in records:
        state = evolve(state, record.event, record.seq)
    if loaded != state:
        yield f"{run}: the state that is loaded is not the fold of the events"


def _check_effects(run: str, records: Sequence[Recorded], indexed: Sequence[Effect]) -> Iterator[str]:
    if tuple(indexed) != tuple(fold_effects([record.event for record in records])):
        yield f"{run}: the index of effects is not what the events say"


def fold_effects(events: Sequence[Event]) -> list[Effect]:
    """The ledger of a run, from its events alone."""
    effects: dict[str, Effect] = {}
    for event in events:
        if type(event) in EFFECT_EVENTS:
            name: str = event.effect  # type: ignore[attr-defined]
            changed = evolve_effect(effects.get(name), event)
            effects |= {name: changed} if changed is not None else {}
        if isinstance(event, RunFinished):
            for name, effect in effects.items():
                if effect.state is EffectState.OPEN:
                    effects[name] = replace(effect, state=AT_THE_END[event.status])
    return list(effects.values())


async def _check_lease(journal: Journal, run: str, promises: Sequence[Promise]) -> list[str]:
    granted = max((promise.number for promise in promises if promise.id == LEASE), default=0)
    lease = await journal.lease(run)
    epoch = lease.epoch if lease else 0
    return [f"{run}: epoch {granted} was granted; the journal has {epoch}"] if epoch < granted else []


async def _check_it_goes_on(journal: Journal, run: str | None) -> list[str]:
    """A run that was there, and a new one, take events; both are read back."""
    name = f"after-{now()}"
    await journal.create(RunCreated(id=f"{name}.created", at=now(), run=name, agent="a", goal="g", thread="t"))
    await journal.claim(name, Owner(process="check"), seconds=1)
    wrong = []
    for target in filter(None, (run, name)):
        head = (await journal.read(target))[-1].seq
        reason = ReasonAdded(id=f"{target}.{name}", at=now(), reason="the disk came back", by="check")
        appended = await journal.append(target, [reason], after=head)
        found = await journal.find(target, reason.id)
        if found is None or found.seq != head + 1 or appended.events[0].seq != head + 1:
            wrong.append(f"{target}: an append after the crash was not taken as {head + 1}")
        await journal.verify(target)
    return wrong


def _check_file(database: Path) -> list[str]:
    with closing(sqlite3.connect(database)) as connection:
        answer = connection.execute("PRAGMA integrity_check").fetchall()
    return [] if answer == [("ok",)] else [f"integrity_check: {answer}"]
