"""The operator's kill switch: latched, no undo, and no waiting for anybody.

The fence goes up first: from then on no call is permitted in the scope, on any machine, and no run begins in it. Then
every live run in the scope is claimed by force and ended. Its former owner stops what it has in flight when it finds
out; whether it has said so is in the answer. `reset` takes the fence down and resumes nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncIterator, Callable, Collection
from typing import Any, Final, Literal

import msgspec

from checkrein.asyncutil import run_to_completion
from checkrein.core import commands as c
from checkrein.core.effects import Effect
from checkrein.core.enums import UNFINISHED, Verb
from checkrein.core.events import VerbSettled
from checkrein.core.receipts import Receipt
from checkrein.core.state import State
from checkrein.driver.ownership import claim, has_unanswered, with_sign_of_life
from checkrein.errors import CheckreinError, LeaseHeld, MisuseError, Refused, StaleEpoch
from checkrein.journal.base import Fence, Journal, Lease, Owner, RunRow, Scope
from checkrein.journal.commands import take_command
from checkrein.processes import halt_flags
from checkrein.processes.identity import in_role
from checkrein.processes.supervisor import tell_stop_waits
from checkrein.secrets import Secrets
from checkrein.timings import CONTROL_LEASE_SECONDS, WAIT_SECONDS

_log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 0.05
_TRIES: Final = 20
_AT_A_TIME: Final = 32
_PAGE: Final = 500
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


class LatchedHalt(msgspec.Struct, frozen=True, kw_only=True):
    """A halt that is in force."""

    scope: Scope
    name: str
    by: str
    reason: str
    at: float
    where: Literal["store", "host"] = "store"
    """`store`: on every host; `host`: only where it is asked, by a flag."""


class HaltList(msgspec.Struct, frozen=True, kw_only=True):
    """What is halted, the oldest first."""

    halts: tuple[LatchedHalt, ...] = ()


class Halting:
    """Halts and resets on the runs of a journal. `owner` is this process, which has to claim them."""

    def __init__(self, journal: Journal, owner: Owner, *, clock: Callable[[], float] | None = None) -> None:
        self._journal = journal
        # Not the same owner as a driver of this process: it must be taken from that one, too.
        self._owner = in_role(owner, "halt")
        self._clock = clock or journal.now
        self._buried: set[str] = set()

    async def halt(
        self, scope: Scope | str, name: str = "", *, by: str, reason: str = "", wait: float = WAIT_SECONDS
    ) -> Halted:
        """Latch the fence and end every live run in the scope. Repeating it ends what was missed the first time.

        Raises `MisuseError` for a scope that cannot be meant, `RunNotFound`, or `StoreUnavailable`: then ask again.
        """
        scope = checked_scope(scope, name)
        reason = Secrets.of(None).text(reason)
        if scope is Scope.RUN:
            await self._journal.lease(name)  # there is such a run
        _log.warning("%s halts %s %s", by, scope.value, name)
        fence = Fence(scope=scope, name=name, by=by, reason=reason, at=self._clock())
        await self._journal.fence(fence, host=self._owner.host)
        return await self.end(scope, name, wait=wait)

    async def end(self, scope: Scope | str, name: str = "", *, wait: float = WAIT_SECONDS) -> Halted:
        """End every live run in a scope whose fence is up, in the words of who has put it up.

        Raises as `halt`, and `MisuseError` where none is up.
        """
        scope = checked_scope(scope, name)
        latched = next((f for f in await self._journal.fences() if (f.scope, f.name) == (scope, name)), None)
        if latched is None:
            raise MisuseError(f"{scope.value} {name} is not halted.".capitalize())
        receipts: list[Receipt] = []
        missed: list[str] = []
        free = asyncio.Semaphore(_AT_A_TIME)

        async def end(run: str) -> None:
            async with free:
                try:
                    receipt = await self._end(run, by=latched.by, reason=latched.reason)
                except (CheckreinError, TimeoutError) as error:
                    _log.warning("run %s is fenced and could not be ended: %s", run, error, extra={"run": run})
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

    async def reset(self, scope: Scope | str, name: str = "", *, by: str, reason: str = "") -> Lifted:
        """Take a halt's fence down again. Runs may begin; what was halted stays halted. It is recorded, also where
        nothing was latched.

        Raises `MisuseError` for a scope that cannot be meant, or `StoreUnavailable`: then ask again.
        """
        scope = checked_scope(scope, name)
        reason = Secrets.of(None).text(reason)
        _log.warning("%s resets the halt of %s %s: %s", by, scope.value, name, reason or "no reason given")
        was_latched = await self._journal.unfence(
            scope,
            name,
            by=by,
            reason=reason,
            host=self._owner.host,
            at=time.time(),
            runs=await self._ended_by(scope, name),
        )
        return Lifted(scope=scope, name=name, was_latched=was_latched)

    async def halts(self, store: str = "") -> tuple[LatchedHalt, ...]:
        """Every halt that an operator has latched, the oldest first; with the address of the store also those that only
        a flag of this host knows of."""
        found = [
            LatchedHalt(scope=one.scope, name=one.name, by=one.by, reason=one.reason, at=one.at)
            for one in await self._journal.halts()
        ]
        return tuple(found) + flags_beside(store, found)

    async def _ended_by(self, scope: Scope, name: str) -> list[str]:
        """The runs that a halt has ended: each has a fence of its own. One that was halted for itself keeps it."""
        latched, asked = await self._journal.fences(), await self._journal.halts()
        wide = next((fence for fence in latched if (fence.scope, fence.name) == (scope, name)), None)
        if wide is None or scope is Scope.RUN:
            return []
        kept = {fence.name for fence in asked if fence.scope is Scope.RUN}
        ended = [one.name for one in latched if one.scope is Scope.RUN and one.at >= wide.at and one.name not in kept]
        return await self._those_in(ended, scope, name)

    # -- which runs

    async def _live(self, scope: Scope, name: str) -> AsyncIterator[str]:
        """Every run in the scope that is not finished, and every one below such a run; each once."""
        if scope is Scope.RUN:
            state = await self._journal.load(name)
            for run in ([] if state.is_finished else [name]) + await self._below([name], state.root or name):
                yield run
            return
        # Only a family with a live run below its topmost one is looked at, and once.
        live = [row async for row in self._rows(status=UNFINISHED)]
        in_scope = [row.id for row in live if scope is Scope.ALL or getattr(row, scope.value) == name]
        given = dict.fromkeys(in_scope)
        for root in {row.root for row in live if row.root is not None} if len(in_scope) < len(live) else ():
            given |= dict.fromkeys(await self._below(in_scope, root))
        for run in given:
            yield run

    async def _below(self, runs: Collection[str], root: str) -> list[str]:
        """The live runs of one family that descend from one of `runs`."""
        above, found = set(runs), list[str]()
        family = [row async for row in self._rows(root=root)]
        for row in reversed(family):  # a parent is older than its children
            if row.parent in above:
                above.add(row.id)
                found += [row.id] if row.status in UNFINISHED else []
        return found

    async def _those_in(self, runs: Collection[str], scope: Scope, name: str) -> list[str]:
        """Of these, those that are in the scope themselves, or below a run that is."""
        known: dict[str, State] = {}
        asked = set(runs)
        while asked:  # one question for each generation
            known |= await self._journal.states(asked)
            parents = {known[run].parent for run in asked if run in known}
            asked = {parent for parent in parents if parent is not None} - known.keys()

        def is_in(run: str | None) -> bool:
            state = None if run is None else known.get(run)
            if state is None:
                return False
            return scope is Scope.ALL or getattr(state, scope.value) == name or is_in(state.parent)

        return [run for run in runs if is_in(run)]

    async def _rows(self, **fields: Any) -> AsyncIterator[RunRow]:
        before: str | None = None
        while rows := await self._journal.runs(limit=_PAGE, before=before, **fields):
            for row in rows:
                yield row
            before = rows[-1].id

    # -- one run

    async def _end(self, run: str, *, by: str, reason: str) -> Receipt | None:
        """Claim it, whoever has it, and end it. None when it had ended before."""
        lease, over = await run_to_completion(
            self._claim(run), take_back=lambda claimed: self._journal.release(claimed[0])
        )
        halt_id = uuid.uuid4().hex

        def halt(state: State, effects: tuple[Effect, ...]) -> c.HaltRun:
            return c.HaltRun(
                id=halt_id, at=self._clock(), by=by, reason=reason, over=over, alive_at=lease.alive_at, effects=effects
            )

        try:
            verdict, _ = await take_command(self._journal, run, halt, epoch=lease.epoch, tries=_TRIES)
        except Refused as refused:
            if refused.code == "conflict":
                raise
            return None
        finally:
            await run_to_completion(self._journal.release(lease))
        assert isinstance(verdict, tuple)
        settled = (event for event in verdict if isinstance(event, VerbSettled))
        return next(event.receipt for event in settled if event.verb is Verb.HALT)

    async def _claim(self, run: str) -> tuple[Lease, frozenset[int]]:
        for _ in range(_TRIES):
            try:
                return await claim(
                    self._journal,
                    run,
                    self._owner,
                    seconds=CONTROL_LEASE_SECONDS,
                    at=self._clock(),
                    reaped=self._buried,
                )
            except LeaseHeld as held:
                _log.warning("taken by force to be halted: %s", held, extra={"run": run})
                before = await self._journal.lease(run)
                lease = await self._journal.claim(run, self._owner, seconds=CONTROL_LEASE_SECONDS, force=True)
                lease = with_sign_of_life(lease, before, await self._journal.load(run))
                if lease.previous is not None:
                    await tell_stop_waits([lease.previous], is_halt=True)
                return lease, frozenset()
            except StaleEpoch as error:
                _log.info("claimed again to be halted, because: %s", error, extra={"run": run})
        raise LeaseHeld(f"Run {run} changes hands too fast to be claimed; halt it again.", run=run)

    async def _unconfirmed(self, runs: list[str], wait: float) -> tuple[str, ...]:
        """Of these, those whose former owner has not answered for what it had in flight, after `wait` seconds."""
        open_runs, until = list(runs), time.monotonic() + wait
        while True:
            open_runs = [run for run, state in (await self._journal.states(open_runs)).items() if has_unanswered(state)]
            if not open_runs or time.monotonic() >= until:
                return tuple(open_runs)
            await asyncio.sleep(_LOOK_SECONDS)


def flags_beside(store: str, known: Collection[LatchedHalt] = ()) -> tuple[LatchedHalt, ...]:
    """The halts of a store that only flags of this host know of."""
    latched = {(one.scope, one.name) for one in known}
    return tuple(
        LatchedHalt(scope=Scope(one.scope), name=one.name, by=one.by, reason=one.reason, at=one.at, where="host")
        for one in (halt_flags.read(store) if store else ())
        if one.scope in SCOPES and (Scope(one.scope), one.name) not in latched
    )


def checked_scope(scope: Scope | str, name: str) -> Scope:
    """The scope that is meant. Raises `MisuseError` for one that cannot be."""
    if scope not in SCOPES:
        raise MisuseError(f"A halt is for one of {', '.join(SCOPES)}, not {scope!r}.")
    if scope == Scope.ALL and name:
        raise MisuseError(f"A halt of all takes no name, and {name!r} was given; say `agent` or `owner` to halt less.")
    if scope != Scope.ALL and not name:
        raise MisuseError(f"Say which {scope} is meant.")
    return Scope(scope)
