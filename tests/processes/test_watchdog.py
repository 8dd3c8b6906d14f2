"""The watchdog: a process whose code never gives the interpreter back is ended when a stop waits for it.

Here in a person's own program, with the stop from another terminal; `tests/server/processes/test_wedges.py` has the
same under `checkrein serve`.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import AsyncMock

import pytest

from checkrein.control import control
from checkrein.control.control import Control
from checkrein.core.enums import Outcome, Status
from checkrein.core.events import CallFinished, VerbAccepted
from checkrein.journal import open_journal
from checkrein.journal.base import Journal
from checkrein.processes.identity import this_process
from checkrein.timings import WATCHDOG_GRACE_SECONDS as GRACE_SECONDS
from tests.cli.shell import Shell, Started
from tests.support.patience import PATIENCE_SECONDS, within
from tests.support.witness import Witness, is_alive, until

pytestmark = pytest.mark.anyio

CREW = Path(__file__).parents[1] / "server" / "processes" / "samples" / "crew.py"

PROGRAM = """
import asyncio, os, sqlite3, sys, time
import crew
from checkrein import Agent, Runtime, tool

@tool
async def lock() -> None:
    db = sqlite3.connect(".checkrein/runs.db", isolation_level=None, timeout=60)
    db.execute("BEGIN IMMEDIATE")
    crew.note("locked")
    time.sleep(600)

locker = Agent("locker", model=crew.turns(crew.Turn("I lock.", calls=[("lock", {})]), "Done."), tools=[lock])

async def main(*names):
    agents = {agent.name: agent for agent in (crew.worker, crew.talker, crew.hogger, crew.napper, locker)}
    async with Runtime(agents=list(agents.values())) as runtime:
        for name in names:
            run = await runtime.start(agents[name], "Do it.")
            while "first" not in open(os.environ["WITNESS"]).read():
                await asyncio.sleep(0.02)
            while name == "worker" and (await run.state()).usage.turns < 2:  # then its first call is recorded
                await asyncio.sleep(0.02)
        await asyncio.sleep(600)

asyncio.run(main(*sys.argv[1:]))
"""


Begin = Callable[..., Started]


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    opened = Shell(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def begin(shell: Shell) -> Iterator[Begin]:
    """Start the program in the shell's folder: it begins a run of each agent, and takes up what others have left."""
    started: list[Started] = []
    shutil.copy(CREW, shell.folder / "crew.py")
    (shell.folder / "program.py").write_text(PROGRAM)

    def start(*agents: str) -> Started:
        process = subprocess.Popen(
            [sys.executable, "program.py", *agents],
            cwd=shell.folder,
            env=shell.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert process.stdout is not None
        started.append(Started(process, os.dup(process.stdout.fileno())))
        process.stdout.close()
        return started[-1]

    yield start
    for one in started:
        one.close()


@pytest.mark.parametrize("agent", ["hogger", "napper"])
async def test_a_program_that_keeps_its_interpreter_is_killed_when_a_cancel_comes_from_another_terminal(
    shell: Shell, begin: Begin, agent: str
) -> None:
    """D2 D16: `sum(range(10**12))`, and `time.sleep`, in an async tool. The other runs are taken up again."""
    witness = Witness(shell.log)
    program = begin("worker", agent)
    await witness.saw("wedged")
    async with await open_journal(f"sqlite:///{shell.folder}/.checkrein/runs.db") as journal:
        wedged, beside = (row.id for row in await journal.runs())

        cancel = shell.start("cancel", wedged)
        await until(lambda: not is_alive(program.process.pid))
        died_at = time.time()

        (accepted,) = [r.event for r in await journal.read(wedged) if isinstance(r.event, VerbAccepted)]
        assert died_at - accepted.at < within(GRACE_SECONDS + 1)
        assert program.wait() == -signal.SIGKILL
        program.until("gave no heartbeat while a stop waited for it")
        cancel.wait()
        assert (await journal.load(wedged)).status is Status.CANCELLED
        ends = [r.event for r in await journal.read(wedged) if isinstance(r.event, CallFinished)]
        assert ends[-1].outcome is Outcome.IN_DOUBT

        assert (await journal.load(beside)).status is Status.RUNNING
        Path(f"{shell.log}.go").touch()  # now its model may come to an end
        begin()
        await witness.saw("second")
        assert [witness.words().count(word) for word in ("first", "wedged", "woke")] == [1, 1, 0]


async def test_a_blocked_program_finds_by_itself_that_a_stop_waits_which_was_accepted_on_another_host(
    shell: Shell, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody there can reach its supervisor: the thread that renews its leases reads of the stop."""
    monkeypatch.setattr(control, "tell_stop_waits", AsyncMock())
    program = begin("worker", "napper")
    await Witness(shell.log).saw("wedged")
    async with await open_journal(f"sqlite:///{shell.folder}/.checkrein/runs.db") as journal:
        wedged, _ = (row.id for row in await journal.runs())

        await Control(journal, this_process()).cancel(wedged, by="ann", wait=0)

        await until(lambda: not is_alive(program.process.pid))
        assert program.wait() == -signal.SIGKILL


async def test_a_program_that_stands_still_in_the_middle_of_a_commit_does_not_keep_a_stop_from_being_accepted(
    shell: Shell, begin: Begin
) -> None:
    """The store is locked until that process is gone, whichever run the stop is for."""
    first = begin("talker")
    async with await open_journal(f"sqlite:///{shell.folder}/.checkrein/runs.db") as journal:
        talker = await _running(journal, "talker")
        second = begin("locker")
        await Witness(shell.log).saw("locked")
        (locked,) = Witness(shell.log).lines("locked")  # both have the agent: either may have taken the run up

        cancel = shell.start("cancel", talker)

        await until(lambda: not is_alive(locked.pid))
        program = first if locked.pid == first.process.pid else second
        assert program.wait() == -signal.SIGKILL
        cancel.wait()
        assert (await journal.load(talker)).status is Status.CANCELLED


async def _running(journal: Journal, agent: str) -> str:
    """The id of that agent's run, once it is at work."""
    give_up = time.monotonic() + PATIENCE_SECONDS
    while not (rows := [row.id for row in await journal.runs(agent=agent) if row.status is Status.RUNNING]):
        assert time.monotonic() < give_up, f"no run of {agent} has begun"
        await asyncio.sleep(0.02)
    return rows[0]
