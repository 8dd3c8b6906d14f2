"""Taking up what somebody else has left: from whom it may be taken, and how it goes on."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from checkrein import Agent, Runtime, tool
from checkrein.calls.base import CallResult
from checkrein.control.control import Control
from checkrein.core.commands import StartCall, TakeOver
from checkrein.core.enums import CallKind, EffectState, Outcome, Status, Undo
from checkrein.core.events import (
    CallFinished,
    CallStarted,
    EffectOpened,
    EffectReopened,
    EffectUndone,
    RunCreated,
    RunFinished,
    RunStarted,
)
from checkrein.driver.commits import RunWriter
from checkrein.driver.ownership import Ownership, OwnershipLost, claim
from checkrein.driver.session import RunSession
from checkrein.errors import LeaseHeld, StaleEpoch
from checkrein.journal import open_journal
from checkrein.journal.base import Journal, Lease, Owner
from checkrein.models import ScriptedModel, Turn
from checkrein.processes import env_marks
from checkrein.processes.identity import this_process
from tests.support.patience import PATIENCE_SECONDS
from tests.support.witness import is_alive
from tests.torture.crash.crew import end, in_child, start
from tests.torture.crash.runtime import diary
from tests.torture.crash.runtime.check import check_at_the_end
from tests.torture.crash.runtime.life import be_long_runtime
from tests.torture.crash.runtime.saga import stories
from tests.torture.crash.runtime.tools import LONG_CALLS, url

RUN = "r-1"


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    async with await open_journal(f"sqlite:///{tmp_path}/runs.db") as opened:
        await opened.create(RunCreated(id="created", at=0, run=RUN, agent="a", goal="g", thread=RUN))
        yield opened


@pytest.fixture(scope="module")
def corpse() -> Owner:
    """A process of this host that is known to be dead."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    dead = replace(this_process(), process="corpse", pid=process.pid, started=1.0)
    process.kill()
    process.wait()
    return dead


def living(name: str) -> Owner:
    return replace(this_process(), process=name)


async def begin(journal: Journal, owner: Owner, *, seconds: float) -> Lease:
    """Have `owner` take the run up and begin a call."""
    lease = await journal.claim(RUN, owner, seconds=seconds)
    who: dict[str, Any] = {"host": owner.host, "pid": owner.pid, "process": owner.process, "boot_id": owner.boot_id}
    began = RunStarted(id="b", at=0, epoch=lease.epoch, status=Status.RUNNING, started=owner.started, **who)
    permit = CallStarted(id="p", at=0, call="c1", kind=CallKind.TOOL, name="send", epoch=lease.epoch)
    await journal.append(RUN, [began, permit], after=1, epoch=lease.epoch)
    return lease


# -- from whom


@pytest.mark.anyio
async def test_the_run_of_a_dead_process_need_not_be_waited_for(journal, corpse):
    dead = await begin(journal, corpse, seconds=60)

    lease, over = await claim(journal, RUN, living("heir"), seconds=60, at=time.time())

    assert lease.previous == corpse
    assert over == {dead.epoch}


@pytest.mark.anyio
async def test_of_two_that_have_seen_the_same_corpse_only_one_gets_the_run(journal, corpse):
    await journal.claim(RUN, corpse, seconds=60)
    seen: Lease | None = await journal.lease(RUN)

    class LookedBefore:
        """The journal, as the second one saw it before the first one's claim."""

        async def lease(self, run: str) -> Lease | None:
            return seen

        def __getattr__(self, name: str) -> object:
            return getattr(journal, name)

    first, _ = await claim(journal, RUN, living("first"), seconds=60, at=time.time())
    with pytest.raises(StaleEpoch):
        await claim(LookedBefore(), RUN, living("second"), seconds=60, at=time.time())  # type: ignore[arg-type]

    held = await journal.lease(RUN)
    assert held is not None
    assert held.owner == first.owner


@pytest.mark.anyio
async def test_a_run_is_not_taken_from_a_living_process_before_its_lease_is_over(journal):
    await journal.claim(RUN, living("owner"), seconds=60)

    with pytest.raises(LeaseHeld):
        await claim(journal, RUN, living("rival"), seconds=60, at=time.time())


@pytest.mark.anyio
async def test_what_a_living_process_has_begun_may_still_go_on_although_its_lease_is_over(journal):
    await begin(journal, living("owner"), seconds=-1)

    _, over = await claim(journal, RUN, living("rival"), seconds=60, at=time.time())

    assert over == frozenset()


@pytest.mark.anyio
async def test_whoever_gives_a_run_back_has_stopped_everything(journal):
    given_back = await begin(journal, living("owner"), seconds=60)
    await journal.release(given_back)

    _, over = await claim(journal, RUN, living("next"), seconds=60, at=time.time())

    assert over == {given_back.epoch}


@pytest.mark.anyio
async def test_what_the_tools_of_a_dead_runtime_have_left_is_ended_before_its_run_is_taken(journal, corpse):
    """D4: also when its supervisor was killed with it."""
    await journal.claim(RUN, corpse, seconds=60)
    left = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)"],
        env={**os.environ, env_marks.RUNTIME: corpse.process},
        start_new_session=True,
    )
    try:
        await claim(journal, RUN, living("heir"), seconds=60, at=time.time())

        assert not is_alive(left.pid)
    finally:
        left.kill()
        left.wait()


@pytest.mark.anyio
async def test_a_former_driver_that_asks_for_a_permit_that_its_successor_gave_learns_that_it_has_lost_the_run(journal):
    """The same program asks for the same call, and a permit has the same id whoever gives it."""
    first, second = (StartCall(id="p", at=0, epoch=n, call="c1", kind=CallKind.TOOL, name="send") for n in (1, 2))
    scribes = []
    for name in ("first", "second"):
        lease = await journal.claim(RUN, living(name), seconds=60)
        writer = RunWriter(journal, await journal.load(RUN), Ownership(journal, lease), lambda record: None)
        await writer.commit(TakeOver(id=f"took.{name}", at=0, epoch=lease.epoch))
        scribes.append(writer)
        await journal.release(lease)

    await scribes[1].commit(second)
    with pytest.raises(OwnershipLost):
        await scribes[0].commit(first)

    permits = [r.event for r in await journal.read(RUN) if isinstance(r.event, CallStarted)]
    assert [permit.epoch for permit in permits] == [2]


@pytest.mark.anyio
async def test_what_a_former_driver_knows_of_its_call_is_not_forgotten_when_its_successor_has_made_it_again(journal):
    """It would answer that it had never begun what it has done."""
    lease = await journal.claim(RUN, living("first"), seconds=60)
    session = RunSession(journal, Ownership(journal, lease), await journal.load(RUN))
    session.calls._endings["c1"] = CallResult(outcome=Outcome.COMPLETED)
    heir = await journal.claim(RUN, living("first"), seconds=60)
    started = RunStarted(id="took", at=0, epoch=heir.epoch, status=Status.RUNNING)
    await journal.append(RUN, [started], after=1, epoch=heir.epoch)
    again = CallFinished(id="c1#2.finished", at=0, call="c1", outcome=Outcome.COMPLETED)
    await journal.append(RUN, [again], after=2, epoch=heir.epoch)

    for record in await journal.read(RUN, after=1):
        session.writer.absorb(record)

    assert not session.ownership.is_held
    assert "c1" in await session.calls.let_go()


# -- how it goes on


@pytest.mark.parametrize("verb", ["redirect", "cancel"])
def test_a_verb_that_found_nobody_settles_what_a_crash_left_in_flight(hands, scratch, verb):
    """D5 D21 D22: idempotent or not, nothing that the verb stopped is begun again."""
    assert hands.submit(crash_and_steer, scratch / verb, verb).result() == []


def crash_and_steer(where: Path, verb: str) -> list[str]:
    """For a process of its own."""
    where.mkdir(parents=True)
    errors, report = where / "errors", where / "report"
    first = start(partial(be_long_runtime, where, f"{where.name}-1"), errors)
    until = time.monotonic() + PATIENCE_SECONDS
    while len({line.key for line in diary.read(where) if line.what == "tick"}) < len(LONG_CALLS):
        if time.monotonic() > until:
            return ["its tools did not begin"]
        time.sleep(0.01)
    os.kill(first, signal.SIGKILL)
    end(first)
    in_child(partial(_steer, where, verb), errors)
    second = start(partial(be_long_runtime, where, f"{where.name}-2"), errors)
    code = end(second, PATIENCE_SECONDS)
    in_child(partial(_tell, where, report), errors)
    said = errors.read_text()
    wrong = report.read_text().splitlines() + ([said] if said else [])
    return [*wrong, f"the second runtime ended with {code}"] if code else wrong


def _steer(where: Path, verb: str) -> int:
    async def steer() -> None:
        async with await open_journal(url(where)) as journal:
            (row,) = await journal.runs()
            control = Control(journal, this_process())
            if verb == "cancel":
                await control.cancel(row.id, by="person", wait=0)
            else:
                await control.redirect(row.id, "Leave it at that.", by="person", wait=0)

    asyncio.run(steer())
    return 0


def _tell(where: Path, report: Path) -> int:
    (story,) = asyncio.run(stories(where, {}, verify=True))
    wrong = check_at_the_end(story)
    wrong += [f"{line.key} began again" for line in story.begins() if line.attempt > 1]
    wrong += [
        f"{effect.id} is left" for effect in story.effects if effect.undo and effect.state is not EffectState.UNDONE
    ]
    report.write_text("\n".join(wrong))
    return 0


@pytest.mark.anyio
@pytest.mark.parametrize("address", ["memory:", "sqlite:///{}/runs.db"])
async def test_a_journal_knows_which_finished_runs_want_an_undo(tmp_path, address):
    async with await open_journal(address.format(tmp_path)) as journal:
        for run in ("wants", "has", "never"):
            await journal.create(RunCreated(id="created", at=0, run=run, agent="a", goal="g", thread=run))
            lease = await journal.claim(run, living("owner"), seconds=60)
            opened = EffectOpened(id="opened", at=0, effect="c1", what="a draft", undo="x:y")
            end = RunFinished(id="end", at=0, status=Status.CANCELLED)
            await journal.append(run, [opened, end], after=1, epoch=lease.epoch)
            if run != "never":
                wanted = EffectReopened(id="wanted", at=0, effect="c1", undo=True)
                await journal.append(run, [wanted], after=3)
            if run == "has":
                await journal.append(run, [EffectUndone(id="undone", at=0, effect="c1")], after=4, epoch=lease.epoch)

        assert await journal.wanting_undo() == ("wants",)


discarded: list[str] = []


async def discard(call) -> None:
    discarded.append(call.result)


@tool(undo=discard)
async def make_draft() -> str:
    return "draft-7"


def drafter() -> Agent:
    model = ScriptedModel([Turn("A draft.", calls=[("make_draft", {})]), "Done."], tokens_per_second=20)
    return Agent("drafter", model=model, tools=[make_draft])


@pytest.mark.anyio
async def test_an_undo_that_was_asked_for_when_nobody_was_there_is_done_by_the_next_runtime(tmp_path):
    """D33: also of a run that is finished, and that nobody would look for otherwise."""
    store = f"sqlite:///{tmp_path}/runs.db"
    async with Runtime(store) as first:
        run = await first.start(drafter(), "Make a draft.")
        async for record in run.events():
            if isinstance(record.event, CallStarted) and record.event.call == "c3":
                break
        await run.cancel(undo=Undo.NONE)
    async with await open_journal(store) as journal:
        (effect,) = await journal.effects(run.id)
        assert effect.state is EffectState.LEFT
        await Control(journal, this_process()).retry_undo(run.id, effect.id, by="person")
        assert await journal.wanting_undo() == (run.id,)

    async with Runtime(store, agents=[drafter()]) as second, asyncio.timeout(PATIENCE_SECONDS):
        while (await second.journal.effects(run.id))[0].state is not EffectState.UNDONE:
            await asyncio.sleep(0.02)
        assert await second.journal.wanting_undo() == ()
        ends = [r.event.status for r in await second.journal.read(run.id) if isinstance(r.event, RunFinished)]

    assert ends == [Status.CANCELLED]
    assert discarded == ["draft-7"]
