"""What every engine promises: which runs are driven where, and which are not."""

from __future__ import annotations

import itertools
import os
from collections import Counter

import pytest

from checkrein.core.enums import Status
from checkrein.core.events import RunStarted
from tests.engines.fleet import Fleet, child, gated
from tests.support.witness import until

pytestmark = pytest.mark.anyio


async def test_a_run_is_driven_by_one_of_the_workers(fleet: Fleet):
    workers = [await fleet.worker(), await fleet.worker()]

    run = await fleet.begin()
    await fleet.begun(run)
    fleet.let(run)

    await fleet.ended(run)
    assert sum(run in worker._engine.runs for worker in workers) <= 1
    assert fleet.witness.words() == [f"once {run}", f"begin {run}", f"end {run}"]


async def test_a_run_that_was_created_while_nobody_was_there_is_driven_by_whoever_comes(fleet: Fleet):
    run = await fleet.begin()
    fleet.let(run)

    await fleet.worker()

    await fleet.ended(run)


async def test_a_run_of_an_agent_that_nobody_has_waits_for_a_worker_that_has_it(fleet: Fleet):
    await fleet.worker(child)
    run, other = await fleet.begin(), await fleet.begin("child")
    fleet.let(run, other)
    await fleet.ended(other)
    assert (await fleet.state(run)).status is Status.QUEUED
    assert await fleet.journal.lease(run) is None

    await fleet.worker(gated)

    await fleet.ended(run)


async def test_a_run_whose_worker_is_killed_is_taken_over_and_nothing_is_done_twice(fleet: Fleet):
    with fleet.process() as process:
        run = await fleet.begin()
        await fleet.begun(run)
        other = await fleet.worker()

        process.kill()

        await fleet.is_driven_by(other, run)
        await fleet.begun(run, times=2)
        fleet.let(run)
        await fleet.ended(run)
    assert fleet.witness.words() == [f"once {run}", f"begin {run}", f"begin {run}", f"end {run}"]
    assert fleet.witness.lines()[-1].pid == os.getpid()


async def test_a_worker_that_is_shut_down_hands_its_runs_over(fleet: Fleet):
    first = await fleet.worker()
    runs = [await fleet.begin() for _ in range(3)]
    await fleet.is_driven_by(first, *runs)
    await fleet.begun(*runs)
    second = await fleet.worker()

    await fleet.shut_down(first)

    await fleet.is_driven_by(second, *runs)
    fleet.let(*runs)
    await fleet.ended(*runs)
    for run in runs:
        assert len(fleet.witness.lines(f"once {run}")) == 1


async def test_what_was_handed_over_while_nobody_was_there_goes_on_with_whoever_comes(fleet: Fleet):
    first = await fleet.worker()
    run = await fleet.begin()
    await fleet.begun(run)
    await fleet.shut_down(first)
    fleet.let(run)

    await fleet.worker()

    await fleet.ended(run)
    assert len(fleet.witness.lines(f"once {run}")) == 1


async def test_no_more_runs_are_driven_at_once_than_there_are_slots(fleet: Fleet):
    worker = await fleet.worker(slots=2)
    runs = [await fleet.begin() for _ in range(5)]
    await until(lambda: len(fleet.witness.lines()) >= 4)
    assert worker._engine.free == 0
    assert await fleet.witness.is_quiet(seconds=1.5)
    begun = [line.word.split()[1] for line in fleet.witness.lines() if line.word.startswith("begin")]
    assert len(begun) == 2

    fleet.let(*runs)

    await fleet.ended(*runs)
    await until(lambda: worker._engine.free == 2)


async def test_a_paused_run_frees_its_slot_and_when_it_is_resumed_whoever_has_one_goes_on(fleet: Fleet):
    worker = await fleet.worker(slots=1)
    first = await fleet.begin()
    await fleet.begun(first)
    second = await fleet.begin()

    await fleet.control.pause(first, by="ann")

    await fleet.begun(second)
    await fleet.control.resume(first, by="ann", wait=0)
    assert await fleet.witness.is_quiet(seconds=1.5), "the only slot is taken"
    fleet.let(second)
    await fleet.begun(first, times=2)
    fleet.let(first)
    await fleet.ended(first, second)
    assert len(fleet.witness.lines(f"once {first}")) == 1
    assert worker._engine.slots == 1


async def test_a_paused_run_is_resumed_by_a_worker_that_has_a_slot_when_its_own_has_none(fleet: Fleet):
    await fleet.worker(slots=1)
    first = await fleet.begin()
    await fleet.begun(first)
    second = await fleet.begin()
    await fleet.control.pause(first, by="ann")
    await fleet.begun(second)
    other = await fleet.worker(slots=1)

    await fleet.control.resume(first, by="ann", wait=0)

    await fleet.is_driven_by(other, first)
    fleet.let(first, second)
    await fleet.ended(first, second)


async def test_a_stop_does_not_wait_for_a_slot(fleet: Fleet):
    full = await fleet.worker(slots=1)
    taken = await fleet.begin()
    await fleet.is_driven_by(full, taken)
    first = await fleet.worker()
    run = await fleet.begin()
    await fleet.begun(run)
    await fleet.shut_down(first)

    receipt = await fleet.control.cancel(run, by="ann")

    assert receipt.status is Status.CANCELLED
    await fleet.witness.saw(f"undo once {run}")
    await until(lambda: full._engine.runs == (taken,))
    fleet.let(taken)
    await fleet.ended(taken)


async def test_sub_runs_go_with_their_parent_and_need_no_slot(fleet: Fleet):
    """Slots full of parents: were a sub-run to wait for one, none would ever be free."""
    workers = [await fleet.worker(slots=2), await fleet.worker(slots=2)]
    parents = [await fleet.begin("parent") for _ in range(6)]
    fleet.let(*(f"{run}.child" for run in parents))

    await fleet.ended(*parents)

    assert len(workers) == 2
    for run in parents:
        (sub,) = [row.id for row in await fleet.journal.runs(root=run)]
        assert await drivers_of(fleet, sub) <= await drivers_of(fleet, run)


async def drivers_of(fleet: Fleet, run: str) -> set[str]:
    """The processes that have driven a run, by its record."""
    events = (record.event for record in await fleet.journal.read(run))
    return {event.process for event in events if isinstance(event, RunStarted)}


async def test_a_sub_run_is_left_to_whoever_drives_its_parent(fleet: Fleet):
    first = await fleet.worker()
    run = await fleet.begin("parent")
    await fleet.begun(f"{run}.child")
    (sub,) = [row.id for row in await fleet.journal.runs(root=run)]
    other = await fleet.worker()

    await fleet.control.pause(sub, by="ann")
    await fleet.control.resume(sub, by="ann")

    await fleet.begun(f"{run}.child", times=2)
    assert other._engine.runs == ()
    await fleet.shut_down(first)
    await fleet.is_driven_by(other, run, sub)
    fleet.let(f"{run}.child")
    await fleet.ended(run, sub)


async def test_runs_are_shared_among_workers_with_slots(fleet: Fleet):
    """Both are at work for as long as there is something to do."""
    for _ in range(2):
        await fleet.worker(slots=5)

    assert min(await shares_of(fleet, 60)) >= 18


@pytest.mark.torture
async def test_a_thousand_runs_are_shared_among_two_processes(fleet: Fleet):
    with fleet.process(slots=50, lease_seconds=15), fleet.process(slots=50, lease_seconds=15):
        assert min(await shares_of(fleet, 1_000)) >= 300


async def shares_of(fleet: Fleet, count: int) -> list[int]:
    """How many of so many runs each worker has driven, by their records. Each is driven by one alone."""
    runs = [f"s{number}" for number in range(count)]
    fleet.let(*runs)
    for run in runs:
        await fleet.begin(name=run)
    for run in runs:
        await fleet.ended(run)
    said = Counter(fleet.witness.words())
    assert {said[f"once {run}"] for run in runs} == {1}
    drove = Counter(itertools.chain.from_iterable([await drivers_of(fleet, run) for run in runs]))
    assert drove.total() == count
    return [drove[process] for process in drove] if len(drove) == 2 else [0]
