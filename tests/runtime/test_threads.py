"""`isolation="thread"`: stopped where the thread cooperates or runs Python, and honest about the rest."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from checkrein.core.words import Outcome
from checkrein.runtime.call import Aborted, current_call
from checkrein.runtime.interrupt import Interruptible
from tests.runtime import tools
from tests.runtime.witness import note, until

pytestmark = pytest.mark.anyio


async def test_a_closure_runs_in_a_thread_of_this_process(start):
    here = threading.get_ident()

    ended = await start(lambda: threading.get_ident() != here, _isolation="thread").ended()

    assert ended.result == b"true"


async def test_a_failure_carries_type_message_and_traceback(start):
    ended = await start(tools.fail, message="no", _isolation="thread").ended()

    assert (ended.outcome, ended.error) == (Outcome.FAILED, "ValueError: no")
    assert "tools.py" in ended.traceback


async def test_a_thread_that_runs_python_is_stopped_by_an_injected_exception(start, witness):
    """D2, D22."""
    performance = start(tools.tick, log=witness.log, _isolation="thread")
    await witness.saw("tick")

    assert await performance.abort() is Outcome.ABORTED

    assert await witness.is_quiet()


async def test_a_busy_loop_is_stopped_too(start, witness):
    performance = start(tools.loop_for_ever, log=witness.log, _isolation="thread")
    await witness.saw("begun")

    assert await performance.abort() is Outcome.ABORTED


async def test_a_checkpoint_stops_a_thread_that_catches_the_injected_exception(start, witness):
    def catches_once_and_heeds_checkpoints() -> None:
        caught = False
        while True:
            try:
                note(witness.log, "tick")
                time.sleep(0.02)
            except Aborted:
                caught = True
            if caught:
                current_call().checkpoint()

    performance = start(catches_once_and_heeds_checkpoints, _isolation="thread")
    await witness.saw("tick")

    assert await performance.abort() is Outcome.ABORTED
    assert await witness.is_quiet()


async def test_a_thread_in_a_blocking_call_is_detached_and_its_late_result_dropped(start, witness):
    """D15, D26: what cannot be stopped is said, and what it returns reaches nobody."""
    late = asyncio.Event()
    performance = start(tools.sleep, log=witness.log, seconds=1.5, _isolation="thread", _on_late_end=late.set)
    await witness.saw("begun")
    await asyncio.sleep(0.2)

    outcome = await performance.abort(grace_seconds=0.3)

    ended = await performance.ended()
    assert (outcome, ended.result) == (Outcome.DETACHED, None)
    assert ended.left == ("sleep in a thread",)
    assert "could not be stopped" in ended.error
    assert not late.is_set()
    async with asyncio.timeout(20):
        await late.wait()
    assert "done" not in witness.words()  # the exception was waiting for it when the call returned
    assert await performance.ended() is ended


async def test_a_detached_thread_starts_no_more_processes(start, witness):
    def starts_one_later() -> None:
        note(witness.log, "begun")
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            with contextlib.suppress(Aborted):
                time.sleep(0.05)
        try:
            subprocess.Popen(tools.ticker(witness.log, "child"))
        except PermissionError:
            note(witness.log, "refused")

    late = asyncio.Event()
    performance = start(starts_one_later, _isolation="thread", _on_late_end=late.set)
    await witness.saw("begun")
    await asyncio.sleep(0.1)

    assert await performance.abort(grace_seconds=0.2) is Outcome.DETACHED

    async with asyncio.timeout(20):
        await late.wait()
    assert "child" not in witness.words()


async def test_children_of_a_thread_end_with_it(start, witness):
    def starts_children() -> None:
        subprocess.Popen(tools.ticker(witness.log, "child"))
        subprocess.run(tools.ticker(witness.log, "waited for"), start_new_session=True, check=False)

    performance = start(starts_children, _isolation="thread")
    await witness.saw("child", "waited for")

    assert await performance.abort() is Outcome.ABORTED
    assert await witness.is_quiet()


async def test_hold_waits_at_the_next_checkpoint(start, witness):
    """D28: frozen where it says so itself, and not killed."""
    performance = start(tools.tick_at_checkpoints, log=witness.log, _isolation="thread")
    await witness.saw("tick")

    assert await performance.hold()

    assert await witness.is_quiet(seconds=0.5)
    seen = len(witness.lines())
    await performance.go_on()
    await witness.saw("tick", times=seen + 3)
    await performance.hold()
    assert await performance.abort() is Outcome.ABORTED


async def test_a_thread_that_comes_to_no_checkpoint_is_not_said_to_be_held(start, witness):
    performance = start(tools.tick, log=witness.log, _isolation="thread")
    await witness.saw("tick")

    assert not await performance.hold()

    await performance.abort()


# -- the injected exception


def test_a_thread_of_a_pool_never_gets_an_exception_that_was_meant_for_its_former_work():
    """Thousands of interruptions around the very end of a function."""
    wrong: list[BaseException] = []

    def between() -> None:
        try:
            for _ in range(50):
                len(str(time.monotonic()))
        except BaseException as error:
            wrong.append(error)

    with ThreadPoolExecutor(1) as pool:
        for number in range(1500):
            work = Interruptible(lambda: None)
            future = pool.submit(work.run, lambda: sum(range(50)))
            after = pool.submit(between)
            for _ in range(number % 7):
                work.stop()
            with contextlib.suppress(Aborted):
                assert future.result() == 1225
            after.result()

    assert wrong == []


def test_work_that_was_stopped_before_it_began_does_not_begin():
    ran = []
    work = Interruptible(lambda: None)

    work.stop()

    with pytest.raises(Aborted):
        work.run(lambda: ran.append(1))
    assert ran == []
    assert not work.has_begun


async def test_the_runtime_can_end_while_a_detached_thread_still_runs(tmp_path):
    """A daemon thread: it keeps neither the event loop nor the interpreter."""
    script = tmp_path / "script.py"
    script.write_text(
        "import asyncio, sys, time\n"
        "from pathlib import Path\n"
        "from checkrein.runtime.stage import Stage\n"
        "async def main():\n"
        "    async with Stage(Path(sys.argv[0]).parent / 'calls') as stage:\n"
        "        call = stage.start(lambda: time.sleep(60), b'{}', id='c', key='k', isolation='thread')\n"
        "        await asyncio.sleep(0.2)\n"
        "        print(await call.abort(0.2))\n"
        "if __name__ == '__main__':\n"
        "    asyncio.run(main())\n"
    )
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, str(script)], capture_output=True, text=True, timeout=30, check=False
    )

    assert (done.stdout, done.returncode) == ("detached\n", 0), done.stderr


async def test_threads_of_calls_end(start):
    before = threading.active_count()

    for _ in range(10):
        await start(tools.add, a=1, b=2, _isolation="thread").ended()

    await until(lambda: threading.active_count() <= before + 4)  # those of anyio wait a little for more work
