"""A fork of a process with a runtime does nothing of what that process does. Each is seen in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE_SECONDS
from tests.support.witness import Witness

BEGIN = """
import asyncio, multiprocessing, os, signal, sys, time
from pathlib import Path
from checkrein.calls.executor import ToolExecutor
from tests.support.witness import note

log, folder = sys.argv[1:3]
parent = os.getpid()

async def effect():
    note(log, "effect")

async def innocent():
    for _ in range(3):
        await asyncio.sleep(0)
    note(log, "innocent")

def run(tool, executor, id):
    return executor.start(tool, b"{}", id=id, key="run/" + id)
"""


def play(tmp_path: Path, script: str) -> Witness:
    """Run the script to its end; what it and its forks have done is in the log."""
    witness = Witness(tmp_path / "log")
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + script, witness.log, str(tmp_path / "calls")],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return witness


@pytest.mark.parametrize("leaves", ["return 2", "raise ValueError", "await asyncio.sleep(0)"])
def test_a_fork_that_comes_back_to_the_event_loop_ends_there(tmp_path, leaves):
    """It would perform the calls of other runs a second time."""
    witness = play(
        tmp_path,
        f"""
forks = []

async def forker():
    pid = os.fork()
    if pid == 0:
        note(log, "fork")
        {leaves}
        note(log, "fork goes on")
    forks.append(pid)
    await asyncio.to_thread(os.waitpid, pid, 0)

async def main():
    async with ToolExecutor(Path(folder)) as executor:
        calls = [run(forker, executor, "c0"), *(run(innocent, executor, f"c{{n}}") for n in range(1, 5))]
        for call in calls:
            await call.ended()
        await run(effect, executor, "c9").ended()
    note(log, "end")

asyncio.run(main())
""",
    )

    words = witness.words()
    assert words.count("fork") == 1
    assert (words.count("innocent"), words.count("effect"), words.count("end")) == (4, 1, 1)
    assert "fork goes on" not in words


def test_a_fork_in_a_thread_of_a_call_does_not_take_up_other_work_of_its_pool(tmp_path):
    witness = play(
        tmp_path,
        """
from concurrent.futures import ThreadPoolExecutor

pool = ThreadPoolExecutor(1)
pids = []

def fork():
    pid = os.fork()
    if pid:
        pids.append(pid)
        os.waitpid(pid, 0)

async def forker():
    loop = asyncio.get_running_loop()
    first = loop.run_in_executor(pool, fork)
    await asyncio.gather(first, loop.run_in_executor(pool, note, log, "work"))

async def main():
    async with ToolExecutor(Path(folder)) as executor:
        await run(forker, executor, "c0").ended()

asyncio.run(main())
""",
    )

    assert witness.words() == ["work"]


def test_a_sigterm_to_a_fork_does_not_reach_the_process_it_came_from(tmp_path):
    """`multiprocessing.Process.terminate`, and a pool that breaks: both share the pipe of the loop's signals."""
    witness = play(
        tmp_path,
        """
async def starts():
    process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
    process.start()
    process.terminate()
    await asyncio.to_thread(process.join)
    note(log, f"exit {process.exitcode}")

async def main():
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, note, log, "the driver was told to end")
    async with ToolExecutor(Path(folder)) as executor:
        ended = await run(starts, executor, "c0").ended()
        await asyncio.sleep(0.1)
        note(log, ended.outcome.value)

asyncio.run(main())
""",
    )

    assert witness.words() == ["exit -15", "completed"]


def test_a_call_is_not_recorded_as_failed_because_its_loop_is_torn_down(tmp_path):
    """`sys.exit` in a callback of another tool ends the loop: asyncio cancels everything, and nobody asked for that."""
    witness = play(
        tmp_path,
        """
async def works():
    note(log, "begun")
    await asyncio.sleep(600)

async def exits():
    asyncio.get_running_loop().call_soon(sys.exit, 0)
    await asyncio.sleep(600)

async def tell(call):
    ended = await asyncio.shield(call.ended())
    note(log, ended.outcome.value)

async def main():
    executor = ToolExecutor(Path(folder))
    await executor.__aenter__()
    call = run(works, executor, "c0")
    call._end.set = lambda ended: note(log, ended.outcome.value)
    while not os.path.exists(log):
        await asyncio.sleep(0.01)
    run(exits, executor, "c1")
    await asyncio.sleep(600)

asyncio.run(main())
""",
    )

    assert witness.words() == ["begun"]
