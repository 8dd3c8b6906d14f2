"""Whoever is cancelled while they hold a worker or a supervisor leaves no process behind, and nobody short of one."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from itertools import count
from pathlib import Path

import msgspec
import pytest

from checkrein.core.words import Outcome
from checkrein.runtime.performance import ToolPerformance
from checkrein.runtime.stage import Stage
from checkrein.runtime.supervisor import Supervisor
from checkrein.runtime.worker_process import WorkerProcess
from checkrein.runtime.workers import Workers
from tests.races.nth_await import Cut, CutEverywhere
from tests.races.traces import Traces
from tests.runtime import tools
from tests.runtime.witness import Witness, is_alive, until

pytestmark = pytest.mark.anyio

Look = Callable[[], Traces]

MOST = 2
HELLO: dict[str, list[str]] = {"path": [], "argv": [], "preload": []}


@pytest.fixture
async def stage(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Stage]:
    async with Stage(tmp_path / "calls", most_workers=MOST, warm_workers=1) as stage:
        yield stage


def begin(stage: Stage, function: Callable[..., object], number: int, **arguments: object) -> ToolPerformance:
    return stage.start(function, msgspec.json.encode(arguments), id=f"c{number}", key=f"run/c{number}")


async def serves_as_many_as_ever(stage: Stage) -> None:
    """As many calls at the same time as there may be workers, and then as many again."""
    for _ in range(2):
        calls = [begin(stage, tools.add, next(_numbers), a=1, b=2) for _ in range(MOST)]
        async with asyncio.timeout(30):
            assert [(await call.ended()).result for call in calls] == [b"3"] * MOST


_numbers = count(1000)


# -- the pool


async def test_a_start_of_a_worker_that_is_cancelled_leaves_no_process(
    traces: Look, cut_everywhere: CutEverywhere
) -> None:
    """D4"""

    async def scene(cut: Cut) -> None:
        before = traces()
        worker = await cut.run(WorkerProcess.start(uuid.uuid4().hex, HELLO))
        if worker is not None:
            await worker.leave()
        await before.gone()

    await cut_everywhere("WorkerProcess.start", scene)


async def test_the_end_of_a_worker_that_is_cancelled_ends_it(traces: Look, cut_everywhere: CutEverywhere) -> None:
    """D4"""

    async def scene(cut: Cut) -> None:
        before = traces()
        worker = await WorkerProcess.start(uuid.uuid4().hex, HELLO)
        await cut.run(worker.leave())
        await before.gone()

    await cut_everywhere("WorkerProcess.leave", scene)


async def test_a_wait_for_a_worker_that_is_cancelled_keeps_none(traces: Look, cut_everywhere: CutEverywhere) -> None:
    """D4: also when the worker has just been handed over."""

    async def scene(cut: Cut) -> None:
        before = traces()
        async with Workers(uuid.uuid4().hex, most=1) as workers:
            first = await workers.take()
            asyncio.get_running_loop().call_later(0.005, workers.give_back, first)
            second = await cut.run(workers.take())
            if second is not None:
                workers.give_back(second)
            async with asyncio.timeout(20):
                workers.give_back(await workers.take())
        await before.gone()

    await cut_everywhere("Workers.take", scene)


async def test_a_pool_whose_close_is_cancelled_is_closed(traces: Look, cut_everywhere: CutEverywhere) -> None:
    """D4: an idle worker, one that was taken, and one that is just starting."""

    async def scene(cut: Cut) -> None:
        before = traces()
        workers = await Workers(uuid.uuid4().hex, most=3, warm=1).__aenter__()
        await workers.take()
        workers.give_back(await workers.take())
        await cut.run(workers.close())
        await before.gone()

    await cut_everywhere("Workers.close", scene)


# -- calls in workers


async def test_a_wait_for_the_end_of_a_call_that_is_cancelled_stops_nothing(
    stage: Stage, cut_everywhere: CutEverywhere
) -> None:
    async def scene(cut: Cut) -> None:
        call = begin(stage, tools.add, cut.number, a=1, b=2)
        await cut.run(call.ended())

        assert (await call.ended()).result == b"3"

    await cut_everywhere("ToolPerformance.ended", scene)


@pytest.mark.parametrize("tool", [tools.tick, tools.tick_async])
async def test_an_abort_that_is_cancelled_is_not_taken_back(
    stage: Stage, tmp_path: Path, cut_everywhere: CutEverywhere, tool: Callable[..., object]
) -> None:
    """D2 D4: by the tool's own log and by the process table it has stopped, and the pool is as good as before."""

    async def scene(cut: Cut) -> None:
        witness = Witness(tmp_path / f"log-{cut.number}-{cut.how.name}")
        call = begin(stage, tool, cut.number, log=witness.log)
        await witness.saw("tick")
        await cut.run(call.abort())

        assert (await call.ended()).outcome in (Outcome.KILLED, Outcome.ABORTED)
        writers = {line.pid for line in witness.lines()}
        assert await witness.is_quiet(seconds=0.1)
        if tool is tools.tick:
            assert not any(map(is_alive, writers))
        await serves_as_many_as_ever(stage)

    await cut_everywhere(f"ToolPerformance.abort of {tool.__name__}", scene)


async def test_an_abort_at_any_moment_of_a_call_that_begins_keeps_no_worker(stage: Stage, tmp_path: Path) -> None:
    """D4: while it waits for a worker, at the moment it gets one, and just after it was given the call."""
    for rounds in range(40):
        witness = Witness(tmp_path / f"log-{rounds}")
        call = begin(stage, tools.tick, rounds, log=witness.log)
        for _ in range(rounds):
            await asyncio.sleep(0)

        outcome = await call.abort()

        assert outcome in (Outcome.KILLED, Outcome.ABORTED)
        assert not any(is_alive(line.pid) for line in witness.lines() if outcome is Outcome.KILLED)
        assert await witness.is_quiet(seconds=0.0)
    await serves_as_many_as_ever(stage)


async def test_a_hold_that_is_cancelled_can_be_let_go_on(
    stage: Stage, tmp_path: Path, cut_everywhere: CutEverywhere
) -> None:
    """D20: nothing stays frozen that nobody knows of."""

    async def scene(cut: Cut) -> None:
        witness = Witness(tmp_path / f"log-{cut.number}-{cut.how.name}")
        call = begin(stage, tools.tick, cut.number, log=witness.log)
        await witness.saw("tick")
        await cut.run(call.hold())

        await call.go_on()
        seen = len(witness.lines())
        await until(lambda: len(witness.lines()) > seen)
        await call.abort()

    await cut_everywhere("WorkerPerformance.hold", scene)


async def test_a_go_on_that_is_cancelled_has_gone_on(
    stage: Stage, tmp_path: Path, cut_everywhere: CutEverywhere
) -> None:
    """D23"""

    async def scene(cut: Cut) -> None:
        witness = Witness(tmp_path / f"log-{cut.number}-{cut.how.name}")
        call = begin(stage, tools.tick, cut.number, log=witness.log)
        await witness.saw("tick")
        assert await call.hold()
        await cut.run(call.go_on())

        await call.go_on()
        seen = len(witness.lines())
        await until(lambda: len(witness.lines()) > seen)
        await call.abort()

    await cut_everywhere("WorkerPerformance.go_on", scene)


async def test_a_stage_whose_close_is_cancelled_is_closed(
    tmp_path: Path, traces: Look, cut_everywhere: CutEverywhere
) -> None:
    """D4"""

    async def scene(cut: Cut) -> None:
        before = traces()
        stage = await Stage(tmp_path / "calls").__aenter__()
        assert (await begin(stage, tools.add, 1, a=1, b=2).ended()).result == b"3"
        await cut.run(stage.close())
        await before.gone()

    await cut_everywhere("Stage.close", scene)


# -- the supervisor


async def test_a_start_of_a_supervisor_that_is_cancelled_leaves_no_process(
    traces: Look, cut_everywhere: CutEverywhere
) -> None:
    """D4"""

    async def scene(cut: Cut) -> None:
        before = traces()
        supervisor = await cut.run(Supervisor.start(uuid.uuid4().hex))
        if supervisor is not None:
            await supervisor.close()
        await before.gone()

    await cut_everywhere("Supervisor.start", scene)


async def test_a_supervisor_whose_close_is_cancelled_is_gone(traces: Look, cut_everywhere: CutEverywhere) -> None:
    """D4"""

    async def scene(cut: Cut) -> None:
        before = traces()
        supervisor = await Supervisor.start(uuid.uuid4().hex)
        await cut.run(supervisor.close())
        await before.gone()

    await cut_everywhere("Supervisor.close", scene)
