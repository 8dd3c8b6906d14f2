"""Deciding about a run that somebody else drives: load, decide, append, and again if something came in between."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from msgspec.structs import replace

from checkrein.core.commands import Command, VerbCommand
from checkrein.core.decide import decide
from checkrein.core.decide.verdict import Joined, Refusal
from checkrein.core.effects import Effect
from checkrein.core.events import Event
from checkrein.core.state import State
from checkrein.errors import Conflict, Refused, RunOver
from checkrein.journal.base import Journal

_log = logging.getLogger(__name__)

TRIES: Final = 100

Make = Callable[[State, tuple[Effect, ...]], Command]


async def take_command(
    journal: Journal,
    run: str,
    make: Make,
    *,
    look: Callable[[], Awaitable[None]] | None = None,
    epoch: int | None = None,
    tries: int = TRIES,
) -> tuple[tuple[Event, ...] | Joined, State]:
    """Have a command taken, in full knowledge of the journal, however often something else comes in between.

    `look` is awaited after each loading, for what the maker has to know besides: what it finds out is as new as the
    state, so whatever has changed it since is in the journal and is met by the append. `epoch` is that of its maker's
    lease, if it needs one. Returns what was appended, which may be nothing, or whose
    receipt answers it; and the state it was decided on. Raises `Refused`, with the code `conflict` when something came
    in between at every one of so many `tries`, and what else `Journal.append` raises.
    """
    for _ in range(tries):
        state, effects = await asyncio.gather(journal.load(run), journal.effects(run))
        if look is not None:
            await look()
        command = make(state, effects)
        if isinstance(command, VerbCommand):
            command = replace(command, store_at=journal.now())
        verdict = decide(state, command)
        if isinstance(verdict, Refusal):
            raise Refused(verdict.message, code=verdict.code, run=run, status=verdict.status)
        if isinstance(verdict, Joined) or not verdict:
            return verdict, state
        try:
            await journal.append(run, verdict, after=state.seq, epoch=epoch)
        except (Conflict, RunOver) as error:
            _log.debug("decided again, because: %s", error, extra={"run": run, "epoch": epoch})
        else:
            return verdict, state
    raise Refused(f"Run {run} changes too fast to decide anything about it; try again.", code="conflict", run=run)
