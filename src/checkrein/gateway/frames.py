"""The frames of a stream of server-sent events: each with its bytes as they came, and the data in it.

What nobody has to change goes on byte for byte, so the bytes of a frame are kept, names and comments included.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from checkrein.models.http.sse import MAX_EVENT_BYTES, EventTooLarge


class Frame(NamedTuple):
    raw: bytes
    data: bytes
    """Empty where the frame is a comment."""


class FrameParser:
    """Feed it bytes, get the frames that they complete. One for each response."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> list[Frame]:
        """Each frame that `piece` completes. Raises `EventTooLarge`."""
        text = self._rest + piece if self._rest else piece
        # One event of one line, as most of them come.
        is_alone = text.startswith(b"data: ") and text.find(b"\n") == len(text) - 2 and text.endswith(b"\n\n")
        if is_alone and b"\r" not in text:
            self._rest = b""
            return [Frame(text, text[6:-2])]
        frames: list[Frame] = []
        at = 0
        while (end := _end_of(text, at)) > 0:
            frames.append(Frame(text[at:end], _data_of(text[at:end])))
            at = end
        self._rest = text[at:]
        if len(self._rest) > _LARGEST:
            raise EventTooLarge(f"An event of more than {_LARGEST:,} bytes.")
        return frames

    def end(self) -> list[Frame]:
        """What was left at the end of the response: a last frame whose blank line did not come."""
        rest, self._rest = self._rest, b""
        return [Frame(rest, _data_of(rest))] if rest.strip() else []


_LARGEST: Final = 16 * MAX_EVENT_BYTES


def _end_of(text: bytes, at: int) -> int:
    """Where the frame that begins at `at` ends; 0 where it does not."""
    plain = text.find(b"\n\n", at)
    if b"\r" not in text:
        return plain + 2 if plain >= 0 else 0
    ends = [found + len(mark) for mark in (b"\n\n", b"\r\n\r\n", b"\r\r") if (found := text.find(mark, at)) >= 0]
    return min(ends, default=0)


def _data_of(raw: bytes) -> bytes:
    if raw.startswith(b"data: ") and raw.count(b"\n") == 2 and b"\r" not in raw:
        return raw[6:-2]
    lines = (line for line in raw.splitlines() if line.startswith(b"data:"))
    return b"\n".join(line[5:].removeprefix(b" ") for line in lines)
