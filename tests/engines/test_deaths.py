"""A run that ends the process that drives it. The witnesses are the exit codes, and a log that the calls write."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from checkrein import Runtime
from checkrein.core.enums import Status
from checkrein.core.state import State
from checkrein.engines.dispatcher import Dispatcher
from checkrein.engines.suspects import DEATHS, Suspects
from checkrein.journal import open_journal
from checkrein.journal.memory import MemoryJournal
from tests.support.driver_harness import owner
from tests.support.patience import PATIENCE_SECONDS
from tests.support.witness import Witness

pytestmark = pytest.mark.anyio

AGENTS = '''
import asyncio, os, sys
from checkrein import Context, Runtime, agent
from tests.support.witness import note

STORE, LOG = sys.argv[1:3]

async def draft(log):
    note(log, "draft")

def discard(call):
    note(call.arguments["log"], "discard")

async def words():
    yield "word"

async def tick(log, n):
    note(log, f"tick {n}")

@agent(name="killer")
async def killer(ctx: Context, log: str) -> None:
    await ctx.call(draft, log, undo=discard)
    await ctx.stream(words)  # its permit is recorded only after what the call before has done
    note(log, "dies")
    os._exit(9)

@agent(name="patient")
async def patient(ctx: Context, log: str) -> str:
    """Makes no progress of its own for as long as it is not let: it looks as suspicious as the other one."""
    await ctx.call(tick, log, 1)
    note(log, "waits")
    while not os.path.exists(f"{log}.go"):
        await asyncio.sleep(0.01)
    await ctx.call(tick, log, 2)
    return "done"

async def main():
    async with Runtime(STORE, agents=[killer, patient]) as runtime:
        for name in sys.argv[3:]:
            await runtime.start({"killer": killer, "patient": patient}[name], LOG)
        await asyncio.sleep(600)

if __name__ == "__main__":
    asyncio.run(main())
'''


class Process:
    """One process after the other that drives the runs of a store, until one of them lives."""

    def __init__(self, folder: Path) -> None:
        self.script = folder / "deadly.py"
        self.script.write_text(AGENTS)
        self.store = f"sqlite:///{folder}/runs.db"
        self.witness = Witness(folder / "log")
        self.codes: list[int] = []
        self._environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}

    def begin(self, *names: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(self.script), self.store, self.witness.log, *names]
        return subprocess.Popen(command, env=self._environment)

    async def live_until(self, process: subprocess.Popen[bytes], *statuses: Status) -> bool:
        """Whether the runs have come to these statuses; False when the process has died before."""
        async with await open_journal(self.store) as journal, asyncio.timeout(PATIENCE_SECONDS):
            while process.poll() is None:
                rows = await journal.runs()
                if sorted(row.status for row in rows) == sorted(statuses):
                    return True
                await asyncio.sleep(0.02)
        self.codes.append(process.returncode)
        return False

    async def states(self) -> dict[str, State]:
        async with await open_journal(self.store) as journal:
            return {row.agent: await journal.load(row.id) for row in await journal.runs()}


async def test_a_run_in_whose_hands_drivers_keep_dying_is_set_aside_and_its_neighbour_goes_on(tmp_path: Path) -> None:
    lives = Process(tmp_path)
    process = lives.begin("patient", "killer")
    try:
        while not await lives.live_until(process, Status.RUNNING, Status.PAUSED):
            assert len(lives.codes) <= 3 * DEATHS, "it is never set aside"
            process = lives.begin()

        states = await lives.states()
        assert set(lives.codes) == {9}
        assert len(lives.codes) >= DEATHS
        (waiting,) = states["killer"].waiting()
        assert waiting.kind == "driver_died"
        assert "resume" in waiting.remedy
        assert states["patient"].status is Status.RUNNING, "a neighbour is not set aside"

        Path(f"{lives.witness.log}.go").touch()
        assert await lives.live_until(process, Status.COMPLETED, Status.PAUSED)
        assert process.poll() is None
        assert len(lives.witness.lines("draft")) == 1
        assert len(lives.witness.lines("tick 2")) == 1
    finally:
        process.kill()
        process.wait()


async def test_a_run_that_ends_every_driver_can_be_cancelled_and_is_undone(tmp_path: Path) -> None:
    """It is not played again for that: the process that undoes it lives."""
    lives = Process(tmp_path)
    process = lives.begin("killer")
    assert not await lives.live_until(process, Status.CANCELLED)
    async with Runtime(lives.store) as runtime:
        (row,) = await runtime.runs()
        run = await runtime.get(row.id)
        await run.cancel(wait=0)

    process = lives.begin()
    try:
        assert await lives.live_until(process, Status.CANCELLED)
    finally:
        process.kill()
        process.wait()
    assert lives.witness.words() == ["draft", "dies", "discard"]


async def test_a_run_that_was_set_aside_is_played_again_when_a_person_resumes_it(tmp_path: Path) -> None:
    lives = Process(tmp_path)
    process = lives.begin("killer")
    while not await lives.live_until(process, Status.PAUSED):
        process = lives.begin()
    try:
        assert lives.codes == [9] * DEATHS
        deaths = len(lives.witness.lines("dies"))

        async with Runtime(lives.store) as runtime:
            (row,) = await runtime.runs()
            await (await runtime.get(row.id)).resume(wait=0)

        assert not await lives.live_until(process, Status.COMPLETED)
        assert len(lives.witness.lines("dies")) == deaths + 1
    finally:
        process.kill()
        process.wait()


def test_a_neighbour_is_not_blamed_for_a_death_at_which_it_was_not_there() -> None:
    """Both were in the hands of the third; the one that ends its driver was alone in those of the fourth."""
    suspects = Suspects()
    for run, deaths, taken_up_at, dead in (("neighbour", 2, 3.0, "third"), ("killer", 3, 4.0, "fourth")):
        state = State(
            run=run, agent="a", goal="", thread=run, status=Status.RUNNING, deaths=deaths, started_at=taken_up_at
        )
        suspects.add(state, owner(dead))

    killer, neighbour = suspects.take(), suspects.take()

    assert (killer.run, neighbour.run) == ("killer", "neighbour")
    assert suspects.is_guilty(killer)
    assert not suspects.is_guilty(neighbour)


async def test_a_run_that_changes_while_it_is_looked_at_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else would: a question to a run that is over, or paused, is heard of once."""
    dispatcher = Dispatcher(MemoryJournal(), owner("one"), {})
    looks: list[str] = []

    async def look(run: str) -> None:
        looks.append(run)
        if len(looks) == 1:
            await dispatcher.take_up(run)

    monkeypatch.setattr(dispatcher, "_take_up", look)
    await dispatcher.take_up("r")

    assert looks == ["r", "r"]
