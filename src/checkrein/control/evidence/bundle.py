"""One run as evidence: its record as it is stored, what was shown, who stopped it, and a manifest over all of it.

The manifest has the SHA-256 of each part, and is last of all hashed itself (`digest`) and signed. A bundle without a
signature still shows damage, but anybody could have made it, and it says so.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from hashlib import sha256
from importlib.metadata import version
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from checkrein.control.evidence import archive, log
from checkrein.control.evidence.keys import SigningKey
from checkrein.control.evidence.operations import LinkedOperation, operations_on
from checkrein.control.evidence.story import story
from checkrein.control.stops import Stop, stops_in, texts_in
from checkrein.core.events import CallStarted, RunCreated, VerbSettled, WatcherFlagged
from checkrein.journal import encoding, refusals
from checkrein.journal.base import Chunk, Journal, Recorded, stream_of
from checkrein.journal.evidence import SignedEntry, Withheld

FORMAT: Final = "checkrein evidence"
VERSION: Final = 1
CONTEXT: Final = b"checkrein evidence 1\n"
"""Before what is signed, so that no signature is good for anything else."""

MANIFEST: Final = "manifest.json"
EVENTS: Final = "events.jsonl"
CHUNKS: Final = "chunks.jsonl"
WITHHELD: Final = "withheld.jsonl"
STOPS: Final = "stops.json"
RECEIPTS: Final = "receipts.json"
OPERATIONS: Final = "operations.jsonl"
HEADS: Final = "heads.jsonl"
STORY: Final = "story.html"
NAMES: Final = (EVENTS, CHUNKS, WITHHELD, STOPS, RECEIPTS, OPERATIONS, HEADS, STORY)
"""The parts behind the manifest, in their order."""


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a bundle says of itself. `digest` is the SHA-256 of the manifest without it and without the signature."""

    format: str = FORMAT
    version: int = VERSION
    run: str
    seq: int
    head: str
    made_at: float
    """By the clock of whoever made it."""
    store_at: float
    made_by: str
    made_with: str
    has_withheld: bool
    parts: tuple[Part, ...]
    key: str = ""
    fingerprint: str = ""
    digest: str = ""
    signature: str = ""


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a run, as evidence."""

    run: str
    records: tuple[Recorded, ...]
    chunks: tuple[Chunk, ...]
    withheld: tuple[Withheld, ...]
    has_withheld: bool
    """Whether text that was withheld is among it."""
    stops: tuple[Stop, ...]
    operations: tuple[LinkedOperation, ...] = ()
    """Halts and resets that touched the run."""
    heads: tuple[log.PublishedEntry, ...]

    @property
    def head(self) -> str:
        return self.records[-1].hash.hex()

    @property
    def created(self) -> RunCreated:
        created = self.records[0].event
        assert isinstance(created, RunCreated)
        return created


async def gather(journal: Journal, run: str, *, with_withheld: bool) -> Contents:
    """Read all of it. Raises `RunNotFound`, and `StoreDamaged` where the record of the run does not verify."""
    records = await journal.read(run)
    _check_chain(run, records)
    started = (record.event for record in records if isinstance(record.event, CallStarted))
    streams = dict.fromkeys(stream_of(event.call, event.attempt) for event in started)
    found = await journal.chunks_of({(run, stream): -1 for stream in streams})
    chunks = tuple(chunk for stream in streams for chunk in found.get((run, stream), ()))
    operations = await operations_on(journal, records)
    entries = await journal.evidence.signed()
    return Contents(
        run=run,
        records=records,
        chunks=chunks,
        withheld=await journal.evidence.withheld(run) if with_withheld else (),
        has_withheld=with_withheld,
        stops=tuple(stops_in(records, texts_in(chunks))),
        operations=operations,
        heads=tuple(_heads(entries, run, {one.seq for one in operations})),
    )


def _heads(entries: Iterable[SignedEntry], run: str, operations: Container[int]) -> Iterator[log.PublishedEntry]:
    """What was signed about the run, and about the operations that touched it."""
    for entry in entries:
        if entry.run == log.OPERATIONS:
            if msgspec.json.decode(entry.body, type=log.Statement).seq in operations:
                yield log.published(entry)
        elif (head := log.about(entry, run)) is not None:
            yield head


def _check_chain(run: str, records: Sequence[Recorded]) -> None:
    previous = encoding.genesis(run)
    for seq, record in enumerate(records, 1):
        previous = encoding.link(previous, seq, record.body)
        if record.seq != seq or previous != record.hash:
            raise refusals.broken_chain(run, seq)


def pack(contents: Contents, *, key: SigningKey | None, made_by: str, at: float, store_at: float) -> bytes:
    """The bundle as a file. The same contents, key and times give the same bytes."""
    parts = _parts(contents)
    manifest = Manifest(
        run=contents.run,
        seq=len(contents.records),
        head=contents.head,
        made_at=at,
        store_at=store_at,
        made_by=made_by,
        made_with=f"checkrein {version('checkrein')}",
        has_withheld=contents.has_withheld,
        parts=tuple(Part(name, len(body), sha256(body).hexdigest()) for name, body in parts.items()),
        key="" if key is None else key.public.hex(),
        fingerprint="" if key is None else key.fingerprint,
    )
    manifest = replace(manifest, digest=digest_of(manifest))
    if key is not None:
        manifest = replace(manifest, signature=key.sign(CONTEXT + bytes.fromhex(manifest.digest)).hex())
    return archive.pack({MANIFEST: msgspec.json.encode(manifest), **parts})


def digest_of(manifest: Manifest) -> str:
    return sha256(msgspec.json.encode(replace(manifest, digest="", signature=""))).hexdigest()


def _parts(contents: Contents) -> dict[str, bytes]:
    settled = [record for record in contents.records if isinstance(record.event, VerbSettled)]
    receipts = [
        {"seq": record.seq, "at": record.event.at, "accepted": record.event.accepted, "receipt": record.event.receipt}
        for record in settled
        if isinstance(record.event, VerbSettled)
    ]
    parts = {
        EVENTS: b"".join(map(event_line, contents.records)),
        CHUNKS: _lines(contents.chunks),
        WITHHELD: _lines(contents.withheld),
        STOPS: msgspec.json.encode(contents.stops),
        RECEIPTS: msgspec.json.encode(receipts),
        OPERATIONS: b"".join(one.line() for one in contents.operations),
        HEADS: _lines(contents.heads),
        STORY: page_of(contents).encode(),
    }
    return {name: parts[name] for name in NAMES}


def page_of(contents: Contents) -> str:
    """The story of the run, as a page."""
    return story(
        contents.records,
        contents.chunks,
        contents.withheld,
        contents.stops,
        [one.operation for one in contents.operations],
        contents.has_withheld,
    )


def event_line(record: Recorded) -> bytes:
    """A line of JSON that has the stored bytes of the event in it as they are."""
    return b'{"seq":%d,"hash":"%s","event":%s}\n' % (record.seq, record.hash.hex().encode(), record.body)


def _lines(values: Iterable[Any]) -> bytes:
    return b"".join(msgspec.json.encode(value) + b"\n" for value in values)


def unkept(records: Sequence[Recorded], withheld: Sequence[Withheld]) -> list[WatcherFlagged]:
    """The flags whose withheld text is not there, although there was some."""
    kept = {one.flag for one in withheld}
    flags = (record.event for record in records if isinstance(record.event, WatcherFlagged))
    return [flag for flag in flags if flag.withheld_chars and flag.id not in kept]
