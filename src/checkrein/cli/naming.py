"""Which run, and which call, a person means."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from checkrein.cli.clean import one_line
from checkrein.errors import RunNotFound, WrongInput

if TYPE_CHECKING:
    from checkrein.cli.session import Session
    from checkrein.journal.contract import Journal, RunRow

LAST: Final = "last"
_PAGE: Final = 1000
_NAMED: Final = 4
"""How many runs a sentence names before it says how many more there are."""

Wants = Callable[[str], Awaitable[bool]]
"""Whether a run is one that the command is for."""


async def find_run(session: Session, name: str | None, *, wants: Wants | None = None) -> str:
    """The id of the run that is meant. Without a name: the one that is unfinished, of several the one that is wanted.

    Raises `RunNotFound`, or `WrongInput` when it could be more than one.
    """
    if name is None:
        return await _the_unfinished_one(session, wants)
    if name == LAST:
        rows = await session.journal.runs(limit=_PAGE)
        newest = next((row.id for row in rows if row.parent is None), None)
        if newest is None:
            raise RunNotFound(f"There is no run in {session.store}.")
        return newest
    found = await is_run(session.journal, name) or await _by_prefix(session, name)
    return found


async def is_run(journal: Journal, name: str) -> str | None:
    """`name`, if there is a run of exactly that id."""
    try:
        await journal.read(name, limit=1)
    except RunNotFound:
        return None
    return name


async def _by_prefix(session: Session, prefix: str) -> str:
    found: list[RunRow] = []
    before: str | None = None
    while rows := await session.journal.runs(limit=_PAGE, before=before):
        found += [row for row in rows if row.id.startswith(prefix) or row.id.removeprefix("r-").startswith(prefix)]
        before = rows[-1].id
    if not found or not prefix:
        raise RunNotFound(
            f"There is no run {one_line(prefix)!r} in {session.store}; `checkrein ps --all` lists those there are.",
            run=prefix,
        )
    if len(found) > 1:
        raise _ambiguous(f"{prefix!r} is the beginning of", [row.id for row in found])
    return found[0].id


async def _the_unfinished_one(session: Session, wants: Wants | None) -> str:
    from checkrein.core.words import TERMINAL, Status

    unfinished = frozenset(Status) - TERMINAL
    rows = await session.journal.runs(status=unfinished, limit=_PAGE)
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
    listed = ", ".join(names[:_NAMED])
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return WrongInput(f"{sentence} {listed}{more}.", code="ambiguous_run", runs=tuple(names))


async def run_and_text(session: Session, words: Sequence[str], what: str) -> tuple[str, str]:
    """What `[RUN] TEXT` means. One word alone is the text, unless it names a run: then the text was forgotten."""
    if len(words) > 2:
        raise WrongInput(f"Too many words: put the {what.lower()} in quotes.", code="usage")
    if len(words) == 2:
        return await find_run(session, words[0]), words[1]
    (text,) = words
    if await is_run(session.journal, text) is not None or text == LAST:
        raise WrongInput(f"The {what.lower()} is missing after run {text}.", code="usage")
    return await find_run(session, None), text


def find_call(run: str, name: str | None, waiting: Mapping[str, str], *, what: str) -> str:
    """The id of the call that is meant, by its id or by its name. `waiting` maps ids to names, `what` says for what.

    An id that does not wait is handed on: the core knows best what is wrong with it.
    """
    if name is not None and name in waiting:
        return name
    fitting = [call for call, called in waiting.items() if name is None or called == name]
    if len(fitting) == 1:
        return fitting[0]
    if not waiting:
        raise WrongInput(f"Run {run} has no call that {what}.", code="nothing_waiting", run=run)
    listed = ", ".join(f"{call} ({one_line(called)})" for call, called in waiting.items())
    if not fitting:
        raise WrongInput(
            f"Run {run} has no call {name} that {what}; there are: {listed}.", code="call_not_found", run=run
        )
    raise WrongInput(f"Say which call of run {run}: {listed}.", code="ambiguous_call", run=run)
