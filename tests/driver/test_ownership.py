"""A driver's right to its run: one state that only goes forward, and what becomes of the calls when it is lost.

Taking over from dead and living owners is tested in `tests/torture/crash/runtime`.
"""

from __future__ import annotations

import ast
import asyncio
import logging
import os
import subprocess
import uuid
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from checkrein import driver as package
from checkrein.calls.base import CallRequest, Permit
from checkrein.control.control import Control
from checkrein.core import commands as c
from checkrein.core.decide import decide
from checkrein.core.enums import CallKind, OnPause, Outcome, Status
from checkrein.core.events import CallAnswered, CallFinished, CallStarted, RunStarted
from checkrein.core.state import State
from checkrein.driver.driver import Driver
from checkrein.driver.ownership import Ownership, OwnershipLost, answers_for_the_dead, claim
from checkrein.errors import StoreUnavailable
from checkrein.journal import Journal, MemoryJournal, Owner
from checkrein.journal.base import Lease
from checkrein.processes import env_marks, termination
from checkrein.processes.families import Family
from checkrein.processes.identity import in_role, is_known_dead, program_version, this_process
from checkrein.processes.table import ProcessInfo, row_of_self
from tests.support.driver_harness import (
    DRIVERS,
    Outside,
    Playing,
    Scripted,
    Stage,
    at_work,
    drive,
    driver_of,
    new_run,
    owner,
    until,
)
from tests.support.patience import PATIENCE_SECONDS
from tests.support.tools import ticker
from tests.support.witness import Witness

pytestmark = pytest.mark.anyio


@pytest.fixture
def journal() -> Journal:
    return MemoryJournal()


async def owned(journal: Journal, **options: object) -> Ownership:
    run = await new_run(journal)
    return Ownership(journal, await journal.claim(run, owner(), seconds=60), **options)  # type: ignore[arg-type]


async def test_a_run_is_lost_once_and_those_who_must_know_are_told_in_order(journal: Journal) -> None:
    ownership, told = await owned(journal), []
    ownership.when_lost(lambda: told.append("writer"))
    ownership.when_lost(lambda: told.append("calls"))

    ownership.lose("taken over")
    ownership.lose("taken over again")

    assert told == ["writer", "calls"]
    assert not ownership.is_held


async def test_a_loss_is_logged_once_with_its_run_its_epoch_and_why(
    journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    ownership = await owned(journal)

    with caplog.at_level(logging.INFO, logger="checkrein.driver.ownership"):
        ownership.lose("taken over with epoch 2")
        ownership.lose("taken over again")

    (line,) = caplog.records
    assert line.getMessage() == "the run is given up: taken over with epoch 2"
    assert (vars(line)["run"], vars(line)["epoch"]) == ("r", ownership.epoch)


async def test_a_takeover_from_a_dead_owner_is_logged(journal: Journal, caplog: pytest.LogCaptureFixture) -> None:
    here = this_process()
    corpse = msgspec.structs.replace(here, process="corpse", boot_id="another boot")
    run = await in_flight(journal, corpse)

    with caplog.at_level(logging.INFO, logger="checkrein.driver.ownership"):
        lease, over = await claim(journal, run, here, seconds=60, at=0.0)

    assert over == {1}
    assert [line.getMessage() for line in caplog.records] == [
        f"takeover: the owner of the run is dead (pid {corpse.pid})"
    ]
    assert vars(caplog.records[0])["epoch"] == lease.epoch


async def test_whoever_asks_first_after_the_lease_is_over_loses_the_run(journal: Journal) -> None:
    leases = [True]
    ownership = await owned(journal, holds=lambda: leases[-1])
    assert ownership.check()

    leases.append(False)
    assert ownership.is_held, "nobody has noticed yet"
    assert not ownership.check()

    leases.append(True)
    assert not ownership.check(), "a run that was given up is not taken back without a claim"


async def test_a_driver_that_loses_its_run_before_it_begins_begins_nothing(journal: Journal) -> None:
    outside = Outside()

    async def script(hands: Stage) -> None:
        await hands.call("send")

    run = await new_run(journal)
    driver = await driver_of(journal, Playing(outside, script), await journal.claim(run, owner(), seconds=60))
    driver.ownership.lose("its lease could not be renewed in time")
    async with asyncio.timeout(PATIENCE_SECONDS):
        await driver.drive()

    assert outside.log == []
    assert not any(isinstance(record.event, RunStarted) for record in await journal.read(run))


async def test_a_loss_stops_the_calls_at_once_although_the_store_does_not_answer(journal: Journal) -> None:
    outside, answers = Outside(), asyncio.Event()

    async def script(hands: Stage) -> None:
        await hands.call("send", seconds=600, effect=True)

    driving = await at_work(journal, Playing(outside, script), "begin send")
    load = journal.load

    async def load_later(run: str) -> object:
        await answers.wait()
        return await load(run)

    journal.load = load_later  # type: ignore[method-assign,assignment]
    DRIVERS[driving].ownership.lose("its lease could not be renewed in time")
    await until(lambda: "abort send" in outside.log)
    assert not driving.done(), "it still owes a word about its call"

    answers.set()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await driving
    ends = [record.event for record in await journal.read("r") if isinstance(record.event, CallFinished)]
    assert [(end.call, end.outcome, end.abandoned) for end in ends] == [("c1", Outcome.IN_DOUBT, True)]
    assert outside.times("abort send") == 1


async def test_nothing_is_committed_by_an_owner_that_has_lost(journal: Journal) -> None:
    async def script(hands: Stage) -> None:
        await hands.call("send", seconds=600)

    outside = Outside()
    driving = await at_work(journal, Playing(outside, script), "begin send")
    session = DRIVERS[driving]._session

    session.ownership.lose("taken over")
    with pytest.raises(OwnershipLost):
        await session.writer.commit(c.PauseRun(id="pause", at=0.0, by="somebody"))

    await driving


def test_who_controls_and_who_halts_must_claim_from_the_drivers_of_its_own_process() -> None:
    process = this_process()

    control, halt, other_halt = in_role(process, "control"), in_role(process, "halt"), in_role(process, "halt")

    assert len({process.process, control.process, halt.process, other_halt.process}) == 4
    assert control == in_role(process, "control")
    assert not any(map(is_known_dead, (control, halt)))


def test_the_modules_of_a_driver_import_one_another_in_one_direction() -> None:
    """Also under TYPE_CHECKING, which hides a cycle from the interpreter and not from a reader."""
    folder = Path(next(iter(package.__path__)))
    imports = {
        path.stem: {
            node.module.rsplit(".", 1)[1]
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("checkrein.driver.")
        }
        for path in folder.glob("*.py")
    }

    while leaves := {module for module, needs in imports.items() if not needs & imports.keys()}:
        imports = {module: needs for module, needs in imports.items() if module not in leaves}

    assert imports == {}


async def test_an_end_that_the_owner_before_recorded_just_before_it_was_replaced_is_not_recorded_again(
    journal: Journal,
) -> None:
    """An engine reads where a run stands, and claims it; in between its owner may have said how its calls ended."""
    run, outside = await new_run(journal), Outside()

    async def script(executor: Stage) -> None:
        await executor.call("send", seconds=60, effect=True)

    first = await drive(journal, Playing(outside, script))
    await until(lambda: "begin send" in outside.log)
    read_before_the_claim = await journal.load(run)
    first.cancel()
    await asyncio.wait([first])

    lease = await journal.claim(run, owner("second"), seconds=60, force=True)
    over = frozenset({lease.epoch - 1})
    second = Driver(journal, Playing(outside, script), Ownership(journal, lease), read_before_the_claim, over=over)
    driving = asyncio.ensure_future(second.drive())
    await until(lambda: second.state.doubts != {})
    driving.cancel()
    await asyncio.wait([driving])

    ends = [record.event for record in await journal.read(run) if isinstance(record.event, CallFinished)]
    assert [end.outcome for end in ends] == [Outcome.IN_DOUBT]


async def take_over(journal: Journal, run: str) -> Lease:
    """Somebody else takes the run from its driver, of which it does not know whether it lives."""
    lease = await journal.claim(run, owner("heir"), seconds=60, force=True)
    state = await journal.load(run)
    taken = decide(state, c.TakeOver(id="took", at=3.0, epoch=lease.epoch))
    assert isinstance(taken, tuple)
    await journal.append(run, taken, after=state.seq, epoch=lease.epoch)
    return lease


class StopsLate(Scripted):
    """A performance that is not over before the test says so."""

    may_stop: asyncio.Event

    async def abort(self) -> None:
        self._outside.log.append(f"abort {self._name}")
        await self.may_stop.wait()
        await super().abort()


async def test_a_driver_that_is_cancelled_while_it_gives_its_run_up_still_answers_for_its_calls(
    journal: Journal,
) -> None:
    """Its runtime is closed: without its word nobody would undo what it did before its process is dead."""
    run, outside, may_stop = await new_run(journal), Outside(), asyncio.Event()

    async def script(stage: Stage) -> None:
        def perform(permit: Permit) -> StopsLate:
            execution = StopsLate(partial(asyncio.sleep, 60), outside, "send")
            execution.may_stop = may_stop
            return execution

        await stage.driver.call(CallRequest(kind=CallKind.TOOL, name="send", perform=perform, effect="send"))

    driving = await drive(journal, Playing(outside, script))
    while not (await journal.load(run)).live:
        await asyncio.sleep(0)
    heir = await take_over(journal, run)
    await until(lambda: "abort send" in outside.log)

    driving.cancel()
    await asyncio.sleep(0)
    may_stop.set()
    await asyncio.wait([driving])

    answers = [record.event for record in await journal.read(run) if isinstance(record.event, CallAnswered)]
    assert [(one.epoch, one.outcome) for one in answers] == [(heir.epoch - 1, Outcome.ABORTED)]


async def test_a_driver_answers_for_a_second_attempt_although_it_has_recorded_how_the_first_ended(
    journal: Journal,
) -> None:
    """A pause has ended the first. Without its word the effect of the second would stay in doubt while it lives."""
    run, outside = await new_run(journal), Outside()
    control = Control(journal, owner("control"))

    async def script(stage: Stage) -> None:
        await stage.call("look_up", seconds=60, effect=True, idempotent=True, on_pause=OnPause.ABORT)

    driving = await drive(journal, Playing(outside, script))
    await until(lambda: "begin look_up" in outside.log)
    await control.pause(run, by="a person")
    await control.resume(run, by="a person")
    await until(lambda: outside.times("begin look_up") == 2)

    heir = await take_over(journal, run)
    await asyncio.wait([driving])

    answers = [record.event for record in await journal.read(run) if isinstance(record.event, CallAnswered)]
    assert [(one.epoch, one.outcome) for one in answers] == [(heir.epoch - 1, Outcome.ABORTED)]


# -- of which calls it is known that nobody makes them any more


async def in_flight(journal: Journal, maker: Owner, *, says_who: bool = True, seconds: float = 60) -> str:
    """A run with a call that `maker` has begun, under its first epoch, and of which nothing more is recorded."""
    run = await new_run(journal)
    lease = await journal.claim(run, maker, seconds=seconds)
    who: dict[str, Any] = {"host": maker.host, "pid": maker.pid}
    if says_who:
        who |= {"process": maker.process, "boot_id": maker.boot_id, "started": maker.started}
    began = RunStarted(id="began", at=1.0, epoch=lease.epoch, status=Status.RUNNING, **who)
    permit = CallStarted(id="permit", at=2.0, call="c1", kind=CallKind.TOOL, name="send", epoch=lease.epoch)
    await journal.append(run, [began, permit], after=1, epoch=lease.epoch)
    return run


def living(name: str) -> Owner:
    return msgspec.structs.replace(this_process(), process=name)


def dead(name: str) -> Owner:
    """Its pid is another's by now."""
    return msgspec.structs.replace(this_process(), process=name, started=1.0)


async def claim_in_vain(journal: Journal, run: str, by: Owner, how: str) -> None:
    """Claim a run and come to nothing before it is taken over."""
    lease = await journal.claim(run, by, seconds=0.0)
    if how == "gave it back":
        await journal.release(lease)


@pytest.mark.parametrize("how", ["died", "gave it back", "lost it and comes again"])
async def test_a_call_is_judged_by_its_maker_and_not_by_whoever_claimed_the_run_after_it(
    journal: Journal, how: str
) -> None:
    """A process may come to nothing between its claim and its takeover; the maker of the calls still lives, perhaps
    frozen, and would go on after what it did was undone."""
    run = await in_flight(journal, living("the maker"), seconds=0.0)
    heir = living("the heir")
    await claim_in_vain(journal, run, {"died": dead("another"), "gave it back": living("another")}.get(how, heir), how)

    lease, over = await claim(journal, run, heir, seconds=60, at=0.0)

    assert lease.epoch == 3
    assert over == frozenset()


@pytest.mark.parametrize("how", ["died", "gave it back", "lost it and comes again"])
async def test_a_maker_that_is_dead_is_known_to_be_whoever_claimed_the_run_after_it(journal: Journal, how: str) -> None:
    run = await in_flight(journal, dead("the maker"), seconds=0.0)
    heir = living("the heir")
    await claim_in_vain(journal, run, {"died": dead("another"), "gave it back": living("another")}.get(how, heir), how)

    _, over = await claim(journal, run, heir, seconds=60, at=0.0)

    assert over == {1}


async def test_a_dead_maker_of_which_something_lives_on_is_not_over_also_when_the_answer_to_the_claim_was_lost(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await in_flight(journal, dead("the maker"))
    claimed = journal.claim

    async def looked_up(*given: Any, **more: Any) -> Lease:
        return msgspec.structs.replace(await claimed(*given, **more), previous=None)

    async def in_vain(family: Family, **_: Any) -> list[ProcessInfo]:
        return [row_of_self()]

    monkeypatch.setattr(journal, "claim", looked_up)
    monkeypatch.setattr(termination, "end", in_vain)
    _, over = await claim(journal, run, living("the heir"), seconds=60, at=0.0)

    assert over == frozenset()


async def test_a_claim_after_which_the_journal_cannot_be_read_is_given_back(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await new_run(journal)

    async def away(run: str) -> State:
        raise StoreUnavailable("The store is away.")

    with monkeypatch.context() as broken, pytest.raises(StoreUnavailable):
        broken.setattr(journal, "load", away)
        await claim(journal, run, living("the heir"), seconds=60, at=0.0)

    assert await journal.lease(run) is None


# -- answer for the dead


async def in_doubt(journal: Journal, maker: Owner, *, says_who: bool = True) -> str:
    """A run with a call that `maker` has begun and never answered for."""
    run = await in_flight(journal, maker, says_who=says_who)
    heir = await journal.claim(run, owner(), seconds=60, force=True)
    taken = decide(await journal.load(run), c.TakeOver(id="took", at=3.0, epoch=heir.epoch))
    assert isinstance(taken, tuple)
    await journal.append(run, taken, after=3, epoch=heir.epoch)
    return run


@pytest.mark.parametrize(
    ("change", "is_answered"),
    [({}, False), ({"started": 1.0}, True), ({"boot_id": "an earlier one"}, True), ({"host": "elsewhere"}, False)],
    ids=["alive", "its pid is another's by now", "its host has restarted", "on another host"],
)
async def test_a_call_is_answered_for_when_its_maker_is_known_to_be_dead(
    journal: Journal, change: dict[str, Any], is_answered: bool
) -> None:
    maker = msgspec.structs.replace(this_process(), process="the maker", **change)
    run = await in_doubt(journal, maker)

    answers = await answers_for_the_dead(journal, await journal.load(run), 4.0)

    assert [answer.call for answer in answers] == (["c1"] if is_answered else [])


async def test_what_the_tools_of_a_dead_maker_have_left_is_ended_before_it_is_answered_for(
    journal: Journal, witness: Witness
) -> None:
    """D4: an answer lets an effect be undone, and its tool must not go on after that. The witness is the tool's log."""
    name = f"maker-{uuid.uuid4().hex}"
    left = subprocess.Popen(ticker(witness.log, "tick"), env={**os.environ, env_marks.RUNTIME: name})
    try:
        await witness.saw("tick")
        run = await in_doubt(journal, msgspec.structs.replace(this_process(), process=name, started=1.0))

        answers = await answers_for_the_dead(journal, await journal.load(run), 4.0)

        assert [answer.call for answer in answers] == ["c1"]
        assert await witness.is_quiet()
    finally:
        left.kill()
        left.wait()


async def test_of_a_maker_that_did_not_say_when_it_began_a_reused_pid_counts_as_alive(journal: Journal) -> None:
    maker = msgspec.structs.replace(this_process(), process="the maker", started=1.0)
    run = await in_doubt(journal, maker, says_who=False)

    assert await answers_for_the_dead(journal, await journal.load(run), 4.0) == []


async def test_who_takes_a_run_up_says_so_that_its_death_can_be_established_later(journal: Journal) -> None:
    run = await new_run(journal)

    async def script(stage: Stage) -> str:
        return "done"

    us = this_process()
    driver = await driver_of(journal, Playing(Outside(), script), await journal.claim(run, us, seconds=60))
    await driver.drive()

    (began,) = [record.event for record in await journal.read(run) if isinstance(record.event, RunStarted)]
    said = (began.process, began.host, began.boot_id, began.pid, began.started, began.version)
    assert said == (us.process, us.host, us.boot_id, us.pid, us.started, program_version())
    assert began.version
