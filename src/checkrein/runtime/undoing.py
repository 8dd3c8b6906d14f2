"""Undoing effects, as often as it takes and at most a few times: then an effect is left, with a way to try again."""

from __future__ import annotations

import asyncio
from typing import Final

from checkrein.core import commands as c
from checkrein.core.decide import decide
from checkrein.core.effects import Effect
from checkrein.core.events import UNDO_PREFIX, CallFinished, CallStarted
from checkrein.core.words import Outcome
from checkrein.runtime.desk import Desk, Flight
from checkrein.runtime.spec import Ended, Undo, UndoneCall

UNDO_TRIES: Final = 3
UNDO_SECONDS: Final = 30.0


class Undoing:
    """One undo at a time. `begin` is how the program begins one."""

    def __init__(self, desk: Desk, begin: Undo) -> None:
        self._desk = desk
        self._begin = begin
        self.is_busy = False

    def start(self, effect: Effect, effects: tuple[Effect, ...]) -> None:
        """Undo `effect`, unless an undo is under way."""
        if not self.is_busy:
            self.is_busy = True
            self._desk.start(self._undo(effect, effects))

    async def _undo(self, effect: Effect, effects: tuple[Effect, ...]) -> None:
        """Undo one effect: a few tries, and then it is left, with a way to try again."""
        try:
            for number in range(1, UNDO_TRIES + 1):
                if await self._undo_once(effect, effects, number):
                    return
                effects = await self._desk.journal.effects(self._desk.run)
            leave = c.LeaveEffect(
                id=self._desk.new_id("left"),
                at=self._desk.now(),
                effect=effect.id,
                effects=effects,
                why=f"its undo failed {UNDO_TRIES} times",
            )
            verdict = decide(self._desk.state, leave)
            if isinstance(verdict, tuple):
                self._desk.scribe.note(*verdict)
                await self._desk.scribe.flush()
        finally:
            self.is_busy = False

    async def _undo_once(self, effect: Effect, effects: tuple[Effect, ...], number: int) -> bool:
        """True when there is nothing more to do about this effect for now."""
        call = UNDO_PREFIX + effect.id
        start = c.StartUndo(
            id=self._desk.new_id("undo"),
            at=self._desk.now(),
            epoch=self._desk.lease.epoch,
            effect=effect.id,
            effects=effects,
            attempt=number,
        )
        if not await self._desk.try_to(start):
            return True
        try:
            performance = self._begin(effect, await self._undone_call(effect))
        except Exception as error:
            self._note(call, Ended(outcome=Outcome.FAILED, error=str(error)))
            await self._desk.scribe.flush()
            return False
        self._desk.flights[call] = Flight(call, performance)
        try:
            async with asyncio.timeout(UNDO_SECONDS):
                ended = await performance.ended()
        except TimeoutError:
            await performance.abort()
            ended = Ended(outcome=Outcome.FAILED, error=f"it did not end within {UNDO_SECONDS:g} s")
        finally:
            self._desk.flights.pop(call, None)
        self._note(call, ended)
        await self._desk.scribe.flush()
        return ended.outcome is Outcome.COMPLETED

    def _note(self, call: str, ended: Ended) -> None:
        verdict = decide(
            self._desk.state,
            c.FinishCall(
                id=self._desk.new_id("undone"), at=self._desk.now(), call=call, outcome=ended.outcome, error=ended.error
            ),
        )
        if isinstance(verdict, tuple):
            self._desk.scribe.note(*verdict)

    async def _undone_call(self, effect: Effect) -> UndoneCall:
        """The call behind an effect, as far as the journal knows it."""
        started: CallStarted | None = None
        result: bytes | None = None
        outcome = Outcome.IN_DOUBT
        for record in await self._desk.journal.read(self._desk.run):
            event = record.event
            if isinstance(event, CallStarted) and event.call == effect.id:
                started = event
            elif isinstance(event, CallFinished) and event.call == effect.id:
                outcome = event.outcome
                result = None if event.result is None else bytes(event.result)
        assert started is not None, "an effect has a call"
        arguments = b"null" if started.arguments is None else bytes(started.arguments)
        return UndoneCall(
            id=effect.id, key=started.key, name=started.name, arguments=arguments, result=result, outcome=outcome
        )
