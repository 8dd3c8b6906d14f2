"""Reading a text that comes in pieces as if it had come as one.

What could still become a secret is held back until that is known, and nothing else is. So what is passed on does not
depend on how the text was cut, and is never late by more than the longest secret, or than a shape takes to be
recognised.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple, Protocol

CONTEXT: Final = 3
"""How many characters before a secret may decide whether it is one."""


class Found(NamedTuple):
    """A secret in a text, or the beginning of one."""

    start: int
    end: int
    label: str
    """What stands in its place."""
    rest: re.Pattern[str] | None = None
    """What else belongs to it. It looks at most one character ahead."""


class Finder(Protocol):
    """Knows some secrets."""

    needles: tuple[str, ...]
    """A text that contains none of these holds no secret."""
    most_held: int
    """How many characters have to be seen, at most, to know whether a secret begins with the first of them."""
    heads: str
    """A regular expression that is found in every text with a secret in it, or with the beginning of one at its end;
    and seldom in others."""

    def find(self, text: str, start: int) -> Found | None:
        """The first secret that begins at `start` or later."""

    def begun(self, text: str, start: int) -> int:
        """Where the first thing begins, at `start` or later, about which more text could change what `find` says; the
        length of the text if there is none."""

    def cut(self, tail: str) -> str | None:
        """What stands in the place of `tail` if it is a large part of a secret, and broke off there."""


class Reader:
    """One text, read with one finder."""

    def __init__(self, finder: Finder) -> None:
        self.has_redacted = False
        self._finder = finder
        self._before = ""
        """The last characters that have been dealt with."""
        self._held = ""
        self._rest: re.Pattern[str] | None = None
        """Within a secret: what still belongs to it, and is dropped."""

    @property
    def held(self) -> int:
        """How many characters are held back now."""
        return len(self._held)

    @property
    def before(self) -> str | None:
        """The last characters that have been dealt with; None while it holds some back, or is within a secret."""
        return None if self._held or self._rest is not None else self._before

    def pass_over(self, before: str) -> None:
        """More was read elsewhere, without a secret in it, and these are its last characters."""
        self._before = before

    def feed(self, text: str) -> str:
        """Read a piece, and return what may be passed on now."""
        if self._rest is None and not self._held:
            # The usual piece, with no secret in it and none begun, is passed on as it is.
            whole, at = self._before + text, len(self._before)
            if self._finder.begun(whole, at) == len(whole) and self._finder.find(whole, at) is None:
                self._before = whole[-CONTEXT:]
                return text
        return self._read(text, is_end=False)

    def end(self, text: str = "") -> str:
        """Read the last piece, and return all that is left. A large part of a secret is not given out."""
        self._held += text
        start = self._finder.begun(self._held, 0)
        label = self._finder.cut(self._held[start:])
        if label is None:
            return self._read("", is_end=True)
        self._held, self.has_redacted = self._held[:start], True
        return self._read("", is_end=True) + label

    def whole(self, text: str) -> str:
        """Read a text that is all there is."""
        return self._read(text, is_end=True)

    def _read(self, text: str, *, is_end: bool) -> str:
        text = self._before + self._held + text
        at = len(self._before)
        given: list[str] = []
        while (at := self._skip_rest(text, at, is_end)) < len(text) and self._rest is None:
            sure = len(text) if is_end else self._finder.begun(text, at)
            found = self._finder.find(text, at)
            if found is None or found.start >= sure:
                given.append(text[at:sure])
                at = sure
                break
            given += text[at : found.start], found.label
            self.has_redacted = True
            self._rest, at = found.rest, found.end
        self._before, self._held = text[max(0, at - CONTEXT) : at], text[at:]
        return "".join(given)

    def _skip_rest(self, text: str, at: int, is_end: bool) -> int:
        """How far the secret goes whose beginning was found. It is over when `_rest` is None."""
        if self._rest is not None:
            found = self._rest.match(text, at)
            at = found.end() if found is not None else at
            if is_end or at < len(text) - 1:  # whether the last character belongs to it may depend on the next
                self._rest = None
        return at


def head_of(start: str, edge: str = "") -> str:
    """A regular expression for the first three characters of `start`, or as many of them as a text ends with.

    `edge` is looked at behind the first of them: an expression that begins with a literal is looked for much faster.
    """
    ending = ""
    for char in reversed(start[1:3]):
        ending = rf"(?:{re.escape(char)}{ending}|\Z)"
    return re.escape(start[0]) + edge + ending


def label(name: str) -> str:
    """What stands in the place of a secret of this name."""
    return f"[redacted:{re.sub(r'[^A-Za-z0-9_.-]', '_', name)}]"
