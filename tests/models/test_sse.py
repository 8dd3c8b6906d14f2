"""Events come out of a stream of bytes whole, whatever way the bytes were cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from checkrein.models.http.sse import EventParser, EventTooLarge

LINES = st.sampled_from(
    [
        b"data: {}",
        b"data:{}",
        b"data:  two spaces",
        b"data",
        b"data:",
        b"data: \xc3\xa9\xf0\x9f\x98\x80",
        b"datax: no",
        b": a comment",
        b":",
        b"event: message_stop",
        b"id: 7",
        b"retry: 10",
        b"\xef\xbb\xbfdata: no",
        b"",
        b"",
        b"",
    ]
)
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])
STREAMS = st.builds(
    lambda bom, lines: bom + b"".join(line + end for line, end in lines),
    st.sampled_from([b"", b"\xef\xbb\xbf"]),
    st.lists(st.tuples(LINES, ENDS), max_size=20),
)


def pieces(stream: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted({cut % (len(stream) + 1) for cut in cuts}), len(stream)]
    return [stream[start:end] for start, end in pairwise(places)]


def events(stream: list[bytes], limit: int = 1 << 20) -> list[bytes]:
    parser = EventParser(limit)
    return [event for piece in stream for event in parser.feed(piece)]


def as_the_standard_says(stream: bytes) -> list[bytes]:
    """The plainest reading: whole text, line by line."""
    text = stream.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    found: list[bytes] = []
    data: list[bytes] = []
    for line in text.split(b"\n")[:-1]:
        if not line and data:
            found.append(b"\n".join(data))
            data = []
        elif line.split(b":")[0] == b"data":
            data.append(line[len(b"data:") :].removeprefix(b" "))
    return found


@given(STREAMS, st.lists(st.integers(min_value=0), max_size=12))
@example(b"data: a\r\n\r\ndata: b\r\n\r\n", [10])
@example(b"data: a\r\rdata: b\n\n", [8])
@example(b"\xef\xbb\xbfdata: a\n\n", [1, 2])
@example(b"event: x\ndata: a\n\nevent: y\ndata: b\n\n", [])
def test_any_cut_of_a_stream_gives_the_same_events_as_the_whole_of_it(stream: bytes, cuts: list[int]):
    expected = as_the_standard_says(stream)

    assert events([stream]) == expected
    assert events(pieces(stream, cuts)) == expected
    assert events([bytes([byte]) for byte in stream]) == expected


def test_a_piece_of_whole_events_gives_their_data():
    parser = EventParser()

    assert parser.feed(b'data: {"a":1}\n\ndata: {"b":2}\n\ndata: [DONE]\n\n') == [b'{"a":1}', b'{"b":2}', b"[DONE]"]


def test_lines_of_data_make_one_event():
    assert events([b"data: one\ndata: two\n\n"]) == [b"one\ntwo"]


def test_an_event_that_has_not_ended_is_not_given_out():
    assert events([b"data: half"]) == []
    assert events([b"data: half\n"]) == []


@pytest.mark.parametrize(
    "endless",
    [
        [b"data: ", b"x" * 60, b"x" * 60],
        [b"data: " + b"x" * 120 + b"\n\n"],
        [b"data: x\n"] * 20,
        [b"data:\n"] * 30,
        [b": a comment that never ends"] * 20,
    ],
    ids=["one line", "at once", "many lines", "many empty lines", "a comment"],
)
def test_an_event_that_never_ends_is_refused_instead_of_kept(endless: list[bytes]):
    with pytest.raises(EventTooLarge):
        events(endless, limit=100)


def test_many_events_and_comments_together_may_be_larger_than_one():
    stream = [b"data: " + b"x" * 80 + b"\n\n: still here\n\n" for _ in range(20)]

    assert len(events(stream, limit=100)) == 20
    assert len(events([b"".join(stream)], limit=100)) == 20


def test_a_line_in_very_many_pieces_is_not_read_again_for_each_of_them():
    """A megabyte in pieces of one byte: quadratic work would take minutes."""
    parser = EventParser()
    for _ in range(200_000):
        assert parser.feed(b"x") == []
    for _ in range(100_000):
        parser.feed(b"\ndata: ")

    assert len(parser.feed(b"\n\n")) == 1
