"""The supervisor: when a runtime dies or hangs, nothing of it goes on."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from checkrein.journal.base import Owner
from checkrein.processes.identity import this_process
from checkrein.processes.supervisor import Supervisor, tell_stop_waits
from checkrein.timings import WATCHDOG_GRACE_SECONDS as GRACE_SECONDS
from checkrein.timings import WATCHDOG_LIMIT_SECONDS as LIMIT_SECONDS
from tests.support import tools
from tests.support.patience import PATIENCE_SECONDS, within
from tests.support.witness import Witness, is_alive, until

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]

RUNTIME = """
import asyncio, os, sys, time
from pathlib import Path
import msgspec
from checkrein.calls.executor import ToolExecutor as Stage
from checkrein.processes.supervisor import Supervisor
from tests.support import tools
from tests.support.witness import note

log, folder, body = sys.argv[1:]

async def main():
    async with Stage(Path(folder)) as stage:
        supervisor = await Supervisor.start(stage.runtime)
        note(log, f"supervisor {supervisor.pid}")
        note(log, f"mark {stage.runtime}")
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
    note(log, "fork")
    time.sleep(300)
    os._exit(0)
await asyncio.sleep(600)
"""
    runtime = launch(body)
    await witness.saw("tick", "fork")
    [fork] = witness.lines("fork")

    runtime.send_signal(signal.SIGKILL)

    await until(lambda: not is_alive(witness.lines("tick")[0].pid))
    assert is_alive(fork.pid)
    os.kill(fork.pid, signal.SIGKILL)


def owner_of(runtime: subprocess.Popen[bytes], witness: Witness) -> Owner:
    """What a lease of this runtime says about it."""
    mark = next(word.split()[1] for word in witness.words() if word.startswith("mark "))
    return msgspec.structs.replace(this_process(), process=mark, pid=runtime.pid)


@pytest.mark.parametrize("block", ["time.sleep(600)", "sum(range(10**12))", "os.kill(os.getpid(), 19)"])
async def test_a_runtime_that_gives_no_heartbeat_is_killed_when_somebody_says_that_a_stop_waits(launch, witness, block):
    """Blocked in Python, in C code that keeps the interpreter, or frozen: the stop does not depend on the runtime."""
    body = f"""
start(tools.tick, "c1")
while "tick" not in open(log).read():
    await asyncio.sleep(0.01)
note(log, "blocked")
{block}
"""
    runtime = launch(body)
    await witness.saw("blocked")

    await is_killed_for_a_stop(runtime, witness, GRACE_SECONDS)

    await until(lambda: not is_alive(witness.lines("tick")[0].pid))
    assert await witness.is_quiet()


@pytest.fixture
def crowd() -> Iterator[Callable[[], None]]:
    """A busy loop on the first processor, for two minutes at most; what is returned ends it."""
    program = "import time\nuntil = time.monotonic() + 120\nwhile time.monotonic() < until: pass"
    busy = subprocess.Popen([sys.executable, "-I", "-S", "-c", program])
    os.sched_setaffinity(busy.pid, {min(os.sched_getaffinity(0))})

    def end() -> None:
        busy.kill()
        busy.wait()

    yield end
    end()


STARVED = """
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
note(log, "starved")
while not os.path.exists(log + ".go"):
    pass
note(log, "still here")
"""
"""Its event loop always wants to run, beside the busy loop, and gets a processor for some thousandth of the time."""


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="only Linux tells how long a thread waited for a processor")
async def test_a_runtime_that_only_waits_for_a_processor_is_not_taken_for_one_that_hangs(launch, witness, crowd):
    runtime = launch(STARVED)
    await witness.saw("starved")

    await tell_stop_waits([owner_of(runtime, witness)])
    await asyncio.sleep(GRACE_SECONDS + 1.5)
    was_alive = is_alive(runtime.pid)
    Path(witness.log + ".go").touch()
    crowd()

    assert was_alive
    await is_left_alone(runtime, witness)


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="only Linux tells how long a thread waited for a processor")
async def test_a_stop_does_not_wait_for_ever_for_a_runtime_that_waits_for_a_processor(launch, witness, crowd):
    runtime = launch(STARVED)
    await witness.saw("starved")

    await is_killed_for_a_stop(runtime, witness, LIMIT_SECONDS)


async def test_a_runtime_that_blocks_only_after_it_has_heard_of_the_stop_is_killed_too(launch, witness):
    """A tool may well block when it is told to end."""
    body = """
supervisor.has_waiting_stop = lambda: note(log, "asked") or True
supervisor.stop_waits()
while open(log).read().count("asked") < 3:
    await asyncio.sleep(0.01)
time.sleep(600)
"""
    runtime = launch(body)

    assert await asyncio.to_thread(runtime.wait, PATIENCE_SECONDS) == -signal.SIGKILL


BLOCK_AND_GO_ON = f"""
time.sleep({GRACE_SECONDS + 1})
note(log, "still here")
"""


async def is_killed_for_a_stop(runtime, witness, seconds):
    """Told that a stop waits, the supervisor gives the runtime so many seconds, and no more than one besides."""
    await tell_stop_waits([owner_of(runtime, witness)])
    told_at = time.monotonic()
    await until(lambda: not is_alive(runtime.pid))

    assert time.monotonic() - told_at < within(seconds + 1)
    assert runtime.wait() == -signal.SIGKILL


async def is_left_alone(runtime, witness):
    assert await asyncio.to_thread(runtime.wait, PATIENCE_SECONDS) == 0
    assert "still here" in witness.words()


async def test_a_blocked_runtime_is_left_alone_when_no_stop_waits(launch, witness):
    runtime = launch(BLOCK_AND_GO_ON)

    await is_left_alone(runtime, witness)


async def test_a_runtime_is_left_alone_again_once_the_stop_is_carried_out(launch, witness):
    body = """
asked = []
supervisor.has_waiting_stop = lambda: asked.append(time.monotonic()) or len(asked) < 3
supervisor.stop_waits()
while not asked or time.monotonic() - asked[-1] < 3:
    await asyncio.sleep(0.01)
"""
    runtime = launch(body + BLOCK_AND_GO_ON)

    await is_left_alone(runtime, witness)


async def test_a_runtime_of_somebody_else_is_not_told(launch, witness):
    """D26: a process with the same number and another mark has nothing to do with it."""
    runtime = launch('note(log, "blocked")' + BLOCK_AND_GO_ON)
    await witness.saw("blocked")

    await tell_stop_waits([msgspec.structs.replace(owner_of(runtime, witness), process="another")])

    await is_left_alone(runtime, witness)


async def test_after_a_clean_end_the_supervisor_is_gone_too(launch, witness):
    runtime = launch('note(log, "over")')

    assert await asyncio.to_thread(runtime.wait, PATIENCE_SECONDS) == 0

    assert not is_alive(supervisors(witness)[0])


async def test_processes_of_another_runtime_are_left_alone(launch, witness):
    """D26."""
    env = {**os.environ, "CHECKREIN_RUNTIME": "somebody-else"}
    bystander = await asyncio.to_thread(subprocess.Popen, tools.ticker(witness.log, "bystander"), env=env)
    try:
        runtime = launch('start(tools.tick, "c1")\nawait asyncio.sleep(600)')
        await witness.saw("tick", "bystander")

        runtime.send_signal(signal.SIGKILL)
        await until(lambda: not is_alive(supervisors(witness)[0]))

        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


async def test_a_supervisor_that_is_killed_is_replaced():
    supervisor = await Supervisor.start(f"r-{uuid.uuid4().hex}")
    first = supervisor.pid
    assert first is not None

    os.kill(first, signal.SIGKILL)
    await until(lambda: supervisor.pid not in (None, first))

    assert not is_alive(first)
    assert is_alive(supervisor.pid or 0)
    await supervisor.close()
    assert supervisor.pid is None


async def test_it_is_small():
    supervisor = await Supervisor.start(f"r-{uuid.uuid4().hex}")

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
        "from checkrein.processes import table\n"
        "parent = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "supervisor.end_with(table.row(parent.pid), grace_seconds=0.5)\n"
        "start(tools.crunch, 'c1')\n"
        "while not any('begun' in line for line in open(log)): await asyncio.sleep(0.02)\n"
        "parent.kill()\n"
        "parent.wait()\n"
        "time.sleep(600)\n"
    )

    code = await asyncio.to_thread(process.wait, PATIENCE_SECONDS)

    assert code == -signal.SIGKILL
    assert witness.words()
    await until(lambda: not any(is_alive(line.pid) for line in witness.lines()))
