"""How the watchers are measured: what came through, and how much of the instructions was in it.

None of this uses the watchers' own idea of what is alike.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from checkrein.watchers import Flag, Watcher, Watching

CHUNKS: Final = (1, 3, 7, 40, 10**9)

SHORTEST: Final = 16
"""Runs of fewer letters than this are words that any two texts may share: "in the winter of"."""


PAGE: Final = Path(__file__).parents[2] / "docs" / "design" / "watchers.md"


def page() -> str:
    """The page that reports the numbers, as one line."""
    return " ".join(PAGE.read_text(encoding="utf-8").split())


class Seen(NamedTuple):
    """What a client had seen at the end, the flag, what was withheld, and the most that was held back before it."""

    forwarded: str
    flag: Flag | None
    withheld: str
    most_held: int


def pieces(text: str, size: int) -> Iterator[str]:
    return (text[at : at + size] for at in range(0, len(text), size))


def see(watcher: Watcher, text: str, size: int) -> Seen:
    """Stream a whole answer past a watcher, whether it flags or not."""
    forwarded = []
    flag = None
    most_held = 0
    for piece in pieces(text, size):
        fed = watcher.feed(piece)
        forwarded.append(fed.forward)
        flag = flag or fed.flag
        if flag is None:
            most_held = max(most_held, len(watcher.withheld))
    fed = watcher.end()
    return Seen("".join([*forwarded, fed.forward]), flag or fed.flag, watcher.withheld, most_held)


def see_run(specification: Watching, answers: Sequence[str], size: int, instructions: str = "") -> Seen:
    """Stream one answer after the other, as a run would, up to the first flag."""
    seen: list[Seen] = []
    for answer in answers:
        earlier = [each.forwarded for each in seen]
        seen.append(see(specification.watch(instructions, earlier), answer, size))
        if seen[-1].flag:
            break
    last = seen[-1]
    return last._replace(forwarded="\n".join(each.forwarded for each in seen))


def leaked(text: str, instructions: str, shortest: int = SHORTEST) -> int:
    """How many characters of the instructions stand in `text`: the longest runs they share, summed.

    Runs are compared by letters and digits only; their length is that of the passage in the instructions, with its
    spaces and punctuation.
    """
    said, _ = _bare(text)
    wanted, places = _bare(" ".join(instructions.split()))
    total = at = 0
    while at <= len(said) - shortest:
        length = shortest
        found = wanted.find(said[at : at + length])
        if found < 0:
            at += 1
            continue
        while at + length < len(said) and (longer := wanted.find(said[at : at + length + 1])) >= 0:
            found, length = longer, length + 1
        total += places[found + length - 1] - places[found] + 1
        at += length
    return total


def _bare(text: str) -> tuple[str, list[int]]:
    """The letters and digits of a text, and where each of them stands."""
    letters: list[str] = []
    places: list[int] = []
    for place, char in enumerate(text):
        for letter in unicodedata.normalize("NFKD", char).casefold():
            if letter.isalnum():
                letters.append(letter)
                places.append(place)
    return "".join(letters), places
