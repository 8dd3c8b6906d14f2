"""Those who drove a run before, as far as that still matters.

A call whose maker may still be alive must not be undone. When its maker has answered, or is known to be gone, it may
be; the maker may well die long after somebody else has taken the run over.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from checkrein.core.events import CallAnswered, RunStarted
from checkrein.core.state import State
from checkrein.core.words import Outcome
from checkrein.journal.contract import Journal, Owner, Recorded
from checkrein.journal.rules import answer_id
from checkrein.runtime.identity import is_known_dead

LOOK_SECONDS: Final = 1.0
"""How often it is asked whether they still live."""


def has_unanswered(state: State) -> bool:
    """Whether there is a call that somebody else may still make."""
    return any(doubt.unanswered for doubt in state.doubts.values())


async def answers_for_the_dead(journal: Journal, state: State, at: float) -> list[CallAnswered]:
    """For every call whose maker is known to be gone by now: it will not be made any more, and that is all we know."""
    owners = _owners(await journal.read(state.run))
    dead = {epoch for epoch in _unanswered(state) if epoch in owners and is_known_dead(owners[epoch])}
    return [
        CallAnswered(id=answer_id(call, epoch), at=at, call=call, epoch=epoch, outcome=Outcome.IN_DOUBT)
        for call, doubt in state.doubts.items()
        for epoch in doubt.unanswered
        if epoch in dead
    ]


def _unanswered(state: State) -> set[int]:
    return {epoch for doubt in state.doubts.values() for epoch in doubt.unanswered}


def _owners(records: Iterable[Recorded]) -> dict[int, Owner]:
    """Who they were, as well as the journal knows: a pid that another process has by now counts as alive."""
    return {
        record.event.epoch: Owner(process="", host=record.event.host, pid=record.event.pid)
        for record in records
        if isinstance(record.event, RunStarted)
    }


async def answered(journal: Journal, run: str, call: str) -> CallAnswered | None:
    """What the former owner of a call has said about it last."""
    for record in reversed(await journal.read(run)):
        if isinstance(record.event, CallAnswered) and record.event.call == call:
            return record.event
    return None
