"""Runs that nobody drives: what whoever stops them does without a driver."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from checkrein import Runtime
from checkrein.processes import table
from tests.support.patience import PATIENCE_SECONDS
from tests.support.witness import Witness, is_alive, until

pytestmark = pytest.mark.anyio

DRIVER = """
import asyncio, sys
from checkrein import Agent, Runtime, tool
from checkrein.models import ScriptedModel, Turn
from tests.support import tools

store, log, name = sys.argv[1:]
turns = [Turn("Go.", calls=[(name, {"log": log})]), "Done."]
agent = Agent("k", model=ScriptedModel(turns), tools=[tool(getattr(tools, name))])

async def main():
    async with Runtime(store, agents=[agent], lease_seconds=1.0) as runtime:
        run = await runtime.start(agent, "Go.")
        print(run.id, flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


class Driver:
    """A process that drives one run, whose tool works in a worker process."""

    def __init__(self, store: str, witness: Witness, tool: str) -> None:
        command = [sys.executable, "-c", DRIVER, store, witness.log, tool]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._output = self._process.stdout
        self.run = self._output.readline().strip()

    def processes(self) -> list[int]:
        """Itself, its supervisor and its workers."""
        return [self._process.pid, *(child.pid for child in table.children(self._process.pid))]

    def send(self, number: int, pids: list[int]) -> None:
        for pid in pids:
            if is_alive(pid):
                os.kill(pid, number)

    def end(self) -> None:
        self.send(signal.SIGKILL, self.processes()[::-1])
        self._process.wait()
        self._output.close()


@pytest.fixture
def drive(store: str, witness: Witness) -> Iterator[Callable[[str], Driver]]:
    begun: list[Driver] = []

    def begin(tool: str) -> Driver:
        begun.append(Driver(store, witness, tool))
        return begun[-1]

    yield begin
    for driver in begun:
        driver.end()


async def test_a_cancel_ends_the_tools_of_a_process_that_stands_still(
    store: str, witness: Witness, drive: Callable[[str], Driver]
) -> None:
    """Its event loop, its supervisor and its lease are of no use: the tool's worker would go on, on the same host."""
    driver = drive("tick")
    await witness.saw("tick")
    worker = witness.lines()[0].pid
    frozen = [pid for pid in driver.processes() if pid != worker]
    driver.send(signal.SIGSTOP, frozen)

    async with Runtime(store) as runtime:
        await (await runtime.get(driver.run)).cancel(wait=PATIENCE_SECONDS)

    await until(lambda: not is_alive(worker))
    assert await witness.is_quiet()
    assert all(is_alive(pid) for pid in frozen), "nobody else has done it"


async def test_a_cancel_ends_what_is_left_of_a_process_that_was_killed_with_all_its_helpers(
    store: str, witness: Witness, drive: Callable[[str], Driver]
) -> None:
    """A daemon without environment or parent: neither its worker nor its runtime nor the supervisor lives any more."""
    driver = drive("flee")
    await witness.saw("fled")
    everybody = driver.processes()
    driver.send(signal.SIGSTOP, everybody)
    driver.send(signal.SIGKILL, everybody)
    await witness.saw("fled", times=len(witness.lines()) + 3)

    async with Runtime(store) as runtime:
        await (await runtime.get(driver.run)).cancel(wait=PATIENCE_SECONDS)

    assert await witness.is_quiet()


async def test_a_supervisor_ends_a_daemon_without_environment_of_a_runtime_and_a_worker_that_were_killed(
    witness: Witness, drive: Callable[[str], Driver]
) -> None:
    driver = drive("flee")
    await witness.saw("fled")
    await until(lambda: any(line.word.startswith("worker ") for line in witness.lines()))
    worker = next(int(line.word.split()[1]) for line in witness.lines() if line.word.startswith("worker "))
    daemon = witness.lines("fled")[0].pid

    driver.send(signal.SIGKILL, [worker, driver.processes()[0]])

    await until(lambda: not is_alive(daemon))
