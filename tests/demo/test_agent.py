"""The demo's agent on a real runtime. The witness is the tools' own log, the folder and the process table."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from checkrein import Agent, Receipt, Runtime
from checkrein.control.control import Control
from checkrein.core.enums import EffectState, Outcome, Status
from checkrein.demo import GOAL, agent, data
from checkrein.demo.model import think
from checkrein.demo.tools import locks
from checkrein.journal import open_journal
from checkrein.models import ScriptedModel
from checkrein.processes.identity import this_process
from examples.tour.acts import ROOT
from examples.tour.live import children
from tests.demo.looking import drafts, log, memo, sent, times, until
from tests.support.patience import PATIENCE_SECONDS
from tests.support.runs import asked

pytestmark = pytest.mark.anyio

SLOW = 0.7
"""Some eight seconds of scoring: time enough to stop it in the middle, also on a busy machine."""


def slow(folder: Path) -> Agent:
    """The demo's agent, whose tools take their time and whose model does not."""
    made = agent(folder, pace=SLOW)
    made.model = ScriptedModel(lambda request: think(request, folder, SLOW), name="scripted:churn")
    return made


async def test_it_completes_with_a_memo_that_names_real_customers(runtime: Runtime, folder: Path) -> None:
    leaving = {customer.name for customer in data.customers() if customer.leaves}

    run = await runtime.start(agent(folder, pace=0), GOAL)
    answer = await run.result()

    named = {line.split("|")[1].strip() for line in memo(folder).splitlines() if " € |" in line}
    assert len(named) >= 10
    assert len(named & leaving) >= 0.8 * len(named)
    assert any(name in answer for name in named)
    assert locks(folder) == 0
    assert len(drafts(folder)) == 1
    assert sent(folder) == []


async def test_it_walks_through_the_four_steps_of_its_plan(runtime: Runtime, folder: Path) -> None:
    """D19 D24"""
    run = await runtime.start(agent(folder, pace=0), GOAL)
    await run.result()

    state = await run.state()
    assert state.plan == ("Fetch customer list", "Join against MRR table", "Score churn risk", "Write summary memo")
    assert state.steps_finished == 4


async def test_it_shows_its_caps(folder: Path) -> None:
    """D9 D25 D36"""
    assert agent(folder).stop_when is not None
    assert agent(folder).stop_when.label == "Turns(20) | Cost(1) | Elapsed(600)"  # type: ignore[union-attr]


async def test_a_cancel_while_it_scores_ends_tool_and_child_and_undoes_draft_and_lock(
    runtime: Runtime, folder: Path
) -> None:
    """D1 D2 D4 D22 D26 D33"""
    run = await runtime.start(slow(folder), GOAL)
    await until(lambda: times(folder, "scored") > 0)
    assert (len(children(folder)), len(drafts(folder)), locks(folder)) == (1, 1, 1)

    clicked_at = time.time()
    receipt = await run.cancel(reason="wrong path")

    assert isinstance(receipt, Receipt)
    assert [(call.name, call.now) for call in receipt.calls] == [("score_churn", Outcome.KILLED)]
    assert {effect.what for effect in receipt.effects if effect.now is EffectState.UNDONE} == {
        "the e-mail draft",
        "the lock on the revenue table",
    }
    assert (children(folder), drafts(folder), locks(folder)) == ([], [], 0)
    stopped_at = clicked_at + (receipt.timing_ms.calls_stopped or 0) / 1000
    await asyncio.sleep(SLOW * 1.5)
    late = [entry.what for entry in data.entries(folder) if entry.at > stopped_at]
    assert late == ["undo: draft discarded", "undo: lock released"], "newest first, and nothing else"


async def test_a_redirect_is_honoured_and_finished_work_is_kept(runtime: Runtime, folder: Path) -> None:
    """D21 D38"""
    run = await runtime.start(slow(folder), GOAL)
    await until(lambda: times(folder, "scored") > 0)

    receipt = await run.redirect("only customers in Germany")
    answer = await run.result()

    assert isinstance(receipt, Receipt)
    assert receipt.delivered is True
    german = {customer.name for customer in data.customers() if customer.country == "Germany"}
    named = {line.split("|")[1].strip() for line in memo(folder).splitlines() if " € |" in line}
    assert named
    assert named <= german
    assert "customers in Germany" in answer
    assert [times(folder, what) for what in ("fetched", "lock taken", "joined", "draft made")] == [1, 1, 1, 1]


async def test_a_pause_freezes_the_scoring_and_resume_goes_on_in_the_middle(runtime: Runtime, folder: Path) -> None:
    """D20 D23 D28"""
    run = await runtime.start(slow(folder), GOAL)
    await until(lambda: times(folder, "scored") > 0)

    receipt = await run.pause()
    done = log(folder)
    await asyncio.sleep(0.5)

    assert isinstance(receipt, Receipt)
    assert [(call.name, call.now) for call in receipt.calls] == [("score_churn", "held")]
    assert log(folder) == done
    await run.resume()
    await until(lambda: times(folder, "scored") > sum("scored" in line for line in done) + 1)
    assert times(folder, "scoring begins") == 1
    assert times(folder, "scored 20 of 240") == 1
    await run.cancel()


async def test_a_side_question_is_answered_while_it_works(runtime: Runtime, folder: Path) -> None:
    run = await runtime.start(slow(folder), GOAL)
    await until(lambda: times(folder, "scored") > 0)

    answer = await run.ask("How far are you?")

    assert "fetched 240 customers" in answer
    assert "not yet scored" in answer
    assert len(children(folder)) == 1, "the run goes on meanwhile"
    await run.cancel()


async def test_the_next_run_of_the_thread_does_again_only_what_was_undone(runtime: Runtime, folder: Path) -> None:
    """D6"""
    first = await runtime.start(slow(folder), GOAL, thread="t")
    await until(lambda: times(folder, "scored") > 0)
    await first.cancel()
    same_agent = runtime._programs["churn"]

    second = await runtime.start(same_agent, "Continue from here, only Q3.", thread="t")
    await until(lambda: times(folder, "scoring begins") == 2)
    await second.redirect("summarise and stop")
    answer = await second.result()

    assert "not yet scored customers whose contract ends in Q3" in answer
    assert (times(folder, "fetched"), times(folder, "joined")) == (1, 1)
    assert (times(folder, "lock taken"), times(folder, "draft made")) == (2, 2)
    assert locks(folder) == 0


async def test_an_e_mail_waits_for_a_person_and_goes_out_once(runtime: Runtime, folder: Path) -> None:
    """D34 D37"""
    run = await runtime.start(agent(folder, pace=0), f"{GOAL} Send it to the account team.")
    call = await asked(run)
    assert sent(folder) == []

    await run.approve(call)
    answer = await run.result()

    assert "is sent" in answer
    assert len(sent(folder)) == 1
    assert "look likely to leave" in sent(folder)[0]
    assert times(folder, "E-MAIL SENT") == 1


async def test_an_e_mail_that_is_denied_stays_a_draft(runtime: Runtime, folder: Path) -> None:
    run = await runtime.start(agent(folder, pace=0), f"{GOAL} Send it to the account team.")
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (await run.state()).approvals:
            await asyncio.sleep(0.01)
    (call,) = (await run.state()).approvals

    await run.deny(call)
    answer = await run.result()

    assert "You declined the e-mail" in answer
    assert sent(folder) == []
    assert len(drafts(folder)) == 1
    assert locks(folder) == 0


async def test_after_kill_9_a_new_process_goes_on_and_repeats_nothing(folder: Path, store: str) -> None:
    """D29 D30: paused in one process, killed, resumed in another."""
    command = [sys.executable, "-m", "examples.tour.drive", store, str(folder), "0.2", GOAL]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout as out:
        run_id = out.readline().strip()
        await until(lambda: times(folder, "scored") > 0)
        async with await open_journal(store) as journal:
            await Control(journal, this_process()).pause(run_id, by="test")
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    await until(lambda: children(folder) == [])

    async with Runtime(store, agents=[agent(folder, pace=0)]) as runtime:
        run = await runtime.get(run_id)
        assert (await run.state()).status is Status.PAUSED
        await run.resume()
        await run.result()

    done = [times(folder, what) for what in ("fetched", "lock taken", "joined", "draft made", "memo written")]
    assert done == [1, 1, 1, 1, 1]
    assert times(folder, "scoring begins") == 2, "it only reads, and says that it may be repeated"
    assert len(drafts(folder)) == 1
    assert locks(folder) == 0
