"""A process that drives what was begun in it leaves alone what goes by the same name elsewhere."""

from __future__ import annotations

import asyncio

import pytest

from checkrein import Context, Runtime, agent
from checkrein.control.start import StartRun, begin
from checkrein.core.enums import Status
from checkrein.engines.own_runs import OwnRunsEngine

pytestmark = pytest.mark.anyio


async def test_it_does_not_take_up_a_run_that_somebody_else_has_begun(tmp_path) -> None:
    goals: list[str] = []

    @agent(name="sh")
    async def program(ctx: Context, goal: str) -> str:
        goals.append(goal)
        return goal

    store = f"sqlite:///{tmp_path / 'runs.db'}"
    async with Runtime(store, agents=[program], engine=OwnRunsEngine) as runtime:
        wanted = StartRun(agent="sh", goal="theirs")
        theirs, _ = await begin(
            *(runtime.journal, runtime.control, wanted), stop_when=None, secrets=runtime.secrets, clock=runtime.now
        )
        for n in range(3):  # each of them makes the engine look at what has happened
            run = await runtime.start(program, f"ours {n}")
            assert await asyncio.wait_for(run.result(), 60) == f"ours {n}"

        assert (await runtime.journal.load(theirs)).status is Status.QUEUED
    assert goals == ["ours 0", "ours 1", "ours 2"]


async def test_a_run_of_its_own_goes_on_after_it_was_paused_and_let_go(tmp_path) -> None:
    @agent(name="sh")
    async def program(ctx: Context, goal: str) -> str:
        return await ctx.ask_person("Go on?")

    async with Runtime(
        f"sqlite:///{tmp_path / 'runs.db'}", agents=[program], engine=OwnRunsEngine, evict_seconds=0.05
    ) as runtime:
        run = await runtime.start(program, "Go.")
        async with asyncio.timeout(60):
            while run.id in runtime._engine.runs or (await run.status()) is not Status.PAUSED:
                await asyncio.sleep(0.02)
        await run.resume("Yes.")

        assert await asyncio.wait_for(run.result(), 60) == "Yes."


async def test_a_run_of_its_own_begins_when_the_one_before_it_on_its_thread_has_ended(tmp_path) -> None:
    """Which may be in another process: nothing happens to a run that waits its turn."""
    may_end = asyncio.Event()

    @agent(name="sh")
    async def first(ctx: Context, goal: str) -> str:
        await may_end.wait()
        return goal

    @agent(name="sh")
    async def second(ctx: Context, goal: str) -> str:
        return goal

    store = f"sqlite:///{tmp_path / 'runs.db'}"
    async with (
        Runtime(store, agents=[first], engine=OwnRunsEngine) as one,
        Runtime(store, agents=[second], engine=OwnRunsEngine) as other,
    ):
        before = await one.start(first, "first", thread="t")
        async with asyncio.timeout(60):
            while await before.status() is not Status.RUNNING:
                await asyncio.sleep(0.02)
        queued = await other.start(second, "second", thread="t")
        assert await queued.status() is Status.QUEUED
        may_end.set()

        assert await asyncio.wait_for(before.result(), 60) == "first"
        assert await asyncio.wait_for(queued.result(), 30) == "second"
