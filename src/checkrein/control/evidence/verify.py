"""Whether a bundle can be believed: every part against the manifest, the record against itself, and who has signed it.

Nothing is needed but the file and the keys that one believes. What is damaged is named: the first part, and the first
record of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import sha256
from itertools import pairwise
from typing import Any, Final, TypeVar

import msgspec

from checkrein.control.evidence import archive, bundle, log
from checkrein.control.evidence.bundle import Manifest
from checkrein.control.evidence.keys import KnownKeys, fingerprint, is_signed
from checkrein.control.evidence.operations import LinkedOperation, read_line
from checkrein.control.evidence.story import moment
from checkrein.control.stops import STOPS, Stop, ends_of, texts_in
from checkrein.core.events import VerbAccepted, VerbSettled, WatcherFlagged
from checkrein.core.receipts import Receipt
from checkrein.core.wording import plural
from checkrein.errors import JournalError
from checkrein.journal import encoding
from checkrein.journal.base import Chunk, Recorded
from checkrein.journal.evidence import Withheld

WHOLE: Final = 0
BROKEN: Final = 5
UNKNOWN: Final = 6
NOT_A_BUNDLE: Final = 2

T = TypeVar("T")


class PartFound(msgspec.Struct, frozen=True):
    """What is to be said of one part."""

    name: str
    says: str


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it. `code` is the exit code of `checkrein verify`."""

    code: int
    sentence: str
    run: str = ""
    parts: tuple[PartFound, ...] = ()
    stops: tuple[str, ...] = ()
    signed_by: str = ""


class Broken(Exception):
    """A part is not what it was; which, and where in it."""

    def __init__(self, part: str, what: str) -> None:
        super().__init__(f"{part}: {what}")


class _Reading:
    """A bundle while it is looked through."""

    def __init__(self, parts: dict[str, bytes], manifest: Manifest) -> None:
        self.parts = parts
        self.manifest = manifest
        self.found: list[PartFound] = []
        self.records: tuple[Recorded, ...] = ()
        self.operations: dict[int, LinkedOperation] = {}
        self.heads: list[tuple[log.PublishedEntry, log.Statement]] = []

    def say(self, name: str, says: str) -> None:
        self.found.append(PartFound(name, says))


def verify(data: bytes, known: KnownKeys, heads: bytes | None = None) -> Finding:
    """Look through a bundle; `heads` is a published file of heads."""
    try:
        parts = archive.unpack(data)
        if bundle.MANIFEST not in parts:
            raise archive.NotAnArchive("it has no manifest")
    except archive.NotAnArchive as error:
        # One changed byte cannot hide both marks of a bundle, so damage is told from something else.
        is_ours = data[30:43] == bundle.MANIFEST.encode() or b'"format":"checkrein evidence"' in data
        if is_ours:
            return Finding(code=BROKEN, sentence=f"The bundle is broken: {error}.")
        return Finding(code=NOT_A_BUNDLE, sentence=f"This is not a bundle of evidence: {error}.")
    try:
        reading = _Reading(parts, _manifest(parts))
        _check_parts(reading)
        _check_events(reading)
        _check_texts(reading)
        _check_stops(reading)
        _check_operations(reading)
        _check_heads(reading)
        if heads is not None:
            _check_published(reading, heads)
    except Broken as broken:
        return Finding(code=BROKEN, sentence=f"The bundle is broken. {broken}.")
    return _judged(reading, known, with_heads=heads is not None)


def _manifest(parts: dict[str, bytes]) -> Manifest:
    name = bundle.MANIFEST
    try:
        manifest = msgspec.json.decode(parts[name], type=Manifest)
    except msgspec.MsgspecError as error:
        raise Broken(name, f"it cannot be read ({error})") from error
    if manifest.format != bundle.FORMAT or manifest.version != bundle.VERSION:
        raise Broken(name, f"its format is {manifest.format} {manifest.version}, which this version does not know")
    if msgspec.json.encode(manifest) != parts[name]:
        raise Broken(name, "it is not written as it was")
    if bundle.digest_of(manifest) != manifest.digest:
        raise Broken(name, "it was changed: its digest does not fit")
    if manifest.signature:
        _check_signature(name, manifest)
    return manifest


def _check_signature(name: str, manifest: Manifest) -> None:
    try:
        public, signature = bytes.fromhex(manifest.key), bytes.fromhex(manifest.signature)
    except ValueError as error:
        raise Broken(name, "its signature cannot be read") from error
    if fingerprint(public) != manifest.fingerprint:
        raise Broken(name, "its key does not fit its fingerprint")
    if not is_signed(bundle.CONTEXT + bytes.fromhex(manifest.digest), signature, public):
        raise Broken(name, f"its signature by {manifest.fingerprint} does not fit")


def _check_parts(reading: _Reading) -> None:
    names = tuple(part.name for part in reading.manifest.parts)
    if names != bundle.NAMES or tuple(reading.parts) != (bundle.MANIFEST, *bundle.NAMES):
        raise Broken(bundle.MANIFEST, "a part is missing, doubled, or in another place")
    for part in reading.manifest.parts:
        body = reading.parts[part.name]
        if len(body) != part.bytes or sha256(body).hexdigest() != part.sha256:
            # Where the record itself shows which of its events it is, that is more help.
            if part.name == bundle.EVENTS:
                _check_events(reading)
            raise Broken(part.name, "it was changed: its hash is not that in the manifest")


# -- the record


_EVENT: Final = re.compile(rb'\{"seq":([0-9]{1,18}),"hash":"([0-9a-f]{64})","event":(.*)\}', re.DOTALL)


def _check_events(reading: _Reading) -> None:
    name, run = bundle.EVENTS, reading.manifest.run
    previous, records = encoding.genesis(run), list[Recorded]()
    for number, line in enumerate(reading.parts[name].split(b"\n")[:-1], 1):
        match = _EVENT.fullmatch(line)
        if match is None:
            raise Broken(name, f"record {number} cannot be read")
        seq, claimed, body = int(match[1]), bytes.fromhex(match[2].decode()), match[3]
        previous = encoding.link(previous, number, body)
        if seq != number or previous != claimed:
            raise Broken(name, f"record {number} does not follow from the one before it")
        try:
            records.append(Recorded(run, seq, encoding.decode(body), body, claimed))
        except JournalError as error:
            raise Broken(name, f"record {number} cannot be read ({error})") from error
    if (len(records), previous.hex()) != (reading.manifest.seq, reading.manifest.head):
        raise Broken(name, f"after record {len(records)} it does not end where the manifest says")
    reading.records = tuple(records)
    reading.say(name, f"{plural(len(records), 'event')}, each follows from the one before; head {previous.hex()[:16]}…")


def _check_texts(reading: _Reading) -> None:
    chunks = _decoded(reading, bundle.CHUNKS, Chunk)
    texts, lost = texts_in(chunks), 0
    for stream, finished in ends_of(reading.records).items():
        if not finished.chunk_hash:
            continue
        text = texts.get(stream, "")
        if len(text) < finished.chars:
            lost += finished.chars - len(text)
        elif sha256(text.encode("utf-8", "surrogatepass")).hexdigest() != finished.chunk_hash:
            raise Broken(bundle.CHUNKS, f"the text of call {stream} is not the one that its record has the hash of")
    chars = sum(map(len, texts.values()))
    said = f"{chars:,} characters in {plural(len(texts), 'text')}, as their records say"
    reading.say(bundle.CHUNKS, said + (f"; {lost:,} more were lost in a crash" if lost else ""))
    withheld = _decoded(reading, bundle.WITHHELD, Withheld)
    flags = {r.event.id: r.event for r in reading.records if isinstance(r.event, WatcherFlagged)}
    for number, one in enumerate(withheld, 1):
        flag = flags.get(one.flag)
        if flag is None or sha256(one.text.encode("utf-8", "replace")).hexdigest() != flag.withheld_hash:
            raise Broken(bundle.WITHHELD, f"record {number} is not the text that a flag has the hash of")
    if not reading.manifest.has_withheld:
        reading.say(bundle.WITHHELD, "left out")
    else:
        missing = bundle.unkept(reading.records, withheld)
        told = plural(len(withheld), "text") + ", as their flags say"
        reading.say(bundle.WITHHELD, told + (f"; {len(missing)} not kept" if missing else ""))


def _decoded(reading: _Reading, name: str, kind: type[T]) -> list[T]:
    decoder, found = msgspec.json.Decoder(kind), list[T]()
    for number, line in enumerate(reading.parts[name].split(b"\n")[:-1], 1):
        try:
            found.append(decoder.decode(line))
        except msgspec.MsgspecError as error:
            raise Broken(name, f"record {number} cannot be read ({error})") from error
    return found


class _Receipt(msgspec.Struct):
    seq: int
    accepted: str
    receipt: Receipt


def _check_stops(reading: _Reading) -> None:
    stops = _whole(reading, bundle.STOPS, list[Stop])
    accepted = [(r.seq, r.event) for r in reading.records if isinstance(r.event, VerbAccepted)]
    expected = [(s, e.verb, e.by, e.at) for s, e in accepted if e.verb in STOPS and not e.resumes_itself]
    if [(stop.seq, stop.verb, stop.by, stop.at) for stop in stops] != expected:
        raise Broken(bundle.STOPS, "its stops are not those of the record")
    reading.say(bundle.STOPS, f"{plural(len(stops), 'stop')}, as the record says")
    receipts = _whole(reading, bundle.RECEIPTS, list[_Receipt])
    settled = [(r.seq, r.event.accepted, r.event.receipt) for r in reading.records if isinstance(r.event, VerbSettled)]
    if [(one.seq, one.accepted, one.receipt) for one in receipts] != settled:
        raise Broken(bundle.RECEIPTS, "its receipts are not those of the record")
    reading.say(bundle.RECEIPTS, f"{plural(len(receipts), 'receipt')}, as the record says")


def _whole(reading: _Reading, name: str, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(reading.parts[name], type=kind)
    except msgspec.MsgspecError as error:
        raise Broken(name, f"it cannot be read ({error})") from error


def _check_operations(reading: _Reading) -> None:
    name, last = bundle.OPERATIONS, 0
    for number, line in enumerate(reading.parts[name].split(b"\n")[:-1], 1):
        try:
            one = read_line(line)
        except ValueError as error:
            raise Broken(name, f"record {number}: {error}") from error
        if one.seq <= last:
            raise Broken(name, f"record {number} does not come after the one before it")
        last = one.seq
        reading.operations[one.seq] = one
    for before, one in pairwise(reading.operations.values()):
        if before.seq + 1 == one.seq and one.previous != before.record.hash:
            raise Broken(name, f"operation {one.seq} does not follow from the one before it")
    reading.say(name, f"{plural(len(reading.operations), 'operation')} that touched this run, each as it was hashed")


# -- heads


def _check_heads(reading: _Reading) -> None:
    for number, entry in enumerate(_decoded(reading, bundle.HEADS, log.PublishedEntry), 1):
        try:
            said = entry.statement()
        except ValueError as error:
            raise Broken(bundle.HEADS, f"record {number}: {error}") from error
        if said.run == log.OPERATIONS and said.seq not in reading.operations:
            raise Broken(bundle.OPERATIONS, f"operation {said.seq}, which was signed, is missing")
        _check_claims(reading, bundle.HEADS, number, entry.claims(said))
        reading.heads.append((entry, said))
    reading.say(
        bundle.HEADS, f"{plural(len(reading.heads), 'signed head')} of this run and its operations, as the record says"
    )
    reading.say(bundle.STORY, "as the manifest says")


def _check_claims(reading: _Reading, name: str, number: int, claims: Iterable[log.Leaf]) -> int:
    """How many heads of this run there are among them."""
    count = 0
    for leaf in claims:
        if leaf.run == log.OPERATIONS:
            one = reading.operations.get(leaf.seq)
            if one is not None and one.record.hash.hex() != leaf.hash:
                raise Broken(name, f"record {number} has another operation {leaf.seq} than this bundle")
            continue
        if leaf.run != reading.manifest.run:
            continue
        count += 1
        if leaf.seq > len(reading.records):
            raise Broken(
                name,
                f"record {number} has a signed head at event {leaf.seq} of this run, which ends here at event "
                f"{len(reading.records)}: its tail was cut off",
            )
        if leaf.seq and reading.records[leaf.seq - 1].hash.hex() != leaf.hash:
            raise Broken(name, f"record {number} has another head at event {leaf.seq} than this run: it was rewritten")
    return count


def _check_published(reading: _Reading, heads: bytes) -> None:
    name = "the file of heads"
    published, count, previous = read_heads(heads, name), 0, ""
    for number, (entry, said) in enumerate(published, 1):
        if previous and said.previous != previous:
            raise Broken(name, f"record {number} does not follow from the one before it")
        previous = log.hash_of(entry.body.encode())
        count += _check_claims(reading, name, number, entry.claims(said))
    by_number = {said.number: entry.body for entry, said in published}
    for entry, said in reading.heads:
        if by_number.get(said.number, entry.body) != entry.body:
            raise Broken(name, f"it has another entry {said.number} than the bundle")
    reading.heads += published
    reading.say(name, f"{plural(len(published), 'statement')}, {plural(count, 'head')} of this run, as the record says")


def read_heads(heads: bytes, name: str) -> list[tuple[log.PublishedEntry, log.Statement]]:
    """The entries of a published file, each with what it says. Raises `Broken`."""
    found: list[tuple[log.PublishedEntry, log.Statement]] = []
    for number, line in enumerate(heads.split(b"\n"), 1):
        if not line:
            continue
        try:
            entry = msgspec.json.decode(line, type=log.PublishedEntry)
            found.append((entry, entry.statement()))
        except (msgspec.MsgspecError, ValueError) as error:
            raise Broken(name, f"record {number}: {error}") from error
    return found


# -- who says so


def _judged(reading: _Reading, known: KnownKeys, *, with_heads: bool) -> Finding:
    manifest = reading.manifest
    stops = tuple(_stop_line(stop) for stop in _whole(reading, bundle.STOPS, list[Stop]))
    strangers = sorted({fingerprint(entry.public) for entry, _ in reading.heads if not known.has(entry.public)})
    about: dict[str, Any] = {"run": manifest.run, "parts": tuple(reading.found), "stops": stops}
    if not manifest.signature:
        sentence = "The bundle is whole, but not signed: anybody could have made it."
        return Finding(code=UNKNOWN, sentence=sentence, **about)
    if not known.has(bytes.fromhex(manifest.key)):
        sentence = (
            f"The bundle is whole, and signed by {manifest.fingerprint}, which is not a key that is known here. Ask "
            "whoever signs for you for the fingerprint, by another way than this bundle, and give it with --key."
        )
        return Finding(code=UNKNOWN, sentence=sentence, **about)
    about["signed_by"] = manifest.fingerprint
    if strangers:
        whose = "The heads are" if with_heads else "It has signed heads that are"
        sentence = (
            f"The bundle is whole and signed by {manifest.fingerprint}. {whose} signed by {', '.join(strangers)}, "
            "which is not known here; give it with --key too."
        )
        return Finding(code=UNKNOWN, sentence=sentence, **about)
    sentence = f"The bundle is whole and signed by {manifest.fingerprint}, made on {moment(manifest.made_at)}."
    return Finding(code=WHOLE, sentence=sentence, **about)


def _stop_line(stop: Stop) -> str:
    shown = ""
    if stop.shown_by_then is not None:
        shown = f", {stop.shown_by_then:,} characters of call {stop.call} had been shown"
    return f"{stop.verb.value} by {stop.by} at event {stop.seq}, {moment(stop.at)}{shown}"
