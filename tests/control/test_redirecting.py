"""Redirect of whole runs: the instruction reaches the agent, what it interrupts is undone, finished work is kept."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from checkrein import Runtime, Settling
from checkrein.core.events import CallStarted, InstructionDelivered, RunFinished, VerbAccepted
from checkrein.core.words import CallKind, EffectState, Outcome, Status, Verb
from checkrein.errors import Refused
from checkrein.models import Note, ToolResult, User
from tests.control.abort_tools import draft, lock, send, slow_draft, wait_for, work
from tests.control.scene import (
    agent,
    calls,
    effects,
    events,
    late,
    ledger,
    let_go,
    model,
    outcomes,
    pause_at_work,
    receipts,
    result,
    settled,
    stopped_at,
    until_let,
    until_status,
)
from tests.runtime import tools
from tests.runtime.witness import Witness, until

pytestmark = pytest.mark.anyio


def said(churn: object) -> list[str]:
    """What the person has told the model, as of its latest request."""
    return [m.text for m in model(churn).asked[-1].messages if isinstance(m, User)]  # type: ignore[arg-type]


async def test_a_redirect_closes_the_stream_and_the_model_goes_on_from_its_partial_text(runtime: Runtime) -> None:
    """D2 D12 D21 D38"""
    churn = agent([lambda request: "Only Q3." if len(request.messages) > 1 else "word " * 2000], [], pace=300)
    heard: list[str] = []
    run = await runtime.start(churn, "Count everything.")
    runtime.listen(run.id, lambda chunk: heard.append(chunk.text))
    await until(lambda: len(heard) >= 5)

    receipt = settled(await run.redirect("only Q3"))

    assert receipt.delivered is True
    assert outcomes(receipt) == {"scripted": Outcome.ABORTED}
    assert receipt.tokens_after_stop == 0
    assert await result(run) == "Only Q3."
    assert model(churn).asked[0].messages == (User("Count everything."),)
    messages = model(churn).asked[-1].messages
    assert messages[1].text.startswith("word word")  # type: ignore[union-attr]
    assert isinstance(messages[2], Note)
    assert messages[-1] == User("only Q3")


async def test_a_redirect_aborts_a_tool_and_nothing_of_it_goes_on(runtime: Runtime, witness: Witness) -> None:
    """D2 D21: the same way as a cancel does, only that the agent goes on."""
    churn = agent([calls(("start_everything", {"log": witness.log})), "Only Q3."], [tools.start_everything])
    run = await runtime.start(churn, "Go.")
    await witness.saw(*tools.EVERYTHING)

    receipt = settled(await run.redirect("only Q3"))

    assert outcomes(receipt) == {"start_everything": Outcome.KILLED}
    assert late(witness, await stopped_at(runtime, receipt)) == []
    assert await witness.is_quiet()
    assert await result(run) == "Only Q3."
    told = next(m for m in model(churn).asked[-1].messages if isinstance(m, ToolResult))
    assert told.content == "Interrupted before it finished; it may have partly happened."


async def test_a_redirect_undoes_what_it_interrupts_and_keeps_what_was_finished(
    runtime: Runtime, witness: Witness
) -> None:
    """D5 D33: the finished lock stays; the half-made draft is discarded before the agent goes on."""
    churn = agent(
        [
            calls(("lock", {"log": witness.log})),
            calls(("draft", {"log": witness.log, "seconds": 60})),
            calls(("send", {"log": witness.log})),
            "Done.",
        ],
        [lock, draft, send],
    )
    run = await runtime.start(churn, "Go.")
    await witness.saw("draft")

    receipt = settled(await run.redirect("send it as it is"))

    assert outcomes(receipt) == {"draft": Outcome.ABORTED}
    assert effects(receipt) == {"draft": EffectState.UNDONE}
    assert await result(run) == "Done."
    assert witness.words() == ["lock", "lock made", "draft", "undo draft", "send", "sent"]


async def test_the_agent_does_not_go_on_before_what_was_interrupted_is_undone(
    runtime: Runtime, witness: Witness, tmp_path: Path
) -> None:
    """D26 D33: the receipt says what it waits for meanwhile."""
    let = tmp_path / "let"
    churn = agent([calls(("slow_draft", {"log": witness.log, "let": str(let), "seconds": 60})), "Done."], [slow_draft])
    run = await runtime.start(churn, "Go.")
    await witness.saw("draft")

    settling = await run.redirect("something else", wait=0.3)

    assert isinstance(settling, Settling)
    assert model(churn).requests == 1
    assert witness.words() == ["draft", "begin undo draft"]
    let.touch()
    assert await result(run) == "Done."
    (receipt,) = await receipts(runtime, run)
    assert effects(receipt) == {"slow_draft": EffectState.UNDONE}


async def test_a_redirect_at_the_next_step_lets_the_tool_finish(
    runtime: Runtime, witness: Witness, tmp_path: Path
) -> None:
    """D21 D38"""
    go = tmp_path / "go"
    churn = agent([calls(("wait_for", {"log": witness.log, "file": str(go)})), "Only Q3."], [wait_for])
    run = await runtime.start(churn, "Go.")
    await witness.saw("waiting")

    settling = await run.redirect("only Q3", when="next_step", wait=0.1)
    go.touch()

    assert isinstance(settling, Settling)
    assert await result(run) == "Only Q3."
    assert witness.words() == ["waiting", "let go"]
    (receipt,) = await receipts(runtime, run)
    assert receipt.delivered is True
    assert receipt.calls == ()
    assert said(churn) == ["Go.", "only Q3"]


async def test_the_newer_of_two_redirects_wins_and_both_are_logged(
    runtime: Runtime, witness: Witness, tmp_path: Path
) -> None:
    """D21 D38: the first is told that it was superseded, and its instruction is not given."""
    let = tmp_path / "let"
    churn = agent([calls(("slow_draft", {"log": witness.log, "let": str(let), "seconds": 60})), "Done."], [slow_draft])
    run = await runtime.start(churn, "Go.")
    await witness.saw("draft")
    first = asyncio.create_task(run.redirect("only Q2", by="ann"))
    await witness.saw("begin undo draft")

    second = asyncio.create_task(run.redirect("only Q3", by="bob"))
    one = settled(await first)
    let.touch()
    two = settled(await second)

    assert await result(run) == "Done."
    assert (one.by, one.delivered) == ("ann", False)
    assert one.superseded_by is not None
    assert (two.by, two.delivered, two.superseded_by) == ("bob", True, None)
    assert outcomes(two) == {"slow_draft": Outcome.ABORTED}
    assert effects(two) == {"slow_draft": EffectState.UNDONE}, "what the first stopped, the second answers for"
    logged = [event.instruction for event in await events(runtime, run, VerbAccepted)]
    assert logged == ["only Q2", "only Q3"]
    assert said(churn) == ["Go.", "only Q3"]
    assert witness.words().count("undo draft") == 1


async def test_a_redirect_before_the_first_call_goes_with_it(runtime: Runtime) -> None:
    """D21: whether it came before the first permit or right after it."""
    churn = agent([lambda request: "Only Q3." if "only Q3" in str(request) else "Everything."] * 2, [])

    run = await runtime.start(churn, "Go.")
    receipt = await run.redirect("only Q3")

    assert settled(receipt).delivered is True
    assert await result(run) == "Only Q3."
    assert said(churn)[-1] == "only Q3"


async def test_a_queued_run_keeps_the_instruction_for_its_first_call(store: str) -> None:
    """D21: nobody drives it yet."""
    churn = agent(["Only Q3."], [])
    async with Runtime(store) as first:
        waiting = agent(["never"], [tools.tick_async], pace=1)
        blocker = await first.start(waiting, "Wait.", thread="t")
        queued = await first.start(waiting, "Go.", thread="t")
        await first.control.redirect(queued.id, "only Q3", by="ann", wait=0.05)
        await blocker.pause()

    async with Runtime(store, agents=[churn]) as second:
        await (await second.get(blocker.id)).cancel()
        again = await second.get(queued.id)
        assert await result(again) == "Only Q3."
    assert said(churn)[-2:] == ["Go.", "only Q3"]


async def test_a_redirect_while_paused_resumes_with_the_instruction(runtime: Runtime, witness: Witness) -> None:
    """D21 D23 D32"""
    churn = agent([calls(("work", until_let(witness))), "Only Q3."], [work])
    run = await runtime.start(churn, "Go.")
    await witness.saw("work")
    await pause_at_work(run, witness)

    receipt = settled(await run.redirect("only Q3"))

    assert receipt.delivered is True
    assert await result(run) == "Only Q3."
    assert witness.words() == ["work", "work done"]
    assert said(churn) == ["Go.", "only Q3"]


async def test_a_redirect_while_pausing_does_not_wait_for_the_tool(runtime: Runtime, witness: Witness) -> None:
    """D21: it supersedes the pause."""
    churn = agent([calls(("work", {"log": witness.log})), "Only Q3."], [work])
    run = await runtime.start(churn, "Go.")
    await witness.saw("work")
    pausing = asyncio.create_task(run.pause())
    await until_status(run, Status.PAUSING)

    receipt = settled(await run.redirect("only Q3"))

    assert settled(await pausing).superseded_by is not None
    assert outcomes(receipt) == {"work": Outcome.ABORTED}
    assert await result(run) == "Only Q3."
    assert witness.words() == ["work"]


async def test_a_pause_while_redirecting_keeps_the_instruction(
    runtime: Runtime, witness: Witness, tmp_path: Path
) -> None:
    """D20 D21: it is given when the run is resumed, and only then."""
    let = tmp_path / "let"
    churn = agent(
        [calls(("slow_draft", {"log": witness.log, "let": str(let), "seconds": 60})), "Only Q3."], [slow_draft]
    )
    run = await runtime.start(churn, "Go.")
    await witness.saw("draft")
    redirecting = asyncio.create_task(run.redirect("only Q3"))
    await witness.saw("begin undo draft")

    pausing = asyncio.create_task(run.pause())
    await until_status(run, Status.PAUSING)
    let.touch()
    paused = settled(await pausing)
    asked = model(churn).requests
    await asyncio.sleep(0.2)

    assert paused.status is Status.PAUSED
    assert model(churn).requests == asked == 1
    assert not redirecting.done() or settled(redirecting.result()).delivered is not True
    await run.resume()
    assert await result(run) == "Only Q3."
    assert said(churn) == ["Go.", "only Q3"]
    redirected = settled(await redirecting)
    assert redirected.delivered is True
    assert witness.words().count("undo draft") == 1


async def test_a_redirect_that_races_with_completion_is_delivered_or_refused_and_never_lost(
    runtime: Runtime,
) -> None:
    """D7: thirty races. Told that it was delivered, the model has seen it; refused, the run was complete before."""

    def answer(request: object) -> str:
        return "Only Q3." if "only Q3" in str(request) else "Done."

    for number in range(30):
        churn = agent([answer] * 3, [])
        churn.name = f"racer{number}"
        run = await runtime.start(churn, "Go.")
        for _ in range(number):
            await asyncio.sleep(0)
        (answered,) = await asyncio.gather(run.redirect("only Q3"), return_exceptions=True)

        delivered = await events(runtime, run, InstructionDelivered)
        if isinstance(answered, BaseException):
            assert isinstance(answered, Refused)
            assert answered.code == "finished"
            assert (await result(run), len(delivered)) == ("Done.", 0)
        else:
            assert settled(answered).delivered is True
            assert (await result(run), len(delivered)) == ("Only Q3.", 1)
        assert len(await events(runtime, run, RunFinished)) == 1


async def test_an_instruction_that_comes_during_the_last_answer_makes_the_agent_go_round_again(
    runtime: Runtime,
) -> None:
    """D38: the answer is finished and kept, and was not the last one after all."""
    churn = agent(["That is everything I have to say.", "Only Q3."], [], pace=30)
    heard: list[str] = []
    run = await runtime.start(churn, "Go.")
    runtime.listen(run.id, lambda chunk: heard.append(chunk.text))
    await until(lambda: len(heard) >= 2)

    await run.redirect("only Q3", when="next_step", wait=0.01)

    assert await result(run) == "Only Q3."
    assert said(churn) == ["Go.", "only Q3"]
    assert model(churn).stopped == 0
    assert len(await events(runtime, run, InstructionDelivered)) == 1


async def test_an_empty_instruction_changes_nothing(runtime: Runtime, witness: Witness) -> None:
    churn = agent([calls(("work", until_let(witness))), "Done."], [work])
    run = await runtime.start(churn, "Go.")
    await witness.saw("work")

    with pytest.raises(Refused) as refused:
        await run.redirect("  ")
    let_go(witness)

    assert refused.value.code == "empty_instruction"
    assert await result(run) == "Done."
    assert witness.words() == ["work", "work done"]


async def test_the_instruction_is_shown_as_a_rewrite_of_the_step_at_work(runtime: Runtime, witness: Witness) -> None:
    """D21 D23: one line says what the step was and what it is now."""
    churn = agent(
        [calls(("work", {"log": witness.log})), "Done."], [work], plan=["Fetch customer list", "Score churn risk"]
    )
    run = await runtime.start(churn, "Go.")
    await witness.saw("work")
    assert (await run.controls())[Verb.REDIRECT].consequence.startswith("stops work")

    await run.redirect("Fetch customer list of Q3")
    await result(run)

    (delivered,) = await events(runtime, run, InstructionDelivered)
    assert "Q3" in delivered.diff
    assert "\n" not in delivered.diff


async def test_after_two_redirects_every_call_was_permitted_once(runtime: Runtime, witness: Witness) -> None:
    """P2: an interrupted tool is not done again by itself."""
    churn = agent(
        [
            calls(("work", {"log": witness.log, "word": "one"})),
            calls(("work", {"log": witness.log, "word": "two"})),
            "Done.",
        ],
        [work],
    )
    run = await runtime.start(churn, "Go.")
    await witness.saw("one")
    await run.redirect("the other one")
    await witness.saw("two")
    await run.redirect("enough")

    assert await result(run) == "Done."
    permits = [event.call for event in await events(runtime, run, CallStarted) if event.kind is CallKind.TOOL]
    assert len(permits) == len(set(permits)) == 2
    assert witness.words() == ["one", "two"]
    assert await ledger(runtime, run) == {}
