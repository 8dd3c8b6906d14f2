"""Server-sent events out of the bytes of a response, however the network has cut them.

Only what follows `data:` is given out. Both wires repeat the kind of an event inside its data, so names, ids, comments
and retry times are dropped. An event grows to `limit` bytes at most: a provider that never ends one costs an error and
not the memory. Every byte is looked at once, whatever the sizes of the pieces.

This runs for every token. The usual piece, whole events of one `data:` line each, takes a path of its own.
"""

from __future__ import annotations

from typing import Final

MAX_EVENT_BYTES: Final = 1 << 20
"""A single event of a megabyte is no answer of a model: the longest seen are whole tool calls of some 100 kB."""

_BOM: Final = b"\xef\xbb\xbf"


class EventTooLarge(ValueError):
    """An event, or one of its lines, is longer than the limit. Nothing more can be read from this stream."""


class EventParser:
    """Feed it bytes, get the data of the events that they complete. One for each response."""

    __slots__ = ("_begun", "_data", "_data_size", "_limit", "_partial", "_partial_size", "_skips_newline")

    def __init__(self, limit: int = MAX_EVENT_BYTES) -> None:
        self._limit = limit
        self._partial: list[bytes] = []
        """Pieces of a line that has not ended."""
        self._partial_size = 0
        self._data: list[bytes] = []
        """The data lines of an event that has not ended."""
        self._data_size = 0
        self._begun = False
        self._skips_newline = False
        """The last piece ended in CR: a LF that comes next belongs to it."""

    def feed(self, piece: bytes) -> list[bytes]:
        """The data of each event that `piece` completes. Raises `EventTooLarge`."""
        if (
            self._begun
            and piece.startswith(b"data: ")
            and piece.endswith(b"\n\n")
            and not (self._partial or self._data or self._skips_newline)
            and len(piece) <= self._limit
        ):
            events = piece[6:-2].split(b"\n\ndata: ")
            # Then no event has another line.
            if piece.count(b"\n") == 2 * len(events) and b"\r" not in piece:
                return events
        return self._feed_any(piece)

    def _feed_any(self, piece: bytes) -> list[bytes]:
        if self._skips_newline or b"\r" in piece:
            piece = self._with_plain_ends(piece)
        if not self._begun:
            piece = self._without_bom(piece)
        if self._partial or self._data or len(piece) > self._limit or not piece.endswith(b"\n\n"):
            return self._by_lines(piece)
        events: list[bytes] = []
        for block in piece[:-2].split(b"\n\n"):
            # One line of data, with at most a line before it that names the event.
            last = block.rfind(b"\n") + 1
            if block.startswith(b"data: ", last) and (
                not last or (block.startswith(b"event: ") and block.find(b"\n") + 1 == last)
            ):
                events.append(block[last + 6 :])
            else:
                events += self._by_lines(block + b"\n\n")
        return events

    def _by_lines(self, piece: bytes) -> list[bytes]:
        *lines, rest = piece.split(b"\n")
        events: list[bytes] = []
        for line in lines:
            if self._partial:
                line = b"".join([*self._partial, line])
                self._partial.clear()
                self._partial_size = 0
            if line:
                self._take(line)
            elif self._data:
                events.append(b"\n".join(self._data))
                self._data.clear()
                self._data_size = 0
        if rest:
            self._partial.append(rest)
            self._partial_size += len(rest)
            self._check()
        return events

    def _take(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
            # The whole line counts, so that a hundred thousand empty ones are too many as well.
            self._data_size += len(line)
            self._check()

    def _check(self) -> None:
        if self._data_size + self._partial_size > self._limit:
            raise EventTooLarge(f"An event of more than {self._limit:,} bytes.")

    def _with_plain_ends(self, piece: bytes) -> bytes:
        """`piece` with LF where it has CR or CRLF."""
        if not piece:
            return piece
        if self._skips_newline:
            piece = piece.removeprefix(b"\n")
        self._skips_newline = piece.endswith(b"\r")
        return piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _without_bom(self, piece: bytes) -> bytes:
        start = b"".join([*self._partial, piece])
        self._partial.clear()
        if len(start) < len(_BOM) and _BOM.startswith(start):
            self._partial.append(start)
            return b""
        self._begun = True
        return start.removeprefix(_BOM)
