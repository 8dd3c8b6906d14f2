"""Stopping a call of a server's tool: the server is told at once, the session lives on, and nobody claims to know more.

The witness is the log that the server's tools write.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from checkrein import MCP, Receipt, Runtime
from checkrein.calls.base import Permit
from checkrein.calls.mcp import TOLD, MCPExecution
from checkrein.core.enums import EffectState, Outcome, Status
from checkrein.core.events import CallAnswered, CallFinished
from checkrein.secrets import OFF
from tests.mcp.conftest import Make
from tests.mcp.scene import agent, ask, bare, command, started, told
from tests.support.patience import PATIENCE_SECONDS, within
from tests.support.runs import effects, events, in_flight, ledger, outcomes, settled, until_status
from tests.support.witness import Witness, until

pytestmark = pytest.mark.anyio

LONG = {"steps": 2000, "seconds": 0.02}


async def undo_note(call: Any) -> None:
    """Takes a note back, with another tool of the same server."""
    await SHELF.call("delete_note", number=call.result or 99)


SHELF: MCP


async def test_a_cancel_reaches_the_server_at_once(
    runtime: Runtime, notes_of_every_kind: Make, witness: Witness
) -> None:
    """D1 D5: the server's tool hears of it, and does nothing more."""
    run = await started(runtime, agent([ask("work", **LONG), "never said"], notes_of_every_kind()))
    await witness.saw("work step", times=3)

    asked_at = time.time()
    receipt = settled(await run.cancel(reason="wrong path"))

    await witness.saw("work cancelled")
    assert witness.lines("work cancelled")[0].at - asked_at < within(5)
    assert await witness.is_quiet()
    assert receipt.status is Status.CANCELLED
    assert outcomes(receipt) == {"work": Outcome.DETACHED}
    assert effects(receipt) == {"work": EffectState.IN_DOUBT}
    assert receipt.timing_ms.calls_stopped is None, "nobody knows when it had stopped"
    assert receipt.partial.chars == 0, "progress is no partial answer"


async def test_the_session_is_used_on_after_a_call_was_stopped(
    runtime: Runtime, notes_of_every_kind: Make, witness: Witness
) -> None:
    """D21: a redirect stops the call; the next one goes to the same server over the same session."""
    churn = agent([ask("whoami"), ask("work", **LONG), ask("whoami"), "Done."], notes_of_every_kind())
    run = await started(runtime, churn)
    await witness.saw("work step")

    receipt = await run.redirect("only ask who it is")

    assert isinstance(receipt, Receipt)
    assert await run.result() == "Done."
    await witness.saw("work cancelled")
    first, stopped, second = told(churn)
    assert first == second
    assert stopped == TOLD
    assert len(witness.lines("started")) == 1


async def test_nothing_is_shown_of_a_call_that_was_stopped(runtime: Runtime, witness: Witness) -> None:
    run = await started(runtime, agent([ask("work", **LONG), "never said"], command(witness)))
    heard: list[str] = []
    runtime.listen(run.id, lambda chunk: heard.append(chunk.text))
    await until(lambda: any("reading" in text for text in heard))

    await run.cancel()
    by_then = len(heard)
    await asyncio.sleep(0.3)

    assert len(heard) == by_then


async def test_a_tool_that_changes_nothing_is_simply_aborted(runtime: Runtime, witness: Witness) -> None:
    source = command(witness, tools={"work": {"effect": "none"}})
    run = await started(runtime, agent([ask("work", **LONG), "never said"], source))
    await witness.saw("work step")

    receipt = settled(await run.cancel())

    await witness.saw("work cancelled")
    assert outcomes(receipt) == {"work": Outcome.ABORTED}
    assert effects(receipt) == {}
    assert receipt.timing_ms.calls_stopped is not None


async def test_a_single_call_can_be_aborted_and_the_agent_is_told_what_is_known(
    runtime: Runtime, witness: Witness
) -> None:
    churn = agent([ask("work", **LONG), "I see."], command(witness))
    run = await started(runtime, churn)
    await witness.saw("work step")

    await run.abort(await in_flight(run, "work"))

    assert await run.result() == "I see."
    assert told(churn) == [TOLD]
    assert await ledger(runtime, run) == {"work": EffectState.IN_DOUBT}


async def test_a_pause_may_abort_a_tool_that_changes_nothing_and_it_is_asked_again(
    runtime: Runtime, witness: Witness
) -> None:
    says = {"effect": "none", "idempotent": True, "on_pause": "abort"}
    go = Path(f"{witness.log}.go")
    churn = agent([ask("work", steps=1, until=str(go)), "Done."], command(witness, tools={"work": says}))
    run = await started(runtime, churn)
    await witness.saw("work step")

    paused = settled(await run.pause())
    await witness.saw("work cancelled")
    assert outcomes(paused) == {"work": Outcome.ABORTED}
    go.touch()
    await run.resume()

    assert await run.result() == "Done."
    assert told(churn) == ["work done"]
    assert len(witness.lines("work begins")) == 2


async def test_a_call_that_takes_too_long_is_told_to_stop(runtime: Runtime, witness: Witness) -> None:
    churn = agent([ask("work", **LONG), "Too slow."], command(witness, tools={"work": {"timeout": 2.0}}))
    run = await started(runtime, churn)

    assert await run.result() == "Too slow."
    await witness.saw("work cancelled")
    assert "did not end within 2 s" in told(churn)[0]


async def test_an_answer_that_comes_after_the_stop_is_dropped_but_ends_the_doubt_whether_it_is_still_at_it(
    runtime: Runtime, witness: Witness
) -> None:
    """D33: a server that does not listen goes on; its undo waits until it is known to be over."""
    churn = agent([ask("post"), "I see."], bare(witness))
    run = await started(runtime, churn)
    await witness.saw("post")
    call = await in_flight(run, "post")

    await run.abort(call)
    await run.result()
    assert not witness.lines("posted")
    assert (await run.state()).is_blocked(call)
    Path(f"{witness.log}.go").touch()
    await witness.saw("posted", "told")

    await until_answered(runtime, run)
    assert not (await run.state()).is_blocked(call)
    assert told(churn) == [TOLD]
    [finished] = [end for end in await events(runtime, run, CallFinished) if end.call == call]
    assert finished.result is None


async def until_answered(runtime: Runtime, run: Any) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await events(runtime, run, CallAnswered):
            await asyncio.sleep(0.01)


async def test_a_call_that_was_answered_first_counts_as_done(runtime: Runtime, witness: Witness) -> None:
    """D6: its answer is on the wire when the stop comes; it is not thrown away."""
    source = command(witness)
    connection = source.connection(runtime._executor)
    session = await connection.session()
    heard, aborting = session._tracker.heard, set[asyncio.Task[None]]()
    permit = Permit(run="r", call="c1", key="r/c1", attempt=1, arguments=b'{"text":"quick"}')

    def stop_then(item: Any) -> None:
        heard(item)
        if "quick" in str(item):
            aborting.add(asyncio.create_task(execution.abort()))

    session._tracker.heard = stop_then  # type: ignore[method-assign]
    execution = MCPExecution(
        connection, source.tool("echo"), permit, lambda *_: None, secrets=OFF, on_late_end=lambda: None
    )

    ended = await execution.ended()

    assert aborting
    assert (ended.outcome, ended.result) == (Outcome.COMPLETED, b'"quick"')


async def test_a_cancel_takes_back_what_was_finished_with_another_tool_of_the_server(
    runtime: Runtime, witness: Witness
) -> None:
    """D26: an undo may use the server too."""
    global SHELF
    SHELF = command(witness, tools={"add_note": {"undo": undo_note, "effect": "reversible"}})
    run = await started(runtime, agent([ask("add_note", text="milk"), ask("work", **LONG), "never"], SHELF))
    await witness.saw("work step")

    receipt = settled(await run.cancel())

    assert effects(receipt)["add_note"] is EffectState.UNDONE
    assert witness.lines("delete 1")
    assert len(witness.lines("started")) == 1


async def test_an_undo_is_not_begun_while_the_call_may_still_be_at_work(store: str, witness: Witness) -> None:
    """D33: the cancel waits for word, not for ever, and then says that it does not know."""
    global SHELF
    SHELF = command(witness, tools={"work": {"undo": undo_note}})
    async with Runtime(store, settle_seconds=1.0) as runtime:
        run = await started(runtime, agent([ask("work", **LONG), "never said"], SHELF))
        await witness.saw("work step")

        receipt = settled(await run.cancel())

        assert (receipt.timing_ms.settled or 0) >= 1000
        assert effects(receipt) == {"work": EffectState.IN_DOUBT}
        assert "may still be at it" in receipt.effects[0].why
        assert not witness.lines("delete 99")
        await run.resolve(receipt.calls[-1].id, "undo")
        await witness.saw("delete 99")


async def test_a_person_may_say_what_became_of_a_call_that_was_let_go(runtime: Runtime, witness: Witness) -> None:
    run = await started(runtime, agent([ask("work", **LONG), "never said"], command(witness)))
    await witness.saw("work step")
    receipt = settled(await run.cancel())

    await run.resolve(receipt.calls[-1].id, "did_not_happen")

    assert await ledger(runtime, run) == {"work": EffectState.SETTLED}


async def test_a_run_that_is_cancelled_before_its_server_answers_never_calls_it(
    runtime: Runtime, witness: Witness
) -> None:
    run = await started(runtime, agent([ask("add_note", text="milk"), "never said"], command(witness)))

    await run.cancel()
    await until_status(run, Status.CANCELLED)
    await asyncio.sleep(0.5)

    assert not witness.lines("add milk")
