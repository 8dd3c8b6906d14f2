"""A cancel settles within its time whatever does not answer, and says of each what is not known."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec
import pytest

from checkrein.calls.base import CallRequest, CallResult, Execution
from checkrein.control.control import Control
from checkrein.core import orders
from checkrein.core.enums import CallKind, EffectState, Outcome, Status
from checkrein.core.events import CallAnswered, CallFinished, CallStarted
from checkrein.core.receipts import Receipt
from checkrein.driver import running_calls, undo
from checkrein.driver.running_calls import NOT_ANSWERED
from checkrein.driver.undo import FENCED
from checkrein.journal import open_journal
from checkrein.journal.base import Fence, Scope
from tests.support.driver_harness import Outside, Playing, Stage, at_work, draft_and_score, drive, new_run, owner, until
from tests.support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio

SETTLE_SECONDS = 1.0


@pytest.fixture(autouse=True)
def detached_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orders, "DETACH_SECONDS", 0.1)


class Deaf(Execution):
    """It does not end when it is told to; `end` does."""

    def __init__(self, outside: Outside, error: Exception | None = None) -> None:
        self._outside, self._error, self._over = outside, error, asyncio.Event()

    def begin(self, _: object) -> Execution:
        self._outside.log.append("begin deaf")
        return self

    def end(self) -> None:
        self._outside.log.append("end deaf")
        self._over.set()

    async def ended(self) -> CallResult:
        if self._error is not None:
            raise self._error
        await self._over.wait()
        return CallResult(outcome=Outcome.COMPLETED, result=b'"late"')

    async def abort(self) -> None:
        self._outside.log.append("abort deaf")
        await self._over.wait()

    async def hold(self) -> bool:
        return False

    async def resume(self) -> None:
        pass


async def ask_deaf(stage: Stage, deaf: Deaf, kind: CallKind = CallKind.TOOL) -> None:
    effect = "deaf" if kind is CallKind.TOOL else None
    undo = "undo:deaf" if effect else None
    await stage.driver.call(
        CallRequest(kind=kind, name="deaf", perform=deaf.begin, arguments=b"{}", effect=effect, undo=undo)
    )


async def settled(control: Control) -> Receipt:
    receipt = await control.cancel("r", by="a person", wait=PATIENCE_SECONDS)
    assert isinstance(receipt, Receipt), receipt
    return receipt


async def test_a_call_that_does_not_answer_is_detached_the_others_are_undone_and_the_driver_ends() -> None:
    outside = Outside()
    deaf = Deaf(outside)

    async def script(stage: Stage) -> None:
        await stage.call("draft", effect=True)
        await ask_deaf(stage, deaf)

    async with await open_journal("memory:") as journal:
        driving = await at_work(journal, Playing(outside, script), "begin deaf", settle_seconds=SETTLE_SECONDS)

        receipt = await settled(Control(journal, owner("control")))

        assert receipt.status is Status.CANCELLED
        assert [(call.name, call.now, call.left) for call in receipt.calls] == [
            ("deaf", Outcome.DETACHED, (NOT_ANSWERED,))
        ]
        assert {e.what: e.now for e in receipt.effects} == {"draft": EffectState.UNDONE, "deaf": EffectState.IN_DOUBT}
        assert outside.log[-1] == "undo draft"
        async with asyncio.timeout(PATIENCE_SECONDS):
            await driving
        assert "end deaf" not in outside.log, "nobody has waited for it"


async def test_the_late_end_of_a_detached_call_is_recorded_also_after_its_driver_is_over() -> None:
    outside = Outside()
    deaf = Deaf(outside)

    async with await open_journal("memory:") as journal:
        await new_run(journal)
        driving = await drive(
            journal, Playing(outside, lambda stage: ask_deaf(stage, deaf)), settle_seconds=SETTLE_SECONDS
        )
        await until(lambda: "begin deaf" in outside.log)
        await settled(Control(journal, owner("control")))
        await driving

        deaf.end()

        async with asyncio.timeout(PATIENCE_SECONDS):
            while not [r for r in await journal.read("r") if isinstance(r.event, CallAnswered)]:
                await asyncio.sleep(0.01)
        assert not (await journal.load("r")).doubts


async def test_a_call_whose_end_nobody_can_tell_has_failed_and_keeps_nothing_waiting() -> None:
    outside = Outside()
    deaf = Deaf(outside, ValueError("its end cannot be told"))

    async with await open_journal("memory:") as journal:
        await new_run(journal)
        script = lambda stage: ask_deaf(stage, deaf, CallKind.MODEL)  # noqa: E731
        driving = await drive(journal, Playing(outside, script), settle_seconds=SETTLE_SECONDS)

        async with asyncio.timeout(PATIENCE_SECONDS):
            await driving
        (end,) = [r.event for r in await journal.read("r") if isinstance(r.event, CallFinished)]
        assert (end.outcome, end.error) == (Outcome.FAILED, "ValueError: its end cannot be told")
        assert (await journal.load("r")).status is Status.FAILED


async def test_an_undo_that_an_operators_halt_forbids_is_left_at_once_and_said_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A halt that died half-way has put up its fence and ended nothing; then somebody cancels."""
    outside = Outside()

    async with await open_journal("memory:") as journal:
        driving = await at_work(journal, Playing(outside, draft_and_score), "begin score")
        await journal.fence(Fence(scope=Scope.RUN, name="r", by="operator", reason="", at=0.0))

        with caplog.at_level(logging.WARNING):
            receipt = await settled(Control(journal, owner("control")))

        await driving
        assert [(e.what, e.now, e.why) for e in receipt.effects] == [("draft", EffectState.LEFT, FENCED)]
        assert "undo draft" not in outside.log
        undos = [r for r in await journal.read("r") if isinstance(r.event, CallStarted) and r.event.call == "undo:c1"]
        assert undos == []
        assert len(caplog.records) < 10, "no hot loop"


async def test_a_question_that_a_fence_forbids_is_not_asked_in_a_hot_loop() -> None:
    outside = Outside()
    asked = 0

    async def script(stage: Stage) -> None:
        await stage.call("score", seconds=3600)

    async with await open_journal("memory:") as journal:
        append = journal.append

        async def counted(run: str, events: Any, **given: Any) -> Any:
            nonlocal asked
            asked += any(isinstance(event, CallStarted) and event.kind is CallKind.ASK for event in events)
            return await append(run, events, **given)

        journal.append = counted  # type: ignore[method-assign]
        driving = await at_work(journal, Playing(outside, script), "begin score")
        await journal.fence(Fence(scope=Scope.RUN, name="r", by="operator", reason="", at=0.0))
        control = Control(journal, owner("control"))

        await control.ask("r", "how far?", by="a person", wait=1.0)

        assert 1 <= asked <= 10
        await settled(control)
        await driving


async def test_what_shares_an_append_with_a_permit_that_a_fence_stops_is_taken_all_the_same() -> None:
    """A program must not meet a fence: it would fail of it."""
    outside = Outside()

    async def script(stage: Stage) -> None:
        await asyncio.gather(stage.call("score"), stage.call("send", approval="block"))

    async with await open_journal("memory:") as journal:
        await new_run(journal)
        await journal.fence(Fence(scope=Scope.RUN, name="r", by="operator", reason="", at=0.0))

        driving = await drive(journal, Playing(outside, script))

        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (state := await journal.load("r")).approvals and not state.is_finished:
                await asyncio.sleep(0.01)
        assert list(state.approvals) == ["c2"]
        await settled(Control(journal, owner("control")))
        await driving
        assert outside.log == []


# -- undos that fail


class Unsayable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("it cannot be said")


@pytest.mark.parametrize(
    ("error", "said"),
    [(OSError("gone"), "OSError: gone"), (SystemExit(4), "SystemExit: 4"), (Unsayable(), "Unsayable")],
)
async def test_an_undo_that_cannot_begin_is_tried_again_and_left_with_the_reason(
    error: BaseException, said: str
) -> None:
    outside = Outside()

    class Broken(Playing):
        def undo(self, effect: Any, call: Any, driver: Any) -> Execution:
            outside.log.append("tried")
            raise error

    async with await open_journal("memory:") as journal:
        driving = await at_work(journal, Broken(outside, draft_and_score), "begin score")

        receipt = await settled(Control(journal, owner("control")))

        await driving
        assert outside.times("tried") == 3
        assert [e.why for e in receipt.effects] == [f"its undo failed 3 times: {said}"]
        assert msgspec.json.encode(receipt)


async def test_an_undo_that_neither_ends_nor_stops_and_one_whose_end_cannot_be_told_cost_the_others_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(running_calls, "DETACH_SECONDS", 0.1)
    shares = [0.1]
    monkeypatch.setattr(undo, "undo_seconds", lambda *_, **__: shares.pop() if shares else 30.0)
    outside = Outside()

    class Odd(Playing):
        def undo(self, effect: Any, call: Any, driver: Any) -> Execution:
            match effect.what:
                case "deaf":
                    return Deaf(outside)
                case "odd":
                    return Deaf(outside, ValueError("its end cannot be told"))
                case _:
                    return super().undo(effect, call, driver)

    async def script(stage: Stage) -> None:
        for name in ("draft", "odd", "deaf"):
            await stage.call(name, effect=True)
        await stage.call("score", seconds=3600)

    async with await open_journal("memory:") as journal:
        driving = await at_work(journal, Odd(outside, script), "begin score")

        receipt = await settled(Control(journal, owner("control")))

        assert {e.what: (e.now, e.why) for e in receipt.effects} == {
            "deaf": (EffectState.LEFT, "its undo did not end within 0.1 s"),
            "odd": (EffectState.LEFT, "its undo failed 3 times: ValueError: its end cannot be told"),
            "draft": (EffectState.UNDONE, ""),
        }
        assert outside.times("undo draft") == 1
        async with asyncio.timeout(PATIENCE_SECONDS):
            await driving
