"""How a program's call is made: from the past if it is recorded, else with a permit, and really.

ask the past → wait at the gate → consent → permit → perform → note the outcome
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial

import msgspec

from checkrein.core import commands as c
from checkrein.core.decide import decide
from checkrein.core.effects import Effect
from checkrein.core.events import EffectSettled, Event, RetryScheduled
from checkrein.core.verdict import Refusal
from checkrein.core.words import Outcome, Status
from checkrein.errors import CallFailed, Fenced, Interrupted, RunOver
from checkrein.journal.surely import surely
from checkrein.runtime.desk import Desk, Flight
from checkrein.runtime.replay import Ending, Past, PastCall, Replay, ending_of, request_key
from checkrein.runtime.scribe import CommandRefused, OwnershipLost
from checkrein.runtime.spec import Ended, Performance, Permit, Spec, fingerprint
from checkrein.runtime.values import recordable


class Result(msgspec.Struct, frozen=True):
    """What a program gets from a call."""

    call: str
    value: bytes | None
    instruction: str | None = None
    at: float = 0.0


class Calling:
    """Makes the calls of one program. `number` is the highest that is recorded already."""

    def __init__(self, desk: Desk, replay: Replay, number: int, began_at: float) -> None:
        self._desk = desk
        self._replay = replay
        self._number = number
        self.at = began_at
        """The time of the last outcome that the program has seen."""
        self.is_over = False
        """The program has ended: what a task that it has left behind asks for is not begun any more."""

    async def call(self, spec: Spec) -> Result:
        """Make a call, or give back what is recorded of it.

        Raises `Interrupted` when a person stopped it, `CallFailed` when it failed or was declined.
        """
        mark = fingerprint(spec.kind, spec.name, spec.arguments_with(None)) if not spec.place else ""
        past = await self._replay.ask(request_key(spec.kind, spec.name, mark, spec.place), spec.name)
        if past is not None and past.ending is not None:
            self.at = max(self.at, past.ending.at)
            return _result(past.id, past.ending, past.instruction)
        call = past.id if past is not None else self._next()
        return await self._live(spec, call, mark, past)

    async def _live(self, spec: Spec, call: str, mark: str, past: PastCall | None) -> Result:
        instruction = None if past is None else past.instruction
        is_begun = past is not None and past.attempts > 0
        said = None if past is None else past.partial
        while True:
            await self._word(call)
            if is_begun and (ending := await self._over(call)) is not None:
                self.at = max(self.at, ending.at)
                return _result(call, ending, instruction)
            await self._desk.gate()
            if self.is_over:
                await self._desk.the_end()
            if is_begun and call not in self._desk.state.again:
                continue  # a verb came while it waited here: it is not to be tried again after all
            delivered = self._desk.state.instruction if spec.carries else None
            instruction = delivered.text if delivered is not None else instruction
            arguments = spec.arguments_with(instruction)
            mark = fingerprint(spec.kind, spec.name, arguments)
            if not await self._consent(spec, call, mark, arguments):
                continue
            attempt = self._desk.state.attempt_due(call)
            if not await self._permitted(spec, call, attempt, mark, arguments, delivers=delivered is not None):
                continue
            key = f"{self._desk.run}/{call}"
            permit = Permit(
                run=self._desk.run,
                call=call,
                key=key,
                attempt=attempt,
                arguments=arguments,
                instruction=instruction,
                partial=said,
                holds=self._desk.is_ours,
            )
            ended, at = await self.perform(spec, permit)
            is_begun = True
            if call in self._desk.state.again:
                said = ended.result if ended.outcome is Outcome.ABORTED else None
                await self._wait_before(call, ended.retry_seconds)
                continue
            if (doubt := self._desk.state.doubts.get(call)) is not None and doubt.blocks:
                continue  # nobody knows whether it happened: a person is asked
            self.at = max(self.at, at)
            if self._desk.state.status is Status.CANCELLING or self._desk.state.is_finished:
                await self._desk.the_end()
            return _result(call, Ending(ended.outcome, ended.result, ended.error, at), instruction)

    async def _wait_before(self, call: str, seconds: float | None) -> None:
        """Wait before a call is asked again; shorter, if it is not to be any more."""
        give_up = asyncio.get_running_loop().time() + (seconds or 0.0)
        while call in self._desk.state.again:
            left = give_up - asyncio.get_running_loop().time()
            if left <= 0:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._desk.change()

    async def _word(self, call: str) -> None:
        """Wait while nobody knows whether the call happened, and the program has to be told."""
        while (doubt := self._desk.state.doubts.get(call)) is not None and doubt.person and doubt.blocks:
            await self._desk.change()

    async def _over(self, call: str) -> Ending | None:
        """How a call ended that was begun before; None when it is to be tried again, or nothing goes on any more.

        Read as a replay would read it, so that a program never sees one ending now and another after a restart.
        """
        state = self._desk.state
        if call in state.again or state.status is Status.CANCELLING or state.is_finished:
            return None
        await self._desk.scribe.flush()
        past = Past(await self._desk.journal.read(self._desk.run)).calls.get(call)
        return None if past is None else past.ending

    async def _consent(self, spec: Spec, call: str, mark: str, arguments: bytes) -> bool:
        """Whether the call may go on to its permit; asks for an approval, and waits for it, where one is needed."""
        if spec.approval is None or call in self._desk.state.again:
            return True
        approval = self._desk.state.approvals.get(call)
        if approval is None:
            request = c.RequestApproval(
                id=f"{call}.approval",
                at=self._desk.now(),
                call=call,
                name=spec.name,
                fingerprint=mark,
                place=spec.place,
                arguments=msgspec.Raw(arguments),
                blocks=spec.approval == "block",
            )
            try:
                await self._desk.scribe.do(request)
            except CommandRefused as refused:
                if refused.refusal.code == "not_now":
                    return False  # a verb came in between: wait at the gate, then ask
        while (approval := self._desk.state.approvals.get(call)) is not None and approval.decision is None:
            await self._desk.change()
        if approval is None:
            if self._desk.state.status is Status.CANCELLING or self._desk.state.is_finished:
                await self._desk.the_end()  # withdrawn by a cancel, which a program never sees
            _result(call, ending_of(self._desk.decisions[call]), None)
        return True

    async def _permitted(
        self, spec: Spec, call: str, attempt: int, mark: str, arguments: bytes, *, delivers: bool
    ) -> bool:
        command = c.StartCall(
            id=self._desk.new_id("p"),
            at=self._desk.now(),
            epoch=self._desk.lease.epoch,
            call=call,
            kind=spec.kind,
            name=spec.name,
            attempt=attempt,
            key=f"{self._desk.run}/{call}",
            step=spec.step,
            arguments=msgspec.Raw(arguments),
            fingerprint=mark,
            place=spec.place,
            on_pause=spec.on_pause,
            idempotent=spec.idempotent,
            opens=None if spec.effect is None else Effect(id=call, what=spec.effect, undo=spec.undo),
            needs_approval=spec.approval is not None,
            delivers=delivers,
            effects=await self._desk.journal.effects(self._desk.run) if delivers else (),
            timeout_seconds=spec.timeout_seconds,
        )
        # A program that is cancelled here has its permit perhaps, and will never use it.
        forgo = partial(self._forgo, call, attempt)
        try:
            await self._desk.scribe.do(command, unwanted=forgo)
        except CommandRefused as refused:
            await self._mend(refused.refusal)
            return False
        except (Fenced, RunOver):
            # A run above was cancelled, or an operator has halted: the verb for this run is on its way.
            await asyncio.sleep(0.05)
            return False
        return True

    async def _mend(self, refusal: Refusal) -> None:
        """A permit was refused: do what that asks for, or wait until something has changed."""
        if refusal.trip is not None:
            with suppress(CommandRefused):
                await self._desk.scribe.do(
                    c.TripCondition(id=self._desk.new_id("cap"), at=self._desk.now(), trip=refusal.trip)
                )
        elif refusal.code != "not_now":
            raise CallFailed(refusal.message, name="", error=refusal.code)

    async def perform(self, spec: Spec, permit: Permit) -> tuple[Ended, float]:
        """Make a permitted call, and note how it ended and when.

        Raises `OwnershipLost`, and then it was not begun, when the lease has run out since the permit.
        """
        if not self._desk.is_ours():
            raise OwnershipLost
        live = self._desk.state.live.get(permit.call)
        if live is not None and live.stop is not None:
            # The verb was faster than we were: the call has its permit and never began.
            ended = Ended(outcome=Outcome.ABORTED, begun=False)
        else:
            ended = await self._fly(spec, permit)
        if ended.error is not None:
            ended = msgspec.structs.replace(ended, error=recordable(ended.error))
        at = self._desk.now()
        self.record(permit.call, permit.attempt, ended, at)
        return ended, at

    async def _fly(self, spec: Spec, permit: Permit) -> Ended:
        try:
            performance = spec.perform(permit)
        except Exception as error:
            return Ended(outcome=Outcome.FAILED, error=f"{type(error).__name__}: {error}")
        self._desk.flights[permit.call] = Flight(permit.call, performance)
        self._desk.look()
        try:
            return await self._end_of(spec, permit, performance)
        finally:
            self._desk.flights.pop(permit.call, None)
            self._desk.held -= {permit.call}

    async def _end_of(self, spec: Spec, permit: Permit, performance: Performance) -> Ended:
        """Wait for the end of a call. A program that no longer wants it stops it: it is aborted, and recorded so."""
        try:
            return await _in_time(performance, spec.timeout_seconds)
        except asyncio.CancelledError:
            await surely(self._give_up(permit, performance))
            raise

    async def _give_up(self, permit: Permit, performance: Performance) -> None:
        await performance.abort()
        self.record(permit.call, permit.attempt, await performance.ended(), self._desk.now())

    def _forgo(self, call: str, attempt: int) -> None:
        """The call has its permit and will never begin."""
        self.record(call, attempt, Ended(outcome=Outcome.ABORTED, begun=False), self._desk.now())

    def record(self, call: str, attempt: int, ended: Ended, at: float) -> None:
        """Note how a call of this driver ended."""
        self._desk.endings[call] = ended
        command = finishing(call, attempt, ended, at)
        verdict = decide(self._desk.state, command)
        if isinstance(verdict, tuple):
            self._desk.noted.add(command.id)
            live = self._desk.state.live[call]
            settled = _settled(command, attempt, ended) if live.effect is not None else ()
            self._desk.scribe.note(*verdict, *settled, *_retry(command, attempt, ended))
            self._desk.look()

    def _next(self) -> str:
        self._number += 1
        return f"c{self._number}"


def _settled(finish: c.FinishCall, attempt: int, ended: Ended) -> tuple[EffectSettled, ...]:
    """What is known about the effect of a call at its end: that it is meant to stay, or that there is none."""
    settled = EffectSettled(id=f"{finish.id}.settled", at=finish.at, effect=finish.call)
    if ended.settled:
        return (settled,)
    if not ended.begun and attempt == 1:  # an earlier attempt may have done something
        return (msgspec.structs.replace(settled, why="it had not begun", happened=False),)
    return ()


def _retry(finished: c.FinishCall, attempt: int, ended: Ended) -> tuple[Event, ...]:
    if ended.retry_seconds is None:
        return ()
    return (
        RetryScheduled(
            id=f"{finished.id}.retry",
            at=finished.at,
            call=finished.call,
            attempt=attempt + 1,
            wait_seconds=round(ended.retry_seconds, 3),
            why=recordable(ended.error or ""),
        ),
    )


def finishing(call: str, attempt: int, ended: Ended, at: float) -> c.FinishCall:
    """What is recorded of the end of a call."""
    return c.FinishCall(
        id=f"{call}#{attempt}.finished",
        at=at,
        call=call,
        outcome=ended.outcome,
        result=None if ended.result is None else msgspec.Raw(ended.result),
        error=None if ended.error is None else recordable(ended.error),
        usage=ended.usage,
        chunks=ended.chunks,
        chars=ended.chars,
        chunk_hash=ended.chunk_hash,
        tokens_after_stop=ended.tokens_after_stop,
        retry=ended.retry_seconds is not None,
        files=tuple(map(recordable, ended.files)),
    )


async def _in_time(performance: Performance, seconds: float | None) -> Ended:
    """How a call ended; one that takes longer than its tool allows is stopped, and says so."""
    if seconds is None:
        return await performance.ended()
    try:
        async with asyncio.timeout(seconds):
            return await performance.ended()
    except TimeoutError:
        await performance.abort()
    ended = await performance.ended()
    if ended.outcome in (Outcome.COMPLETED, Outcome.FAILED):
        return ended
    error = f"It did not end within {seconds:g} s and was stopped; it may have partly happened."
    return msgspec.structs.replace(ended, error=error)


def _result(call: str, ending: Ending, instruction: str | None) -> Result:
    if ending.outcome is Outcome.COMPLETED:
        return Result(call, ending.result, instruction, ending.at)
    if ending.outcome is Outcome.FAILED or ending.error is not None:
        error = ending.error or ""
        raise CallFailed(error or "it failed", error=error, call=call, instruction=instruction)
    message = "Interrupted; it may have partly happened."
    raise Interrupted(message, call=call, partial=ending.result, instruction=instruction)
