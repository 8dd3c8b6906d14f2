"""The story of a stop: one page that a person who knows nothing of this program can read, print and keep.

It has no script, and nothing in it comes from elsewhere. Everything that people, models and tools have written stands
in it as text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final

from checkrein.control.stops import Stop, ends_of, shown_by, texts_in
from checkrein.core.enums import CallKind
from checkrein.core.events import (
    CallFinished,
    CallStarted,
    ReasonAdded,
    RunCreated,
    RunFinished,
    VerbAccepted,
    VerbSettled,
    WatcherFlagged,
)
from checkrein.core.receipts import Receipt
from checkrein.core.wording import STOPPED_CALLS, milliseconds, plural
from checkrein.journal.base import Chunk, Operation, Recorded, stream_of
from checkrein.journal.evidence import Withheld
from checkrein.journal.operations import HALTED

STYLE: Final = """
:root{color-scheme:light dark}
body{font:1rem/1.55 system-ui,sans-serif;max-width:46rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem;line-height:1.25;margin:0 0 .5rem}h2{font-size:1.1rem;margin:2.2rem 0 .6rem}
h3{font-size:1rem;margin:1.2rem 0 .3rem}
p{margin:.4rem 0}
dl{display:grid;grid-template-columns:minmax(7rem,max-content) 1fr;gap:.25rem 1rem;margin:.6rem 0}
dt{opacity:.75}dd{margin:0;overflow-wrap:anywhere}
pre{white-space:pre-wrap;overflow-wrap:anywhere;font:.9rem/1.5 ui-monospace,monospace;border:1px solid #8886;
border-radius:.4rem;padding:.7rem .8rem;margin:.4rem 0}
pre.withheld{border-style:dashed}
.cut{display:block;border-top:2px solid currentColor;margin:.5rem 0 .2rem;font:600 .85rem system-ui,sans-serif}
code{font:.85em ui-monospace,monospace;overflow-wrap:anywhere}
ol{padding-left:1.4rem}li{margin:.25rem 0}
footer{margin-top:2.5rem;border-top:1px solid #8886;padding-top:.8rem;font-size:.9rem}
@media (max-width:30rem){dl{grid-template-columns:1fr}dt{margin-top:.4rem}}
"""
POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"

_VERBS: Final = {"pause": "paused", "redirect": "redirected", "cancel": "cancelled", "halt": "halted by an operator"}


def story(
    records: Sequence[Recorded],
    chunks: Sequence[Chunk],
    withheld: Sequence[Withheld],
    stops: Sequence[Stop],
    operations: Sequence[Operation],
    has_withheld: bool,
) -> str:
    """The page, for one run."""
    created = records[0].event
    assert isinstance(created, RunCreated)
    title = f"The story of this stop: run {created.run}" if stops else f"The record of run {created.run}"
    parts = [
        *_beginning(created, records, stops),
        *(line for stop in stops for line in _one_stop(stop, records)),
        *_what_was_shown(records, chunks, stops),
        *_what_was_withheld(records, withheld, has_withheld),
        *_what_people_did(records),
        *_what_operators_did(operations),
        *_the_record(created, records),
    ]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{_e(title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_e(POLICY)}">'
        f"<style>{STYLE}</style></head>\n<body><main>\n<h1>{_e(title)}</h1>\n" + "\n".join(parts) + "\n</body></html>\n"
    )


def _e(text: object) -> str:
    return escape(str(text))


def moment(at: float | None) -> str:
    """To the millisecond, and the same wherever it is read."""
    if at is None:
        return "not recorded"
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"


def _list(*pairs: tuple[str, str]) -> str:
    return "<dl>" + "".join(f"<dt>{_e(name)}</dt><dd>{value}</dd>" for name, value in pairs if value) + "</dl>"


def _beginning(created: RunCreated, records: Sequence[Recorded], stops: Sequence[Stop]) -> Iterator[str]:
    ended = next((record.event for record in records if isinstance(record.event, RunFinished)), None)
    if stops:
        last = stops[-1]
        reason = f" The reason given: “{_e('; '.join(last.reasons))}”." if last.reasons else " No reason was given."
        yield f"<p><strong>{_e(last.by)}</strong> {_VERBS[last.verb]} it on {moment(last.at)}.{reason}</p>"
    else:
        yield "<p>Nobody has stopped this run.</p>"
    yield _list(
        ("Agent", _e(created.agent)),
        ("Goal", _e(created.goal)),
        ("Belongs to", _e(created.owner)),
        ("Began", moment(created.at)),
        ("Ended", f"{moment(ended.at)}, {ended.status.value}" if ended is not None else "not yet"),
        ("Part of run", _e(created.parent or "")),
    )


def _one_stop(stop: Stop, records: Sequence[Recorded]) -> Iterator[str]:
    yield f"<h2>{_e(stop.verb.value.capitalize())} by {_e(stop.by)}</h2>"
    shown = ""
    if stop.shown_in_all is not None:
        by_then = "an unknown number" if stop.shown_by_then is None else f"{stop.shown_by_then:,}"
        shown = f"{by_then} characters of call {_e(stop.call)}; {stop.shown_in_all:,} in all when it had ended"
    took = "not known, or nothing was in flight" if stop.stopped_ms is None else milliseconds(stop.stopped_ms)
    yield _list(
        ("When", f"{moment(stop.at)} by the clock of the host that took it"),
        ("By the store's clock", moment(stop.store_at)),
        ("Why", _e("; ".join(stop.reasons)) or "no reason given"),
        ("Shown by then", shown),
        ("Until all had stopped", took),
        ("Came after the stop", plural(stop.tokens_after_stop, "token") + " from the provider, shown to nobody"),
        ("Nearest flag", _flag_of(stop)),
    )
    receipt = _receipt_of(stop, records)
    if receipt is not None and (receipt.calls or receipt.effects):
        yield "<h3>What became of what was in flight</h3><ul>"
        for call in receipt.calls:
            now = STOPPED_CALLS.get(call.now, call.now)
            yield f"<li>{_e(call.kind.value)} <code>{_e(call.name)}</code> {_e(now)}</li>"
        for effect in receipt.effects:
            yield f"<li>{_e(effect.what)}: {_e(effect.now.value.replace('_', ' '))}</li>"
        yield "</ul>"


def _flag_of(stop: Stop) -> str:
    if stop.flag is None:
        return ""
    side = "before" if stop.flag.seconds_before >= 0 else "after"
    return f"{_e(stop.flag.watcher)}: {_e(stop.flag.what)}, {abs(stop.flag.seconds_before):.3f} s {side} the stop"


def _receipt_of(stop: Stop, records: Sequence[Recorded]) -> Receipt | None:
    accepted = records[stop.seq - 1].event.id
    settled = (record.event for record in records[stop.seq :] if isinstance(record.event, VerbSettled))
    return next((event.receipt for event in settled if event.accepted == accepted), None)


def _what_was_shown(records: Sequence[Recorded], chunks: Sequence[Chunk], stops: Sequence[Stop]) -> Iterator[str]:
    texts, ends = texts_in(chunks), ends_of(records)
    calls = [record for record in records if isinstance(record.event, CallStarted)]
    yield "<h2>What had been shown</h2>"
    if not texts:
        yield "<p>No text was shown.</p>"
    for record in calls:
        started = record.event
        assert isinstance(started, CallStarted)
        stream = stream_of(started.call, started.attempt)
        if stream not in texts:
            continue
        finished = ends.get(stream)
        kind = "The model" if started.kind is CallKind.MODEL else f"Call {started.call}"
        yield f"<h3>{_e(kind)} <code>{_e(started.name)}</code>, call {_e(stream)}</h3>"
        yield f"<p>{_when_shown(finished)}</p>"
        yield f"<pre>{_with_stops(texts[stream], stream, finished, stops)}</pre>"
        if finished is not None and len(texts[stream]) < finished.chars:
            yield f"<p>Only {len(texts[stream]):,} of {finished.chars:,} characters were kept.</p>"


def _when_shown(finished: CallFinished | None) -> str:
    if finished is None or finished.shown_at is None or not finished.shown:
        return "When it was handed to readers is not recorded."
    last, chars = finished.shown[-1]
    begin, end = moment(finished.shown_at), moment(finished.shown_at + last / 1000)
    return f"Handed to readers from {begin} to {end}, {chars:,} characters in {plural(len(finished.shown), 'piece')}."


def _with_stops(text: str, stream: str, finished: CallFinished | None, stops: Sequence[Stop]) -> str:
    """The text, with a line where each stop came."""
    cuts = [
        (chars, stop.at, f"{stop.verb.value} by {stop.by}, {moment(stop.at)}")
        for stop in stops
        if stop.call == stream and finished is not None and (chars := shown_by(finished, stop.at)) is not None
    ]
    written, place = [], 0
    for chars, _, words in sorted(cuts):
        written.append(f'{_e(text[place:chars])}<span class="cut">▲ {_e(words)}</span>')
        place = chars
    return "".join(written) + _e(text[place:])


def _what_was_withheld(records: Sequence[Recorded], withheld: Sequence[Withheld], has_withheld: bool) -> Iterator[str]:
    flags = [record.event for record in records if isinstance(record.event, WatcherFlagged)]
    if not flags:
        return
    texts = {one.flag: one.text for one in withheld}
    yield "<h2>What watchers noticed</h2>"
    for flag in flags:
        where = "" if flag.offset is None else f" after {flag.offset:,} characters of call {_e(flag.call)}"
        yield f"<p><strong>{_e(flag.watcher)}</strong>: {_e(flag.what)}{where}, {moment(flag.at)}.</p>"
        if not flag.withheld_chars:
            continue
        size = f"{plural(flag.withheld_chars, 'character')} from character {flag.withheld_from or 0:,} on"
        yield f"<p>Withheld, and shown to nobody: {size}; SHA-256 <code>{_e(flag.withheld_hash)}</code>.</p>"
        if flag.id in texts:
            yield f'<pre class="withheld">{_e(texts[flag.id])}</pre>'
        else:
            why = "It was not kept." if has_withheld else "The text itself is not part of this bundle."
            yield f"<p>{why}</p>"


def _what_people_did(records: Sequence[Recorded]) -> Iterator[str]:
    yield "<h2>What people asked for</h2><ol>"
    for record in records:
        event = record.event
        if isinstance(event, VerbAccepted):
            said = event.instruction or event.question or event.reason
            words = f": “{_e(said)}”" if said else ""
            yield f"<li>{moment(event.at)} {_e(event.by)}: {_e(event.verb.value)}{words} (event {record.seq})</li>"
        elif isinstance(event, ReasonAdded):
            yield f"<li>{moment(event.at)} {_e(event.by)} gave a reason: “{_e(event.reason)}” (event {record.seq})</li>"
    yield "</ol>"


def _what_operators_did(operations: Sequence[Operation]) -> Iterator[str]:
    if not operations:
        return
    yield "<h2>Halts and resets that touched this run</h2><ol>"
    for one in operations:
        did = "halted" if one.type == HALTED else "lifted the halt of"
        what = _e(f"{one.scope.value} {one.name}".rstrip())
        words = f": “{_e(one.reason)}”" if one.reason else ""
        where = f" on host {_e(one.host)}" if one.host else ""
        clocks = f"{moment(one.at)}, {moment(one.store_at)} by the store's clock"
        yield f"<li>{clocks}: {_e(one.by)}{where} {did} {what}{words}</li>"
    yield "</ol>"


def _the_record(created: RunCreated, records: Sequence[Recorded]) -> Iterator[str]:
    yield "<h2>The record behind this page</h2>"
    yield _list(
        ("Run", f"<code>{_e(created.run)}</code>"),
        ("Events", f"{len(records):,}"),
        ("Head", f"<code>{records[-1].hash.hex()}</code>"),
    )
    yield (
        "</main><footer><p>Each event is hashed together with the one before it, so that none can be changed, left out "
        "or put in without the head above changing. This page is one part of a bundle; the other parts have the record "
        "itself. <code>checkrein verify BUNDLE</code> says whether all of it is as it was signed, and by whom: no "
        "server, store or network is needed for that.</p></footer>"
    )
