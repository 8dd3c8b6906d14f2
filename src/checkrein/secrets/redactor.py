"""What everybody uses who redacts something: `Secrets`, for texts, JSON, and texts that come in pieces.

Most texts hold no secret, and that has to be cheap to see: known strings and the starts of shapes are looked for as
plain substrings, which is faster than a regular expression made of them. Only a text in which one occurs is read with
care. Known strings are taken out first, then what has the shape of a secret in what is left.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, TypeAlias

from checkrein.secrets.known import KnownStrings, in_environment, named_strings
from checkrein.secrets.shapes import WELL_KNOWN, Shape, Shapes
from checkrein.secrets.stream import CONTEXT, Finder, Reader


class Secrets:
    """What is secret: known strings, and what has a shape that only keys and tokens have.

    `strings` are the secrets themselves, or a mapping of names to them; the name is what stands in a secret's place.
    They are kept in memory only, and nothing that this makes or raises shows them.
    """

    def __init__(
        self, strings: Iterable[str] | Mapping[str, str] = (), *, shapes: Iterable[Shape] = WELL_KNOWN
    ) -> None:
        self._strings = dict(named_strings(strings))
        self._shapes = Shapes(shapes)
        self._look_for_all()

    def learn(self, strings: Mapping[str, str]) -> None:
        """Look for these too, from now on: what becomes known while runs go on. Where redaction is off it stays off."""
        known = set(self._strings.values())
        new = {name: secret for name, secret in named_strings(strings) if secret not in known}
        if self and new:
            self._strings |= {name if name not in self._strings else f"{name}_2": each for name, each in new.items()}
            self._look_for_all()

    def _look_for_all(self) -> None:
        self._known = KnownStrings(self._strings)
        self._finders: tuple[Finder, ...] = tuple(each for each in (self._known, self._shapes) if each.needles)
        self._needles = tuple(needle for finder in self._finders for needle in finder.needles)
        self._heads = re.compile("|".join(finder.heads for finder in self._finders), re.DOTALL)

    @classmethod
    def from_environment(
        cls,
        environ: Mapping[str, str] | None = None,
        *,
        also: Iterable[str] | Mapping[str, str] = (),
        shapes: Iterable[Shape] = WELL_KNOWN,
    ) -> Secrets:
        """The values of environment variables whose names say that they are secret, and `also` these."""
        return cls({**in_environment(environ), **dict(named_strings(also))}, shapes=shapes)

    @classmethod
    def of(cls, given: SecretsGiven) -> Secrets:
        """None: those of the environment; nothing at all: off; strings: these, and the well-known shapes."""
        if given is None:
            return cls.from_environment()
        if isinstance(given, Secrets):
            return given
        strings = given if isinstance(given, str | Mapping) else tuple(given)
        return cls(strings) if strings else OFF

    def __repr__(self) -> str:
        return f"<Secrets: {self._known.count} strings, {len(self._shapes.needles)} shapes>"

    def __bool__(self) -> bool:
        """Whether there is anything to look for."""
        return bool(self._needles)

    @property
    def most_held(self) -> int:
        """The most characters that a `Stream` holds back."""
        return sum(finder.most_held for finder in self._finders)

    def text(self, text: str) -> str:
        """`text` without secrets; the same object if there are none."""
        if not self._may_hold_any(text):
            return text
        redacted = text
        for finder in self._finders:
            redacted = Reader(finder).whole(redacted)
        return text if redacted == text else redacted

    def json(self, body: bytes) -> bytes:
        """A JSON value without secrets in its strings, keys and numbers, however they are escaped; the same object if
        there are none. What is no JSON is redacted as text."""
        if not self._needles:
            return body
        try:
            text = body.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            return self.text(body.decode("latin-1")).encode("latin-1", "replace")
        if not self._may_hold_any(_ESCAPES.sub(_unescaped, text) if "\\" in text else text):
            return body
        redacted = _LEAF.sub(self._leaf, text) if _is_json(text) else self.text(text)
        return body if redacted == text else redacted.encode("utf-8", "surrogatepass")

    def stream(self) -> Stream:
        """For one text that comes in pieces."""
        return Stream(self._finders, self._heads)

    def _may_hold_any(self, text: str) -> bool:
        for needle in self._needles:  # noqa: SIM110 - `any` over a generator takes half as long again
            if needle in text:
                return True
        return False

    def _leaf(self, found: re.Match[str]) -> str:
        leaf = found[0]
        value = json.loads(leaf, strict=False) if "\\" in leaf else leaf.strip('"')
        redacted = self.text(value)
        return leaf if redacted is value else json.dumps(redacted, ensure_ascii=False)


SecretsGiven: TypeAlias = Secrets | Mapping[str, str] | Iterable[str] | None

OFF: Final = Secrets(shapes=())
"""Looks for nothing."""


class Stream:
    """One text that comes in pieces. What it passes on is, put together, what `Secrets.text` makes of the whole; only
    that a large part of a known string at the very end is not passed on either."""

    def __init__(self, finders: Iterable[Finder], heads: re.Pattern[str]) -> None:
        """`heads` is all of theirs."""
        self._readers = [Reader(finder) for finder in finders]
        self._heads = heads
        self._before: str | None = ""
        """The last characters that have been dealt with; None while that is not the same for all readers."""

    @property
    def has_redacted(self) -> bool:
        return any(reader.has_redacted for reader in self._readers)

    @property
    def held(self) -> int:
        """How many characters are held back now."""
        return sum(reader.held for reader in self._readers)

    def feed(self, text: str) -> str:
        """Read a piece, and return what may be passed on now."""
        if self._before is not None:
            # The usual piece: one look for all of them, and it is passed on as it is.
            whole = self._before + text
            if self._heads.search(whole, len(self._before)) is None:
                self._before = whole[-CONTEXT:]
                return text
            self._tell_readers(self._before)
        for reader in self._readers:
            text = reader.feed(text)
        before = {reader.before for reader in self._readers}
        self._before = before.pop() if len(before) == 1 else None
        return text

    def _tell_readers(self, before: str) -> None:
        for reader in self._readers:
            reader.pass_over(before)

    def end(self) -> str:
        """The text is over: what was held back and is no secret."""
        text = ""
        if self._before is not None:
            self._tell_readers(self._before)
        for reader in self._readers:
            text = reader.end(text)
        return text


# -- JSON

_LEAF: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|-?[0-9][0-9.eE+-]*', re.DOTALL)
"""A string, a key, or a number."""
_ESCAPES: Final = re.compile(r"(?:\\u[0-9a-fA-F]{4}|\\[^u])+")


def _unescaped(found: re.Match[str]) -> str:
    return _unescape(found[0])


@lru_cache(maxsize=256)
def _unescape(escapes: str) -> str:
    try:
        return str(json.loads(f'"{escapes}"'))
    except ValueError:
        return escapes


def _is_json(text: str) -> bool:
    try:
        json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return False
    return True
