"""The referee sees what it is there to see: with a fault planted somewhere, races on it are not fair any more."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from checkrein import Receipt
from checkrein.control import runs, verbs
from checkrein.core import commands, decide, ends, settling
from checkrein.core.events import VerbSettled
from checkrein.core.receipts import Receipt as CoreReceipt
from checkrein.core.state import State
from checkrein.core.words import Status, Verb
from checkrein.errors import Refused
from checkrein.journal import rules
from tests.races import racers
from tests.races.meeting import Meeting

pytestmark = pytest.mark.anyio

Plant = Callable[[pytest.MonkeyPatch], None]


def an_end_that_ignores_a_cancel(patch: pytest.MonkeyPatch) -> None:
    def finish(state: State, command: commands.FinishRun) -> Any:
        is_cancelling = state.status is Status.CANCELLING
        return ends.finish_run(replace(state, status=Status.RUNNING) if is_cancelling else state, command)

    decisions: Any = decide._DECISIONS
    patch.setitem(decisions, commands.FinishRun, finish)


def a_journal_that_takes_decisions_made_in_ignorance(patch: pytest.MonkeyPatch) -> None:
    admit = rules.admit
    patch.setattr(
        rules, "admit", lambda proposal, head, **given: admit(replace(proposal, after=head.seq), head, **given)
    )


def an_undo_that_only_says_it_is_done(patch: pytest.MonkeyPatch) -> None:
    async def pretend(call: Any) -> None:
        return None

    patch.setattr(racers.reserve, "undo", pretend)


def a_cancel_that_is_told_it_won_when_it_did_not(patch: pytest.MonkeyPatch) -> None:
    cancel = verbs.Control.cancel

    async def boast(self: verbs.Control, run: str, **given: Any) -> Any:
        try:
            return await cancel(self, run, **given)
        except Refused:
            return Receipt(verb=Verb.CANCEL, run=run, status=Status.CANCELLED, seq=1, by="rival")

    patch.setattr(verbs.Control, "cancel", boast)


def a_program_that_gets_a_result_of_a_cancelled_run(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(runs, "_result", lambda run, finished: racers.RESULT)


def a_verb_that_is_settled_twice(patch: pytest.MonkeyPatch) -> None:
    end = ends._end

    def twice(*args: Any, **given: Any) -> Any:
        return tuple(
            copy
            for event in end(*args, **given)
            for copy in ((event, replace(event, id=f"{event.id}.2")) if isinstance(event, VerbSettled) else (event,))
        )

    patch.setattr(ends, "_end", twice)


def a_receipt_that_always_says_delivered(patch: pytest.MonkeyPatch) -> None:
    def lie(*args: Any, **given: Any) -> CoreReceipt:
        receipt = settling.receipt_of(*args, **given)
        return receipt if receipt.delivered is None else replace(receipt, delivered=True)

    patch.setattr(ends, "receipt_of", lie)


def a_receipt_that_forgets_what_it_stopped(patch: pytest.MonkeyPatch) -> None:
    forget = partial(replace, calls=())
    patch.setattr(ends, "receipt_of", lambda *args, **given: forget(settling.receipt_of(*args, **given)))


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

    score = await Meeting("memory", kind, seed).hold(150)

    assert score.fouls, f"{plant.__name__} went unnoticed: {score}"
