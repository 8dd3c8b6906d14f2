"""Undoing effects, as often as it takes and at most a few times: then an effect is left, with a way to try again."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from checkrein.core import commands as c
from checkrein.core.decide import decide
from checkrein.core.effects import Effect
from checkrein.core.events import UNDO_PREFIX, CallFinished, CallResolved, CallStarted
from checkrein.core.words import Answer, CallKind, Outcome
from checkrein.runtime.desk import Desk
from checkrein.runtime.scribe import OwnershipLost
from checkrein.runtime.spec import Ended, Undo, UndoneCall
from checkrein.runtime.values import recordable, stored

UNDO_TRIES: Final = 3
UNDO_SECONDS: Final = 30.0


class Undoing:
    """One undo at a time. `begin` is how the program begins one."""

    def __init__(self, desk: Desk, begin: Undo) -> None:
        self._desk = desk
        self._begin = begin
        self.is_busy = False
        self._calls: dict[str, UndoneCall] = {}
        self._read_to = 0

    def start(self, effect: Effect) -> None:
        """Undo `effect`, unless an undo is under way."""
        if not self.is_busy:
            self.is_busy = True
            self._desk.start(self._undo(effect))

    async def _undo(self, effect: Effect) -> None:
        """Undo one effect: a few tries, and then it is left, with a way to try again."""
        try:
            # Read now, and not when the order was made: an undo that has ended since may have been of this very effect,
            # or it has turned out that its call had never begun.
            await self._desk.scribe.flush()
            effects = await self._desk.journal.effects(self._desk.run)
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
        if not self._desk.is_ours():
            raise OwnershipLost
        try:
            performance = self._begin(effect, await self.call_of(effect.id))
        except Exception as error:
            self._note(call, Ended(outcome=Outcome.FAILED, error=str(error)))
            await self._desk.scribe.flush()
            return False
        ended = await self._desk.ended_within(UNDO_SECONDS, call, performance)
        self._note(call, ended)
        await self._desk.scribe.flush()
        return ended.outcome is Outcome.COMPLETED

    def _note(self, call: str, ended: Ended) -> None:
        error = None if ended.error is None else recordable(ended.error)
        verdict = decide(
            self._desk.state,
            c.FinishCall(
                id=self._desk.new_id("undone"), at=self._desk.now(), call=call, outcome=ended.outcome, error=error
            ),
        )
        if isinstance(verdict, tuple):
            self._desk.scribe.note(*verdict)

    async def call_of(self, effect: str) -> UndoneCall:
        """The call behind an effect, as far as the journal knows it. What was read for one undo serves the next."""
        for record in await self._desk.journal.read(self._desk.run, after=self._read_to):
            self._read_to = record.seq
            match record.event:
                case CallStarted(effect=str(), kind=CallKind.TOOL) as started:
                    arguments = b"null" if started.arguments is None else bytes(started.arguments)
                    self._calls[started.call] = UndoneCall(
                        id=started.call, key=started.key, name=started.name, arguments=arguments
                    )
                case CallFinished(call=call, outcome=outcome, result=result) if call in self._calls:
                    self._calls[call] = replace(self._calls[call], outcome=outcome, result=stored(result))
                case CallResolved(call=call, answer=Answer.HAPPENED, result=result) if call in self._calls:
                    self._calls[call] = replace(self._calls[call], outcome=Outcome.COMPLETED, result=stored(result))
        return self._calls[effect]
