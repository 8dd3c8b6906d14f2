"""Deciding about a run that somebody else drives: load, decide, append, and again if something came in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from checkrein.core.commands import Command
from checkrein.core.decide import decide
from checkrein.core.effects import Effect
from checkrein.core.events import Event
from checkrein.core.state import State
from checkrein.core.verdict import Joined, Refusal
from checkrein.errors import Conflict, Refused, RunOver
from checkrein.journal.contract import Journal

TRIES: Final = 100

Make = Callable[[State, tuple[Effect, ...]], Command]


async def take(journal: Journal, run: str, make: Make) -> tuple[tuple[Event, ...] | Joined, State]:
    """Have a command taken, in full knowledge of the journal, however often something else comes in between.

    Returns what was appended, or whose receipt answers it, and the state it was decided on. Raises `Refused`.
    """
    for _ in range(TRIES):
        state, effects = await asyncio.gather(journal.load(run), journal.effects(run))
        verdict = decide(state, make(state, effects))
        if isinstance(verdict, Refusal):
            raise Refused(verdict.message, code=verdict.code, run=run, status=verdict.status)
        if isinstance(verdict, Joined):
            return verdict, state
        with suppress(Conflict, RunOver):
            await journal.append(run, verdict, after=state.seq)
            return verdict, state
    raise Refused(f"Run {run} changes too fast to decide anything about it; try again.", code="conflict", run=run)
