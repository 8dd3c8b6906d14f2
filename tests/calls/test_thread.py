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

from checkrein.calls.current import Aborted, current_call
from checkrein.calls.in_process.child_tasks import Interruptible
from checkrein.core.enums import Outcome
from tests.support import tools
from tests.support.blocked import Blocked
from tests.support.patience import PATIENCE_SECONDS, PATIENT_GRACE_SECONDS
from tests.support.witness import note, until

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
    execution = start(tools.tick, log=witness.log, _isolation="thread")
    await witness.saw("tick")

    assert await execution.abort(PATIENT_GRACE_SECONDS) is Outcome.ABORTED

    assert await witness.is_quiet()


async def test_a_busy_loop_is_stopped_too(start, witness):
    execution = start(tools.loop_for_ever, log=witness.log, _isolation="thread")
    await witness.saw("begun")

    assert await execution.abort(PATIENT_GRACE_SECONDS) is Outcome.ABORTED


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

    execution = start(catches_once_and_heeds_checkpoints, _isolation="thread")
    await witness.saw("tick")

    assert await execution.abort(PATIENT_GRACE_SECONDS) is Outcome.ABORTED
    assert await witness.is_quiet()


async def test_a_thread_in_a_blocking_call_is_detached_and_its_late_result_dropped(start, witness):
    """D15, D26: what cannot be stopped is said, and what it returns reaches nobody."""
    late = asyncio.Event()
    with Blocked() as blocked:

        def blocks() -> str:
            blocked.enter()
            note(witness.log, "done")
            return "done"

        execution = start(blocks, _isolation="thread", _on_late_end=late.set)
        await blocked.entered()

        outcome = await execution.abort(grace_seconds=0.3)

        ended = await execution.ended()
        assert (outcome, ended.result) == (Outcome.DETACHED, None)
        assert ended.left[0].endswith("blocks in a thread")
        assert "could not be stopped" in ended.error
        assert not late.is_set()
        blocked.let_go()
        await until(late.is_set)
    assert witness.words() == []  # the exception was waiting for it when the call returned
    assert await execution.ended() is ended


async def test_a_detached_thread_starts_no_more_processes(start, witness):
    detached = threading.Event()

    def starts_one_later() -> None:
        while True:
            try:
                note(witness.log, "begun")
                detached.wait()
                subprocess.Popen(tools.ticker(witness.log, "child"))
                return
            except PermissionError:
                return note(witness.log, "refused")
            except Aborted:
                continue

    late = asyncio.Event()
    execution = start(starts_one_later, _isolation="thread", _on_late_end=late.set)
    await witness.saw("begun")

    assert await execution.abort(grace_seconds=0.2) is Outcome.DETACHED

    detached.set()
    await until(late.is_set)
    assert set(witness.words()) == {"begun", "refused"}


async def test_children_of_a_thread_end_with_it(start, witness):
    def starts_children() -> None:
        subprocess.Popen(tools.ticker(witness.log, "child"))
        subprocess.run(tools.ticker(witness.log, "waited for"), start_new_session=True, check=False)

    execution = start(starts_children, _isolation="thread")
    await witness.saw("child", "waited for")

    assert await execution.abort(PATIENT_GRACE_SECONDS) is Outcome.ABORTED
    assert await witness.is_quiet()


async def test_a_thread_that_comes_to_no_checkpoint_is_not_said_to_be_held(start, witness):
    execution = start(tools.tick, log=witness.log, _isolation="thread")
    await witness.saw("tick")

    assert not await execution.hold()

    await execution.abort()


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
        "import asyncio, sys, threading, time\n"
        "from pathlib import Path\n"
        "from checkrein.calls.executor import ToolExecutor as Stage\n"
        "async def main():\n"
        "    async with Stage(Path(sys.argv[0]).parent / 'calls') as stage:\n"
        "        def sleeps():\n"
        "            while True:\n"
        "                try: begun.set(); time.sleep(600)\n"
        "                except BaseException: pass\n"
        "        begun = threading.Event()\n"
        "        call = stage.start(sleeps, b'{}', id='c', key='k', isolation='thread')\n"
        "        await asyncio.to_thread(begun.wait)\n"
        "        print(await call.abort(0.2))\n"
        "if __name__ == '__main__':\n"
        "    asyncio.run(main())\n"
    )
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )

    assert (done.stdout, done.returncode) == ("detached\n", 0), done.stderr


async def test_threads_of_calls_end(start):
    before = threading.active_count()

    for _ in range(10):
        await start(tools.add, a=1, b=2, _isolation="thread").ended()

    await until(lambda: threading.active_count() <= before + 4)  # those of anyio wait a little for more work
