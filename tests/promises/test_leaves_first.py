"""What a sub-run has done is undone before what its parent has, also when the driver dies in the middle of that."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from checkrein import Agent, Runtime
from checkrein.control.control import Control
from checkrein.core.enums import Status
from checkrein.core.events import RunStarted
from checkrein.core.receipts import Receipt
from checkrein.journal import open_journal
from checkrein.journal.base import Journal
from checkrein.models import ScriptedModel, Turn
from checkrein.processes.identity import this_process
from tests.support import runs
from tests.support.abort_tools import draft, slow_draft, work
from tests.support.patience import PATIENCE_SECONDS
from tests.support.witness import Witness

pytestmark = pytest.mark.anyio


def boss(log: str, let: str) -> Agent:
    """Makes a draft, and hands work to a helper that makes another one, whose undo takes until there is a file."""
    leaf = {"log": log, "let": let, "what": "leaf"}
    helper = Agent(
        "helper",
        model=ScriptedModel([Turn("Go.", calls=[("slow_draft", leaf)]), Turn("Go.", calls=[("work", {"log": log})])]),
        tools=[slow_draft, work],
    )
    parent = {"log": log, "what": "PARENT"}
    turns = [Turn("Go.", calls=[("draft", parent)]), Turn("Help.", calls=[("helper", {"goal": "work"})])]
    return Agent("boss", model=ScriptedModel(turns), tools=[draft, helper])


PROGRAM = """
import asyncio, sys
from checkrein import Runtime
from tests.promises.test_leaves_first import boss

async def main(store, log, let):
    async with Runtime(store) as runtime:
        run = await runtime.start(boss(log, let), "lead")
        await run.result()

asyncio.run(main(*sys.argv[1:]))
"""


async def the_parent(journal: Journal) -> str:
    return next(row.id for row in await journal.runs() if row.parent is None)


async def cancelled_and_killed(store: str, witness: Witness, let: Path) -> str:
    """A run that is being cancelled, whose driver was killed in the middle of the undo of its sub-run."""
    async with runs.program(let.parent, PROGRAM, store, witness.log, str(let)) as process:
        await witness.saw("work")
        async with await open_journal(store) as journal:
            run = await the_parent(journal)
            await Control(journal, this_process()).cancel(run, by="ann", wait=0)
            await witness.saw("begin undo leaf")
            process.send_signal(signal.SIGKILL)
            await asyncio.to_thread(process.wait)
    return run


async def times_taken_up(journal: Journal, run: str) -> int:
    return sum(isinstance(record.event, RunStarted) for record in await journal.read(run))


async def test_a_driver_killed_in_the_undo_of_a_leaf_does_not_turn_the_order_round(
    store: str, witness: Witness, tmp_path: Path
) -> None:
    let = tmp_path / "let"
    run = await cancelled_and_killed(store, witness, let)

    async with Runtime(store, agents=[boss(witness.log, str(let))]) as runtime:
        await witness.saw("begin undo leaf", times=2)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await times_taken_up(runtime.journal, run) < 2:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.5)  # the time in which a parent that does not wait is undone
        assert (await runtime.journal.load(run)).status is Status.CANCELLING
        let.touch()
        receipt = await runtime.control.cancel(run, by="ann", wait=PATIENCE_SECONDS)

        assert isinstance(receipt, Receipt)
        undos = [word for word in witness.words() if word.startswith("undo")]
        assert undos == ["undo leaf", "undo PARENT"]
        assert {row.status for row in await runtime.journal.runs()} == {Status.CANCELLED}
