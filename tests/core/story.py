"""A run told as a story: what people ask, what the program does, and a driver that does as it is told."""

from __future__ import annotations

from typing import Any, Final

from checkrein.core.commands import (
    AbortCall,
    ApproveCall,
    AskRun,
    CancelRun,
    DenyCall,
    FinishCall,
    FinishRun,
    HaltRun,
    LeaveEffect,
    PauseRun,
    RedirectRun,
    RequestApproval,
    ResolveCall,
    ResumeRun,
    RetryUndo,
    SettleVerb,
    StartCall,
    StartUndo,
    TakeOver,
    TripCondition,
)
from checkrein.core.conditions import Condition
from checkrein.core.decide.verdict import Refusal, Verdict
from checkrein.core.effects import Effect
from checkrein.core.enums import Answer, CallKind, OnPause, Outcome, Status, Undo, When
from checkrein.core.events import UNDO_PREFIX, CallAnswered, EffectSettled, PlanPublished, StepFinished, StepStarted
from checkrein.core.orders import Abort, AnswerQuestion, Detach, Hold, LetGoOn, Order, Settle, TakeAnswer, UndoEffect
from tests.core.record import Record, accepted, events_of, joined, only, refusal_of

__all__ = ["Story", "accepted", "events_of", "joined", "only", "refusal_of"]

UNDO_OF: Final = "app.undo:"


class Story(Record):
    """One run. It begins queued; with `driven`, a driver has taken it up and it is running."""

    def __init__(self, *, driven: bool = True, stop_when: Condition | None = None, run: str = "r-1") -> None:
        super().__init__(stop_when=stop_when, run=run)
        if driven:
            self.take_over()

    # -- people

    def pause(self, **given: Any) -> Verdict:
        return self.give(PauseRun, **given)

    def resume(self, instruction: str | None = None, **given: Any) -> Verdict:
        return self.give(ResumeRun, instruction=instruction, **given)

    def redirect(self, instruction: str = "only Q3", when: When = When.NOW, **given: Any) -> Verdict:
        return self.give(RedirectRun, instruction=instruction, when=when, **given)

    def cancel(self, undo: Undo = Undo.OPEN, **given: Any) -> Verdict:
        return self.give(CancelRun, undo=undo, **given)

    def ask(self, question: str = "how far are you?", **given: Any) -> Verdict:
        return self.give(AskRun, question=question, **given)

    def abort(self, call: str, **given: Any) -> Verdict:
        return self.give(AbortCall, call=call, **given)

    def approve(self, call: str, **given: Any) -> Verdict:
        return self.give(ApproveCall, call=call, **given)

    def deny(self, call: str, **given: Any) -> Verdict:
        return self.give(DenyCall, call=call, **given)

    def resolve(self, call: str, answer: Answer, **given: Any) -> Verdict:
        return self.give(ResolveCall, call=call, answer=answer, **given)

    def retry_undo(self, effect: str, **given: Any) -> Verdict:
        return self.give(RetryUndo, effect=effect, **given)

    def halt(self, **given: Any) -> Verdict:
        return self.give(HaltRun, **given)

    def epochs_in_flight(self) -> frozenset[int]:
        """Those that have permitted what is in flight."""
        return frozenset(live.epoch for live in self.state.live.values())

    # -- the driver

    def take_over(self, *, owner_dead: bool = True, **given: Any) -> Verdict:
        """A driver claims the run. What it finds in flight is in doubt; what was frozen is no longer held."""
        self.held = frozenset()
        over = self.epochs_in_flight() if owner_dead else frozenset[int]()
        return self.give(TakeOver, **{"epoch": self.state.epoch + 1, "over": over} | given)

    def model(self, call: str, **given: Any) -> Verdict:
        return self.give(StartCall, **{"call": call, "kind": CallKind.MODEL, "name": "gpt"} | given)

    def tool(
        self, call: str, *, effect: bool = False, undo: bool = True, on_pause: OnPause = OnPause.FINISH, **given: Any
    ) -> Verdict:
        """Ask for the permit of a tool call that is named like its id. With `effect` it touches the world."""
        opens = Effect(id=call, what=call, undo=f"{UNDO_OF}{call}" if undo else None) if effect else None
        usual = {"kind": CallKind.TOOL, "name": call, "fingerprint": f"hash of {call}", "key": f"key of {call}"}
        return self.give(StartCall, **usual | {"call": call, "opens": opens, "on_pause": on_pause} | given)

    def finish(self, call: str, outcome: Outcome = Outcome.COMPLETED, **given: Any) -> Verdict:
        return self.give(FinishCall, call=call, outcome=outcome, **given)

    def did(self, *calls: str, effect: bool = True, undo: bool = True) -> None:
        """Tool calls that ran and finished, each with an effect that is open now."""
        for call in calls:
            events_of(self.tool(call, effect=effect, undo=undo))
            events_of(self.finish(call))

    def crashes_in(self, call: str, *, owner_dead: bool = True, **given: Any) -> None:
        """A tool with an effect is in flight when its driver dies (or seems to), and another one takes over."""
        events_of(self.tool(call, **{"effect": True} | given))
        events_of(self.take_over(owner_dead=owner_dead))

    def answers(self, call: str, outcome: Outcome, *, epoch: int, began: bool = True) -> None:
        """A former owner, thought dead, says what became of its call."""
        event_id = f"answered:{call}:{epoch}"
        self.append(CallAnswered(id=event_id, at=self.at, call=call, epoch=epoch, outcome=outcome, began=began))

    def undo(self, effect: str, **given: Any) -> Verdict:
        return self.give(StartUndo, effect=effect, **given)

    def undone(self, effect: str, outcome: Outcome = Outcome.COMPLETED) -> Verdict:
        return self.finish(UNDO_PREFIX + effect, outcome)

    def leave(self, effect: str, why: str = "the mailbox is gone") -> Verdict:
        return self.give(LeaveEffect, effect=effect, why=why)

    def keeps(self, effect: str) -> None:
        """The author says that the effect is meant to stay (`call.settle()`)."""
        self.append(EffectSettled(id=f"{effect} kept", at=self.at, effect=effect))

    def request(self, call: str, **given: Any) -> Verdict:
        return self.give(RequestApproval, **{"call": call, "name": call, "fingerprint": f"hash of {call}"} | given)

    def trip(self, refusal: Refusal) -> Verdict:
        assert refusal.trip is not None
        return self.give(TripCondition, trip=refusal.trip)

    def settle(self, accepted: str | None = None, **given: Any) -> Verdict:
        """Settle a verb; without a name, the latest."""
        return self.give(SettleVerb, accepted=accepted or self.state.verbs[-1].id, **given)

    def complete(self, **given: Any) -> Verdict:
        return self.give(FinishRun, **{"status": Status.COMPLETED} | given)

    def fail(self, **given: Any) -> Verdict:
        return self.give(FinishRun, **{"status": Status.FAILED, "error": "KeyError"} | given)

    def plan(self, *steps: str, finished: int = 0) -> None:
        self.append(PlanPublished(id="plan", at=self.at, steps=steps))
        for number, title in enumerate(steps[:finished], 1):
            self.append(StepStarted(id=f"step {number} begun", at=self.at, step=number, title=title))
            self.append(StepFinished(id=f"step {number} done", at=self.at, step=number))

    def drive(self, *, until: type[Order] | None = None) -> None:
        """Carry out what is due, one order after the other, until nothing is (or until one of this kind is next)."""
        for _ in range(200):
            due = next(iter(self.orders), None)
            if due is None or (until is not None and isinstance(due, until)):
                return
            self.carry_out(due)
        raise AssertionError(f"there is no end to the orders: {self.orders}")

    def carry_out(self, order: Order) -> None:
        match order:
            case Abort(call):
                events_of(self.finish(call, Outcome.ABORTED))
            case Detach(call):
                events_of(self.finish(call, Outcome.DETACHED))
            case Hold(call):
                self.held |= {call}
            case LetGoOn(call):
                self.held -= {call}
            case UndoEffect(effect):
                events_of(self.undo(effect.id))
                events_of(self.undone(effect.id))
            case TakeAnswer(call, answer):
                events_of(self.resolve(call, answer, by="checkrein"))
            case AnswerQuestion(verb, attempt):
                given = {"call": verb.call, "attempt": attempt, "kind": CallKind.ASK, "name": "gpt"}
                events_of(self.give(StartCall, **given))
                events_of(self.finish(verb.call or ""))
            case Settle(verb):
                events_of(self.settle(verb.id))
