"""Whatever a call has begun, in whatever way, ends with it; or the receipt says that it could not be stopped."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

import pytest

from checkrein.core.enums import Outcome
from checkrein.processes import orphans, table
from tests.support import birth_tools as births
from tests.support import tools
from tests.support.patience import PATIENT_GRACE_SECONDS
from tests.support.witness import is_alive, note, until

pytestmark = pytest.mark.anyio


def named(function: Callable[..., object]) -> str:
    return function.__name__


def tool_of(way, *args):
    """A tool without arguments of its own: what it begins need not be JSON."""

    async def tool() -> None:
        await way(*args)

    return tool


@pytest.fixture
async def adopting(anyio_backend):
    """As in a process of ours that drives runs."""
    async with orphans.adopting():
        yield


@pytest.mark.parametrize("way", births.THREADS, ids=named)
async def test_a_thread_that_hears_is_ended_with_its_call(start, witness, way):
    execution = start(tool_of(way, tools.tick, witness.log))
    await witness.saw("tick")

    assert await execution.abort(PATIENT_GRACE_SECONDS) is Outcome.ABORTED

    assert await witness.is_quiet()


@pytest.mark.parametrize("way", births.THREADS, ids=named)
async def test_a_thread_that_does_not_hear_makes_its_call_detached_until_it_ends(start, witness, tmp_path, way):
    late, end = asyncio.Event(), tmp_path / "end"
    execution = start(tool_of(way, births.swallow, witness.log, str(end)), _on_late_end=late.set)
    await witness.saw("tick")
    try:
        assert await execution.abort(grace_seconds=0.3) is Outcome.DETACHED
        assert "swallow" in "".join((await execution.ended()).left) or "mine" in "".join((await execution.ended()).left)
        assert not late.is_set()
        seen = len(witness.lines())
        await until(lambda: len(witness.lines()) > seen + 2)
    finally:
        end.touch()
    await until(late.is_set)


@pytest.mark.parametrize("way", births.PROCESSES, ids=named)
async def test_a_process_is_ended_with_its_call_however_it_was_started(start, witness, way):
    execution = start(way, log=witness.log)
    await witness.saw("tick")

    outcome = await execution.abort()

    seen = len(witness.lines())
    assert outcome is Outcome.ABORTED
    assert (await execution.ended()).left == ()
    await asyncio.sleep(0.25)
    assert len(witness.lines()) == seen
    assert not [line.pid for line in witness.lines() if line.pid != os.getpid() and is_alive(line.pid)]


@pytest.mark.parametrize("way", births.ON_LOOP, ids=named)
async def test_what_a_call_leaves_on_the_loop_ends_with_it(start, witness, way):
    execution = start(way, log=witness.log)
    await witness.saw("tick")

    assert await execution.abort(PATIENT_GRACE_SECONDS) is Outcome.ABORTED

    assert await witness.is_quiet()


async def test_a_timer_that_a_call_has_set_does_not_fire_after_its_end(start, witness):
    async def sets_one() -> None:
        asyncio.get_running_loop().call_later(0.1, note, witness.log, "sent")

    ended = await start(sets_one).ended()

    assert ended.outcome is Outcome.COMPLETED
    assert await witness.is_quiet()


async def test_the_processes_of_another_call_are_left_alone_also_without_any_environment(start, witness, tmp_path):
    other = type(witness)(tmp_path / "other")
    first = start(births.by_nohup_setsid, log=witness.log)
    second = start(births.by_nohup_setsid, log=other.log)
    await witness.saw("tick")
    await other.saw("tick")

    assert await first.abort() is Outcome.ABORTED

    assert await witness.is_quiet()
    seen = len(other.lines())
    await other.saw("tick", times=seen + 3)
    await second.abort()
    assert await other.is_quiet()


async def test_a_pool_of_processes_that_is_shared_survives_a_call_which_is_then_detached(start, witness):
    pool = ProcessPoolExecutor(1, mp_context=get_context("fork"))
    loop = asyncio.get_running_loop()

    async def uses_it() -> None:
        await loop.run_in_executor(pool, tools.tick, witness.log)

    done = start(tool_of(partial(loop.run_in_executor, pool, os.getpid)))
    assert (await done.ended()).outcome is Outcome.COMPLETED
    execution = start(uses_it)
    await witness.saw("tick")
    try:
        assert await execution.abort(grace_seconds=0.3) is Outcome.DETACHED
        assert (await execution.ended()).left == ("tick in a process pool",)
    finally:
        for process in list(pool._processes.values()):
            process.kill()
        pool.shutdown(wait=True, cancel_futures=True)


async def test_a_thread_that_a_finished_call_leaves_behind_is_named_and_left_in_peace(start, witness, tmp_path):
    """Many a library starts one at its first use, for all that come after."""
    end = tmp_path / "end"

    async def leaves_one() -> str:
        threading.Thread(target=births.swallow, args=(witness.log, str(end)), name="keeper").start()
        return "done"

    try:
        ended = await start(leaves_one).ended()
        assert (ended.outcome, ended.result, ended.left) == (Outcome.COMPLETED, b'"done"', ("thread keeper",))
        seen = len(witness.lines())
        await until(lambda: len(witness.lines()) > seen + 2)
    finally:
        end.touch()


async def test_a_process_that_has_taken_off_every_mark_is_ended_with_its_call(adopting, start, witness):
    execution = start(tool_of(births.without_any_mark, witness.log))
    await witness.saw("tick")
    daemon = witness.lines("tick")[0].pid

    assert await execution.abort(PATIENT_GRACE_SECONDS) is Outcome.ABORTED

    assert not is_alive(daemon)
    assert await witness.is_quiet()


async def test_what_may_be_of_another_call_is_left_and_the_call_not_said_to_be_over(adopting, start, witness):
    """Nobody is disturbed by a stop that was not theirs, and no receipt says more than is known."""
    other = start(tool_of(births.without_any_mark, witness.log, "other"))
    late = asyncio.Event()
    stopped = start(tool_of(births.without_any_mark, witness.log, "stopped"), _on_late_end=late.set)
    await witness.saw("other")
    await witness.saw("stopped")

    assert await stopped.abort(PATIENT_GRACE_SECONDS) is Outcome.DETACHED
    left = (await stopped.ended()).left
    assert f"process {witness.lines('stopped')[0].pid}" in left
    assert not late.is_set()
    seen = len(witness.lines("other"))
    await until(lambda: len(witness.lines("other")) > seen)

    assert await other.abort(PATIENT_GRACE_SECONDS) is Outcome.ABORTED
    await until(late.is_set)
    assert await witness.is_quiet()


async def test_what_this_process_has_started_itself_is_of_no_call(adopting, start, witness, tmp_path):
    """However it was started, and though it carries no mark either."""
    execution = start(tool_of(births.by_nohup_setsid, witness.log))
    await witness.saw("tick")
    with subprocess.Popen(["sleep", "600"]) as by_popen:
        by_spawn = os.posix_spawn("/bin/sleep", ["sleep", "600"], {})
        by_fork = os.fork()
        if by_fork == 0:
            os.execv("/bin/sleep", ["sleep", "600"])
        try:
            assert await execution.abort(PATIENT_GRACE_SECONDS) is Outcome.ABORTED

            assert all(is_alive(pid) for pid in (by_popen.pid, by_spawn, by_fork))
        finally:
            by_popen.kill()
            for pid in (by_spawn, by_fork):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)  # noqa: ASYNC222


async def test_adopted_processes_that_have_ended_are_reaped_and_those_that_somebody_waits_for_are_not(
    adopting, monkeypatch
):
    monkeypatch.setattr(orphans, "LOOK_SECONDS", 0.01)
    with subprocess.Popen(["bash", "-c", "(sleep 0.3 & echo $!) & exit 7"], stdout=subprocess.PIPE) as shell:
        assert shell.stdout is not None
        orphan = int(shell.stdout.readline())
        await until(lambda: (found := table.row(orphan)) is not None and found.parent == os.getpid())

        await until(lambda: table.row(orphan) is None)

        assert shell.wait() == 7
