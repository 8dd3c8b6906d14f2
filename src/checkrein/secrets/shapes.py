"""What a secret looks like that nobody has told us: the keys and tokens of well-known services.

A shape is more than a regular expression: it has to be recognised in a text that comes in pieces, so it says at every
point whether more text could still make a secret of what is there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Final, NamedTuple

import msgspec

from checkrein.errors import MisuseError
from checkrein.secrets.stream import Found, head_of, label

# Not in the middle of a word ("task-2024"), except that the end of an escape such as \n or %3D is no word.
_EDGE: Final = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt])|(?<=%[0-9A-Fa-f]{2}))"
_AT_EDGE: Final = re.compile(_EDGE)
_AFTER_EDGE: Final = r"(?:(?<![A-Za-z0-9].)|(?<=\\[nrt].)|(?<=%[0-9A-Fa-f]{2}.))"
"""The same, looked at from behind the first character."""


class Shape(msgspec.Struct, frozen=True):
    """`start`, taken literally, then at least `least` of `chars` (as between the brackets of a regular expression).

    Everything in `chars` that follows belongs to it too.

    Where that is not enough: `head` is a regular expression for what must follow `start`. It takes at least `least`
    characters, looks at `within` at most, and at none behind the first that is not in `chars`. `rest` is one for a
    single character that belongs to it after that; it may look one character ahead.
    """

    name: str
    start: str
    chars: str = "A-Za-z0-9_-"
    least: int = 16
    head: str = ""
    within: int = 0
    rest: str = ""

    def __post_init__(self) -> None:
        if len(self.start) < 2 or self.least < 1:
            raise MisuseError(
                f"The shape {self.name} would be found everywhere: give it a start of at least 2 characters, and a "
                "number of characters that must follow."
            )

    @property
    def most(self) -> int:
        """How many characters it takes, at most, to be sure that it is one."""
        return len(self.start) + (self.within or self.least)

    @property
    def pattern(self) -> str:
        """Matches the beginning of a secret, as much as it takes to be sure."""
        return _EDGE + re.escape(self.start) + (self.head or f"[{self.chars}]{{{self.least}}}")

    @property
    def rest_pattern(self) -> str:
        """Matches whatever else belongs to it; at once after `pattern`."""
        return f"(?:{self.rest or f'[{self.chars}]'})*"

    @property
    def begun_pattern(self) -> str:
        """Matches, up to the end of a text, what more text could make a secret of."""
        return rf"{_EDGE}{re.escape(self.start)}[{self.chars}]{{0,{self.most - len(self.start) - 1}}}\Z"


class _Ready(NamedTuple):
    """A shape, ready for use."""

    label: str
    pattern: re.Pattern[str]
    begun: re.Pattern[str]
    rest: re.Pattern[str]


class Shapes:
    """Finds what has one of these shapes.

    First where one may begin, by the starts alone: a regular expression of all shapes would try each of them at every
    character.
    """

    def __init__(self, shapes: Iterable[Shape]) -> None:
        self._shapes = tuple(shapes)
        self.needles = tuple(shape.start for shape in self._shapes)
        self.most_held = max((shape.most for shape in self._shapes), default=0)
        self._shortest = min((len(shape.start) + shape.least for shape in self._shapes), default=0)
        self._longest_start = max(map(len, self.needles), default=0)
        self._beginnings = frozenset(start[:n] for start in self.needles for n in range(1, len(start)))
        self._last = frozenset(beginning[-1] for beginning in self._beginnings)
        self.heads = "|".join(sorted({head_of(start, _AFTER_EDGE) for start in self.needles}))
        self._starts = re.compile("|".join(map(re.escape, self.needles)))
        if self._shapes != WELL_KNOWN:
            _ = self._ready  # whoever made them is told at once if one is wrong

    def find(self, text: str, start: int) -> Found | None:
        """Of a shape only the beginning is found, as much as it takes to be sure."""
        if len(text) - start < self._shortest:
            return None
        for at in self._candidates(text, start):
            for shape in self._ready[text[at]]:
                found = shape.pattern.match(text, at)
                if found is not None:
                    return Found(at, found.end(), shape.label, shape.rest)
        return None

    def begun(self, text: str, start: int) -> int:
        for at in self._candidates(text, max(start, len(text) - self.most_held)):
            if any(shape.begun.match(text, at) for shape in self._ready[text[at]]):
                return min(at, self._begun_start(text, start))
        return self._begun_start(text, start)

    def cut(self, tail: str) -> str | None:
        return None  # less than it takes to recognise one is of no use to anybody

    def _candidates(self, text: str, start: int) -> Iterator[int]:
        while (found := self._starts.search(text, start)) is not None:
            yield found.start()
            start = found.start() + 1

    def _begun_start(self, text: str, start: int) -> int:
        if text[-1:] not in self._last:
            return len(text)
        for at in range(max(start, len(text) - self._longest_start + 1), len(text)):
            if text[at:] in self._beginnings and _AT_EDGE.match(text, at):
                return at
        return len(text)

    @cached_property
    def _ready(self) -> dict[str, list[_Ready]]:
        """The shapes by the character that they begin with."""
        ready: dict[str, list[_Ready]] = {}
        for shape in self._shapes:
            try:
                patterns = list(map(re.compile, (shape.pattern, shape.begun_pattern, shape.rest_pattern)))
            except re.error as error:
                raise MisuseError(
                    f"The shape {shape.name} is no regular expression: {error}. Say `chars` as between brackets."
                ) from None
            ready.setdefault(shape.start[0], []).append(_Ready(label(shape.name), *patterns))
        return ready


_TOKEN: Final = "A-Za-z0-9_-"
_BEARER: Final = "A-Za-z0-9_~+/=-"
_PEM_TEXT: Final = r"A-Za-z0-9+/=:,\s\\"

# A token has a digit among its first characters; a word of prose that happens to begin like one has not.
_SOON_A_DIGIT: Final = "(?=[A-Za-z_-]{0,39}[0-9])"
_SOON_A_DIGIT_OF_BEARER: Final = "(?=[A-Za-z_~+/=.-]{0,39}[0-9])"

WELL_KNOWN: Final = (
    Shape("api_key", "sk-", _TOKEN, 20, head=f"{_SOON_A_DIGIT}[{_TOKEN}]{{20}}", within=40),
    Shape("stripe_key", "sk_live_", "A-Za-z0-9"),
    Shape("stripe_key", "sk_test_", "A-Za-z0-9"),
    Shape("stripe_key", "rk_live_", "A-Za-z0-9"),
    Shape("github_token", "ghp_", "A-Za-z0-9", 30),
    Shape("github_token", "gho_", "A-Za-z0-9", 30),
    Shape("github_token", "ghu_", "A-Za-z0-9", 30),
    Shape("github_token", "ghs_", "A-Za-z0-9", 30),
    Shape("github_token", "ghr_", "A-Za-z0-9", 30),
    Shape("github_token", "github_pat_", "A-Za-z0-9_", 30),
    Shape("gitlab_token", "glpat-", _TOKEN, 20),
    Shape("slack_token", "xox", "A-Za-z0-9-", 12, head="[abeoprs]-[A-Za-z0-9-]{10}", within=12),
    Shape("slack_token", "xapp-", "A-Za-z0-9-"),
    Shape("aws_key", "AKIA", "A-Z0-9"),
    Shape("aws_key", "ASIA", "A-Z0-9"),
    Shape("google_key", "AIza", _TOKEN, 35),
    Shape("npm_token", "npm_", "A-Za-z0-9", 30),
    Shape("huggingface_token", "hf_", "A-Za-z0-9", 30),
    Shape("checkrein_token", "ckr_", _TOKEN, 40),
    Shape("checkrein_token", "cks_", _TOKEN, 40),
    Shape("checkrein_token", "ckc_", _TOKEN, 40),
    Shape(
        "jwt",
        "eyJ",
        f".{_TOKEN}",
        14,
        head=rf"[{_TOKEN}]{{5,600}}\.eyJ[{_TOKEN}]{{5}}",
        within=609,
        rest=rf"[{_TOKEN}]|\.(?=[{_TOKEN}])",
    ),
    Shape(
        "private_key",
        "-----BEGIN ",
        rf"{_PEM_TEXT}-",
        26,
        # The first characters of the key have to be there too: the line alone is often quoted to explain what a key is.
        head=r"[A-Z0-9 ]{0,30}PRIVATE KEY-----(?:\s|\\[nr]){0,8}[A-Za-z0-9+/=:-]{10}",
        within=72,
        rest=rf"[{_PEM_TEXT}]|-(?=[^-])",
    ),
    *(
        Shape(
            "bearer_token",
            start,
            f".{_BEARER}",
            head=f"{_SOON_A_DIGIT_OF_BEARER}[.{_BEARER}]{{16}}",
            within=40,
            rest=rf"[{_BEARER}]|\.(?=[{_BEARER}])",
        )
        for start in ("Bearer ", "bearer ")
    ),
)
