"""How a runtime and a worker talk: messages over a socket pair that nothing else writes to.

A message is a head, which is a small JSON object, and a body of bytes that is passed on as it is. Standard input and
output take no part, so a tool may print what it likes.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from typing import Any, Final

_LENGTHS: Final = struct.Struct("!II")
_CHUNK: Final = 1 << 18

Head = dict[str, Any]
Message = tuple[Head, bytes]


def pack(head: Head, body: bytes = b"") -> bytes:
    encoded = json.dumps(head).encode()
    return b"".join((_LENGTHS.pack(len(encoded), len(body)), encoded, body))


class Unpacker:
    """Puts messages together again from pieces of any size."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, piece: bytes) -> Iterator[Message]:
        self._buffer += piece
        while len(self._buffer) >= _LENGTHS.size:
            head_length, body_length = _LENGTHS.unpack_from(self._buffer)
            body_at = _LENGTHS.size + head_length
            end = body_at + body_length
            if len(self._buffer) < end:
                return
            head = json.loads(bytes(self._buffer[_LENGTHS.size : body_at]))
            body = bytes(self._buffer[body_at:end])
            del self._buffer[:end]
            yield head, body


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

    def send(self, head: Head, body: bytes = b"") -> None:
        self._socket.sendall(pack(head, body))

    def close(self) -> None:
        self._socket.close()
