"""The operator's kill switch: everything in its scope ends, nothing is undone, and it stays latched."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from checkrein import Agent, Run, Runtime
from checkrein.control.halt import Halting
from checkrein.core.enums import Status, Verb
from checkrein.core.events import CallAnswered, CallStarted, RunFinished, VerbAccepted
from checkrein.errors import Fenced, MisuseError, Refused, RunNotFound
from checkrein.journal import open_journal
from checkrein.models import ScriptedModel, Turn
from checkrein.processes.identity import this_process
from tests.support import agent_tools
from tests.support.patience import PATIENCE_SECONDS
from tests.support.runs import events, until_status
from tests.support.text import words
from tests.support.witness import is_alive, until

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]


@pytest.fixture
async def halting(runtime: Runtime) -> Halting:
    return Halting(runtime.journal, this_process())


@pytest.fixture
async def elsewhere(store: str, runtime: Runtime) -> AsyncIterator[Halting]:
    """A kill switch that has nothing but the store in common with the runtime."""
    async with await open_journal(store) as journal:
        yield Halting(journal, this_process())


def busy(log: Path, name: str = "worker") -> Agent:
    """Makes a draft, which could be undone, and then works for long in a process with a child of its own."""
    turns = [
        Turn("First a draft.", calls=[("make_draft", {"log": str(log)})]),
        Turn("Now the work.", calls=[("crunch", {"log": str(log)})]),
        Turn("Done."),
    ]
    return Agent(name, model=ScriptedModel(turns), tools=[agent_tools.make_draft, agent_tools.crunch])


async def at_work(run: Run, log: Path) -> None:
    await until(lambda: "tick" in agent_tools.lines(log))


async def busy_run(runtime: Runtime, log: Path) -> Run:
    run = await runtime.start(busy(log), "work")
    await at_work(run, log)
    return run


async def is_quiet(log: Path) -> bool:
    before = agent_tools.lines(log)
    await asyncio.sleep(0.5)
    return agent_tools.lines(log) == before


def child_of(log: Path) -> int:
    return next(int(line.split()[1]) for line in agent_tools.lines(log) if line.startswith("child "))


async def test_a_halted_run_does_nothing_more_and_nothing_is_undone(
    runtime: Runtime, elsewhere: Halting, tmp_path: Path
) -> None:
    """D35: from another process's connection; the tool's own log and the process table are the witnesses."""
    log = tmp_path / "log"
    run = await busy_run(runtime, log)

    halted = await elsewhere.halt("run", run.id, by="operator", reason="enough")

    assert [receipt.run for receipt in halted.receipts] == [run.id]
    assert halted.receipts[0].verb is Verb.HALT
    assert (halted.missed, halted.unconfirmed) == ((), ())
    assert await is_quiet(log)
    assert not is_alive(child_of(log))
    assert not [line for line in agent_tools.lines(log) if line.startswith("discard")]
    assert (await run.state()).status is Status.KILLED


async def test_a_halt_of_an_agent_ends_all_its_runs_and_no_others(runtime: Runtime, halting: Halting, tmp_path: Path):
    logs = [tmp_path / name for name in ("one", "two", "other")]
    mine = [await runtime.start(busy(logs[0], "churn"), "work")]
    other = await runtime.start(busy(logs[2], "mail"), "work")
    await at_work(mine[0], logs[0])
    await at_work(other, logs[2])

    halted = await halting.halt("agent", "churn", by="operator")

    assert {receipt.run for receipt in halted.receipts} == {run.id for run in mine}
    assert await is_quiet(logs[0])
    assert (await other.state()).status is Status.RUNNING
    assert not await is_quiet(logs[2])
    await other.cancel()


async def test_a_halt_of_all_ends_running_paused_and_queued_runs(runtime: Runtime, halting: Halting, tmp_path: Path):
    log, other = tmp_path / "one", tmp_path / "two"
    worker = busy(log)
    running = await runtime.start(worker, "work", thread="t")
    await at_work(running, log)
    queued = await runtime.start(worker, "more work", thread="t")
    paused = await runtime.start(Agent("talker", model=ScriptedModel([words(500)], tokens_per_second=20)), "talk")
    await until_status(paused, Status.RUNNING)
    await paused.pause()

    halted = await halting.halt("all", by="operator")

    assert {receipt.run for receipt in halted.receipts} == {running.id, queued.id, paused.id}
    assert {(await run.state()).status for run in (running, queued, paused)} == {Status.KILLED}
    assert not other.exists()


async def test_a_halt_of_an_owner_spares_the_runs_of_others(runtime: Runtime, halting: Halting, tmp_path: Path):
    slow = Agent("talker", model=ScriptedModel(lambda _: Turn(words(500)), tokens_per_second=20))
    hers = await runtime.start(slow, "talk", owner="ada")
    his = await runtime.start(slow, "talk", owner="bob")
    await until_status(hers, Status.RUNNING)
    await until_status(his, Status.RUNNING)

    await halting.halt("owner", "ada", by="operator")

    assert (await hers.state()).status is Status.KILLED
    assert (await his.state()).status is Status.RUNNING
    await his.cancel()


async def test_a_halt_stays_latched_over_a_restart_until_it_is_reset(store: str, tmp_path: Path) -> None:
    """D35: nothing begins in its scope, and a reset resumes nothing by itself."""
    log = tmp_path / "log"
    async with Runtime(store) as runtime:
        run = await runtime.start(busy(log), "work")
        await at_work(run, log)
        await Halting(runtime.journal, this_process()).halt("agent", "worker", by="operator")
    written = len(agent_tools.lines(log))

    async with Runtime(store, agents=[busy(log)]) as runtime:
        halting = Halting(runtime.journal, this_process())
        with pytest.raises(Fenced):
            await runtime.start("worker", "again")
        lifted = await halting.reset("agent", "worker", by="olga")
        await asyncio.sleep(0.5)

        assert lifted.was_latched
        assert len(agent_tools.lines(log)) == written
        assert (await (await runtime.get(run.id)).state()).status is Status.KILLED
        assert not (await halting.reset("agent", "worker", by="olga")).was_latched
        again = await runtime.start("worker", "again")
        await until(lambda: len(agent_tools.lines(log)) > written)
        await again.cancel()


async def test_after_a_reset_a_person_may_have_undone_what_the_halt_left(runtime: Runtime, halting: Halting, tmp_path):
    log = tmp_path / "log"
    run = await busy_run(runtime, log)
    halted = await halting.halt("agent", "worker", by="operator")
    draft = next(effect for effect in halted.receipts[0].effects if effect.what == "make_draft")

    await halting.reset("agent", "worker", by="olga")
    await run.retry_undo(draft.id)

    await until(lambda: "discard draft-7" in agent_tools.lines(log))


async def test_what_a_run_delegated_is_halted_with_it(runtime: Runtime, halting: Halting, tmp_path: Path) -> None:
    log = tmp_path / "log"
    helper = busy(log, "helper")
    boss = Agent("boss", model=ScriptedModel([Turn("Help.", calls=[("helper", {"goal": "work"})])]), tools=[helper])
    run = await runtime.start(boss, "lead")
    await at_work(run, log)

    halted = await halting.halt("run", run.id, by="operator")

    assert len(halted.receipts) == 2
    assert await is_quiet(log)
    assert {row.status for row in await runtime.journal.runs()} == {Status.KILLED}


async def test_no_permit_follows_a_halt_and_the_former_owner_answers_for_its_calls(
    runtime: Runtime, halting: Halting, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    run = await busy_run(runtime, log)

    await halting.halt("run", run.id, by="operator", reason="enough")

    records = await runtime.journal.read(run.id)
    at = next(record.seq for record in records if isinstance(record.event, VerbAccepted))
    assert not [record for record in records if isinstance(record.event, CallStarted) and record.seq > at]
    assert [event.status for event in await events(runtime, run, RunFinished)] == [Status.KILLED]
    assert len(await events(runtime, run, CallAnswered)) == 1
    assert await runtime.journal.verify(run.id) == len(records)


async def test_halting_again_changes_nothing_and_says_so(runtime: Runtime, halting: Halting, tmp_path: Path) -> None:
    log = tmp_path / "log"
    run = await busy_run(runtime, log)
    await halting.halt("run", run.id, by="operator", reason="first")
    seq = (await run.state()).seq

    again = await halting.halt("run", run.id, by="operator", reason="second")

    assert again.receipts == ()
    assert again.reason == "first"
    assert (await run.state()).seq == seq


async def test_a_verb_on_a_halted_run_is_refused_and_told_why(runtime: Runtime, halting: Halting, tmp_path: Path):
    log = tmp_path / "log"
    run = await busy_run(runtime, log)
    await halting.halt("run", run.id, by="operator")

    with pytest.raises(Refused) as refused:
        await run.resume()

    assert refused.value.status is Status.KILLED


async def test_a_scope_that_cannot_be_meant_is_refused_and_latches_nothing(runtime: Runtime, halting: Halting) -> None:
    with pytest.raises(MisuseError):
        await halting.halt("everything", by="operator")
    with pytest.raises(MisuseError):
        await halting.halt("agent", by="operator")
    with pytest.raises(MisuseError):
        await halting.halt("all", "me", by="operator")
    with pytest.raises(RunNotFound):
        await halting.halt("run", "r-none", by="operator")

    assert await runtime.journal.fences() == ()


WEDGED = """
import asyncio, sys, time
from checkrein import Agent, Runtime, tool
from checkrein.models import ScriptedModel, Turn
from tests.support.agent_tools import note

@tool(effect="none")
async def wedge(log: str) -> str:
    "Blocks the event loop."
    for _ in range(600):
        note(log, "tick")
        time.sleep(0.1)
    return "done"

async def main(store, log):
    agent = Agent("wedged", model=ScriptedModel([Turn("Go.", calls=[("wedge", {"log": log})]), "Done."]), tools=[wedge])
    async with Runtime(store) as runtime:
        run = await runtime.start(agent, "block")
        print(run.id, flush=True)
        await run.result()

asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_driver_whose_event_loop_is_blocked_ends_itself_after_a_halt(store: str, tmp_path: Path) -> None:
    """D16, D35."""
    log, program = tmp_path / "log", tmp_path / "wedged.py"
    program.write_text(WEDGED)
    driver = subprocess.Popen(
        [sys.executable, str(program), store, str(log)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert driver.stdout is not None
        run = (await asyncio.to_thread(driver.stdout.readline)).strip()
        await until(lambda: "tick" in agent_tools.lines(log))
        async with await open_journal(store) as journal:
            halted = await Halting(journal, this_process()).halt("all", by="operator", wait=0)

            assert [receipt.run for receipt in halted.receipts] == [run]
            assert halted.unconfirmed == (run,)
            await asyncio.to_thread(driver.wait, PATIENCE_SECONDS)
        assert await is_quiet(log)
    finally:
        driver.kill()
        driver.communicate()
