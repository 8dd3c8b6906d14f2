"""Pause and resume of whole runs: what a pause does to each kind of call, and that a resume continues exactly there."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import psutil
import pytest

from checkrein import Agent, Receipt, Runtime, Settling, current_call, tool
from checkrein.core.enums import CallKind, EffectState, Outcome, Status, Verb
from checkrein.core.events import CallStarted, InstructionDelivered, VerbAccepted
from checkrein.driver.driver import Driver
from checkrein.errors import MisuseError, Refused
from checkrein.models import ToolResult, Turn, User
from tests.support import runs, tools
from tests.support.abort_tools import count_held, count_held_async, draft, fetch, lock, send, wait_for, work
from tests.support.patience import PATIENCE_SECONDS
from tests.support.witness import Witness, note, until

pytestmark = pytest.mark.anyio

CHANGES_SOMETHING = tool(count_held.function, on_pause="hold")
"""The same without a word about its effect: nobody may do it again unasked."""


def locks_and_works(witness: Witness) -> Agent:
    """With an effect that stays open while it works."""
    turns = [runs.calls(("lock", {"log": witness.log})), runs.calls(("work", runs.until_let(witness))), "never"]
    return runs.agent(turns, [lock, work])


# -- the model


async def test_a_pause_closes_the_stream_at_once_and_keeps_what_it_said(runtime: Runtime) -> None:
    """D20 D28 D31: the partial text is in the receipt, in the journal, and can be read while it is paused."""
    churn = runs.agent([], [])
    numbers = "one two three four five six seven eight nine ten"
    churn.model = runs.StallingModel([numbers], {1: asyncio.Event()}, after=3)
    heard: list[str] = []
    run = await runtime.start(churn, "Count.")
    runtime.listen(run.id, lambda chunk: heard.append(chunk.text))
    await until(lambda: len(heard) >= 3)

    receipt = runs.settled(await run.pause())

    said = "".join(heard)
    assert runs.outcomes(receipt) == {"scripted": Outcome.ABORTED}
    assert receipt.tokens_after_stop == 0
    assert receipt.partial.chars == len(said)
    assert (runs.model(churn).live, runs.model(churn).stopped) == (0, 1)

    async def kept() -> str:
        (started,) = await runs.events(runtime, run, CallStarted)
        return "".join(chunk.text for chunk in await runtime.journal.chunks(run.id, started.call))

    async with asyncio.timeout(PATIENCE_SECONDS):
        while await kept() != said:
            await asyncio.sleep(0.02)
    await run.resume()
    assert await runs.result(run) == "one two three four five six seven eight nine ten"
    attempts = [(event.call, event.attempt) for event in await runs.events(runtime, run, CallStarted)]
    assert attempts == [("c1", 1), ("c1", 2)], "asked again at the same place, and counted"


# -- on_pause="finish"


async def test_a_pause_waits_for_a_tool_and_names_it(runtime: Runtime, witness: Witness, tmp_path: Path) -> None:
    """D18 D20 D30: nothing is torn; while it waits, the answer and the button say for what."""
    go = tmp_path / "go"
    churn = runs.agent([runs.calls(("wait_for", {"log": witness.log, "file": str(go)})), "Done."], [wait_for])
    run = await runs.at_work(runtime, churn, witness, "waiting")
    assert (await run.controls())[Verb.PAUSE].consequence == "waits for wait_for, then holds"

    settling = await run.pause(wait=0.1)

    assert isinstance(settling, Settling)
    assert settling.status == Status.PAUSING
    assert settling.waiting_for == "wait_for to finish"
    button = (await run.controls())[Verb.PAUSE]
    assert (button.enabled, button.consequence) == (False, "waits for wait_for to finish")

    go.touch()
    receipt = runs.settled(await run.pause())

    assert receipt.status is Status.PAUSED
    assert runs.outcomes(receipt) == {"wait_for": Outcome.COMPLETED}
    assert runs.model(churn).requests == 1, "nothing is asked while it is paused"
    await run.resume()
    assert await runs.result(run) == "Done."
    assert witness.words() == ["waiting", "let go"], "the finished tool was not done again"


async def test_one_call_can_be_aborted_instead_of_being_waited_for(runtime: Runtime, witness: Witness) -> None:
    """D1 D20: 'Don't wait: abort it'. The other one is still waited for, and the model is told the truth."""
    churn = runs.agent(
        [runs.calls(("work", {"log": witness.log}), ("draft", {**runs.until_let(witness), "seconds": 3600})), "Done."],
        [work, draft],
    )
    run = await runtime.start(churn, "Go.")
    await witness.saw("work", "draft")
    await run.pause(wait=0.01)

    aborted = runs.settled(await run.abort(await runs.in_flight(run, "work")))
    runs.let_go(witness)
    paused = runs.settled(await run.pause())

    assert aborted.verb is Verb.ABORT
    assert runs.outcomes(paused) == {"work": Outcome.ABORTED, "draft": Outcome.COMPLETED}
    await run.resume()
    assert await runs.result(run) == "Done."
    told = {m.name: m.content for m in runs.model(churn).asked[-1].messages if isinstance(m, ToolResult)}
    assert "Interrupted" in told["work"]
    assert told["draft"] == "draft"
    assert "undo draft" not in witness.words()


# -- on_pause="abort"


async def test_a_tool_that_may_be_aborted_is_and_the_resume_tries_it_again(runtime: Runtime, witness: Witness) -> None:
    """D20 D30: with the same key, so that the service behind it can tell."""
    churn = runs.agent([runs.calls(("fetch", {"log": witness.log, "seconds": 60})), "Done."], [fetch])
    run = await runtime.start(churn, "Go.")
    await until(lambda: witness.lines())
    assert (await run.controls())[Verb.PAUSE].consequence == "stops fetch, which resume does again"

    receipt = runs.settled(await run.pause())

    assert runs.outcomes(receipt) == {"fetch": Outcome.KILLED}
    assert runs.late(witness, await runs.stopped_at(runtime, receipt)) == []
    await run.resume()
    assert await runs.result(run) == "Done."
    key = f"{run.id}/c2"
    assert witness.words() == [f"fetch 1 {key}", f"fetch 2 {key}", "fetched 2"]


def test_only_an_idempotent_tool_may_be_aborted_by_a_pause() -> None:
    with pytest.raises(MisuseError, match="idempotent=True"):
        tool(on_pause="abort")(tools.add)


# -- on_pause="hold"


async def test_a_held_def_tool_is_frozen_and_continued_at_resume(runtime: Runtime, witness: Witness) -> None:
    """D20 D23 D28: the process is stopped, not ended, and goes on where it was."""
    churn = runs.agent([runs.calls(("count_held", runs.until_let(witness))), "Done."], [count_held])
    run = await runtime.start(churn, "Count.")
    await witness.saw("tick", times=3)

    receipt = runs.settled(await run.pause())

    (pid,) = {line.pid for line in witness.lines()}
    assert runs.outcomes(receipt) == {"count_held": "held"}
    assert psutil.Process(pid).status() == psutil.STATUS_STOPPED
    assert await witness.is_quiet(seconds=0.4)
    assert not runs.late(witness, await stopped_at_settled(runtime, receipt))

    ticks = len(witness.lines("tick"))
    await run.resume()
    await witness.saw("tick", times=ticks + 3)
    runs.let_go(witness)

    assert await runs.result(run) == "Done."
    assert {line.pid for line in witness.lines()} == {pid}
    told = next(m for m in runs.model(churn).asked[-1].messages if isinstance(m, ToolResult))
    assert told.content == str(len(witness.lines("tick"))), "it went on where it was"


async def stopped_at_settled(runtime: Runtime, receipt: Receipt) -> float:
    """A held call has not stopped: what counts is when the pause was settled."""
    record = next(record for record in await runtime.journal.read(receipt.run) if record.seq == receipt.seq)
    assert isinstance(record.event, VerbAccepted)
    assert record.event.asked_at is not None
    assert receipt.timing_ms.settled is not None
    return record.event.asked_at + receipt.timing_ms.settled / 1000


async def test_a_held_async_tool_waits_at_its_checkpoint(runtime: Runtime, witness: Witness) -> None:
    """D20 D28"""
    churn = runs.agent([runs.calls(("count_held_async", runs.until_let(witness))), "Done."], [count_held_async])
    run = await runtime.start(churn, "Count.")
    await witness.saw("tick", times=3)

    receipt = runs.settled(await run.pause())

    assert runs.outcomes(receipt) == {"count_held_async": "held"}
    assert await witness.is_quiet()
    ticks = len(witness.lines("tick"))
    await run.resume()
    await witness.saw("tick", times=ticks + 3)
    runs.let_go(witness)
    assert await runs.result(run) == "Done."
    told = next(m for m in runs.model(churn).asked[-1].messages if isinstance(m, ToolResult))
    assert told.content == str(len(witness.lines("tick"))), "it went on where it was"


@tool(on_pause="hold", effect="none")
async def reach_a_checkpoint_late(log: str, file: str) -> str:
    """Comes to a place where it can be held only once it is let go."""
    note(log, "work")
    while not os.path.exists(file):
        await asyncio.sleep(0.01)
    await current_call().checkpoint()
    return "reached"


async def test_a_call_that_could_not_be_held_before_the_resume_is_not_held_afterwards(
    runtime: Runtime, witness: Witness
) -> None:
    """D23: it was told to wait at its next checkpoint, which it reaches when nobody wants it to wait any more."""
    turns = [runs.calls(("reach_a_checkpoint_late", runs.until_let(witness))), "Done."]
    run = await runs.at_work(runtime, runs.agent(turns, [reach_a_checkpoint_late]), witness)
    assert isinstance(await run.pause(wait=0.0), Settling)
    await until(lambda: runtime._engine.driver(run.id)._session.calls.told_to_hold)  # type: ignore[union-attr]

    await run.resume()
    runs.let_go(witness)

    assert await runs.result(run) == "Done."


@pytest.mark.parametrize("used", [count_held, count_held_async], ids=["def", "async def"])
async def test_a_held_call_can_be_cancelled(runtime: Runtime, witness: Witness, used: Any) -> None:
    """D2 D4: it is not woken for it, and nothing of it is left."""
    churn = runs.agent([runs.calls((used.name, runs.until_let(witness))), "never"], [used])
    run = await runtime.start(churn, "Count.")
    await witness.saw("tick", times=3)
    await run.pause()
    ticks = len(witness.lines())

    receipt = runs.settled(await run.cancel())

    assert receipt.status is Status.CANCELLED
    assert list(runs.outcomes(receipt).values()) in ([Outcome.KILLED], [Outcome.ABORTED])
    assert await witness.is_quiet()
    assert len(witness.lines()) == ticks


async def test_a_single_held_call_can_be_aborted_while_paused(runtime: Runtime, witness: Witness) -> None:
    churn = runs.agent([runs.calls(("count_held", runs.until_let(witness))), "Done."], [count_held])
    run = await runtime.start(churn, "Count.")
    await witness.saw("tick", times=3)
    await run.pause()
    pid = witness.lines()[0].pid

    runs.settled(await run.abort(await runs.in_flight(run, "count_held")))

    assert not psutil.pid_exists(pid)
    assert (await run.state()).status is Status.PAUSED
    await run.resume()
    assert await runs.result(run) == "Done."


async def test_a_held_call_keeps_its_run_in_memory(store: str, witness: Witness) -> None:
    """D20: eviction would lose what is frozen."""
    async with Runtime(store, evict_seconds=0.1) as runtime:
        churn = runs.agent([runs.calls(("count_held", runs.until_let(witness))), "Done."], [count_held])
        run = await runtime.start(churn, "Count.")
        await witness.saw("tick", times=3)
        await run.pause()

        await asyncio.sleep(0.6)

        assert runtime._engine.driver(run.id) is not None
        await run.resume()
        runs.let_go(witness)
        assert await runs.result(run) == "Done."
        assert len({line.pid for line in witness.lines()}) == 1, "the same process"


async def test_closing_the_runtime_ends_what_is_held_and_nobody_guesses_how_far_it_got(
    store: str, witness: Witness
) -> None:
    """D4 D29 D30: a frozen process is not left behind; it was cut off, so its outcome is in doubt."""
    turns = [runs.calls(("count_held", runs.until_let(witness))), "Done."]
    async with Runtime(store) as first:
        run = await first.start(runs.agent(turns, [CHANGES_SOMETHING]), "Count.")
        await witness.saw("tick", times=3)
        await run.pause()
        pid = witness.lines()[0].pid
    await runs.gone([pid])

    async with Runtime(store, agents=[runs.agent(turns, [CHANGES_SOMETHING])]) as second:
        again = await second.get(run.id)
        assert (await again.state()).status is Status.PAUSED
        await again.resume()
        state = await runs.until_state(again, lambda state: state.doubts)
        (call,) = state.doubts
        await again.resolve(call, "happened", result=3)
        assert await runs.result(again) == "Done."


async def test_a_tool_in_a_thread_is_held_at_its_checkpoint(runtime: Runtime, witness: Witness) -> None:
    """D20 D28"""
    used = tool(isolation="thread", on_pause="hold", effect="none")(tools.tick_at_checkpoints)
    run = await runtime.start(runs.agent([runs.calls((used.name, {"log": witness.log})), "never"], [used]), "Count.")
    await witness.saw("tick", times=3)

    receipt = runs.settled(await run.pause())

    assert runs.outcomes(receipt) == {"tick_at_checkpoints": "held"}
    assert await witness.is_quiet()
    await run.resume()
    ticks = len(witness.lines())
    await witness.saw("tick", times=ticks + 3)
    await run.cancel()
    assert await witness.is_quiet()


# -- the verbs around it


async def test_a_pause_before_the_first_call_holds_the_run_there(runtime: Runtime, witness: Witness) -> None:
    """D3 D20"""
    churn = runs.agent([runs.calls(("work", {"log": witness.log, "seconds": 0})), "Done."], [work])
    run = await runtime.start(churn, "Go.")

    receipt = runs.settled(await run.pause())

    asked, written = runs.model(churn).requests, witness.words()
    await asyncio.sleep(0.2)
    assert receipt.status is Status.PAUSED
    assert (runs.model(churn).requests, witness.words()) == (asked, written), "nothing begins while it is paused"
    await run.resume()
    assert await runs.result(run) == "Done."
    assert witness.words() == ["work", "work done"]


async def test_a_second_pause_gets_the_same_receipt(runtime: Runtime, witness: Witness) -> None:
    """D7: also one that comes while the first is settling."""
    churn = runs.agent([runs.calls(("work", runs.until_let(witness))), "Done."], [work])
    run = await runs.at_work(runtime, churn, witness)

    pausing = [asyncio.create_task(run.pause(by=who)) for who in ("ann", "bob")]
    await runs.until_status(run, Status.PAUSING)
    runs.let_go(witness)
    first, second = await asyncio.gather(*pausing)
    third = await run.pause(by="cat")

    assert first == second == third
    assert len(await runs.receipts(runtime, run)) == 1


async def test_a_pause_in_the_middle_of_pausing_can_be_taken_back(runtime: Runtime, witness: Witness) -> None:
    """D20: resume while pausing: the run goes on, and the pause is told that it was superseded."""
    churn = runs.agent([runs.calls(("work", runs.until_let(witness))), "Done."], [work])
    run = await runs.at_work(runtime, churn, witness)
    pausing = asyncio.create_task(run.pause())
    await runs.until_status(run, Status.PAUSING)

    resumed = runs.settled(await run.resume())
    paused = runs.settled(await pausing)
    runs.let_go(witness)

    assert paused.superseded_by is not None
    assert resumed.status is Status.RUNNING
    assert await runs.result(run) == "Done."
    assert witness.words() == ["work", "work done"]


async def test_resume_can_carry_an_instruction_and_the_journal_shows_what_was_added(
    runtime: Runtime, witness: Witness
) -> None:
    """D23 D32: the model is told, once, and one line says what the person added."""
    churn = runs.agent([runs.calls(("work", runs.until_let(witness))), "Summed up."], [work], plan=["Count", "Write"])
    run = await runs.paused_at_work(runtime, churn, witness)

    receipt = runs.settled(await run.resume("summarise and stop"))

    assert receipt.delivered is True
    assert await runs.result(run) == "Summed up."
    said = [m for m in runs.model(churn).asked[-1].messages if isinstance(m, User)]
    assert said == [User("Go."), User("summarise and stop")]
    (delivered,) = await runs.events(runtime, run, InstructionDelivered)
    assert "summarise and stop" in delivered.diff
    assert "\n" not in delivered.diff
    assert witness.words() == ["work", "work done"]


async def test_resume_is_refused_where_there_is_nothing_to_resume(runtime: Runtime, witness: Witness) -> None:
    churn = runs.agent([runs.calls(("work", runs.until_let(witness))), "Done."], [work])
    run = await runs.at_work(runtime, churn, witness)

    with pytest.raises(Refused) as running:
        await run.resume()
    runs.let_go(witness)
    await runs.result(run)
    with pytest.raises(Refused) as finished:
        await run.pause()

    assert (running.value.code, finished.value.code) == ("not_now", "finished")


async def test_open_effects_stay_open_while_paused_and_are_undone_by_a_cancel_from_there(
    runtime: Runtime, witness: Witness
) -> None:
    """D5 D33"""
    churn = locks_and_works(witness)
    run = await runs.paused_at_work(runtime, churn, witness)
    assert await runs.ledger(runtime, run) == {"lock": EffectState.OPEN}
    assert "undo lock" not in witness.words()

    await run.cancel()

    assert await runs.ledger(runtime, run) == {"lock": EffectState.UNDONE}
    assert witness.words() == ["lock", "lock made", "work", "work done", "undo lock"]


# -- out of memory and back


async def test_a_paused_run_leaves_memory_after_a_while_and_comes_back_by_replay(store: str, witness: Witness) -> None:
    """D20 D29 D30"""
    async with Runtime(store, evict_seconds=0.2) as runtime:
        churn = runs.agent(
            [
                runs.calls(("lock", {"log": witness.log})),
                runs.calls(("work", runs.until_let(witness))),
                Turn("Then this.", calls=[("send", {"log": witness.log})]),
                "Done.",
            ],
            [lock, work, send],
        )
        run = await runs.paused_at_work(runtime, churn, witness)
        asked = runs.model(churn).requests

        await until(lambda: runtime._engine.driver(run.id) is None)

        assert (await run.state()).status is Status.PAUSED
        receipt = runs.settled(await run.resume())
        assert receipt.status in (Status.QUEUED, Status.RUNNING)
        assert await runs.result(run) == "Done."
        assert runs.model(churn).requests == asked + 2, "no answer was asked for twice"
    assert witness.words() == ["lock", "lock made", "work", "work done", "send", "sent"]


async def test_a_run_that_left_memory_takes_an_instruction_with_the_resume(store: str, witness: Witness) -> None:
    """D23 D32"""
    async with Runtime(store, evict_seconds=0.1) as runtime:
        churn = runs.agent([runs.calls(("work", runs.until_let(witness))), "Summed up."], [work])
        run = await runs.paused_at_work(runtime, churn, witness)
        await until(lambda: runtime._engine.driver(run.id) is None)

        receipt = runs.settled(await run.resume("summarise and stop"))

        assert receipt.delivered is True
        assert await runs.result(run) == "Summed up."
        assert runs.model(churn).asked[-1].messages[-1] == User("summarise and stop")


async def test_a_question_to_a_run_that_left_memory_is_answered_and_it_stays_paused(
    store: str, witness: Witness
) -> None:
    """D31"""
    async with Runtime(store, evict_seconds=0.1) as runtime:
        churn = runs.agent([runs.calls(("work", runs.until_let(witness))), "Half way.", "Done."], [work])
        run = await runs.paused_at_work(runtime, churn, witness)
        await until(lambda: runtime._engine.driver(run.id) is None)

        assert await run.ask("How far are you?") == "Half way."

        assert (await run.state()).status is Status.PAUSED
        await run.cancel()


async def test_a_question_that_comes_just_while_a_run_leaves_memory_is_answered(
    store: str, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D31"""
    asking: list[asyncio.Task[str]] = []
    drive = Driver.drive

    async def asked_at_the_end(driver: Driver) -> None:
        await drive(driver)
        if not asking:
            asking.append(asyncio.ensure_future(run.ask("How far are you?", wait=30)))
            await runs.until_state(run, lambda state: bool(state.verbs))

    monkeypatch.setattr(Driver, "drive", asked_at_the_end)
    async with Runtime(store, evict_seconds=0.1) as runtime:
        churn = runs.agent([runs.calls(("work", runs.until_let(witness))), "Half way.", "Done."], [work])
        run = await runs.paused_at_work(runtime, churn, witness)
        await until(lambda: bool(asking))

        assert await asking[0] == "Half way."
        await run.cancel()


async def test_a_run_that_left_memory_can_be_cancelled_and_its_effects_are_undone(store: str, witness: Witness) -> None:
    """D22 D33"""
    async with Runtime(store, evict_seconds=0.1) as runtime:
        churn = locks_and_works(witness)
        run = await runs.paused_at_work(runtime, churn, witness)
        await until(lambda: runtime._engine.driver(run.id) is None)

        receipt = runs.settled(await run.cancel())

        assert receipt.status is Status.CANCELLED
        assert await runs.ledger(runtime, run) == {"lock": EffectState.UNDONE}
        assert witness.words()[-1] == "undo lock"


async def test_what_was_held_is_in_doubt_after_a_crash(store: str, witness: Witness, tmp_path: Path) -> None:
    """D30: a frozen process does not outlive its runtime, and nobody guesses how far it got."""
    async with runs.program(tmp_path, HELD, witness.log, store):
        await until(lambda: (tmp_path / "held").exists())
        pid = witness.lines()[0].pid
        assert psutil.Process(pid).status() == psutil.STATUS_STOPPED
    await runs.gone([pid])

    churn = runs.agent([runs.calls(("count_held", runs.until_let(witness))), "Done."], [CHANGES_SOMETHING])
    async with Runtime(store, agents=[churn]) as runtime:
        (row,) = await runtime.runs()
        run = await runtime.get(row.id)
        await run.resume()
        state = await runs.until_state(run, lambda state: state.doubts)
        (call,) = state.doubts
        assert state.doubts[call].name == "count_held"
        await run.resolve(call, "happened", result=1000)
        assert await runs.result(run) == "Done."


HELD = """
import asyncio, pathlib, sys
from checkrein import Runtime, tool
from tests.support import runs
from tests.support.abort_tools import count_held
from tests.support.witness import Witness

async def main(log, store):
    count = tool(count_held.function, on_pause="hold")
    churn = runs.agent([runs.calls(("count_held", {"log": log, "file": f"{log}.go"})), "Done."], [count])
    async with Runtime(store, agents=[churn]) as runtime:
        run = await runtime.start(churn, "Go.")
        await Witness(log).saw("tick", times=3)
        await run.pause()
        pathlib.Path(log).with_name("held").touch()
        await asyncio.sleep(60)

if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
"""


async def test_every_call_of_a_paused_run_can_be_looked_at(runtime: Runtime, witness: Witness) -> None:
    """D31: what it asked for, with which arguments, and what came of it, all from the journal."""
    churn = runs.agent(
        [runs.calls(("draft", {"log": witness.log})), runs.calls(("work", runs.until_let(witness))), "Done."],
        [draft, work],
    )
    run = await runs.paused_at_work(runtime, churn, witness)

    started = [event for event in await runs.events(runtime, run, CallStarted) if event.kind is CallKind.TOOL]

    assert [event.name for event in started] == ["draft", "work"]
    assert all(witness.log.encode() in bytes(event.arguments or b"") for event in started)
    await run.cancel()
