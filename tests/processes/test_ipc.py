"""Messages over a socket: whole however they are cut, and never longer than somebody would keep."""

from __future__ import annotations

import struct

import pytest

from checkrein.processes.ipc import LONGEST_BYTES, Message, MessageTooLong, Unpacker, check_length, pack

MESSAGES: list[Message] = [({"call": {"id": "c1"}}, b"\0body\xff"), ({}, b""), ({"end": "ä"}, b"x" * 5000)]


@pytest.mark.parametrize("size", [1, 7, 8, 9, 100_000])
def test_messages_arrive_whole_however_they_are_cut(size: int) -> None:
    unpacker = Unpacker()
    sent = b"".join(pack(head, body) for head, body in MESSAGES)

    pieces = [sent[at : at + size] for at in range(0, len(sent), size)]

    assert [message for piece in pieces for message in unpacker.feed(piece)] == MESSAGES


def test_a_message_that_is_too_long_is_refused_when_it_is_announced() -> None:
    unpacker = Unpacker(longest=1000)

    assert list(unpacker.feed(pack({}, b"x" * 998))) == [({}, b"x" * 998)]
    with pytest.raises(MessageTooLong, match="A message of 1,001 bytes is too long; 1,000 are the most"):
        list(unpacker.feed(struct.pack("!II", 2, 999)))


def test_a_message_that_nobody_would_take_is_not_sent() -> None:
    check_length(LONGEST_BYTES)
    with pytest.raises(MessageTooLong):
        check_length(LONGEST_BYTES + 1)
