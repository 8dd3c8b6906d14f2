"""Stops hold against a tool that speaks in the name of its worker; the tool's own log is the witness."""

from __future__ import annotations

import asyncio

import pytest

from checkrein import Agent, Run, Runtime, tool
from checkrein.control.halt import Halting
from checkrein.core.enums import Outcome, Status, Verb
from checkrein.models import ScriptedModel, Turn
from checkrein.processes.identity import this_process
from tests.support import tools
from tests.support.patience import PATIENCE_SECONDS
from tests.support.witness import Witness, until

pytestmark = [pytest.mark.anyio, pytest.mark.skipif("sys.platform != 'linux'", reason="finds the line in /proc")]


@tool(effect="none")
def shielded_for_ever(log: str) -> None:
    """Claim a shield that never ends."""
    tools.claim_and_tick(log, {"shield": 1e9})


@tool(effect="none")
def over_and_at_work(log: str) -> None:
    """Say that it is over, and work on."""
    tools.forge_everything_and_tick(log)


@tool(effect="none")
def over_with(log: str, result: str) -> None:
    """Say that it is over, with a result of these bytes, and work on."""
    tools.forge_everything_and_tick(log, bytes.fromhex(result))


async def shielded(runtime: Runtime, witness: Witness) -> Run:
    """A run whose tool claims a shield, once its driver has heard that."""
    turns = [Turn("Now.", calls=[("shielded_for_ever", {"log": witness.log})]), Turn("Done.")]
    run = await runtime.start(Agent("a", model=ScriptedModel(turns), tools=[shielded_for_ever]), "work")
    await witness.saw("tick")
    await until(lambda: any(getattr(one, "_shields", ()) for one in runtime._executor._executions))
    return run


async def test_a_cancel_settles_in_its_time_and_ends_a_tool_that_claims_a_shield(store: str, witness: Witness):
    async with Runtime(store, settle_seconds=0.5) as runtime:
        run = await shielded(runtime, witness)

        receipt = await run.cancel(wait=PATIENCE_SECONDS)

        assert receipt.status is Status.CANCELLED
        assert [call.now for call in receipt.calls] == [Outcome.DETACHED], (
            "it had not stopped by then, and that is said"
        )
        await until(lambda: not runtime._executor._workers._workers or not [*_busy(runtime)])
        assert await witness.is_quiet()


def _busy(runtime: Runtime) -> list[object]:
    workers = runtime._executor._workers
    return [worker for worker in workers._workers if worker not in workers._idle]


async def test_a_second_cancel_waits_for_no_shield(runtime: Runtime, witness: Witness):
    run = await shielded(runtime, witness)
    first = asyncio.create_task(run.cancel(wait=PATIENCE_SECONDS))

    async def waits() -> bool:
        return any(live.waits_for for live in (await run.state()).live.values())

    while not await waits():
        await asyncio.sleep(0.02)
    assert not await witness.is_quiet(), "the first one waits"
    second = await run.cancel(wait=PATIENCE_SECONDS)

    assert second == await first
    assert [call.now for call in second.calls] == [Outcome.KILLED]
    assert await witness.is_quiet()


async def test_a_halt_waits_for_no_shield(runtime: Runtime, witness: Witness):
    run = await shielded(runtime, witness)

    halted = await Halting(runtime.journal, this_process()).halt("run", run.id, by="operator", wait=PATIENCE_SECONDS)

    assert halted.unconfirmed == ()
    assert halted.receipts[0].verb is Verb.HALT
    assert await witness.is_quiet()


@pytest.mark.parametrize("stop", ["cancel", "halt"])
async def test_a_tool_that_works_on_after_its_end_is_ended_with_its_run(runtime: Runtime, witness: Witness, stop: str):
    turns = [Turn("Now.", calls=[("over_and_at_work", {"log": witness.log})]), Turn("It goes on and on. " * 200)]
    model = ScriptedModel(turns, tokens_per_second=5)
    run = await runtime.start(Agent("a", model=model, tools=[over_and_at_work], loops=False), "work")
    await witness.saw("tick", times=5)

    if stop == "cancel":
        receipt = await run.cancel(wait=PATIENCE_SECONDS)
        assert receipt.status is Status.CANCELLED
    else:
        halting = Halting(runtime.journal, this_process())
        halted = await halting.halt("run", run.id, by="operator", wait=PATIENCE_SECONDS)
        assert halted.unconfirmed == ()
        await until(lambda: run.id not in runtime._engine.runs)

    assert await witness.is_quiet()


@pytest.mark.parametrize("result", [b"{not json", b"9" * 5000], ids=["junk", "endless number"])
async def test_a_result_that_no_journal_can_hold_ends_the_worker_and_nothing_else(
    runtime: Runtime, witness: Witness, result: bytes
):
    turns = [Turn("Now.", calls=[("over_with", {"log": witness.log, "result": result.hex()})]), Turn("Done.")]
    run = await runtime.start(Agent("a", model=ScriptedModel(turns), tools=[over_with]), "work")

    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await run.result() == "Done."

    assert await witness.is_quiet()
    [called] = [call for call in (await run.view()).calls if call.name == "over_with"]
    assert "no JSON that can be read" in (called.error or "")


async def test_a_driver_that_cannot_record_its_end_leaves_no_worker(
    runtime: Runtime, witness: Witness, monkeypatch: pytest.MonkeyPatch
):
    turns = [Turn("Now.", calls=[("over_and_at_work", {"log": witness.log})]), Turn("It goes on and on. " * 200)]
    model = ScriptedModel(turns, tokens_per_second=5)
    run = await runtime.start(Agent("a", model=model, tools=[over_and_at_work], loops=False), "work")
    await witness.saw("tick", times=5)
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # it is told of the failure that is made here

    async def fails() -> None:
        raise RuntimeError("cannot be recorded")

    driver = runtime._engine.driver(run.id)
    assert driver is not None
    monkeypatch.setattr(driver._session.writer, "flush", fails)
    await run.cancel(wait=PATIENCE_SECONDS)
    await until(lambda: run.id not in runtime._engine.runs)

    assert await witness.is_quiet()
