"""Commands that are worth typing next. They work as they stand, also where a store was named on the command line."""

from __future__ import annotations

import shlex

_options: list[str] = []


def remember_store(store: str) -> None:
    """A store that was named on the command line has to be named again."""
    _options[:] = ["--store", shlex.quote(store)]


def command(words: str) -> str:
    """`checkrein` and `words`, as it can be typed here."""
    return " ".join(["checkrein", words, *_options])


def take_up(run: str) -> str:
    """How a run goes on whose process has ended."""
    return command(f"run FILE --resume {run}")
