"""Whoever is cancelled while they hold a worker or a supervisor leaves no process behind, and nobody short of one."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from itertools import count
from pathlib import Path

import msgspec
import pytest

from checkrein.calls.executor import ToolExecutor
from checkrein.calls.tool_execution import ToolExecution
from checkrein.calls.workers.pool import Workers
from checkrein.calls.workers.process import WorkerProcess
from checkrein.core.enums import Outcome
from checkrein.processes.supervisor import Supervisor
from tests.support import tools
from tests.support.patience import PATIENCE_SECONDS
from tests.support.witness import Witness, is_alive, until
from tests.torture.races.nth_await import Cut, CutEverywhere

pytestmark = pytest.mark.anyio

MOST = 2
HELLO: dict[str, list[str]] = {"path": [], "argv": [], "preload": []}


@pytest.fixture
async def executor(tmp_path: Path, anyio_backend: str) -> AsyncIterator[ToolExecutor]:
    async with ToolExecutor(tmp_path / "calls", most_workers=MOST, warm_workers=1) as executor:
        yield executor


def begin(executor: ToolExecutor, function: Callable[..., object], number: int, **arguments: object) -> ToolExecution:
    return executor.start(function, msgspec.json.encode(arguments), id=f"c{number}", key=f"run-cut/c{number}")


async def ticking(
    executor: ToolExecutor, tool: Callable[..., object], folder: Path, cut: Cut
) -> tuple[ToolExecution, Witness]:
    """A call that has begun to tick, and its log."""
    witness = Witness(folder / f"log-{cut.number}-{cut.how.name}")
    call = begin(executor, tool, cut.number, log=witness.log)
    await witness.saw("tick")
    return call, witness


async def can_be_resumed(call: ToolExecution, witness: Witness) -> None:
    await call.resume()
    seen = len(witness.lines())
    await until(lambda: len(witness.lines()) > seen)
    await call.abort()


async def serves_as_many_as_ever(executor: ToolExecutor) -> None:
    """As many calls at the same time as there may be workers, and then as many again."""
    for _ in range(2):
        calls = [begin(executor, tools.add, next(_numbers), a=1, b=2) for _ in range(MOST)]
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert [(await call.ended()).result for call in calls] == [b"3"] * MOST


_numbers = count(1000)


# -- the pool


async def test_a_start_of_a_worker_that_is_cancelled_leaves_no_process(leaves_no_trace: CutEverywhere) -> None:
    """D4"""

    async def scene(cut: Cut) -> None:
        worker = await cut.run(WorkerProcess.start(uuid.uuid4().hex, HELLO))
        if worker is not None:
            await worker.leave()

    await leaves_no_trace("WorkerProcess.start", scene)


async def test_the_end_of_a_worker_that_is_cancelled_ends_it(leaves_no_trace: CutEverywhere) -> None:
    """D4"""

    async def scene(cut: Cut) -> None:
        worker = await WorkerProcess.start(uuid.uuid4().hex, HELLO)
        await cut.run(worker.leave())

    await leaves_no_trace("WorkerProcess.leave", scene)


async def test_a_wait_for_a_worker_that_is_cancelled_keeps_none(leaves_no_trace: CutEverywhere) -> None:
    """D4: also when the worker has just been handed over."""

    async def scene(cut: Cut) -> None:
        async with Workers(uuid.uuid4().hex, most=1) as workers:
            first = await workers.take()
            asyncio.get_running_loop().call_later(0.005, workers.give_back, first)
            second = await cut.run(workers.take())
            if second is not None:
                workers.give_back(second)
            async with asyncio.timeout(PATIENCE_SECONDS):
                workers.give_back(await workers.take())

    await leaves_no_trace("Workers.take", scene)


async def test_a_pool_whose_close_is_cancelled_is_closed(leaves_no_trace: CutEverywhere) -> None:
    """D4: an idle worker, one that was taken, and one that is just starting."""

    async def scene(cut: Cut) -> None:
        workers = await Workers(uuid.uuid4().hex, most=3, warm=1).__aenter__()
        await workers.take()
        workers.give_back(await workers.take())
        await cut.run(workers.close())

    await leaves_no_trace("Workers.close", scene)


# -- calls in workers


async def test_a_wait_for_the_end_of_a_call_that_is_cancelled_stops_nothing(
    executor: ToolExecutor, cut_everywhere: CutEverywhere
) -> None:
    async def scene(cut: Cut) -> None:
        call = begin(executor, tools.add, cut.number, a=1, b=2)
        await cut.run(call.ended())

        assert (await call.ended()).result == b"3"

    await cut_everywhere("ToolExecution.ended", scene)


@pytest.mark.parametrize("tool", [tools.tick, tools.tick_async])
async def test_an_abort_that_is_cancelled_is_not_taken_back(
    executor: ToolExecutor, tmp_path: Path, cut_everywhere: CutEverywhere, tool: Callable[..., object]
) -> None:
    """D2 D4: by the tool's own log and by the process table it has stopped, and the pool is as good as before."""

    async def scene(cut: Cut) -> None:
        call, witness = await ticking(executor, tool, tmp_path, cut)
        await cut.run(call.abort())

        assert (await call.ended()).outcome in (Outcome.KILLED, Outcome.ABORTED)
        writers = {line.pid for line in witness.lines()}
        assert await witness.is_quiet(seconds=0.1)
        if tool is tools.tick:
            assert not any(map(is_alive, writers))
        await serves_as_many_as_ever(executor)

    await cut_everywhere(f"ToolExecution.abort of {tool.__name__}", scene)


async def test_an_abort_at_any_moment_of_a_call_that_begins_keeps_no_worker(
    executor: ToolExecutor, tmp_path: Path
) -> None:
    """D4: while it waits for a worker, at the moment it gets one, and just after it was given the call."""
    for rounds in range(40):
        witness = Witness(tmp_path / f"log-{rounds}")
        call = begin(executor, tools.tick, rounds, log=witness.log)
        for _ in range(rounds):
            await asyncio.sleep(0)

        outcome = await call.abort()

        assert outcome in (Outcome.KILLED, Outcome.ABORTED)
        assert not any(is_alive(line.pid) for line in witness.lines() if outcome is Outcome.KILLED)
        assert await witness.is_quiet(seconds=0.0)
    await serves_as_many_as_ever(executor)


async def test_a_hold_that_is_cancelled_can_be_let_resume(
    executor: ToolExecutor, tmp_path: Path, cut_everywhere: CutEverywhere
) -> None:
    """D20: nothing stays frozen that nobody knows of."""

    async def scene(cut: Cut) -> None:
        call, witness = await ticking(executor, tools.tick, tmp_path, cut)
        await cut.run(call.hold())

        await can_be_resumed(call, witness)

    await cut_everywhere("WorkerExecution.hold", scene)


async def test_a_resume_that_is_cancelled_has_gone_on(
    executor: ToolExecutor, tmp_path: Path, cut_everywhere: CutEverywhere
) -> None:
    """D23"""

    async def scene(cut: Cut) -> None:
        call, witness = await ticking(executor, tools.tick, tmp_path, cut)
        assert await call.hold()
        await cut.run(call.resume())

        await can_be_resumed(call, witness)

    await cut_everywhere("WorkerExecution.resume", scene)


async def test_a_stage_whose_close_is_cancelled_is_closed(tmp_path: Path, leaves_no_trace: CutEverywhere) -> None:
    """D4"""

    async def scene(cut: Cut) -> None:
        executor = await ToolExecutor(tmp_path / "calls").__aenter__()
        assert (await begin(executor, tools.add, 1, a=1, b=2).ended()).result == b"3"
        await cut.run(executor.close())

    await leaves_no_trace("ToolExecutor.close", scene)


# -- the supervisor


async def test_a_start_of_a_supervisor_that_is_cancelled_leaves_no_process(leaves_no_trace: CutEverywhere) -> None:
    """D4"""

    async def scene(cut: Cut) -> None:
        supervisor = await cut.run(Supervisor.start(uuid.uuid4().hex))
        if supervisor is not None:
            await supervisor.close()

    await leaves_no_trace("Supervisor.start", scene)


async def test_a_supervisor_whose_close_is_cancelled_is_gone(leaves_no_trace: CutEverywhere) -> None:
    """D4"""

    async def scene(cut: Cut) -> None:
        supervisor = await Supervisor.start(uuid.uuid4().hex)
        await cut.run(supervisor.close())

    await leaves_no_trace("Supervisor.close", scene)
