"""What a driver still owes when its run is no longer its own, or may not be: to stop, and to say what it knows.

It stops its calls first. Then it says once what became of each, as often as it takes until the store has it. Where
nobody has claimed the run yet its word is still the owner's, and the calls get an outcome at once. Where somebody has,
all that is taken of it is `call.answered`.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

import msgspec

from checkrein.core.decide import decide
from checkrein.core.events import CallAnswered, CallFinished, EffectInDoubt, Event
from checkrein.core.state import State
from checkrein.core.words import CallKind, Outcome
from checkrein.errors import JournalError, StaleEpoch
from checkrein.journal.rules import answer_id
from checkrein.runtime.calling import finishing
from checkrein.runtime.desk import Desk
from checkrein.runtime.spec import Ended, Performance
from checkrein.runtime.values import recordable

AGAIN_SECONDS: Final = 0.2
"""How long to wait before it is tried again, because the store is away or the new owner has not begun yet."""


async def stop_flights(desk: Desk) -> None:
    """Stop every call that is in flight, as fast as each can be. Nothing is recorded."""
    flights = list(desk.flights.values())
    await asyncio.gather(*(_leave(flight.performance) for flight in flights), return_exceptions=True)


async def _leave(performance: Performance) -> None:
    """A sub-run has a driver of its own, here or elsewhere: it is only let go."""
    let_go = getattr(performance, "let_go", None)
    await (performance.abort() if let_go is None else let_go())


async def hand_over(desk: Desk) -> None:
    """Stop every call and say what became of it. Returns when the journal has it."""
    flights = dict(desk.flights)
    await stop_flights(desk)
    endings = dict(desk.endings)
    for call, flight in flights.items():
        with suppress(Exception):
            endings.setdefault(call, await flight.performance.ended())
    await desk.scribe.rest()  # what it has begun to write may still be taken
    while True:
        with suppress(JournalError):
            if await _tell(desk, endings):
                return
        await asyncio.sleep(AGAIN_SECONDS)


async def _tell(desk: Desk, endings: dict[str, Ended]) -> bool:
    """False when there is more to say later: an answer counts only once the new owner has called its call in doubt."""
    state = await desk.journal.load(desk.run)
    facts = _facts(desk, state, endings)
    if facts:
        with suppress(StaleEpoch):
            await desk.journal.append(desk.run, facts, after=0, epoch=desk.lease.epoch)
        state = await desk.journal.load(desk.run)
    for call, doubt in state.doubts.items():
        ended = endings.get(call)
        if desk.lease.epoch in doubt.unanswered and call not in desk.told and not _may_still_act(ended):
            answer = _answer(desk, call, ended)
            with suppress(StaleEpoch):
                await desk.journal.append(desk.run, [answer], after=0, epoch=desk.lease.epoch)
    return not any(live.epoch == desk.lease.epoch for live in state.live.values())


def _facts(desk: Desk, state: State, endings: dict[str, Ended]) -> list[Event]:
    """As long as nobody else has claimed the run: the outcome of every call of this driver that has none."""
    facts: list[Event] = []
    for call, live in state.live.items():
        if live.epoch != desk.lease.epoch:
            continue
        ended = endings.get(call)
        if ended is not None and ended.outcome in (Outcome.COMPLETED, Outcome.FAILED):
            verdict = decide(state, finishing(call, live.attempt, ended, desk.now()))
            facts += verdict if isinstance(verdict, tuple) else ()
            continue
        facts.append(_in_doubt(desk, call))
        if live.kind is CallKind.TOOL and live.effect is not None:
            why = "its driver had to give up its run"
            facts.append(EffectInDoubt(id=desk.new_id("doubt"), at=desk.now(), effect=live.effect, why=why))
        if live.kind is CallKind.TOOL and not _may_still_act(ended):
            facts.append(_answer(desk, call, ended))
    return facts


def _may_still_act(ended: Ended | None) -> bool:
    """One that could not be stopped is answered for when it has ended."""
    return ended is not None and ended.outcome is Outcome.DETACHED


def _in_doubt(desk: Desk, call: str) -> CallFinished:
    return CallFinished(id=desk.new_id("doubt"), at=desk.now(), call=call, outcome=Outcome.IN_DOUBT, abandoned=True)


def _answer(desk: Desk, call: str, ended: Ended | None) -> CallAnswered:
    """None: the call had its permit and was never begun."""
    result = None if ended is None or ended.result is None else msgspec.Raw(ended.result)
    return CallAnswered(
        id=answer_id(call, desk.lease.epoch),
        at=desk.now(),
        call=call,
        epoch=desk.lease.epoch,
        outcome=Outcome.ABORTED if ended is None else ended.outcome,
        began=ended is not None and ended.begun,
        error=None if ended is None or ended.error is None else recordable(ended.error),
        result=result,
    )
