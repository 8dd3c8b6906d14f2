"""A run that anything may be asked of, in any order: by people, by its driver, by former ones. Its journal checks
every promise that can be checked by reading."""

from __future__ import annotations

import itertools
from collections import Counter
from functools import reduce
from operator import or_
from typing import Final

import msgspec

from checkrein.core.commands import Command, HaltRun, ResolveCall, SettleVerb, StartUndo, VerbCommand
from checkrein.core.consequences import controls
from checkrein.core.decide import decide
from checkrein.core.decide.verdict import Joined, Refusal, Verdict
from checkrein.core.enums import Answer, CallKind, Verb
from checkrein.core.events import (
    DECISIONS,
    EVENTS,
    UNOWNED,
    CallFinished,
    CallResolved,
    CallStarted,
    Event,
    RunFinished,
    VerbAccepted,
    VerbSettled,
)
from checkrein.core.evolve import evolve
from checkrein.core.orders import AnswerQuestion, Settle, TakeAnswer, UndoEffect
from checkrein.core.state import State
from tests.core.story import Story

_DECODER: Final[msgspec.json.Decoder[Event]] = msgspec.json.Decoder(reduce(or_, EVENTS))
STOPS: Final = (Verb.CANCEL, Verb.HALT)


class Anything(Story):
    """A story that does not mind what it is told, and minds very much what comes of it."""

    def do(self, command: Command) -> Verdict:
        before = self.state
        verdict = decide(before, command)
        assert decide(before, command) == verdict, "a decision depends on nothing but the state and the command"
        if isinstance(verdict, Refusal):
            assert verdict.code
            assert len(verdict.message.split()) > 3
            assert (verdict.run, verdict.status) == (before.run, before.status)
        elif isinstance(verdict, Joined):
            assert verdict.accepted in {event.id for event in self.all(VerbAccepted)}
        else:
            self._check(command, verdict)
            if not self.has(verdict):
                self.append(*verdict)
        return verdict

    def has(self, events: tuple[Event, ...]) -> bool:
        """Whether a journal would say that it has this append already: a permit asked for once more."""
        return any(event.id in self._ids for event in events)

    def _check(self, command: Command, events: tuple[Event, ...]) -> None:
        if isinstance(command, VerbCommand) and not isinstance(command, HaltRun):
            assert {type(event) for event in events} <= UNOWNED, "a person needs no lease"
        decisions = [type(event) in DECISIONS for event in events]
        outcomes = [isinstance(event, CallFinished) for event in events]
        assert not any(outcomes[decisions.index(True) :] if any(decisions) else ()), "what happened comes first"

    # -- what must hold, read from the journal alone

    def check(self) -> None:
        self._check_stops()
        self._check_verbs()
        self._check_attempts()
        self._check_state()
        self._check_orders()

    def _check_stops(self) -> None:
        """P1: no permit after a stop. P4: one end."""
        stopped = False
        for event in self.journal:
            stopped |= isinstance(event, VerbAccepted) and event.verb in STOPS
            permit = isinstance(event, CallStarted) and event.kind is not CallKind.UNDO
            assert not (stopped and permit), f"{event} after a stop"
        assert len(self.all(RunFinished)) <= 1

    def _check_verbs(self) -> None:
        asked = Counter(event.id for event in self.all(VerbAccepted))
        settled = Counter(event.accepted for event in self.all(VerbSettled))
        assert max(settled.values(), default=0) <= 1
        assert settled <= asked
        assert {verb.id for verb in self.state.verbs} == (asked - settled).keys()
        if self.state.is_finished:
            open_ones = [verb for verb in self.state.verbs if not self._was_asked_afterwards(verb.id)]
            assert not open_ones, "no verb outlives its run without an answer"
            assert self._is_over

    def _was_asked_afterwards(self, verb: str) -> bool:
        """Whether it is a question on the side that was put to a run which had ended: it is answered like any other."""
        since = itertools.dropwhile(lambda event: not isinstance(event, RunFinished), self.journal)
        return any(isinstance(one, VerbAccepted) and one.id == verb and one.verb is Verb.ASK for one in since)

    def _check_attempts(self) -> None:
        """P2: a tool that is not idempotent is permitted again only after somebody said that it did not happen."""
        permits: dict[str, CallStarted] = {}
        for event in self.journal:
            if isinstance(event, CallStarted) and event.kind is not CallKind.UNDO:
                earlier = permits.get(event.call)
                if earlier is not None and earlier.kind is CallKind.TOOL:
                    assert earlier.idempotent, f"{event.call} was permitted twice"
                permits[event.call] = event
            elif isinstance(event, CallResolved) and event.answer is Answer.DID_NOT_HAPPEN:
                permits.pop(event.call, None)

    def _check_state(self) -> None:
        state = self.state
        last = next(event for event in reversed(self.journal) if hasattr(event, "status"))
        assert state.status is last.status
        told = [_DECODER.decode(msgspec.json.encode(event)) for event in self.journal]
        again: State | None = None
        for seq, event in enumerate(told, 1):
            again = evolve(again, event, seq)
        assert again == state, "a journal that is read back tells the same"
        assert msgspec.json.decode(msgspec.json.encode(state), type=State) == state

    def _check_orders(self) -> None:
        """What a driver is ordered to do is never refused, and what is on a button never fails."""
        assert all(control.consequence for control in controls(self.state, self.effects, held=self.held).values())
        for order in self.orders:
            match order:
                case Settle(verb):
                    self._would(self.make(SettleVerb, {"accepted": verb.id}))
                case UndoEffect(effect):
                    self._would(self.make(StartUndo, {"effect": effect.id}))
                case TakeAnswer(call, answer):
                    self._would(self.make(ResolveCall, {"call": call, "answer": answer}))
                case AnswerQuestion(verb, attempt):
                    assert f"{verb.call}#{attempt}" not in self._ids, "this attempt was made already"

    def _would(self, command: Command) -> None:
        assert isinstance(decide(self.state, command), tuple), command
