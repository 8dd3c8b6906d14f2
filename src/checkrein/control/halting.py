"""The operator's kill switch: latched, no undo, and no waiting for anybody.

The fence goes up first: from then on no call is permitted in the scope, on any machine, and no run begins in it. Then
every live run in the scope is claimed by force and ended. Its former owner stops what it has in flight when it finds
out; whether it has said so is in the answer. `reset` takes the fence down and resumes nothing.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import msgspec

from checkrein.core import commands as c
from checkrein.core.decide import decide
from checkrein.core.events import VerbSettled
from checkrein.core.receipts import Receipt
from checkrein.core.verdict import Refusal
from checkrein.core.words import TERMINAL, Status, Verb
from checkrein.errors import CheckreinError, Conflict, LeaseHeld, MisuseError, RunOver, StaleEpoch
from checkrein.journal.contract import Fence, Journal, Lease, Owner, RunRow, Scope
from checkrein.journal.surely import surely
from checkrein.runtime.claiming import claim
from checkrein.runtime.former import has_unanswered

WAIT_SECONDS: Final = 5.0
"""How long a halt waits for those who drove the runs to say that they have stopped."""

_LEASE_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 0.05
_TRIES: Final = 20
_AT_A_TIME: Final = 32
_PAGE: Final = 500
_LIVE: Final = frozenset(Status) - TERMINAL
SCOPES: Final = (Scope.RUN, Scope.AGENT, Scope.OWNER, Scope.ALL)


class Halted(msgspec.Struct, frozen=True, kw_only=True):
    """What a halt has come to."""

    scope: Scope
    name: str
    by: str
    reason: str
    at: float
    receipts: tuple[Receipt, ...] = ()
    """Of every run that was live."""
    unconfirmed: tuple[str, ...] = ()
    """Runs whose former owner has not said yet that it has stopped what was in flight. It may begin nothing more."""
    missed: tuple[str, ...] = ()
    """Runs that are fenced and could not be ended: nothing begins in them, and halting again ends them."""


class Lifted(msgspec.Struct, frozen=True, kw_only=True):
    """What a reset has come to. Nothing was resumed."""

    scope: Scope
    name: str
    was_latched: bool


class Halting:
    """Halts and resets on the runs of a journal. `owner` is this process, which has to claim them."""

    def __init__(self, journal: Journal, owner: Owner, *, clock: Callable[[], float] = time.time) -> None:
        self._journal = journal
        # Not the same owner as a driver of this process: it must be taken from that one, too.
        self._owner = msgspec.structs.replace(owner, process=f"{owner.process}-halt-{uuid.uuid4().hex[:8]}")
        self._clock = clock
        self._buried: set[str] = set()

    async def halt(
        self, scope: Scope | str, name: str = "", *, by: str, reason: str = "", wait: float = WAIT_SECONDS
    ) -> Halted:
        """Latch the fence and end every live run in the scope. Repeating it ends what was missed the first time.

        Raises `MisuseError` for a scope that cannot be meant, `RunNotFound`, or `StoreUnavailable`: then ask again.
        """
        scope = _scope(scope)
        if scope is Scope.RUN:
            await self._journal.lease(name)  # there is such a run
        await self._journal.fence(Fence(scope=scope, name=name, by=by, reason=reason, at=self._clock()))
        latched = next(f for f in await self._journal.fences() if (f.scope, f.name) == (scope, name))
        receipts: list[Receipt] = []
        missed: list[str] = []
        free = asyncio.Semaphore(_AT_A_TIME)

        async def end(run: str) -> None:
            async with free:
                try:
                    receipt = await self._end(run, by=by, reason=reason)
                except (CheckreinError, TimeoutError):
                    missed.append(run)
                else:
                    receipts.extend([] if receipt is None else [receipt])

        await asyncio.gather(*[end(run) async for run in self._live(scope, name)])
        unconfirmed = await self._unconfirmed([receipt.run for receipt in receipts], wait)
        return Halted(
            scope=scope,
            name=name,
            by=latched.by,
            reason=latched.reason,
            at=latched.at,
            receipts=tuple(receipts),
            unconfirmed=unconfirmed,
            missed=tuple(missed),
        )

    async def reset(self, scope: Scope | str, name: str = "") -> Lifted:
        """Take a halt's fence down again. Runs may begin; what was halted stays halted."""
        scope = _scope(scope)
        latched = await self._journal.fences()
        wide = next((fence for fence in latched if (fence.scope, fence.name) == (scope, name)), None)
        was_latched = await self._journal.unfence(scope, name)
        if wide is not None and scope is not Scope.RUN:
            # Each run that it ended has a fence of its own. One that was halted for itself had ended before.
            ended = [fence.name for fence in latched if fence.scope is Scope.RUN and fence.at >= wide.at]
            for run in ended:
                if await self._is_in(run, scope, name):
                    await self._journal.unfence(Scope.RUN, run)
        return Lifted(scope=scope, name=name, was_latched=was_latched)

    # -- which runs

    async def _live(self, scope: Scope, name: str) -> AsyncIterator[str]:
        """Every run in the scope that is not finished, and every one below such a run; each once."""
        if scope is Scope.RUN:
            state = await self._journal.load(name)
            for run in ([] if state.is_finished else [name]) + await self._below(name, state.root or name):
                yield run
            return
        given: set[str] = set()
        async for row in self._rows(status=_LIVE, **({scope.value: name} if name else {})):
            below = [] if scope is Scope.ALL else await self._below(row.id, row.root or row.id)
            for run in (row.id, *below):
                if run not in given:
                    given.add(run)
                    yield run

    async def _below(self, run: str, root: str) -> list[str]:
        """The live runs that descend from `run`."""
        above, found = {run}, list[str]()
        family = [row async for row in self._rows(root=root)]
        for row in reversed(family):  # a parent is older than its children
            if row.parent in above:
                above.add(row.id)
                found += [row.id] if row.status in _LIVE else []
        return found

    async def _is_in(self, run: str, scope: Scope, name: str) -> bool:
        """Whether a run, or one above it, is in the scope."""
        above: str | None = run
        while above is not None:
            state = await self._journal.load(above)
            if scope is Scope.ALL or getattr(state, scope.value) == name:
                return True
            above = state.parent
        return False

    async def _rows(self, **fields: Any) -> AsyncIterator[RunRow]:
        before: str | None = None
        while rows := await self._journal.runs(limit=_PAGE, before=before, **fields):
            for row in rows:
                yield row
            before = rows[-1].id

    # -- one run

    async def _end(self, run: str, *, by: str, reason: str) -> Receipt | None:
        """Claim it, whoever has it, and end it. None when it had ended before."""
        lease, is_dead = await surely(self._claim(run), take_back=lambda claimed: self._journal.release(claimed[0]))
        halt_id = uuid.uuid4().hex
        try:
            for _ in range(_TRIES):
                state, effects = await asyncio.gather(self._journal.load(run), self._journal.effects(run))
                command = c.HaltRun(
                    id=halt_id, at=self._clock(), by=by, reason=reason, owner_dead=is_dead, effects=effects
                )
                verdict = decide(state, command)
                if isinstance(verdict, Refusal):
                    return None
                assert isinstance(verdict, tuple)
                try:
                    await self._journal.append(run, verdict, after=state.seq, epoch=lease.epoch)
                except Conflict:
                    continue
                except RunOver:
                    return None
                settled = (event for event in verdict if isinstance(event, VerbSettled))
                return next(event.receipt for event in settled if event.verb is Verb.HALT)
        finally:
            await surely(self._journal.release(lease))
        raise MisuseError(f"Run {run} changes too fast to be halted; it is fenced, halt it again.")

    async def _claim(self, run: str) -> tuple[Lease, bool]:
        for _ in range(_TRIES):
            try:
                return await claim(
                    self._journal, run, self._owner, seconds=_LEASE_SECONDS, at=self._clock(), buried=self._buried
                )
            except LeaseHeld:
                return await self._journal.claim(run, self._owner, seconds=_LEASE_SECONDS, force=True), False
            except StaleEpoch:
                continue
        raise LeaseHeld(f"Run {run} changes hands too fast to be claimed; halt it again.", run=run)

    async def _unconfirmed(self, runs: list[str], wait: float) -> tuple[str, ...]:
        """Of these, those whose former owner has not answered for what it had in flight, after `wait` seconds."""
        open_runs, until = list(runs), time.monotonic() + wait
        while True:
            open_runs = [run for run in open_runs if has_unanswered(await self._journal.load(run))]
            if not open_runs or time.monotonic() >= until:
                return tuple(open_runs)
            await asyncio.sleep(_LOOK_SECONDS)


def _scope(scope: Scope | str) -> Scope:
    if scope not in SCOPES:
        raise MisuseError(f"A halt is for one of {', '.join(SCOPES)}, not {scope!r}.")
    return Scope(scope)
