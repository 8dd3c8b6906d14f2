"""What a driver does with a program and with verbs. The witness is what the calls themselves say they did."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from checkrein.calls.base import CallRequest, Execution, Permit
from checkrein.control.control import Control, Settling
from checkrein.core.conditions import ToolCalls
from checkrein.core.enums import Answer, CallKind, EffectState, OnPause, Outcome, Status, Undo
from checkrein.core.events import CallFinished, CallStarted, InstructionDelivered, RunFinished, VerbSettled
from checkrein.core.receipts import Receipt
from checkrein.core.state import State
from checkrein.errors import CallFailed, Interrupted, Refused
from checkrein.journal import open_journal
from checkrein.journal.base import Journal
from tests.support.driver_harness import (
    DRIVERS,
    Outside,
    Playing,
    Scripted,
    Stage,
    at_work,
    crash,
    drive,
    new_run,
    owner,
    until,
)
from tests.support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory", "sqlite"])
async def journal(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Journal]:
    address = "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/runs.db"
    async with await open_journal(address) as opened:
        yield opened


@pytest.fixture
def outside() -> Outside:
    return Outside()


@pytest.fixture
def control(journal: Journal) -> Control:
    return Control(journal, owner("control"))


async def draft_and_score(executor: Stage) -> None:
    """Something that can be undone, and then work that takes long."""
    await executor.call("draft", effect=True)
    await executor.call("score", seconds=60)


async def status(journal: Journal) -> Status:
    return (await journal.load("r")).status


async def test_a_program_runs_to_its_end_and_its_result_is_recorded(journal: Journal, outside: Outside) -> None:
    async def script(executor: Stage) -> Any:
        first = await executor.call("fetch")
        rest = await asyncio.gather(executor.call("join"), executor.call("score"))
        return [first, *rest]

    await new_run(journal)
    await (await drive(journal, Playing(outside, script)))

    finished = (await journal.read("r"))[-1].event
    assert isinstance(finished, RunFinished)
    assert bytes(finished.result or b"") == b'["fetch done","join done","score done"]'


async def test_the_outcome_of_a_call_and_the_next_permit_share_a_commit(journal: Journal, outside: Outside) -> None:
    """Two events of one append have the same neighbours in every reader's eyes: nothing comes between them."""

    async def script(executor: Stage) -> None:
        for number in range(5):
            await executor.call(f"step{number}")

    await new_run(journal)
    await (await drive(journal, Playing(outside, script)))

    kinds = [type(record.event) for record in await journal.read("r")]
    starts = [n for n, kind in enumerate(kinds) if kind is CallStarted]
    assert all(kinds[n - 1] is CallFinished for n in starts[1:])


async def test_a_cancel_stops_what_is_in_flight_and_undoes_newest_first(
    journal: Journal, outside: Outside, control: Control
) -> None:
    """D2 D3 D22 D33"""

    async def script(executor: Stage) -> None:
        await executor.call("draft", effect=True)
        await executor.call("lock", effect=True)
        await executor.call("score", seconds=60)
        await executor.call("send", effect=True)

    driving = await at_work(journal, Playing(outside, script), "begin score")

    receipt = await control.cancel("r", by="a person", reason="wrong path")
    await driving

    assert isinstance(receipt, Receipt)
    assert outside.log[-3:] == ["abort score", "undo lock", "undo draft"]
    assert "begin send" not in outside.log
    assert [(call.name, call.now) for call in receipt.calls] == [("score", Outcome.ABORTED)]
    assert [(effect.what, effect.now) for effect in receipt.effects] == [("draft", "undone"), ("lock", "undone")]
    assert await status(journal) is Status.CANCELLED


def fetch_and_score(let: asyncio.Event) -> Callable[[Stage], Awaitable[None]]:
    async def script(executor: Stage) -> None:
        await executor.call("fetch", let=let)
        await executor.call("score")

    return script


async def pause_and_let(journal: Journal, control: Control, let: asyncio.Event) -> Receipt:
    """Let what is in flight finish once the pause is accepted."""
    pausing = asyncio.create_task(control.pause("r", by="a person", wait=PATIENCE_SECONDS))
    await until_status(journal, Status.PAUSING)
    let.set()
    receipt = await pausing
    assert isinstance(receipt, Receipt)
    return receipt


async def test_a_pause_waits_for_a_tool_and_resume_goes_on_exactly_there(
    journal: Journal, outside: Outside, control: Control
) -> None:
    """D20 D23 D28 D30"""

    let = asyncio.Event()
    driving = await at_work(journal, Playing(outside, fetch_and_score(let)), "begin fetch")

    paused = await pause_and_let(journal, control, let)

    assert paused.status is Status.PAUSED
    assert outside.log == ["begin fetch", "end fetch"]
    await asyncio.sleep(0.1)
    assert "begin score" not in outside.log

    await control.resume("r", by="a person")
    await driving

    assert outside.log == ["begin fetch", "end fetch", "begin score", "end score"]


async def test_a_pause_closes_a_model_call_and_it_is_asked_again(
    journal: Journal, outside: Outside, control: Control
) -> None:
    """D28"""

    async def script(executor: Stage) -> Any:
        return await executor.call("think", kind=CallKind.MODEL, let=let)

    let = asyncio.Event()
    driving = await at_work(journal, Playing(outside, script), "begin think")

    await control.pause("r", by="a person")
    assert outside.log == ["begin think", "abort think"]
    let.set()
    await control.resume("r", by="a person")
    await driving

    assert outside.log == ["begin think", "abort think", "begin think", "end think"]
    attempts = [r.event.attempt for r in await journal.read("r") if isinstance(r.event, CallStarted)]
    assert attempts == [1, 2]


async def test_a_held_call_is_frozen_and_goes_on_at_resume(
    journal: Journal, outside: Outside, control: Control
) -> None:
    async def script(executor: Stage) -> None:
        await executor.call("crunch", let=let, on_pause=OnPause.HOLD)

    let = asyncio.Event()
    driving = await at_work(journal, Playing(outside, script), "begin crunch")

    paused = await control.pause("r", by="a person", wait=PATIENCE_SECONDS)
    await control.resume("r", by="a person", wait=PATIENCE_SECONDS)
    let.set()
    await driving

    assert isinstance(paused, Receipt)
    assert [(call.name, call.now) for call in paused.calls] == [("crunch", "held")]
    assert outside.log == ["begin crunch", "hold crunch", "go on crunch", "end crunch"]


async def test_a_redirect_interrupts_the_program_and_gives_it_the_instruction(
    journal: Journal, outside: Outside, control: Control
) -> None:
    """D21 D38: finished work is kept, what was interrupted is undone, the next model call carries the instruction."""
    seen: list[str] = []

    async def script(executor: Stage) -> Any:
        await executor.call("fetch", effect=True)
        try:
            await executor.call("score", seconds=60, effect=True)
        except Interrupted as interrupted:
            seen.append(interrupted.code)
        return await executor.call("think", kind=CallKind.MODEL)

    driving = await at_work(journal, Playing(outside, script), "begin score")

    receipt = await control.redirect("r", "only Q3", by="a person")
    await driving

    assert isinstance(receipt, Receipt)
    assert receipt.delivered is True
    assert seen == ["interrupted"]
    assert outside.log[-4:] == ["abort score", "undo score", "begin think", "end think"]
    delivered = [r.event for r in await journal.read("r") if isinstance(r.event, InstructionDelivered)]
    assert [event.diff for event in delivered] == ["+ only Q3"]
    assert {e.what: e.state for e in await journal.effects("r")} == {
        "fetch": EffectState.SETTLED,
        "score": EffectState.UNDONE,
    }


async def test_a_program_that_ends_before_its_instruction_says_so(
    journal: Journal, outside: Outside, control: Control
) -> None:
    async def script(executor: Stage) -> str:
        try:
            await executor.call("score", seconds=60)
        except Interrupted:
            return "gave up"
        return "never"

    driving = await at_work(journal, Playing(outside, script), "begin score")

    receipt = await control.redirect("r", "only Q3", by="a person")
    await driving

    assert isinstance(receipt, Receipt)
    assert receipt.delivered is False
    assert await status(journal) is Status.COMPLETED


async def test_after_a_crash_a_tool_is_not_done_again_until_a_person_says_it_did_not_happen(
    journal: Journal, outside: Outside, control: Control
) -> None:
    """D29 D30"""

    async def script(executor: Stage) -> Any:
        await executor.call("fetch")
        return await executor.call("send", seconds=60, effect=True)

    first = await at_work(journal, Playing(outside, script), "begin send")
    await crash(first)

    async def script_again(executor: Stage) -> Any:
        await executor.call("fetch")
        return await executor.call("send", effect=True)

    second = await drive(journal, Playing(outside, script_again), by="second")
    state = await in_doubt(journal)
    await asyncio.sleep(0.1)
    assert [waiting.kind for waiting in state.waiting()] == ["in_doubt"]
    assert outside.times("begin send") == 1
    assert outside.times("begin fetch") == 1

    (call,) = state.doubts
    await control.resolve("r", call, Answer.DID_NOT_HAPPEN, by="a person")
    await second

    assert outside.times("begin send") == 2
    assert await status(journal) is Status.COMPLETED


async def test_what_a_person_says_happened_is_given_to_the_program_with_its_result(
    journal: Journal, outside: Outside, control: Control
) -> None:
    async def script(executor: Stage) -> Any:
        return await executor.call("send", seconds=60, effect=True)

    first = await at_work(journal, Playing(outside, script), "begin send")
    await crash(first)
    second = await drive(journal, Playing(outside, script), by="second")
    (call,) = (await in_doubt(journal)).doubts

    await control.resolve("r", call, Answer.HAPPENED, by="a person", result="sent at noon")
    await second

    finished = (await journal.read("r"))[-1].event
    assert isinstance(finished, RunFinished)
    assert bytes(finished.result or b"") == b'"sent at noon"'
    assert outside.times("begin send") == 1


async def test_an_idempotent_tool_is_tried_again_by_itself(journal: Journal, outside: Outside) -> None:
    async def script(executor: Stage) -> Any:
        return await executor.call("put", seconds=0 if outside.log else 600, effect=True, idempotent=True)

    first = await at_work(journal, Playing(outside, script), "begin put")
    await crash(first)

    await (await drive(journal, Playing(outside, script), by="second"))

    assert [line for line in outside.log if line != "abort put"] == ["begin put", "begin put", "end put"]


async def test_a_failing_tool_raises_in_the_program_which_may_go_on(journal: Journal, outside: Outside) -> None:
    async def script(executor: Stage) -> str:
        try:
            await executor.call("lookup", fails=True)
        except CallFailed as failed:
            return failed.error
        return ""

    await new_run(journal)
    await (await drive(journal, Playing(outside, script)))

    assert await status(journal) is Status.COMPLETED


async def test_the_authors_own_exception_fails_the_run(journal: Journal, outside: Outside) -> None:
    async def script(executor: Stage) -> None:
        raise KeyError("customer")

    await new_run(journal)
    await (await drive(journal, Playing(outside, script)))

    finished = (await journal.read("r"))[-1].event
    assert isinstance(finished, RunFinished)
    assert (finished.status, finished.error) == (Status.FAILED, "KeyError: 'customer'")


async def test_an_undo_that_fails_three_times_is_left_and_can_be_tried_again(
    journal: Journal, outside: Outside, control: Control
) -> None:
    """D33 D5"""

    program = Playing(outside, draft_and_score)
    program.failing_undos = 3
    driving = await at_work(journal, program, "begin score")

    receipt = await control.cancel("r", by="a person")
    await driving
    assert isinstance(receipt, Receipt)
    assert [(effect.what, effect.now) for effect in receipt.effects] == [("draft", "left")]
    assert outside.times("undo draft") == 3

    await control.retry_undo("r", receipt.effects[0].id, by="a person")
    await (await drive(journal, program, by="second"))

    assert [effect.state for effect in await journal.effects("r")] == [EffectState.UNDONE]


async def test_a_cancel_without_undo_leaves_everything_and_says_so(
    journal: Journal, outside: Outside, control: Control
) -> None:
    driving = await at_work(journal, Playing(outside, draft_and_score), "begin score")

    receipt = await control.cancel("r", by="a person", undo=Undo.NONE)
    await driving

    assert isinstance(receipt, Receipt)
    assert [(effect.what, effect.now) for effect in receipt.effects] == [("draft", "left")]
    assert "undo draft" not in outside.log


async def test_a_side_question_is_answered_while_the_run_stays_paused(
    journal: Journal, outside: Outside, control: Control
) -> None:
    let = asyncio.Event()
    driving = await at_work(journal, Playing(outside, fetch_and_score(let)), "begin fetch")
    await pause_and_let(journal, control, let)

    answer = await control.ask("r", "how far?", by="a person")

    assert isinstance(answer, Receipt)
    assert answer.answer == "about how far?: fine"
    assert await status(journal) is Status.PAUSED
    await control.cancel("r", by="a person")
    await driving


async def test_one_call_can_be_aborted_while_a_pause_waits_for_it(
    journal: Journal, outside: Outside, control: Control
) -> None:
    async def script(executor: Stage) -> str:
        try:
            await executor.call("slow", seconds=60)
        except Interrupted:
            await executor.call("other")
        return "ok"

    driving = await at_work(journal, Playing(outside, script), "begin slow")
    waiting = await control.pause("r", by="a person", wait=0.2)
    assert isinstance(waiting, Settling)
    assert waiting.waiting_for == "slow to finish"
    (call,) = (await journal.load("r")).live

    await control.abort("r", call, by="a person")

    await until_status(journal, Status.PAUSED)
    assert outside.log == ["begin slow", "abort slow"]
    await control.resume("r", by="a person")
    await driving
    assert outside.log[-1] == "end other"


async def in_doubt(journal: Journal) -> State:
    """The run, once a call of it is in doubt."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (state := await journal.load("r")).doubts:
            await asyncio.sleep(0.01)
    return state


async def until_status(journal: Journal, wanted: Status) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await status(journal) is not wanted:
            await asyncio.sleep(0.01)


async def test_a_cap_pauses_the_run_and_a_resume_grants_it_again(
    journal: Journal, outside: Outside, control: Control
) -> None:
    """D9 D25 D36"""

    async def script(executor: Stage) -> None:
        for number in range(3):
            await executor.call(f"step{number}")

    await new_run(journal, stop_when=ToolCalls(2))
    driving = await drive(journal, Playing(outside, script))
    await until_status(journal, Status.PAUSED)
    state = await journal.load("r")
    assert [waiting.kind for waiting in state.waiting()] == ["cap"]
    assert "begin step2" not in outside.log

    await control.resume("r", by="a person")
    await driving

    assert outside.log[-1] == "end step2"


@pytest.mark.parametrize("approves", [True, False])
async def test_a_call_that_needs_approval_waits_for_it(
    journal: Journal, outside: Outside, control: Control, approves: bool
) -> None:
    async def script(executor: Stage) -> str:
        try:
            return str(await executor.call("wire money", approval="block"))
        except CallFailed:
            return "declined"

    await new_run(journal)
    driving = await drive(journal, Playing(outside, script))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (await journal.load("r")).approvals:
            await asyncio.sleep(0.01)
    assert outside.log == []
    (call,) = (await journal.load("r")).approvals

    await (control.approve if approves else control.deny)("r", call, by="a person")
    await driving

    assert outside.log == (["begin wire money", "end wire money"] if approves else [])
    assert await status(journal) is Status.COMPLETED


async def test_cancelling_leaves_no_approval_hanging(journal: Journal, outside: Outside, control: Control) -> None:
    async def script(executor: Stage) -> None:
        await executor.call("wire money", approval="block")

    await new_run(journal)
    driving = await drive(journal, Playing(outside, script))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (await journal.load("r")).approvals:
            await asyncio.sleep(0.01)

    await control.cancel("r", by="a person")
    await driving

    state = await journal.load("r")
    assert (state.status, state.approvals) == (Status.CANCELLED, {})


async def test_a_verb_on_a_run_that_nobody_drives_is_settled_by_control(journal: Journal, control: Control) -> None:
    """P6: stop works with no driver at all."""
    await new_run(journal)

    receipt = await control.cancel("r", by="a person")

    assert isinstance(receipt, Receipt)
    assert receipt.status is Status.CANCELLED
    with pytest.raises(Refused) as refused:
        await control.pause("r", by="a person")
    assert refused.value.code == "finished"


async def test_the_same_request_id_gets_the_same_receipt(journal: Journal, control: Control) -> None:
    await new_run(journal)

    first = await control.cancel("r", by="a person", request_id="click-1")
    second = await control.cancel("r", by="a person", request_id="click-1")

    assert first == second
    settled = [r for r in await journal.read("r") if isinstance(r.event, VerbSettled)]
    assert len(settled) == 1


async def test_a_paused_run_is_let_go_after_a_while_and_played_again_at_resume(
    journal: Journal, outside: Outside, control: Control
) -> None:
    """D29"""

    async def script(executor: Stage) -> str:
        await executor.call("fetch", let=let)
        return str(await executor.call("score"))

    let = asyncio.Event()
    await new_run(journal)
    program = Playing(outside, script)
    driving = await drive(journal, program, evict_seconds=0.1)
    await until(lambda: "begin fetch" in outside.log)
    await pause_and_let(journal, control, let)

    await asyncio.wait_for(driving, PATIENCE_SECONDS)
    await control.resume("r", by="a person", wait=0.1)
    await (await drive(journal, program, by="second"))

    assert outside.log == ["begin fetch", "end fetch", "begin score", "end score"]


async def test_completion_against_cancel_has_one_winner_and_both_learn_which(
    journal: Journal, outside: Outside, control: Control
) -> None:
    """D7, P4: however the race ends, the status, the receipt and the refusal agree."""
    winners = set()
    for number in range(60):
        run = await new_run(journal, f"race-{number}")

        async def script(executor: Stage, number: int = number) -> None:
            await executor.call(f"last-{number}", seconds=0.0005 * (number % 7))

        driving = await drive(journal, Playing(outside, script), run)
        await until(lambda number=number: f"begin last-{number}" in outside.log)  # type: ignore[misc]
        try:
            receipt = await control.cancel(run, by="a person")
        except Refused as refused:
            told = refused.status
        else:
            assert isinstance(receipt, Receipt)
            told = receipt.status
        await driving
        final = (await journal.load(run)).status
        assert told is final
        winners.add(final)
        events = [r.event for r in await journal.read(run) if isinstance(r.event, RunFinished)]
        assert len(events) == 1
    assert winners <= {Status.COMPLETED, Status.CANCELLED}


async def test_time_is_the_same_when_a_program_is_played_again(journal: Journal, outside: Outside) -> None:
    seen: list[Any] = []
    began = time.time()

    async def script(executor: Stage) -> None:
        await executor.call("fetch")
        seen.append((executor.driver.now(), executor.driver.uuid()))
        await executor.call("score", seconds=600 if len(seen) == 1 else 0, idempotent=True)

    first = await at_work(journal, Playing(outside, script), "begin score")
    await crash(first)
    await (await drive(journal, Playing(outside, script), by="second"))

    assert seen[0] == seen[1]
    assert began <= seen[0][0] <= time.time()


async def test_instructions_that_no_call_has_carried_yet_go_together_and_in_order(
    journal: Journal, outside: Outside, control: Control
) -> None:
    """Pauses came in between, before anybody drove the run; a replay is told the same."""
    carried: list[str | None] = []

    async def script(stage: Stage) -> str | None:
        def perform(permit: Permit) -> Execution:
            carried.append(permit.instruction)
            return Scripted(answer, outside, "think")

        async def answer() -> str:
            return "fine"

        result = await stage.driver.call(
            CallRequest(kind=CallKind.MODEL, name="think", perform=perform, place="turn:1", carries=True)
        )
        await stage.call("score", seconds=0.0 if len(carried) == 2 else 600)
        return result.instruction

    await new_run(journal)
    await control.pause("r", by="ann")
    await control.resume("r", by="ann", instruction="only Q3", wait=0)
    await control.pause("r", by="ann")
    await control.resume("r", by="ann", instruction="in German", wait=0)
    first = await drive(journal, Playing(outside, script))
    await until(lambda: "begin score" in outside.log)
    delivered = [r.event for r in await journal.read("r") if isinstance(r.event, InstructionDelivered)]
    await crash(first)
    carried.append("played again")
    second = await drive(journal, Playing(outside, script), by="second")
    async with asyncio.timeout(PATIENCE_SECONDS):
        while "c2" not in (await journal.load("r")).doubts:
            await asyncio.sleep(0.005)
        await control.resolve("r", "c2", Answer.HAPPENED, by="ann")
        await second

    assert carried == ["only Q3\n\nin German", "played again"]
    assert len(delivered) == 2
    finished = (await journal.read("r"))[-1].event
    assert isinstance(finished, RunFinished)
    assert bytes(finished.result or b"") == b'"only Q3\\n\\nin German"'


async def test_a_redirect_after_an_approval_that_was_given_while_paused_leaves_the_run_whole(
    journal: Journal, outside: Outside, control: Control
) -> None:
    """The person has changed their mind: the call is interrupted, and nobody is asked again under the same name,
    also when another call gets its permit at the same moment."""
    is_paused = asyncio.Event()

    async def pay(stage: Stage) -> str:
        try:
            return str(await stage.call("pay", approval="block"))
        except Interrupted:
            return "interrupted"

    async def fetch(stage: Stage) -> str:
        await is_paused.wait()
        return str(await stage.call("fetch"))

    async def script(stage: Stage) -> list[str]:
        return list(await asyncio.gather(pay(stage), fetch(stage), think(stage)))

    async def think(stage: Stage) -> str:
        await is_paused.wait()
        return str(await stage.call("think", kind=CallKind.MODEL))

    await new_run(journal)
    driving = await drive(journal, Playing(outside, script))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (await journal.load("r")).approvals:
            await asyncio.sleep(0.005)
        await control.pause("r", by="ann")
        await control.approve("r", "c1", by="ann")
        is_paused.set()
        await until(lambda: DRIVERS[driving].state.approvals["c1"].decision is not None)
        await asyncio.sleep(0.05)
        await control.redirect("r", instruction="pay nobody", by="ann")
        await driving

    finished = (await journal.read("r"))[-1].event
    assert isinstance(finished, RunFinished)
    assert (finished.status, finished.error) == (Status.COMPLETED, None)
    assert bytes(finished.result or b"") == b'["interrupted","fetch done","think done"]'
    assert "begin pay" not in outside.log
