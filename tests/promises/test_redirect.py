"""Redirect of whole runs: the instruction reaches the agent, what it interrupts is undone, finished work is kept."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from checkrein import Agent, Runtime, Settling
from checkrein.core.enums import CallKind, EffectState, Outcome, Status, Verb
from checkrein.core.events import CallStarted, InstructionDelivered, RunFinished, VerbAccepted
from checkrein.errors import Refused
from checkrein.models import Note, ToolResult, User
from tests.support import runs, tools
from tests.support.abort_tools import draft, lock, send, slow_draft, wait_for, work
from tests.support.text import words
from tests.support.witness import Witness, until

pytestmark = pytest.mark.anyio


def said(churn: object) -> list[str]:
    """What the person has told the model, as of its latest request."""
    return [m.text for m in runs.model(churn).asked[-1].messages if isinstance(m, User)]  # type: ignore[arg-type]


def undoes_slowly(witness: Witness) -> tuple[Agent, Path]:
    """And the file without which its draft is not undone."""
    let = Path(witness.log).with_name("let")
    drafts = runs.calls(("slow_draft", {"log": witness.log, "let": str(let), "seconds": 60}))
    return runs.agent([drafts, "Done."], [slow_draft]), let


async def test_a_redirect_closes_the_stream_and_the_model_goes_on_from_its_partial_text(runtime: Runtime) -> None:
    """D2 D12 D21 D38"""
    churn = runs.agent([lambda request: "Only Q3." if len(request.messages) > 1 else words(2000)], [], pace=300)
    heard: list[str] = []
    run = await runtime.start(churn, "Count everything.")
    runtime.listen(run.id, lambda chunk: heard.append(chunk.text))
    await until(lambda: len(heard) >= 5)

    receipt = runs.settled(await run.redirect("only Q3"))

    assert receipt.delivered is True
    assert runs.outcomes(receipt) == {"scripted": Outcome.ABORTED}
    assert receipt.tokens_after_stop == 0
    assert await runs.result(run) == "Only Q3."
    assert runs.model(churn).asked[0].messages == (User("Count everything."),)
    messages = runs.model(churn).asked[-1].messages
    assert messages[1].text.startswith("word1 word2")  # type: ignore[union-attr]
    assert isinstance(messages[2], Note)
    assert messages[-1] == User("only Q3")


async def test_a_redirect_aborts_a_tool_and_nothing_of_it_goes_on(runtime: Runtime, witness: Witness) -> None:
    """D2 D21: the same way as a cancel does, only that the agent goes on."""
    churn = runs.agent([runs.calls(("start_everything", {"log": witness.log})), "Only Q3."], [tools.start_everything])
    run = await runtime.start(churn, "Go.")
    await witness.saw(*tools.EVERYTHING)

    receipt = runs.settled(await run.redirect("only Q3"))

    assert runs.outcomes(receipt) == {"start_everything": Outcome.KILLED}
    assert runs.late(witness, await runs.stopped_at(runtime, receipt)) == []
    assert await witness.is_quiet()
    assert await runs.result(run) == "Only Q3."
    told = next(m for m in runs.model(churn).asked[-1].messages if isinstance(m, ToolResult))
    assert told.content == "Interrupted before it finished; it may have partly happened."


async def test_a_redirect_undoes_what_it_interrupts_and_keeps_what_was_finished(
    runtime: Runtime, witness: Witness
) -> None:
    """D5 D33: the finished lock stays; the half-made draft is discarded before the agent goes on."""
    churn = runs.agent(
        [
            runs.calls(("lock", {"log": witness.log})),
            runs.calls(("draft", {"log": witness.log, "seconds": 60})),
            runs.calls(("send", {"log": witness.log})),
            "Done.",
        ],
        [lock, draft, send],
    )
    run = await runs.at_work(runtime, churn, witness, "draft")

    receipt = runs.settled(await run.redirect("send it as it is"))

    assert runs.outcomes(receipt) == {"draft": Outcome.ABORTED}
    assert runs.effects(receipt) == {"draft": EffectState.UNDONE}
    assert await runs.result(run) == "Done."
    assert witness.words() == ["lock", "lock made", "draft", "undo draft", "send", "sent"]


async def test_the_agent_does_not_go_on_before_what_was_interrupted_is_undone(
    runtime: Runtime, witness: Witness
) -> None:
    """D26 D33: the receipt says what it waits for meanwhile."""
    churn, let = undoes_slowly(witness)
    run = await runs.at_work(runtime, churn, witness, "draft")

    redirecting = asyncio.create_task(run.redirect("something else"))
    await witness.saw("begin undo draft")

    assert await witness.is_quiet()
    assert not redirecting.done()
    assert runs.model(churn).requests == 1
    assert witness.words() == ["draft", "begin undo draft"]
    let.touch()
    assert await runs.result(run) == "Done."
    receipt = runs.settled(await redirecting)
    assert runs.effects(receipt) == {"slow_draft": EffectState.UNDONE}


async def test_a_redirect_at_the_next_step_lets_the_tool_finish(
    runtime: Runtime, witness: Witness, tmp_path: Path
) -> None:
    """D21 D38"""
    go = tmp_path / "go"
    churn = runs.agent([runs.calls(("wait_for", {"log": witness.log, "file": str(go)})), "Only Q3."], [wait_for])
    run = await runs.at_work(runtime, churn, witness, "waiting")

    settling = await run.redirect("only Q3", when="next_step", wait=0.1)
    go.touch()

    assert isinstance(settling, Settling)
    assert await runs.result(run) == "Only Q3."
    assert witness.words() == ["waiting", "let go"]
    (receipt,) = await runs.receipts(runtime, run)
    assert receipt.delivered is True
    assert receipt.calls == ()
    assert said(churn) == ["Go.", "only Q3"]


async def test_the_newer_of_two_redirects_wins_and_both_are_logged(runtime: Runtime, witness: Witness) -> None:
    """D21 D38: the first is told that it was superseded, and its instruction is not given."""
    churn, let = undoes_slowly(witness)
    run = await runs.at_work(runtime, churn, witness, "draft")
    first = asyncio.create_task(run.redirect("only Q2", by="ann"))
    await witness.saw("begin undo draft")

    second = asyncio.create_task(run.redirect("only Q3", by="bob"))
    one = runs.settled(await first)
    let.touch()
    two = runs.settled(await second)

    assert await runs.result(run) == "Done."
    assert (one.by, one.delivered) == ("ann", False)
    assert one.superseded_by is not None
    assert (two.by, two.delivered, two.superseded_by) == ("bob", True, None)
    assert runs.outcomes(two) == {"slow_draft": Outcome.ABORTED}
    assert runs.effects(two) == {"slow_draft": EffectState.UNDONE}, "what the first stopped, the second answers for"
    logged = [event.instruction for event in await runs.events(runtime, run, VerbAccepted)]
    assert logged == ["only Q2", "only Q3"]
    assert said(churn) == ["Go.", "only Q3"]
    assert witness.words().count("undo draft") == 1


async def test_a_redirect_before_the_first_call_goes_with_it(runtime: Runtime) -> None:
    """D21: whether it came before the first permit or right after it."""
    churn = runs.agent([lambda request: "Only Q3." if "only Q3" in str(request) else "Everything."] * 2, [])
    stalled = asyncio.Event()
    churn.model = runs.StallingModel(runs.model(churn)._turns, {1: stalled}, after=0)

    run = await runtime.start(churn, "Go.")
    receipt = await run.redirect("only Q3")
    stalled.set()  # the first request has the instruction itself, if that came before its permit

    assert runs.settled(receipt).delivered is True
    assert await runs.result(run) == "Only Q3."
    assert said(churn)[-1] == "only Q3"


async def test_a_queued_run_keeps_the_instruction_for_its_first_call(store: str) -> None:
    """D21: nobody drives it yet."""
    churn = runs.agent(["Only Q3."], [])
    async with Runtime(store) as first:
        waiting = runs.agent(["never"], [tools.tick_async], pace=0.01)
        blocker = await first.start(waiting, "Wait.", thread="t")
        queued = await first.start(waiting, "Go.", thread="t")
        await first.control.redirect(queued.id, "only Q3", by="ann", wait=0.05)
        await blocker.pause()

    async with Runtime(store, agents=[churn]) as second:
        await (await second.get(blocker.id)).cancel()
        again = await second.get(queued.id)
        assert await runs.result(again) == "Only Q3."
    assert said(churn)[-2:] == ["Go.", "only Q3"]


async def test_a_redirect_while_paused_resumes_with_the_instruction(runtime: Runtime, witness: Witness) -> None:
    """D21 D23 D32"""
    churn = runs.agent([runs.calls(("work", runs.until_let(witness))), "Only Q3."], [work])
    run = await runs.paused_at_work(runtime, churn, witness)

    receipt = runs.settled(await run.redirect("only Q3"))

    assert receipt.delivered is True
    assert await runs.result(run) == "Only Q3."
    assert witness.words() == ["work", "work done"]
    assert said(churn) == ["Go.", "only Q3"]


async def test_a_redirect_while_pausing_does_not_wait_for_the_tool(runtime: Runtime, witness: Witness) -> None:
    """D21: it supersedes the pause."""
    churn = runs.agent([runs.calls(("work", {"log": witness.log})), "Only Q3."], [work])
    run = await runs.at_work(runtime, churn, witness)
    pausing = asyncio.create_task(run.pause())
    await runs.until_status(run, Status.PAUSING)

    receipt = runs.settled(await run.redirect("only Q3"))

    assert runs.settled(await pausing).superseded_by is not None
    assert runs.outcomes(receipt) == {"work": Outcome.ABORTED}
    assert await runs.result(run) == "Only Q3."
    assert witness.words() == ["work"]


async def test_a_pause_while_redirecting_keeps_the_instruction(
    runtime: Runtime, witness: Witness, tmp_path: Path
) -> None:
    """D20 D21: it is given when the run is resumed, and only then."""
    let = tmp_path / "let"
    churn = runs.agent(
        [runs.calls(("slow_draft", {"log": witness.log, "let": str(let), "seconds": 60})), "Only Q3."], [slow_draft]
    )
    run = await runs.at_work(runtime, churn, witness, "draft")
    redirecting = asyncio.create_task(run.redirect("only Q3"))
    await witness.saw("begin undo draft")

    pausing = asyncio.create_task(run.pause())
    await runs.until_status(run, Status.PAUSING)
    let.touch()
    paused = runs.settled(await pausing)
    asked = runs.model(churn).requests
    await asyncio.sleep(0.2)

    assert paused.status is Status.PAUSED
    assert runs.model(churn).requests == asked == 1
    assert not redirecting.done() or runs.settled(redirecting.result()).delivered is not True
    await run.resume()
    assert await runs.result(run) == "Only Q3."
    assert said(churn) == ["Go.", "only Q3"]
    redirected = runs.settled(await redirecting)
    assert redirected.delivered is True
    assert witness.words().count("undo draft") == 1


async def test_a_redirect_that_races_with_completion_is_delivered_or_refused_and_never_lost(runtime: Runtime) -> None:
    """D7: thirty races. Told that it was delivered, the model has seen it; refused, the run was complete before."""

    def answer(request: object) -> str:
        return "Only Q3." if "only Q3" in str(request) else "Done."

    for number in range(30):
        churn = runs.agent([answer] * 3, [])
        churn.name = f"racer{number}"
        run = await runtime.start(churn, "Go.")
        for _ in range(number):
            await asyncio.sleep(0)
        (answered,) = await asyncio.gather(run.redirect("only Q3"), return_exceptions=True)

        delivered = await runs.events(runtime, run, InstructionDelivered)
        if isinstance(answered, BaseException):
            assert isinstance(answered, Refused)
            assert answered.code == "finished"
            assert (await runs.result(run), len(delivered)) == ("Done.", 0)
        else:
            assert runs.settled(answered).delivered is True
            assert (await runs.result(run), len(delivered)) == ("Only Q3.", 1)
        assert len(await runs.events(runtime, run, RunFinished)) == 1


async def test_an_instruction_that_comes_during_the_last_answer_makes_the_agent_go_round_again(
    runtime: Runtime,
) -> None:
    """D38: the answer is finished and kept, and was not the last one after all."""
    let = asyncio.Event()
    churn = runs.agent([], [])
    churn.model = runs.StallingModel(["That is everything I have to say.", "Only Q3."], {1: let}, after=2)
    heard: list[str] = []
    run = await runtime.start(churn, "Go.")
    runtime.listen(run.id, lambda chunk: heard.append(chunk.text))
    await until(lambda: len(heard) >= 2)

    await run.redirect("only Q3", when="next_step", wait=0.01)
    let.set()

    assert await runs.result(run) == "Only Q3."
    assert said(churn) == ["Go.", "only Q3"]
    assert runs.model(churn).stopped == 0
    assert len(await runs.events(runtime, run, InstructionDelivered)) == 1


async def test_an_empty_instruction_changes_nothing(runtime: Runtime, witness: Witness) -> None:
    churn = runs.agent([runs.calls(("work", runs.until_let(witness))), "Done."], [work])
    run = await runs.at_work(runtime, churn, witness)

    with pytest.raises(Refused) as refused:
        await run.redirect("  ")
    runs.let_go(witness)

    assert refused.value.code == "empty_instruction"
    assert await runs.result(run) == "Done."
    assert witness.words() == ["work", "work done"]


async def test_the_instruction_is_shown_as_a_rewrite_of_the_step_at_work(runtime: Runtime, witness: Witness) -> None:
    """D21 D23: one line says what the step was and what it is now."""
    churn = runs.agent(
        [runs.calls(("work", {"log": witness.log})), "Done."], [work], plan=["Fetch customer list", "Score churn risk"]
    )
    run = await runs.at_work(runtime, churn, witness)
    assert (await run.controls())[Verb.REDIRECT].consequence.startswith("stops work")

    await run.redirect("Fetch customer list of Q3")
    await runs.result(run)

    (delivered,) = await runs.events(runtime, run, InstructionDelivered)
    assert "Q3" in delivered.diff
    assert "\n" not in delivered.diff


async def test_after_two_redirects_every_call_was_permitted_once(runtime: Runtime, witness: Witness) -> None:
    """P2: an interrupted tool is not done again by itself."""
    churn = runs.agent(
        [
            runs.calls(("work", {"log": witness.log, "word": "one"})),
            runs.calls(("work", {"log": witness.log, "word": "two"})),
            "Done.",
        ],
        [work],
    )
    run = await runs.at_work(runtime, churn, witness, "one")
    await run.redirect("the other one")
    await witness.saw("two")
    await run.redirect("enough")

    assert await runs.result(run) == "Done."
    permits = [event.call for event in await runs.events(runtime, run, CallStarted) if event.kind is CallKind.TOOL]
    assert len(permits) == len(set(permits)) == 2
    assert witness.words() == ["one", "two"]
    assert await runs.ledger(runtime, run) == {}


@pytest.mark.parametrize("first", ["resume", "redirect"])
async def test_instructions_add_up_when_a_pause_comes_before_the_answer(runtime: Runtime, first: str) -> None:
    """Both were acknowledged, so both are before the model, in the order they were said."""
    churn = runs.agent(["word " * 10_000] * 4, [], pace=50)
    run = await runtime.start(churn, "Go.")
    await until(lambda: runs.model(churn).live == 1)
    if first == "resume":
        await run.pause()
        earlier = runs.settled(await run.resume("only Q3"))
    else:
        earlier = runs.settled(await run.redirect("only Q3"))
    await until(lambda: "only Q3" in said(churn) and runs.model(churn).live == 1)
    await run.pause()

    later = runs.settled(await run.resume("in German"))
    await until(lambda: "in German" in " / ".join(said(churn)))

    assert (earlier.delivered, later.delivered) == (True, True)
    told = " / ".join(said(churn))
    assert 0 < told.find("only Q3") < told.find("in German")
    await run.cancel()
