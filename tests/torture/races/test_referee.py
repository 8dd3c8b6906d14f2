"""The referee sees what it is there to see: with a fault planted somewhere, races on it are not fair any more."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from checkrein import Receipt
from checkrein.control import control
from checkrein.core import commands, decide
from checkrein.core.decide import endings, verdict
from checkrein.core.enums import Status, Verb
from checkrein.core.events import VerbSettled
from checkrein.core.receipts import Receipt as CoreReceipt
from checkrein.core.state import State
from checkrein.errors import Refused
from checkrein.journal import admission
from tests.torture.races import race, racers
from tests.torture.races.meeting import Meeting

pytestmark = pytest.mark.anyio

Plant = Callable[[pytest.MonkeyPatch], None]


def an_end_that_ignores_a_cancel(patch: pytest.MonkeyPatch) -> None:
    def finish(state: State, command: commands.FinishRun) -> Any:
        is_cancelling = state.status is Status.CANCELLING
        return endings.finish_run(replace(state, status=Status.RUNNING) if is_cancelling else state, command)

    decisions: Any = decide._DECISIONS
    patch.setitem(decisions, commands.FinishRun, finish)


def a_journal_that_takes_decisions_made_in_ignorance(patch: pytest.MonkeyPatch) -> None:
    admit = admission.admit
    patch.setattr(
        admission, "admit", lambda proposal, head, **given: admit(replace(proposal, after=head.seq), head, **given)
    )


def an_undo_that_only_says_it_is_done(patch: pytest.MonkeyPatch) -> None:
    async def pretend(call: Any) -> None:
        return None

    patch.setattr(racers.reserve, "undo", pretend)


def a_cancel_that_is_told_it_won_when_it_did_not(patch: pytest.MonkeyPatch) -> None:
    cancel = control.Control.cancel

    async def boast(self: control.Control, run: str, **given: Any) -> Any:
        try:
            return await cancel(self, run, **given)
        except Refused:
            return Receipt(verb=Verb.CANCEL, run=run, status=Status.CANCELLED, seq=1, by="rival")

    patch.setattr(control.Control, "cancel", boast)


def a_program_that_gets_a_result_of_a_cancelled_run(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("checkrein.run._result", lambda *_: racers.RESULT)


def a_verb_that_is_settled_twice(patch: pytest.MonkeyPatch) -> None:
    end = endings._end

    def twice(*args: Any, **given: Any) -> Any:
        return tuple(
            copy
            for event in end(*args, **given)
            for copy in ((event, replace(event, id=f"{event.id}.2")) if isinstance(event, VerbSettled) else (event,))
        )

    patch.setattr(endings, "_end", twice)


def a_receipt_that_always_says_delivered(patch: pytest.MonkeyPatch) -> None:
    def lie(*args: Any, **given: Any) -> CoreReceipt:
        receipt = verdict.receipt_of(*args, **given)
        return receipt if receipt.delivered is None else replace(receipt, delivered=True)

    patch.setattr(endings, "receipt_of", lie)


def a_receipt_that_forgets_what_it_stopped(patch: pytest.MonkeyPatch) -> None:
    forget = partial(replace, calls=())
    patch.setattr(endings, "receipt_of", lambda *args, **given: forget(verdict.receipt_of(*args, **given)))


@pytest.mark.parametrize(
    ("plant", "kind"),
    [
        (an_end_that_ignores_a_cancel, "cancel"),
        (a_journal_that_takes_decisions_made_in_ignorance, "cancel"),
        (an_undo_that_only_says_it_is_done, "cancel"),
        (a_cancel_that_is_told_it_won_when_it_did_not, "cancel"),
        (a_program_that_gets_a_result_of_a_cancelled_run, "cancel"),
        (a_verb_that_is_settled_twice, "cancel"),
        (a_receipt_that_always_says_delivered, "redirect"),
        (a_receipt_that_forgets_what_it_stopped, "abort"),
    ],
)
async def test_a_planted_fault_is_seen(plant: Plant, kind: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    monkeypatch.setattr(race, "PATIENCE_SECONDS", 10.0)  # some of these runs never end

    score = await Meeting("memory", kind, seed).hold(150)

    assert score.fouls, f"{plant.__name__} went unnoticed: {score}"
