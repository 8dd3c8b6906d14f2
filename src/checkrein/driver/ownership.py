"""Who drives a run: claim it, renew its lease, lose it, answer for the dead, hand it over.

**Claim** (recovery, takeover). A lease that has run out may be claimed by anybody. One whose owner is known to be dead
need not be waited for, but must be taken from that owner and no other: two processes may have seen the same corpse.

**Renew** (heartbeat). Leases are kept alive from a thread of its own, so that a program that blocks its event loop does
not lose its run. Whether a lease still holds is not asked of the store, which may be away, but told by this process's
own clock: it holds for so long after the moment at which its claim, or its last renewal, was *sent*.

**Lose.** A driver gives its run up a margin before its lease is over, so that its calls have stopped by the time
somebody else can claim it. The epoch of the lease is its fencing token: every append of an owner carries it, and the
journal refuses that of a zombie, an owner that was frozen while another one took over.

**Answer for the dead.** A call whose maker may still be alive must not be undone. When its maker has answered, or is
known to be gone, it may be; the maker may well die long after somebody else has taken the run over.

**Hand over.** Who has lost a run still owes something: to stop, and to say what it knows. It says once what became of
each call, as often as it takes until the store has it. Where nobody has claimed the run yet its word is still the
owner's, and the calls get an outcome at once. Where somebody has, all that is taken of it is `call.answered`.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from checkrein.asyncutil import run_to_completion
from checkrein.calls.arguments import recordable
from checkrein.calls.base import CallResult, finishing
from checkrein.core.decide import decide
from checkrein.core.enums import ACTING, AT_WORK, SETTLING, STOPPING, STOPS_BY_DRIVER, CallKind, Outcome, Status
from checkrein.core.events import CallAnswered, CallFinished, EffectInDoubt, Event, RunStarted
from checkrein.core.state import State
from checkrein.errors import CheckreinError, JournalError, StaleEpoch, StoreTooNew, StoreUnavailable
from checkrein.journal import encoding, refusals
from checkrein.journal.admission import answer_id
from checkrein.journal.base import Appended, Journal, Lease, Owner, Recorded, has_not_run_out, steady
from checkrein.processes import env_marks, termination
from checkrein.processes.families import Family
from checkrein.processes.identity import is_known_dead, lives_here, this_process
from checkrein.timings import LEASE_MARGIN_SECONDS, LEASE_RENEWALS, LEASE_SECONDS

_log = logging.getLogger(__name__)

_LOOKS: Final = 20
"""How often two clocks are looked at to see how far they are apart, on a machine that has much else to do."""
_SET_SECONDS: Final = 1.0
"""A wall clock that is off by less than this was not set."""

LOOK_SECONDS: Final = 1.0
"""How often it is asked whether former owners still live."""
AGAIN_SECONDS: Final = 0.2
"""How long to wait before a word is said again, because the store is away or the new owner has not begun yet."""
SAME_OUTAGE_SECONDS: Final = 5.0
"""A store that does not answer is logged once, and again only when it had answered for so long."""


# -- claim


async def claim(
    journal: Journal,
    run: str,
    owner: Owner,
    *,
    seconds: float,
    at: float,
    reaped: set[str] | None = None,
    version: str = "",
) -> tuple[Lease, frozenset[int]]:
    """The lease, and the earlier epochs with calls in flight of which nothing can still be going on.

    Raises `LeaseHeld`, or `StaleEpoch` when somebody else was faster. Of an owner that is dead, whatever its tools have
    left is ended first; `reaped` remembers for which that was done. Where it cannot be read what is in flight, the
    lease is given back.
    """
    held = await journal.lease(run)
    if held is not None and held.owner.process != owner.process and await has_died(journal, held.owner):
        lease = await _claim_from_the_dead(journal, held, owner, seconds, version, reaped)
    else:
        lease = await _claim(journal, held, run, owner, seconds=seconds, at=at, version=version)
    return await claimed(journal, lease, held, reaped=reaped)


async def claimed(
    journal: Journal, lease: Lease, held: Lease | None, *, reaped: set[str] | None = None
) -> tuple[Lease, frozenset[int]]:
    """What `claim` returns, of a lease that was claimed; `held` is the one before. Where it raises it is given back."""
    try:
        state = await journal.load(lease.run)
        return with_sign_of_life(lease, held, state), await _epochs_over(journal, lease, state, reaped)
    except BaseException:
        await run_to_completion(journal.release(lease))
        raise


async def has_died(journal: Journal, owner: Owner) -> bool:
    """Whether a process is known to be dead: as its host tells, by an operator's word, or because a newer process has
    its name."""
    return is_known_dead(owner) or bool(await departed(journal, [owner]))


async def departed(journal: Journal, owners: Iterable[Owner]) -> frozenset[str]:
    """Of these processes, those that are dead by an operator's word, or because a newer one has their name. Neither
    counts for one that lives on this host: frozen, it may wake with a permit in its hand."""
    asked = [owner.process for owner in owners if owner.process and not lives_here(owner)]
    return await journal.departed(asked) if asked else frozenset()


async def _claim_from_the_dead(
    journal: Journal, held: Lease, owner: Owner, seconds: float, version: str, reaped: set[str] | None
) -> Lease:
    await _reap(held.owner, reaped)  # before anybody can take its calls for over
    lease = await journal.claim(held.run, owner, seconds=seconds, force=True, epoch=held.epoch + 1, version=version)
    _log.info("takeover: the owner of the run is dead (pid %d)", held.owner.pid, extra=_about(lease))
    # A claim that was looked up, because its answer was lost, does not say from whom.
    return msgspec.structs.replace(lease, previous=held.owner)


async def _claim(
    journal: Journal, held: Lease | None, run: str, owner: Owner, *, seconds: float, at: float, version: str
) -> Lease:
    if held is not None and is_held(held, owner, at):
        raise refusals.held(run, held.owner, held.deadline)  # asked first, because a claim costs everybody a commit
    lease = await journal.claim(run, owner, seconds=seconds, version=version)
    if lease.previous is None or lease.previous.process == owner.process:
        _log.debug("claim", extra=_about(lease))
    else:
        _log.info("takeover: the lease of its owner (pid %d) had run out", lease.previous.pid, extra=_about(lease))
    return lease


def with_sign_of_life(lease: Lease, held: Lease | None, state: State) -> Lease:
    """The claimed lease, with when `held`, the one before, was last renewed by the driver of the run. It may have been
    by up to a renewal later. Whoever had it last may have claimed it and never driven the run: that is no sign."""
    return msgspec.structs.replace(lease, alive_at=_alive_at(held, state))


def _alive_at(held: Lease | None, state: State) -> float:
    is_drivers = held is not None and held.epoch == state.epoch and held.owner.boot_id == this_process().boot_id
    return held.until - LEASE_SECONDS if held is not None and held.until and is_drivers else 0.0


def is_held(lease: Lease, owner: Owner, at: float) -> bool:
    """Whether somebody other than `owner` has this lease at the time `at`, and is not known to be dead."""
    return lease.owner.process != owner.process and is_in_force(lease, at)


async def is_driven(journal: Journal, run: str, *, at: float) -> bool:
    """Whether anybody drives the run at the time `at`: its lease holds, and whoever has it is not known to be dead."""
    lease = await journal.lease(run)
    return lease is not None and is_in_force(lease, at)


def left_at(lease: Lease | None, state: State, at: float) -> float | None:
    """Of a run that is at work by its status and that nobody drives: until when its time at work counts, which is when
    its driver last gave a sign of life. None for every other run, and for one that waits for a person: its driver has
    let it go, and it wants none before."""
    if state.status not in AT_WORK or state.waits_for_person or (lease is not None and is_in_force(lease, at)):
        return None
    return state.left_at(state.worked_until(_alive_at(lease, state)))


def is_in_force(lease: Lease, at: float) -> bool:
    """Whether the owner of a lease drives its run at the time `at`: it has not run out, nor is its owner known dead."""
    boot_id = this_process().boot_id
    return has_not_run_out(lease, boot_id=boot_id, at=at, steady_at=now()) and not is_known_dead(lease.owner)


async def _epochs_over(journal: Journal, lease: Lease, state: State, reaped: set[str] | None) -> frozenset[int]:
    """Of the epochs with calls in flight, those of which nothing can still be going on.

    Each is judged by the owner that permitted its calls. That need not be the one that had the lease last: a process
    may have claimed the run and, before it took it over, have died, lost it again, or given it back.
    """
    epochs = {call.epoch for call in state.live.values()}
    last = lease.epoch - 1
    makers: dict[int, Owner | None] = {last: lease.previous}
    if epochs - {last}:
        makers = {**_owners(await journal.read(lease.run)), last: lease.previous}
    return frozenset([e for e in epochs if e in makers and await _is_over(journal, makers[e], lease.owner, reaped)])


async def _is_over(journal: Journal, maker: Owner | None, owner: Owner, reaped: set[str] | None) -> bool:
    """Whoever gives a lease back has stopped everything before; so has an earlier driver of this process."""
    if maker is None or maker.process == owner.process:
        return True
    return await has_died(journal, maker) and await _reap(maker, reaped)


async def _reap(owner: Owner, reaped: set[str] | None) -> bool:
    """End what the tools of a dead runtime have left, should its supervisor not have come to it; False: not all."""
    if reaped is not None and owner.process in reaped:
        return True
    family = Family(marks=((env_marks.RUNTIME, owner.process),), since=owner.started)
    if survivors := await termination.end(family, grace_seconds=0.0):
        _log.warning("%d processes of a dead owner could not be killed", len(survivors))
        return False
    if reaped is not None:
        reaped.add(owner.process)
    return True


def _about(lease: Lease) -> dict[str, object]:
    return {"run": lease.run, "epoch": lease.epoch}


# -- renew


def has_waiting_stop(state: State) -> bool:
    """Whether a verb is accepted that stops something, and not settled yet."""
    return state.pending(*STOPS_BY_DRIVER) is not None


def needs_no_slot(state: State) -> bool:
    """Whoever stops a run, or asks something of one that stands still, does not wait for another run to end."""
    return state.is_finished or state.status in STOPPING or (state.status is Status.PAUSED and bool(state.verbs))


now = steady


class _Held(NamedTuple):
    since: float
    """When the claim was answered: a renewal that was sent before cannot know of it."""
    until: float


class LeaseKeeper:
    """Renews every lease of `owner`, as a heartbeat, until it is stopped. May be asked from any thread.

    `stop_waits` is called in the keeper's thread, with each renewal, while a stop waits for one of the runs: also for
    one that was accepted on another host, and while the event loop is blocked. `is_too_old` is called there, with each
    renewal, once a later version of the store does not let this one drive runs any more.
    """

    def __init__(
        self,
        journal: Journal,
        owner: Owner,
        *,
        lease_seconds: float = LEASE_SECONDS,
        stop_waits: Callable[[], None] | None = None,
        is_too_old: Callable[[StoreTooNew], None] | None = None,
    ) -> None:
        self._is_too_old = is_too_old
        self.lease_seconds = lease_seconds
        self._margin = min(LEASE_MARGIN_SECONDS, lease_seconds / 3)
        self._journal = journal
        self._owner = owner
        self._stop_waits = stop_waits
        self._held: dict[str, _Held] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="checkrein-leases", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; returns when it has ended."""
        self._stop.set()
        self._thread.join()

    def keep(self, run: str, sent: float) -> None:
        """A claim of `run` that was sent at `sent` has been answered."""
        with self._lock:
            self._held[run] = _Held(now(), sent + self.lease_seconds)

    def forget(self, run: str) -> None:
        with self._lock:
            self._held.pop(run, None)

    def holds(self, run: str) -> bool:
        """Whether nobody else can have claimed the run yet, nor can for as long as it takes to stop its calls."""
        with self._lock:
            held = self._held.get(run)
        return held is not None and now() < held.until - self._margin

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            while not self._stop.wait(self.lease_seconds / LEASE_RENEWALS):
                sent = now()
                with self._lock:
                    runs = frozenset(self._held)
                try:
                    renewed = runner.run(self._journal.renew(self._owner, seconds=self.lease_seconds, runs=runs))
                except CheckreinError as error:
                    # The store is away; a lease that is not renewed in time is given up by its driver.
                    _log.warning("leases could not be renewed: %s", error)
                    continue
                self._note(renewed, sent)
                if self._journal.too_new is not None and self._is_too_old is not None:
                    self._is_too_old(self._journal.too_new)
                if self._stop_waits is not None and renewed and runner.run(self._has_waiting_stop(renewed)):
                    self._stop_waits()

    async def _has_waiting_stop(self, runs: frozenset[str]) -> bool:
        try:
            stopping = await self._journal.runs(status=SETTLING, limit=10_000)
        except CheckreinError as error:
            _log.warning("Whether a stop waits for a run that is driven here could not be read: %s", error)
            return False
        return any(row.id in runs for row in stopping)

    def _note(self, renewed: frozenset[str], sent: float) -> None:
        with self._lock:
            for run, held in list(self._held.items()):
                if run in renewed:
                    self._held[run] = _Held(held.since, sent + self.lease_seconds)
                elif held.since <= sent:
                    self._held[run] = _Held(held.since, 0.0)  # somebody else has it, or it has run out


# -- lose, hand over


class OwnershipLost(Exception):
    """Somebody else drives the run by now, or soon may. Nothing more may be begun, and nothing but answers is taken."""


class Hold(StrEnum):
    """How far a driver's right to its run goes. It only ever moves down this list."""

    HELD = "held"
    """It may begin calls and decide."""
    LOSING = "losing"
    """It begins nothing more and stops its calls; it still owes a word about them."""
    LOST = "lost"
    """All its calls have stopped, and the journal has what it knew."""


class Ownership:
    """A driver's right to its run, from the claim to the last word.

    `holds` says whether the lease still holds, by this process's own clock. `lose` is the one way to lose the run, and
    `is_held` the one place where that is read.
    """

    def __init__(
        self,
        journal: Journal,
        lease: Lease,
        *,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = now,
        holds: Callable[[], bool] = lambda: True,
    ) -> None:
        self.lease = lease
        self._journal = journal
        self._clock = clock
        self._steady = steady
        self._ahead = self._look() or clock() - steady()
        self._looked_at = steady()
        self._holds = holds
        self._hold = Hold.HELD
        self._ids = 0
        self._away_at = -math.inf
        """When the store did not answer last."""
        self._on_loss: list[Callable[[], None]] = []

    @property
    def run(self) -> str:
        return self.lease.run

    @property
    def epoch(self) -> int:
        """The fencing token: higher than that of every owner before."""
        return self.lease.epoch

    def now(self) -> float:
        """The time by the wall clock as the run knows it: one that was set counts once `clock_set_by` has said so."""
        known, wall = self._steady() + self._ahead, self._clock()
        return wall if abs(wall - known) < _SET_SECONDS else known

    @property
    def ahead(self) -> float:
        """By how much the wall clock was ahead of the steady one when that was looked at last."""
        return self._ahead

    def clock_set_by(self) -> tuple[float, float]:
        """By how many seconds the wall clock was set since this was asked last, 0 for less than one; and within how
        many seconds."""
        ahead, since = self._look(), self._looked_at
        if ahead is None:
            return 0.0, 0.0
        self._looked_at = self._steady()
        by = ahead - self._ahead
        if abs(by) < _SET_SECONDS:
            return 0.0, 0.0
        self._ahead += by
        _log.warning("the wall clock was set by %+.1f s", by, extra=self._extra)
        return by, self._looked_at - since

    def _look(self) -> float | None:
        """By how much the wall clock is ahead of the steady one. None while the process stands still again and again:
        then nothing can be said, and it is asked again soon."""
        for _ in range(_LOOKS):
            before, wall, after = self._steady(), self._clock(), self._steady()
            if after - before <= 0.1:
                return wall - before
        return None

    def new_id(self, what: str) -> str:
        """An id that no other owner of this run makes."""
        self._ids += 1
        return f"{what}.{self.epoch}.{self._ids}"

    @property
    def is_held(self) -> bool:
        """Whether the run is this driver's, as far as it has noticed."""
        return self._hold is Hold.HELD

    def check(self) -> bool:
        """Whether this driver may begin something now. One whose lease is over has lost, whoever notices it first."""
        if self.is_held and not self._holds():
            self.lose("its lease could not be renewed in time")
        return self.is_held

    def when_lost(self, then: Callable[[], None]) -> None:
        """Call `then` on the event loop at the moment of the loss; those that were given first, first."""
        self._on_loss.append(then)

    def lose(self, why: str) -> None:
        """Somebody else drives the run by now, or soon may: begin nothing more, decide nothing more, stop every call.

        Losing twice changes nothing. Only `hand_over` is still possible afterwards.
        """
        if self._hold is not Hold.HELD:
            return
        self._hold = Hold.LOSING
        _log.info("the run is given up: %s", why, extra=_about(self.lease))
        for then in self._on_loss:
            then()

    async def append(self, events: Sequence[Event], *, after: int = 0) -> Appended:
        """Append with the fencing token of this owner. Raises what `Journal.append` does, `StaleEpoch` if fenced.

        While the run is held a store that is away is asked again: by their ids, what was taken is not taken twice.
        """
        while True:
            try:
                return await self._journal.append(self.run, events, after=after, epoch=self.epoch)
            except StoreUnavailable as error:
                if not await self.may_ask_again(error):
                    raise

    async def may_ask_again(self, error: StoreUnavailable) -> bool:
        """Wait for a moment, and say whether the store may be asked again: as long as the run is held.

        A store that is away for a moment is no reason to stop what is in flight: nobody can claim the run before its
        lease is over. Nothing new begins meanwhile, since a permit needs the store.
        """
        if error.is_closed or not self.check():
            return False
        is_news, self._away_at = now() - self._away_at > SAME_OUTAGE_SECONDS, now()
        level = logging.WARNING if is_news else logging.DEBUG
        _log.log(level, "the store does not answer, and is asked again: %s", error, extra=self._extra)
        await asyncio.sleep(AGAIN_SECONDS)
        return self.check()

    async def release(self) -> None:
        """Give the lease back. One that is no longer held is left alone."""
        await self._journal.release(self.lease)

    async def hand_over(self, endings: Mapping[str, CallResult], has_recorded: Callable[[str], bool]) -> None:
        """Say what became of every call, all of which have stopped. Returns when the journal has it.

        `endings` says how calls ended, as far as it does not know it yet; `has_recorded`, of which it does.
        """
        tries = 0
        while True:
            try:
                if await self._tell(endings, has_recorded):
                    break
            except JournalError as error:
                _log.log(
                    logging.DEBUG if tries else logging.WARNING, "not handed over yet: %s", error, extra=self._extra
                )
            tries += 1
            await asyncio.sleep(AGAIN_SECONDS)
        self._hold = Hold.LOST
        _log.debug("the run is handed over", extra=self._extra)

    @property
    def _extra(self) -> dict[str, object]:
        return _about(self.lease)

    async def _tell(self, endings: Mapping[str, CallResult], has_recorded: Callable[[str], bool]) -> bool:
        """False if there is more to say later: an answer counts once the new owner has called the call in doubt."""
        state = await self._journal.load(self.run)
        if state.epoch == self.epoch and state.ahead is not None:
            self._ahead = state.ahead  # that the clock was set since is not recorded any more
        facts = [fitting(fact) for fact in self._facts(state, endings)]
        if facts:
            await self._append_if_taken(facts)
            state = await self._journal.load(self.run)
        for call, doubt in state.doubts.items():
            ended = endings.get(call)
            if self.epoch in doubt.unanswered and not has_recorded(call) and not _may_still_act(ended):
                await self._append_if_taken([fitting(self._answer(call, ended))])
        return not any(live.epoch == self.epoch for live in state.live.values())

    async def _append_if_taken(self, facts: Sequence[Event]) -> None:
        try:
            await self.append(facts)
        except StaleEpoch:  # the new owner says it, or has said it
            _log.debug("a last word was not taken: somebody else has the run", extra=self._extra)

    def _facts(self, state: State, endings: Mapping[str, CallResult]) -> list[Event]:
        """As long as nobody else has claimed the run: the outcome of every call of this driver that has none."""
        facts: list[Event] = []
        for call, live in state.live.items():
            if live.epoch != self.epoch:
                continue
            ended = endings.get(call)
            if ended is not None and ended.outcome in (Outcome.COMPLETED, Outcome.FAILED):
                verdict = decide(state, finishing(call, live.attempt, ended, self.now()))
                facts += verdict if isinstance(verdict, tuple) else ()
                continue
            facts.append(self._in_doubt(call, is_first=not any(isinstance(fact, CallFinished) for fact in facts)))
            if live.kind is CallKind.TOOL and live.effect is not None:
                why = "its driver had to give up its run"
                facts.append(EffectInDoubt(id=self.new_id("doubt"), at=self.now(), effect=live.effect, why=why))
            if live.kind in ACTING and not _may_still_act(ended):
                facts.append(self._answer(call, ended))
        return facts

    def _in_doubt(self, call: str, *, is_first: bool) -> CallFinished:
        id = self.new_id("doubt")
        worked_until = self._steady() + self._ahead if is_first else None  # until now, by the clock as the run knows it
        return CallFinished(
            id=id, at=self.now(), call=call, outcome=Outcome.IN_DOUBT, abandoned=True, worked_until=worked_until
        )

    def _answer(self, call: str, ended: CallResult | None) -> CallAnswered:
        """None: the call had its permit and was never begun."""
        result = None if ended is None or ended.result is None else msgspec.Raw(ended.result)
        return CallAnswered(
            id=answer_id(call, self.epoch),
            at=self.now(),
            call=call,
            epoch=self.epoch,
            outcome=Outcome.ABORTED if ended is None else ended.outcome,
            began=ended is not None and ended.begun,
            error=None if ended is None or ended.error is None else recordable(ended.error),
            result=result,
        )

    async def answer_late(self, call: str) -> None:
        """A call that could not be stopped has ended after all, whoever has the run by now."""
        at = self.now()
        answer = CallAnswered(
            id=answer_id(call, self.epoch), at=at, call=call, epoch=self.epoch, outcome=Outcome.DETACHED
        )
        try:
            await self.append([answer])
        except CheckreinError as error:
            _log.warning("the late end of a call was not recorded: %s", error, extra={**self._extra, "call": call})


def fitting(event: Event) -> Event:
    """`event` as a journal takes it: a call that ended with more than that has failed, and its record says so."""
    if not isinstance(event, CallFinished | CallAnswered):
        return event
    about = 0 if event.result is None else memoryview(event.result).nbytes
    about += 0 if event.error is None else len(event.error)
    if about < encoding.LARGEST_EVENT // 8 or not encoding.is_too_large(event):  # a character may take six bytes
        return event
    why = f"What it returned or raised has about {about} bytes, more than is recorded of a call."
    if event.outcome is not Outcome.COMPLETED:
        return msgspec.structs.replace(event, result=None, error=why)
    return msgspec.structs.replace(event, outcome=Outcome.FAILED, result=None, error=why)


def _may_still_act(ended: CallResult | None) -> bool:
    """One that could not be stopped is answered for when it has ended."""
    return ended is not None and ended.outcome is Outcome.DETACHED


# -- answer for the dead


def has_unanswered(state: State) -> bool:
    """Whether there is a call that somebody else may still make."""
    return any(doubt.unanswered for doubt in state.doubts.values())


async def answers_for_the_dead(journal: Journal, state: State, at: float) -> list[CallAnswered]:
    """For every call whose maker is known to be gone by now: it will not be made any more, and that is all we know.

    What its tools have left is ended first: an answer lets their effects be undone.
    """
    owners = _owners(await journal.read(state.run))
    unanswered = {epoch for doubt in state.doubts.values() for epoch in doubt.unanswered}
    dead = {epoch for epoch in unanswered if epoch in owners and await _is_gone(journal, owners[epoch])}
    return [
        CallAnswered(id=answer_id(call, epoch), at=at, call=call, epoch=epoch, outcome=Outcome.IN_DOUBT)
        for call, doubt in state.doubts.items()
        for epoch in doubt.unanswered
        if epoch in dead
    ]


async def unanswered_owners(journal: Journal, state: State) -> frozenset[Owner]:
    """Who may still make calls of this run, as well as the journal knows."""
    owners = _owners(await journal.read(state.run))
    epochs = {epoch for doubt in state.doubts.values() for epoch in doubt.unanswered}
    return frozenset(owners[epoch] for epoch in epochs if epoch in owners)


async def _is_gone(journal: Journal, owner: Owner) -> bool:
    """Whether it is dead, and all that it had started. One that did not say its name is believed to have nothing."""
    return await has_died(journal, owner) and (not owner.process or await _reap(owner, None))


def _owners(records: Iterable[Recorded]) -> dict[int, Owner]:
    """Who they were, by epoch, as well as the journal knows. Of one that did not say when it began, a pid that another
    process has by now counts as alive."""
    return {
        event.epoch: Owner(
            process=event.process,
            host=event.host,
            boot_id=event.boot_id,
            pid=event.pid,
            started=event.started or 0.0,
        )
        for event in (record.event for record in records)
        if isinstance(event, RunStarted)
    }


async def last_answer(journal: Journal, run: str, call: str) -> CallAnswered | None:
    """What the former owner of a call has said about it last."""
    for record in reversed(await journal.read(run)):
        if isinstance(record.event, CallAnswered) and record.event.call == call:
            return record.event
    return None
