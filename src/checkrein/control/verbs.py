"""One path for every verb, from whichever process: load, decide, append, wait for the receipt.

A verb is accepted by whoever appends it, and settled by whoever holds the run's lease. Where nobody does, control
claims the run, settles what needs no user code, and lets it go again; undos wait for a process that has the agent.
"""

from __future__ import annotations

import asyncio
import math
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar

import msgspec

from checkrein.control.redacting import redacted_command
from checkrein.core import commands as c
from checkrein.core.decide import decide
from checkrein.core.effects import Effect
from checkrein.core.events import CallFinished, CheckAsked, Event, ReasonAdded, VerbAccepted, VerbSettled
from checkrein.core.evolve import evolve
from checkrein.core.orders import Settle, obstacle, orders
from checkrein.core.receipts import Receipt
from checkrein.core.state import State
from checkrein.core.verdict import Joined
from checkrein.core.words import TERMINAL, Answer, Undo, When
from checkrein.errors import Conflict, JournalError, Refused, StaleEpoch
from checkrein.journal.contract import Journal, Owner, Recorded, RunRow
from checkrein.journal.surely import surely
from checkrein.runtime.claiming import claim
from checkrein.runtime.deciding import take
from checkrein.runtime.identity import is_known_dead
from checkrein.runtime.secrets import Secrets, SecretsGiven
from checkrein.runtime.subruns import HELD, WHY

WAIT_SECONDS: Final = 5.0
"""How long a verb waits for its receipt before it says what it still waits for."""

_LEASE_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 0.25
_LOOK_SECONDS_MOST: Final = 2.0
"""How often control looks whether a run whose verb it waits for has lost its driver."""

Make = Callable[[float, State, bool, tuple[Effect, ...]], c.Command]
T = TypeVar("T")


class Settling(msgspec.Struct, frozen=True, kw_only=True):
    """A verb that is accepted and in force, and not settled yet."""

    run: str
    accepted: str
    verb: str
    status: str
    waiting_for: str


class Control:
    """Verbs on the runs of a journal. `owner` is this process, should it have to claim a run.

    `secrets` are taken out of what people type; without any given, those of this process's environment.
    """

    def __init__(
        self,
        journal: Journal,
        owner: Owner,
        *,
        clock: Callable[[], float] = time.time,
        secrets: SecretsGiven = None,
    ) -> None:
        self._journal = journal
        self._secrets = Secrets.of(secrets)
        self._owner = owner
        self._clock = clock
        self._buried: set[str] = set()
        self._deadlines: set[asyncio.Timeout] = set()
        self._is_hurried = False

    def hurry(self) -> None:
        """From now on nobody is kept waiting for a receipt: whoever does is told what their verb waits for."""
        self._is_hurried = True
        for deadline in self._deadlines:
            with suppress(RuntimeError):  # it has just run out by itself
                deadline.reschedule(0.0)

    # -- the verbs

    async def pause(
        self, run: str, *, by: str, reason: str = "", request_id: str = "", wait: float = WAIT_SECONDS
    ) -> Receipt | Settling:
        stamp = self._stamp(by, reason, request_id)

        def below(child: str) -> c.Command:
            return c.PauseRun(id=HELD + _new_id(), at=self._clock(), by=by, reason=WHY)

        return await self._verb(run, lambda at, *_: c.PauseRun(at=at, **stamp), stamp["id"], wait, below)

    async def resume(
        self,
        run: str,
        instruction: str | None = None,
        *,
        by: str,
        reason: str = "",
        request_id: str = "",
        expected_seq: int | None = None,
        wait: float = WAIT_SECONDS,
    ) -> Receipt | Settling:
        stamp = self._stamp(by, reason, request_id, expected_seq)
        return await self._verb(
            run,
            lambda at, _, driven, __: c.ResumeRun(at=at, instruction=instruction, driven=driven, **stamp),
            stamp["id"],
            wait,
        )

    async def redirect(
        self,
        run: str,
        instruction: str,
        *,
        by: str,
        when: When = When.NOW,
        reason: str = "",
        request_id: str = "",
        expected_seq: int | None = None,
        wait: float = WAIT_SECONDS,
    ) -> Receipt | Settling:
        stamp = self._stamp(by, reason, request_id, expected_seq)
        return await self._verb(
            run,
            lambda at, _, driven, __: c.RedirectRun(at=at, instruction=instruction, when=when, driven=driven, **stamp),
            stamp["id"],
            wait,
        )

    async def cancel(
        self,
        run: str,
        *,
        by: str,
        undo: Undo = Undo.OPEN,
        reason: str = "",
        request_id: str = "",
        wait: float = WAIT_SECONDS,
    ) -> Receipt | Settling:
        stamp = self._stamp(by, reason, request_id)

        def below(child: str) -> c.Command:
            return c.CancelRun(id=f"{child}.stop.{undo}", at=self._clock(), by=by, reason=WHY, undo=undo)

        return await self._verb(run, lambda at, *_: c.CancelRun(at=at, undo=undo, **stamp), stamp["id"], wait, below)

    async def ask(
        self,
        run: str,
        question: str,
        *,
        by: str,
        reason: str = "",
        request_id: str = "",
        expected_seq: int | None = None,
        wait: float = 60.0,
    ) -> Receipt | Settling:
        stamp = self._stamp(by, reason, request_id, expected_seq)
        return await self._verb(run, lambda at, *_: c.AskRun(at=at, question=question, **stamp), stamp["id"], wait)

    async def why_unanswered(self, receipt: Receipt) -> str:
        """Why a question got no answer: what went wrong when it was put to the model, or that it was stopped."""
        accepted, *records = await self._journal.read(receipt.run, after=receipt.seq - 1)
        ends = (record.event for record in reversed(records) if isinstance(record.event, CallFinished))
        error = next((end.error for end in ends if end.call == f"ask:{accepted.event.id}"), None)
        return (error or "it was stopped before there was one").removesuffix(".")

    async def abort(
        self, run: str, call: str, *, by: str, reason: str = "", wait: float = WAIT_SECONDS
    ) -> Receipt | Settling:
        stamp = self._stamp(by, reason, "")
        return await self._verb(run, lambda at, *_: c.AbortCall(at=at, call=call, **stamp), stamp["id"], wait)

    # -- decisions about single calls: they are in force when they are taken, and have no receipt

    async def approve(self, run: str, call: str, *, by: str, note: str = "") -> State:
        stamp = self._stamp(by, note, "")
        return await self._decide(run, lambda at, *_: c.ApproveCall(at=at, call=call, **stamp))

    async def deny(self, run: str, call: str, *, by: str, note: str = "") -> State:
        stamp = self._stamp(by, note, "")
        return await self._decide(run, lambda at, *_: c.DenyCall(at=at, call=call, **stamp))

    async def resolve(
        self, run: str, call: str, answer: Answer, *, by: str, result: Any = None, note: str = ""
    ) -> State:
        stamp = self._stamp(by, note, "")
        encoded = None if result is None else msgspec.Raw(msgspec.json.encode(result))
        return await self._decide(
            run,
            lambda at, _, __, effects: c.ResolveCall(
                at=at, call=call, answer=answer, result=encoded, effects=effects, **stamp
            ),
        )

    async def retry_undo(self, run: str, effect: str, *, by: str) -> State:
        stamp = self._stamp(by, "", "")
        return await self._decide(
            run, lambda at, _, __, effects: c.RetryUndo(at=at, effect=effect, effects=effects, **stamp)
        )

    async def check(self, run: str, call: str, *, by: str) -> State:
        """Have the tool of a call in doubt asked once more whether it happened. What it says comes as `call.checked`.

        Raises `Refused` when there is no such doubt, or nobody at work who could ask the tool.
        """
        state = await self._journal.load(run)
        if call not in state.doubts:
            sentence = f"Call {call} of run {run} is not in doubt."
            raise Refused(sentence, code="not_in_doubt", run=run, status=state.status)
        if state.is_finished or not await self._is_driven(run):
            sentence = f"Nobody is at work on run {run} who could ask the tool; decide by what it said before."
            raise Refused(sentence, code="nobody_at_work", run=run, status=state.status)
        await self._journal.append(run, [CheckAsked(id=_new_id(), at=self._clock(), call=call, by=by)], after=0)
        return state

    async def add_reason(self, run: str, reason: str, *, by: str, note: str = "") -> None:
        """Say why a run was stopped, also afterwards."""
        reason, note = self._secrets.text(reason), self._secrets.text(note)
        event = ReasonAdded(id=_new_id(), at=self._clock(), reason=reason, by=by, note=note)
        await self._journal.append(run, [event], after=0)

    def _stamp(self, by: str, reason: str, request_id: str, expected_seq: int | None = None) -> dict[str, Any]:
        return {
            "id": request_id or _new_id(),
            "by": by,
            "reason": reason,
            "asked_at": self._clock(),
            "expected_seq": expected_seq,
        }

    # -- the path

    async def _verb(
        self,
        run: str,
        make: Make,
        request_id: str,
        wait: float,
        cascade: Callable[[str], c.Command] | None = None,
    ) -> Receipt | Settling:
        known, driven = await asyncio.gather(self._journal.find(run, request_id), self._is_driven(run))
        if known is not None and isinstance(known.event, VerbAccepted):
            return await self._receipt(run, request_id, known.seq, wait)
        verdict, state = await self._take(run, make, driven=driven)
        if cascade is not None:
            await self._cascade(run, cascade)
        accepted = verdict.accepted if isinstance(verdict, Joined) else request_id
        return await self._receipt(run, accepted, 0 if isinstance(verdict, Joined) else state.seq, wait)

    async def _decide(self, run: str, make: Make) -> State:
        _, state = await self._take(run, make, driven=await self._is_driven(run))
        return state

    async def _take(self, run: str, make: Make, *, driven: bool) -> tuple[tuple[Event, ...] | Joined, State]:
        return await take(
            self._journal,
            run,
            lambda state, effects: redacted_command(self._secrets, make(self._clock(), state, driven, effects)),
        )

    async def _cascade(self, run: str, make: Callable[[str], c.Command]) -> None:
        """Pass a stop on to every run below, whether or not somebody drives the one above."""
        state = await self._journal.load(run)
        for row in await self._journal.runs(root=state.root or run, limit=10_000):
            if row.status not in TERMINAL and await self._descends(row, run):
                with suppress(Refused, JournalError):
                    await take(self._journal, row.id, lambda state, effects, row=row: make(row.id))  # type: ignore[misc]

    async def _descends(self, row: RunRow, run: str) -> bool:
        """Whether `row` is below `run`, and not beside it under the same root."""
        parent = row.parent
        while parent is not None and parent != run:
            parent = (await self._journal.load(parent)).parent
        return parent == run

    async def _is_driven(self, run: str) -> bool:
        lease = await self._journal.lease(run)
        return lease is not None and lease.deadline > self._clock() and not is_known_dead(lease.owner)

    async def _receipt(self, run: str, accepted: str, after: int, wait: float) -> Receipt | Settling:
        """The receipt of a verb, or, when that takes too long, what it waits for."""
        settled = asyncio.get_running_loop().create_task(self._settled(run, accepted, after))
        deadline = asyncio.timeout(0.0 if self._is_hurried else wait)
        self._deadlines.add(deadline)
        try:
            async with deadline:
                pause = _LOOK_SECONDS
                while not settled.done():
                    # Also later on: a driver that is wedged in user code is killed after a while.
                    if not await self._is_driven(run):
                        await self.settle_undriven(run)
                    await asyncio.wait([settled], timeout=pause)
                    pause = min(2 * pause, _LOOK_SECONDS_MOST)
                return settled.result()
        except TimeoutError:
            return await self._still_settling(run, accepted, after)
        finally:
            self._deadlines.discard(deadline)
            settled.cancel()
            await asyncio.gather(settled, return_exceptions=True)

    async def _settled(self, run: str, accepted: str, after: int) -> Receipt:
        follower = self._journal.follow(run, after=after)
        try:
            async for record in follower:
                if isinstance(record.event, VerbSettled) and record.event.accepted == accepted:
                    return record.event.receipt
        finally:
            await follower.aclose()  # type: ignore[attr-defined]
        raise AssertionError("a follower never ends by itself")

    async def _still_settling(self, run: str, accepted: str, after: int) -> Receipt | Settling:
        state, effects = await self._journal.load(run), await self._journal.effects(run)
        verb = state.verb(accepted)
        if verb is None:
            return await self._settled(run, accepted, after)
        waits_for = obstacle(state, verb, effects) or "its driver"
        if not await self._is_driven(run):
            waits_for = f"a worker with agent {state.agent}"
        return Settling(run=run, accepted=accepted, verb=verb.verb, status=state.status, waiting_for=waits_for)

    # -- where no driver lives

    async def settle_undriven(self, run: str) -> None:
        """Settle what needs no user code on a run that nobody drives. Does nothing if somebody is faster."""
        claiming = claim(self._journal, run, self._owner, seconds=_LEASE_SECONDS, at=self._clock(), buried=self._buried)
        try:
            lease, dead = await surely(claiming, take_back=lambda claimed: self._journal.release(claimed[0]))
        except JournalError:
            return
        try:
            state = await self._journal.load(run)
            claimed = c.TakeOver(id=_new_id(), at=self._clock(), epoch=lease.epoch, owner_dead=dead, drives=False)
            state = await self._append(state, claimed, lease.epoch)
            await self._settle_all(state, lease.epoch)
        except StaleEpoch:
            pass  # a driver has taken it by force, and will settle what there is
        finally:
            await surely(self._journal.release(lease))

    async def _settle_all(self, state: State, epoch: int) -> State:
        effects = await self._journal.effects(state.run)
        # An undo that nobody was there for is not late: it waits for a worker that has the agent.
        for order in orders(state, effects, at=self._clock(), settle_seconds=math.inf):
            if isinstance(order, Settle) and state.verb(order.verb.id) is not None:
                settle = c.SettleVerb(
                    id=_new_id(), at=self._clock(), accepted=order.verb.id, effects=effects, settle_seconds=math.inf
                )
                state = await self._append(state, settle, epoch)
        return state

    async def _append(self, state: State, command: c.Command, epoch: int) -> State:
        verdict = decide(state, command)
        if not isinstance(verdict, tuple) or not verdict:
            return state
        try:
            appended = await self._journal.append(state.run, verdict, after=state.seq, epoch=epoch)
        except Conflict as conflict:
            return _folded(state, conflict.missed)
        return _folded(state, (*appended.missed, *appended.events))


def _folded(state: State, records: tuple[Recorded, ...]) -> State:
    for record in records:
        state = evolve(state, record.event, record.seq)
    return state


def _new_id() -> str:
    return uuid.uuid4().hex
