"""What a worker may pass on as a result."""

from __future__ import annotations

import pytest

from checkrein.calls import arguments


@pytest.mark.parametrize("body", [b"null", b'{"a":[1e400,-0.0]}', b"9" * 400, '"é"'.encode()])
def test_what_a_journal_and_a_program_can_read_is_readable_json(body: bytes) -> None:
    assert arguments.is_readable_json(body)


@pytest.mark.parametrize(
    "body",
    [b"", b"{not json", b'1,"more":2', b'"\xff"', b'"\\ud800"', b"NaN", b"9" * 5000, b"[" * 3000 + b"]" * 3000],
    ids=["nothing", "junk", "two values", "no text", "half a character", "no number", "endless number", "too deep"],
)
def test_what_one_of_them_cannot_read_is_not(body: bytes) -> None:
    assert not arguments.is_readable_json(body)
