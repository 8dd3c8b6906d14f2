"""A run whose process has died is not *running*: it waits for its process, and its time stands still."""

from __future__ import annotations

import msgspec
import pytest

from checkrein.cli.commands import ps
from checkrein.control.viewer import look
from checkrein.core.enums import CallKind, Status
from checkrein.core.events import CallStarted, RunStarted
from checkrein.core.wording import status_word
from checkrein.driver.ownership import left_at
from checkrein.journal import MemoryJournal
from checkrein.journal.base import Owner, steady
from checkrein.processes.identity import this_process
from checkrein.timings import LEASE_SECONDS
from tests.core.story import Story, events_of
from tests.support.driver_harness import new_run

pytestmark = pytest.mark.anyio

AHEAD = 1_000_000.0


def dead() -> Owner:
    """A process of this host and boot that is gone."""
    return msgspec.structs.replace(this_process(), process="gone", pid=2**22 + 1, started=1.0)


async def driven_by(owner: Owner) -> tuple[MemoryJournal, float]:
    """A run at work, and when its driver last gave a sign of life: 20 s after the last thing that it said."""
    alive_at = steady() + AHEAD
    journal = MemoryJournal()
    await new_run(journal)
    lease = await journal.claim("r", owner, seconds=LEASE_SECONDS)
    began = alive_at - 20
    started = RunStarted(id="s", at=began, epoch=lease.epoch, status=Status.RUNNING, ahead=AHEAD)
    call = CallStarted(id="c", at=began, call="c1", kind=CallKind.TOOL, name="count", epoch=lease.epoch)
    await journal.append("r", [started, call], after=1, epoch=lease.epoch)
    return journal, alive_at


async def test_a_run_with_a_dead_process_waits_for_it_and_its_time_stands_still() -> None:
    journal, alive_at = await driven_by(dead())

    view = await look(journal, "r", at=alive_at + 3600)

    assert (view.status, view.driven) == (Status.RUNNING, False)
    assert status_word(view.status, driven=view.driven) == "Waiting for its process"
    assert view.elapsed_seconds == pytest.approx(20, abs=1)


async def test_a_run_with_a_living_process_runs_and_its_time_counts() -> None:
    journal, alive_at = await driven_by(this_process())

    view = await look(journal, "r", at=alive_at + 10)

    assert (view.status, view.driven) == (Status.RUNNING, True)
    assert status_word(view.status, driven=view.driven) == "Running"
    assert view.elapsed_seconds == pytest.approx(30, abs=1)


async def test_a_run_that_needs_no_process_is_not_waited_for() -> None:
    journal = MemoryJournal()
    await new_run(journal)

    assert left_at(None, await journal.load("r"), at=5.0) is None


async def test_a_run_that_its_driver_let_go_because_it_waits_for_a_person_waits_for_no_process() -> None:
    story = Story()
    events_of(story.request("pay"))

    assert left_at(None, story.state, at=5.0) is None


async def test_ps_says_so_too() -> None:
    listed = ps.Listed(
        run="r-1",
        status=Status.RUNNING,
        waiting=(),
        settling="",
        is_driven=False,
        waits_for_worker="",
        resumes_itself=False,
        agent="a",
        goal="g",
        thread="t",
        owner="",
        parent=None,
        created_at=0.0,
        elapsed_seconds=20.0,
        steps=(0, 0),
    )

    assert ps._row(listed)[1] == "waiting for its process"
    assert ps._row(msgspec.structs.replace(listed, is_driven=True))[1] == "running"
    assert ps._row(msgspec.structs.replace(listed, status=Status.QUEUED))[1] == "queued"
