"""Events as bytes, and the chain over them."""

from __future__ import annotations

from hashlib import sha256

import msgspec
import pytest

from checkrein.core.enums import Outcome
from checkrein.core.events import CallFinished
from checkrein.errors import StoreDamaged, StoreTooNew
from checkrein.journal import encoding
from tests.journal import build


@pytest.mark.parametrize(
    "event",
    [
        build.created("r", parent="p", root="q"),
        build.started(3),
        build.permit(arguments=msgspec.Raw(b'{"to":["a"]}')),
        build.outcome(result={"ä": [1, 2.5, None, True]}),
        CallFinished(id="x", at=1.0, call="c", outcome=Outcome.FAILED, error="no"),
        build.answered(),
        build.resolved(),
        build.opened(),
        build.undone(),
        build.verb(),
        build.settled(build.verb(), build.ended().status),
        build.reason(),
        build.ended(),
    ],
    ids=lambda event: type(event).__name__,
)
def test_an_event_comes_back_as_it_was(event):
    body = encoding.encode(event)

    assert encoding.decode(body) == event
    assert encoding.encode(encoding.decode(body)) == body
    assert b"\n" not in body


def test_an_event_of_a_kind_not_known_here_is_of_a_later_version():
    with pytest.raises(StoreTooNew, match=r"run\.teleported"):
        encoding.decode(b'{"type":"run.teleported","id":"x","at":1.0}')


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"id":"x"}', b'{"type":"run.finished","id":"x"}'])
def test_an_event_that_is_not_whole_is_damage(body: bytes):
    with pytest.raises(StoreDamaged):
        encoding.decode(body)


def test_the_chain_is_what_the_documentation_says():
    first = sha256(sha256(b"checkrein run r-7").digest() + bytes([0, 0, 0, 0, 0, 0, 0, 1]) + b"body").digest()

    assert encoding.link(encoding.genesis("r-7"), 1, b"body") == first


def test_every_part_of_a_link_matters():
    genesis = encoding.genesis("r")
    hashes = [
        encoding.link(genesis, 1, b"body"),
        encoding.link(genesis, 2, b"body"),
        encoding.link(genesis, 1, b"another"),
        encoding.link(encoding.genesis("s"), 1, b"body"),
    ]

    assert len(set(hashes)) == 4
