"""The calls that one driver makes: each from the moment it begins until the journal knows how it ended.

What has a permit is performed here, stopped here, frozen here, and its end is recorded here. Which call may begin is
decided elsewhere (`permits`, `undo`, `reconcile`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, Final

import msgspec

from checkrein.asyncutil import run_to_completion
from checkrein.calls.arguments import recordable
from checkrein.calls.base import CallRequest, CallResult, Execution, Permit, StopWait, finishing
from checkrein.calls.in_process.child_tasks import outside
from checkrein.core import commands as c
from checkrein.core.decide import decide
from checkrein.core.enums import CallKind, Outcome
from checkrein.core.events import CallFinished, CallStarted, EffectSettled, Event, RetryScheduled, StopDelayed
from checkrein.core.wording import UNSETTLED
from checkrein.driver.commits import RunWriter
from checkrein.driver.ownership import Ownership, OwnershipLost
from checkrein.errors import CheckreinError, MisuseError, describe
from checkrein.timings import DETACH_SECONDS

_log = logging.getLogger(__name__)

Start = Callable[[Coroutine[Any, Any, object]], asyncio.Task[object]]
"""Does something beside the driver; it ends with the driver at the latest."""


NOT_ANSWERED: Final = "it did not answer its stop"
"""What is left of a call that was detached because nothing was heard of it."""

_answering: set[asyncio.Task[None]] = set()

_performing: ContextVar[str] = ContextVar("checkrein_performing", default="")
"""The run of the call that this code is a part of. Whatever a call starts inherits it."""


def leave_call() -> None:
    """What goes on in this context from now on is a part of no call."""
    _performing.set("")


def check_outside_calls(run: str, what: str) -> None:
    """Raise `MisuseError` inside a call of `run`: a pause would wait for it, while it waits for one that is paused."""
    if _performing.get() == run:
        raise MisuseError(
            f"{what} was asked for inside another call of the same run, and a pause of that could never settle. Make "
            "the calls one after another in the program itself, or hand the work to a sub-run with ctx.spawn.",
            run=run,
        )


class _RunningCall(msgspec.Struct):
    execution: Execution
    aborting: asyncio.Task[object] | None = None
    hurrying: asyncio.Task[object] | None = None
    letting_go: asyncio.Task[object] | None = None
    is_detached: bool = False
    """It has not answered its stop, and is recorded so: nobody waits for it any more."""


class RunningCalls:
    """`look` has the driver look whether there is something to do.

    `is_torn_down` says whether the driver itself is being cancelled, perhaps with everything else on the event loop.
    """

    def __init__(
        self,
        writer: RunWriter,
        ownership: Ownership,
        *,
        start: Start,
        look: Callable[[], None],
        is_torn_down: Callable[[], bool] = lambda: False,
        is_halted: Callable[[], bool] = lambda: False,
    ) -> None:
        self._writer = writer
        self._ownership = ownership
        self._start = start
        self._look = look
        self._is_torn_down = is_torn_down
        self._is_halted = is_halted

        # Every execution that was begun here and is not known to be over, by the id of its call. Invariant: nothing is
        # added once the run is lost, so whoever has stopped all of them after the loss has stopped everything.
        self._running: dict[str, _RunningCall] = {}

        # Those that were told to freeze and not to go on since. Invariant: all of them are running.
        self._told_to_hold: frozenset[str] = frozenset()

        # Those that are frozen. Invariant: all of them were told to.
        self._held: frozenset[str] = frozenset()

        # How calls ended here, as far as the journal does not have it from this driver. Invariant: once the run is lost
        # nothing is taken out, since what comes in then is the end of somebody else's attempt.
        self._endings: dict[str, CallResult] = {}

        # The ids under which the ends of calls were given to the writer. Another driver may end another attempt, under
        # another id.
        self._given: set[str] = set()

        # Which verb ended the latest attempt of each, until whoever has asked for the call has looked.
        self._stopped_by: dict[str, str | None] = {}

        # The calls whose latest attempt has ended under one of these ids. Invariant: this driver owes no answer about
        # them; one that could not be stopped is answered for when it has ended.
        self._recorded: set[str] = set()

    @property
    def held(self) -> frozenset[str]:
        """Calls that are frozen."""
        return self._held

    @property
    def told_to_hold(self) -> frozenset[str]:
        """Calls that are frozen, or will be when they can: whoever is to go on has to be told."""
        return self._told_to_hold

    def __contains__(self, call: str) -> bool:
        return call in self._running

    def has_recorded(self, call: str) -> bool:
        """Whether the journal has the end of this call's latest attempt from this driver."""
        return call in self._recorded

    def execution(self, call: str) -> Execution | None:
        """The execution of a call that is in flight here."""
        running = self._running.get(call)
        return None if running is None else running.execution

    # -- performing

    async def perform(self, request: CallRequest, permit: Permit) -> tuple[CallResult, float]:
        """Make a permitted call, record how it ended, and say so and when.

        Raises `OwnershipLost`, and then it was not begun, when the lease has run out since the permit.
        """
        if not self._ownership.check():
            raise OwnershipLost
        live = self._writer.state.live.get(permit.call)
        if (live is not None and live.stop is not None) or self._is_halted():
            # The verb, or a halt, was faster than we were: the call has its permit and never began.
            ended = CallResult(outcome=Outcome.ABORTED, begun=False)
        else:
            ended = await self._execute(request, permit)
        if ended.error is not None:
            ended = msgspec.structs.replace(ended, error=recordable(ended.error))
        at = self._ownership.now()
        self._record(permit.call, permit.attempt, ended, at)
        if self._is_torn_down():
            raise asyncio.CancelledError  # the program is told nothing that a replay might tell otherwise
        return ended, at

    def stopped_by(self, call: str) -> str | None:
        """The id of the verb that ended the latest attempt of a call, if one did; asked once."""
        return self._stopped_by.pop(call, None)

    def detach(self, call: str) -> None:
        """Wait no longer for a call that has not answered its stop: it may still act, and is recorded so.

        When it ends after all, that is said in its driver's name, whoever has the run by then.
        """
        live, running = self._writer.state.live.get(call), self._running.get(call)
        if live is None:
            return
        _log.warning("%s has not answered its stop, and is detached", live.name, extra=self._about(call))
        if running is not None:
            running.is_detached = True
            self.abort(call, hurry=True)
            answering = asyncio.get_running_loop().create_task(
                self._answer_late(call, running.execution), context=outside()
            )
            _answering.add(answering)  # it may outlive the driver
            answering.add_done_callback(_answering.discard)
        left = UNSETTLED if live.kind is CallKind.RUN else NOT_ANSWERED
        self._record(call, live.attempt, CallResult(outcome=Outcome.DETACHED, left=(left,)), self._ownership.now())

    async def _answer_late(self, call: str, execution: Execution) -> None:
        try:
            ended = await execution.ended()
        except Exception as error:
            _log.warning("nobody knows how a detached call ended: %r", error, extra=self._about(call))
            return
        if ended.outcome is Outcome.DETACHED:
            return  # it goes on, and whoever lets it go says when it has ended
        try:
            await self._writer.flush()  # an answer counts once the call is recorded as detached
        except OwnershipLost:
            _log.debug("a detached call has ended after the run was lost", extra=self._about(call))
        await self._ownership.answer_late(call)

    async def _execute(self, request: CallRequest, permit: Permit) -> CallResult:
        outer = _performing.set(permit.run)
        try:
            execution = request.perform(permit)
        except BaseException as error:  # it awaits nothing: whatever it raises is its own
            return CallResult(outcome=Outcome.FAILED, error=describe(error))
        finally:
            _performing.reset(outer)
        with self._in_flight(permit.call, execution):
            self._look()
            return await self._end_of(request, permit, execution)

    async def _end_of(self, request: CallRequest, permit: Permit, execution: Execution) -> CallResult:
        """Wait for the end of a call. A program that no longer wants it stops it: it is aborted, and recorded so."""
        try:
            return await _in_time(execution, request.timeout_seconds)
        except asyncio.CancelledError:
            running = self._running.get(permit.call)
            if running is None or not running.is_detached:
                await run_to_completion(self._give_up(permit, execution))
            raise
        except (CheckreinError, OwnershipLost):
            raise  # it says something about the run
        except BaseException as error:
            _log.warning("a call could not say how it ended: %s", describe(error), extra=self._about(permit.call))
            return CallResult(outcome=Outcome.FAILED, error=describe(error))

    async def _give_up(self, permit: Permit, execution: Execution) -> None:
        await execution.abort()
        self._record(permit.call, permit.attempt, await execution.ended(), self._ownership.now())

    async def end_within(self, seconds: float, call: str, execution: Execution) -> CallResult:
        """How an undo or a check ended. One that takes longer is stopped, and has failed; one that does not stop either
        is let go. Nothing is recorded."""
        with self._in_flight(call, execution):
            try:
                async with asyncio.timeout(seconds):
                    return await execution.ended()
            except TimeoutError:
                await asyncio.wait([self._start(execution.abort())], timeout=DETACH_SECONDS)
                return CallResult(outcome=Outcome.FAILED, error=f"it did not end within {seconds:g} s")

    @contextmanager
    def _in_flight(self, call: str, execution: Execution) -> Iterator[None]:
        self._running[call] = _RunningCall(execution)
        execution.on_wait = partial(self._stop_waits, call)
        try:
            yield
        finally:
            self._running.pop(call, None)
            self._told_to_hold -= {call}
            self._held -= {call}

    # -- recording

    def forgo(self, call: str, attempt: int) -> None:
        """Record that the call has its permit and will never begin."""
        self._record(call, attempt, CallResult(outcome=Outcome.ABORTED, begun=False), self._ownership.now())

    def _record(self, call: str, attempt: int, ended: CallResult, at: float) -> None:
        self._endings[call] = ended = self._known(ended)
        if self._is_torn_down():
            return  # `hand_over` says what is known of it
        command = finishing(call, attempt, ended, at)
        verdict = decide(self._writer.state, command)
        if isinstance(verdict, tuple):
            self._given.add(command.id)
            live = self._writer.state.live[call]
            self._stopped_by[call] = next((one.verb for one in verdict if isinstance(one, CallFinished)), None)
            settled = _settled(command, attempt, ended) if live.effect is not None else ()
            self._writer.record(*verdict, *settled, *_retry(command, attempt, ended))
            self._look()

    def _known(self, ended: CallResult) -> CallResult:
        """What the end of a call says. When all is cancelled at once, a failure is perhaps nothing but that."""
        if ended.outcome is Outcome.FAILED and self._is_torn_down():
            return msgspec.structs.replace(ended, outcome=Outcome.ABORTED)
        return ended

    def permitted(self, started: CallStarted) -> None:
        """The permit of a call was committed: how an earlier attempt ended says nothing about this one."""
        if started.epoch == self._ownership.epoch:
            self._recorded.discard(started.call)

    def heard(self, finished: CallFinished) -> None:
        """The end of a call was committed, by this driver or another: of a call in flight here, by another."""
        if finished.id in self._given:
            self._recorded.add(finished.call)
        if self._ownership.is_held and not finished.abandoned:
            self._endings.pop(finished.call, None)
        elif finished.call in self._running:
            self._ownership.lose("somebody else has recorded the end of a call that is in flight here")

    # -- stopping and freezing

    def _stop_waits(self, call: str, wait: StopWait) -> None:
        """An abort has to wait: whoever asked for the stop is to see for what."""
        _log.info("a stop waits for %s, at most %g s", wait.what, wait.seconds, extra=self._about(call))
        if self._ownership.is_held and call in self._writer.state.live:
            id, at = self._ownership.new_id("wait"), self._ownership.now()
            self._writer.record(StopDelayed(id=id, at=at, call=call, what=wait.what, seconds=wait.seconds))

    def abort(self, call: str, *, hurry: bool = False) -> None:
        """Begin to stop a call, once. `hurry`: and wait for nothing that it asks for, also if it is being stopped."""
        running = self._running.get(call)
        if running is None:
            return
        if hurry and running.hurrying is None:
            _log.info("a stop waits no longer for what the call asks for", extra=self._about(call))
            running.hurrying = self._start(running.execution.hurry())
        if running.aborting is None:
            running.aborting = self._start(running.execution.abort())

    async def abort_all(self, *, except_for: tuple[str, ...] = ()) -> None:
        """Stop every call, one after another, but for those whose id begins like one of these."""
        for call, running in list(self._running.items()):
            if not running.is_detached and not call.startswith(except_for):
                await running.execution.abort()

    async def hold(self, call: str) -> bool:
        """Freeze a call; False when it cannot be, or not yet."""
        running = self._running.get(call)
        if running is None:
            return False
        self._told_to_hold |= {call}
        if not await running.execution.hold() or call not in self._told_to_hold:
            return False
        self._held |= {call}
        return True

    async def resume(self, call: str) -> None:
        """Let a call go on that was told to freeze."""
        self._told_to_hold -= {call}
        self._held -= {call}
        running = self._running.get(call)
        if running is not None:
            await running.execution.resume()

    def begin_to_let_go(self) -> dict[str, _RunningCall]:
        """Begin to stop every call as fast as each can be, and return those."""
        running = {call: one for call, one in self._running.items() if not one.is_detached}
        for one in running.values():
            if one.letting_go is None:
                one.letting_go = self._start(one.execution.let_go())
        return running

    async def let_go(self) -> dict[str, CallResult]:
        """Stop every call as fast as each can be; one that somebody else drives is only let go. Nothing is recorded.

        Returns how each ended whose end the journal does not have from here. Cancelling this takes no stop back.
        """
        running = self.begin_to_let_go()
        stops = [one.letting_go for one in running.values() if one.letting_go is not None]
        if stops:
            await asyncio.wait(stops)
        endings = dict(self._endings)
        for call, one in running.items():
            try:
                endings.setdefault(call, self._known(await one.execution.ended()))
            except Exception as error:
                _log.warning("nobody knows how a call ended: %s", describe(error), extra=self._about(call))
        return endings

    def _about(self, call: str) -> dict[str, object]:
        return {"run": self._ownership.run, "epoch": self._ownership.epoch, "call": call}


async def _in_time(execution: Execution, seconds: float | None) -> CallResult:
    """How a call ended; one that takes longer than its tool allows is stopped, and says so."""
    if seconds is None:
        return await execution.ended()
    try:
        async with asyncio.timeout(seconds):
            return await execution.ended()
    except TimeoutError:
        await execution.abort()
    ended = await execution.ended()
    if ended.outcome in (Outcome.COMPLETED, Outcome.FAILED):
        return ended
    error = f"It did not end within {seconds:g} s and was stopped; it may have partly happened."
    return msgspec.structs.replace(ended, error=error)


def _settled(finish: c.FinishCall, attempt: int, ended: CallResult) -> tuple[EffectSettled, ...]:
    """What is known about the effect of a call at its end: that it is meant to stay, or that there is none."""
    settled = EffectSettled(id=f"{finish.id}.settled", at=finish.at, effect=finish.call)
    if ended.settled:
        return (settled,)
    if not ended.begun and attempt == 1:  # an earlier attempt may have done something
        return (msgspec.structs.replace(settled, why="it had not begun", happened=False),)
    return ()


def _retry(finished: c.FinishCall, attempt: int, ended: CallResult) -> tuple[Event, ...]:
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
