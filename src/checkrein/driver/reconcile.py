"""Reconcile what is with what the state of a run orders: abort, hold, undo, ask whoever may know, answer, settle."""

from __future__ import annotations

import msgspec

from checkrein.calls.base import CallRequest, Permit
from checkrein.core import commands as c
from checkrein.core.enums import Answer, CallKind, Outcome, Status
from checkrein.core.orders import (
    Abort,
    AnswerQuestion,
    Detach,
    Hold,
    LetGoOn,
    Order,
    Settle,
    TakeAnswer,
    UndoEffect,
    orders,
)
from checkrein.core.state import PendingVerb
from checkrein.driver.ownership import OwnershipLost, last_answer
from checkrein.driver.program_api import Program, ProgramApi
from checkrein.driver.session import RunSession
from checkrein.driver.sub_runs import SubRuns
from checkrein.driver.undo import CHECK_PREFIX, Undoing, checked
from checkrein.timings import CHECK_SECONDS


class Reconciler:
    """Compares what the state of a run orders with what goes on, and makes it so. `api` is what the program sees."""

    def __init__(self, session: RunSession, program: Program, api: ProgramApi, *, settle_seconds: float) -> None:
        self._session = session
        self._program = program
        self._api = api
        self._settle_seconds = settle_seconds
        self._sub_runs = SubRuns(session, lambda agent, run: api.ensure_driven(program.team.get(agent), run))
        self._undoing = Undoing(
            session,
            lambda effect, call: program.undo(effect, call, api),
            below=self._sub_runs.unfinished,
            settle_seconds=settle_seconds,
        )
        self._answering: set[str] = set()
        self._answers: dict[str, str] = {}
        self._are_workers_ended = False
        self.wants_undo = False
        """Whether the ledger has an effect that is still to be undone."""

    @property
    def is_undoing(self) -> bool:
        """Whether something is being undone, or is still to be."""
        return self._undoing.is_busy or self.wants_undo

    async def obey(self) -> None:
        """Do everything that is to be done now. What takes long goes on beside."""
        state = self._session.state
        session = self._session
        is_stopping = any(live.stop is not None or live.hold for live in state.live.values())
        has_more = state.doubts or session.calls.told_to_hold or session.wants_undo or state.is_finished
        if not (state.verbs or is_stopping or has_more):
            return
        # What is to stop stops now: it needs no ledger.
        for order in orders(state, held=session.calls.held, told_to_hold=session.calls.told_to_hold):
            if isinstance(order, Abort | Hold | LetGoOn):
                await self._carry_out(order)
        effects = await self._session.effects()
        self.wants_undo = any(e.wanted and e.undo is not None and not state.is_blocked(e.id) for e in effects)
        self._check_doubts()
        below = await self._sub_runs.unfinished()
        due = orders(
            self._session.state,
            effects,
            at=self._session.now(),
            held=self._session.calls.held,
            told_to_hold=self._session.calls.told_to_hold,
            below=below,
            settle_seconds=self._settle_seconds,
        )
        for order in due:
            if isinstance(order, UndoEffect | Settle) and session.state.status is Status.CANCELLING:
                await self._end_workers()
            await self._carry_out(order)

    async def _end_workers(self) -> None:
        """Before a cancel undoes anything or settles, nothing of the run is at work, whatever its tools have said."""
        if not self._are_workers_ended:
            self._are_workers_ended = True
            await self._api.end_workers()

    async def _carry_out(self, order: Order) -> None:
        match order:
            case Abort(call=call, hurry=hurry):
                self._session.calls.abort(call, hurry=hurry)
            case Detach(call=call):
                self._session.calls.detach(call)
            case Hold(call=call):
                await self._hold(call)
            case LetGoOn(call=call):
                await self._session.calls.resume(call)
            case UndoEffect(effect=effect):
                self._undoing.start(effect)
            case TakeAnswer(call=call, answer=answer):
                await self._take_answer(call, answer)
            case AnswerQuestion(verb=verb) if verb.id not in self._answering:
                self._answering.add(verb.id)
                self._session.start(self._answer(verb))
            case Settle(verb=verb):
                await self._settle(verb)
            case _:
                pass

    async def _take_answer(self, call: str, answer: Answer) -> None:
        """The former owner has said what became of a call, and with which result."""
        said = await last_answer(self._session.journal, self._session.run, call)
        resolve = c.ResolveCall(
            id=self._session.new_id("answer"),
            at=self._session.now(),
            by="owner",
            call=call,
            answer=answer,
            result=None if said is None else said.result,
        )
        await self._session.try_to(resolve)

    async def _hold(self, call: str) -> None:
        if await self._session.calls.hold(call):
            self._session.wake.set()

    def _check_doubts(self) -> None:
        """Ask the tools of calls in doubt whether they happened, once each: a help for the person who is to decide."""
        for call, doubt in self._session.state.doubts.items():
            if doubt.person and doubt.effect is not None and self._session.must_check(call):
                self._session.start(self._check(call))

    async def _check(self, call: str) -> None:
        doubted = await self._undoing.call_of(call)
        if not self._session.ownership.check():
            raise OwnershipLost
        execution = self._program.check(doubted, self._api)
        if execution is None:
            return
        ended = await self._session.calls.end_within(CHECK_SECONDS, CHECK_PREFIX + call, execution)
        self._session.writer.record(
            checked(ended, id=self._session.new_id("checked"), at=self._session.now(), call=call)
        )

    async def _settle(self, verb: PendingVerb) -> None:
        session = self._session
        await session.writer.flush()
        effects = await session.effects()  # not those the order was made from: an undo may have ended since
        settle = c.SettleVerb(
            id=session.new_id("settled"),
            at=session.now(),
            accepted=verb.id,
            effects=effects,
            held=session.calls.held,
            below=await self._sub_runs.unfinished(),
            settle_seconds=self._settle_seconds,
            answer=self._answers.get(verb.id),
        )
        await session.try_to(settle)

    async def _answer(self, verb: PendingVerb) -> None:
        """Answer a side question, from a copy of the context, while the run goes on or stays paused."""
        session = self._session
        call, question = verb.call or "", verb.question or ""
        attempt, arguments = session.state.attempt_due(call), msgspec.json.encode(question)
        start = c.StartCall(
            id=session.new_id("ask"),
            at=session.now(),
            epoch=session.ownership.epoch,
            call=call,
            kind=CallKind.ASK,
            name="ask",
            attempt=attempt,
            arguments=msgspec.Raw(arguments),
            key=call,
        )
        try:
            if await session.try_to(start):
                perform = self._program.answer(question, self._api)
                request = CallRequest(kind=CallKind.ASK, name="ask", perform=perform)
                permit = Permit(run=session.run, call=call, key=call, attempt=attempt, arguments=arguments)
                ended, _ = await session.calls.perform(request, permit)
                if ended.outcome is Outcome.COMPLETED:
                    self._answers[verb.id] = _text(ended.result)
        finally:
            self._answering.discard(verb.id)


def _text(result: bytes | None) -> str:
    value = None if result is None else msgspec.json.decode(result)
    return value if isinstance(value, str) else str(value)
