"""Approvals that block: a call waits for a person's consent, which holds for that call and its exact arguments."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from checkrein import Agent, Run, Runtime
from checkrein.control.control import Control
from checkrein.control.viewer import look
from checkrein.core.enums import CallKind, Decision, Status
from checkrein.core.events import ApprovalDecided, ApprovalRequested, CallStarted
from checkrein.errors import Refused
from checkrein.journal import open_journal
from checkrein.models import ToolResult
from checkrein.processes.identity import this_process
from tests.support.abort_tools import pay, work
from tests.support.patience import PATIENCE_SECONDS
from tests.support.runs import agent, asked, calls, events, model, outcomes, program, result, settled, until_state
from tests.support.witness import Witness

pytestmark = pytest.mark.anyio


def payer(witness: Witness, amount: int = 100) -> Agent:
    return agent([calls(("pay", {"log": witness.log, "amount": amount})), "Done."], [pay])


async def is_paid_after_the_resume(run: Run, call: str, witness: Witness) -> None:
    await run.approve(call, by="ann")
    await asyncio.sleep(0.3)
    assert witness.words() == []
    await run.resume()
    assert await result(run) == "Done."


async def left_asking(store: str, witness: Witness) -> tuple[Run, str]:
    """A run, and its call that waits for an approval, of a runtime that has ended since."""
    async with Runtime(store) as first:
        run = await first.start(payer(witness), "Pay.")
        return run, await asked(run)


async def looks(runtime: Runtime, run: Run, call: str) -> str:
    view = await look(runtime.journal, run.id, at=time.time())
    return next(one.now for one in view.calls if one.id == call)


def told(churn: Agent) -> ToolResult:
    return next(m for m in model(churn).asked[-1].messages if isinstance(m, ToolResult))


async def test_a_call_that_needs_consent_waits_and_says_for_what(runtime: Runtime, witness: Witness) -> None:
    """D34: an irreversible tool asks by default, and shows what it would do."""
    run = await runtime.start(payer(witness), "Pay.")

    call = await asked(run)

    state = await run.state()
    assert [(waiting.kind, waiting.what, waiting.call) for waiting in state.waiting()] == [
        ("approval", "approve pay", call)
    ]
    (request,) = await events(runtime, run, ApprovalRequested)
    assert b'"amount":100' in bytes(request.arguments or b"")
    assert [event.kind for event in await events(runtime, run, CallStarted)] == [CallKind.MODEL], "no permit yet"
    await asyncio.sleep(0.2)
    assert witness.words() == []
    await run.cancel()


async def test_an_approved_call_is_made_once(runtime: Runtime, witness: Witness) -> None:
    """D34: and an approval is consumed by it."""
    churn = agent([calls(("pay", {"log": witness.log})), calls(("pay", {"log": witness.log})), "Done."], [pay])
    run = await runtime.start(churn, "Pay.")
    first = await asked(run)

    await run.approve(first, by="ann", note="as agreed")
    await witness.saw("paid 100")
    second = (await until_state(run, lambda state: state.approvals and first not in state.approvals)).approvals
    with pytest.raises(Refused) as again:
        await run.approve(first, by="ann")

    assert again.value.code == "not_waiting"
    assert list(second) != [first], "the same arguments, but another call"
    assert witness.words() == ["paid 100"]
    await run.approve(next(iter(second)), by="ann")
    assert await result(run) == "Done."
    assert witness.words() == ["paid 100", "paid 100"]


async def test_a_denied_call_is_not_made_and_the_model_is_told_why(runtime: Runtime, witness: Witness) -> None:
    """D34"""
    churn = payer(witness)
    run = await runtime.start(churn, "Pay.")

    await run.deny(await asked(run), by="ann", note="over budget")

    assert await result(run) == "Done."
    assert told(churn).is_error
    assert "over budget" in told(churn).content
    assert witness.words() == []
    assert (await run.state()).usage.tool_calls == 0


async def test_two_people_decide_and_the_first_one_counts(runtime: Runtime, witness: Witness) -> None:
    """D7"""
    run = await runtime.start(payer(witness), "Pay.")
    call = await asked(run)

    outcome = await asyncio.gather(run.approve(call, by="ann"), run.deny(call, by="bob"), return_exceptions=True)

    refused = [error for error in outcome if isinstance(error, Refused)]
    assert len(refused) == 1
    assert await result(run) == "Done."
    (decided,) = await events(runtime, run, ApprovalDecided)
    assert witness.words() == (["paid 100"] if decided.decision is Decision.APPROVED else [])


async def test_an_approval_survives_a_restart(store: str, witness: Witness) -> None:
    """D29: asked for before it, given after it."""
    run, call = await left_asking(store, witness)

    churn = payer(witness)
    async with Runtime(store, agents=[churn]) as second:
        again = await second.get(run.id)
        assert await asked(again) == call
        await asyncio.sleep(0.2)
        assert witness.words() == []

        await again.approve(call, by="ann")

        assert await result(again) == "Done."
        assert len(await events(second, again, ApprovalRequested)) == 1
        assert model(churn).requests == 1, "only what came after it was asked"
    assert witness.words() == ["paid 100"]


async def test_an_approval_given_while_nothing_runs_counts(store: str, witness: Witness) -> None:
    """D27 D29"""
    run, call = await left_asking(store, witness)

    async with await open_journal(store) as journal:
        await Control(journal, this_process()).approve(run.id, call, by="ann")

    async with Runtime(store, agents=[payer(witness)]) as second:
        assert await result(await second.get(run.id)) == "Done."
    assert witness.words() == ["paid 100"]


async def test_a_denial_given_while_nothing_runs_counts(store: str, witness: Witness) -> None:
    """D27 D29"""
    run, call = await left_asking(store, witness)

    async with await open_journal(store) as journal:
        await Control(journal, this_process()).deny(run.id, call, by="ann", note="over budget")

    churn = payer(witness)
    async with Runtime(store, agents=[churn]) as second:
        assert await result(await second.get(run.id)) == "Done."
    assert "over budget" in told(churn).content
    assert witness.words() == []


KILLED = """
import asyncio, sys
from checkrein import Runtime
from tests.support import runs
from tests.support.abort_tools import pay

async def main(log, store):
    churn = runs.agent([runs.calls(("pay", {"log": log, "amount": 100})), "Done."], [pay])
    async with Runtime(store, agents=[churn]) as runtime:
        run = await runtime.start(churn, "Pay.")
        while not (await run.state()).approvals:
            await asyncio.sleep(0.01)
        print("waiting", flush=True)
        await run.result()

if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
"""


async def test_an_approval_survives_a_kill_9(
    store: str, witness: Witness, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """D29: nothing was begun, so nothing is in doubt."""
    said = ""
    async with program(tmp_path, KILLED, witness.log, store):
        async with asyncio.timeout(PATIENCE_SECONDS):
            while "waiting" not in said:
                await asyncio.sleep(0.02)
                said += capfd.readouterr().out

    async with Runtime(store, agents=[payer(witness)]) as second:
        (row,) = await second.runs()
        run = await second.get(row.id)
        call = await asked(run)
        assert (await run.state()).doubts == {}
        await run.approve(call, by="ann")
        assert await result(run) == "Done."
    assert witness.words() == ["paid 100"]


async def test_what_is_approved_while_paused_is_done_after_the_resume(runtime: Runtime, witness: Witness) -> None:
    """D20: a pause holds, whatever else is decided meanwhile."""
    run = await runtime.start(payer(witness), "Pay.")
    call = await asked(run)
    await run.pause()

    await is_paid_after_the_resume(run, call, witness)
    assert witness.words() == ["paid 100"]


async def test_a_cancel_withdraws_what_is_pending(runtime: Runtime, witness: Witness) -> None:
    """D3 D26: nothing is left hanging, and a late consent changes nothing."""
    run = await runtime.start(payer(witness), "Pay.")
    call = await asked(run)

    receipt = settled(await run.cancel())

    assert receipt.status is Status.CANCELLED
    assert receipt.calls == ()
    assert await looks(runtime, run, call) == "withdrawn"
    with pytest.raises(Refused) as refused:
        await run.approve(call)
    assert refused.value.code == "finished"
    await asyncio.sleep(0.2)
    assert witness.words() == []


async def test_a_redirect_withdraws_what_is_pending_and_the_agent_goes_on(runtime: Runtime, witness: Witness) -> None:
    """D21 D38"""
    churn = payer(witness)
    run = await runtime.start(churn, "Pay.")
    call = await asked(run)

    receipt = settled(await run.redirect("do not pay"))

    assert receipt.delivered is True
    assert await result(run) == "Done."
    assert "Interrupted" in told(churn).content
    assert witness.words() == []
    assert await looks(runtime, run, call) == "withdrawn"
    with pytest.raises(Refused):
        await run.approve(call)


async def test_other_calls_go_on_while_one_waits(runtime: Runtime, witness: Witness) -> None:
    """D37: and a cancel stops both."""
    churn = agent([calls(("pay", {"log": witness.log}), ("work", {"log": witness.log})), "never"], [pay, work])
    run = await runtime.start(churn, "Go.")
    await asked(run)
    await witness.saw("work")

    receipt = settled(await run.cancel())

    assert list(outcomes(receipt)) == ["work"]
    assert witness.words() == ["work"]


async def test_an_approval_that_left_memory_with_its_run_still_counts(store: str, witness: Witness) -> None:
    """D20 D29: paused, evicted, approved, resumed."""
    async with Runtime(store, evict_seconds=0.1) as runtime:
        run = await runtime.start(payer(witness), "Pay.")
        call = await asked(run)
        await run.pause()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while runtime._engine.driver(run.id) is not None:
                await asyncio.sleep(0.01)

        await is_paid_after_the_resume(run, call, witness)
    assert witness.words() == ["paid 100"]


async def test_time_spent_waiting_for_a_person_does_not_count_as_work(runtime: Runtime, witness: Witness) -> None:
    """D25: no cap on time is used up by whoever takes long to decide."""
    began = time.monotonic()
    run = await runtime.start(payer(witness), "Pay.")
    call = await asked(run)
    await asyncio.sleep(1.0)

    await run.approve(call)
    await result(run)

    assert (await run.state()).elapsed_seconds <= time.monotonic() - began - 1.0
