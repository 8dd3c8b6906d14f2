"""A small world around one run: a journal, drivers that crash and freeze, people, and what really happened outside.

The run is judged by the real `decide`, `evolve` and `orders`, and its journal by the real rules of admission. All else
is modelled: a driver is the permits it has in its hands, the outside is whether each call was performed and undone.
Times, seqs and counts are levelled out, so that worlds that differ only in them are one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from checkrein.core.conditions import Usage
from checkrein.core.effects import AT_THE_END, EFFECT_EVENTS, Effect, evolve_effect
from checkrein.core.enums import ACTING, TERMINAL, CallKind, Decision, EffectState, OnPause, Status, Verb
from checkrein.core.events import (
    DECIDING,
    ApprovalDecided,
    CallFinished,
    CallStarted,
    EffectLeft,
    EffectUndone,
    Event,
    RunCreated,
    RunFinished,
    VerbAccepted,
    VerbSettled,
)
from checkrein.core.evolve import evolve
from checkrein.core.state import State
from checkrein.core.wording import OUT_OF_TIME
from tests.torture.explore.admission import admitted


class Violation(AssertionError):
    """A promise that was broken, by name."""


class Kind(NamedTuple):
    """What sort of call the program makes."""

    kind: CallKind = CallKind.TOOL
    undo: bool = True
    idempotent: bool = False
    on_pause: OnPause = OnPause.FINISH
    asks: bool = False
    """A person is asked before it begins. All such calls are of one tool."""

    @property
    def has_effect(self) -> bool:
        return self.kind is CallKind.TOOL


class Bounds(NamedTuple):
    """How much may happen. Everything that could go on for ever has a number here."""

    calls: tuple[Kind, ...]
    drivers: int = 2
    controllers: int = 0
    """People who have read the run and not yet clicked. 0: reading and clicking is one move."""
    verbs: int = 2
    """Besides one cancel, which a person always has left."""
    crashes: int = 1
    freezes: int = 1
    claims: int = 4
    vain: int = 0
    """Claims that come to nothing: whoever made them dies before it has taken the run over."""
    undo_failures: int = 0
    duplicates: int = 0
    """Replies that a driver sends twice, because it did not learn that the first one arrived."""
    fences: int = 0
    """Cancels of a run above this one."""
    halts: int = 0
    hangs: int = 0
    """Calls that do not answer when they are stopped, and may go on acting. They end after being let go, or never."""
    failures: int = 0
    """Programs that fail, wherever they stand. A driver that dies with its program is a crash."""
    below: int = 0
    """Sub-runs that nobody of this run attends to any more: they end some time, or never."""
    remote: bool = False
    """Drivers are on other hosts: the death of one is never known."""
    rash: bool = False
    """Drivers try to decide on what they last saw, instead of looking again first."""


class Hand(NamedTuple):
    """A permit in a driver's hands, and whether it has been used."""

    call: str
    performed: bool = False
    hung: bool = False
    """It has not answered its stop."""
    held: bool = False
    """It is frozen."""


class Driver(NamedTuple):
    epoch: int = 0
    frozen: bool = False
    behind: bool = False
    """A deciding event came in that it has not seen."""
    hands: tuple[Hand, ...] = ()
    view: State | None = None
    """What it believes while it is behind; kept only for rash drivers."""
    failed: bool = False
    """Its program has failed: it asks for nothing more, and its calls are stopped."""


class Loaded(NamedTuple):
    """A person has looked at the run and is about to click."""

    verb: Verb
    view: State
    behind: bool = False


class Outside(NamedTuple):
    """What really happened to one call, and whether a person has given their word about it."""

    performed: int = 0
    undone: int = 0
    vouched: bool = False


class World(NamedTuple):
    state: State
    effects: tuple[Effect, ...]
    outside: tuple[Outside, ...]
    drivers: tuple[Driver, ...]
    session: tuple[Loaded, ...]
    epoch: int
    dead: frozenset[int]
    """Epochs whose driver has crashed."""
    stopped: bool
    """History: a cancel or a halt was accepted, here or above."""
    cancelled: bool
    """History: a cancel or a halt of this run was accepted."""
    fenced: bool
    begun: int
    """History: how many calls were ever permitted."""
    left: Left
    rash: bool
    below: tuple[str, ...] = ()
    """Sub-runs that are not over."""
    consent: Consent | None = None
    """History: what people have agreed to; None where no call asks."""


class Consent(NamedTuple):
    """What people have agreed to, and nobody has made use of or taken back."""

    calls: tuple[tuple[str, str], ...] = ()
    """Calls, each with exactly these arguments."""
    always: bool = False
    """To all later calls of the one tool that asks."""
    decided: tuple[str, ...] = ()
    """Calls about which they have said something."""

    def allows(self, call: str, fingerprint: str) -> bool:
        return self.always or (call, fingerprint) in self.calls

    def after(self, event: Event) -> Consent:
        if isinstance(event, ApprovalDecided):
            decided = (*self.decided, event.call)
            if event.decision is not Decision.APPROVED:
                return self._replace(always=False, decided=decided)
            agreed = (event.call, event.fingerprint or AS_ASKED)
            return Consent((*self.calls, agreed), self.always or event.always, decided)
        if isinstance(event, VerbAccepted) and event.verb in (Verb.REDIRECT, Verb.CANCEL, Verb.HALT):
            return Consent(decided=self.decided)
        if isinstance(event, CallStarted):
            return self._replace(calls=tuple(one for one in self.calls if one[0] != event.call))
        return self


AS_ASKED, AS_WANTED = "as asked", "as wanted"
"""The arguments of a call that asks: those of the program, or those of the person who approved it."""


class Left(NamedTuple):
    """What of the bounds is left."""

    verbs: int
    crashes: int
    freezes: int
    claims: int
    vain: int
    undo_failures: int
    duplicates: int
    fences: int
    halts: int
    hangs: int
    failures: int


def first_world(bounds: Bounds) -> World:
    created = RunCreated(id="0", at=0.0, run="r", agent="a", goal="", thread="")
    return World(
        state=level(evolve(None, created, 0)),
        effects=(),
        outside=(Outside(),) * len(bounds.calls),
        drivers=(Driver(),) * bounds.drivers,
        session=(),
        epoch=0,
        dead=frozenset(),
        stopped=False,
        cancelled=False,
        fenced=False,
        begun=0,
        left=Left(*(getattr(bounds, name) for name in Left._fields)),
        rash=bounds.rash,
        below=tuple(f"s{n}" for n in range(bounds.below)),
        consent=Consent() if any(kind.asks for kind in bounds.calls) else None,
    )


def level(state: State) -> State:
    """The state without what only counts or dates: two that differ only there behave alike."""
    return replace(
        state,
        seq=0,
        decided=0,
        status_seq=0,
        at=0.0,
        usage=Usage(),
        recent=(),
        elapsed_seconds=0.0,
        active_since=None,
        driven_at=0.0,
        ahead=None,
        paused_by=state.paused_by and "pause",
        cancelled_by=state.cancelled_by and "cancel",
    )


_encode: Callable[[object], bytes] = msgspec.msgpack.Encoder(order="deterministic").encode


def canonical(world: World) -> World:
    """The representative of all worlds that differ only in how epochs and verbs are numbered.

    A driver that has lost the run and has nothing in its hands is as good as one that never had it.
    """
    drivers = tuple(Driver() if d.epoch < world.epoch and not d.hands else d for d in world.drivers)
    state = world.state
    used = {0, world.epoch, state.epoch, *(d.epoch for d in drivers), *(live.epoch for live in state.live.values())}
    for doubt in state.doubts.values():
        used.update(doubt.unanswered)
    rank = {epoch: n for n, epoch in enumerate(sorted(used))}
    dead = frozenset(rank[epoch] for epoch in world.dead if epoch in rank)
    if len(rank) - 1 == world.epoch:
        return world._replace(drivers=drivers, dead=dead)
    return world._replace(
        state=_with_epochs(state, rank),
        drivers=tuple(
            d._replace(epoch=rank[d.epoch], view=None if d.view is None else _with_epochs(d.view, rank))
            for d in drivers
        ),
        epoch=rank[world.epoch],
        dead=dead,
    )


def _with_epochs(state: State, rank: dict[int, int]) -> State:
    return replace(
        state,
        epoch=rank.get(state.epoch, 0),
        live={call: replace(live, epoch=rank.get(live.epoch, 0)) for call, live in state.live.items()},
        doubts={
            call: replace(doubt, unanswered=tuple(rank.get(epoch, 0) for epoch in doubt.unanswered))
            for call, doubt in state.doubts.items()
        },
    )


def key(world: World) -> bytes:
    """The same for worlds that differ only in which driver, or which person, is which."""
    drivers = sorted(_encode(driver) for driver in world.drivers)
    session = sorted(_encode(loaded) for loaded in world.session)
    return _encode((*world[:3], drivers, session, world.epoch, sorted(world.dead), *world[7:]))


def call_index(call: str) -> int:
    """Calls are named c0, c1, … in the order of their permits, which is what makes symmetric ones one."""
    return int(call.removeprefix("undo:").removeprefix("c"))


# -- the journal


def append(
    world: World, events: Iterable[Event], *, epoch: int | None, driver: int | None = None, behind: bool = False
) -> World | None:
    """The world after an append, or None when nothing of it was taken."""
    events = tuple(events)
    taken = events and admitted(
        events, status=world.state.status, epoch=epoch, current_epoch=world.epoch, behind=behind, fenced=world.fenced
    )
    if not taken:
        return None
    before = world.state
    for event in taken:
        world = _record(world, event)
    if any(type(event) in DECIDING for event in taken):
        world = world._replace(
            drivers=tuple(d if n == driver else _left_behind(world, d, before) for n, d in enumerate(world.drivers)),
            session=tuple(loaded._replace(behind=True) for loaded in world.session),
        )
    return world._replace(state=level(world.state))


def _left_behind(world: World, driver: Driver, before: State) -> Driver:
    if driver.epoch == 0 or driver.behind:
        return driver
    return driver._replace(behind=True, view=before if world.rash else None)


def _record(world: World, event: Event) -> World:
    """Fold one event, and see that it keeps the promises."""
    _keep_promises(world, event)
    if isinstance(event, VerbAccepted) and event.verb in (Verb.CANCEL, Verb.HALT):
        # The journal also fences the run itself. Here it does not, to show that a run needs no fence against itself.
        world = world._replace(stopped=True, cancelled=True)
    if isinstance(event, CallStarted) and event.kind is not CallKind.UNDO and event.attempt == 1:
        world = world._replace(begun=world.begun + 1)
    world = world._replace(
        begun=world.begun + _given_up(world.state, event),
        consent=None if world.consent is None else world.consent.after(event),
    )
    effects = world.effects
    if type(event) in EFFECT_EVENTS:
        effects = _ledger(effects, event)
    elif isinstance(event, RunFinished):
        end = AT_THE_END[event.status]
        effects = tuple(replace(e, state=end) if e.state is EffectState.OPEN else e for e in effects)
    world = world._replace(state=evolve(world.state, event, 0), effects=effects)
    if isinstance(event, RunFinished) and event.status in (Status.CANCELLED, Status.FAILED):
        _check_the_record(world)
    return world


def _given_up(state: State, event: Event) -> int:
    """How many calls the program will not make after all: a person did not agree, or wants something else."""
    if isinstance(event, ApprovalDecided) and event.decision is not Decision.APPROVED:
        return 1
    return len(state.approvals) if isinstance(event, VerbAccepted) and event.verb is Verb.REDIRECT else 0


def _ledger(effects: tuple[Effect, ...], event: Event) -> tuple[Effect, ...]:
    effect_id: str = event.effect  # type: ignore[attr-defined]
    known = {effect.id: effect for effect in effects}
    changed = evolve_effect(known.get(effect_id), event)
    return effects if changed is None else tuple({**known, effect_id: changed}.values())


def _keep_promises(world: World, event: Event) -> None:
    watch = _WATCHED.get(type(event))
    if watch is not None:
        watch(world, event)


def _at_an_outcome(world: World, event: CallFinished) -> None:
    live = world.state.live.get(event.call)
    if live is not None and live.kind is CallKind.PROCESS and live.stop is Verb.REDIRECT:
        raise Violation(f"redirect: {event.call} is a program, and was ended by what a person wants instead")


def _at_a_permit(world: World, event: CallStarted) -> None:
    if event.kind is CallKind.UNDO:
        if world.below and world.state.status is Status.CANCELLING:
            raise Violation(f"P3: {event.effect} is undone before what a sub-run has done: leaves first")
        _newest_first(world, event)
    elif world.stopped:
        raise Violation(f"P1: {event.call} was permitted after a cancel")
    elif world.state.status in (Status.PAUSING, Status.PAUSED):
        raise Violation(f"pause: {event.call} was permitted while {world.state.status}")
    elif world.consent is not None and event.attempt == 1 and not world.consent.allows(event.call, event.fingerprint):
        raise Violation(f"consent: {event.call} was permitted {event.fingerprint}, which nobody has agreed to")


def _newest_first(world: World, event: CallStarted) -> None:
    for effect in reversed(world.effects):
        if effect.id == event.effect:
            return
        is_open = effect.state in (EffectState.OPEN, EffectState.IN_DOUBT) and effect.undo is not None
        if is_open and world.state.status is Status.CANCELLING and not _may_be_performed(world, effect.id):
            raise Violation(f"P3: {event.effect} is undone before {effect.id}, which is newer")


def _may_be_performed(world: World, call: str) -> bool:
    """Whether somebody has, or may have for all the run knows, a permit for this call in their hands."""
    return world.state.is_blocked(call) or any(hand.call == call for d in world.drivers for hand in d.hands)


def _at_the_finish(world: World, event: RunFinished) -> None:
    if event.status not in TERMINAL:
        raise Violation(f"P4: the run finished as {event.status.value}")
    if world.state.is_finished and world.state.status is not Status.KILLED:
        raise Violation("P4: the run finished twice")
    if event.status in (Status.COMPLETED, Status.FAILED) and world.cancelled:
        raise Violation(f"P4: the run {event.status.value} after its cancel was accepted")
    if world.state.verbs:
        raise Violation(f"settled once: {world.state.verbs[0].id} is never settled")
    if any(live.kind is not CallKind.UNDO for live in world.state.live.values()):
        raise Violation("stop: the run is over and a call has no outcome")
    if event.status is Status.CANCELLED and any(
        e.state is EffectState.OPEN and e.undo is not None and not world.state.is_blocked(e.id) for e in world.effects
    ):
        raise Violation("P3: the run is cancelled and an open effect was not undone")


def _at_a_settlement(world: World, event: VerbSettled) -> None:
    if world.state.verb(event.accepted) is None:
        raise Violation(f"settled once: {event.accepted} was settled without being pending")
    held = {hand.call for d in world.drivers if d.epoch == world.epoch for hand in d.hands if hand.held}
    if event.verb is Verb.PAUSE and event.status is Status.PAUSED and world.state.live.keys() - held:
        raise Violation("pause: the run is paused and a call is in flight")
    ends_in = event.receipt.status
    promised = _SETTLES.get(event.verb)
    if (
        promised is None
        or event.receipt.superseded_by is not None
        or (event.verb in _CAN_BE_OVERTAKEN and _is_end(event))
    ):
        return
    if event.verb is Verb.CANCEL and ends_in in (Status.COMPLETED, Status.FAILED):
        raise Violation(f"P4: the run {ends_in.value} after its cancel was accepted")
    if ends_in is not promised:
        raise Violation(f"settles: {event.verb.value} is settled and the run is {ends_in.value}")


_SETTLES: dict[Verb, Status] = {
    Verb.PAUSE: Status.PAUSED,
    Verb.REDIRECT: Status.RUNNING,
    Verb.CANCEL: Status.CANCELLED,
    Verb.HALT: Status.KILLED,
}
"""Where the run is once a verb that is in force has settled, as the design says it."""

_CAN_BE_OVERTAKEN = frozenset({Verb.REDIRECT})
"""A program may end before it was given its instruction; the redirect is settled with the run."""


def _is_end(event: VerbSettled) -> bool:
    return event.receipt.status in (Status.COMPLETED, Status.FAILED)


def _at_an_acceptance(world: World, event: VerbAccepted) -> None:
    if event.verb is Verb.CANCEL and world.state.status is Status.CANCELLING:
        raise Violation("same receipt: a second cancel was taken, and wants no less undone")
    if event.verb is Verb.CANCEL and event.status is not Status.CANCELLING:
        raise Violation(f"P1: a cancel was accepted and the run is {event.status.value}")
    if (
        event.verb is Verb.RESUME
        and world.state.status is Status.PAUSED
        and (event.status is Status.QUEUED) is is_driven(world)
    ):
        raise Violation(f"resume: it leads to {event.status.value}, driven or not")


def is_driven(world: World) -> bool:
    return world.epoch > 0 and any(d.epoch == world.epoch and not d.frozen for d in world.drivers)


def _at_an_undo(world: World, event: EffectUndone) -> None:
    if world.outside[call_index(event.effect)].undone == 0:
        raise Violation(f"P3: {event.effect} is recorded as undone and was not")
    if any(e.id == event.effect and e.state is EffectState.UNDONE for e in world.effects):
        raise Violation(f"P3: {event.effect} was recorded as undone twice")


def _at_a_leaving(world: World, event: EffectLeft) -> None:
    """Time runs out here only when there is nothing to do but wait, and an effect that could be undone is something."""
    if event.why == OUT_OF_TIME and not world.below:
        raise Violation(f"P3: {event.effect} was left although there was time to undo it")


def _at_a_decision(world: World, event: ApprovalDecided) -> None:
    if world.consent is not None and event.call in world.consent.decided:
        raise Violation(f"consent: what was said about {event.call} was said again")


_WATCHED: dict[type[Event], Callable[[World, Any], None]] = {
    ApprovalDecided: _at_a_decision,
    CallFinished: _at_an_outcome,
    CallStarted: _at_a_permit,
    RunFinished: _at_the_finish,
    VerbAccepted: _at_an_acceptance,
    VerbSettled: _at_a_settlement,
    EffectUndone: _at_an_undo,
    EffectLeft: _at_a_leaving,
}


def _check_the_record(world: World) -> None:
    """What a run that was cancelled, or failed, says about its effects is true: what is there and not undone is not
    called gone or meant."""
    for effect in world.effects:
        real = world.outside[call_index(effect.id)]
        is_there = real.performed > 0 and real.undone == 0 and not real.vouched
        if is_there and effect.state in (EffectState.UNDONE, EffectState.SETTLED):
            raise Violation(f"P3: {effect.id} happened, was not undone, and the record calls it {effect.state}")


# -- the outside


def perform(world: World, call: str, kind: Kind, *, by_owner: bool) -> World:
    """The call happens. What a former owner does after a person gave their word about its call is on that person."""
    index = call_index(call)
    real = world.outside[index]
    if call.startswith("undo:"):
        return world._replace(outside=_put(world.outside, index, real._replace(undone=1)))
    if real.vouched and not by_owner:
        return world
    if kind.has_effect and real.undone:
        raise Violation(f"no effect after its undo: {call} was performed after it was undone")
    if kind.kind in ACTING and real.performed and not kind.idempotent:
        raise Violation(f"P2: {call} was performed twice")
    return world._replace(outside=_put(world.outside, index, real._replace(performed=1)))


def _put(items: tuple[Outside, ...], index: int, item: Outside) -> tuple[Outside, ...]:
    return (*items[:index], item, *items[index + 1 :])


def vouch(world: World, call: str) -> World:
    """A person has given their word about this call: what its former owner does from here on is on them."""
    index = call_index(call)
    return world._replace(outside=_put(world.outside, index, world.outside[index]._replace(vouched=True)))
