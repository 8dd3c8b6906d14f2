"""The ledger of what a run did, or may have done, to the world.

An effect has the id of the call that opened it, so a call that is tried again has one effect, not two. Effects are
folded one at a time, apart from the run's state, because there may be many and a run's state does not grow with it; the
journal keeps the result as an index.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import msgspec
from msgspec.structs import replace

from checkrein.core.enums import EffectState, Status
from checkrein.core.events import (
    EffectInDoubt,
    EffectLeft,
    EffectOpened,
    EffectReopened,
    EffectSettled,
    EffectUndone,
    Event,
    RunFinished,
)


class Effect(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    id: str
    what: str
    state: EffectState = EffectState.OPEN
    undo: str | None = None
    key: str = ""
    wanted: bool = False
    """Its undo was asked for on its own, by a person, whatever the run is doing."""
    why: str = ""
    happened: bool = True
    """False: it is known that it did not happen."""


_FOLD: Final[Mapping[type[Event], Callable[[Effect, Any], Effect]]] = {
    EffectSettled: lambda effect, event: replace(
        effect, state=EffectState.SETTLED, why=event.why, happened=event.happened
    ),
    EffectUndone: lambda effect, event: replace(effect, state=EffectState.UNDONE, wanted=False, why=""),
    EffectInDoubt: lambda effect, event: replace(effect, state=EffectState.IN_DOUBT, why=event.why),
    EffectLeft: lambda effect, event: replace(effect, state=EffectState.LEFT, wanted=False, why=event.why),
    EffectReopened: lambda effect, event: replace(effect, state=EffectState.OPEN, wanted=event.undo, why=""),
}

EFFECT_EVENTS: Final[frozenset[type[Event]]] = frozenset({EffectOpened, *_FOLD})
"""Events with an `effect`: the only ones, besides `run.finished`, that change the ledger."""


def evolve_effect(effect: Effect | None, event: Event) -> Effect | None:
    """The effect named by `event.effect` after `event`. One that is undone stays undone."""
    if isinstance(event, EffectOpened):
        return Effect(id=event.effect, what=event.what, undo=event.undo, key=event.key)
    if effect is None or effect.state is EffectState.UNDONE:
        return effect
    return _FOLD[type(event)](effect, event)


AT_THE_END: Final[Mapping[Status, EffectState]] = {
    Status.COMPLETED: EffectState.SETTLED,
    Status.FAILED: EffectState.LEFT,
    Status.CANCELLED: EffectState.LEFT,
    Status.KILLED: EffectState.LEFT,
}
"""What becomes of the effects that are still open when a run finishes; those in doubt stay in doubt."""


class Ledger(Protocol):
    """Where the effects of one run are kept, oldest opening first."""

    def get(self, effect: str, /) -> Effect | None: ...

    def put(self, effect: Effect, *, opens: bool) -> None:
        """Keep it in place of the one with its id; with `opens`, as the newest."""

    def close_open(self, now: EffectState) -> None:
        """Every effect that is open is `now` something else."""


def fold_effects(ledger: Ledger, event: Event) -> None:
    """Bring a ledger up to date with the next event of its run."""
    if isinstance(event, RunFinished):
        ledger.close_open(AT_THE_END[event.status])
    elif type(event) in EFFECT_EVENTS:
        after = evolve_effect(ledger.get(event.effect), event)  # type: ignore[attr-defined]
        if after is not None:
            ledger.put(after, opens=isinstance(event, EffectOpened))


class EffectsById(dict[str, Effect]):
    """A ledger in memory."""

    def put(self, effect: Effect, *, opens: bool) -> None:
        if opens:
            self.pop(effect.id, None)
        self[effect.id] = effect

    def close_open(self, now: EffectState) -> None:
        for effect in self.values():
            if effect.state is EffectState.OPEN:
                self[effect.id] = replace(effect, state=now)
