"""Whoever changes a bundle is found out: by damage, by hand, with the hashes mended, and signed again.

An attacker here knows the format and all of this code, and lacks nothing but the key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha256

import msgspec
import pytest

from checkrein.control.evidence import archive, bundle, log
from checkrein.control.evidence.bundle import CONTEXT, Contents, Manifest, Part
from checkrein.control.evidence.keys import SigningKey
from checkrein.control.evidence.operations import LinkedOperation, read_line
from checkrein.control.evidence.verify import BROKEN, NOT_A_BUNDLE, UNKNOWN, WHOLE, verify
from checkrein.control.stops import stops_in, texts_in
from checkrein.journal import encoding, open_journal, operations
from checkrein.journal.base import Recorded, RecordedOperation
from tests.control.evidence.sample import KEY, KNOWN, OTHER, Sample, packed

Parts = dict[str, bytes]


def mended(parts: Parts, key: SigningKey | None = None) -> bytes:
    """The bundle with a manifest that fits its parts; signed by `key`, or with the signature that it had."""
    manifest = msgspec.json.decode(parts[bundle.MANIFEST], type=Manifest)
    listed = tuple(Part(n, len(b), sha256(b).hexdigest()) for n, b in parts.items() if n != bundle.MANIFEST)
    records = parts[bundle.EVENTS].splitlines()
    head = records[-1][records[-1].index(b'"hash":"') + 8 :][:64].decode() if records else ""
    changes = {"parts": listed, "seq": len(records), "head": head}
    if key is not None:
        changes |= {"key": key.public.hex(), "fingerprint": key.fingerprint}
    manifest = msgspec.structs.replace(manifest, **changes)
    manifest = msgspec.structs.replace(manifest, digest=bundle.digest_of(manifest))
    if key is not None:
        signature = key.sign(CONTEXT + bytes.fromhex(manifest.digest)).hex()
        manifest = msgspec.structs.replace(manifest, signature=signature)
    return archive.pack({**parts, bundle.MANIFEST: msgspec.json.encode(manifest)})


def test_every_single_byte_that_is_flipped_is_found(evidence: Contents):
    """At each place one bit, another at each; every part, the manifest, and the zip format between them."""
    whole = bytearray(packed(evidence))
    missed = []
    for place in range(len(whole)):
        whole[place] ^= 1 << (place % 8)
        if verify(bytes(whole), KNOWN).code not in (BROKEN, NOT_A_BUNDLE):
            missed.append(place)
        whole[place] ^= 1 << (place % 8)

    assert missed == []
    assert verify(bytes(whole), KNOWN).code == WHOLE


def test_in_an_unsigned_bundle_too(evidence: Contents):
    whole = bytearray(packed(evidence, None))
    for place in range(0, len(whole), 7):
        whole[place] ^= 0x20
        assert verify(bytes(whole), KNOWN).code in (BROKEN, NOT_A_BUNDLE), place
        whole[place] ^= 0x20


def test_a_file_that_is_cut_off_anywhere_is_found(evidence: Contents):
    whole = packed(evidence)
    for size in range(0, len(whole), 97):
        assert verify(whole[:size], KNOWN).code in (BROKEN, NOT_A_BUNDLE), size
    assert verify(whole + b"\0", KNOWN).code == BROKEN


def rearranged(lines: list[bytes]) -> Iterator[tuple[str, list[bytes]]]:
    for place in range(len(lines)):
        yield f"{place} dropped", lines[:place] + lines[place + 1 :]
        yield f"{place} doubled", lines[: place + 1] + lines[place:]
        if place and lines[place] != lines[place - 1]:
            swapped = [*lines]
            swapped[place - 1 : place + 1] = [lines[place], lines[place - 1]]
            yield f"{place} swapped", swapped


@pytest.mark.parametrize("name", [bundle.EVENTS, bundle.CHUNKS, bundle.WITHHELD, bundle.OPERATIONS, bundle.HEADS])
def test_every_record_dropped_doubled_or_swapped_is_found(evidence: Contents, name: str):
    """Also with every hash mended, because then the signature does not fit."""
    parts = archive.unpack(packed(evidence))
    lines = parts[name].splitlines(keepends=True)
    assert lines

    for what, changed in rearranged(lines):
        tampered = {**parts, name: b"".join(changed)}
        assert verify(archive.pack(tampered), KNOWN).code == BROKEN, what
        assert verify(mended(tampered), KNOWN).code == BROKEN, what
        assert verify(mended(tampered, OTHER), KNOWN).code in (BROKEN, UNKNOWN), what


def test_what_was_done_to_the_record_is_named_by_part_and_record(evidence: Contents):
    parts = archive.unpack(packed(evidence))
    lines = parts[bundle.EVENTS].splitlines(keepends=True)

    def tampered(changed: list[bytes]) -> str:
        return verify(mended({**parts, bundle.EVENTS: b"".join(changed)}, OTHER), KNOWN).sentence

    assert "events.jsonl: record 3 does not follow" in tampered(lines[:2] + lines[3:])
    assert "events.jsonl: record 4 does not follow" in tampered(lines[:3] + lines[2:])
    assert "its tail was cut off" in tampered(lines[:-1])


def rewritten(evidence: Contents, change: Callable[[bytes], bytes]) -> bytes:
    """A whole new chain, with all hashes right, over events that were changed."""
    previous, records = encoding.genesis(evidence.run), []
    for record in evidence.records:
        body = change(record.body)
        previous = encoding.link(previous, record.seq, body)
        records.append(Recorded(evidence.run, record.seq, encoding.decode(body), body, previous))
    return b"".join(map(bundle.event_line, records))


def test_a_record_that_was_rewritten_from_the_beginning_contradicts_what_was_signed(evidence: Contents):
    parts = archive.unpack(packed(evidence))
    forged = rewritten(evidence, lambda body: body.replace(b'"by":"ana"', b'"by":"bob"'))
    stops = parts[bundle.STOPS].replace(b'"by":"ana"', b'"by":"bob"')
    receipts = parts[bundle.RECEIPTS].replace(b'"by":"ana"', b'"by":"bob"')
    tampered = {**parts, bundle.EVENTS: forged, bundle.STOPS: stops, bundle.RECEIPTS: receipts}

    assert b'"by":"bob"' in forged
    assert verify(mended(tampered), KNOWN).code == BROKEN
    resigned = verify(mended(tampered, OTHER), KNOWN)
    assert (resigned.code, "it was rewritten" in resigned.sentence) == (BROKEN, True)
    without_heads = verify(mended({**tampered, bundle.HEADS: b""}, OTHER), KNOWN)
    assert without_heads.code == UNKNOWN, "all that is left to an attacker is a key that nobody knows"


def rehashed(line: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """A record of an operation that was changed, with its own hash mended."""
    one = read_line(line.rstrip(b"\n"))
    body = change(one.record.body)
    return LinkedOperation(
        RecordedOperation(one.seq, one.operation, body, operations.link(one.previous, one.seq, body)), one.previous
    ).line()


def test_an_operation_that_was_rewritten_or_left_out_contradicts_what_was_signed(evidence: Contents):
    """Also where every hash is mended, and all of it signed again by somebody whom the reader believes."""
    parts = archive.unpack(packed(evidence))
    halt, reset = parts[bundle.OPERATIONS].splitlines(keepends=True)

    def judged(*lines: bytes) -> tuple[int, str]:
        found = verify(mended({**parts, bundle.OPERATIONS: b"".join(lines)}, KEY), KNOWN)
        return found.code, found.sentence

    assert judged(halt, reset)[0] == WHOLE
    changed = halt.replace(b'"by":"olga"', b'"by":"anna"')
    assert judged(changed, reset) == (BROKEN, judged(changed, reset)[1])
    assert "operations.jsonl: record 1: it was changed" in judged(changed, reset)[1]
    forged = rehashed(halt, lambda body: body.replace(b'"by":"olga"', b'"by":"anna"'))
    assert judged(forged, reset)[0] == BROKEN
    assert "another operation 1 than this bundle" in judged(forged, reset)[1]
    assert "operation 3, which was signed, is missing" in judged(halt)[1]
    assert "record 2 does not come after" in judged(reset, halt)[1]


def test_parts_of_another_bundle_are_found(evidence: Contents):
    other = msgspec.structs.replace(evidence, withheld=(), has_withheld=False, heads=(), chunks=evidence.chunks[:1])
    mine, theirs = archive.unpack(packed(evidence)), archive.unpack(packed(other))

    for name in (bundle.MANIFEST, *bundle.NAMES):
        if mine[name] != theirs[name]:
            assert verify(archive.pack({**mine, name: theirs[name]}), KNOWN).code == BROKEN, name
    assert verify(packed(other), KNOWN).code == WHOLE


def test_a_bundle_passed_off_as_another_runs_is_found(evidence: Contents):
    data = packed(evidence).replace(evidence.run.encode(), b"r-" + b"0" * (len(evidence.run) - 2))

    assert verify(data, KNOWN).code in (BROKEN, NOT_A_BUNDLE)


def test_a_bundle_signed_again_with_another_key_is_not_believed(evidence: Contents):
    parts = archive.unpack(packed(evidence))

    assert verify(mended(parts, OTHER), KNOWN).code == UNKNOWN
    assert verify(mended(parts, KEY), KNOWN).code == WHOLE


@pytest.mark.anyio
async def test_a_journal_whose_tail_was_cut_after_a_published_head_is_found(stopped: Sample, evidence: Contents):
    """Somebody has cut the store itself, log and all, and makes an honest bundle of what is left."""
    async with await open_journal(stopped.store) as journal:
        entries = await journal.evidence.signed()
    published = b"".join(msgspec.json.encode(log.published(entry)) + b"\n" for entry in entries)
    left = evidence.records[:-2]
    stops = tuple(stops_in(left, texts_in(evidence.chunks)))
    cut = msgspec.structs.replace(evidence, records=left, stops=stops, heads=())

    honest, cut_off = verify(packed(evidence), KNOWN, published), verify(packed(cut), KNOWN, published)

    assert verify(packed(cut), KNOWN).code == WHOLE, "by itself it looks like a run that goes on"
    assert (cut_off.code, "its tail was cut off" in cut_off.sentence) == (BROKEN, True)
    assert honest.code == WHOLE
    assert honest.parts[-1].name == "the file of heads"


@pytest.mark.anyio
async def test_a_published_file_that_was_changed_is_found(stopped: Sample, evidence: Contents):
    async with await open_journal(stopped.store) as journal:
        entries = await journal.evidence.signed()
    lines = [msgspec.json.encode(log.published(entry)) + b"\n" for entry in entries]
    assert len(lines) >= 3
    whole, data = b"".join(lines), packed(evidence)

    assert verify(data, KNOWN, b"".join(lines[:1] + lines[2:])).code == BROKEN
    assert verify(data, KNOWN, b"".join([lines[1], lines[0], *lines[2:]])).code == BROKEN
    for place in range(0, len(whole), 5):
        changed = bytearray(whole)
        changed[place] ^= 1
        assert verify(data, KNOWN, bytes(changed)).code == BROKEN, place
