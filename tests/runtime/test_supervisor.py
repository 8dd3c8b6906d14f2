"""The supervisor: when a runtime dies or hangs, nothing of it goes on."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psutil
import pytest

from checkrein.runtime.supervisor import Supervisor
from tests.runtime import tools
from tests.runtime.witness import Witness, is_alive, until

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]

RUNTIME = """
import asyncio, os, sys, time
from pathlib import Path
import msgspec
from checkrein.runtime.stage import Stage
from checkrein.runtime.supervisor import Supervisor
from tests.runtime import tools
from tests.runtime.witness import note

log, folder, body = sys.argv[1:]

async def main():
    async with Stage(Path(folder)) as stage:
        supervisor = await Supervisor.start(stage.runtime)
        note(log, f"supervisor {supervisor.pid}")
        start = lambda tool, name, **more: stage.start(
            tool, msgspec.json.encode({"log": log, **more}), id=name, key=f"run/{name}")
        exec("async def body():\\n    " + body.replace("\\n", "\\n    "), globals() | locals(), found := {})
        await found["body"]()
        await supervisor.close()

if __name__ == "__main__":
    asyncio.run(main())
"""

Launch = Callable[[str], subprocess.Popen[bytes]]


@pytest.fixture
async def launch(tmp_path: Path, witness: Witness) -> AsyncIterator[Launch]:
    """Start a runtime in a process of its own; afterwards nothing of it may be left."""
    started: list[subprocess.Popen[bytes]] = []
    script = tmp_path / "runtime.py"
    script.write_text(RUNTIME)

    def begin(body: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(script), witness.log, str(tmp_path / "calls"), body]
        started.append(subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.wait()
    await until(lambda: not any(is_alive(line.pid) for line in witness.lines()))
    await until(lambda: not any(is_alive(pid) for pid in supervisors(witness)))


def supervisors(witness: Witness) -> list[int]:
    return [int(word.split()[1]) for word in witness.words() if word.startswith("supervisor ")]


BUSY = """
start(tools.start_everything, "c1")
start(tools.crunch, "c2")
start(tools.start_children_async, "c3")
await asyncio.sleep(600)
"""


async def test_kill_9_of_a_runtime_ends_every_process_of_its_tools(launch, witness):
    """D2, D4: setsid children, daemons, children of async tools, a tool in C code, and below a worker also those that
    carry no mark."""
    runtime = launch(BUSY)
    await witness.saw("begun", *tools.EVERYTHING, *tools.ASYNC_CHILDREN)

    runtime.send_signal(signal.SIGKILL)

    await until(lambda: not any(is_alive(line.pid) for line in witness.lines()))
    assert await witness.is_quiet()
    await until(lambda: not is_alive(supervisors(witness)[0]))


async def test_ctrl_c_does_not_reach_the_supervisor(launch, witness):
    runtime = launch('start(tools.tick, "c1")\nawait asyncio.sleep(600)')
    await witness.saw("tick")
    [pid] = supervisors(witness)
    assert os.getpgid(pid) == os.getsid(pid) == pid

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(pid, number)
    await asyncio.sleep(0.2)

    assert is_alive(pid)
    runtime.send_signal(signal.SIGKILL)
    await until(lambda: not is_alive(witness.lines("tick")[0].pid))


async def test_the_death_of_a_runtime_is_noticed_while_a_fork_of_it_lives_on(launch, witness):
    """The fork holds the other end of the socket, so its closing would never be seen."""
    body = """
start(tools.tick, "c1")
if os.fork() == 0:
    time.sleep(5)
    os._exit(0)
await asyncio.sleep(600)
"""
    runtime = launch(body)
    await witness.saw("tick")
    began = time.monotonic()

    runtime.send_signal(signal.SIGKILL)

    await until(lambda: not is_alive(witness.lines("tick")[0].pid))
    assert time.monotonic() - began < 4


async def test_a_blocked_event_loop_is_killed_when_the_watchdog_is_armed(launch, witness):
    """A driver wedged in user code: the stop does not depend on its event loop."""
    body = """
start(tools.tick, "c1")
while not os.path.exists(log):
    await asyncio.sleep(0.01)
async with supervisor.watchdog(0.5):
    await asyncio.sleep(1)
    note(log, "blocked")
    time.sleep(600)
"""
    runtime = launch(body)
    await witness.saw("tick", "blocked")

    assert await asyncio.to_thread(runtime.wait, 20) == -signal.SIGKILL

    await until(lambda: not is_alive(witness.lines("tick")[0].pid))
    assert await witness.is_quiet()


async def test_a_blocked_event_loop_is_left_alone_when_the_watchdog_is_not_armed(launch, witness):
    body = """
async with supervisor.watchdog(0.3):
    await asyncio.sleep(0.5)
time.sleep(1)
note(log, "still here")
"""
    runtime = launch(body)

    assert await asyncio.to_thread(runtime.wait, 20) == 0

    assert "still here" in witness.words()


async def test_after_a_clean_end_the_supervisor_is_gone_too(launch, witness):
    runtime = launch('note(log, "over")')

    assert await asyncio.to_thread(runtime.wait, 20) == 0

    assert not is_alive(supervisors(witness)[0])


async def test_processes_of_another_runtime_are_left_alone(launch, witness):
    """D26."""
    env = {**os.environ, "CHECKREIN_RUNTIME": "somebody-else"}
    bystander = await asyncio.to_thread(subprocess.Popen, tools.ticker(witness.log, "bystander"), env=env)
    runtime = launch('start(tools.tick, "c1")\nawait asyncio.sleep(600)')
    await witness.saw("tick", "bystander")

    runtime.send_signal(signal.SIGKILL)
    await until(lambda: not is_alive(supervisors(witness)[0]))

    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()


async def test_a_supervisor_that_is_killed_is_replaced():
    supervisor = await Supervisor.start("r1")
    first = supervisor.pid
    assert first is not None

    os.kill(first, signal.SIGKILL)
    await until(lambda: supervisor.pid not in (None, first))

    assert not is_alive(first)
    assert is_alive(supervisor.pid or 0)
    await supervisor.close()
    assert supervisor.pid is None


async def test_it_is_small():
    supervisor = await Supervisor.start("r2")

    memory = psutil.Process(supervisor.pid).memory_info().rss

    assert memory < 25_000_000
    await supervisor.close()


async def test_a_worker_whose_runtime_dies_without_a_supervisor_ends_by_itself(launch, witness):
    """The second line: slower, and not for a tool that is stuck in C code."""
    runtime = launch('start(tools.tick, "c1")\nawait asyncio.sleep(600)')
    await witness.saw("tick")
    os.kill(supervisors(witness)[0], signal.SIGSTOP)

    runtime.send_signal(signal.SIGKILL)

    await until(lambda: not is_alive(witness.lines("tick")[0].pid))
    os.kill(supervisors(witness)[0], signal.SIGKILL)


async def test_a_runtime_does_not_outlive_the_process_it_belongs_to(launch: Launch, witness: Witness) -> None:
    """It has a moment to end by itself; blocked as it is, it is ended from outside, and its tools with it."""
    process = launch(
        "import subprocess\n"
        "from checkrein.runtime import table\n"
        "parent = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "supervisor.end_with(table.row(parent.pid), grace_seconds=0.5)\n"
        "start(tools.crunch, 'c1')\n"
        "while not any('begun' in line for line in open(log)): await asyncio.sleep(0.02)\n"
        "parent.kill()\n"
        "parent.wait()\n"
        "time.sleep(600)\n"
    )

    code = await asyncio.to_thread(process.wait, 30)

    assert code == -signal.SIGKILL
    assert witness.words()
    await until(lambda: not any(is_alive(line.pid) for line in witness.lines()))
