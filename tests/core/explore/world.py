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
from checkrein.core.events import (
    DECIDING,
    CallStarted,
    EffectUndone,
    Event,
    RunCreated,
    RunFinished,
    VerbAccepted,
    VerbSettled,
)
from checkrein.core.evolve import evolve
from checkrein.core.state import State
from checkrein.core.words import CallKind, EffectState, OnPause, Status, Verb
from tests.core.explore.admission import admitted


class Violation(AssertionError):
    """A promise that was broken, by name."""


class Kind(NamedTuple):
    """What sort of call the program makes."""

    kind: CallKind = CallKind.TOOL
    undo: bool = True
    idempotent: bool = False
    on_pause: OnPause = OnPause.FINISH

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
    undo_failures: int = 0
    duplicates: int = 0
    """Replies that a driver sends twice, because it did not learn that the first one arrived."""
    fences: int = 0
    """Cancels of a run above this one."""
    halts: int = 0
    remote: bool = False
    """Drivers are on other hosts: the death of one is never known."""
    rash: bool = False
    """Drivers try to decide on what they last saw, instead of looking again first."""


class Hand(NamedTuple):
    """A permit in a driver's hands, and whether it has been used."""

    call: str
    performed: bool = False


class Driver(NamedTuple):
    epoch: int = 0
    frozen: bool = False
    behind: bool = False
    """A deciding event came in that it has not seen."""
    hands: tuple[Hand, ...] = ()
    view: State | None = None
    """What it believes while it is behind; kept only for rash drivers."""


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
    desk: tuple[Loaded, ...]
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


class Left(NamedTuple):
    """What of the bounds is left."""

    verbs: int
    crashes: int
    freezes: int
    claims: int
    undo_failures: int
    duplicates: int
    fences: int
    halts: int


def first_world(bounds: Bounds) -> World:
    created = RunCreated(id="0", at=0.0, run="r", agent="a", goal="", thread="")
    return World(
        state=level(evolve(None, created, 0)),
        effects=(),
        outside=(Outside(),) * len(bounds.calls),
        drivers=(Driver(),) * bounds.drivers,
        desk=(),
        epoch=0,
        dead=frozenset(),
        stopped=False,
        cancelled=False,
        fenced=False,
        begun=0,
        left=Left(
            verbs=bounds.verbs,
            crashes=bounds.crashes,
            freezes=bounds.freezes,
            claims=bounds.claims,
            undo_failures=bounds.undo_failures,
            duplicates=bounds.duplicates,
            fences=bounds.fences,
            halts=bounds.halts,
        ),
        rash=bounds.rash,
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
    desk = sorted(_encode(loaded) for loaded in world.desk)
    return _encode((*world[:3], drivers, desk, world.epoch, sorted(world.dead), *world[7:]))


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
        events,
        status=world.state.status,
        epoch=epoch,
        current_epoch=world.epoch,
        behind=behind,
        fenced=world.fenced,
    )
    if not taken:
        return None
    before = world.state
    for event in taken:
        world = _record(world, event)
    if any(type(event) in DECIDING for event in taken):
        world = world._replace(
            drivers=tuple(d if n == driver else _left_behind(world, d, before) for n, d in enumerate(world.drivers)),
            desk=tuple(loaded._replace(behind=True) for loaded in world.desk),
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
    effects = world.effects
    if type(event) in EFFECT_EVENTS:
        effects = _ledger(effects, event)
    elif isinstance(event, RunFinished):
        end = AT_THE_END[event.status]
        effects = tuple(replace(e, state=end) if e.state is EffectState.OPEN else e for e in effects)
    world = world._replace(state=evolve(world.state, event, 0), effects=effects)
    if isinstance(event, RunFinished) and event.status is Status.CANCELLED:
        _check_the_record(world)
    return world


def _ledger(effects: tuple[Effect, ...], event: Event) -> tuple[Effect, ...]:
    effect_id: str = event.effect  # type: ignore[attr-defined]
    known = {effect.id: effect for effect in effects}
    changed = evolve_effect(known.get(effect_id), event)
    return effects if changed is None else tuple({**known, effect_id: changed}.values())


def _keep_promises(world: World, event: Event) -> None:
    watch = _WATCHED.get(type(event))
    if watch is not None:
        watch(world, event)


def _at_a_permit(world: World, event: CallStarted) -> None:
    if event.kind is CallKind.UNDO:
        _newest_first(world, event)
    elif world.stopped:
        raise Violation(f"P1: {event.call} was permitted after a cancel")
    elif world.state.status in (Status.PAUSING, Status.PAUSED):
        raise Violation(f"pause: {event.call} was permitted while {world.state.status}")


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
    if world.state.is_finished and world.state.status is not Status.KILLED:
        raise Violation("P4: the run finished twice")
    if event.status is Status.COMPLETED and world.cancelled:
        raise Violation("P4: the run completed after its cancel was accepted")
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
    if event.verb is Verb.PAUSE and event.status is Status.PAUSED and world.state.live:
        raise Violation("pause: the run is paused and a call is in flight")


def _at_an_undo(world: World, event: EffectUndone) -> None:
    if world.outside[call_index(event.effect)].undone == 0:
        raise Violation(f"P3: {event.effect} is recorded as undone and was not")
    if any(e.id == event.effect and e.state is EffectState.UNDONE for e in world.effects):
        raise Violation(f"P3: {event.effect} was recorded as undone twice")


_WATCHED: dict[type[Event], Callable[[World, Any], None]] = {
    CallStarted: _at_a_permit,
    RunFinished: _at_the_finish,
    VerbSettled: _at_a_settlement,
    EffectUndone: _at_an_undo,
}


def _check_the_record(world: World) -> None:
    """What a cancelled run says about its effects is true: what is there and not undone is not called gone or meant."""
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
    if kind.has_effect:
        if real.undone:
            raise Violation(f"no effect after its undo: {call} was performed after it was undone")
        if real.performed and not kind.idempotent:
            raise Violation(f"P2: {call} was performed twice")
    return world._replace(outside=_put(world.outside, index, real._replace(performed=1)))


def _put(items: tuple[Outside, ...], index: int, item: Outside) -> tuple[Outside, ...]:
    return (*items[:index], item, *items[index + 1 :])


def vouch(world: World, call: str) -> World:
    """A person has given their word about this call: what its former owner does from here on is on them."""
    index = call_index(call)
    return world._replace(outside=_put(world.outside, index, world.outside[index]._replace(vouched=True)))
