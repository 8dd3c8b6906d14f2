"""How processes talk that belong together, as a runtime and a worker: over a socket pair that nothing else writes to.

A message is a head, which is a small JSON object, and a body of bytes that is passed on as it is; the lengths of both
go before them. Standard input and output take no part, so a tool may print what it likes. Standard library only:
workers start with it.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

_LENGTHS: Final = struct.Struct("!II")
_CHUNK: Final = 1 << 18
LONGEST_BYTES: Final = 1_000_000_000
"""Of a head and its body together. What is longer no store would keep either."""

Head = dict[str, Any]
Message = tuple[Head, bytes]


@contextmanager
def socket_pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Our end, which does not block, and that of a process to be started inside: theirs is closed here in the end.

    Ours is closed too where that process could not be started.
    """
    ours, theirs = socket.socketpair()
    try:
        ours.setblocking(False)
        yield ours, theirs
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()


class BadMessage(ValueError):
    """Nobody of ours sends that, and whoever is sent it closes the line."""


class MessageTooLong(BadMessage):
    """It is not waited for."""


def check_length(length: int, longest: int = LONGEST_BYTES) -> None:
    """Raises `MessageTooLong`."""
    if length > longest:
        raise MessageTooLong(f"A message of {length:,} bytes is too long; {longest:,} are the most.")


def pack(head: Head, body: bytes = b"") -> bytes:
    """A message as it goes over the line. Raises `MessageTooLong`."""
    encoded = json.dumps(head).encode()
    check_length(len(encoded) + len(body))
    return b"".join((_LENGTHS.pack(len(encoded), len(body)), encoded, body))


class Unpacker:
    """Puts messages together again from pieces of any size. One that is longer than `longest`, or whose head is longer
    than `longest_head`, is not waited for."""

    def __init__(self, longest: int = LONGEST_BYTES, *, longest_head: int = LONGEST_BYTES) -> None:
        self._buffer = bytearray()
        self._longest = longest
        self._longest_head = longest_head

    def feed(self, piece: bytes) -> Iterator[Message]:
        """The messages that are complete with this piece. Raises `BadMessage`."""
        self._buffer += piece
        while len(self._buffer) >= _LENGTHS.size:
            head_length, body_length = _LENGTHS.unpack_from(self._buffer)
            check_length(head_length, self._longest_head)
            check_length(head_length + body_length, self._longest)
            body_at = _LENGTHS.size + head_length
            end = body_at + body_length
            if len(self._buffer) < end:
                return
            head = _head(bytes(self._buffer[_LENGTHS.size : body_at]))
            body = bytes(self._buffer[body_at:end])
            del self._buffer[:end]
            yield head, body


def _head(encoded: bytes) -> Head:
    try:
        head = json.loads(encoded)
    except (ValueError, RecursionError) as error:
        raise BadMessage(f"The head of a message is no JSON: {error}") from error
    if not isinstance(head, dict):
        raise BadMessage(f"The head of a message is {type(head).__name__}, and not an object.")
    return head


class Channel:
    """The worker's end: blocking, one reader."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._socket.set_inheritable(False)  # not for the programs that a tool starts
        self._unpacker = Unpacker()
        self._waiting: list[Message] = []

    def receive(self) -> Message | None:
        """The next message; None when the other side is gone."""
        while not self._waiting:
            try:
                piece = self._socket.recv(_CHUNK)
            except ConnectionError:
                return None
            if not piece:
                return None
            self._waiting.extend(self._unpacker.feed(piece))
        return self._waiting.pop(0)

    def arrived(self) -> list[Message]:
        """What has come and is not received yet, without waiting for more."""
        while True:
            try:
                piece = self._socket.recv(_CHUNK, socket.MSG_DONTWAIT)
            except OSError:  # nothing more now; that the other side is gone is for `receive` to say
                return self._waiting
            if not piece:
                return self._waiting
            self._waiting.extend(self._unpacker.feed(piece))

    def send(self, head: Head, body: bytes = b"") -> None:
        self._socket.sendall(pack(head, body))

    def close(self) -> None:
        self._socket.close()
