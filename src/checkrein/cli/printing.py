"""Where a run is printed to: plain lines for people, JSON lines for programs.

A reader that goes away is not a stop: the rest is then printed to nobody, and the run goes on.
"""

from __future__ import annotations

import sys
from typing import Any, Protocol, TextIO

import msgspec

from checkrein.cli.clean import printable
from checkrein.cli.lines import Lines
from checkrein.cli.saying import line_of
from checkrein.journal.contract import Chunk, Recorded, attempt_of


class Printer(Protocol):
    @property
    def is_unheard(self) -> bool:
        """Whether whoever read the output has left."""

    def item(self, item: Recorded | Chunk) -> None:
        """One more thing that happened."""

    def say(self, text: str) -> None:
        """A word to whoever sits there."""

    def tool_print(self, line: str) -> None:
        """A line that a tool, or the agent's own code, has printed."""

    def end(self, fields: dict[str, Any]) -> None:
        """The last word: `type`, `run`, `status` and what else is known."""


class _Stream:
    """A text stream that may lose its reader."""

    def __init__(self, stream: TextIO) -> None:
        self._stream: TextIO | None = stream

    @property
    def is_lost(self) -> bool:
        return self._stream is None

    def line(self, text: str) -> None:
        if self._stream is None:
            return
        try:
            self._stream.write(f"{text}\n")
            self._stream.flush()
        except OSError:
            self._stream = None


class PlainPrinter:
    def __init__(self, out: TextIO | None = None) -> None:
        self._out = _Stream(out or sys.stdout)
        self._lines = Lines()

    @property
    def is_unheard(self) -> bool:
        return self._out.is_lost

    def item(self, item: Recorded | Chunk) -> None:
        for line in self._lines.take(item):
            self._out.line(line)

    def say(self, text: str) -> None:
        self._out.line(f"{'':7}  {'--':<10} {printable(text)}")

    def tool_print(self, line: str) -> None:
        self._out.line(f"{'':7}  {'prints':<10} {printable(line)}")

    def end(self, fields: dict[str, Any]) -> None:
        """The record of the end has said it all."""


class JsonPrinter:
    """Everything on standard output is JSON; what a tool prints goes to standard error."""

    def __init__(self, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self._out = _Stream(out or sys.stdout)
        self._err = _Stream(err or sys.stderr)

    @property
    def is_unheard(self) -> bool:
        return self._out.is_lost

    def item(self, item: Recorded | Chunk) -> None:
        if isinstance(item, Chunk):
            call, attempt = attempt_of(item.call)
            fields = {"type": "call.chunk", "call": call, "attempt": attempt, "offset": item.offset, "text": item.text}
            self._out.line(line_of(fields))
        else:
            self._out.line(line_of({"seq": item.seq, "run": item.run, **msgspec.json.decode(item.body)}))

    def say(self, text: str) -> None:
        self._err.line(printable(text))

    def tool_print(self, line: str) -> None:
        self._err.line(printable(line))

    def end(self, fields: dict[str, Any]) -> None:
        self._out.line(line_of(fields))
