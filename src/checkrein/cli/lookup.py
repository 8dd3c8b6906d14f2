"""Which run, and which call, a person means.

What looks like a run is a run: `last`, `r-…`, or at least four hexadecimal digits that a run's id begins with. All else
is what the verb takes beside its run: a text, or a call. Where both could be meant, both are named and nothing is done.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple

from checkrein.cli.session import Row, Session
from checkrein.core.escape import one_line
from checkrein.errors import RunNotFound, WrongInput

LAST: Final = "last"
_NAMED: Final = 4
"""How many runs a sentence names before it says how many more there are."""
_RUN: Final = re.compile(r"r-[\w.-]*")
_HEX: Final = re.compile(r"[0-9a-f]{4,}")
_WORD_OR_NUMBER: Final = re.compile(r"[a-f]+|[0-9]+")
"""Hexadecimal, and yet something that a person may say: face, 2027."""

Wants = Callable[[str], Awaitable[bool]]
"""Whether a run is one that the command is for."""


class Beside(NamedTuple):
    """What a verb takes beside its run."""

    name: str
    """What it is called in a sentence: the instruction, the call."""
    is_required: bool
    is_meant: Callable[[str], Awaitable[bool]]
    """Whether a word that looks like a run may well be this instead."""


class Read(NamedTuple):
    run: str | None
    """The id of the run that was named."""
    beside: str | None


async def read_words(session: Session, words: Sequence[str], beside: Beside | None) -> Read:
    """What the words of a verb mean: `[RUN]`, or a run and `beside` in either order.

    Raises `RunNotFound`, or `WrongInput`.
    """
    if beside is None:
        if len(words) > 1:
            raise WrongInput(
                f"A run is all that can be named here, not: {one_line(' '.join(words), 200)}. "
                "Why it is done is said with --reason.",
                code="usage",
            )
        return Read(await find_run(session, words[0]) if words else None, None)
    if len(words) == 2 and not await _is_run(session, words[0]) and _closes_with_run(words[1], beside):
        words = (words[1], words[0])
    if len(words) > 2 or (len(words) == 2 and not await _is_run(session, words[0])):
        raise WrongInput(
            f"{one_line(words[0], 40)!r} is no run, and what follows is more than {beside.name}: put it in quotes.",
            code="usage",
        )
    if len(words) == 2:
        return Read(await find_run(session, words[0]), words[1])
    if not words:
        return Read(None, None)
    return await _one_word(session, words[0], beside)


async def _one_word(session: Session, word: str, beside: Beside) -> Read:
    runs = await _runs_called(session, word)
    if not runs and not _can_only_be_run(word):
        return Read(None, word)
    if not runs and await beside.is_meant(word):
        return Read(None, word)
    if not runs:
        raise RunNotFound(
            f"{_no_run(session, word)} If {one_line(word)!r} is {beside.name}, say the run before it.", run=word
        )
    if await beside.is_meant(word):
        raise WrongInput(
            f"{one_line(word)!r} may be run {_listed(runs)}, or {beside.name}. For the run, say {runs[0]}; for "
            f"{beside.name}, say the run before it, as in: last {one_line(word)}.",
            code="ambiguous_word",
            runs=tuple(runs),
        )
    run = await find_run(session, word)
    if beside.is_required:
        raise WrongInput(f"{beside.name.capitalize()} is missing after run {run}.", code="usage")
    return Read(run, None)


async def may_be_text(word: str) -> bool:
    """Whether a word that looks like a run may be the whole of a text: *face* and *2027*, not *3f0a*."""
    return _WORD_OR_NUMBER.fullmatch(word) is not None


def _can_only_be_run(word: str) -> bool:
    """Whether a word is a run, though perhaps one that there is not."""
    return word == LAST or _RUN.fullmatch(word) is not None or _is_digits(word)


def _closes_with_run(word: str, beside: Beside) -> bool:
    """Whether a last word is the run that all before it is for: *last* may well be the end of a text without quotes."""
    return _can_only_be_run(word) and not (word == LAST and beside.is_meant is may_be_text)


def _is_digits(word: str) -> bool:
    return _HEX.fullmatch(word) is not None and _WORD_OR_NUMBER.fullmatch(word) is None


async def _is_run(session: Session, word: str) -> bool:
    return _can_only_be_run(word) or bool(await _runs_called(session, word))


async def _runs_called(session: Session, word: str) -> list[str]:
    """The runs that a word may name, if it looks like one."""
    if word == LAST:
        return [await find_run(session, LAST)]
    if await session.has(word):
        return [word]
    if _RUN.fullmatch(word) or _HEX.fullmatch(word):
        return [row.id for row in await _beginning_with(session, word)]
    return []


async def find_run(session: Session, name: str | None, *, wants: Wants | None = None) -> str:
    """The id of the run that is meant. Without a name: the one that is unfinished, of several the one that is wanted.

    Raises `RunNotFound`, or `WrongInput` when it could be more than one.
    """
    if name is None:
        return await _the_unfinished_one(session, wants)
    if name == LAST:
        newest = next((row.id for row in await session.rows() if row.parent is None), None)
        if newest is None:
            raise RunNotFound(f"There is no run in {session.where}.")
        return newest
    if await session.has(name):
        return name
    found = await _beginning_with(session, name)
    if not found or not name:
        raise RunNotFound(_no_run(session, name), run=name)
    if len(found) > 1:
        raise _ambiguous(f"{name!r} is the beginning of", [row.id for row in found])
    return found[0].id


def _no_run(session: Session, name: str) -> str:
    return f"There is no run {one_line(name)!r} in {session.where}; `checkrein ps --all` lists those there are."


async def _beginning_with(session: Session, prefix: str) -> list[Row]:
    found: list[Row] = []
    before: str | None = None
    while rows := await session.rows(before=before):
        found += [row for row in rows if row.id.startswith(prefix) or row.id.removeprefix("r-").startswith(prefix)]
        before = rows[-1].id
    return found


async def _the_unfinished_one(session: Session, wants: Wants | None) -> str:
    rows = await session.rows(unfinished=True)
    names = [row.id for row in rows if row.parent is None]
    if wants is not None:  # it may well be a sub-run that waits
        names = [row.id for row in rows if await wants(row.id)] or names
    if not names:
        raise WrongInput(
            "No run is unfinished; name one, or say `last`. `checkrein ps --all` lists them.", code="no_unfinished_run"
        )
    if len(names) > 1:
        raise _ambiguous("Say which run:", names)
    return names[0]


def _ambiguous(sentence: str, names: Sequence[str]) -> WrongInput:
    return WrongInput(f"{sentence} {_listed(names)}.", code="ambiguous_run", runs=tuple(names))


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


def calls_called(name: str | None, waiting: Mapping[str, str]) -> list[str]:
    """The calls that a name or an id may mean; without one, all that wait. `waiting` maps ids to names."""
    if name is not None and name in waiting:
        return [name]
    return [call for call, called in waiting.items() if name is None or called == name]


def find_call(run: str, name: str | None, waiting: Mapping[str, str], *, what: str) -> str:
    """The id of the call that is meant, by its id or by its name. `what` says what the calls in `waiting` wait for."""
    fitting = calls_called(name, waiting)
    if len(fitting) == 1:
        return fitting[0]
    if not waiting:
        raise WrongInput(f"Run {run} has no call that {what}.", code="nothing_waiting", run=run)
    listed = ", ".join(f"{call} ({one_line(called)})" for call, called in waiting.items())
    if not fitting:
        raise WrongInput(
            f"Run {run} has no call {one_line(name or '')} that {what}; there are: {listed}.",
            code="call_not_found",
            run=run,
        )
    raise WrongInput(f"Say which call of run {run}: {listed}.", code="ambiguous_call", run=run)
