"""Carrying out what the state of a run orders: abort, hold, undo, ask whoever may know, answer, settle."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec

from checkrein.core import commands as c
from checkrein.core.orders import Abort, AnswerQuestion, Hold, LetGoOn, Order, Settle, TakeAnswer, UndoEffect, orders
from checkrein.core.state import PendingVerb
from checkrein.core.words import Answer, CallKind, Outcome
from checkrein.runtime.checking import CHECK_PREFIX, CHECK_SECONDS, checked
from checkrein.runtime.desk import Desk
from checkrein.runtime.former import answered
from checkrein.runtime.spec import Ended, Permit, Program, Spec
from checkrein.runtime.undoing import Undoing

if TYPE_CHECKING:
    from checkrein.runtime.driver import Driver


class Obeying:
    """Obeys for one driver. `perform` makes a call that has its permit, and says how it ended and when."""

    def __init__(
        self,
        desk: Desk,
        program: Program,
        driver: Driver,
        perform: Callable[[Spec, Permit], Awaitable[tuple[Ended, float]]],
        *,
        settle_seconds: float,
    ) -> None:
        self._desk = desk
        self._program = program
        self._driver = driver
        self._perform = perform
        self._settle_seconds = settle_seconds
        self._undoing = Undoing(desk, lambda effect, call: program.undo(effect, call, driver))
        self._answering: set[str] = set()
        self._answers: dict[str, str] = {}
        self.wants_undo = False
        """Whether the ledger has an effect that is still to be undone."""

    @property
    def is_undoing(self) -> bool:
        """Whether something is being undone, or is still to be."""
        return self._undoing.is_busy or self.wants_undo

    async def obey(self) -> None:
        """Do everything that is to be done now. What takes long goes on beside."""
        state = self._desk.state
        desk = self._desk
        is_stopping = any(live.stop is not None or live.hold for live in state.live.values())
        if not (state.verbs or is_stopping or state.doubts or desk.held or desk.wanted or state.is_finished):
            return
        for order in orders(state, held=desk.held):  # what is to stop stops now: it needs no ledger
            if isinstance(order, Abort | Hold | LetGoOn):
                await self._carry_out(order)
        effects = await self._desk.effects()
        self.wants_undo = any(e.wanted and e.undo is not None and not state.is_blocked(e.id) for e in effects)
        self._check_doubts()
        due = orders(
            self._desk.state, effects, at=self._desk.now(), held=self._desk.held, settle_seconds=self._settle_seconds
        )
        for order in due:
            await self._carry_out(order)

    async def _carry_out(self, order: Order) -> None:
        match order:
            case Abort(call=call):
                self._abort(call)
            case Hold(call=call):
                await self._hold(call)
            case LetGoOn(call=call):
                await self._let_go_on(call)
            case UndoEffect(effect=effect):
                self._undoing.start(effect)
            case TakeAnswer(call=call, answer=answer):
                await self._take_answer(call, answer)
            case AnswerQuestion(verb=verb) if verb.id not in self._answering:
                self._answering.add(verb.id)
                self._desk.start(self._answer(verb))
            case Settle(verb=verb):
                await self._settle(verb)
            case _:
                pass

    async def _take_answer(self, call: str, answer: Answer) -> None:
        """The former owner has said what became of a call, and with which result."""
        said = await answered(self._desk.journal, self._desk.run, call)
        resolve = c.ResolveCall(
            id=self._desk.new_id("answer"),
            at=self._desk.now(),
            by="owner",
            call=call,
            answer=answer,
            result=None if said is None else said.result,
        )
        await self._desk.try_to(resolve)

    def _abort(self, call: str) -> None:
        flight = self._desk.flights.get(call)
        if flight is not None and flight.aborting is None:
            flight.aborting = self._desk.start(flight.performance.abort())

    async def _hold(self, call: str) -> None:
        flight = self._desk.flights.get(call)
        if flight is not None and await flight.performance.hold():
            self._desk.held |= {call}
            self._desk.stir.set()

    async def _let_go_on(self, call: str) -> None:
        self._desk.held -= {call}
        flight = self._desk.flights.get(call)
        if flight is not None:
            await flight.performance.go_on()

    def _check_doubts(self) -> None:
        """Ask the tools of calls in doubt whether they happened, once each: a help for the person who is to decide."""
        for call, doubt in self._desk.state.doubts.items():
            if doubt.person and doubt.effect is not None and call not in self._desk.checked:
                self._desk.checked.add(call)
                self._desk.start(self._check(call))

    async def _check(self, call: str) -> None:
        performance = self._program.check(await self._undoing.call_of(call), self._driver)
        if performance is None:
            return
        ended = await self._desk.ended_within(CHECK_SECONDS, CHECK_PREFIX + call, performance)
        self._desk.scribe.note(checked(ended, id=self._desk.new_id("checked"), at=self._desk.now(), call=call))

    async def _settle(self, verb: PendingVerb) -> None:
        desk = self._desk
        await desk.scribe.flush()
        effects = await desk.effects()  # not those the order was made from: an undo may have ended since
        settle = c.SettleVerb(
            id=desk.new_id("settled"),
            at=desk.now(),
            accepted=verb.id,
            effects=effects,
            held=desk.held,
            settle_seconds=self._settle_seconds,
            answer=self._answers.get(verb.id),
        )
        await desk.try_to(settle)

    async def _answer(self, verb: PendingVerb) -> None:
        """Answer a side question, from a copy of the context, while the run goes on or stays paused."""
        desk = self._desk
        call, question = verb.call or "", verb.question or ""
        attempt, arguments = desk.state.attempt_due(call), msgspec.json.encode(question)
        start = c.StartCall(
            id=desk.new_id("ask"),
            at=desk.now(),
            epoch=desk.lease.epoch,
            call=call,
            kind=CallKind.ASK,
            name="ask",
            attempt=attempt,
            arguments=msgspec.Raw(arguments),
            key=call,
        )
        try:
            if await desk.try_to(start):
                spec = Spec(kind=CallKind.ASK, name="ask", perform=self._program.answer(question, self._driver))
                permit = Permit(run=desk.run, call=call, key=call, attempt=attempt, arguments=arguments)
                ended, _ = await self._perform(spec, permit)
                if ended.outcome is Outcome.COMPLETED:
                    self._answers[verb.id] = _text(ended.result)
        finally:
            self._answering.discard(verb.id)


def _text(result: bytes | None) -> str:
    value = None if result is None else msgspec.json.decode(result)
    return value if isinstance(value, str) else str(value)
