"""Somebody sets the wall clock while a run is driven: nothing is late for that, and no time has passed."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

import pytest
from msgspec.structs import replace

from checkrein.calls.base import Execution, UndoneCall
from checkrein.control.control import Control
from checkrein.core.conditions import Elapsed
from checkrein.core.effects import Effect
from checkrein.core.enums import OnPause, Status
from checkrein.core.events import ClockSet, ConditionTripped
from checkrein.core.receipts import Receipt
from checkrein.driver.driver import Driver, DriverOptions
from checkrein.driver.ownership import Ownership, claim, with_sign_of_life
from checkrein.driver.program_api import ProgramApi
from checkrein.errors import CallFailed
from checkrein.journal import MemoryJournal
from checkrein.journal.base import Appended, Owner
from checkrein.processes.identity import this_process
from checkrein.timings import LEASE_SECONDS
from tests.support.driver_harness import DRIVERS, Outside, Playing, Scripted, Stage, crash, new_run, owner, until
from tests.support.patience import PATIENCE_SECONDS, within

pytestmark = pytest.mark.anyio

HOUR = 3_600.0


class WallClock:
    """The time of day, as somebody has set it."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self._ahead

    def set_forward(self, seconds: float) -> None:
        self._ahead += seconds


class Undoing(Playing):
    """Its undos wait until they are let."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.let = asyncio.Event()

    def undo(self, effect: Effect, call: UndoneCall, driver: ProgramApi) -> Execution:
        async def undo() -> None:
            self.outside.log.append(f"undo {effect.what}")
            await self.let.wait()
            self.outside.log.append(f"undone {effect.what}")

        return Scripted(undo, self.outside, f"undo {effect.what}")


def driving_owner(name: str) -> Owner:
    """One whose leases are kept by the clock of this boot."""
    return replace(owner(name), boot_id=this_process().boot_id)


class World:
    """A run that is driven by a wall clock that the test sets."""

    def __init__(self) -> None:
        self.journal = MemoryJournal()
        self.outside = Outside()
        self.wall = WallClock()
        self.control = Control(self.journal, owner("control"), clock=self.wall)

    async def drive(self, program: Playing, *, settle_seconds: float = 30.0, **fields: Any) -> asyncio.Task[None]:
        await new_run(self.journal, **fields)
        driver = await self.driver(program, settle_seconds=settle_seconds)
        return asyncio.ensure_future(driver.drive())

    async def driver(self, program: Playing, *, by: Owner | None = None, settle_seconds: float = 30.0) -> Driver:
        """Of a run that exists, claimed as an engine does; whoever had it before is dead."""
        held, state = await self.journal.lease("r"), await self.journal.load("r")
        lease = await self.journal.claim("r", by or driving_owner("first"), seconds=LEASE_SECONDS, force=True)
        ownership = Ownership(self.journal, with_sign_of_life(lease, held, state), clock=self.wall)
        options = DriverOptions(settle_seconds=settle_seconds)
        over = frozenset(range(lease.epoch))
        return Driver(self.journal, program, ownership, state, over=over, options=options)

    async def elapsed(self) -> float:
        return (await self.journal.load("r")).spent(self.wall()).elapsed_seconds

    async def kinds(self) -> list[type]:
        return [type(record.event) for record in await self.journal.read("r")]


@pytest.fixture
def world() -> World:
    return World()


async def end(*driving: asyncio.Task[None]) -> None:
    for one in driving:
        one.cancel()
    await asyncio.gather(*driving, return_exceptions=True)


async def send_for_ten_minutes(stage: Stage) -> None:
    await stage.call("send", seconds=600, effect=True)


@pytest.mark.parametrize("set_by", [HOUR, -HOUR], ids=["forward", "back"])
async def test_a_clock_that_is_set_uses_up_no_time_at_work(world: World, set_by: float) -> None:
    goes_on = asyncio.Event()

    async def script(stage: Stage) -> None:
        await stage.call("first")
        await goes_on.wait()
        await stage.call("second")
        await asyncio.sleep(600)

    driving = await world.drive(Playing(world.outside, script), stop_when=Elapsed(minutes=30))
    await until(lambda: "end first" in world.outside.log)

    world.wall.set_forward(set_by)
    goes_on.set()
    await until(lambda: "end second" in world.outside.log)
    state = await world.journal.load("r")

    assert state.spent(world.wall()).elapsed_seconds < 30 * 60
    assert state.status is Status.RUNNING
    assert ConditionTripped not in await world.kinds()
    assert (await world.kinds()).count(ClockSet) == 1
    driving.cancel()
    await asyncio.gather(driving, return_exceptions=True)


async def test_a_cancel_settles_in_its_time_although_the_clock_was_set_back(world: World) -> None:
    program = Undoing(world.outside, send_for_ten_minutes)
    driving = await world.drive(program, settle_seconds=1.0)
    await until(lambda: "begin send" in world.outside.log)

    asked = time.monotonic()
    cancelling = asyncio.ensure_future(world.control.cancel("r", by="a person", wait=within(1.0) + 10))
    await until(lambda: "undo send" in world.outside.log)
    world.wall.set_forward(-HOUR)
    receipt = await cancelling

    assert isinstance(receipt, Receipt), receipt
    assert time.monotonic() - asked < within(1.0) + 5
    assert "undone send" not in world.outside.log
    driving.cancel()
    await asyncio.gather(driving, return_exceptions=True)


async def test_a_cancel_gives_its_undos_their_time_although_the_clock_was_set_forward(world: World) -> None:
    program = Undoing(world.outside, send_for_ten_minutes)
    driving = await world.drive(program, settle_seconds=PATIENCE_SECONDS)
    await until(lambda: "begin send" in world.outside.log)
    cancelling = asyncio.ensure_future(world.control.cancel("r", by="a person", wait=PATIENCE_SECONDS))
    await until(lambda: "undo send" in world.outside.log)

    world.wall.set_forward(HOUR)
    await world.control.add_reason("r", "the driver looks up", by="a person")
    await asyncio.sleep(0.05)
    program.let.set()
    receipt = await cancelling

    assert isinstance(receipt, Receipt)
    assert [(effect.what, effect.now) for effect in receipt.effects] == [("send", "undone")]
    assert receipt.timing_ms.settled is not None
    assert receipt.timing_ms.settled < HOUR * 1000 / 2
    async with asyncio.timeout(PATIENCE_SECONDS):
        await driving


async def test_a_cancel_settles_in_its_time_when_the_clock_was_set_back_before_somebody_took_the_run_over(
    world: World,
) -> None:
    program = Undoing(world.outside, send_for_ten_minutes)
    driving = await world.drive(program)
    await until(lambda: "begin send" in world.outside.log)
    driving.cancel()
    await asyncio.gather(driving, return_exceptions=True)
    await world.control.cancel("r", by="a person", wait=0.0)

    world.wall.set_forward(-HOUR)
    ownership = Ownership(
        world.journal, await world.journal.claim("r", owner("next"), seconds=600, force=True), clock=world.wall
    )
    options = DriverOptions(settle_seconds=1.0)
    taking = Driver(
        world.journal, program, ownership, await world.journal.load("r"), over=frozenset({1}), options=options
    )
    async with asyncio.timeout(within(1.0) + 10):
        driven = asyncio.ensure_future(taking.drive())
        while (await world.journal.load("r")).status is not Status.CANCELLED:
            await asyncio.sleep(0.01)
    driven.cancel()
    await asyncio.gather(driven, return_exceptions=True)


# -- the clock is set at a bad moment

BOTH = pytest.mark.parametrize("set_by", [HOUR, -HOUR], ids=["forward", "back"])
THIRTY_MINUTES = Elapsed(minutes=30)


async def work(stage: Stage) -> None:
    await stage.call("first")
    await stage.call("second", seconds=600, idempotent=True, on_pause=OnPause.ABORT)


class SlowJournal(MemoryJournal):
    """Its appends wait when they are told to."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.waits = asyncio.Event()

    async def append(self, *given: Any, **more: Any) -> Appended:
        if not self.goes_on.is_set():
            self.waits.set()
            await self.goes_on.wait()
        return await super().append(*given, **more)


@BOTH
async def test_a_permit_that_waits_for_the_store_while_the_clock_is_set_is_given(world: World, set_by: float) -> None:
    """It was asked for by the old clock and is decided on by the new one."""
    world.journal = journal = SlowJournal()
    asks = asyncio.Event()

    async def script(stage: Stage) -> None:
        await stage.call("first")
        await asks.wait()
        await asyncio.gather(stage.call("second"), after_it_waits(stage))
        await asyncio.sleep(600)

    async def after_it_waits(stage: Stage) -> None:
        await journal.waits.wait()
        asking = asyncio.ensure_future(stage.call("third"))
        await asyncio.sleep(0)
        await asyncio.sleep(0.05)  # by now it waits behind the append of the one before
        world.wall.set_forward(set_by)
        journal.goes_on.set()
        await asking

    driving = await world.drive(Playing(world.outside, script), stop_when=THIRTY_MINUTES)
    await until(lambda: "end first" in world.outside.log)
    journal.goes_on.clear()
    asks.set()
    await until(lambda: "end third" in world.outside.log)

    assert ConditionTripped not in await world.kinds()
    await end(driving)


@BOTH
async def test_a_clock_that_is_set_while_a_driver_does_as_it_is_told_uses_up_no_time(
    world: World, set_by: float
) -> None:
    """After it has looked at the clock, and before it looks whether the time is up."""
    await new_run(world.journal, stop_when=THIRTY_MINUTES)
    driver = await world.driver(Playing(world.outside, work))
    obey, looked = driver._reconciler.obey, 0

    async def obey_while_the_clock_is_set() -> None:
        nonlocal looked
        looked += 1
        if "begin second" in world.outside.log and looked < 10**6:
            looked = 10**6
            world.wall.set_forward(set_by)
        await obey()

    driver._reconciler.obey = obey_while_the_clock_is_set  # type: ignore[method-assign]
    driving = asyncio.ensure_future(driver.drive())
    await until(lambda: "begin second" in world.outside.log)
    await world.control.add_reason("r", "the driver looks up", by="a person")
    driver._session.wake.set()
    await until(lambda: looked >= 10**6)
    await asyncio.sleep(0.05)

    assert driver.state.status is Status.RUNNING
    assert ConditionTripped not in await world.kinds()
    await end(driving)


@BOTH
async def test_a_clock_that_is_set_between_a_claim_and_the_takeover_uses_up_no_time(
    world: World, set_by: float
) -> None:
    await new_run(world.journal, stop_when=THIRTY_MINUTES)
    first = await world.driver(Playing(world.outside, work))
    world.wall.set_forward(set_by)
    await crash_at(world, first, "begin second")
    second = await world.driver(Playing(world.outside, work), by=driving_owner("second"))
    world.wall.set_forward(-set_by)
    driving = asyncio.ensure_future(second.drive())
    await until(lambda: world.outside.log.count("begin second") == 2)
    second.mind_the_clock()
    await asyncio.sleep(0.05)

    assert await world.elapsed() < HOUR / 2
    assert ConditionTripped not in await world.kinds()
    await end(driving)


@BOTH
async def test_a_clock_that_is_set_while_a_run_is_paused_makes_no_time_at_work_of_the_driver_that_dies_later(
    world: World, set_by: float
) -> None:
    await new_run(world.journal, stop_when=THIRTY_MINUTES)
    first = await world.driver(Playing(world.outside, work))
    driving = asyncio.ensure_future(first.drive())
    await until(lambda: "begin second" in world.outside.log)
    await world.control.pause("r", by="a person", wait=PATIENCE_SECONDS)

    world.wall.set_forward(set_by)
    first.mind_the_clock()
    await world.control.resume("r", by="a person", wait=PATIENCE_SECONDS)
    await crash_now(first, driving)
    second = await world.driver(Playing(world.outside, work), by=driving_owner("second"))
    again = asyncio.ensure_future(second.drive())
    await until(lambda: second.has_taken_over)

    assert await world.elapsed() < HOUR / 2
    assert ConditionTripped not in await world.kinds()
    await end(again)


@BOTH
async def test_what_a_driver_says_that_has_lost_its_run_counts_by_the_clock_as_the_run_knows_it(
    world: World, set_by: float
) -> None:
    await new_run(world.journal, stop_when=THIRTY_MINUTES)
    driver = await world.driver(Playing(world.outside, work))
    driving = asyncio.ensure_future(driver.drive())
    await until(lambda: "begin second" in world.outside.log)

    world.wall.set_forward(set_by)
    driver.ownership.clock_set_by()  # it has noticed, and has had no time to say so
    driver.ownership.lose("its lease could not be renewed in time")
    await asyncio.wait([driving], timeout=PATIENCE_SECONDS)

    assert driving.done()
    assert (await world.journal.load("r")).live == {}
    assert await world.elapsed() < HOUR / 2


async def test_a_program_that_computes_after_a_person_had_it_go_on_uses_up_its_time(world: World) -> None:
    """Nothing of that is recorded by itself: a word of the driver begins the time."""

    async def script(stage: Stage) -> None:
        await stage.call("first")
        with suppress(CallFailed):
            await stage.call("pay", approval="block")
        await asyncio.sleep(600)

    driving = await world.drive(Playing(world.outside, script), stop_when=Elapsed(seconds=2))
    await until(lambda: "end first" in world.outside.log)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (approvals := (await world.journal.load("r")).approvals):
            await asyncio.sleep(0.01)
    await world.control.deny("r", next(iter(approvals)), by="a person")
    async with asyncio.timeout(PATIENCE_SECONDS):
        while ConditionTripped not in await world.kinds():
            await asyncio.sleep(0.01)
    await end(driving)


async def test_whoever_claimed_a_run_in_vain_gave_no_sign_of_life_of_its_driver(world: World) -> None:
    await new_run(world.journal)
    first = await world.driver(Playing(world.outside, work))
    await crash_at(world, first, "begin second")
    in_vain = driving_owner("in vain")
    await world.journal.claim("r", in_vain, seconds=0.0, force=True)
    held = await world.journal.lease("r")

    lease, _ = await claim(world.journal, "r", driving_owner("next"), seconds=LEASE_SECONDS, at=world.wall())

    assert held is not None
    assert held.owner == in_vain
    assert held.until > 0
    assert lease.alive_at == 0.0


async def crash_at(world: World, driver: Driver, word: str) -> None:
    driving = asyncio.ensure_future(driver.drive())
    await until(lambda: word in world.outside.log)
    await crash_now(driver, driving)


async def crash_now(driver: Driver, driving: asyncio.Task[None]) -> None:
    """As good as a dead process: nothing more of the driver is recorded."""
    DRIVERS[driving] = driver
    driver.ownership.hand_over = _nothing  # type: ignore[assignment, method-assign]
    await crash(driving)


async def _nothing(*_: object) -> None:
    return None
