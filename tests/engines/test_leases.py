"""What the engine that goes by leases knows beyond the contract: who is silent, who is dead by name, which version."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from checkrein import Runtime
from checkrein.core.enums import Status
from checkrein.core.events import RunStarted
from checkrein.driver.driver import DriverOptions
from checkrein.driver.program_api import Program
from checkrein.engines.dispatcher import Dispatcher
from checkrein.engines.leases import LeaseEngine
from checkrein.errors import MisuseError, Refused, StoreUnavailable
from checkrein.journal import Journal, Owner
from checkrein.journal.base import Worker
from checkrein.journal.memory import MemoryJournal
from tests.core.story import Story, events_of
from tests.engines.fleet import Fleet, child, gated
from tests.support.abort_tools import pay
from tests.support.driver_harness import Outside, Playing, Stage, new_run, owner, until
from tests.support.patience import PATIENCE_SECONDS, within
from tests.support.runs import agent, asked, calls, result, until_state
from tests.support.witness import Witness

pytestmark = pytest.mark.anyio


@pytest.fixture
def journal() -> MemoryJournal:
    return MemoryJournal()


async def sends(stage: Stage) -> str:
    await stage.call("send", seconds=3_600, effect=True)
    return "done"


async def left_in_mid_call(journal: Journal, by: str) -> None:
    """A run whose driver, on another host, has died without a word while it sent something. Its lease is in force."""
    story = Story(driven=False, run="r")
    await new_run(journal)
    lease = await journal.claim("r", owner(by), seconds=60)
    begun = events_of(story.take_over(process=by, host="here"))
    await journal.append("r", begun, after=1, epoch=lease.epoch)
    await journal.append("r", events_of(story.tool("c1", name="send", effect=True)), after=2, epoch=lease.epoch)


def engine_of(journal: Journal, **options: Any) -> LeaseEngine:
    programs: dict[str, Program] = {"player": Playing(Outside(), sends)}
    return LeaseEngine(Dispatcher(journal, owner("second"), programs, driver_options=DriverOptions(**options)))


async def in_doubt(journal: Journal) -> tuple[int, ...]:
    """Wait until the call is in doubt; the epochs whose owner may still make it."""
    while not (doubts := (await journal.load("r")).doubts):
        await asyncio.sleep(0.01)
    (doubt,) = doubts.values()
    return doubt.unanswered


async def test_the_runs_of_a_silent_host_are_taken_over_when_their_lease_is_over(journal: MemoryJournal):
    await left_in_mid_call(journal, "silent")
    lease = await journal.lease("r")
    assert lease is not None
    async with engine_of(journal) as engine:
        await asyncio.sleep(0.1)
        assert engine.runs == ()

        await journal.renew(lease.owner, seconds=0.0)

        await until(lambda: engine.runs == ("r",))
        assert await in_doubt(journal) == (1,), "whether it lives nobody knows"


async def test_a_run_that_is_taken_up_while_it_is_being_claimed_with_others_is_claimed_once(
    journal: MemoryJournal, monkeypatch: pytest.MonkeyPatch
):
    """Of two claims of one process the later would take the run from the earlier, and end what that one does."""
    plain, is_claimed, may_go_on = journal.claim_free, asyncio.Event(), asyncio.Event()

    async def slow(*given: Any, **options: Any) -> Any:
        leases = await plain(*given, **options)
        is_claimed.set()
        await may_go_on.wait()
        return leases

    monkeypatch.setattr(journal, "claim_free", slow)
    await new_run(journal)
    at_once = DriverOptions(shutdown_seconds=0.1)
    engine = LeaseEngine(
        Dispatcher(journal, owner("second"), {"player": Playing(Outside(), sends)}, driver_options=at_once)
    )
    opening = asyncio.create_task(engine.__aenter__())
    await is_claimed.wait()

    taking = asyncio.create_task(engine.take_up("r"))
    await asyncio.sleep(0.05)
    may_go_on.set()
    await asyncio.gather(opening, taking)

    lease = await journal.lease("r")
    assert (engine.runs, lease and lease.epoch) == (("r",), 1)
    await engine.__aexit__()


async def test_a_mistake_with_one_run_keeps_no_other_from_being_driven(
    journal: MemoryJournal, monkeypatch: pytest.MonkeyPatch
):
    """Nor does it end the looking."""
    plain, failures = journal.load, [RuntimeError("a mistake of ours"), RuntimeError("and another")]

    async def load(run: str) -> Any:
        if run == "r" and failures:
            raise failures.pop()
        return await plain(run)

    monkeypatch.setattr(journal, "load", load)
    told: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context["message"]))
    for run in ("r", "s"):
        await new_run(journal, run, thread=run)
    at_once = DriverOptions(shutdown_seconds=0.1)
    programs: dict[str, Any] = {"player": Playing(Outside(), sends)}
    async with LeaseEngine(Dispatcher(journal, owner("second"), programs, driver_options=at_once)) as engine:
        await until(lambda: set(engine.runs) == {"r", "s"})

    assert told
    assert all("r failed" in one for one in told)


@pytest.mark.parametrize("how", ["its name", "a burial"])
async def test_of_a_worker_that_is_dead_by_name_or_by_word_the_calls_are_answered_for(
    journal: MemoryJournal, monkeypatch: pytest.MonkeyPatch, how: str
):
    """Neither is its lease waited for."""
    monkeypatch.setattr("checkrein.engines.leases.ROSTER_SECONDS", 0.0)
    await journal.enlist(Worker(name="w", owner=owner("dead")), seconds=0.01)
    await left_in_mid_call(journal, "dead")
    async with engine_of(journal) as engine:
        await asyncio.sleep(0.1)
        assert engine.runs == ()

        if how == "its name":
            await journal.enlist(Worker(name="w", owner=owner("next")), seconds=60, instead_of=["dead"])
        else:
            await journal.bury("w", by="ann", reason="its host burnt down")

        await until(lambda: engine.runs == ("r",))
        assert await in_doubt(journal) == ()


async def test_a_worker_that_is_started_again_under_its_name_has_its_runs_at_once(journal: MemoryJournal):
    await journal.enlist(Worker(name="w", owner=owner("dead")), seconds=0.01)
    await left_in_mid_call(journal, "dead")
    await journal.enlist(Worker(name="w", owner=owner("second")), seconds=60, instead_of=["dead"])

    async with engine_of(journal) as engine:
        await until(lambda: engine.runs == ("r",), within(1.0))

        assert await in_doubt(journal) == ()


async def test_a_driver_answers_for_a_former_one_that_is_buried_later(
    journal: MemoryJournal, monkeypatch: pytest.MonkeyPatch
):
    await journal.enlist(Worker(name="w", owner=owner("silent")), seconds=60)
    await left_in_mid_call(journal, "silent")
    await journal.renew(owner("silent"), seconds=0.0)
    async with engine_of(journal):
        assert await in_doubt(journal) == (1,)

        await journal.bury("w", by="ann", reason="its host burnt down")

        while await in_doubt(journal):
            await asyncio.sleep(0.01)


async def test_a_former_driver_that_is_buried_when_its_run_has_left_memory_is_answered_for_too(
    journal: MemoryJournal, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("checkrein.engines.leases.RECLAIM_SECONDS", 0.0)
    await journal.enlist(Worker(name="w", owner=owner("silent")), seconds=60)
    await left_in_mid_call(journal, "silent")
    await journal.renew(owner("silent"), seconds=0.0)
    async with engine_of(journal, evict_seconds=0.0) as engine:
        assert await in_doubt(journal) == (1,)
        await until(lambda: engine.runs == ())

        await journal.bury("w", by="ann", reason="its host burnt down")

        async with asyncio.timeout(PATIENCE_SECONDS):
            while await in_doubt(journal):
                await asyncio.sleep(0.01)
        await until(lambda: engine.runs == () and not engine._dispatcher.unanswered)


# -- versions


def versioned(version: str, name: str, **options: Any) -> dict[str, Any]:
    return {"version": version, "worker": name, **options}


@pytest.fixture
def quick_roster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("checkrein.engines.leases.ROSTER_SECONDS", 0.5)


async def at_first_version(fleet: Fleet) -> tuple[Runtime, str]:
    """A worker of version v1, and a run at work there."""
    first = await fleet.worker(**versioned("v1", "a"))
    run = await fleet.begin()
    await fleet.begun(run)
    return first, run


async def test_a_run_goes_on_where_its_version_is_as_long_as_somebody_has_it(
    leases_on_sqlite: Fleet, quick_roster: None
):
    fleet = leases_on_sqlite
    first, run = await at_first_version(fleet)
    newer, second = await fleet.worker(**versioned("v2", "b")), await fleet.worker(**versioned("v1", "c"))

    await fleet.shut_down(first)
    await fleet.is_driven_by(second, run)
    await fleet.begun(run, times=2)
    assert newer._engine.runs == ()
    await fleet.shut_down(second)

    await fleet.is_driven_by(newer, run)
    fleet.let(run)
    await fleet.ended(run)
    events = [record.event for record in await fleet.journal.read(run)]
    assert [event.version for event in events if isinstance(event, RunStarted)] == ["v1", "v1", "v2"]


async def test_a_run_is_not_left_to_a_worker_of_its_version_that_has_other_agents(
    leases_on_sqlite: Fleet, quick_roster: None
):
    fleet = leases_on_sqlite
    first, run = await at_first_version(fleet)
    await fleet.worker(child, **versioned("v1", "b"))
    engine = partial(LeaseEngine, version_wait_seconds=3_600.0)
    newer = await fleet.worker(gated, **versioned("v2", "c", engine=engine))

    await fleet.shut_down(first)

    await fleet.is_driven_by(newer, run)


async def test_a_run_whose_version_has_no_slot_for_long_is_driven_by_another(
    leases_on_postgres: Fleet, quick_roster: None
):
    fleet = leases_on_postgres
    first, run = await at_first_version(fleet)
    full = await fleet.worker(**versioned("v1", "b", slots=1))
    other = await fleet.begin()
    await fleet.begun(other)
    if full._engine.runs == ():  # the first has taken it
        third = await fleet.begin()
        while third not in full._engine.runs:
            await asyncio.sleep(0.05)
            third = third if third in full._engine.runs else await fleet.begin()
    newer = await fleet.worker(**versioned("v2", "c", engine=partial(LeaseEngine, version_wait_seconds=2.0)))

    await fleet.shut_down(first)

    await fleet.is_driven_by(newer, run)


async def test_a_stop_does_not_wait_for_a_version_and_a_pause_leaves_the_run_to_it(leases_on_postgres: Fleet):
    """D16, D33: those who have its version say that they live, and take nothing up."""
    fleet = leases_on_postgres
    ghost = Worker(name="ghost", owner=owner("ghost"), version="v1", agents=("gated",))
    await fleet.journal.enlist(ghost, seconds=3_600.0)
    first = await fleet.worker(**versioned("v1", "a"))
    cancelled, paused = await fleet.begin(), await fleet.begin()
    await fleet.begun(cancelled, paused)
    engine = partial(LeaseEngine, version_wait_seconds=3_600.0)
    newer = await fleet.worker(**versioned("v2", "b", engine=engine, slots=1))
    await fleet.shut_down(first)

    receipt = await fleet.control.cancel(cancelled, by="ann", wait=PATIENCE_SECONDS)
    await fleet.control.pause(paused, by="ann", wait=PATIENCE_SECONDS)
    await fleet.control.resume(paused, by="ann", wait=0)

    assert (receipt.is_settled, receipt.status) == (True, Status.CANCELLED)
    assert fleet.witness.words().count(f"undo once {cancelled}") == 1
    assert await fleet.journal.versions([cancelled, paused]) == {cancelled: "v1", paused: "v1"}
    assert newer._engine.runs == ()


# -- slots


async def test_slots_that_would_drive_nothing_are_refused():
    with pytest.raises(MisuseError, match="slots=0 would drive nothing"):
        Runtime("memory:", slots=0)


async def test_a_run_that_waits_for_a_person_leaves_memory_and_its_slot_until_something_happens_to_it(
    store: str, witness: Witness
):
    payer = agent([calls(("pay", {"log": witness.log})), "Paid."], [pay])
    async with Runtime(store, agents=[payer], evict_seconds=0.1, slots=1) as runtime:
        run = await runtime.start(payer, "Pay.")
        call = await asked(run)

        await until(lambda: runtime._engine.runs == ())
        before = await run.state()
        await asyncio.sleep(2.5)  # two looks for what is free

        assert (await run.state()).seq == before.seq, "nobody has taken it up"
        assert before.status is Status.RUNNING
        assert await runtime.journal.lease(run.id) is None
        await run.approve(call)
        assert await result(run) == "Paid."
    assert witness.words() == ["paid 100"]


async def test_a_run_that_waits_for_a_person_makes_room_for_another_at_once(store: str, witness: Witness):
    payer = agent([calls(("pay", {"log": witness.log})), "Paid."], [pay])
    async with Runtime(store, agents=[payer], slots=1) as runtime:
        runs = [await runtime.start(payer, f"Pay {number}.") for number in range(3)]

        paid = [await asked(run) for run in runs]

        assert len(runtime._engine.runs) == 1
        for run, call in zip(runs, paid, strict=True):
            await run.approve(call)
        for run in runs:
            assert await result(run) == "Paid."


async def test_an_owner_of_another_host_is_not_taken_for_dead(journal: MemoryJournal):
    await left_in_mid_call(journal, "elsewhere")
    assert (await journal.owners()) == (Owner(process="elsewhere", host="here"),)
    async with engine_of(journal) as engine:
        await asyncio.sleep(1.2)

        assert engine.runs == ()


async def test_a_question_to_a_paused_run_is_answered_also_when_all_slots_are_taken(store: str):
    talker = agent(["word " * 10_000], [], pace=20)
    async with Runtime(store, agents=[talker], evict_seconds=0.1, slots=1) as runtime:
        paused = await runtime.start(talker, "First.")
        await until_state(paused, lambda state: state.live)
        await paused.pause()
        await until(lambda: runtime._engine.runs == ())
        full = await runtime.start(talker, "Second.")
        await until_state(full, lambda state: state.live)

        with pytest.raises(Refused, match="still waits for"):
            await paused.ask("How is it?", wait=0.0)

        await until_state(paused, lambda state: state.live)
        assert full.id in runtime._engine.runs


async def test_a_question_to_a_paused_run_is_answered_when_the_store_was_away_as_it_was_heard_of(
    store: str, monkeypatch: pytest.MonkeyPatch
):
    talker = agent(["word " * 10_000], [], pace=20)
    async with Runtime(store, agents=[talker], evict_seconds=0.1) as runtime:
        paused = await runtime.start(talker, "Go.")
        await until_state(paused, lambda state: state.live)
        await paused.pause()
        await until(lambda: runtime._engine.runs == ())
        assert isinstance(runtime._engine, LeaseEngine)
        dispatcher, away = runtime._engine._dispatcher, iter([True])
        take_up = dispatcher.take_up

        async def first_away(run: str) -> None:
            if next(away, False):
                raise StoreUnavailable("It is away.")
            await take_up(run)

        monkeypatch.setattr(dispatcher, "take_up", first_away)
        with pytest.raises(Refused, match="still waits for"):
            await paused.ask("How is it?", wait=0.0)

        await until_state(paused, lambda state: state.live)


async def test_of_paused_runs_that_are_to_go_on_each_gets_its_turn_however_few_slots_there_are(
    leases_on_sqlite: Fleet,
):
    """Those that an earlier version has left have no lease that could be found."""
    fleet = leases_on_sqlite
    first = await fleet.worker()
    runs = [await fleet.begin() for _ in range(3)]
    await fleet.begun(*runs)
    await fleet.shut_down(first)
    for run in runs:
        await fleet.journal.release(await fleet.journal.claim(run, owner("earlier"), seconds=60))

    await fleet.worker(slots=1)

    fleet.let(*runs)
    await fleet.ended(*runs)
