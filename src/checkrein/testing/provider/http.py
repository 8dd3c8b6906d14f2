"""As much of HTTP/1.1 as a provider needs: requests out of bytes, responses into bytes. No sockets, no clock."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from email.utils import formatdate
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

import msgspec

LONGEST_HEAD: Final = 64 * 1024
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK: Final = b"0\r\n\r\n"
_CHUNK_SIZE: Final = re.compile(rb"([0-9a-fA-F]+)[^\r\n]*\r\n")


class BadRequest(Exception):
    """These bytes are no request of HTTP/1.1."""


class Incoming(msgspec.Struct, frozen=True):
    """A request with its whole body. Names of headers are in lower case."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes = b""

    @property
    def keep_alive(self) -> bool:
        return self.headers.get("connection", "").lower() != "close"


class Reader:
    """Collects bytes until a request is complete; what comes after it is kept for the next."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._head: Incoming | None = None
        self._body_at = 0

    def feed(self, data: bytes) -> None:
        self._buffer += data

    @property
    def wants_permission(self) -> bool:
        """The client waits for a 100 before it sends the body."""
        head = self._head
        waits = head is not None and head.headers.get("expect", "").lower() == "100-continue"
        return waits and len(self._buffer) == self._body_at

    def next(self) -> Incoming | None:
        """The next whole request, or None until more has been fed. Raises BadRequest."""
        if self._head is None and not self._read_head():
            return None
        assert self._head is not None
        found = self._chunked() if "transfer-encoding" in self._head.headers else self._counted(self._head)
        if found is None:
            return None
        body, end = found
        request = msgspec.structs.replace(self._head, body=body)
        del self._buffer[:end]
        self._head = None
        return request

    def _read_head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > LONGEST_HEAD:
                raise BadRequest("The head is too long.")
            return False
        first, *lines = bytes(self._buffer[:end]).decode("latin-1").split("\r\n")
        words = first.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            raise BadRequest(f"This is no request line: {first[:80]!r}")
        headers = {}
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon:
                raise BadRequest(f"This is no header: {line[:80]!r}")
            headers[name.lower()] = value.strip()
        target = urlsplit(words[1])
        self._head = Incoming(words[0], target.path, target.query, headers)
        self._body_at = end + 4
        return True

    def _counted(self, head: Incoming) -> tuple[bytes, int] | None:
        length = head.headers.get("content-length", "0")
        if not length.isdecimal():
            raise BadRequest(f"This is no length: {length!r}")
        end = self._body_at + int(length)
        return (bytes(self._buffer[self._body_at : end]), end) if len(self._buffer) >= end else None

    def _chunked(self) -> tuple[bytes, int] | None:
        body = bytearray()
        at = self._body_at
        while found := _CHUNK_SIZE.match(self._buffer, at):
            size, begin = int(found[1], 16), found.end()
            at = begin + size + 2
            if len(self._buffer) < at:
                return None
            if size == 0:
                return bytes(body), at
            body += self._buffer[begin : begin + size]
        return None


def head(status: int, headers: Mapping[str, str]) -> bytes:
    """The status line and headers of a response."""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Overloaded" if status == 529 else "Unknown"
    lines = [f"HTTP/1.1 {status} {phrase}", f"date: {formatdate(usegmt=True)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def chunk(data: bytes) -> bytes:
    """`data` as one chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def chunks(data: bytes, size: int | None) -> bytes:
    """`data` as one chunk, or as many of `size` bytes. Nothing is no chunk: an empty one would end the body."""
    if not data:
        return b""
    if size is None:
        return chunk(data)
    return b"".join(chunk(data[at : at + size]) for at in range(0, len(data), size))


def events(pieces: Iterable[tuple[str, object]]) -> bytes:
    """Named server-sent events, with their data as JSON."""
    encode = msgspec.json.encode
    return b"".join(b"event: %b\ndata: %b\n\n" % (name.encode(), encode(data)) for name, data in pieces)


def data(value: object) -> bytes:
    """A server-sent event without a name."""
    return b"data: %b\n\n" % msgspec.json.encode(value)
