"""Consent with other arguments, for the rest of a run, and to exactly what was shown. The witness is the tools' log."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

import pytest

from checkrein import Agent, Run, Runtime, tool
from checkrein.control.view import CallView
from checkrein.control.viewer import look
from checkrein.core.decide.calls import MOST_APPROVALS
from checkrein.core.events import ApprovalDecided, ApprovalRequested, CallStarted
from checkrein.errors import Refused
from checkrein.models import Message, Note, ScriptedModel, ToolResult, Turn
from tests.support.abort_tools import pay
from tests.support.runs import agent, asked, calls, events, let_go, model, result, settled, until_let, until_state
from tests.support.witness import Witness, note

pytestmark = pytest.mark.anyio


@tool(effect="irreversible", changes="{amount} to {to}")
async def transfer(log: str, to: str, amount: int, note_for: str = "") -> str:
    """Send money to somebody."""
    note(log, f"{amount} to {to}")
    return f"sent {amount}"


@tool(approval="queue")
async def post(log: str, n: int) -> str:
    """Post something, once somebody has agreed."""
    note(log, f"posted {n}")
    return f"posted {n}"


def sender(witness: Witness, *more: object, amount: int = 100) -> Agent:
    given = {"log": witness.log, "to": "ann", "amount": amount}
    return agent([calls(("transfer", given)), *more, "Done."], [transfer, pay], loops=False)


def told(churn: Agent) -> list[str]:
    return [one.content for one in model(churn).asked[-1].messages if isinstance(one, ToolResult)]


async def seen(runtime: Runtime, run: Run, call: str) -> CallView:
    view = await look(runtime.journal, run.id, at=time.time())
    return next(one for one in view.calls if one.id == call)


async def test_a_call_is_made_exactly_with_the_arguments_that_a_person_gave_instead(
    runtime: Runtime, witness: Witness
) -> None:
    churn = sender(witness)
    run = await runtime.start(churn, "Pay.")
    call = await asked(run)

    await run.approve(call, by="bob", arguments={"amount": 40817810099910004312})

    assert await result(run) == "Done."
    assert witness.words() == ["40817810099910004312 to ann"]
    shown = await seen(runtime, run, call)
    assert (shown.edited_by, shown.approved_by) == ("bob", "bob")
    assert {one.name: one.text for one in shown.given}["amount"] == "40817810099910004312"
    assert {one.name: one.text for one in shown.asked_for}["amount"] == "100"
    (started,) = [one for one in await events(runtime, run, CallStarted) if one.call == call]
    assert b'"amount":40817810099910004312' in bytes(started.arguments or b"")


async def test_the_model_is_told_what_was_executed(runtime: Runtime, witness: Witness) -> None:
    churn = sender(witness)
    run = await runtime.start(churn, "Pay.")

    await run.approve(await asked(run), arguments={"to": "eve"})
    await result(run)

    (said,) = told(churn)
    assert "A person changed the arguments" in said
    assert '"to":"eve"' in said
    assert said.endswith("sent 100")


async def test_the_next_run_of_the_thread_is_told_so_too(runtime: Runtime, witness: Witness) -> None:
    run = await runtime.start(sender(witness), "Pay.")
    await run.approve(await asked(run), arguments={"to": "eve"})
    await result(run)

    listener = Agent("listener", model=ScriptedModel(lambda _: Turn("Fine.")))
    await result(await runtime.start(listener, "And?", continues=run.id))

    (said,) = told(listener)
    assert '"to":"eve"' in said


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"amount": "much"}, "amount is string, not integer"),
        ({"amuont": 5}, "there is no amuont"),
        ({"amount": float("inf")}, "JSON cannot hold"),
        (["amount", 5], "by name"),
    ],
)
async def test_arguments_that_the_tool_does_not_take_are_refused_and_it_still_waits(
    runtime: Runtime, witness: Witness, arguments: Any, why: str
) -> None:
    run = await runtime.start(sender(witness), "Pay.")
    call = await asked(run)

    with pytest.raises(Refused) as refused:
        await run.approve(call, arguments=arguments)

    assert refused.value.code == "arguments_do_not_fit"
    assert why in refused.value.message
    assert await asked(run) == call
    await run.cancel()
    assert witness.words() == []


async def test_the_same_arguments_are_not_others(runtime: Runtime, witness: Witness) -> None:
    churn = sender(witness)
    run = await runtime.start(churn, "Pay.")
    call = await asked(run)

    await run.approve(call, arguments={"amount": 100, "to": "ann"})
    await result(run)

    assert (await seen(runtime, run, call)).edited_by == ""
    assert told(churn) == ["sent 100"]


async def test_a_secret_among_the_arguments_that_a_person_gives_is_in_no_record(store: str, witness: Witness) -> None:
    secret = "hunter2-hunter2-hunter2"
    async with Runtime(store, secrets={"PASSWORD": secret}) as runtime:
        run = await runtime.start(sender(witness), "Pay.")
        await run.approve(await asked(run), arguments={"note_for": f"it is {secret}"})
        await result(run)

        (decided,) = await events(runtime, run, ApprovalDecided)
        assert b"it is" in bytes(decided.arguments or b"")
        assert not any(secret.encode() in record.body for record in await runtime.journal.read(run.id))


async def test_arguments_that_were_given_instead_survive_a_restart_and_another_attempt(
    store: str, witness: Witness
) -> None:
    """The program asks for what it asked for before; what is made is what the person wanted."""
    async with Runtime(store) as first:
        run = await first.start(sender(witness), "Pay.")
        call = await asked(run)
        await run.pause()
        await run.approve(call, arguments={"to": "eve"})

    churn = sender(witness)
    async with Runtime(store, agents=[churn]) as second:
        again = await second.get(run.id)
        await again.resume()
        assert await result(again) == "Done."
        assert '"to":"eve"' in told(churn)[0]
    assert witness.words() == ["100 to eve"]


@tool(idempotent=True, on_pause="abort", approval="block")
async def fetch(log: str, to: str, file: str) -> str:
    """Takes until somebody lets it end, and may be tried again."""
    note(log, f"fetch {to}")
    while not os.path.exists(file):
        await asyncio.sleep(0.01)
    return "fetched"


async def test_another_attempt_in_another_process_is_made_with_what_the_person_gave(
    store: str, witness: Witness
) -> None:
    """The program asks for what it asked for before, and the consent to it is used up."""

    def churn() -> Agent:
        return agent([calls(("fetch", {**until_let(witness), "to": "ann"})), "Done."], [fetch])

    async with Runtime(store) as first:
        run = await first.start(churn(), "Go.")
        await run.approve(await asked(run), arguments={"to": "eve"})
        await witness.saw("fetch eve")
    let_go(witness)

    async with Runtime(store, agents=[churn()]) as second:
        assert await result(await second.get(run.id)) == "Done."
    assert witness.words() == ["fetch eve", "fetch eve"]


async def test_a_click_on_something_else_than_was_shown_is_refused(runtime: Runtime, witness: Witness) -> None:
    """A second payment stands where the first one was: consent to the first is none to it."""
    churn = sender(witness, calls(("transfer", {"log": witness.log, "to": "eve", "amount": 5})))
    run = await runtime.start(churn, "Pay.")
    call = await asked(run)
    (first,) = (await look(runtime.journal, run.id, at=0.0)).approvals
    assert "ann" in first.headline
    assert first.can_undo is False

    await run.approve(call, fingerprint=first.fingerprint)
    state = await until_state(run, lambda state: state.approvals and call not in state.approvals)
    (second,) = state.approvals
    with pytest.raises(Refused) as refused:
        await run.approve(second, fingerprint=first.fingerprint)

    assert refused.value.code == "not_as_shown"
    await run.cancel()
    assert witness.words() == ["100 to ann"]


async def test_later_calls_of_a_tool_approved_for_the_run_are_made_unasked(runtime: Runtime, witness: Witness) -> None:
    later = calls(("transfer", {"log": witness.log, "to": "eve", "amount": 5}))
    other = calls(("pay", {"log": witness.log}))
    run = await runtime.start(sender(witness, later, other), "Pay.")
    call = await asked(run)

    await run.approve(call, by="ann", always=True)
    state = await until_state(run, lambda state: state.approvals and call not in state.approvals)

    assert [one.name for one in state.approvals.values()] == ["pay"], "another tool still asks"
    assert witness.words() == ["100 to ann", "5 to eve"]
    assert (await look(runtime.journal, run.id, at=0.0)).always == ("transfer",)
    assert len(await events(runtime, run, ApprovalRequested)) == 2
    await run.cancel()


async def test_after_a_redirect_a_tool_that_was_approved_for_the_run_asks_again(
    runtime: Runtime, witness: Witness
) -> None:
    other = calls(("pay", {"log": witness.log}))
    later = calls(("transfer", {"log": witness.log, "to": "eve", "amount": 5}))
    run = await runtime.start(sender(witness, other, later), "Pay.")
    call = await asked(run)
    await run.approve(call, always=True)
    await until_state(run, lambda state: state.approvals and call not in state.approvals)

    await run.redirect("pay eve instead")
    state = await until_state(run, lambda state: state.approvals)

    assert [one.name for one in state.approvals.values()] == ["transfer"]
    await run.cancel()
    assert witness.words() == ["100 to ann"]


async def test_of_very_many_calls_the_model_is_told_that_nobody_was_asked(store: str, witness: Witness) -> None:
    many = MOST_APPROVALS + 20
    churn = agent(
        [calls(*(("post", {"log": witness.log, "n": n}) for n in range(many))), "So far.", "Done."], [post], loops=False
    )
    async with Runtime(store) as runtime:
        run = await runtime.start(churn, "Post.")
        await until_state(run, lambda state: len(state.approvals) == MOST_APPROVALS)
        await until_state(run, lambda state: model(churn).requests >= 3)

        refused = [one for one in await events(runtime, run, ApprovalDecided) if one.decision == "refused"]
        assert len(refused) == 20
        notes = _notes(model(churn).asked[-1].messages)
        assert sum("nobody was asked: 100 calls wait" in one for one in notes) == 20
        view = await look(runtime.journal, run.id, at=0.0)
        assert (len(view.approvals), view.more_approvals) == (20, MOST_APPROVALS - 20)
        assert sum(one.now == "refused" for one in view.calls) == 20
        receipt = settled(await run.cancel())
    assert receipt.calls == ()
    assert witness.words() == []


def _notes(messages: tuple[Message, ...]) -> list[str]:
    return [one.text for one in messages if isinstance(one, Note)]
