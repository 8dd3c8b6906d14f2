"""How a program's call is made: from the past if it is recorded, else with a permit, and really.

ask the past → wait at the gate → consent → permit → perform, which records the outcome (`running_calls`)
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial

import msgspec

from checkrein.calls.base import CallRequest, CallResult, Permit, RefusedExecution, fingerprint
from checkrein.core import commands as c
from checkrein.core.decide.verdict import Refusal
from checkrein.core.effects import Effect
from checkrein.core.enums import Outcome, Status
from checkrein.core.events import VerbAccepted, approval_id
from checkrein.driver.commits import CommandRefused
from checkrein.driver.replay import Ending, Past, PastCall, Replay, ending_of, joined, request_key, stopped_by
from checkrein.driver.session import RunSession
from checkrein.errors import CallFailed, Fenced, Interrupted, RunOver

_log = logging.getLogger(__name__)


class Result(msgspec.Struct, frozen=True):
    """What a program gets from a call."""

    call: str
    value: bytes | None
    instruction: str | None = None
    at: float = 0.0


class CallRunner:
    """Makes the calls of one program. `number` is the highest that is recorded already."""

    def __init__(self, session: RunSession, replay: Replay, number: int, began_at: float) -> None:
        self._session = session
        self._replay = replay
        self._number = number
        self.at = began_at
        """The time of the last outcome that the program has seen."""
        self.is_over = False
        """The program has ended: what a task that it has left behind asks for is not begun any more."""
        self.edited: dict[str, bytes] = {}
        """By the call, what it was made with where a person wanted other arguments than the program asked for."""

    async def call(self, request: CallRequest) -> Result:
        """Make a call, or give back what is recorded of it.

        Raises `Interrupted` when a person stopped it, `CallFailed` when it failed or was declined.
        """
        mark = fingerprint(request.kind, request.name, request.arguments_with(None)) if not request.place else ""
        past = await self._replay.ask(request_key(request.kind, request.name, mark, request.place), request.name)
        if past is not None and past.attempts and past.edited is not None:
            self.edited[past.id] = past.edited
        if past is not None and past.ending is not None:
            return self._seen(past.id, past.ending, past.instruction)
        call = past.id if past is not None else self._next()
        return await self._live(request, call, mark, past)

    async def _live(self, request: CallRequest, call: str, mark: str, past: PastCall | None) -> Result:
        instruction = None if past is None else past.instruction
        is_begun = past is not None and past.attempts > 0
        said = None if past is None else past.partial
        while True:
            await self._await_resolution(call)
            if is_begun and (ending := await self._recorded_result(call)) is not None:
                return self._seen(call, ending, instruction)
            await self._session.until_permitted()
            if self.is_over:
                await self._session.wait_to_be_cancelled()
            if is_begun and call not in self._session.state.again:
                continue  # a verb came while it waited here: it is not to be tried again after all
            delivered = self._session.state.instruction if request.carries else None
            # What an earlier attempt carried may not have reached the agent: it is said again, before what is new.
            carried = joined(instruction, *(() if delivered is None else (one.text for one in delivered.each)))
            arguments = request.arguments_with(carried)
            mark = fingerprint(request.kind, request.name, arguments)
            made = await self._consented(request, call, mark, arguments)
            if made is None:
                continue
            if call in self.edited:
                arguments = self.edited[call]
                mark = fingerprint(request.kind, request.name, arguments)
            if self._session.is_halted:
                await self._session.until_not_halted()
                continue
            attempt = self._session.state.attempt_due(call)
            if not await self._permitted(made, call, attempt, mark, arguments, delivers=delivered is not None):
                continue
            instruction = carried
            permit = Permit(
                run=self._session.run,
                call=call,
                key=self._key(call),
                attempt=attempt,
                arguments=arguments,
                instruction=instruction,
                partial=said,
                delivers=delivered is not None,
                holds=self._session.ownership.check,
            )
            ended, at = await self._session.calls.perform(made, permit)
            verb = self._session.calls.stopped_by(call)
            is_begun = True
            if call in self._session.state.again:
                said = ended.result
                await self._wait_before(call, ended.retry_seconds)
                continue
            if (doubt := self._session.state.doubts.get(call)) is not None and doubt.blocks:
                continue  # nobody knows whether it happened: a person is asked
            return await self._told(call, ended, at, verb, instruction)

    async def _told(self, call: str, ended: CallResult, at: float, verb: str | None, instruction: str | None) -> Result:
        """What the program is told of a call that has just ended; where a cancel or a halt is in force, nothing."""
        self.at = max(self.at, at)
        # A halt stops calls before it ends their run: a program that is told would end it first, and otherwise.
        await self._session.until_not_halted()
        if self._session.state.status is Status.CANCELLING or self._session.state.is_finished:
            await self._session.wait_to_be_cancelled()
        ending = Ending(ended.outcome, ended.result, ended.error, at)
        if ending.is_interrupted:
            ending = ending._replace(instruction=await self._wanted_instead(verb))
        return self._seen(call, ending, instruction)

    def _seen(self, call: str, ending: Ending, instruction: str | None) -> Result:
        self.at = max(self.at, ending.at)
        return _result(call, ending, instruction)

    async def _wait_before(self, call: str, seconds: float | None) -> None:
        """Wait before a call is asked again; shorter, if it is not to be any more."""
        if seconds:
            _log.info("retry: asked again in %g s", seconds, extra={"run": self._session.run, "call": call})
        give_up = asyncio.get_running_loop().time() + (seconds or 0.0)
        while call in self._session.state.again:
            left = give_up - asyncio.get_running_loop().time()
            if left <= 0:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._session.change()

    async def _await_resolution(self, call: str) -> None:
        """Wait while nobody knows whether the call happened, and the program has to be told."""
        while (doubt := self._session.state.doubts.get(call)) is not None and doubt.person and doubt.blocks:
            await self._session.change()

    async def _recorded_result(self, call: str) -> Ending | None:
        """How a call ended that was begun before; None when it is to be tried again, or nothing goes on any more.

        Read as a replay would read it, so that a program never sees one ending now and another after a restart.
        """
        state = self._session.state
        if call in state.again or state.status is Status.CANCELLING or state.is_finished:
            return None
        await self._session.writer.flush()
        past = Past(await self._session.journal.read(self._session.run)).calls.get(call)
        return None if past is None else past.ending

    async def _wanted_instead(self, verb: str | None) -> str | None:
        """What the person wants instead whose verb has stopped a call: what a replay would find in the journal."""
        pending = None if verb is None else self._session.state.verb(verb)
        if verb is None or (pending is not None and not pending.instructs):
            return None
        accepted = await self._session.journal.find(self._session.run, verb)
        return None if accepted is None or not isinstance(accepted.event, VerbAccepted) else accepted.event.instruction

    async def _consented(self, request: CallRequest, call: str, mark: str, arguments: bytes) -> CallRequest | None:
        """The call as it may go on to its permit; asks for an approval, and waits for it, where one is needed.

        None when it must wait at the gate first. Raises what the program is told of a call that was not approved.
        """
        state = self._session.state
        if request.approval is None or call in state.again:
            return self._as_wanted(request, call)
        if request.name in state.always and call not in state.approvals and not self._session.has_decision(call):
            return request
        if call not in self._session.state.approvals and not self._session.has_decision(call):
            wanted = c.RequestApproval(
                id=approval_id(call),
                at=self._session.now(),
                call=call,
                name=request.name,
                fingerprint=mark,
                place=request.place,
                arguments=msgspec.Raw(arguments),
                blocks=request.approval == "block",
                what=request.what,
                can_undo=request.undo is not None,
                schema=None if request.schema is None else msgspec.Raw(request.schema),
            )
            try:
                await self._session.writer.commit(wanted)
            except CommandRefused as refused:
                _log.debug("not asked for an approval: %s", refused, extra={"run": self._session.run, "call": call})
                if refused.refusal.code == "not_now":
                    return None  # a verb came in between: wait at the gate, then ask
        while (approval := self._session.state.approvals.get(call)) is not None and approval.decision is None:
            await self._session.change()
        if approval is None:
            if self._session.state.status is Status.CANCELLING or self._session.state.is_finished:
                await self._session.wait_to_be_cancelled()  # withdrawn by a cancel, which a program never sees
            self.edited.pop(call, None)
            decided = self._session.decision(call)
            ending = ending_of(decided)
            if ending.is_interrupted:
                ending = ending._replace(instruction=await self._wanted_instead(stopped_by(decided)))
            _result(call, ending, None)
        elif approval.arguments is not None:
            self.edited[call] = bytes(approval.arguments)
        return self._as_wanted(request, call)

    def _as_wanted(self, request: CallRequest, call: str) -> CallRequest:
        """The call with the arguments that a person wants it to be made with, if they want others."""
        edited = self.edited.get(call)
        if edited is None or request.revise is None:
            return request
        try:
            return request.revise(edited)
        except ValueError as error:
            why = f"The arguments that a person gave instead do not fit: {error}"
            _log.info("refused a call of %s: %s", request.name, why, extra={"run": self._session.run, "call": call})
            return msgspec.structs.replace(request, perform=lambda _: RefusedExecution(why), effect=None, undo=None)

    async def _permitted(
        self, request: CallRequest, call: str, attempt: int, mark: str, arguments: bytes, *, delivers: bool
    ) -> bool:
        command = c.StartCall(
            id=self._session.new_id("p"),
            at=self._session.now(),
            epoch=self._session.ownership.epoch,
            call=call,
            kind=request.kind,
            name=request.name,
            attempt=attempt,
            key=self._key(call),
            step=request.step,
            arguments=msgspec.Raw(arguments),
            fingerprint=mark,
            place=request.place,
            on_pause=request.on_pause,
            idempotent=request.idempotent,
            opens=None if request.effect is None else Effect(id=call, what=request.effect, undo=request.undo),
            needs_approval=request.approval is not None,
            carries=request.carries,
            delivers=delivers,
            effects=await self._session.journal.effects(self._session.run) if delivers else (),
            timeout_seconds=request.timeout_seconds,
            priced=request.priced,
        )
        # A program that is cancelled here has its permit perhaps, and will never use it.
        forgo = partial(self._session.calls.forgo, call, attempt)
        try:
            await self._session.writer.commit(command, unwanted=forgo)
        except CommandRefused as refused:
            _log.debug("no permit: %s", refused, extra={"run": self._session.run, "call": call})
            await self._mend(call, attempt, refused.refusal)
            return False
        except (Fenced, RunOver) as refused:
            _log.info("no permit: %s", refused, extra={"run": self._session.run, "call": call})
            # A run above was cancelled, or an operator has halted: the verb for this run is on its way.
            await asyncio.sleep(0.05)
            return False
        return True

    async def _mend(self, call: str, attempt: int, refusal: Refusal) -> None:
        """A permit was refused: do what that asks for, or wait until something has changed."""
        if refusal.code == "not_again" and attempt > 1:
            return  # a verb came since it was looked at, and it is not to be tried again: hear what became of it
        if refusal.code == "not_approved" and call not in self._session.state.approvals:
            return  # consent was withdrawn since it was looked for: ask, or hear what became of it
        if refusal.trip is not None:
            await self._session.try_to(
                c.TripCondition(id=self._session.new_id("cap"), at=self._session.now(), trip=refusal.trip)
            )
        elif refusal.code != "not_now":
            raise CallFailed(refusal.message, name="", error=refusal.code)

    def _key(self, call: str) -> str:
        """Under which the outside world may know a call: the same for every attempt."""
        return f"{self._session.run}/{call}"

    def _next(self) -> str:
        self._number += 1
        return f"c{self._number}"


def _result(call: str, ending: Ending, instruction: str | None) -> Result:
    if ending.outcome is Outcome.COMPLETED:
        return Result(call, ending.result, instruction, ending.at)
    if not ending.is_interrupted:
        error = ending.error or ""
        raise CallFailed(error or "it failed", error=error, call=call, instruction=instruction)
    message = "Interrupted; it may have partly happened."
    raise Interrupted(message, call=call, partial=ending.result, instruction=ending.instruction, carried=instruction)
