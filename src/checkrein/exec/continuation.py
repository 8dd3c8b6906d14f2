"""Going on from a run that has ended, by the record that its program itself has kept of what was said."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import msgspec

from checkrein.core.enums import CallKind
from checkrein.core.events import CallStarted
from checkrein.errors import WrongInput
from checkrein.exec.profiles import profile_of
from checkrein.journal.base import Journal


async def continued(journal: Journal, run: str, more: Sequence[str] = (), *, profile: str | None = None) -> list[str]:
    """The command by which the program of `run` goes on, with `more` arguments behind it.

    Raises `WrongInput` for a run that is not over, was no program, or whose program has no record of its own.
    """
    state = await journal.load(run)
    if not state.is_finished:
        raise WrongInput(f"Run {run} is not over; end it first with: checkrein cancel {run}", code="run_unfinished")
    command = await _command_of(journal, run)
    if not command:
        raise WrongInput(f"Run {run} was no program of `checkrein exec`.", code="cannot_continue")
    known = profile_of(command[0], profile)
    if not known.resumes:
        raise WrongInput(
            f"{command[0]} keeps no record from which it could go on; start it anew with: checkrein exec -- …",
            code="cannot_continue",
        )
    return [command[0], *shlex.split(known.resumes)[1:], *more]


async def _command_of(journal: Journal, run: str) -> list[str]:
    for record in await journal.read(run):
        event = record.event
        if isinstance(event, CallStarted) and event.kind is CallKind.PROCESS and event.arguments is not None:
            found: list[str] = msgspec.json.decode(bytes(event.arguments)).get("command", [])
            return found
    return []
