"""A verb on a run from the command line: ask for it, say what it waits for, print its receipt."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from checkrein.cli import hints, saying
from checkrein.cli.clean import one_line
from checkrein.cli.receipts import receipt_lines, settling_lines

if TYPE_CHECKING:
    from checkrein.cli.session import Session
    from checkrein.control.verbs import Settling
    from checkrein.core.receipts import Receipt
    from checkrein.core.state import State

PATIENCE_SECONDS: Final = 1.0
"""After so long a person is told what a verb waits for."""
TAKE_UP_SECONDS: Final = 1.5
"""How long a process that has the agent may take to notice that a run is resumed."""

UNDRIVEN_SECONDS: Final = 1.0
"""How long it is worth to wait for the receipt of a run that nobody drives."""

Ask = Callable[["Session", str, float], Awaitable["Receipt | Settling"]]
"""Asks for a verb on a run, and waits so many seconds for its receipt."""


async def ask_for(session: Session, run: str, ask: Ask, *, wait: float, as_json: bool) -> None:
    """Ask for a verb and print what comes of it. Raises what the verb raises, with nothing changed."""
    if not await session.is_driven(run):
        wait = min(wait, UNDRIVEN_SECONDS)
    told = asyncio.get_running_loop().create_task(_tell_what_it_waits_for(session, run))
    try:
        answer = await ask(session, run, wait)
    finally:
        told.cancel()
        await asyncio.gather(told, return_exceptions=True)
    if as_json:
        saying.out_json(answer)
        return
    for line in await _lines(session, run, answer):
        saying.out(line)


async def _lines(session: Session, run: str, answer: Receipt | Settling) -> list[str]:
    from checkrein.control.verbs import Settling
    from checkrein.core.words import Status, Verb

    lines = settling_lines(answer) if isinstance(answer, Settling) else receipt_lines(answer)
    if not isinstance(answer, Settling) and answer.verb is Verb.ASK and answer.answer is None:
        lines = [f"The question got no answer: {one_line(await session.control.why_unanswered(answer), 400)}."]
    if await is_taken_up(session, run):
        return lines
    state = await session.journal.load(run)
    if (other := await _queued_behind(session, state)) is not None:
        return [f"Queued behind run {other}, which is at work on thread {one_line(state.thread)}."]
    take_up = [f"no process with agent {one_line(state.agent)} is running.", f"Take it up with: {hints.take_up(run)}"]
    if state.status is Status.CANCELLING:
        return [f"Fenced: nothing more begins. Its undos wait, because {take_up[0]}", take_up[1]]
    return [f"Queued: {take_up[0]}", take_up[1]]


async def _queued_behind(session: Session, state: State) -> str | None:
    """The run that a queued one waits for, if it does."""
    from checkrein.core.words import TERMINAL, Status

    if state.status is not Status.QUEUED:
        return None
    rows = await session.journal.runs(thread=state.thread, status=frozenset(Status) - TERMINAL)
    for row in rows:
        if row.id != state.run and await session.is_driven(row.id):
            return row.id
    return None


async def is_taken_up(session: Session, run: str) -> bool:
    """Whether a run that ought to be at work is; a process that has its agent may take a moment to notice."""
    deadline = asyncio.get_running_loop().time() + TAKE_UP_SECONDS
    while await _needs_process(session, run):
        if asyncio.get_running_loop().time() > deadline:
            return False
        await asyncio.sleep(0.05)
    return True


async def _needs_process(session: Session, run: str) -> bool:
    """Whether something is to be done that only a process with the agent can do, and none is at it."""
    from checkrein.core.words import EffectState, Status

    state = await session.journal.load(run)
    if state.is_finished:
        return any(effect.wanted for effect in await session.journal.effects(run, {EffectState.OPEN}))
    if state.status in (Status.PAUSING, Status.PAUSED) and not state.resumes_itself:
        return False
    return not await session.is_driven(run)


async def _tell_what_it_waits_for(session: Session, run: str) -> None:
    """In a terminal, after a while: what the verb waits for, whenever that changes."""
    from checkrein.core.orders import obstacle

    if not sys.stderr.isatty():
        return
    told = ""
    while True:
        await asyncio.sleep(PATIENCE_SECONDS)
        state, effects = await session.journal.load(run), await session.journal.effects(run)
        verb = next((verb for verb in reversed(state.verbs) if verb.superseded_by is None), None)
        waits_for = "its driver" if verb is None else obstacle(state, verb, effects) or "its driver"
        if waits_for != told:
            saying.note(f"… waiting for {waits_for}")
            told = waits_for
