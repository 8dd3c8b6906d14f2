"""Whatever is asked of a run, in whatever order: the promises hold, and a cancel still brings it to an end.

A move is a name and a number. The number makes the choices within the move, so that a failing sequence shrinks to few
moves with plain choices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkrein.core import commands as c
from checkrein.core.conditions import Condition, Elapsed, Repeats, Trip, Turns, Usage
from checkrein.core.effects import Effect
from checkrein.core.enums import Answer, CallKind, OnPause, Outcome, Status, Then, Undo, When
from checkrein.core.events import CallStarted, Json, Need
from checkrein.core.orders import AnswerQuestion
from tests.core.strategies import Anything

T = TypeVar("T")

WORDS: Final = ["only Q3", "only Q4", " "]
OPENS: Final = [Effect(id="", what="draft", undo="app.undo"), Effect(id="", what="mail"), None]
CONDITIONS: Final[list[Condition | None]] = [
    None,
    Turns(4),
    Turns(3, then=Then.FINISH) | Repeats(3),
    Turns(4, then=Then.CANCEL) & Elapsed(seconds=5),
]


class Choices:
    """A number, spent one choice at a time."""

    def __init__(self, number: int) -> None:
        self._left = number

    def of(self, options: Iterable[T]) -> T:
        listed: Sequence[T] = list(options)
        self._left, index = divmod(self._left, len(listed))
        return listed[index]

    def name(self, names: Iterable[str]) -> str:
        """One of these, or now and then one that does not exist."""
        return self.of([*names, "nothing"])

    def rarely(self) -> bool:
        return self.of([False] * 7 + [True])

    def yes(self) -> bool:
        return self.of([True, False])


# -- people


def person(run: Anything, choose: Choices, kind: type[c.Command], **given: Any) -> None:
    expected = choose.of([1, run.state.status_seq]) if choose.rarely() else None
    run.give(kind, expected_seq=expected, **given)


def pause(run: Anything, choose: Choices) -> None:
    needs = Need(code="key", what="401") if choose.rarely() else None
    person(run, choose, c.PauseRun, needs=needs, resumes_itself=choose.rarely())


def resume(run: Anything, choose: Choices) -> None:
    person(run, choose, c.ResumeRun, instruction=choose.of([None, *WORDS]), driven=not choose.rarely())


def redirect(run: Anything, choose: Choices) -> None:
    person(run, choose, c.RedirectRun, instruction=choose.of(WORDS), when=choose.of(When), driven=not choose.rarely())


def cancel(run: Anything, choose: Choices) -> None:
    person(run, choose, c.CancelRun, undo=choose.of(Undo))


def halt(run: Anything, choose: Choices) -> None:
    person(run, choose, c.HaltRun, over=run.epochs_in_flight() if choose.yes() else frozenset())


def ask(run: Anything, choose: Choices) -> None:
    person(run, choose, c.AskRun, question=choose.of(WORDS))


def abort(run: Anything, choose: Choices) -> None:
    person(run, choose, c.AbortCall, call=choose.name(run.state.live))


def approve(run: Anything, choose: Choices) -> None:
    call = choose.name(run.state.approvals)
    if choose.of([True, False]):
        person(run, choose, c.DenyCall, call=call)
    else:
        edited = choose.of([{}, {"arguments": Json(b"{}"), "edited": "another hash"}])
        person(run, choose, c.ApproveCall, call=call, always=choose.of([False, True]), **edited)


def resolve(run: Anything, choose: Choices) -> None:
    person(run, choose, c.ResolveCall, call=choose.name([*run.state.doubts, *run.ledger]), answer=choose.of(Answer))


def retry_undo(run: Anything, choose: Choices) -> None:
    person(run, choose, c.RetryUndo, effect=choose.name(run.ledger))


# -- the program


def begin_a_call(run: Anything, choose: Choices) -> None:
    kind = choose.of([CallKind.TOOL, CallKind.MODEL, CallKind.TOOL, CallKind.RUN])
    run.give(
        c.StartCall,
        call=f"{kind.value}{len(run.journal)}",
        kind=kind,
        name=kind.value,
        opens=choose.of(OPENS) if kind is CallKind.TOOL else None,
        idempotent=choose.yes(),
        delivers=kind is CallKind.MODEL and choose.yes(),
        on_pause=choose.of(OnPause),
        epoch=run.state.epoch - choose.rarely(),
        fingerprint=choose.of("xyz"),
        needs_approval=choose.rarely(),
    )


def begin_a_call_again(run: Anything, choose: Choices) -> None:
    """One that is due, one that is approved or in doubt, or one that is over and done with."""
    state = run.state
    known = [*state.again, *state.approvals, *state.doubts, *(event.call for event in run.all(CallStarted)[-3:])]
    call = choose.name(name for name in known if ":" not in name)
    kind = CallKind.MODEL if call.startswith("model") else CallKind.TOOL
    attempt = choose.of([state.attempt_due(call), 1, 2])
    given = {"idempotent": choose.yes(), "opens": choose.of(OPENS), "fingerprint": "x"}
    run.give(c.StartCall, call=call, kind=kind, name=kind.value, attempt=attempt, **given)


def begin_an_answer(run: Anything, choose: Choices) -> None:
    due = [order for order in run.orders if isinstance(order, AnswerQuestion)]
    order = choose.of([*due, None])
    if order is not None:
        run.give(c.StartCall, call=order.verb.call, attempt=order.attempt, kind=CallKind.ASK, name="gpt")


def finish_a_call(run: Anything, choose: Choices) -> None:
    call, outcome = choose.name(run.state.live), choose.of(Outcome)
    usage = Usage(output_tokens=3, cost_usd=None if choose.rarely() else 0.25)
    run.give(c.FinishCall, call=call, outcome=outcome, usage=usage, chars=4, tokens_after_stop=1)


def request_approval(run: Anything, choose: Choices) -> None:
    call = f"tool{len(run.journal)}"
    run.give(c.RequestApproval, call=call, name="pay", blocks=choose.yes(), fingerprint=choose.of("xy"))


def settle_or_leave_an_effect(run: Anything, choose: Choices) -> None:
    effect = choose.name(run.ledger)
    if choose.yes():
        run.give(c.LeaveEffect, effect=effect, why="gone")
    elif f"{effect} kept" not in {event.id for event in run.journal}:
        run.keeps(effect)


def trip(run: Anything, choose: Choices) -> None:
    run.give(c.TripCondition, trip=Trip("Turns(4)", choose.of([4, None]), 4, choose.of(Then)))


def end(run: Anything, choose: Choices) -> None:
    status = choose.of([Status.COMPLETED, Status.FAILED, *Status])
    run.give(c.FinishRun, status=status, undelivered_ok=choose.yes())


# -- drivers


def take_over(run: Anything, choose: Choices) -> None:
    up = choose.of([1, 1, 1, 2, 0, -1])
    run.take_over(epoch=run.state.epoch + up, owner_dead=choose.yes(), drives=not choose.rarely())


def undo(run: Anything, choose: Choices) -> None:
    run.give(c.StartUndo, effect=choose.name(run.ledger), epoch=run.state.epoch - choose.rarely())


def settle(run: Anything, choose: Choices) -> None:
    accepted = choose.name(verb.id for verb in run.state.verbs)
    run.give(c.SettleVerb, accepted=accepted, held=choose.of([run.held, frozenset(run.state.live)]))


def a_former_owner_answers(run: Anything, choose: Choices) -> None:
    permits = [permit for permit in run.all(CallStarted) if permit.call in run.state.doubts]
    permit = choose.of([None, *permits])
    if permit is not None and f"answered:{permit.call}:{permit.epoch}" not in {event.id for event in run.journal}:
        run.answers(permit.call, choose.of(Outcome), epoch=permit.epoch, began=choose.yes())


def do_as_ordered(run: Anything, choose: Choices) -> None:
    for _ in range(choose.of([1, 2, 5])):
        due = run.orders
        if due and run.status != "queued":
            run.carry_out(choose.of(due))


def wait(run: Anything, choose: Choices) -> None:
    run.later(choose.of([0.5, 3, 31]))


Move = Callable[[Anything, Choices], None]
# fmt: off
HOW_OFTEN: Final[dict[Move, int]] = {
    begin_a_call: 10, finish_a_call: 7, do_as_ordered: 8, begin_a_call_again: 4, begin_an_answer: 3, take_over: 3,
    resume: 4, pause: 2, redirect: 3, ask: 3, abort: 2, approve: 2, request_approval: 1, resolve: 3, undo: 2,
    settle: 2, a_former_owner_answers: 2, settle_or_leave_an_effect: 1, retry_undo: 1, wait: 1, trip: 1, cancel: 1,
    halt: 1, end: 1,
}
# fmt: on
MOVES: Final = [move for move, weight in HOW_OFTEN.items() for _ in range(weight)]
LATE: Final = (cancel, halt, end)
"""Moves that end a run: in the first moves of a sequence they do nothing, so that there is something to end."""


@settings(max_examples=250, suppress_health_check=list(HealthCheck))
@given(
    condition=st.sampled_from(CONDITIONS),
    moves=st.lists(st.tuples(st.sampled_from(MOVES), st.integers(0, 2**32)), min_size=40, max_size=60),
)
def test_the_promises_hold_whatever_is_asked_in_whatever_order(
    condition: Condition | None, moves: list[tuple[Move, int]]
) -> None:
    """D3 D7 D26 P1 P2 P4: and from anywhere a cancel, with a driver that does as it is told, comes to an end (P6)."""
    run = Anything(stop_when=condition)

    for number, (move, choices) in enumerate(moves):
        if number > 25 or move not in LATE:
            move(run, Choices(choices))
            run.check()
    run.cancel()
    run.take_over()
    run.drive()
    run.later(31)
    run.drive()

    assert run.state.is_finished
    run.check()
