"""Every stop of a run as it is looked at afterwards: who, why, what was on show by then, and what was noticed."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from checkrein.core.enums import CallKind, Verb
from checkrein.core.events import (
    CallFinished,
    CallStarted,
    Event,
    ReasonAdded,
    RunCreated,
    VerbAccepted,
    VerbSettled,
    WatcherFlagged,
)
from checkrein.core.wording import reason_word
from checkrein.errors import StoreDamaged
from checkrein.journal.base import Chunk, Journal, Recorded, stream_of
from checkrein.journal.chunks import TextAssembler

STOPS: Final = frozenset({Verb.PAUSE, Verb.REDIRECT, Verb.CANCEL, Verb.HALT})
_PAGE: Final = 500


class Flag(msgspec.Struct, frozen=True, kw_only=True):
    watcher: str
    what: str
    at: float
    seconds_before: float
    """How long before the stop; below 0: after it."""
    withheld_chars: int = 0
    """How many characters were kept from being shown."""


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """One stop."""

    at: float
    """By the clock of the host that took it."""
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
    """The nearest flag of a watcher."""
    damage: str = ""
    """What is wrong with the record of its run: with that, nothing that is said here is sure. Empty: it verifies."""
    seq: int = 0
    """Of its `verb.accepted`."""
    store_at: float | None = None
    """By the clock of the store."""
    call: str = ""
    """The text that was on show: the call, and its attempt where that is not the first."""
    shown_by_then: int | None = None
    """How many characters of it readers had been handed by `at`; None: not known."""
    shown_in_all: int | None = None
    """… and how many in the end."""


class Stops(msgspec.Struct, frozen=True):
    """What was found, and the runs whose record does not verify, with what is wrong with each."""

    stops: list[Stop]
    damaged: dict[str, str]

    def fitting(self, *, reason: str | None = None, flagged: bool = False, verb: str | None = None) -> list[Stop]:
        """Those with this text in a reason, of a run that a watcher flagged, by this verb."""
        return [
            stop
            for stop in self.stops
            if (not flagged or stop.flag is not None)
            and (verb is None or stop.verb == verb)
            and (reason is None or any(reason.casefold() in given.casefold() for given in stop.reasons))
        ]


_COLUMNS: Final = (
    "at", "store_at", "verb", "by", "reasons", "run", "agent", "goal", "stopped_ms", "tokens_after_stop",
    "shown_by_then", "shown_in_all", "watcher", "flag", "flag_seconds_before", "withheld_chars", "last_text", "damage",
)  # fmt: skip
_FORMULAS: Final = ("=", "+", "-", "@", "\t", "\r")


def csv_of(stops: Sequence[Stop]) -> str:
    """A table with a line of heads. What a spreadsheet would take for a formula is made plain text."""
    written = io.StringIO()
    table = csv.writer(written, lineterminator="\n")
    table.writerow(_COLUMNS)
    for stop in stops:
        flag = stop.flag
        beside = (
            ("", "", "", "") if flag is None else (flag.watcher, flag.what, flag.seconds_before, flag.withheld_chars)
        )
        own = [getattr(stop, name) for name in _COLUMNS[:12]]
        own[4] = "; ".join(stop.reasons)
        table.writerow([_cell(value) for value in (*own, *beside, stop.last_text, stop.damage)])
    return written.getvalue()


def _cell(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULAS) else value


async def all_stops(journal: Journal) -> Stops:
    """Every stop in the journal, the oldest first. Runs of which nothing was ever asked are not looked at."""
    found = Stops([], {})
    before: str | None = None
    while rows := await journal.runs(asked=True, limit=_PAGE, before=before):
        for row in rows:
            found.stops.extend(await _verified(journal, row.id, found.damaged))
        before = rows[-1].id
    found.stops.sort(key=lambda stop: stop.at)
    return found


async def newest_stops(
    journal: Journal,
    may_see: Callable[[str, str, str | None], bool],
    *,
    limit: int,
    reason: str | None = None,
    flagged: bool = False,
    verb: str | None = None,
) -> Stops:
    """Up to so many stops of the newest runs that fit, the newest first. `may_see` is asked about the owner, the id and
    the root of a run."""
    found = Stops([], {})
    before: str | None = None
    while len(found.stops) < limit and (rows := await journal.runs(asked=True, limit=_PAGE, before=before)):
        for row in rows:
            if len(found.stops) < limit and may_see(row.owner, row.id, row.root):
                of_run = Stops(await _verified(journal, row.id, found.damaged), {})
                found.stops.extend(of_run.fitting(reason=reason, flagged=flagged, verb=verb))
        before = rows[-1].id
    found.stops.sort(key=lambda stop: stop.at, reverse=True)
    return Stops(found.stops[:limit], found.damaged)


async def _verified(journal: Journal, run: str, damaged: dict[str, str]) -> list[Stop]:
    """The stops of a run; what is wrong with its record is added to `damaged`."""
    try:
        await journal.verify(run)
    except StoreDamaged as damage:
        damaged[run] = damage.message
    try:
        return await stops_of(journal, await journal.read(run), damaged.get(run, ""))
    except StoreDamaged as damage:  # an event that cannot even be read
        damaged.setdefault(run, damage.message)
        return []


async def stops_of(journal: Journal, records: Sequence[Recorded], damage: str = "") -> list[Stop]:
    """The stops of one run."""
    if not any(_is_stop(record.event) for record in records):
        return []
    untold = {(records[0].run, stream): -1 for stream in _untold(records)}
    chunks = [chunk for several in (await journal.chunks_of(untold)).values() for chunk in several]
    return stops_in(records, texts_in(chunks), damage)


def texts_in(chunks: Sequence[Chunk]) -> dict[str, str]:
    """What was kept of each text, without what comes after a gap."""
    texts = TextAssembler()
    for chunk in chunks:
        texts.add(chunk)
    return {call: texts.text(call) for call in dict.fromkeys(chunk.call for chunk in chunks)}


def _is_stop(event: Event) -> bool:
    """A pause that a shutdown asked for, and that ends by itself, is none."""
    return isinstance(event, VerbAccepted) and event.verb in STOPS and not event.resumes_itself


def _untold(records: Sequence[Recorded]) -> list[str]:
    """The texts of model calls whose end does not say what was said."""
    told = {record.event.call for record in records if isinstance(record.event, CallFinished) and _said(record.event)}
    started = (record.event for record in records if isinstance(record.event, CallStarted))
    return [
        stream_of(event.call, event.attempt)
        for event in started
        if event.kind is CallKind.MODEL and event.call not in told
    ]


def stops_in(records: Sequence[Recorded], texts: Mapping[str, str], damage: str = "") -> list[Stop]:
    """The stops in the record of one run, of which `texts` are those of its calls that were kept."""
    created = records[0].event
    assert isinstance(created, RunCreated)
    return [
        _stop(created, records, number, texts, damage)
        for number, record in enumerate(records)
        if _is_stop(record.event)
    ]


def _stop(created: RunCreated, records: Sequence[Recorded], number: int, texts: Mapping[str, str], damage: str) -> Stop:
    event = records[number].event
    assert isinstance(event, VerbAccepted)
    later = [record.event for record in records[number + 1 :]]
    settled = next((e for e in later if isinstance(e, VerbSettled) and e.accepted == event.id), None)
    added = [reason_word(e.reason) for e in later if isinstance(e, ReasonAdded)]
    call, text, finished = _on_show(records, number, texts)
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
        last_text=text,
        flag=_nearest_flag(event.at, records),
        damage=damage,
        seq=records[number].seq,
        store_at=event.store_at,
        call=call,
        shown_by_then=None if finished is None else shown_by(finished, event.at),
        shown_in_all=None if finished is None else finished.chars,
    )


def _on_show(
    records: Sequence[Recorded], number: int, texts: Mapping[str, str]
) -> tuple[str, str, CallFinished | None]:
    """The model call that was in flight, or else the last one before it that has said something: its stream, what it
    said, and its end."""
    for start in reversed(range(number)):
        started = records[start].event
        if not isinstance(started, CallStarted) or started.kind is not CallKind.MODEL:
            continue
        ends = (record.event for record in records[start + 1 :] if isinstance(record.event, CallFinished))
        finished = next((event for event in ends if event.call == started.call), None)
        stream = stream_of(started.call, started.attempt)
        text = ("" if finished is None else _said(finished)) or texts.get(stream, "")
        if text:
            return stream, text, finished
    return "", "", None


class _Message(msgspec.Struct, frozen=True):
    text: str = ""


class _Reply(msgspec.Struct):
    message: _Message = _Message()


def _said(finished: CallFinished) -> str:
    """What the record of a model's answer says it said."""
    if finished.result is None:
        return ""
    try:
        return msgspec.json.decode(bytes(finished.result), type=_Reply).message.text
    except msgspec.MsgspecError:
        return ""


def ends_of(records: Sequence[Recorded]) -> dict[str, CallFinished]:
    """How each text ended, by its name."""
    attempts: dict[str, int] = {}
    ends: dict[str, CallFinished] = {}
    for record in records:
        if isinstance(record.event, CallStarted):
            attempts[record.event.call] = record.event.attempt
        elif isinstance(record.event, CallFinished):
            ends[stream_of(record.event.call, attempts.get(record.event.call, 1))] = record.event
    return ends


def shown_by(finished: CallFinished, at: float) -> int | None:
    """How many characters of a call's text had been handed to readers by then; None where that is not recorded."""
    if finished.shown_at is None:
        return None
    milliseconds = (at - finished.shown_at) * 1000
    return max((chars for ms, chars in finished.shown if ms <= milliseconds), default=0)


def _nearest_flag(at: float, records: Sequence[Recorded]) -> Flag | None:
    flags = [record.event for record in records if isinstance(record.event, WatcherFlagged)]
    nearest = min(flags, key=lambda flag: abs(flag.at - at), default=None)
    if nearest is None:
        return None
    return Flag(
        watcher=nearest.watcher,
        what=nearest.what,
        at=nearest.at,
        seconds_before=round(at - nearest.at, 3),
        withheld_chars=nearest.withheld_chars,
    )
