"""The log of stops: each pause, redirect, cancel and halt, with what was on show by then and what was noticed."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from checkrein.agents.threads import told_of
from checkrein.cli import saying
from checkrein.cli.clean import one_line
from checkrein.cli.session import Session, with_store
from checkrein.cli.words import milliseconds, moment
from checkrein.core.events import (
    CallFinished,
    CallStarted,
    ReasonAdded,
    RunCreated,
    VerbAccepted,
    VerbSettled,
    WatcherFlagged,
)
from checkrein.core.words import CallKind, Verb
from checkrein.journal.contract import stream_of

if TYPE_CHECKING:
    from checkrein.journal.contract import Journal, Recorded

STOPS: Final = frozenset({Verb.PAUSE, Verb.REDIRECT, Verb.CANCEL, Verb.HALT})
_PAGE: Final = 500


class Flag(msgspec.Struct, frozen=True, kw_only=True):
    watcher: str
    what: str
    at: float
    seconds_before: float
    """How long before the stop; below 0: after it."""


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """One stop."""

    at: float
    verb: Verb
    by: str
    reasons: tuple[str, ...]
    """The one given with it, and those added later."""
    run: str
    agent: str
    goal: str
    stopped_ms: float | None
    """Until everything in flight had stopped; None: not known, or nothing was."""
    tokens_after_stop: int
    last_text: str
    """What the model had said last when the stop came."""
    flag: Flag | None = None


def list_stops(store: str, *, reason: str | None, flagged: bool, limit: int, as_json: bool) -> None:
    async def act(session: Session) -> list[Stop]:
        return await all_stops(session.journal)

    found = [
        stop
        for stop in with_store(store, act)
        if (not flagged or stop.flag is not None)
        and (reason is None or any(reason.casefold() in given.casefold() for given in stop.reasons))
    ]
    for stop in found[-limit:]:
        if as_json:
            saying.out_json(stop)
        else:
            for line in _lines(stop):
                saying.out(line)
    if not found and not as_json:
        print(f"No stop in {store} fits.", file=sys.stderr)


async def all_stops(journal: Journal) -> list[Stop]:
    """Every stop in the journal, the oldest first."""
    found: list[Stop] = []
    before: str | None = None
    while rows := await journal.runs(limit=_PAGE, before=before):
        for row in rows:
            found += await stops_of(journal, await journal.read(row.id))
        before = rows[-1].id
    return sorted(found, key=lambda stop: stop.at)


async def stops_of(journal: Journal, records: Sequence[Recorded]) -> list[Stop]:
    """The stops of one run. A pause that a shutdown asked for, and that ends by itself, is none."""
    created = records[0].event
    assert isinstance(created, RunCreated)
    return [
        await _stop(journal, created, records, number)
        for number, record in enumerate(records)
        if isinstance(record.event, VerbAccepted) and record.event.verb in STOPS and not record.event.resumes_itself
    ]


async def _stop(journal: Journal, created: RunCreated, records: Sequence[Recorded], number: int) -> Stop:
    event = records[number].event
    assert isinstance(event, VerbAccepted)
    later = [record.event for record in records[number + 1 :]]
    settled = next((e for e in later if isinstance(e, VerbSettled) and e.accepted == event.id), None)
    added = [e.reason for e in later if isinstance(e, ReasonAdded)]
    return Stop(
        at=event.at,
        verb=event.verb,
        by=event.by,
        reasons=tuple(reason for reason in (event.reason, *added) if reason),
        run=created.run,
        agent=created.agent,
        goal=created.goal,
        stopped_ms=None if settled is None else settled.receipt.timing_ms.calls_stopped,
        tokens_after_stop=0 if settled is None else settled.receipt.tokens_after_stop,
        last_text=await _last_text(journal, created.run, records, number),
        flag=_nearest_flag(event.at, records),
    )


async def _last_text(journal: Journal, run: str, records: Sequence[Recorded], number: int) -> str:
    """What the model call that was in flight had said, or else the last one before it."""
    for start in reversed(range(number)):
        started = records[start].event
        if not isinstance(started, CallStarted) or started.kind is not CallKind.MODEL:
            continue
        text = next(_told(started, [record.event for record in records[start + 1 :]]), "")
        if not text:
            stream = stream_of(started.call, started.attempt)
            text = "".join(chunk.text for chunk in await journal.chunks(run, stream))
        if text:
            return text
    return ""


def _told(started: CallStarted, later: Sequence[object]) -> Iterator[str]:
    """What the record of its end says it said."""
    for event in later:
        if isinstance(event, CallFinished) and event.call == started.call:
            told = told_of(event.result)
            yield "" if told is None else told.message.text


def _nearest_flag(at: float, records: Sequence[Recorded]) -> Flag | None:
    flags = [record.event for record in records if isinstance(record.event, WatcherFlagged)]
    nearest = min(flags, key=lambda flag: abs(flag.at - at), default=None)
    if nearest is None:
        return None
    return Flag(watcher=nearest.watcher, what=nearest.what, at=nearest.at, seconds_before=round(at - nearest.at, 3))


def _lines(stop: Stop) -> Iterator[str]:
    why = "; ".join(one_line(reason, 200) for reason in stop.reasons) or "no reason given"
    yield f"{moment(stop.at)}  {stop.verb.value:<8}  {stop.run}  by {one_line(stop.by, 40)}: {why}"
    yield f"    agent {one_line(stop.agent, 40)}: {one_line(stop.goal, 120)}"
    took = "" if stop.stopped_ms is None else f"stopped in {milliseconds(stop.stopped_ms)}, "
    yield f"    {took}{stop.tokens_after_stop} {'token' if stop.tokens_after_stop == 1 else 'tokens'} after it"
    if stop.last_text:
        yield f"    last shown: …{one_line(stop.last_text[-160:])}"
    if stop.flag is not None:
        when = abs(stop.flag.seconds_before)
        side = "before" if stop.flag.seconds_before >= 0 else "after"
        yield f"    flag: {one_line(stop.flag.watcher)}, {one_line(stop.flag.what, 200)} ({when:.1f} s {side} the stop)"
