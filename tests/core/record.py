"""A strict little journal: it decides, folds and keeps the ledger, and takes nothing that a real one would not.

No event id comes twice, and a finished run takes only what is left to be done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from checkrein.core.commands import Command
from checkrein.core.conditions import Condition
from checkrein.core.consequences import controls
from checkrein.core.decide import decide
from checkrein.core.decide.verdict import Joined, Refusal, Verdict
from checkrein.core.effects import AT_THE_END, EFFECT_EVENTS, Effect, evolve_effect
from checkrein.core.enums import EffectState, Verb
from checkrein.core.events import (
    EffectOpened,
    Event,
    RunCreated,
    RunFinished,
    VerbAccepted,
    VerbSettled,
    is_taken_after_the_end,
)
from checkrein.core.evolve import evolve
from checkrein.core.orders import Order, orders
from checkrein.core.receipts import Receipt
from checkrein.core.state import State

E = TypeVar("E", bound=Event)
C = TypeVar("C", bound=Command)

T0: Final = 1000.0


def events_of(verdict: Verdict) -> tuple[Event, ...]:
    """The events of a verdict that must not be a refusal."""
    assert isinstance(verdict, tuple), verdict
    return verdict


def accepted(verdict: Verdict) -> str:
    """The id of the verb that was accepted: the one its receipt is found by."""
    return only(VerbAccepted, events_of(verdict)).id


def refusal_of(verdict: Verdict) -> Refusal:
    """A refusal, which has a code for programs and a sentence for people."""
    assert isinstance(verdict, Refusal), verdict
    assert verdict.code
    assert verdict.message.startswith(f"Run {verdict.run} is {verdict.status.value}: ")
    assert verdict.message.endswith(".")
    return verdict


def only(kind: type[E], events: tuple[Event, ...]) -> E:
    """The one event of this kind among `events`."""
    (event,) = [event for event in events if isinstance(event, kind)]
    return event


def joined(verdict: Verdict) -> str:
    """The id of the verb whose receipt is the answer."""
    assert isinstance(verdict, Joined), verdict
    return verdict.accepted


class Record:
    """The journal of one run, its state and its ledger of effects."""

    def __init__(self, *, stop_when: Condition | None = None, run: str = "r-1") -> None:
        self.at = T0
        self.journal: list[Event] = []
        self.ledger: dict[str, Effect] = {}
        self.held: frozenset[str] = frozenset()
        self.below: tuple[str, ...] = ()
        self._ids: set[str] = set()
        self._state: State | None = None
        self._made = 0
        self._is_over = False
        self.append(
            RunCreated(
                id="created", at=self.at, run=run, agent="churn", goal="who leaves?", thread="t-1", stop_when=stop_when
            )
        )

    # -- what there is

    @property
    def state(self) -> State:
        assert self._state is not None
        return self._state

    @property
    def status(self) -> str:
        """As a plain word, so that a type checker does not think it stays what a test has just seen."""
        return self.state.status

    @property
    def effects(self) -> tuple[Effect, ...]:
        """The ledger, oldest first."""
        return tuple(self.ledger.values())

    @property
    def orders(self) -> tuple[Order, ...]:
        return orders(self.state, self.effects, at=self.at, held=self.held, below=self.below)

    def consequence(self, verb: Verb) -> str:
        """What the button of `verb` says."""
        return controls(self.state, self.effects, held=self.held)[verb].consequence

    def all(self, kind: type[E]) -> list[E]:
        return [event for event in self.journal if isinstance(event, kind)]

    def receipt(self, accepted: str) -> Receipt:
        """The receipt of a verb; there must be exactly one."""
        (settled,) = [event for event in self.all(VerbSettled) if event.accepted == accepted]
        return settled.receipt

    # -- what happens

    def later(self, seconds: float) -> None:
        self.at += seconds

    def append(self, *events: Event) -> None:
        for event in events:
            assert event.id not in self._ids, f"the id {event.id} was given twice"
            assert not self._is_over or is_taken_after_the_end(event), event
            self._ids.add(event.id)
            self.journal.append(event)
            self._state = evolve(self._state, event, len(self.journal))
            self._keep_effects(event)
            self._is_over |= isinstance(event, RunFinished)

    def _keep_effects(self, event: Event) -> None:
        if isinstance(event, RunFinished):
            for effect in self.effects:
                if effect.state is EffectState.OPEN:
                    self.ledger[effect.id] = replace(effect, state=AT_THE_END[event.status])
        elif type(event) in EFFECT_EVENTS:
            name: str = event.effect  # type: ignore[attr-defined]
            after = evolve_effect(self.ledger.get(name), event)
            if isinstance(event, EffectOpened):
                self.ledger.pop(name, None)  # the order is that of the last opening
            if after is not None:
                self.ledger[name] = after

    def do(self, command: Command) -> Verdict:
        """Decide and, unless it is refused, record."""
        verdict = decide(self.state, command)
        if isinstance(verdict, tuple):
            self.append(*verdict)
        return verdict

    def make(self, kind: type[C], given: Mapping[str, Any]) -> C:
        """A command in which everything that was not given is what a well-meaning caller would say."""
        self._made += 1
        usual: dict[str, Callable[[], Any]] = {
            "id": lambda: f"c{self._made}",
            "at": lambda: self.at,
            "by": lambda: "ann",
            "epoch": lambda: self.state.epoch,
            "effects": lambda: self.effects,
            "held": lambda: self.held,
            "below": lambda: self.below,
        }
        missing = usual.keys() & set(kind.__struct_fields__) - given.keys()
        return kind(**{name: usual[name]() for name in missing}, **given)

    def give(self, kind: type[Command], /, **given: Any) -> Verdict:
        return self.do(self.make(kind, given))
