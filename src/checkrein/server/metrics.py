"""What can be counted, in Prometheus' words: how runs stand, what was asked of them, how fast a stop was.

Almost everything is read from the journal when somebody asks, so verbs from a terminal, or taken by another front,
count like those from the page, and whoever does not ask pays nothing. What is this front's own says so with a label.
Counters begin with the server.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Final

import msgspec

from checkrein.core.enums import STOPS_OF_RUNS, CallKind, Status, Verb
from checkrein.core.events import CallStarted, Event, ReasonAdded, RunCreated, VerbAccepted, VerbSettled
from checkrein.core.wording import REASONS, reason_word
from checkrein.journal.base import RunRow
from checkrein.server.backend import Backend

PAGE: Final = 1000
FRESH_SECONDS: Final = 2.0
"""Asked again within so long, it answers what it answered before."""
LATE_SECONDS: Final = 60.0
"""An event may be in the journal by so much later than the time it bears: it waited for others, or a clock was off."""
BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
COUNTED_REASONS: Final = frozenset(REASONS)
"""Reasons that are counted under their own name; people write many others."""
_FENCES: Final = frozenset({Verb.CANCEL, Verb.HALT})


class Histogram:
    def __init__(self) -> None:
        self._counts = [0] * len(BUCKETS)
        self._sum = 0.0
        self._total = 0

    def observe(self, seconds: float) -> None:
        self._sum += seconds
        self._total += 1
        for index, most in enumerate(BUCKETS):
            self._counts[index] += seconds <= most

    def lines(self, name: str, labels: str) -> Iterator[str]:
        for most, count in zip(BUCKETS, self._counts, strict=True):
            yield f'{name}_bucket{{{labels},le="{most:g}"}} {count}'
        yield f'{name}_bucket{{{labels},le="+Inf"}} {self._total}'
        yield f"{name}_sum{{{labels}}} {self._sum:.6f}"
        yield f"{name}_count{{{labels}}} {self._total}"


class _Run(msgspec.Struct):
    """How far a run was read, and what the next events mean."""

    seq: int = 0
    agent: str = ""
    is_fenced: bool = False


class Metrics:
    """The numbers of one server."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._front = socket.gethostname()
        self._since = backend.now()
        self._runs: dict[str, _Run] = {}
        self._status: Counter[Status] = Counter()
        self._verbs: Counter[tuple[str, str]] = Counter()
        self._reasons: Counter[tuple[str, str]] = Counter()
        self._stopped: dict[str, Histogram] = {}
        self._settled: dict[str, Histogram] = {}
        self._late_permits = 0
        self._asked_at = 0.0
        self._looked_at = self._since

    async def text(self, *, readers: int, refused: int) -> str:
        """Everything, as `text/plain; version=0.0.4`."""
        if not 0 <= self._backend.now() - self._asked_at < FRESH_SECONDS:
            await self._look()
            self._asked_at = self._backend.now()
        return "\n".join([*self._lines(readers, refused), ""])

    # -- reading

    async def _look(self) -> None:
        now = self._backend.now()
        async for row in self._changed(after=self._looked_at - LATE_SECONDS):
            known = self._runs.get(row.id)
            if known is None or known.seq < row.seq:
                await self._read(row.id)
        self._looked_at = now
        status: Counter[Status] = Counter()
        for (_, one), count in (await self._backend.journal.tally()).items():
            status[one] += count
        self._status = status

    async def _changed(self, *, after: float) -> AsyncIterator[RunRow]:
        before: str | None = None
        while rows := await self._backend.journal.runs(changed_after=after, limit=PAGE, before=before):
            for row in rows:
                yield row
            before = rows[-1].id

    async def _read(self, name: str) -> None:
        run = self._runs.setdefault(name, _Run())
        while page := await self._backend.journal.read(name, after=run.seq, limit=PAGE):
            for record in page:
                if record.seq == run.seq + 1:
                    run.seq = record.seq
                    self._count(run, record.event)

    def _count(self, run: _Run, event: Event) -> None:
        counts = event.at >= self._since
        if isinstance(event, RunCreated):
            run.agent = event.agent
        elif isinstance(event, VerbAccepted):
            run.is_fenced |= event.verb in _FENCES
            self._verbs[event.verb, run.agent] += counts
            if event.reason and event.verb in STOPS_OF_RUNS:
                self._reasons[run.agent, _reason(event.reason)] += counts
        elif isinstance(event, ReasonAdded):
            self._reasons[run.agent, _reason(event.reason)] += counts
        elif isinstance(event, VerbSettled) and counts and event.verb in STOPS_OF_RUNS:
            timing = event.receipt.timing_ms
            for histograms, ms in ((self._stopped, timing.calls_stopped), (self._settled, timing.settled)):
                if ms is not None:
                    histograms.setdefault(event.verb, Histogram()).observe(ms / 1000)
        elif isinstance(event, CallStarted) and run.is_fenced and event.kind is not CallKind.UNDO:
            self._late_permits += counts

    # -- writing

    def _lines(self, readers: int, refused: int) -> Iterator[str]:
        yield from _head("checkrein_runs", "gauge", "Runs by status.")
        for status in Status:
            yield f'checkrein_runs{{status="{status}"}} {self._status[status]}'
        yield from _head("checkrein_verbs_total", "counter", "Verbs that were taken, by verb and agent.")
        for (verb, agent), count in sorted(self._verbs.items()):
            yield f'checkrein_verbs_total{{verb="{verb}",agent="{_quoted(agent)}"}} {count}'
        yield from _head("checkrein_stop_reasons_total", "counter", "Why runs were stopped, by agent.")
        for (agent, reason), count in sorted(self._reasons.items()):
            yield f'checkrein_stop_reasons_total{{agent="{_quoted(agent)}",reason="{_quoted(reason)}"}} {count}'
        yield from _head("checkrein_stop_seconds", "histogram", "From asking for a stop until every call had stopped.")
        for verb, histogram in sorted(self._stopped.items()):
            yield from histogram.lines("checkrein_stop_seconds", f'verb="{verb}"')
        yield from _head("checkrein_settle_seconds", "histogram", "From asking for a stop until its receipt.")
        for verb, histogram in sorted(self._settled.items()):
            yield from histogram.lines("checkrein_settle_seconds", f'verb="{verb}"')
        yield from _head("checkrein_permits_after_cancel_total", "counter", "Calls begun after a cancel. Always 0.")
        yield f"checkrein_permits_after_cancel_total {self._late_permits}"
        yield from _head("checkrein_stream_readers", "gauge", "Streams that are open.")
        yield f'checkrein_stream_readers{{front="{_quoted(self._front)}"}} {readers}'
        yield from _head("checkrein_streams_refused_total", "counter", "Streams that were told to come back later.")
        yield f'checkrein_streams_refused_total{{front="{_quoted(self._front)}"}} {refused}'


def _head(name: str, kind: str, words: str) -> tuple[str, str]:
    return f"# HELP {name} {words}", f"# TYPE {name} {kind}"


def _reason(text: str) -> str:
    plain = reason_word(text).strip().lower().replace("_", " ")
    return plain if plain in COUNTED_REASONS else "other"


def _quoted(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
