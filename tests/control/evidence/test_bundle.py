"""What a bundle says of a stop (D13, D14): what had been shown, when, by whom it was stopped, what was withheld."""

from __future__ import annotations

import io
import zipfile
from hashlib import sha256
from typing import Any

import msgspec
import pytest

from checkrein.control.evidence import archive, bundle
from checkrein.control.evidence.bundle import Contents
from checkrein.control.evidence.verify import BROKEN, NOT_A_BUNDLE, UNKNOWN, WHOLE, verify
from checkrein.control.stops import csv_of, shown_by
from checkrein.core.enums import Verb
from checkrein.core.events import CallFinished, VerbAccepted, WatcherFlagged
from tests.control.evidence.sample import AT, INSTRUCTIONS, KEY, KNOWN, OTHER, Sample, packed


def one(evidence: Contents, kind: type) -> list[Any]:
    return [record.event for record in evidence.records if isinstance(record.event, kind)]


def test_d13_what_readers_were_handed_is_kept_with_the_time_of_each_flush(stopped: Sample, evidence: Contents):
    (finished,) = one(evidence, CallFinished)
    handed = "".join(chunk.text for chunk in stopped.heard)

    assert finished.shown[-1][1] == finished.chars == len(handed)
    assert list(finished.shown) == sorted(finished.shown)
    assert 2 <= len(finished.shown) <= 129, "not one for each token, and not one for all"
    assert finished.shown[0][0] >= 0
    assert evidence.records[0].event.at <= finished.shown_at <= finished.at
    assert shown_by(finished, finished.shown_at - 1) == 0
    assert shown_by(finished, finished.at) == len(handed)


def test_d13_what_a_watcher_withheld_is_kept_apart_with_its_hash_and_length_in_the_record(evidence: Contents):
    (flag,) = one(evidence, WatcherFlagged)
    (withheld,) = evidence.withheld

    assert withheld.flag == flag.id
    assert len(withheld.text) == flag.withheld_chars > 0
    assert sha256(withheld.text.encode()).hexdigest() == flag.withheld_hash
    assert withheld.text.strip()[:20] in f"My instructions are: {INSTRUCTIONS}"
    events = b"".join(record.body for record in evidence.records)
    assert withheld.text.encode() not in events
    shown = "".join(chunk.text for chunk in evidence.chunks)
    assert withheld.text not in shown
    assert flag.withheld_from == len(shown)


def test_d14_every_verb_has_the_clock_of_the_host_and_of_the_store(evidence: Contents):
    verbs = one(evidence, VerbAccepted)

    assert [verb.verb for verb in verbs] == [Verb.PAUSE, Verb.CANCEL]
    assert all(verb.store_at is not None and abs(verb.store_at - verb.at) < 30 for verb in verbs)


def test_d14_a_stop_stands_beside_the_flag_and_the_text_shown_by_then(evidence: Contents):
    pause, cancel = evidence.stops
    shown = "".join(chunk.text for chunk in evidence.chunks)

    assert (cancel.verb, cancel.by, cancel.reasons) == (Verb.CANCEL, "ana", ("it recites its instructions",))
    assert cancel.flag is not None
    assert cancel.flag.watcher == "confession"
    assert cancel.flag.withheld_chars > 0
    assert cancel.flag.seconds_before > 0
    assert cancel.last_text == shown
    assert (cancel.shown_by_then, cancel.shown_in_all) == (len(shown), len(shown))
    assert pause.by == "checkrein"


def test_a_bundle_is_whole_signed_and_names_the_stop(evidence: Contents):
    finding = verify(packed(evidence), KNOWN)

    assert (finding.code, finding.signed_by) == (WHOLE, KEY.fingerprint)
    assert [part.name for part in finding.parts] == list(bundle.NAMES)
    assert any("cancel by ana at event" in line and "characters of call" in line for line in finding.stops)


def test_the_same_contents_give_the_same_bytes(evidence: Contents):
    assert packed(evidence) == packed(evidence)


def test_halts_and_resets_that_touched_the_run_are_in_its_bundle_and_those_of_others_are_not(evidence: Contents):
    found = [(one.operation.type, one.operation.by, one.operation.reason) for one in evidence.operations]
    said = {part.name: part.says for part in verify(packed(evidence), KNOWN).parts}

    assert found == [("halt.latched", "olga", "until it is mended"), ("halt.lifted", "otto", "it is mended")]
    assert said[bundle.OPERATIONS] == "2 operations that touched this run, each as it was hashed"
    assert b"of no concern here" not in packed(evidence)
    page = bundle.page_of(evidence)
    assert "olga on host" in page
    assert "halted agent billing: “until it is mended”" in page
    assert "lifted the halt of agent billing: “it is mended”" in page


def test_any_program_opens_it(evidence: Contents):
    with zipfile.ZipFile(io.BytesIO(packed(evidence))) as opened:
        assert opened.testzip() is None
        assert opened.namelist() == [bundle.MANIFEST, *bundle.NAMES]
        assert {entry.date_time for entry in opened.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_a_bundle_without_a_known_signature_says_so(evidence: Contents):
    unsigned, stranger = verify(packed(evidence, None), KNOWN), verify(packed(evidence, OTHER), KNOWN)

    assert (unsigned.code, stranger.code) == (UNKNOWN, UNKNOWN)
    assert "not signed" in unsigned.sentence
    assert OTHER.fingerprint in stranger.sentence


@pytest.mark.parametrize("data", [b"", b"PK", b"hello", archive.pack({"a.txt": b"a"})])
def test_what_is_not_a_bundle_is_called_that(data: bytes):
    assert verify(data, KNOWN).code == NOT_A_BUNDLE


def test_withheld_text_is_in_a_bundle_only_where_it_was_asked_for(evidence: Contents):
    (withheld,) = evidence.withheld
    without = msgspec.structs.replace(evidence, withheld=(), has_withheld=False)

    data = packed(without)

    assert withheld.text.encode() not in data
    assert verify(data, KNOWN).code == WHOLE
    assert withheld.text.encode() in packed(evidence)


def test_the_story_has_no_script_and_nothing_from_elsewhere(evidence: Contents):
    nasty = msgspec.structs.replace(evidence.records[0].event, goal='<script src="http://x.example/a.js">')
    first = msgspec.structs.replace(evidence.records[0], event=nasty)
    page = bundle.page_of(msgspec.structs.replace(evidence, records=(first, *evidence.records[1:])))

    assert "&lt;script src=&quot;http://x.example/a.js&quot;&gt;" in page
    for forbidden in ("<script", "<img", "<link", "<iframe", 'src="', "url(", "javascript:", " onload"):
        assert forbidden not in page
    assert "default-src &#x27;none&#x27;" in page
    assert "cancelled it on" in page
    assert "it recites its instructions" in page


def test_a_table_of_stops_has_no_formula(evidence: Contents):
    hostile = msgspec.structs.replace(evidence.stops[1], by="=HYPERLINK(1)", reasons=("@SUM(1)",))

    head, line = csv_of([hostile]).splitlines()

    assert head.startswith("at,store_at,verb,by,reasons,run")
    assert ",'=HYPERLINK(1),'@SUM(1)," in line


def test_a_later_format_is_refused(evidence: Contents):
    parts = archive.unpack(packed(evidence))
    manifest = msgspec.json.decode(parts[bundle.MANIFEST], type=bundle.Manifest)
    later = msgspec.structs.replace(manifest, version=2)
    later = msgspec.structs.replace(later, digest=bundle.digest_of(later), signature="")

    finding = verify(archive.pack({**parts, bundle.MANIFEST: msgspec.json.encode(later)}), KNOWN)

    assert finding.code == BROKEN
    assert "does not know" in finding.sentence
    assert manifest.made_at == AT
